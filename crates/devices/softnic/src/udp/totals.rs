//! The counters of a port: the sums of its queue pairs' counters.

use std::collections::BTreeMap;

use adverb_transport::{Counters, DropReason};

/// Sums of counters, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals(BTreeMap<String, u64>);

impl Totals {
    pub(super) fn add(&mut self, link: &Counters) {
        // Soft-RoCE's names, for events that it counts too.
        let counts = [
            ("sent_pkts", link.sent),
            ("rcvd_pkts", link.taken),
            ("resent_pkts_retry", link.resent),
            ("duplicate_request", link.duplicates),
            ("ack_timeout", link.timeouts),
            ("went_back_retry", link.go_backs),
            ("rcvd_rnr_err", link.rnr_naks),
        ];
        let counts = counts.map(|(name, count)| (name.to_owned(), count));
        let dropped = DropReason::ALL.iter().map(|reason| {
            let name = format!("drop_{}", snake(&format!("{reason:?}")));
            (name, link.dropped(*reason))
        });
        for (name, count) in counts.into_iter().chain(dropped) {
            *self.0.entry(name).or_default() += count;
        }
    }

    pub(super) fn by_name(&self) -> BTreeMap<String, u64> {
        self.0.clone()
    }
}

/// Converts `OutOfSequence` to `out_of_sequence`.
fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for (i, c) in name.char_indices() {
        if c.is_uppercase() && i != 0 {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}
