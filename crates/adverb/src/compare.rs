//! `adverb compare`: which cells changed between two measurements.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use adverb_launch::Usage;
use adverb_measure::replace;
use adverb_report::comparison::{Sides, page, verdict_word, with_interval};
use adverb_results::{
    Change, Comparison, RESULTS_JSONL, Record, Verdict, compare, merged, read_records,
};
use anyhow::bail;
use serde_json::json;

use crate::args::{CompareArgs, Format};
use crate::terminal;

/// Compares, prints, and fails on regressions if asked to.
pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let comparison = compare(&before, &after).map_err(|e| Usage(e.to_string()))?;
    if let Some(path) = &args.out {
        let sides = Sides {
            before: args.before.display().to_string(),
            after: args.after.display().to_string(),
        };
        replace(path, page(&comparison, &sides).as_bytes())?;
        terminal::say(&format!("page: {}", path.display()));
    }
    print(&comparison, args)?;
    let Some(percent) = args.fail_on_regression else {
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(failed) = comparison.failed.first() {
        bail!(
            "{} of the cells failed in the second measurement, such as {failed}",
            comparison.failed.len()
        );
    }
    let regressed = comparison
        .changes
        .iter()
        .filter(|c| c.is_regression(percent));
    let regressed: Vec<&Change> = regressed.collect();
    let worst = regressed.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let Some(worst) = worst else {
        return Ok(ExitCode::SUCCESS);
    };
    bail!(
        "{} of {} cells became slower by more than {percent} %; the worst is {}, {} times as fast",
        regressed.len(),
        comparison.changes.len(),
        worst.name(),
        with_interval(worst)
    )
}

/// Reads the records of a study's folder, or of a file.
fn read(path: &Path) -> anyhow::Result<Vec<Record>> {
    let in_folder = path.join(RESULTS_JSONL);
    let outcome = read_records(if path.is_dir() { &in_folder } else { path })?;
    if let Some(warning) = outcome.warning {
        terminal::warn(&warning.to_string());
    }
    Ok(merged(outcome.records))
}

fn print(comparison: &Comparison, args: &CompareArgs) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    if args.format == Format::Json {
        for change in &comparison.changes {
            writeln!(out, "{}", json(change))?;
        }
        return Ok(out.flush()?);
    }
    let is_shown = |c: &&Change| args.all || c.verdict != Verdict::Unchanged;
    let shown: Vec<&Change> = comparison.changes.iter().filter(is_shown).collect();
    let width = shown.iter().map(|c| c.name().len()).max().unwrap_or(0);
    if !shown.is_empty() {
        writeln!(
            out,
            "{:width$}  {:>10}  {:>10}  {:>20}  verdict",
            "cell", "before", "after", "times as fast"
        )?;
    }
    for change in shown {
        let (before, after) = adverb_report::comparison::means(change);
        writeln!(
            out,
            "{:width$}  {before:>10}  {after:>10}  {:>20}  {}",
            change.name(),
            with_interval(change),
            verdict_word(change.verdict)
        )?;
    }
    writeln!(out, "{}", adverb_report::comparison::summary(comparison))?;
    Ok(out.flush()?)
}

fn json(change: &Change) -> serde_json::Value {
    json!({
        "cell": change.cell,
        "device": change.device,
        "label": change.label,
        "metric": change.metric,
        "before": change.before,
        "after": change.after,
        "times_faster": change.ratio,
        "ci95": change.interval,
        "verdict": verdict_word(change.verdict),
    })
}
