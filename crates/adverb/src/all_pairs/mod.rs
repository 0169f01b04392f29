//! `adverb ping --all-pairs`: a ping and a blast between every two hosts, one pair after another.
//!
//! A ping is measured once for each two hosts, from the one with the lower number: its one-way time is half
//! of a round trip, which is the same in both directions. A blast is measured in each direction.

mod bench;
mod table;

use adverb_launch::{DeviceChoice, DeviceInfo, Interrupt, Peer, Usage};
use adverb_measure::{AllPairs, Hosts};
use adverb_results::{Opcode, Signaling};
use adverb_workload::pair::{CellSpec, Request};

use crate::args::{Format, MeasureArgs, PingArgs};
use crate::busy::LoadMonitor;
use crate::measure;
use crate::request::{self, Shape};
use crate::sink::Sink;
use bench::Bench;

/// Messages in flight of a blast.
const BUFFERS: u32 = 16;

/// What is measured between two hosts at one point of a sweep.
struct Point {
    ping: CellSpec,
    blast: CellSpec,
}

/// Measures all pairs at each point of a sweep.
///
/// # Errors
/// The program cannot run there, was interrupted, or pairs failed; the records of other pairs are kept.
pub(crate) fn run(points: &[PingArgs]) -> anyhow::Result<()> {
    let args = &points[0].common;
    let device = args.on.device.choice();
    args.on.device.check()?;
    check(args, &device)?;
    let info = DeviceInfo::query(&device)?;
    let pings = points.iter().map(|point| request::ping(point, &info));
    let points: Vec<Point> = pings
        .map(|ping| ping.map(Point::of))
        .collect::<Result<_, _>>()?;
    let cells = points
        .iter()
        .flat_map(|p| [p.ping.clone(), p.blast.clone()]);
    let cells: Vec<CellSpec> = cells.collect();
    for cell in &cells {
        let checked = cell.validate(&info.caps);
        checked.map_err(|e| Usage(e.to_string()))?;
    }
    let launcher = measure::pair(args, &info, &cells)?;
    if launcher.hosts() < 2 {
        return Err(Usage(
            "--all-pairs needs another host; name at least one with --peer HOST, where `adverb serve` runs"
                .to_owned(),
        )
        .into());
    }
    let interrupt = Interrupt::listen()?;
    let is_served_here = launcher.peers().iter().any(Peer::is_here);
    let monitor = (!is_served_here).then(|| LoadMonitor::from_now(&device));
    let hosts = Hosts::of(&launcher, &args.on.device.all())?;
    let mut sink = Sink::open((), &[], (&args.on.out, Some(args.on.format)))?;
    if args.on.format == Format::Text {
        table::print_hosts(&hosts)?;
    }
    let mut bench = Bench::new(AllPairs::new(launcher, hosts), &points);
    bench.reuse(&points, &mut sink, &args.length)?;
    let measured = points.iter().try_for_each(|point| {
        let records = bench.measure(point, &mut sink, &interrupt)?;
        match args.on.format {
            Format::Text => table::print(&records),
            Format::Json => Ok(()),
        }
    });
    let failed = bench.finish();
    sink.finish(measured)?;
    if let Some(monitor) = monitor {
        monitor.warn();
    }
    failed
}

/// Refuses impossible combinations of arguments before anything runs.
fn check(args: &MeasureArgs, device: &DeviceChoice) -> Result<(), Usage> {
    if let DeviceChoice::Model(_) = device {
        return Err(Usage(format!(
            "--all-pairs: {device} is a model, in which all pairs of hosts are alike; leave out --all-pairs, or name a real device"
        )));
    }
    if let DeviceChoice::Tcp(_) = device {
        return Err(Usage(format!(
            "--all-pairs: {device} has no RDMA WRITE, by which throughput is measured; leave out --all-pairs, or name an RDMA device"
        )));
    }
    if args.on.place.place.is_some() {
        return Err(Usage(
            "--place: --all-pairs runs both sides on every two hosts; leave it out".to_owned(),
        ));
    }
    if args.length.run_forever {
        return Err(Usage(
            "--run-forever: --all-pairs measures each pair once; leave it out".to_owned(),
        ));
    }
    if args.reversed {
        return Err(Usage(
            "--reversed: --all-pairs measures throughput in both directions; leave it out"
                .to_owned(),
        ));
    }
    request::check_places(device, &args.on.place, Shape::Many)
}

impl Point {
    /// A ping, and a blast WRITE of the same size on the same path.
    fn of(ping: CellSpec) -> Self {
        let blast = CellSpec::blast(Request {
            op: Opcode::Write,
            buffers: BUFFERS,
            signal: Signaling::All,
            ..ping.params.clone()
        });
        Point { ping, blast }
    }
}
