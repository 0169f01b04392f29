//! `adverb ping` and `adverb blast`: one row, or one JSON object, for each size.

use std::io::Write;

use adverb_results::{Outcome, Record};
use adverb_studies::CellSpec;
use adverb_verbs::DeviceCaps;
use anyhow::bail;

use crate::args::{BlastArgs, MeasureArgs, PingArgs};
use crate::failure::Usage;
use crate::interrupt::Interrupt;
use crate::record::Recorder;
use crate::{device::DeviceInfo, request, table};

/// `adverb ping`.
pub(crate) fn ping(args: &PingArgs) -> anyhow::Result<()> {
    run(&args.common, |caps| request::ping(args, caps))
}

/// `adverb blast`.
pub(crate) fn blast(args: &BlastArgs) -> anyhow::Result<()> {
    run(&args.common, |caps| request::blast(args, caps))
}

fn run(
    args: &MeasureArgs,
    cells: impl Fn(&DeviceCaps) -> Result<Vec<CellSpec>, Usage>,
) -> anyhow::Result<()> {
    let cores = request::cores(&args.cores)?;
    let info = DeviceInfo::query(&args.device)?;
    let cells = cells(&info.caps)?;
    let interrupt = Interrupt::listen()?;
    let recorder = Recorder::new(args.device.clone(), &info, cores);
    for (index, spec) in cells.iter().enumerate() {
        let Some(record) = recorder.measure(spec, &interrupt)? else {
            bail!("interrupted");
        };
        print(&record, args.json, index == 0)?;
        if let Outcome::Failed { reason } = record.outcome {
            bail!("{}: {reason}", spec.id);
        }
    }
    Ok(())
}

/// A row, with title and header before the first one. A failed cell is only an error, and a record.
fn print(record: &Record, as_json: bool, is_first: bool) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    if as_json {
        writeln!(out, "{}", serde_json::to_string(record)?)?;
    } else if record.outcome == Outcome::Ok {
        if is_first {
            writeln!(out, "{}", table::title(record))?;
            writeln!(out, "{}", table::header())?;
        }
        writeln!(out, "{}", table::row(record))?;
    }
    Ok(out.flush()?)
}
