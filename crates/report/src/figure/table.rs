//! The panels of each figure over sizes or buffers, as a table.

use adverb_results::{Completion, FigureId, Opcode, PairRecord, Posting, Program};

use adverb_units::{Bytes, Span};

use super::label::{self, Label};
use crate::cells::Quantity;

/// What stands on the horizontal axis of a panel.
#[derive(Clone, Copy)]
pub(crate) enum X {
    Size,
    Buffers,
    Loss,
}

/// One panel: which records, over what, told apart how.
pub(crate) struct PanelSpec {
    pub(crate) title: &'static str,
    pub(crate) x: X,
    pub(crate) y: Quantity,
    pub(crate) shows: fn(&PairRecord) -> bool,
    pub(crate) series: fn(&PairRecord) -> Label,
    /// Whether its vertical axis fits its own values, rather than those of all panels like it.
    pub(crate) own_scale: bool,
}

fn polling(r: &PairRecord) -> bool {
    r.params.completion == Completion::Poll
}

fn by_events(r: &PairRecord) -> bool {
    r.params.completion == Completion::Event
}

fn singly(r: &PairRecord) -> bool {
    r.params.post == Posting::Single
}

fn in_lists(r: &PairRecord) -> bool {
    r.params.post == Posting::List
}

const fn over_sizes(title: &'static str, y: Quantity, shows: fn(&PairRecord) -> bool) -> PanelSpec {
    PanelSpec {
        title,
        x: X::Size,
        y,
        shows,
        series: label::by_operation,
        own_scale: false,
    }
}

/// The small messages of a panel, at a scale that tells them apart.
const fn closer(title: &'static str, shows: fn(&PairRecord) -> bool) -> PanelSpec {
    PanelSpec {
        own_scale: true,
        ..over_sizes(title, Quantity::OneWay, shows)
    }
}

fn is_small(r: &PairRecord) -> bool {
    r.params.size_bytes <= Bytes::kib(4)
}

const fn over_buffers(
    title: &'static str,
    y: Quantity,
    shows: fn(&PairRecord) -> bool,
) -> PanelSpec {
    PanelSpec {
        title,
        x: X::Buffers,
        y,
        shows,
        series: label::by_size,
        own_scale: false,
    }
}

const TIME_AND_CPU: [PanelSpec; 8] = [
    over_sizes("One-way time, busy polling", Quantity::OneWay, polling),
    over_sizes("One-way time, events", Quantity::OneWay, by_events),
    closer("Small messages, busy polling", |r| {
        polling(r) && is_small(r)
    }),
    closer("Small messages, events", |r| by_events(r) && is_small(r)),
    over_sizes(
        "CPU of the active side, busy polling",
        Quantity::CpuActive,
        polling,
    ),
    over_sizes(
        "CPU of the active side, events",
        Quantity::CpuActive,
        by_events,
    ),
    over_sizes(
        "CPU of the passive side, busy polling",
        Quantity::CpuPassive,
        polling,
    ),
    over_sizes(
        "CPU of the passive side, events",
        Quantity::CpuPassive,
        by_events,
    ),
];

const FIG3: [PanelSpec; 4] = [
    over_buffers("Message rate, single posts", Quantity::MessageRate, singly),
    over_buffers("Message rate, lists", Quantity::MessageRate, in_lists),
    over_buffers("Time per message, single posts", Quantity::OneWay, singly),
    over_buffers("Time per message, lists", Quantity::OneWay, in_lists),
];

const FIG4: [PanelSpec; 2] = [
    over_buffers("Throughput, busy polling", Quantity::Throughput, polling),
    over_buffers("Throughput, events", Quantity::Throughput, by_events),
];

const FIG5: [PanelSpec; 6] = [
    over_sizes("Throughput, busy polling", Quantity::Throughput, polling),
    over_sizes("Throughput, events", Quantity::Throughput, by_events),
    over_sizes(
        "CPU of the active side, busy polling",
        Quantity::CpuActive,
        polling,
    ),
    over_sizes(
        "CPU of the active side, events",
        Quantity::CpuActive,
        by_events,
    ),
    over_sizes(
        "CPU of the passive side, busy polling",
        Quantity::CpuPassive,
        polling,
    ),
    over_sizes(
        "CPU of the passive side, events",
        Quantity::CpuPassive,
        by_events,
    ),
];

