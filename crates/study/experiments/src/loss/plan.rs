//! Streams and a ping over shares of packets lost.

use adverb_results::{Impairment, Opcode};
use adverb_units::Bytes;
use adverb_verbs::{AckTimeout, PathOptions, Probability, RetryParams};
use adverb_workload::pair::Request;

use Opcode::{Read, Send, Write};

use crate::plan::{Draft, FOUR, RANKED};

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
