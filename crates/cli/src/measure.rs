//! `adverb ping` and `adverb blast`: one row, or one JSON object, for each size.

use std::io::Write;

use adverb_results::{Outcome, Record};
use adverb_studies::CellSpec;
use anyhow::bail;

use crate::args::{BlastArgs, MeasureArgs, PingArgs};
use crate::busy::Beside;
use crate::device::{DeviceChoice, DeviceInfo};
use crate::failure::Usage;
use crate::interrupt::Interrupt;
use crate::model::Hardware;
use crate::pair::Pair;
use crate::record::{Bed, Measured, Recorder};
use crate::remote::Peer;
use crate::{request, table, terminal};

/// `adverb ping`.
pub(crate) fn ping(args: &PingArgs) -> anyhow::Result<()> {
    run(&args.common, |info| request::ping(args, info))
}

/// `adverb blast`.
pub(crate) fn blast(args: &BlastArgs) -> anyhow::Result<()> {
    run(&args.common, |info| request::blast(args, info))
}

fn run(
    args: &MeasureArgs,
    cells: impl Fn(&DeviceInfo) -> Result<Vec<CellSpec>, Usage>,
) -> anyhow::Result<()> {
    let device = args.device.choice();
    request::check_places(&device, &args.place)?;
    let info = DeviceInfo::query(&device)?;
    let cells = cells(&info)?;
    let bed = match &device {
        DeviceChoice::Model(preset) => Bed::Model(Box::new(Hardware::load(preset)?)),
        _ => Bed::Pair(Box::new(pair(args, &info, &cells)?)),
    };
    let interrupt = Interrupt::listen()?;
    let beside = Beside::of(&bed);
    let mut recorder = Recorder::new(bed, &cells)?;
    recorder.in_order(&cells, &interrupt, |measured| {
        for (index, spec) in cells.iter().enumerate() {
            let record = match measured()? {
                Measured::Record(record) => record,
                Measured::Interrupted => bail!("interrupted"),
                Measured::NoPeer(reason) => bail!("{}: {reason}", spec.id),
            };
            print(&record, args.json, index == 0)?;
            if let Outcome::Failed { reason } = record.outcome {
                bail!("{}: {reason}", spec.id);
            }
        }
        Ok(())
    })?;
    beside.warn();
    Ok(())
}

/// Where the cells run; a peer is asked before anything is run.
fn pair(args: &MeasureArgs, info: &DeviceInfo, cells: &[CellSpec]) -> anyhow::Result<Pair> {
    let device = args.device.choice();
    let Some(address) = &args.place.peer else {
        let cores = request::cores(&args.place)?;
        cores.warning().iter().for_each(|line| terminal::warn(line));
        return Ok(Pair::new(device, cores, None));
    };
    let peer = Peer::connect(address, &device, info)?;
    request::check_at(&peer, cells, &info.caps)?;
    let cores = request::cores_with(&args.place, &peer)?;
    Ok(Pair::new(device, cores, Some(peer)))
}

/// A row, with title and header before the first one. A failed cell is only an error, and a record.
fn print(record: &Record, as_json: bool, is_first: bool) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
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
