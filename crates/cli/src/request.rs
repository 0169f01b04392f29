//! What was typed becomes cells, or a usage error: here nothing has been run yet.

use adverb_host::usable_cores;
use adverb_launch::{DeviceChoice, DeviceInfo, Peer, Usage};
use adverb_results::{Impairment, Opcode, Traffic};
use adverb_units::{Bytes, Span};
use adverb_verbs::{DeviceCaps, PathMtu, PathOptionError, PathOptions};
use adverb_workload::pair::{CellSpec, Length, Request, SpecError};

use crate::args::{BlastArgs, MeasureArgs, PingArgs, PlaceArgs, RetryArgs};
use crate::hosts::pinning;

/// Repetitions of a single measurement on a model: enough for an interval.
const REPETITIONS: u32 = 5;
/// How long a single measurement takes, if not told.
const DEFAULT_DURATION: Span = Span::from_secs(1);
/// The same on a model, in virtual time: there is no noise to average out.
const MODEL_DURATION: Span = Span::from_ms(10);

/// The cells of `adverb ping`, one for each size.
pub(crate) fn ping(args: &PingArgs, info: &DeviceInfo) -> Result<Vec<CellSpec>, Usage> {
    let impairment = impairment(&args.common)?;
    cells(&args.common, info, |size| {
        CellSpec::ping(Request {
            signal: args.signal,
            impairment,
            ..common(&args.common, args.op.into(), size)
        })
    })
}

/// The cells of `adverb blast`, one for each size.
pub(crate) fn blast(args: &BlastArgs, info: &DeviceInfo) -> Result<Vec<CellSpec>, Usage> {
    let impairment = impairment(&args.common)?;
    cells(&args.common, info, |size| {
        CellSpec::blast(Request {
            buffers: args.buffers,
            traffic: Traffic {
                qps: args.qps,
                bidirectional: args.bidirectional,
                reversed: args.common.reversed,
                transport: args.common.transport,
            },
            post: args.post,
            signal: args.signal,
            impairment,
            ..common(&args.common, args.op.into(), size)
        })
    })
}

/// What the ports are to do to packets, or why they cannot.
fn impairment(args: &MeasureArgs) -> Result<Option<Impairment>, Usage> {
    check_retries(&args.device.choice(), args.path.retry)?;
    let impairment = args.impair.impairment().map_err(Usage)?;
    let checked = args.device.choice().check_impairment(impairment.as_ref());
    checked.map_err(Usage)?;
    Ok(impairment)
}

/// Refuses timers where none ever runs out.
pub(crate) fn check_retries(device: &DeviceChoice, args: RetryArgs) -> Result<(), Usage> {
    match (device, args.typed()) {
        (DeviceChoice::Model(_), Some(typed)) => Err(Usage(format!(
            "{typed}: {device} loses no packet, so that nothing is ever sent again; leave it out"
        ))),
        _ => Ok(()),
    }
}

/// A single measurement on a model, as far as nothing else is asked for.
pub(crate) fn on_model(op: Opcode, size: Bytes) -> Request {
    Request {
        length: Length::Duration(MODEL_DURATION),
        repetitions: REPETITIONS,
        ..Request::new(op, size)
    }
}

fn common(args: &MeasureArgs, op: Opcode, size: Bytes) -> Request {
    let default = match args.device.choice() {
        DeviceChoice::Model(_) => MODEL_DURATION,
        DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) => DEFAULT_DURATION,
    };
    Request {
        inline: args.inline,
        completion: args.completion,
        path: args.path.options(),
        verify: args.verify,
        traffic: Traffic {
            reversed: args.reversed,
            transport: args.transport,
            ..Traffic::default()
        },
        length: args.length.or(default),
        repetitions: args.length.repetitions,
        warmup: args.length.warmup,
        ..Request::new(op, size)
    }
}

/// All cells, or the first refusal: nothing is run if something cannot be.
fn cells(
    args: &MeasureArgs,
    info: &DeviceInfo,
    cell: impl Fn(Bytes) -> CellSpec,
) -> Result<Vec<CellSpec>, Usage> {
    let checked = |spec: CellSpec| {
        spec.validate(&info.caps)?;
        spec.check_port(&info.port)?;
        Ok(spec)
    };
    let refused = |e: SpecError| Usage(e.to_string());
    Ok(vec![checked(cell(args.size)).map_err(refused)?])
}

