//! The command line of `report`.

use std::path::PathBuf;

use clap::Args;

/// Rebuild report.html and results.csv from a study's results.jsonl
///
/// With several folders: one report that compares their devices. Plots of a model's
/// study show published values of the same hardware, if there are any, with their
/// source.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb report study-20260102T030405Z --open
  adverb report on-soft on-cx3 --out both.html    this machine next to a model"
)]
pub(crate) struct ReportArgs {
    /// One or more folders of `adverb study`
    #[arg(value_name = "DIR", required = true)]
    pub(crate) dirs: Vec<PathBuf>,

    /// The file to write [default: report.html in the folder; needed for several]
    #[arg(long, value_name = "FILE.html")]
    pub(crate) out: Option<PathBuf>,

    /// Show the report in the browser (xdg-open)
    #[arg(long)]
    pub(crate) open: bool,
}
