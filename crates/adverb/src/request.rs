//! What was typed becomes cells, or a usage error: here nothing has been run yet.

use adverb_host::usable_cores;
use adverb_launch::{DeviceChoice, DeviceInfo, Peer, Usage};
use adverb_results::{DeviceKind, Opcode, Traffic, Transport};
use adverb_units::{Bytes, Span};
use adverb_verbs::{DeviceCaps, PathOptionError, PathOptions};
use adverb_workload::pair::{ATOMIC_SIZE, CellSpec, Length, Request};

use crate::args::{BlastArgs, MeasureArgs, PingArgs, PlaceArgs};
use crate::hosts::pinning;

/// Repetitions of a single measurement on a model: enough for an interval.
const REPETITIONS: u32 = 5;
/// Default payload of a message or request, except of atomic operations.
pub(crate) const DEFAULT_SIZE: Bytes = Bytes::new(64);
/// How long a single measurement takes, if not told.
const DEFAULT_DURATION: Span = Span::from_secs(1);
/// The same between each two of many hosts.
const PAIR_DURATION: Span = Span::from_ms(200);
/// The same on a model, in virtual time: there is no noise to average out.
const MODEL_DURATION: Span = Span::from_ms(10);

/// The cells of `adverb ping`, one for each size.
pub(crate) fn ping(args: &PingArgs, info: &DeviceInfo) -> Result<Vec<CellSpec>, Usage> {
    cells(&args.common, info, args.op, |size| {
        let mut request = common(&args.common, args.op, size)?;
        if args.all_pairs {
            request.length = args.common.length.or(PAIR_DURATION);
        }
        Ok(CellSpec::ping(Request {
            signal: args.signal,
            ..request
        }))
    })
}

/// The cells of `adverb blast`, one for each size.
pub(crate) fn blast(args: &BlastArgs, info: &DeviceInfo) -> Result<Vec<CellSpec>, Usage> {
    cells(&args.common, info, args.op, |size| {
        let request = common(&args.common, args.op, size)?;
        Ok(CellSpec::blast(Request {
            buffers: args.buffers,
            traffic: Traffic {
                qps: args.qps,
                bidirectional: args.bidirectional,
                ..request.traffic
            },
            post: args.post,
            signal: args.signal,
            ..request
        }))
    })
}

/// Refuses options of the path that this host's device or a peer's does not support.
pub(crate) fn check_path(
    path: &PathOptions,
    (device, info): (&DeviceChoice, &DeviceInfo),
    peers: &[Peer],
) -> Result<(), Usage> {
    check_retries(device, path)?;
    let checked = device.check_impairment(path.impairment.as_ref());
    checked.map_err(Usage)?;
    device.check_api(path.api).map_err(Usage)?;
    path.check(&info.port).map_err(|e| Usage(e.to_string()))?;
    peers.iter().try_for_each(|peer| check_path_at(peer, path))
}

/// Refuses timers where none ever runs out.
fn check_retries(device: &DeviceChoice, path: &PathOptions) -> Result<(), Usage> {
    let timeout = path.ack_timeout.map(|time| format!("--timeout {time}"));
    let retries = path
        .retries
        .map(|count| format!("--retries {}", count.get()));
    match (device, timeout.or(retries)) {
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

fn common(args: &MeasureArgs, op: Opcode, size: Bytes) -> Result<Request, Usage> {
    let default = match args.device.choice() {
        DeviceChoice::Model(_) => MODEL_DURATION,
        DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) | DeviceChoice::Tcp(_) => DEFAULT_DURATION,
    };
    Ok(Request {
        inline: args.inline,
        completion: args.completion,
        path: args.path.options()?,
        verify: args.verify,
        traffic: Traffic {
            reversed: args.reversed,
            transport: transport(&args.device.choice(), args.transport)?,
            ..Traffic::default()
        },
        length: args.length.or(default),
        repetitions: args.length.repetitions,
        warmup: args.length.warmup,
        ..Request::new(op, size)
    })
}

/// The transport on a device: TCP on `tcp` and only there.
fn transport(device: &DeviceChoice, asked: Option<Transport>) -> Result<Transport, Usage> {
    let refusal = match (device, asked) {
        (DeviceChoice::Tcp(_), None | Some(Transport::Tcp)) => return Ok(Transport::Tcp),
        (DeviceChoice::Tcp(_), Some(other)) => {
            format!("--transport {other}: {device} has no queue pairs; leave it out")
        }
        (DeviceChoice::Model(_), Some(Transport::Tcp)) => format!(
            "--transport tcp: {device} models RDMA only, because its published sources have no costs of a kernel's TCP; measure this machine's with --device tcp"
        ),
        (_, Some(Transport::Tcp)) => {
            format!("--transport tcp: {device} is an RDMA device; name --device tcp")
        }
        (_, other) => return Ok(other.unwrap_or_default()),
    };
    Err(Usage(refusal))
}

/// All cells, or the first refusal: nothing is run if something cannot be.
fn cells(
    args: &MeasureArgs,
    info: &DeviceInfo,
    op: Opcode,
    cell: impl Fn(Bytes) -> Result<CellSpec, Usage>,
) -> Result<Vec<CellSpec>, Usage> {
    let usual = match op.is_atomic() {
        true => ATOMIC_SIZE,
        false => DEFAULT_SIZE,
    };
    let spec = cell(args.size.unwrap_or(usual))?;
    check_path(&spec.params.path, (&args.device.choice(), info), &[])?;
    let checked = spec.validate(&info.caps);
    let checked = checked.and_then(|()| spec.check_port(&info.port));
    checked.map_err(|e| Usage(e.to_string()))?;
    Ok(vec![spec])
}

/// Refuses packets that the server's port does not carry, and faults that it does not inject.
fn check_path_at(peer: &Peer, path: &PathOptions) -> Result<(), Usage> {
    let max = peer.path_mtu();
    if let Some(path_mtu) = path.path_mtu.filter(|path_mtu| *path_mtu > max) {
        let refused = PathOptionError::PathMtu { path_mtu, max };
        return Err(Usage(format!("{}: {refused}", peer.name())));
    }
    let device = &peer.welcome().device;
    if let Some(api) = path.api.filter(|_| device.kind != DeviceKind::Verbs) {
        return Err(Usage(format!(
            "--api {api}: {} uses {device}, which has no choice of posting interfaces; leave --api out",
            peer.name()
        )));
    }
    path.impairment
        .map_or(Ok(()), |faults| peer.check_impairment(&faults))
}

/// Cells that were made within this host's limits, or the first refusal by the server's.
pub(crate) fn check_at(peer: &Peer, cells: &[CellSpec], caps: &DeviceCaps) -> Result<(), Usage> {
    let caps = peer.common_limits(caps);
    let refused = cells.iter().find_map(|spec| spec.validate(&caps).err());
    if let Some(e) = refused {
        return Err(Usage(format!("{}: {e}", peer.name())));
    }
    let mut paths = cells.iter().map(|spec| &spec.params.path);
    paths.try_for_each(|path| check_path_at(peer, path))
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
