//! Figures 1 to 6 and 8 of the paper.

use adverb_report::{FigureSpec, PanelSpec, Plots, Quantity, X, label};
use adverb_results::{Completion, Opcode, PairRecord, Posting, Program, Signaling};
use adverb_units::Bytes;

pub(super) const FIG1: FigureSpec = FigureSpec {
    id: "fig1",
    name: "Figure 1",
    title: "Ping: one-way time and CPU use by message size",
    caption: "Two processes answer each other with one message in flight. One-way time is half of the \
             time of a round. CPU is user and system time over elapsed time, in percent of one core.",
    plots: Plots::Lines(&TIME_AND_CPU),
};

pub(super) const FIG2: FigureSpec = FigureSpec {
    id: "fig2",
    name: "Figure 2",
    title: "Blast with one buffer: time per message and CPU use by message size",
    caption: "The active side posts the next message when the last one has completed. Time per message \
             is elapsed time over messages.",
    plots: Plots::Lines(&TIME_AND_CPU),
};

pub(super) const FIG3: FigureSpec = FigureSpec {
    id: "fig3",
    name: "Figure 3",
    title: "Blast, inline RDMA WRITE: message rate by number of buffers",
    caption: "Small messages that travel inside the work request, posted one by one or as lists, with \
             1 to 256 in flight. Every message has its own buffer.",
    plots: Plots::Lines(&PANELS_3),
};

pub(super) const FIG4: FigureSpec = FigureSpec {
    id: "fig4",
    name: "Figure 4",
    title: "Blast, RDMA WRITE without inline: throughput by number of buffers",
    caption: "Messages that are read from registered memory, with 1 to 256 in flight.",
    plots: Plots::Lines(&PANELS_4),
};

pub(super) const FIG5: FigureSpec = FigureSpec {
    id: "fig5",
    name: "Figure 5",
    title: "Blast with four buffers: throughput and CPU use of all opcodes by message size",
    caption: "Four messages in flight, by each operation.",
    plots: Plots::Lines(&PANELS_5),
};

pub(super) const FIG6: FigureSpec = FigureSpec {
    id: "fig6",
    name: "Figure 6",
    title: "Signaling every request, or fewer",
    caption: "A request without a signal yields no completion to reap. In a blast, one request in n/2 \
             is signaled, where n is the number of buffers; in a ping by WRITE then READ, the WRITE \
             can go unsignaled, since the READ behind it completes later.",
    plots: Plots::Lines(&PANELS_6),
};

pub(super) const FIG8: FigureSpec = FigureSpec {
    id: "fig8",
    name: "Figure 8",
    title: "Devices side by side: one-way time and throughput by message size",
    caption: "The same programs on each device, busy polling and not inline: one message in flight (ping), \
             four (blast). The paper compares InfiniBand with RoCE in this form. A line is named after \
             what its device measures; devices of different kinds are not to be mixed.",
    plots: Plots::Devices(&PANELS_8),
};

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
    PanelSpec::new(title, (X::Size, y), shows, label::by_operation)
}

/// The small messages of a panel, at a scale of their own.
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
    PanelSpec::new(title, (X::Buffers, y), shows, label::by_size)
}

const CPU_ACTIVE_POLLING: PanelSpec = over_sizes(
    "CPU of the active side, busy polling",
    Quantity::CpuActive,
    polling,
);
const CPU_ACTIVE_EVENTS: PanelSpec = over_sizes(
    "CPU of the active side, events",
    Quantity::CpuActive,
    by_events,
);
const CPU_PASSIVE_POLLING: PanelSpec = over_sizes(
    "CPU of the passive side, busy polling",
    Quantity::CpuPassive,
    polling,
);
const CPU_PASSIVE_EVENTS: PanelSpec = over_sizes(
    "CPU of the passive side, events",
    Quantity::CpuPassive,
    by_events,
);

const TIME_AND_CPU: [PanelSpec; 8] = [
    over_sizes("One-way time, busy polling", Quantity::OneWay, polling),
    over_sizes("One-way time, events", Quantity::OneWay, by_events),
    closer("Small messages, busy polling", |r| {
        polling(r) && is_small(r)
    }),
    closer("Small messages, events", |r| by_events(r) && is_small(r)),
    CPU_ACTIVE_POLLING,
    CPU_ACTIVE_EVENTS,
    CPU_PASSIVE_POLLING,
    CPU_PASSIVE_EVENTS,
];

const PANELS_3: [PanelSpec; 4] = [
    over_buffers("Message rate, single posts", Quantity::MessageRate, singly),
    over_buffers("Message rate, lists", Quantity::MessageRate, in_lists),
    over_buffers("Time per message, single posts", Quantity::OneWay, singly),
    over_buffers("Time per message, lists", Quantity::OneWay, in_lists),
];

const PANELS_4: [PanelSpec; 2] = [
    over_buffers("Throughput, busy polling", Quantity::Throughput, polling),
    over_buffers("Throughput, events", Quantity::Throughput, by_events),
];

const PANELS_5: [PanelSpec; 6] = [
    over_sizes("Throughput, busy polling", Quantity::Throughput, polling),
    over_sizes("Throughput, events", Quantity::Throughput, by_events),
    CPU_ACTIVE_POLLING,
    CPU_ACTIVE_EVENTS,
    CPU_PASSIVE_POLLING,
    CPU_PASSIVE_EVENTS,
];

const PANELS_6: [PanelSpec; 2] = [
    PanelSpec::new(
        "Blast of WRITEs: message rate",
        (X::Buffers, Quantity::MessageRate),
        |r| r.program == Program::Blast,
        label::by_signal_and_post,
    ),
    PanelSpec::new(
        "Ping by WRITE then READ: one-way time",
        (X::Size, Quantity::OneWay),
        |r| r.program == Program::Ping,
        label::by_signal_and_completion,
    ),
];

/// Returns whether devices are compared by this cell: busy polling, not inline, no packet impaired, every
/// request signaled and posted singly, and one message of `ping` outstanding, or four of `blast`. It does not
/// matter which figure the cell was measured for.
pub(super) fn is_comparable(r: &PairRecord) -> bool {
    let (p, in_flight) = (&r.params, if r.program == Program::Ping { 1 } else { 4 });
    let is_plain = !p.inline && !p.verify && p.signal == Signaling::All;
    let is_single = p.post == Posting::Single && p.buffers == in_flight;
    is_plain && p.impairment.is_none() && is_single && polling(r)
}

fn compares(r: &PairRecord, program: Program, op: Opcode) -> bool {
    is_comparable(r) && r.program == program && r.params.op == op
}

/// One program and operation on several devices.
const fn by_device(title: &'static str, y: Quantity, shows: fn(&PairRecord) -> bool) -> PanelSpec {
    PanelSpec {
        series: label::by_device,
        ..over_sizes(title, y, shows)
    }
}

const PANELS_8: [PanelSpec; 4] = [
    by_device("Ping by SEND: one-way time", Quantity::OneWay, |r| {
        compares(r, Program::Ping, Opcode::Send)
    }),
    by_device("Ping by RDMA WRITE: one-way time", Quantity::OneWay, |r| {
        compares(r, Program::Ping, Opcode::Write)
    }),
    by_device("Blast by SEND: throughput", Quantity::Throughput, |r| {
        compares(r, Program::Blast, Opcode::Send)
    }),
    by_device(
        "Blast by RDMA WRITE: throughput",
        Quantity::Throughput,
        |r| compares(r, Program::Blast, Opcode::Write),
    ),
];
