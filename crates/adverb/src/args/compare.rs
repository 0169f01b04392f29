//! The command line of `compare`.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::format::{Format, format};

/// Compare two measurements of the same device, cell by cell
///
/// BEFORE and AFTER are folders that `adverb study` (or --out of another command)
/// wrote, or files of JSON Lines from --json. A row is a cell that both have:
///
///   before, after  means over the repetitions
///   times as fast  speed after over speed before, with the 95 % confidence
///                  interval of that ratio over the repetitions (Welch); a
///                  model has no noise
///   verdict        faster or slower if the interval does not contain 1
///
/// Requests that were offered at a rate are compared by their latency.
///
/// Of many cells without any change, about one in 20 is called faster or slower by
/// chance.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Exit status 1 with --fail-on-regression if a cell failed in AFTER, or became
slower by more than PERCENT, with its whole interval.

Examples:
  adverb study --out before; adverb study --out after
  adverb compare before after
  adverb compare before after --out compare.html --fail-on-regression 10
  adverb ping --op send --repetitions 9 --json >a.jsonl"
)]
pub(crate) struct CompareArgs {
    /// First measurement
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,

    /// Second measurement
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,

    /// Show all cells, not only those that changed
    #[arg(long)]
    pub(crate) all: bool,

    /// Write the comparison as a page, too
    #[arg(long, value_name = "FILE.html")]
    pub(crate) out: Option<PathBuf>,

    /// Fail if a cell became slower by more than this many percent
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) fail_on_regression: Option<f64>,

    /// One JSON object per cell on stdout instead of the table
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|p| (0.0..100.0).contains(p));
    percent.ok_or_else(|| {
        format!("invalid percentage '{text}': expected a number from 0 to below 100")
    })
}
