//! Converts arguments to cells, or refuses them before anything runs.

use adverb_host::usable_cores;
use adverb_launch::{DeviceChoice, DeviceInfo, Peer, Usage};
use adverb_results::{DeviceKind, DeviceRef, Opcode, Traffic, Transport};
use adverb_units::{Bytes, Span};
use adverb_verbs::{DeviceCaps, PathOptions};
use adverb_workload::pair::{ATOMIC_SIZE, CellSpec, Length, Request};

use crate::args::{BlastArgs, MeasureArgs, PingArgs, PlaceArgs};
use crate::hosts::pinning;

/// Repetitions of a single measurement on a model: enough for an interval.
const REPETITIONS: u32 = 5;
/// Default payload of a message or request, except of atomic operations.
pub(crate) const DEFAULT_SIZE: Bytes = Bytes::new(64);
/// Default duration of a single measurement.
const DEFAULT_DURATION: Span = Span::from_secs(1);
/// Default duration for each pair of hosts of `--all-pairs`.
const PAIR_DURATION: Span = Span::from_ms(200);
/// Default duration on a model, in virtual time: there is no noise to average out.
const MODEL_DURATION: Span = Span::from_ms(10);

/// Returns the cell of `adverb ping`.
pub(crate) fn ping(args: &PingArgs, info: &DeviceInfo) -> Result<CellSpec, Usage> {
    let mut request = common(&args.common, args.op)?;
    request.signal = args.signal;
    if args.all_pairs {
        request.length = args.common.length.or(PAIR_DURATION);
    }
    checked(
        CellSpec::ping(request),
        &args.common.on.device.choice(),
        info,
    )
}

/// Returns the cell of `adverb blast`.
pub(crate) fn blast(args: &BlastArgs, info: &DeviceInfo) -> Result<CellSpec, Usage> {
    let mut request = common(&args.common, args.op)?;
    request.buffers = args.buffers;
    request.traffic.qps = args.qps;
    request.traffic.bidirectional = args.bidirectional;
    request.post = args.post;
    request.signal = args.signal;
    checked(
        CellSpec::blast(request),
        &args.common.on.device.choice(),
        info,
    )
}

/// Refuses options of the path that this host's device or a peer's does not support.
pub(crate) fn check_path(
    path: &PathOptions,
    (device, info): (&DeviceChoice, &DeviceInfo),
    peers: &[Peer],
) -> Result<(), Usage> {
    check_retries(device, path)?;
    let checked = device.check_impairment(path.injected().as_ref());
    checked.map_err(Usage)?;
    check_api(path, &device.reference())?;
    path.check(&info.port).map_err(|e| Usage(e.to_string()))?;
    peers.iter().try_for_each(|peer| check_path_at(peer, path))
}

/// Refuses timeouts and retries on a model that loses no packets.
fn check_retries(device: &DeviceChoice, path: &PathOptions) -> Result<(), Usage> {
    let timeout = path.ack_timeout.map(|time| format!("--timeout {time}"));
    let retries = path
        .retries
        .map(|count| format!("--retries {}", count.get()));
    match (device, timeout.or(retries)) {
        (DeviceChoice::Model(_), Some(typed)) if path.impairment.is_none() => Err(Usage(format!(
            "{typed}: {device} loses no packets, so nothing is ever retransmitted; leave it out, or add --loss or --delay"
        ))),
        _ => Ok(()),
    }
}

/// Returns the default parameters of a single measurement on a model.
pub(crate) fn on_model(op: Opcode, size: Bytes) -> Request {
    Request {
        length: Length::Duration(MODEL_DURATION),
        repetitions: REPETITIONS,
        ..Request::new(op, size)
    }
}

/// Returns the payload of an operation: as typed, or the usual one.
///
/// # Errors
/// An atomic operation has another size.
pub(crate) fn payload(op: Opcode, typed: Option<Bytes>) -> Result<Bytes, Usage> {
    match typed {
        Some(size) if op.is_atomic() && size != ATOMIC_SIZE => Err(Usage(format!(
            "--size {}: {op} is an operation on {ATOMIC_SIZE}; leave it out",
            size.get()
        ))),
        _ => Ok(typed.unwrap_or(default_size(op))),
    }
}

fn default_size(op: Opcode) -> Bytes {
    match op.is_atomic() {
        true => ATOMIC_SIZE,
        false => DEFAULT_SIZE,
    }
}

