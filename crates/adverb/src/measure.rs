//! `adverb ping` and `adverb blast`: one row, or one JSON object, for each size.

use std::slice;

use adverb_launch::{DeviceChoice, DeviceInfo, Hardware, Interrupt, Launcher, Mode, Usage};
use adverb_measure::{Backend, Measured, Recorder, asked_values, kept};
use adverb_results::{Outcome, PairRecord, Record, Values, merged};
use adverb_workload::pair::CellSpec;
use anyhow::{anyhow, bail};

use crate::args::{BlastArgs, MeasureArgs, PingArgs};
use crate::busy::LoadMonitor;
use crate::failure::Stopped;
use crate::progress::Measuring;
use crate::request::Shape;
use crate::sink::{Sink, Table};
use crate::table::ThroughputUnit;
use crate::{hosts, request, table, terminal};

/// Records of `--run-forever` that are kept until they are merged: each has a histogram, which takes memory,
/// and merging takes time.
const MERGED_TOGETHER: usize = 64;

/// `adverb ping`.
pub(crate) fn ping(points: &[PingArgs]) -> anyhow::Result<()> {
    run(&points[0].common, |info| {
        let cells = points.iter().map(|args| request::ping(args, info));
        cells.collect()
    })
}

/// `adverb blast`.
pub(crate) fn blast(points: &[BlastArgs]) -> anyhow::Result<()> {
    run(&points[0].common, |info| {
        let cells = points.iter().map(|args| request::blast(args, info));
        cells.collect()
    })
}

fn run(
    args: &MeasureArgs,
    cells: impl Fn(&DeviceInfo) -> Result<Vec<CellSpec>, Usage>,
) -> anyhow::Result<()> {
    args.on.device.check()?;
    let device = args.on.device.choice();
    request::check_places(&device, &args.on.place, Shape::Pair)?;
    let info = DeviceInfo::query(&device)?;
    let mut cells = cells(&info)?;
    if args.length.run_forever {
        check_forever(&device, &cells)?;
    }
    let backend = match &device {
        DeviceChoice::Model(preset) => Backend::Model(Box::new(Hardware::load(preset)?)),
        _ => Backend::Hosts(Box::new(pair(args, &info, &cells)?)),
    };
    let interrupt = Interrupt::listen()?;
    let monitor = (!backend.is_served_here()).then(|| LoadMonitor::from_now(&device));
    let mut recorder = Recorder::new(backend, &cells, hosts::log)?;
    let points = cells.iter().map(|cell| ("", values(cell)));
    let points: Vec<(&str, Values)> = points.collect();
    let mut sink = Sink::open(
        Rows {
            cells: cells.clone(),
            unit: args.throughput_unit(),
        },
        &points,
        (&args.on.out, Some(args.on.format)),
    )?;
    let mut earlier = Vec::new();
    cells.retain(|spec| {
        let record = sink.earlier(|r| r.cell == spec.id && recorder.is_of(r));
        earlier.extend(record.cloned());
        record.is_none()
    });
    sink.reuse_of_length(&earlier, &args.length)?;
    if let (true, [cell]) = (args.length.run_forever, &cells[..]) {
        return forever(cell, (&mut recorder, &interrupt), sink);
    }
    let measured = recorder.in_order(&cells, (1, &interrupt), |measured| {
        for (place, spec) in cells.iter().enumerate() {
            let shown = Measuring::point(place, cells.len(), &spec.id);
            let ended = measured()?;
            drop(shown);
            let record = match ended {
                Measured::Record(record) => record,
                Measured::Interrupted => bail!("interrupted"),
                Measured::NoPeer(reason) => bail!("{}: {reason}", spec.id),
            };
            sink.take(kept(spec, &record))?;
            if let Outcome::Failed { reason } = record.outcome {
                bail!("{}: {reason}", spec.id);
            }
        }
        Ok(())
    });
    sink.finish(measured)?;
    if let Some(monitor) = monitor {
        monitor.warn();
    }
    Ok(())
}

