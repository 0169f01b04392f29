//! `adverb model validate`: published values beside what the model predicts for them.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use adverb_validate::{Data, Limits, Report, validate};
use anyhow::Context;

use crate::args::ValidateArgs;
use crate::failure::Usage;
use crate::model::experiment;
use crate::terminal;

/// Predicts the rows and prints what came out; scores are the answer, not the exit status.
pub(crate) fn run(args: &ValidateArgs) -> anyhow::Result<()> {
    let data = data(args)?;
    let report = validate(&experiment::predict, data, &Limits::default(), |_| {});
    print(args, &report)
}

fn data(args: &ValidateArgs) -> anyhow::Result<Data> {
    let mut data = if args.data.is_empty() {
        Data::shipped()
    } else {
        read(&args.data)?
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
    let mut out = anstream::stdout().lock();
    if args.json {
        return Ok(report.write_json(&mut out)?);
    }
    match args.worst {
        Some(most) => write!(out, "{}", report.worst_text(most))?,
        None => write!(out, "{}", report.rows_text())?,
    }
    write!(out, "\n{}", report.scores().text())?;
    Ok(())
}
