//! Where perftest defines a figure in another way.

use super::{ours, program};

/// One latency run, by perftest's definitions and plainly.
pub(super) struct Definitions {
    pub(super) perftest: program::Latency,
    pub(super) ours: ours::Latency,
}

/// Prints the same samples by both definitions.
pub(super) fn print(definitions: &[(&str, Definitions)]) {
    if definitions.is_empty() {
        return;
    }
    println!(
        "\nThe other figures of the last round, µs. perftest leaves the two largest samples out of \
         t_typical and t_avg, calls the second largest t_max, and truncates deviations to whole µs \
         before it squares them; \"its samples\" are the same run without that.\n"
    );
    println!(
        "{:24}  {:16}  {:>10}  {:>10}  {:>10}  {:>10}",
        "", "", "median", "mean", "largest", "deviation"
    );
    let line = |name: &str, who: &str, figures: [f64; 4]| {
        let [median, mean, largest, deviation] = figures;
        println!(
            "{name:24}  {who:16}  {median:>10.2}  {mean:>10.2}  {largest:>10.2}  {deviation:>10.2}"
        );
    };
    for (name, Definitions { perftest: p, ours }) in definitions {
        let (mean, deviation) = p.plain();
        line(name, "perftest", [p.typical, p.average, p.max, p.deviation]);
        line(
            "",
            "its samples",
            [p.median(), mean, p.largest(), deviation],
        );
        line(
            "",
            "adverb",
            [ours.median, ours.mean, ours.largest, ours.deviation],
        );
    }
}