/// Refuses --run-forever on a model or for several points.
fn check_forever(device: &DeviceChoice, cells: &[CellSpec]) -> Result<(), Usage> {
    let reason = match device {
        DeviceChoice::Model(_) => {
            format!("{device} is a model: it would find the same each time")
        }
        _ if cells.len() > 1 => format!("there are {} points; name one", cells.len()),
        _ => return Ok(()),
    };
    Err(Usage(format!("--run-forever: {reason}")))
}

/// Repeats a cell until a signal, then prints and keeps the record of all measurements.
///
/// # Errors
/// [`Stopped`] after the signal; else the measurement that failed.
fn forever(
    spec: &CellSpec,
    (recorder, interrupt): (&mut Recorder, &Interrupt),
    mut sink: Sink<Rows>,
) -> anyhow::Result<()> {
    let mut all: Vec<Record> = Vec::new();
    let mut number = 0;
    let ended = loop {
        number += 1;
        let cell = slice::from_ref(spec);
        let run = (number, interrupt);
        let record = match recorder.in_order(cell, run, |measured| measured())? {
            Measured::Record(record) => record,
            Measured::Interrupted => break Stopped.into(),
            Measured::NoPeer(reason) => break anyhow!("{}: {reason}", spec.id),
        };
        if let Outcome::Failed { reason } = &record.outcome {
            break anyhow!("{}: {reason}", spec.id);
        }
        terminal::say(&sink.table().live(&record));
        let mut record = kept(spec, &record);
        record.pass = Some(all.len() as u32);
        all.push(record);
        if all.len() == MERGED_TOGETHER {
            all = merged(all);
        }
    };
    let taken = merged(all)
        .into_iter()
        .try_for_each(|record| sink.take(record));
    sink.finish(taken)?;
    Err(ended)
}

/// Returns a launcher for the cells; peers are connected and checked before anything runs.
pub(crate) fn pair(
    args: &MeasureArgs,
    info: &DeviceInfo,
    cells: &[CellSpec],
) -> anyhow::Result<Launcher> {
    let peers = hosts::peers(&args.on.place, &args.on.device.choice(), info)?;
    for peer in &peers {
        request::check_at(peer, cells, &info.caps)?;
    }
    let shared = request::shared_core(&args.on.place);
    shared.iter().for_each(|line| terminal::warn(line));
    let launcher = hosts::launcher(args.on.device.all(), peers, &args.on.place)?;
    let launcher = launcher.with_mode(Mode::Processes);
    cells.iter().try_for_each(|cell| launcher.check(cell))?;
    Ok(launcher)
}

/// Returns the parameters by name, except the size, which has a column of its own.
fn values(spec: &CellSpec) -> Values {
    let mut values = asked_values(spec);
    values.shift_remove("size_bytes");
    values
}

/// Rows of `ping` and `blast`.
struct Rows {
    cells: Vec<CellSpec>,
    unit: ThroughputUnit,
}

impl Rows {
    /// Formats the line about one measurement of many.
    fn live(&self, record: &PairRecord) -> String {
        const SHOWN: [&str; 7] = [
            "one-way",
            "round trip",
            "time per message",
            "p99",
            "rate",
            "throughput",
            "lost",
        ];
        let columns = table::columns(table::measured(record), self.unit);
        let values = table::row(record, self.unit);
        let shown = columns.iter().zip(values).filter_map(|((name, _), value)| {
            let value = value.filter(|_| SHOWN.contains(name))?;
            Some(format!("{name} {value}"))
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

impl Table for Rows {
    fn title(&self, record: &Record) -> String {
        let pair = PairRecord::of(record);
        pair.map_or_else(String::new, |record| table::title(&record, &self.cells))
    }

    fn columns(&self, _: &Record) -> Vec<(&'static str, usize)> {
        let spec = &self.cells[0];
        let p = &spec.params;
        table::columns((spec.program, p.op, p.traffic.transport), self.unit)
    }

    fn rows(&self, record: &Record) -> Vec<Vec<Option<String>>> {
        let pair = PairRecord::of(record).into_iter();
        pair.map(|record| table::row(&record, self.unit)).collect()
    }
}
