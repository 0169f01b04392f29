//! What was typed becomes cells, or a usage error: here nothing has been run yet.

use std::time::Duration;

use adverb_host::usable_cores;
use adverb_results::{Impairment, Opcode, Program, Signaling};
use adverb_studies::{CellSpec, Length, Request, SpecError};
use adverb_units::{Bytes, Span};
use adverb_verbs::{DeviceCaps, PathOptions};

use crate::args::{
    BlastArgs, BlastSignal, MeasureArgs, PingArgs, PingSignal, PlaceArgs, RetryArgs,
};
use crate::device::{DeviceChoice, DeviceInfo};
use crate::failure::Usage;
use crate::folder::Meta;
use crate::pair::Cores;
use crate::remote::Peer;

/// Repetitions of a single measurement on a model: enough for an interval.
const REPETITIONS: u32 = 5;
/// How long a single measurement takes, if not told.
const DEFAULT_DURATION: Span = Span::from_secs(1);
/// The same on a model, in virtual time: there is no noise to average out.
const MODEL_DURATION: Span = Span::from_ms(10);

/// The cells of `adverb ping`, one for each size.
pub(crate) fn ping(args: &PingArgs, info: &DeviceInfo) -> Result<Vec<CellSpec>, Usage> {
    let impairment = impairment(&args.common)?;
    let signal = match args.signal {
        PingSignal::All => Signaling::All,
        PingSignal::WriteUnsignaled => Signaling::WriteUnsignaled,
    };
    cells(&args.common, info, |size| {
        CellSpec::ping(Request {
            signal,
            impairment,
            ..common(&args.common, args.op.into(), size)
        })
    })
}

/// The cells of `adverb blast`, one for each size.
pub(crate) fn blast(args: &BlastArgs, info: &DeviceInfo) -> Result<Vec<CellSpec>, Usage> {
    let impairment = impairment(&args.common)?;
    let signal = match args.signal {
        BlastSignal::All => Signaling::All,
        BlastSignal::Periodic => Signaling::Periodic,
        BlastSignal::Every(n) => Signaling::Every(n),
    };
    cells(&args.common, info, |size| {
        CellSpec::blast(Request {
            buffers: args.buffers,
            post: args.post.into(),
            signal,
            impairment,
            ..common(&args.common, args.op.into(), size)
        })
    })
}

/// What the ports are to do to packets, or why they cannot.
fn impairment(args: &MeasureArgs) -> Result<Option<Impairment>, Usage> {
    check_retries(&args.device.choice(), args.retry)?;
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
        completion: args.completion.into(),
        path: PathOptions {
            path_mtu: args.mtu,
            ack_timeout: args.retry.timeout,
            retries: args.retry.retries,
            ..PathOptions::default()
        },
        verify: args.verify,
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
    let specs = args.size.points().iter().copied().map(cell);
    specs.map(|spec| checked(spec).map_err(refused)).collect()
}

/// The options of the path that a study was asked for.
pub(crate) fn path(meta: &Meta) -> PathOptions {
    PathOptions {
        path_mtu: meta.mtu,
        ack_timeout: meta.timeout,
        retries: meta.retries,
        ..PathOptions::default()
    }
}

/// What a study asks of packets, or its refusal by the ports of this host and of the server.
pub(crate) fn check_port(meta: &Meta, info: &DeviceInfo, peer: Option<&Peer>) -> Result<(), Usage> {
    let checked = path(meta).check(&info.port);
    checked.map_err(|e| Usage(e.to_string()))?;
    peer.map_or(Ok(()), |peer| peer.check_path_mtu(meta.mtu))
}

/// Cells that were made within this host's limits, or the first refusal by the server's.
pub(crate) fn check_at(peer: &Peer, cells: &[CellSpec], caps: &DeviceCaps) -> Result<(), Usage> {
    let caps = peer.common_limits(caps);
    let refused = cells.iter().find_map(|spec| spec.validate(&caps).err());
    if let Some(e) = refused {
        return Err(Usage(format!("the server at {}: {e}", peer.address())));
    }
    let mut impairments = cells.iter().filter_map(|spec| spec.params.impairment);
    impairments.try_for_each(|asked| peer.check_impairment(&asked))?;
    let path_mtus = cells.iter().map(|spec| spec.params.path.path_mtu);
    path_mtus
        .max()
        .map_or(Ok(()), |mtu| peer.check_path_mtu(mtu))
}

