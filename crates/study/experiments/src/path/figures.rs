//! Goodput and ping over paths.

use adverb_report::{FigureSpec, PanelSpec, Plots, Quantity, X, label};
use adverb_results::{Impairment, Opcode, PairRecord, Probability, Program, Transport};
use adverb_units::{Bytes, Span};

use super::plan::{COMPARED, LOSSY_DELAYS};

pub(super) const LOSS: FigureSpec = FigureSpec {
    id: "loss",
    name: "Cost of loss",
    title: "What loss costs: goodput and ping by share of packets lost",
    caption: "Both sides lose this share of the packets that they send, at random. RC resends from the lost packet on \
             (go-back-N): at once if a later packet reveals the gap, and after one to four ACK timeouts if nothing \
             follows. The time of a ping is half of its round. Packets carry up to the path MTU: a longer message has more of them to \
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

pub(super) const PATH: FigureSpec = FigureSpec {
    id: "path",
    name: "Long paths",
    title: "What a long path costs: goodput and ping by delay, window, loss and queue",
    caption: "The path delays each packet, loses some, and has a rate in the last panel, behind a queue of limited length. \
              A stream of WRITEs has a fixed number of messages of 64 KiB in flight, so that it carries at most this window in \
              each round trip; the window of the kernel's TCP adapts to the path. TCP is drawn where the device has \
              sockets on the same path (models).",
    plots: Plots::Lines(&PATH_PANELS),
};

pub(super) fn impairment(r: &PairRecord) -> Impairment {
    r.params.impairment.unwrap_or_default()
}

fn is_stream_at(r: &PairRecord, delay: Span) -> bool {
    let path = impairment(r);
    r.program == Program::Blast && path.rate.is_none() && path.delay == delay
}

/// Returns whether TCP or one of the windows that are compared with it carries the messages.
fn is_compared(r: &PairRecord) -> bool {
    r.params.traffic.transport == Transport::Tcp || COMPARED.contains(&r.params.buffers)
}

const PATH_PANELS: [PanelSpec; 5] = [
    PanelSpec::new(
        "RDMA WRITE of 64 KiB, no loss: goodput by delay",
        (X::Buffers, Quantity::Goodput),
        |r| {
            let path = impairment(r);
            r.program == Program::Blast
                && path.rate.is_none()
                && path.loss == Probability::ZERO
                && r.params.traffic.transport == Transport::Rc
        },
        label::by_delay,
    ),
    PanelSpec::new(
        "64 KiB, 1 ms each way: goodput of RC and TCP",
        (X::Loss, Quantity::Goodput),
        |r| is_compared(r) && is_stream_at(r, LOSSY_DELAYS[0]),
        label::by_window_or_tcp,
    ),
    PanelSpec::new(
        "64 KiB, 10 ms each way: goodput of RC and TCP",
        (X::Loss, Quantity::Goodput),
        |r| is_compared(r) && is_stream_at(r, LOSSY_DELAYS[1]),
        label::by_window_or_tcp,
    ),
    PanelSpec::new(
        "Ping of 64 B, 10 ms each way: 99th percentile",
        (X::Loss, Quantity::P99),
        |r| r.program == Program::Ping,
        label::by_window_or_tcp,
    ),
    PanelSpec::new(
        "64 KiB, 1 Gbit/s, 10 ms each way: goodput of RC and TCP",
        (X::Queue, Quantity::Goodput),
        |r| r.program == Program::Blast && impairment(r).rate.is_some(),
        label::by_window_or_tcp,
    ),
];
