//! `adverb ping` and `adverb blast`: one row, or one JSON object, for each size.

use adverb_launch::{DeviceChoice, DeviceInfo, Hardware, Interrupt, Launcher, Mode, Usage};
use adverb_results::{Outcome, PairRecord, Record, Values};
use adverb_workload::pair::{CellSpec, Request};
use anyhow::bail;

use crate::args::{BlastArgs, MeasureArgs, PingArgs};
use crate::busy::Beside;
use crate::hosts::Bed;
use crate::record::{Measured, Recorder};
use crate::request::Shape;
use crate::sink::{Sink, Table};
use crate::{all_pairs, hosts, request, table, terminal};

/// `adverb ping`.
pub(crate) fn ping(points: &[PingArgs]) -> anyhow::Result<()> {
    if points[0].all_pairs {
        return all_pairs::run(points);
    }
    let cells = |info: &DeviceInfo| {
        let cells = points.iter().map(|args| request::ping(args, info));
        Ok(cells.collect::<Result<Vec<_>, _>>()?.concat())
    };
    run(&points[0].common, cells)
}

/// `adverb blast`.
pub(crate) fn blast(points: &[BlastArgs]) -> anyhow::Result<()> {
    let cells = |info: &DeviceInfo| {
        let cells = points.iter().map(|args| request::blast(args, info));
        Ok(cells.collect::<Result<Vec<_>, _>>()?.concat())
    };
    run(&points[0].common, cells)
}

fn run(
    args: &MeasureArgs,
    cells: impl Fn(&DeviceInfo) -> Result<Vec<CellSpec>, Usage>,
) -> anyhow::Result<()> {
    args.device.check()?;
    let device = args.device.choice();
    request::check_places(&device, &args.place, Shape::Pair)?;
    let info = DeviceInfo::query(&device)?;
    let mut cells = cells(&info)?;
    let bed = match &device {
        DeviceChoice::Model(preset) => Bed::Model(Box::new(Hardware::load(preset)?)),
        _ => Bed::Hosts(Box::new(pair(args, &info, &cells)?)),
    };
    let interrupt = Interrupt::listen()?;
    let beside = (!bed.is_served_here()).then(|| Beside::from_now(&device));
    let mut recorder = Recorder::new(bed, &cells)?;
    let points: Vec<Values> = cells.iter().map(|spec| values(&spec.params)).collect();
    let mut sink = Sink::open(
        Rows {
            cells: cells.clone(),
        },
        &points,
        (&args.out, args.format),
    )?;
    cells.retain(|spec| !sink.has(|r: &Record| r.cell == spec.id && recorder.is_of(r)));
    let measured = recorder.in_order(&cells, &interrupt, |measured| {
        for spec in &cells {
            let record = match measured()? {
                Measured::Record(record) => record,
                Measured::Interrupted => bail!("interrupted"),
                Measured::NoPeer(reason) => bail!("{}: {reason}", spec.id),
            };
            sink.take(record.as_ref().into())?;
            if let Outcome::Failed { reason } = record.outcome {
                bail!("{}: {reason}", spec.id);
            }
        }
        Ok(())
    });
    sink.finish(measured)?;
    if let Some(beside) = beside {
        beside.warn();
    }
    Ok(())
}

/// Where the cells run; a peer is asked before anything is run.
pub(crate) fn pair(
    args: &MeasureArgs,
    info: &DeviceInfo,
    cells: &[CellSpec],
) -> anyhow::Result<Launcher> {
    let peers = hosts::peers(&args.place, &args.device.choice(), info)?;
    for peer in &peers {
        request::check_at(peer, cells, &info.caps)?;
    }
    let shared = request::shared_core(&args.place);
    shared.iter().for_each(|line| terminal::warn(line));
    let launcher = hosts::launcher(args.device.all(), peers, &args.place)?;
    Ok(launcher.with_mode(Mode::Processes))
}

/// Parameters as typed, by name.
fn values(request: &Request) -> Values {
    let json = serde_json::to_value(request).unwrap_or_default();
    let mut values = json.as_object().cloned().unwrap_or_default();
    // Each row has its size.
    values.shift_remove("size");
    values
}

/// Rows of `ping` and `blast`.
struct Rows {
    cells: Vec<CellSpec>,
}

impl Table for Rows {
    fn title(&self, record: &Record) -> String {
        let asked = self.cells.iter().find(|spec| spec.id == record.cell);
        let pair = PairRecord::of(record).zip(asked);
        pair.map_or_else(String::new, |(record, spec)| {
            table::title(&record, &spec.params)
        })
    }

    fn columns(&self) -> Vec<(&'static str, usize)> {
        let spec = &self.cells[0];
        table::columns(spec.program, spec.params.op)
    }

    fn row(&self, record: &Record) -> Vec<Option<String>> {
        PairRecord::of(record).map_or_else(Vec::new, |record| table::row(&record))
    }
}