/// The cores that were typed, for both sides here; by default the first two usable ones.
pub(crate) fn cores(args: &PlaceArgs) -> Result<Cores, Usage> {
    choose_cores(args, &usable_cores())
}

/// The core of this host's side where the other one runs with a peer, on the peer's core: by default
/// the first usable one, but another than the peer's if that is on this machine.
pub(crate) fn cores_with(args: &PlaceArgs, peer: &Peer) -> Result<Cores, Usage> {
    let passive = peer.welcome().core;
    let taken = passive.filter(|_| peer.is_here());
    let active = choose_core(args, &usable_cores(), taken)?;
    Ok(Cores { active, passive })
}

/// Refuses, before anything runs, places that cannot be.
pub(crate) fn check_places(device: &DeviceChoice, args: &PlaceArgs) -> Result<(), Usage> {
    match device {
        DeviceChoice::Model(_) => check_nowhere(device, args),
        DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) => check_cores(args),
    }
}

/// Both sides of a model are in this process and in virtual time.
fn check_nowhere(device: &DeviceChoice, args: &PlaceArgs) -> Result<(), Usage> {
    let typed = match args {
        PlaceArgs {
            cpu: Some(cores), ..
        } => format!("--cpu {cores}"),
        PlaceArgs {
            peer: Some(peer), ..
        } => format!("--peer {peer}"),
        PlaceArgs { no_pin: true, .. } => "--no-pin".to_owned(),
        _ => return Ok(()),
    };
    Err(Usage(format!(
        "{typed}: {device} is a model: both sides run in virtual time in this process; leave it out"
    )))
}

fn check_cores(args: &PlaceArgs) -> Result<(), Usage> {
    let usable = usable_cores();
    match args.peer {
        None => choose_cores(args, &usable).map(|_| ()),
        Some(_) => choose_core(args, &usable, None).map(|_| ()),
    }
}

fn choose_cores(args: &PlaceArgs, usable: &[u32]) -> Result<Cores, Usage> {
    let pair = |active, passive| Cores {
        active: Some(active),
        passive: Some(passive),
    };
    match (args.cpu, usable) {
        (Some(list), _) => {
            let Some(passive) = list.passive else {
                return Err(Usage(format!(
                    "--cpu {list}: both sides run here: write two core numbers, such as 0,1"
                )));
            };
            usable_core(list.active, usable)?;
            usable_core(passive, usable)?;
            Ok(pair(list.active, passive))
        }
        (None, _) if args.no_pin => Ok(Cores::default()),
        (None, [first, second, ..]) => Ok(pair(*first, *second)),
        (None, [only]) => Ok(pair(*only, *only)),
        (None, []) => Ok(Cores::default()),
    }
}

fn choose_core(args: &PlaceArgs, usable: &[u32], taken: Option<u32>) -> Result<Option<u32>, Usage> {
    match args.cpu {
        Some(list) if list.passive.is_some() => Err(Usage(format!(
            "--cpu {list}: with --peer only one side runs here: write its core alone; the other one's is chosen by `adverb serve --cpu`"
        ))),
        Some(list) => usable_core(list.active, usable).map(Some),
        None if args.no_pin => Ok(None),
        None => {
            let free = usable.iter().find(|core| Some(**core) != taken);
            Ok(free.or(usable.first()).copied())
        }
    }
}

/// The core, if this process may run on it.
pub(crate) fn usable_core(core: u32, usable: &[u32]) -> Result<u32, Usage> {
    if usable.contains(&core) {
        return Ok(core);
    }
    let choices: Vec<String> = usable.iter().map(u32::to_string).collect();
    Err(Usage(format!(
        "--cpu: core {core} is not usable here: choose from {}",
        choices.join(", ")
    )))
}

