//! Every way of running `ping` and `blast`, payload checked, over the user-space device.

use crate::common::run;
use adverb_results::{Completion, Opcode, Posting, Signaling, Transport};
use adverb_units::{Bytes, Span};
use adverb_workload::pair::{CellSpec, Length, Request};

const COMPLETIONS: [Completion; 3] = [
    Completion::Poll,
    Completion::Event,
    Completion::Hybrid(Span::from_us(5)),
];

fn checked(op: Opcode, size: u64) -> Request {
    Request {
        verify: true,
        length: Length::Iters(150),
        repetitions: 2,
        ..Request::new(op, Bytes::new(size))
    }
}

/// Sizes around cache lines, inline maximum and the verifier's pieces.
const SIZES: [u64; 5] = [1, 8, 64, 4097, 100_000];

#[test]
fn ping_by_every_operation() {
    for op in [
        Opcode::Send,
        Opcode::WriteImm,
        Opcode::WriteRead,
        Opcode::Read,
    ] {
        for completion in COMPLETIONS {
            for size in SIZES.into_iter().chain([0]) {
                run(&CellSpec::ping(Request {
                    completion,
                    ..checked(op, size)
                }));
            }
        }
    }
}

#[test]
fn ping_over_unreliable_transports() {
    for completion in COMPLETIONS {
        for (op, transport, size) in [
            (Opcode::Send, Transport::Uc, 4097),
            (Opcode::WriteImm, Transport::Uc, 64),
            (Opcode::Write, Transport::Uc, 64),
            (Opcode::Send, Transport::Ud, 0),
            (Opcode::Send, Transport::Ud, 1000),
        ] {
            let mut request = checked(op, size);
            request.traffic.transport = transport;
            if op != Opcode::Write {
                request.completion = completion;
            }
            run(&CellSpec::ping(request));
        }
    }
    let mut request = checked(Opcode::Write, 4097);
    (request.buffers, request.traffic.qps) = (4, 2);
    request.traffic.transport = Transport::Uc;
    run(&CellSpec::blast(request));
}

#[test]
fn a_blast_over_unreliable_transports_counts_what_arrives() {
    for completion in COMPLETIONS {
        for (op, transport, post) in [
            (Opcode::Send, Transport::Uc, Posting::Single),
            (Opcode::Send, Transport::Ud, Posting::List),
            (Opcode::WriteImm, Transport::Uc, Posting::List),
        ] {
            let mut request = Request {
                verify: false,
                buffers: 8,
                completion,
                post,
                ..checked(op, 64)
            };
            (request.traffic.transport, request.traffic.qps) = (transport, 2);
            let result = run(&CellSpec::blast(request));
            let delivery = result.metrics.delivery.expect("losses are counted");
            assert_eq!(delivery.sent, 300, "{delivery:?}");
            assert_eq!(delivery.received + delivery.lost, 300, "{delivery:?}");
            let counted = result.metrics.repetitions.iter().map(|r| r.iters);
            assert_eq!(counted.sum::<u64>(), delivery.received);
        }
    }
}

/// Queue pairs that wait for receives are done later than others, and the last message of each is signaled.
#[test]
fn blast_of_lists_ends_on_each_queue_pair() {
    for iters in 130..150 {
        for bidirectional in [false, true] {
            let mut request = Request {
                buffers: 17,
                post: Posting::List,
                signal: Signaling::Periodic,
                length: Length::Iters(iters),
                ..checked(Opcode::WriteImm, 52)
            };
            request.traffic.qps = 3;
            request.traffic.bidirectional = bidirectional;
            run(&CellSpec::blast(request));
        }
    }
}

/// Whenever a run ends by the clock, the last messages of each queue pair are unsignaled.
#[test]
fn blast_by_the_clock_ends_on_each_queue_pair() {
    for bidirectional in [false, true] {
        let mut request = Request {
            buffers: 8,
            signal: Signaling::Every(3),
            length: Length::Duration(Span::from_ms(2)),
            ..checked(Opcode::Write, 64)
        };
        request.traffic.qps = 2;
        request.traffic.bidirectional = bidirectional;
        run(&CellSpec::blast(request));
    }
}

#[test]
fn atomics_raise_one_counter() {
    for op in [Opcode::FetchAdd, Opcode::Cas] {
        run(&CellSpec::ping(checked(op, 8)));
        for (qps, bidirectional) in [(1, false), (1, true), (3, false)] {
            let mut request = checked(op, 8);
            request.buffers = 8;
            request.traffic.qps = qps;
            request.traffic.bidirectional = bidirectional;
            run(&CellSpec::blast(request));
        }
    }
}

