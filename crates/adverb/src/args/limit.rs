//! Limits for a measurement, whose violation sets the exit status for scripts.

use adverb_results::{PairRecord, Record};
use adverb_units::Span;
use clap::Args;

use super::value::{duration, rate};
use crate::table;

/// Limits on the figures of each point.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct LimitArgs {
    /// Exit with status 1 if a point has fewer messages, requests or connections per second: 500k, 2M
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) min_rate: Option<f64>,

    /// Exit with status 1 if the 99th percentile of a point's latency is longer: 5us, 1ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_latency: Option<Span>,
}

impl LimitArgs {
    /// Returns why a measured record is outside the limits; empty if it is within.
    pub(crate) fn violations(&self, record: &Record) -> Vec<String> {
        let mut rates = ["messages", "requests", "connections"].into_iter();
        let rate = rates.find_map(|what| Some((record.metric(&format!("{what}_per_s"))?, what)));
        let slow = self
            .min_rate
            .filter(|min| rate.is_none_or(|(rate, _)| rate < *min));
        let slow = slow.map(|min| match rate {
            Some((rate, what)) => format!("{rate:.0} {what}/s, below --min-rate {min:.0}"),
            None => "no rate was measured for --min-rate".to_owned(),
        });
        let p99 = match PairRecord::of(record) {
            Some(pair) => table::p99(&pair),
            None => {
                let mut latencies = ["latency", "one_way", "active.connection"].into_iter();
                let p99 = latencies.find_map(|what| record.metric(&format!("{what}_ns.p99")));
                p99.map(Span::from_ns_f64)
            }
        };
        let late = self
            .max_latency
            .filter(|max| p99.is_none_or(|p99| p99 > *max));
        let late = late.map(|max| match p99 {
            Some(p99) => format!("99 % of the latencies within {p99}, above --max-latency {max}"),
            None => "no latency was measured for --max-latency".to_owned(),
        });
        slow.into_iter().chain(late).collect()
    }
}