/// How long a cell may take before it is ended: far more than it should, also on a busy machine. A side
/// that waits in vain ends by itself before, and says for what.
pub(crate) fn patience(spec: &CellSpec) -> Duration {
    const LEAST: Duration = Duration::from_secs(300);
    LEAST + longest(spec)
}

/// The same on a model, whose time nothing else takes.
pub(crate) fn virtual_patience(spec: &CellSpec) -> Span {
    const LEAST: Span = Span::from_secs(30);
    LEAST + Span::from(longest(spec))
}

/// How long a cell measures on a device slower than any.
fn longest(spec: &CellSpec) -> Duration {
    /// Slower than any device: an event-driven message on a busy machine, and 100 MB/s.
    const PER_MESSAGE: Span = Span::from_us(200);
    const PER_BYTE: Span = Span::from_ns(10);
    let p = &spec.params;
    let message = PER_MESSAGE + PER_BYTE * p.size.get();
    let directions = match spec.program {
        Program::Ping => 2,
        Program::Blast => 1,
    };
    let repetitions = u64::from(p.repetitions);
    let measured = match p.length {
        Length::Duration(all) => all * 4 + message * directions * repetitions,
        Length::Iters(n) => message * directions * n * repetitions,
    };
    let warm_up = message * directions * p.warmup.unwrap_or(0);
    (measured + warm_up).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(cpu: Option<&str>, no_pin: bool) -> PlaceArgs {
        let cpu = cpu.map(|text| text.parse().unwrap());
        PlaceArgs {
            cpu,
            no_pin,
            peer: None,
        }
    }

    #[test]
    fn sides_take_the_first_two_cores() {
        let cores = |args, usable: &[u32]| {
            let cores = choose_cores(&args, usable).map_err(|e| e.to_string())?;
            Ok::<_, String>((cores.active, cores.passive))
        };
        let (auto, free) = (typed(None, false), typed(None, true));
        assert_eq!(cores(auto.clone(), &[3, 5, 7]), Ok((Some(3), Some(5))));
        assert_eq!(cores(auto, &[2]), Ok((Some(2), Some(2))));
        assert_eq!(cores(free, &[0, 1]), Ok((None, None)));
        assert_eq!(
            cores(typed(Some("1,0"), false), &[0, 1]),
            Ok((Some(1), Some(0)))
        );
        assert_eq!(
            cores(typed(Some("0,9"), false), &[0, 1]),
            Err("--cpu: core 9 is not usable here: choose from 0, 1".to_owned())
        );
    }

    #[test]
    fn with_a_peer_one_side_takes_one_core() {
        let core = |args, usable: &[u32], taken| {
            choose_core(&args, usable, taken).map_err(|e| e.to_string())
        };
        let auto = || typed(None, false);
        assert_eq!(core(auto(), &[3, 5], None), Ok(Some(3)));
        assert_eq!(core(auto(), &[3, 5], Some(3)), Ok(Some(5)));
        assert_eq!(core(auto(), &[3], Some(3)), Ok(Some(3)));
        assert_eq!(core(typed(None, true), &[3, 5], None), Ok(None));
        assert_eq!(core(typed(Some("5"), false), &[3, 5], None), Ok(Some(5)));
        let two = core(typed(Some("3,5"), false), &[3, 5], None).unwrap_err();
        assert!(
            two.starts_with("--cpu 3,5: with --peer only one side runs here"),
            "{two}"
        );
        let one = choose_cores(&typed(Some("3"), false), &[3, 5]).unwrap_err();
        assert!(
            one.to_string().starts_with("--cpu 3: both sides run here"),
            "{one}"
        );
    }

    #[test]
    fn patience_exceeds_what_was_asked_for() {
        let long = Request {
            length: Length::Duration(Span::from_secs(100)),
            ..Request::new(Opcode::Send, Bytes::new(8))
        };
        assert!(patience(&CellSpec::ping(long)) > Duration::from_secs(200));
    }
}
