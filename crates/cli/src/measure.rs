//! `adverb ping` and `adverb blast`: one row, or one JSON object, for each size.

use std::io::Write;

use adverb_launch::{DeviceChoice, DeviceInfo, Hardware, Interrupt, Launcher, Mode, Usage};
use adverb_results::{Outcome, PairRecord};
use adverb_studies::{CellSpec, Request};
use anyhow::bail;

use crate::args::{BlastArgs, Format, MeasureArgs, PingArgs};
use crate::busy::Beside;
use crate::record::{Bed, Measured, Recorder};
use crate::request::Shape;
use crate::{hosts, request, table, terminal};

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
    request::check_places(&device, &args.place, Shape::Pair)?;
    let info = DeviceInfo::query(&device)?;
    let cells = cells(&info)?;
    let bed = match &device {
        DeviceChoice::Model(preset) => Bed::Model(Box::new(Hardware::load(preset)?)),
        _ => Bed::Pair(Box::new(pair(args, &info, &cells)?)),
    };
    let interrupt = Interrupt::listen()?;
    let beside = (!bed.is_served_here()).then(|| Beside::from_now(&device));
    let mut recorder = Recorder::new(bed, &cells)?;
    let mut rows = Rows::new(args.format);
    recorder.in_order(&cells, &interrupt, |measured| {
        for spec in &cells {
            let record = match measured()? {
                Measured::Record(record) => record,
                Measured::Interrupted => bail!("interrupted"),
                Measured::NoPeer(reason) => bail!("{}: {reason}", spec.id),
            };
            rows.print(&record, &spec.params)?;
            if let Outcome::Failed { reason } = record.outcome {
                bail!("{}: {reason}", spec.id);
            }
        }
        Ok(())
    })?;
    if let Some(beside) = beside {
        beside.warn();
    }
    Ok(())
}

/// Where the cells run; a peer is asked before anything is run.
fn pair(args: &MeasureArgs, info: &DeviceInfo, cells: &[CellSpec]) -> anyhow::Result<Launcher> {
    let peers = hosts::peers(&args.place, &args.device.choice(), info)?;
    for peer in &peers {
        request::check_at(peer, cells, &info.caps)?;
    }
    let shared = request::shared_core(&args.place);
    shared.iter().for_each(|line| terminal::warn(line));
    let launcher = hosts::launcher(args.device.all(), peers, &args.place)?;
    Ok(launcher.with_mode(Mode::Processes))
}

/// Prints records as they come: objects, or rows below one title and header. A failed cell is only an
/// error, and a record.
struct Rows {
    format: Format,
    has_title: bool,
}

impl Rows {
    fn new(format: Format) -> Self {
        Rows {
            format,
            has_title: false,
        }
    }

    fn print(&mut self, record: &PairRecord, asked: &Request) -> anyhow::Result<()> {
        let mut out = terminal::stdout();
        if self.format == Format::Json {
            writeln!(out, "{}", serde_json::to_string(record)?)?;
        } else if record.outcome == Outcome::Ok {
            if !std::mem::replace(&mut self.has_title, true) {
                writeln!(out, "{}", table::title(record, asked))?;
                writeln!(out, "{}", table::header())?;
            }
            writeln!(out, "{}", table::row(record))?;
        }
        Ok(out.flush()?)
    }
}