/// Refuses options of the path that the port of this host or of the server does not support.
pub(crate) fn check_port(
    path: PathOptions,
    info: &DeviceInfo,
    peer: Option<&Peer>,
) -> Result<(), Usage> {
    let checked = path.check(&info.port);
    checked.map_err(|e| Usage(e.to_string()))?;
    peer.map_or(Ok(()), |peer| check_path_mtu(peer, path.path_mtu))
}

/// Refuses packets that the server's port does not carry.
fn check_path_mtu(peer: &Peer, asked: Option<PathMtu>) -> Result<(), Usage> {
    let max = peer.path_mtu();
    match asked.filter(|path_mtu| *path_mtu > max) {
        None => Ok(()),
        Some(path_mtu) => {
            let refused = PathOptionError::PathMtu { path_mtu, max };
            Err(Usage(format!("{}: {refused}", peer.name())))
        }
    }
}

/// Cells that were made within this host's limits, or the first refusal by the server's.
pub(crate) fn check_at(peer: &Peer, cells: &[CellSpec], caps: &DeviceCaps) -> Result<(), Usage> {
    let caps = peer.common_limits(caps);
    let refused = cells.iter().find_map(|spec| spec.validate(&caps).err());
    if let Some(e) = refused {
        return Err(Usage(format!("{}: {e}", peer.name())));
    }
    let mut impairments = cells.iter().filter_map(|spec| spec.params.impairment);
    impairments.try_for_each(|asked| peer.check_impairment(&asked))?;
    let path_mtus = cells.iter().map(|spec| spec.params.path.path_mtu);
    path_mtus
        .max()
        .map_or(Ok(()), |mtu| check_path_mtu(peer, mtu))
}

/// What kind of program the places are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An active and a passive side: `ping`, `blast`, `study`.
    Pair,
    /// Any number of roles.
    Many,
}

/// Refuses, before anything runs, places that cannot be.
pub(crate) fn check_places(
    device: &DeviceChoice,
    args: &PlaceArgs,
    shape: Shape,
) -> Result<(), Usage> {
    if let DeviceChoice::Model(_) = device {
        return check_nowhere(device, args);
    }
    if shape == Shape::Pair {
        check_pair(args)?;
    }
    pinning(args.cpu.as_ref(), args.no_pin).map(drop)
}

/// All roles on a model are in this process and in virtual time.
fn check_nowhere(device: &DeviceChoice, args: &PlaceArgs) -> Result<(), Usage> {
    let typed = match args {
        PlaceArgs {
            cpu: Some(cores), ..
        } => format!("--cpu {cores}"),
        PlaceArgs { peer, .. } if !peer.is_empty() => format!("--peer {}", peer[0]),
        PlaceArgs { no_pin: true, .. } => "--no-pin".to_owned(),
        PlaceArgs { place: Some(_), .. } => "--place".to_owned(),
        PlaceArgs {
            processes: true, ..
        } => "--processes".to_owned(),
        _ => return Ok(()),
    };
    Err(Usage(format!(
        "{typed}: {device} is a model: both sides run in virtual time in this process; leave it out"
    )))
}

/// The active side is here, and the passive one with the peer, if there is one.
fn check_pair(args: &PlaceArgs) -> Result<(), Usage> {
    if let [_, second, ..] = &args.peer[..] {
        return Err(Usage(format!(
            "--peer {second}: there are two sides, and one of them runs here; name one peer"
        )));
    }
    if args.place.is_some() {
        return Err(Usage(
            "--place: the active side runs here, the passive side with the peer; leave it out"
                .to_owned(),
        ));
    }
    let Some(list) = &args.cpu else {
        return Ok(());
    };
    match (list.0.len(), args.peer.is_empty()) {
        (2, true) | (1, false) => Ok(()),
        (_, true) => Err(Usage(format!(
            "--cpu {list}: both sides run here: write two core numbers, such as 0,1"
        ))),
        (_, false) => Err(Usage(format!(
            "--cpu {list}: with --peer only one side runs here: write its core alone; the other one's is chosen by `adverb serve --cpu`"
        ))),
    }
}

/// What the figures suffer from if both sides run on one core.
pub(crate) fn shared_core(args: &PlaceArgs) -> Option<String> {
    let usable = usable_cores();
    let core = match (&args.cpu, &usable[..]) {
        _ if !args.peer.is_empty() || args.no_pin => None,
        (Some(list), _) if list.0[0] == list.0[1] => Some(list.0[0]),
        (None, [only]) => Some(*only),
        _ => None,
    };
    core.map(|core| {
        format!("both sides share core {core}: they take turns there, and the figures tell of that")
    })
}
