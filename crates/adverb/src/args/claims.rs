//! The command line of `claims`.

use std::path::PathBuf;

use adverb_experiments::ledgers;
use adverb_report::claims::{Claim, Ledger};
use clap::{ArgAction, Args};

use super::format::{Format, format};
use crate::failure::one_of;

/// Check what the published studies claim against the records of a study
///
/// Without DIR: prints the claims of the studies, each with its source, the cells
/// that it needs and the condition under which it holds (docs/claims.md).
/// With folders of `adverb study`: judges the claims by their records, device by
/// device. Each claim holds, does not hold (with the figures), was not measured, or
/// cannot be answered by that device (with the reason).
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb claims                             the claims
  adverb claims study-20260102T030405Z      which of them hold here
  adverb claims qdr --study macarthur --json
  adverb claims qdr --only mac-3a-300ns"
)]
pub(crate) struct ClaimsArgs {
    /// Folders of `adverb study`
    #[arg(value_name = "DIR")]
    pub(crate) dirs: Vec<PathBuf>,

    /// Only the claims of this study: macarthur, russell, wan, numa or guidelines
    #[arg(long, value_name = "STUDY", value_parser = study)]
    pub(crate) study: Option<&'static Ledger>,

    /// Only these claims, separated by commas
    #[arg(long, value_name = "ID,...", value_delimiter = ',', value_parser = claim)]
    pub(crate) only: Vec<&'static Claim>,

    /// One JSON object per claim (and device) on stdout instead of text
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,
}

fn study(text: &str) -> Result<&'static Ledger, String> {
    let known = ledgers().map(|ledger| ledger.study.as_str());
    let known = one_of(&known.collect::<Vec<_>>());
    let found = ledgers().find(|ledger| ledger.study == text);
    found.ok_or_else(|| format!("invalid study '{text}': expected {known}"))
}

fn claim(text: &str) -> Result<&'static Claim, String> {
    let all = ledgers().flat_map(|ledger| &ledger.claims);
    let mut all = all.filter(|claim| claim.id == text);
    let found = all.next();
    found.ok_or_else(|| format!("invalid claim '{text}': `adverb claims` lists all ids"))
}
