//! How long to measure: options of `ping` and `blast`.

use adverb_units::Span;
use adverb_workload::pair::Length;
use clap::Args;

use super::value::duration;

/// How long, and how often.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LengthArgs {
    /// Rounds (ping) or messages (blast) in each repetition [default: as the duration allows]
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    iters: Option<u64>,

    /// Measure each size for about this long, all repetitions together: seconds (10), or with a unit
    /// (500ms) [default: 1s; of a model 10ms, in virtual time]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Span>,

    /// Measure again and again until Ctrl-C: a line about each measurement on stderr, then the row of them all;
    /// the exit status is 130
    #[arg(long, conflicts_with = "iters")]
    pub(crate) run_forever: bool,

    /// Number of repetitions; the ±95 % interval comes from their spread (a single one has none)
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) repetitions: u32,

    /// Rounds or messages before the first repetition; with --iters, 0 is none [default: until the rate
    /// has been estimated]
    #[arg(long, value_name = "N")]
    pub(crate) warmup: Option<u64>,
}

impl LengthArgs {
    /// Returns how long to measure: as given, or `default`.
    pub(crate) fn or(&self, default: Span) -> Length {
        match (self.iters, self.duration) {
            (Some(iters), _) => Length::Iters(iters),
            (None, duration) => Length::Duration(duration.unwrap_or(default)),
        }
    }
}
