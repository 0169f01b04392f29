//! Streams and pings over paths: shares of packets lost, delays, windows and queues.

use adverb_results::{Impairment, Opcode, Transport};
use adverb_units::{BitRate, Bytes, Span};
use adverb_verbs::{AckTimeout, PathOptions, Probability, RetryParams};
use adverb_workload::pair::Request;

use Opcode::{Read, Send, Write};

use crate::plan::{Draft, FOUR, RANKED, Steps};

/// Messages in flight where packets are lost.
const WINDOW: u32 = 16;
/// Lost packets in a million.
const LOSSES: [u32; 5] = [0, 100, 1_000, 10_000, 50_000];
/// 4.19 ms, a sixteenth of the default. A retry takes four timeouts, so that seven retries are longer than a
/// side waits for a core on a busy machine.
const SHORT_TIMEOUT: AckTimeout = AckTimeout::new(10).expect("5 bits");

/// Streams and a ping over shares of packets lost: by message size, operation, window and timeout.
pub(super) fn streams_and_ping(draft: &mut Draft<'_>) {
    for loss in LOSSES.map(Probability::per_million) {
        let lossy = |op, size, buffers, timeout| Request {
            buffers,
            path: PathOptions {
                ack_timeout: Some(timeout),
                impairment: Some(Impairment {
                    loss,
                    seed: 1,
                    ..Impairment::default()
                }),
                ..PathOptions::default()
            },
            ..Request::new(op, size)
        };
        let (short, usual) = (SHORT_TIMEOUT, RetryParams::default().timeout);
        let long = Bytes::kib(64);
        for size in [Bytes::kib(4), long, Bytes::mib(1)] {
            draft.blast(lossy(Write, size, WINDOW, short));
        }
        for op in [Read, Send] {
            draft.blast(lossy(op, long, WINDOW, short));
        }
        draft.blast(lossy(Write, long, FOUR, short));
        for timeout in [short, usual] {
            draft.blast(lossy(Write, long, WINDOW, timeout));
            draft.ping(lossy(Send, RANKED, 1, timeout));
        }
    }
}

/// Messages of the streams on long paths.
const LONG: Bytes = Bytes::kib(64);
/// Delays in each direction.
const DELAYS: [Span; 4] = [
    Span::from_us(100),
    Span::from_ms(1),
    Span::from_ms(10),
    Span::from_ms(100),
];
/// The delays of paths that lose packets.
pub(super) const LOSSY_DELAYS: [Span; 2] = [DELAYS[1], DELAYS[2]];
/// Lost packets in a million of these paths.
const LOSSES_OF_LONG_PATHS: [u32; 4] = [0, 100, 1_000, 10_000];
const WINDOWS: Steps = Steps {
    quick: &[1, 4, 16, 64, 256],
    paper: (1, 256),
    full: (1, 256),
};
/// Windows that are compared with TCP.
pub(super) const COMPARED: [u32; 2] = [16, 256];
/// The path that has a rate: 16 messages are less than its delay x bandwidth, 64 more.
const SLOW: BitRate = BitRate::gbit(1);
const SLOW_DELAY: Span = DELAYS[2];
const SLOW_WINDOWS: [u32; 3] = [16, 64, 256];
/// Packets that wait for this rate, at most.
const QUEUES: [u32; 3] = [100, 1_000, 4_000];

/// Streams over delays and windows, then over losses and over queues with TCP next to RC, and pings over losses.
pub(super) fn long_paths(draft: &mut Draft<'_>) {
    for buffers in draft.buffers(WINDOWS) {
        for delay in DELAYS {
            draft.blast(on(path(delay), writes(buffers)));
        }
    }
    for loss in LOSSES_OF_LONG_PATHS.map(Probability::per_million) {
        for delay in LOSSY_DELAYS {
            let lossy = Impairment {
                loss,
                ..path(delay)
            };
            for buffers in COMPARED {
                draft.blast(on(lossy, writes(buffers)));
            }
            draft.blast(on(lossy, over_tcp(LONG)));
        }
        let lossy = Impairment {
            loss,
            ..path(LOSSY_DELAYS[1])
        };
        draft.ping(on(lossy, Request::new(Send, RANKED)));
        draft.ping(on(lossy, over_tcp(RANKED)));
    }
    for queue in QUEUES {
        let slow = Impairment {
            rate: Some(SLOW),
            queue: Some(queue),
            ..path(SLOW_DELAY)
        };
        for buffers in SLOW_WINDOWS {
            draft.blast(on(slow, writes(buffers)));
        }
        draft.blast(on(slow, over_tcp(LONG)));
    }
}

fn path(delay: Span) -> Impairment {
    Impairment {
        delay,
        seed: 1,
        ..Impairment::default()
    }
}

fn on(impairment: Impairment, mut request: Request) -> Request {
    request.path.impairment = Some(impairment);
    request
}

/// A stream of WRITEs with this number in flight.
fn writes(buffers: u32) -> Request {
    Request {
        buffers,
        ..Request::new(Write, LONG)
    }
}

/// A message over the kernel's TCP.
fn over_tcp(size: Bytes) -> Request {
    let mut request = Request::new(Send, size);
    request.traffic.transport = Transport::Tcp;
    request
}
