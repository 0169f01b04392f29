//! `adverb model validate`: compares published values with the model's predictions.

use std::fs::{self, File};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use adverb_launch::Usage;
use adverb_predict::{agreement, predict};
use adverb_validate::{Data, Limits, Progress, Report, SCHEMA, intervals, validate};
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Format, ValidateArgs};
use crate::terminal;

/// Predicts the rows and prints the comparison. The exit status does not depend on the scores.
pub(crate) fn run(args: &ValidateArgs) -> anyhow::Result<()> {
    if args.columns {
        return Ok(write!(terminal::stdout(), "{SCHEMA}")?);
    }
    let data = data(args)?;
    let bar = bar();
    let advance = |progress: &Progress<'_>| {
        bar.set_length(progress.total as u64);
        bar.set_message(progress.entry.labels.id.clone());
        bar.set_position(progress.done as u64);
    };
    if let Some(samples) = args.intervals {
        let intervals = intervals(&predict, &data, samples, &Limits::default(), advance);
        bar.finish_and_clear();
        let mut out = terminal::stdout();
        match args.format {
            Format::Json => intervals.write_json(&mut out)?,
            Format::Text => write!(out, "{}", intervals.text())?,
        }
        return Ok(());
    }
    let report = validate(&predict, data, &Limits::default(), advance);
    bar.finish_and_clear();
    if let Some(path) = &args.svg {
        fs::write(path, agreement(&report).svg())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(args, &report)
}

/// Returns a progress bar, which is hidden unless stderr is a terminal.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} rows  {wide_msg}");
    ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn data(args: &ValidateArgs) -> anyhow::Result<Data> {
    let mut data = match (args.headlines, args.data.is_empty()) {
        (true, _) => Data::headlines(),
        (false, true) => Data::shipped(),
        (false, false) => read(&args.data)?,
    };
    for ignored in data.ignored_columns() {
        terminal::warn(&ignored.to_string());
    }
    if let Some(only) = &args.only {
        only.apply(&mut data)
            .map_err(|e| Usage(format!("--only: {e}")))?;
    }
    Ok(data)
}

fn read(files: &[PathBuf]) -> anyhow::Result<Data> {
    let mut data = Data::default();
    for path in files {
        let shown = path.display();
        let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
        data.read(&shown.to_string(), file)?;
    }
    Ok(data)
}

fn print(args: &ValidateArgs, report: &Report) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    if args.support {
        return Ok(write!(out, "{}", report.support_csv())?);
    }
    if args.format == Format::Json {
        return Ok(report.write_json(&mut out)?);
    }
    if args.headlines {
        return Ok(write!(out, "{}", report.headlines_text())?);
    }
    match args.worst {
        Some(most) => write!(out, "{}", report.worst_text(most))?,
        None => write!(out, "{}", report.rows_text())?,
    }
    write!(out, "\n{}", report.scores().text())?;
    Ok(())
}