#[test]
fn ping_to_polled_memory() {
    // More rounds than the flag byte has values, in each repetition.
    for size in SIZES {
        run(&CellSpec::ping(Request {
            length: Length::Iters(700),
            ..checked(Opcode::Write, size)
        }));
    }
}

#[test]
fn ping_inline_and_unsignaled() {
    for completion in COMPLETIONS {
        for (op, signal) in [
            (Opcode::Send, Signaling::All),
            (Opcode::WriteImm, Signaling::All),
            (Opcode::WriteRead, Signaling::All),
            (Opcode::WriteRead, Signaling::WriteUnsignaled),
        ] {
            run(&CellSpec::ping(Request {
                inline: true,
                completion,
                signal,
                ..checked(op, 33)
            }));
        }
    }
    run(&CellSpec::ping(Request {
        inline: true,
        ..checked(Opcode::Write, 33)
    }));
}

fn blasts(op: Opcode) {
    for completion in COMPLETIONS {
        for post in [Posting::Single, Posting::List] {
            for (buffers, signal) in [
                (1, Signaling::All),
                (1, Signaling::Periodic),
                (3, Signaling::All),
                (7, Signaling::Periodic),
                (7, Signaling::Every(7)),
                (64, Signaling::Every(5)),
            ] {
                run(&CellSpec::blast(Request {
                    completion,
                    post,
                    buffers,
                    signal,
                    ..checked(op, 100)
                }));
            }
        }
    }
}

#[test]
fn blast_send() {
    blasts(Opcode::Send);
}

#[test]
fn blast_write_imm() {
    blasts(Opcode::WriteImm);
}

#[test]
fn blast_write() {
    blasts(Opcode::Write);
}

#[test]
fn blast_read() {
    blasts(Opcode::Read);
}

#[test]
fn blast_of_long_messages_and_inline() {
    for op in [Opcode::Send, Opcode::WriteImm, Opcode::Write, Opcode::Read] {
        run(&CellSpec::blast(Request {
            length: Length::Iters(9),
            buffers: 4,
            ..checked(op, (1 << 20) + 3)
        }));
    }
    for op in [Opcode::Send, Opcode::WriteImm, Opcode::Write] {
        run(&CellSpec::blast(Request {
            inline: true,
            buffers: 5,
            ..checked(op, 60)
        }));
    }
}

#[test]
fn a_duration_is_measured_for_about_so_long() {
    let result = run(&CellSpec::ping(Request {
        length: Length::Duration(Span::from_ms(90)),
        repetitions: 3,
        ..Request::new(Opcode::Write, Bytes::new(8))
    }));
    let elapsed = result.metrics.elapsed;
    // Other tests take the cores away: only the order of magnitude is certain.
    assert!(
        elapsed > Span::from_ms(5) && elapsed < Span::from_secs(5),
        "{elapsed}"
    );
    assert_eq!(result.metrics.repetitions.len(), 3);
    assert!(result.params.warmup_iters > Some(0));
}

#[test]
fn the_result_says_what_was_run_and_measured() {
    let result = run(&CellSpec::blast(Request {
        length: Length::Iters(2000),
        warmup: Some(100),
        repetitions: 4,
        buffers: 8,
        ..Request::new(Opcode::Write, Bytes::new(64))
    }));
    assert_eq!(
        (result.params.iters, result.params.warmup_iters),
        (Some(2000), Some(100))
    );
    let metrics = &result.metrics;
    assert_eq!(metrics.repetitions.len(), 4);
    assert!(metrics.one_way_ns.mean.unwrap() > 0.0 && metrics.one_way_ns.p50.unwrap() > 0.0);
    assert!(metrics.one_way_ns.ci95.is_some() && metrics.histogram.is_some());
    assert!(metrics.cpu.active.percent.is_some() && metrics.cpu.passive.percent.is_some());
}

#[test]
fn a_round_of_a_read_ping_is_one_message() {
    let result = run(&CellSpec::ping(Request::new(Opcode::Read, Bytes::new(8))));
    let rate = result.metrics.messages_per_s.unwrap().per_second();
    let rounds = result.metrics.repetitions[0].iters as f64;
    assert!((rate * result.metrics.elapsed.as_secs_f64() / rounds - 1.0).abs() < 1e-6);
}

#[test]
fn no_warm_up_is_no_warm_up() {
    let result = run(&CellSpec::ping(Request {
        warmup: Some(0),
        length: Length::Iters(3),
        ..Request::new(Opcode::Send, Bytes::new(8))
    }));
    assert_eq!(
        (result.params.iters, result.params.warmup_iters),
        (Some(3), Some(0))
    );
}
