//! What was typed becomes cells, or a usage error: here nothing has been run yet.

use std::time::Duration;

use adverb_host::usable_cores;
use adverb_results::{Opcode, Program, Signaling};
use adverb_studies::{CellSpec, Length, Request};
use adverb_units::{Bytes, Span};
use adverb_verbs::DeviceCaps;

use crate::args::{BlastArgs, BlastSignal, CoreArgs, CorePair, MeasureArgs, PingArgs, PingSignal};
use crate::failure::Usage;
use crate::pair::Cores;

/// Repetitions of a single measurement: enough for an interval.
const REPETITIONS: u32 = 5;
/// How long a single measurement takes, if not told.
const DEFAULT_DURATION: Span = Span::from_secs(1);

/// The cells of `adverb ping`, one for each size.
pub(crate) fn ping(args: &PingArgs, caps: &DeviceCaps) -> Result<Vec<CellSpec>, Usage> {
    let signal = match args.signal {
        PingSignal::All => Signaling::All,
        PingSignal::WriteUnsignaled => Signaling::WriteUnsignaled,
    };
    cells(&args.common, caps, |size| {
        CellSpec::ping(Request {
            signal,
            ..common(&args.common, args.op.into(), size)
        })
    })
}

/// The cells of `adverb blast`, one for each size.
pub(crate) fn blast(args: &BlastArgs, caps: &DeviceCaps) -> Result<Vec<CellSpec>, Usage> {
    let signal = match args.signal {
        BlastSignal::All => Signaling::All,
        BlastSignal::Periodic => Signaling::Periodic,
        BlastSignal::Every(n) => Signaling::Every(n),
    };
    cells(&args.common, caps, |size| {
        CellSpec::blast(Request {
            buffers: args.buffers,
            post: args.post.into(),
            signal,
            ..common(&args.common, args.op.into(), size)
        })
    })
}

fn common(args: &MeasureArgs, op: Opcode, size: Bytes) -> Request {
    Request {
        inline: args.inline,
        completion: args.completion.into(),
        verify: args.verify,
        length: match (args.iters, args.duration) {
            (Some(iters), _) => Length::Iters(iters),
            (None, duration) => Length::Duration(duration.unwrap_or(DEFAULT_DURATION)),
        },
        repetitions: REPETITIONS,
        ..Request::new(op, size)
    }
}

/// All cells, or the first refusal: nothing is run if something cannot be.
fn cells(
    args: &MeasureArgs,
    caps: &DeviceCaps,
    cell: impl Fn(Bytes) -> CellSpec,
) -> Result<Vec<CellSpec>, Usage> {
    args.size
        .sizes()
        .map(cell)
        .map(|spec| match spec.validate(caps) {
            Ok(()) => Ok(spec),
            Err(e) => Err(Usage(e.to_string())),
        })
        .collect()
}

/// Where the two sides run: by default on the first two usable cores.
pub(crate) fn cores(args: &CoreArgs) -> Result<Cores, Usage> {
    choose_cores(args, &usable_cores())
}

fn choose_cores(args: &CoreArgs, usable: &[u32]) -> Result<Cores, Usage> {
    let pair = |active, passive| Cores {
        active: Some(active),
        passive: Some(passive),
    };
    match (args.cpu, usable) {
        (Some(CorePair { active, passive }), _) => {
            let missing = [active, passive].into_iter().find(|c| !usable.contains(c));
            match missing {
                None => Ok(pair(active, passive)),
                Some(core) => Err(Usage(format!(
                    "--cpu: core {core} is not usable here: choose from {}",
                    usable
                        .iter()
                        .map(u32::to_string)
                        .collect::<Vec<_>>()
                        .join(", ")
                ))),
            }
        }
        (None, _) if args.no_pin => Ok(Cores::default()),
        (None, [first, second, ..]) => Ok(pair(*first, *second)),
        (None, [only]) => Ok(pair(*only, *only)),
        (None, []) => Ok(Cores::default()),
    }
}

/// How long a cell may take before it is ended: far more than it should.
pub(crate) fn patience(spec: &CellSpec) -> Duration {
    const LEAST: Duration = Duration::from_secs(30);
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
    let expected = match p.length {
        Length::Duration(all) => all * 4 + message * directions * repetitions,
        Length::Iters(n) => message * directions * n * repetitions,
    };
    LEAST + Duration::from(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(cpu: Option<&str>, no_pin: bool) -> CoreArgs {
        let cpu = cpu.map(|text| text.parse().unwrap());
        CoreArgs { cpu, no_pin }
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
    fn patience_exceeds_what_was_asked_for() {
        let long = Request {
            length: Length::Duration(Span::from_secs(100)),
            ..Request::new(Opcode::Send, Bytes::new(8))
        };
        assert!(patience(&CellSpec::ping(long)) > Duration::from_secs(200));
    }
}