const FIG6: [PanelSpec; 2] = [
    PanelSpec {
        title: "Blast of WRITEs: message rate",
        x: X::Buffers,
        y: Quantity::MessageRate,
        shows: |r| r.program == Program::Blast,
        series: label::by_signal_and_post,
        own_scale: false,
    },
    PanelSpec {
        title: "Ping by WRITE then READ: one-way time",
        x: X::Size,
        y: Quantity::OneWay,
        shows: |r| r.program == Program::Ping,
        series: label::by_signal_and_completion,
        own_scale: false,
    },
];

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

const LOSS: [PanelSpec; 5] = [
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

/// Cells of one kind on several devices.
const fn by_device(title: &'static str, y: Quantity, shows: fn(&PairRecord) -> bool) -> PanelSpec {
    PanelSpec {
        series: label::by_device,
        ..over_sizes(title, y, shows)
    }
}

const FIG8: [PanelSpec; 4] = [
    by_device("Ping by SEND: one-way time", Quantity::OneWay, |r| {
        r.program == Program::Ping && r.params.op == Opcode::Send
    }),
    by_device("Ping by RDMA WRITE: one-way time", Quantity::OneWay, |r| {
        r.program == Program::Ping && r.params.op == Opcode::Write
    }),
    by_device("Blast by SEND: throughput", Quantity::Throughput, |r| {
        r.program == Program::Blast && r.params.op == Opcode::Send
    }),
    by_device(
        "Blast by RDMA WRITE: throughput",
        Quantity::Throughput,
        |r| r.program == Program::Blast && r.params.op == Opcode::Write,
    ),
];

/// The panels of a figure; none of the rankings and the distribution, which are built apart.
pub(crate) fn panels(id: FigureId) -> &'static [PanelSpec] {
    match id {
        FigureId::Fig1 | FigureId::Fig2 => &TIME_AND_CPU,
        FigureId::Fig3 => &FIG3,
        FigureId::Fig4 => &FIG4,
        FigureId::Fig5 => &FIG5,
        FigureId::Fig6 => &FIG6,
        FigureId::Fig8 => &FIG8,
        FigureId::Loss => &LOSS,
        FigureId::RankRtt | FigureId::RankCpu | FigureId::Latency => &[],
    }
}

/// What a figure shows, below its title.
pub(crate) fn caption(id: FigureId) -> &'static str {
    match id {
        FigureId::Fig1 => {
            "Two processes answer each other with one message in flight. One-way time is half of the \
             time of a round. CPU is user and system time over elapsed time, in percent of one core."
        }
        FigureId::Fig2 => {
            "The active side posts the next message when the last one has completed. Time per message \
             is elapsed time over messages."
        }
        FigureId::Fig3 => {
            "Small messages that travel inside the work request, posted one by one or as lists, with \
             1 to 256 in flight. Every message has its own buffer."
        }
        FigureId::Fig4 => "Messages that are read from registered memory, with 1 to 256 in flight.",
        FigureId::Fig5 => "Four messages in flight, by each operation.",
        FigureId::Fig6 => {
            "A request without a signal yields no completion to reap. In a blast, one request in n/2 \
             is signaled, where n is the number of buffers; in a ping by WRITE then READ, the WRITE \
             can go unsignaled, since the READ behind it completes later."
        }
        FigureId::Fig8 => {
            "The same programs on each device, busy polling and not inline: one message in flight (ping), \
             four (blast). The paper compares InfiniBand with RoCE in this form. A line is named after \
             what its device measures; devices of different kinds are not to be mixed."
        }
        FigureId::RankRtt => {
            "The ladder of Russell's tutorial: time of a round, there and back, for each way to \
             program it."
        }
        FigureId::RankCpu => {
            "What the same rounds cost the active side: the share of one core, and the CPU time of \
             one round."
        }
        FigureId::Latency => {
            "One-way time of single messages (half of each sampled round), by percentile. The mean \
             hides what stands at the right."
        }
        FigureId::Loss => {
            "Both sides’ UDP ports lose this share of the packets that they send, at random. RC sends again \
             from the lost packet on (go-back-N), at once where a later packet shows the gap, and after the \
             ACK timeout, four times over, where nothing follows. Packets carry up to the path MTU: a longer \
             message has more of them to lose. Goodput is that of all repetitions together."
        }
    }
}
