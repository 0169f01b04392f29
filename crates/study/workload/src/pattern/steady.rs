//! Whether a machine was in steady state while it was measured.

use adverb_verbs::Counters;

use crate::pattern::member::Tally;

/// Largest deviation in steady state.
const TOLERANCE: f64 = 0.02;

fn agree(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE * a.max(b)
}

fn sum(counters: &Counters, names: &[&str]) -> f64 {
    let counts = names.iter().filter_map(|name| counters.get(*name));
    counts.map(|count| *count as f64).sum()
}

/// Lines over PCIe, and requests that were completed here or arrived here.
fn lines_and_requests(counters: &Counters) -> (f64, f64) {
    (
        sum(counters, &["pcie_read_lines", "pcie_write_lines"]),
        sum(counters, &["completed_requests", "received_messages"]),
    )
}

impl Tally {
    /// Whether the machine whose device was counted was in steady state: it completed as many requests as were posted,
    /// and needed as many lines over PCIe for each request in both halves of the measured time, within 2 %.
    pub fn is_steady(&self) -> bool {
        let (first, all) = (
            lines_and_requests(&self.counted_first),
            lines_and_requests(&self.counted),
        );
        let posted = sum(&self.counted, &["posted_requests"]);
        let completed = sum(&self.counted, &["completed_requests"]);
        agree(posted, completed) && agree(first.0 * (all.1 - first.1), (all.0 - first.0) * first.1)
    }
}
