//! Length of a measurement: options of `ping` and `blast`, and of programs that measure requests for a time.

use adverb_units::Span;
use adverb_workload::pair::Length;
use clap::Args;

use super::value::{count, duration};

/// Length and repetitions of a measurement.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LengthArgs {
    /// Rounds (ping) or messages (blast) in each repetition [default: as the duration allows]
    #[arg(long, value_name = "N", value_parser = count::<u64, _>(1..), conflicts_with = "duration")]
    pub(crate) iters: Option<u64>,

    /// Measure each size for about this long, all repetitions together: seconds (10), or with a unit
    /// (500ms) [default: 1s; of a model 10ms, in virtual time]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Span>,

    /// Repeat the measurement until Ctrl-C: a line about each one on stderr, then the row of them all;
    /// the exit status is 130
    #[arg(long, conflicts_with = "iters")]
    pub(crate) run_forever: bool,

    /// Number of repetitions; the ±95 % interval comes from their spread (a single one has none) [default: 5]
    #[arg(long, value_name = "N", value_parser = count::<u32, _>(1..=1000))]
    pub(crate) repetitions: Option<u32>,

    /// Warm-up rounds or messages before the first repetition; with --iters 0 for none [default: until the rate
    /// has been estimated]
    #[arg(long, value_name = "N", value_parser = count::<u64, _>(..))]
    pub(crate) warmup: Option<u64>,
}

impl LengthArgs {
    /// Returns the given length, or `default`.
    pub(crate) fn or(&self, default: Span) -> Length {
        match (self.iters, self.duration) {
            (Some(iters), _) => Length::Iters(iters),
            (None, duration) => Length::Duration(duration.unwrap_or(default)),
        }
    }
}

/// Length and number of the runs of a program with several members.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RunsArgs {
    /// Measure for this long, after a quarter of it to warm up: seconds (10), or with a unit (500ms)
    /// [default: 1s; on a model 1ms of virtual time, or longer until four times the number of outstanding requests have ended (with --rate: 2048), at most 1s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Span>,

    /// Runs of the whole program: their spread gives the mean its interval
    #[arg(long, value_name = "RUNS", default_value = "1", value_parser = count::<u32, _>(1..=1000))]
    pub(crate) repetitions: u32,
}
