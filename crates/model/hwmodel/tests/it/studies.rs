//! The programs of the studies on the model, with every byte verified.

use crate::common::{cell, run};
use adverb_results::{Completion, Opcode, Posting, Program, Signaling};
use adverb_units::{MessageRate, Span};
use adverb_workload::pair::Request;

#[test]
fn ping_runs_with_every_operation_polled_and_by_events() {
    let by_events = [
        Opcode::Send,
        Opcode::WriteImm,
        Opcode::Read,
        Opcode::WriteRead,
    ];
    let cells = by_events
        .map(|op| (op, Completion::Event))
        .into_iter()
        .chain(by_events.map(|op| (op, Completion::Poll)))
        .chain(by_events.map(|op| (op, Completion::Hybrid(Span::from_ns(100)))))
        // The receiver of WRITEs polls memory, so it gets no event.
        .chain([(Opcode::Write, Completion::Poll)]);
    for (op, completion) in cells {
        let mut last = 0.0;
        for (size, inline) in [(8, true), (64, false), (5_000, false), (100_000, false)] {
            let mut spec = cell(Program::Ping, op, size);
            spec.params.completion = completion;
            spec.params.inline = inline && op != Opcode::Read;
            let mean = run("cx3", &spec).metrics.one_way_ns.mean.unwrap_or(0.0);
            assert!(mean > last, "{op} {completion:?} {size} B: {mean} ns");
            last = mean;
        }
    }
}

#[test]
fn blast_runs_with_every_operation_list_and_signaling() {
    for op in [Opcode::Send, Opcode::Write, Opcode::WriteImm, Opcode::Read] {
        for completion in [Completion::Poll, Completion::Event] {
            for post in [Posting::Single, Posting::List] {
                for signal in [Signaling::All, Signaling::Periodic] {
                    let mut spec = cell(Program::Blast, op, 200);
                    spec.params = Request {
                        completion,
                        post,
                        signal,
                        buffers: 16,
                        ..spec.params
                    };
                    let metrics = run("connect_ib", &spec).metrics;
                    let rate = metrics.messages_per_s.map_or(0.0, MessageRate::per_second);
                    let what = format!("{op} {completion:?} {post:?} {signal:?}: {rate}");
                    assert!(rate > 1e6 && rate < 50e6, "{what}");
                }
            }
        }
    }
}

/// Time per message, in nanoseconds, of short WRITEs posted in lists.
fn listed(buffers: u32, signal: Signaling) -> f64 {
    let mut spec = cell(Program::Blast, Opcode::Write, 16);
    spec.params = Request {
        inline: true,
        post: Posting::List,
        verify: false,
        signal,
        buffers,
        ..spec.params
    };
    let rate = run("mt26428_qdr", &spec).metrics.messages_per_s;
    1e9 / rate.map_or(0.0, MessageRate::per_second)
}

/// A list of one request is written by MMIO, and need not be read while it is in one of the register's two
/// buffers. Half a queue is announced by a doorbell. The longer the queue, the fewer of its requests are there.
#[test]
fn blueflame_buffers_hold_two_requests() {
    let periodic = listed(8, Signaling::Periodic);
    let mut last = 0.0;
    for buffers in [8, 16, 32] {
        let all = listed(buffers, Signaling::All);
        assert!(
            last < all && all < periodic,
            "{buffers}: {all} ns a message"
        );
        last = all;
    }
    assert!(last > 0.96 * periodic, "{last} of {periodic} ns");
}

#[test]
fn a_cell_is_reproducible_bit_for_bit() {
    let spec = cell(Program::Blast, Opcode::Write, 64);
    assert_eq!(run("cx3", &spec), run("cx3", &spec));
}
