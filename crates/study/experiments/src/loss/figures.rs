//! Goodput and ping over shares of packets lost.

use adverb_report::{FigureSpec, PanelSpec, Plots, Quantity, X, label};
use adverb_results::{Opcode, PairRecord, Program};
use adverb_units::{Bytes, Span};

pub(super) const LOSS: FigureSpec = FigureSpec {
    id: "loss",
    name: "Cost of loss",
    title: "What loss costs: goodput and ping by share of packets lost",
    caption: "The UDP ports of both sides lose this share of the packets that they send, at random. RC resends \
             from the lost packet on (go-back-N): at once if a later packet reveals the gap, and after four ACK \
             timeouts if nothing follows. Packets carry up to the path MTU: a longer message has more of them to \
             lose. Goodput is over all repetitions together.",
    plots: Plots::Lines(&PANELS),
};

/// Returns whether a record is of a stream with the usual window and timeout, which the others are compared with.
fn is_usual_stream(r: &PairRecord) -> bool {
    let is_short = r.params.ack_timeout < Some(Span::from_ms(10));
    r.program == Program::Blast && r.params.buffers == 16 && is_short
}

const PANELS: [PanelSpec; 5] = [
    PanelSpec::new(
        "RDMA WRITE, 16 in flight, short ACK timeout: goodput by message size",
        (X::Loss, Quantity::Goodput),
        |r| r.params.op == Opcode::Write && is_usual_stream(r),
        label::by_size,
    ),
    PanelSpec::new(
        "64 KiB, 16 in flight, short ACK timeout: goodput by operation",
        (X::Loss, Quantity::Goodput),
        |r| r.params.size_bytes == Bytes::kib(64) && is_usual_stream(r),
        label::by_operation,
    ),
    PanelSpec::new(
        "RDMA WRITE of 64 KiB: goodput by window and ACK timeout",
        (X::Loss, Quantity::Goodput),
        |r| {
            let of_write = r.params.op == Opcode::Write && r.params.size_bytes == Bytes::kib(64);
            r.program == Program::Blast && of_write
        },
        label::by_window_and_timeout,
    ),
    PanelSpec::new(
        "Ping by SEND of 64 B: median",
        (X::Loss, Quantity::Median),
        |r| r.program == Program::Ping,
        label::by_timeout,
    ),
    PanelSpec::new(
        "Ping by SEND of 64 B: 99th percentile",
        (X::Loss, Quantity::P99),
        |r| r.program == Program::Ping,
        label::by_timeout,
    ),
];
