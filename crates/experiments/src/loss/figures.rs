//! Goodput and ping over shares of packets lost.

use adverb_report::label::Label;
use adverb_report::{FigureSpec, PanelSpec, Plots, Quantity, X, label};
use adverb_results::{Opcode, PairRecord, Program};
use adverb_units::{Bytes, Span};

pub(super) const LOSS: FigureSpec = FigureSpec {
    id: "loss",
    name: "Cost of loss",
    title: "What loss costs: goodput and ping by share of packets lost",
    caption: "Both sides’ UDP ports lose this share of the packets that they send, at random. RC sends again \
             from the lost packet on (go-back-N), at once where a later packet shows the gap, and after the \
             ACK timeout, four times over, where nothing follows. Packets carry up to the path MTU: a longer \
             message has more of them to lose. Goodput is that of all repetitions together.",
    plots: Plots::Lines(&PANELS),
};

const fn over_loss(
    title: &'static str,
    y: Quantity,
    shows: fn(&PairRecord) -> bool,
    series: fn(&PairRecord) -> Label,
) -> PanelSpec {
    PanelSpec {
        title,
        x: X::Loss,
        y,
        shows,
        series,
        own_scale: false,
    }
}

/// Whether it is a stream with the window and the timeout that the others are compared by.
fn is_usual_stream(r: &PairRecord) -> bool {
    let is_short = r.params.ack_timeout < Some(Span::from_ms(10));
    r.program == Program::Blast && r.params.buffers == 16 && is_short
}

const PANELS: [PanelSpec; 5] = [
    over_loss(
        "RDMA WRITE, 16 in flight, short ACK timeout: goodput by message size",
        Quantity::Goodput,
        |r| r.params.op == Opcode::Write && is_usual_stream(r),
        label::by_size,
    ),
    over_loss(
        "64 KiB, 16 in flight, short ACK timeout: goodput by operation",
        Quantity::Goodput,
        |r| r.params.size_bytes == Bytes::kib(64) && is_usual_stream(r),
        label::by_operation,
    ),
    over_loss(
        "RDMA WRITE of 64 KiB: goodput by window and ACK timeout",
        Quantity::Goodput,
        |r| {
            let of_write = r.params.op == Opcode::Write && r.params.size_bytes == Bytes::kib(64);
            r.program == Program::Blast && of_write
        },
        label::by_window_and_timeout,
    ),
    over_loss(
        "Ping by SEND of 64 B: median",
        Quantity::Median,
        |r| r.program == Program::Ping,
        label::by_timeout,
    ),
    over_loss(
        "Ping by SEND of 64 B: 99th percentile",
        Quantity::P99,
        |r| r.program == Program::Ping,
        label::by_timeout,
    ),
];
