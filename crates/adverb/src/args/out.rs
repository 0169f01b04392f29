//! Output folder, label and limits: options that all measuring programs share.

use std::path::PathBuf;

use clap::Args;

use super::limit::LimitArgs;

/// Output of a measurement.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct OutArgs {
    /// Write the records, a table (CSV) and a report into this folder, too
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Continue in --out, and keep the points that were already measured, also if they were measured for another time;
    /// more --repetitions are added
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// Name of this measurement in its records
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}