fn common(args: &MeasureArgs, op: Opcode) -> Result<Request, Usage> {
    let default_size = default_size(op);
    let default = match args.on.device.choice() {
        DeviceChoice::Model(_) => MODEL_DURATION,
        DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) | DeviceChoice::Tcp(_) => DEFAULT_DURATION,
    };
    Ok(Request {
        inline: args.inline,
        completion: args.completion,
        path: PathOptions {
            rate: args.rate,
            ..args.on.path.options()?
        },
        verify: args.verify,
        traffic: Traffic {
            reversed: args.reversed,
            transport: transport(&args.on.device.choice(), args.transport)?,
            ..Traffic::default()
        },
        length: args.length.or(default),
        repetitions: args.length.repetitions.unwrap_or(REPETITIONS),
        warmup: args.length.warmup,
        ..Request::new(op, args.size.unwrap_or(default_size))
    })
}

/// The transport on a device: TCP on `tcp`, which has no other, and on models.
pub(crate) fn transport(
    device: &DeviceChoice,
    asked: Option<Transport>,
) -> Result<Transport, Usage> {
    let refusal = match (device, asked) {
        (DeviceChoice::Tcp(_), None | Some(Transport::Tcp)) => return Ok(Transport::Tcp),
        (DeviceChoice::Tcp(_), Some(other)) => {
            format!("--transport {other}: {device} has no queue pairs; leave it out")
        }
        (DeviceChoice::Model(_), Some(Transport::Tcp)) => return Ok(Transport::Tcp),
        (_, Some(Transport::Tcp)) => {
            format!("--transport tcp: {device} is an RDMA device; name --device tcp")
        }
        (_, other) => return Ok(other.unwrap_or_default()),
    };
    Err(Usage(refusal))
}

/// Refuses a cell that the device cannot run.
pub(crate) fn checked(
    spec: CellSpec,
    device: &DeviceChoice,
    info: &DeviceInfo,
) -> Result<CellSpec, Usage> {
    check_path(&spec.params.path, (device, info), &[])?;
    let checked = spec.validate(&info.caps);
    let checked = checked.and_then(|()| spec.check_port(&info.port));
    checked.map_err(|e| Usage(e.to_string()))?;
    Ok(spec)
}

/// Refuses options of the path that the peer's port does not support.
fn check_path_at(peer: &Peer, path: &PathOptions) -> Result<(), Usage> {
    let within = path.path_mtu_up_to(peer.path_mtu());
    within.map_err(|refused| Usage(format!("{}: {refused}", peer.name())))?;
    let checked = check_api(path, &peer.welcome().device);
    checked.map_err(|Usage(reason)| Usage(format!("{}: {reason}", peer.name())))?;
    path.injected()
        .map_or(Ok(()), |faults| peer.check_impairment(&faults))
}

/// Refuses a posting interface if the device has only one.
fn check_api(path: &PathOptions, device: &DeviceRef) -> Result<(), Usage> {
    match path.api.filter(|_| device.kind != DeviceKind::Verbs) {
        None => Ok(()),
        Some(api) => Err(Usage(format!(
            "--api {api}: {device} has no choice of posting interfaces; name a device behind libibverbs with --device verbs:NAME, or leave --api out"
        ))),
    }
}

/// Checks cells that are within this host's limits against the server's.
pub(crate) fn check_at(peer: &Peer, cells: &[CellSpec], caps: &DeviceCaps) -> Result<(), Usage> {
    let caps = peer.common_limits(caps);
    let refused = cells.iter().find_map(|spec| spec.validate(&caps).err());
    if let Some(e) = refused {
        return Err(Usage(format!("{}: {e}", peer.name())));
    }
    let mut paths = cells.iter().map(|spec| &spec.params.path);
    paths.try_for_each(|path| check_path_at(peer, path))
}

/// The kind of program whose roles are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An active and a passive side: `ping`, `blast`, `study`.
    Pair,
    /// Any number of roles.
    Many,
}

/// Refuses impossible places before anything runs.
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

/// Refuses places on a model, whose roles all run in this process and in virtual time.
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

/// Refuses other places than the active side here and the passive side at the peer, if there is one.
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

/// Returns a warning if both sides run on one core.
pub(crate) fn shared_core(args: &PlaceArgs) -> Option<String> {
    let usable = usable_cores();
    let core = match (&args.cpu, &usable[..]) {
        _ if !args.peer.is_empty() || args.no_pin => None,
        (Some(list), _) => match list.0[..] {
            [one, other] if one == other => Some(one),
            _ => None,
        },
        (None, [only]) => Some(*only),
        _ => None,
    };
    core.map(|core| {
        format!("both sides share core {core}: they alternate there, and the figures include the switches")
    })
}
