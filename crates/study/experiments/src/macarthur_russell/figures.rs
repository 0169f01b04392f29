//! The figures of the paper, with its panels and axes: time, CPU in percent of a core, throughput in Mb/s of one
//! direction.

use std::collections::BTreeSet;

use adverb_report::cells::Cells;
use adverb_report::{FigureSpec, PanelSpec, Plots, Quantity, Table, X, format, label};
use adverb_results::{Completion, Opcode, PairRecord, Posting, Program, Signaling};
use adverb_units::Bytes;
use adverb_verbs::LinkRate;

pub(super) const FIG1: FigureSpec = FigureSpec {
    id: "fig1",
    name: "Figure 1",
    title: "Ping: CPU use, one-way time and throughput of small messages",
    caption: "Two processes answer each other with one message in flight. One-way time is half of the \
             time of a round. CPU is user and system time over elapsed time, in percent of one core. Throughput \
             counts one direction, as the paper does.",
    plots: Plots::Lines(&PANELS_1),
};

pub(super) const FIG2: FigureSpec = FigureSpec {
    id: "fig2",
    name: "Figure 2",
    title: "Blast with one buffer: time per message and throughput of small messages",
    caption: "The active side posts the next message when the last one has completed. Time per message \
             is elapsed time over messages.",
    plots: Plots::Lines(&PANELS_2),
};

pub(super) const FIG3: FigureSpec = FigureSpec {
    id: "fig3",
    name: "Figure 3",
    title: "Blast, inline RDMA WRITE: time and throughput by number of buffers",
    caption: "Small messages that travel inside the work request, posted one by one or as lists, with busy \
             polling. Every message has its own buffer.",
    plots: Plots::Lines(&PANELS_3),
};

pub(super) const FIG4: FigureSpec = FigureSpec {
    id: "fig4",
    name: "Figure 4",
    title: "Blast, RDMA WRITE without inline: CPU use, time and throughput by number of buffers",
    caption: "Messages that are read from registered memory, posted as lists of all buffers that are free.",
    plots: Plots::Lines(&PANELS_4),
};

pub(super) const FIG5: FigureSpec = FigureSpec {
    id: "fig5",
    name: "Figure 5",
    title: "Blast with four buffers: CPU use, time and throughput of all opcodes by message size",
    caption: "Four messages in flight, by each operation, posted as lists of all buffers that are free.",
    plots: Plots::Lines(&PANELS_5),
};

pub(super) const FIG6: FigureSpec = FigureSpec {
    id: "fig6",
    name: "Figure 6",
    title: "Signaling every request, or fewer",
    caption: "A request without a signal yields no completion to reap. In a blast of 16 B WRITEs, one request in \
             n/2 is signaled, where n is the number of buffers (the paper does not say whether they are inline: \
             both are here); in a ping by WRITE then READ, the WRITE can go unsignaled, since the READ behind it \
             completes later.",
    plots: Plots::Lines(&PANELS_6),
};

pub(super) const TABLE1: FigureSpec = FigureSpec {
    id: "table1",
    name: "Table I",
    title: "InfiniBand speeds: signalled, usable and reached",
    caption: "Rates of a link with four lanes in one direction. Signalled bits include the line code and, from HDR \
             on, error correction; usable ones are what packets have. The other columns are the highest throughput \
             with messages of 64 KiB, headers not included. The paper has SDR, DDR and QDR; faster links are \
             what-if: only the link of the modelled device changes, so that PCIe or the NIC may be the limit.",
    plots: Plots::Table(speeds),
};

pub(super) const FIG7: FigureSpec = FigureSpec {
    id: "fig7",
    name: "Figure 7",
    title: "Blast of 64 KiB at each InfiniBand speed: time and throughput by number of buffers",
    caption: "Each operation in lists with busy polling. The paper has SDR, DDR and QDR; the panels of faster \
             links are what-if: only the link of the modelled device changes.",
    plots: Plots::Lines(&PANELS_7),
};

pub(super) const FIG8: FigureSpec = FigureSpec {
    id: "fig8",
    name: "Figure 8",
    title: "Devices side by side: time and throughput of small messages and of large WRITEs",
    caption: "Blast on each device, busy polling and not inline: each operation with one buffer, and large WRITEs \
             in lists by number of buffers. The paper compares InfiniBand with RoCE in this form. A line is named \
             after what its device measures; devices of different kinds are not to be mixed.",
    plots: Plots::Devices(&PANELS_8),
};

const SIZE_AND_TIME: (X, Quantity) = (X::Size, Quantity::OneWay);
const SIZE_AND_THROUGHPUT: (X, Quantity) = (X::Size, Quantity::Megabits);
const BUFFERS_AND_TIME: (X, Quantity) = (X::Buffers, Quantity::OneWay);
const BUFFERS_AND_THROUGHPUT: (X, Quantity) = (X::Buffers, Quantity::Megabits);

fn any(_: &PairRecord) -> bool {
    true
}

fn polling(r: &PairRecord) -> bool {
    r.params.completion == Completion::Poll
}

fn singly(r: &PairRecord) -> bool {
    r.params.post == Posting::Single
}

fn in_lists(r: &PairRecord) -> bool {
    r.params.post == Posting::List
}

fn not_inline(r: &PairRecord) -> bool {
    !r.params.inline
}

fn of_blast(r: &PairRecord) -> bool {
    r.program == Program::Blast
}

/// A panel with a line for each operation and way of waiting.
const fn by_operation(
    title: &'static str,
    axes: (X, Quantity),
    shows: fn(&PairRecord) -> bool,
) -> PanelSpec {
    PanelSpec::new(title, axes, shows, label::by_operation_and_completion)
}

const PANELS_1: [PanelSpec; 3] = [
    by_operation(
        "1a: CPU of the active side",
        (X::Size, Quantity::CpuActive),
        any,
    ),
    by_operation("1b: one-way time", SIZE_AND_TIME, any),
    by_operation("1c: throughput", SIZE_AND_THROUGHPUT, any),
];

const PANELS_2: [PanelSpec; 3] = [
    by_operation("2a: time per message", SIZE_AND_TIME, not_inline),
    by_operation("2b: throughput", SIZE_AND_THROUGHPUT, not_inline),
    PanelSpec::new(
        "2c: time per message with and without inline, busy polling",
        SIZE_AND_TIME,
        |r| polling(r) && matches!(r.params.op, Opcode::Write | Opcode::WriteImm),
        label::by_operation_and_completion,
    ),
];

const PANELS_3: [PanelSpec; 4] = [
    PanelSpec::new(
        "3a: time per message, single posts",
        BUFFERS_AND_TIME,
        singly,
        label::by_size,
    ),
    PanelSpec::new(
        "3b: throughput, single posts",
        BUFFERS_AND_THROUGHPUT,
        singly,
        label::by_size,
    ),
    PanelSpec::new(
        "3c: time per message, lists",
        BUFFERS_AND_TIME,
        in_lists,
        label::by_size,
    ),
    PanelSpec::new(
        "3d: throughput, lists",
        BUFFERS_AND_THROUGHPUT,
        in_lists,
        label::by_size,
    ),
];

const PANELS_4: [PanelSpec; 3] = [
    PanelSpec::new(
        "4a: CPU of the active side",
        (X::Buffers, Quantity::CpuActive),
        any,
        label::by_size_and_completion,
    ),
    PanelSpec::new(
        "4b: time per message",
        BUFFERS_AND_TIME,
        any,
        label::by_size_and_completion,
    ),
    PanelSpec::new(
        "4c: throughput",
        BUFFERS_AND_THROUGHPUT,
        any,
        label::by_size_and_completion,
    ),
];

const PANELS_5: [PanelSpec; 4] = [
    by_operation(
        "5a: CPU of the active side",
        (X::Size, Quantity::CpuActive),
        any,
    ),
    by_operation(
        "5b: CPU of the passive side",
        (X::Size, Quantity::CpuPassive),
        any,
    ),
    by_operation("5c: time per message", SIZE_AND_TIME, any),
    by_operation("5d: throughput", SIZE_AND_THROUGHPUT, any),
];

/// A panel of the WRITEs of Figure 6.
const fn by_signal(
    title: &'static str,
    axes: (X, Quantity),
    shows: fn(&PairRecord) -> bool,
) -> PanelSpec {
    PanelSpec::new(title, axes, shows, label::by_signal_and_post)
}

const PANELS_6: [PanelSpec; 5] = [
    by_signal("6a: time per message, inline", BUFFERS_AND_TIME, |r| {
        of_blast(r) && r.params.inline
    }),
    by_signal("6a: time per message, not inline", BUFFERS_AND_TIME, |r| {
        of_blast(r) && not_inline(r)
    }),
    by_signal("6b: throughput, inline", BUFFERS_AND_THROUGHPUT, |r| {
        of_blast(r) && r.params.inline
    }),
    by_signal("6b: throughput, not inline", BUFFERS_AND_THROUGHPUT, |r| {
        of_blast(r) && not_inline(r)
    }),
    PanelSpec::new(
        "6c: one-way time of a ping by WRITE then READ",
        SIZE_AND_TIME,
        |r| !of_blast(r),
        label::by_signal_and_completion,
    ),
];

/// The last speed that the paper has.
const LAST_OF_PAPER: LinkRate = LinkRate::Qdr;

fn of_paper(r: &PairRecord) -> bool {
    r.params.rate.is_some_and(|rate| rate <= LAST_OF_PAPER)
}

fn what_if(r: &PairRecord) -> bool {
    r.params.rate.is_some_and(|rate| rate > LAST_OF_PAPER)
}

/// A panel with a line for each operation and speed.
const fn by_rate(
    title: &'static str,
    axes: (X, Quantity),
    shows: fn(&PairRecord) -> bool,
) -> PanelSpec {
    PanelSpec::new(title, axes, shows, label::by_operation_and_rate)
}

const PANELS_7: [PanelSpec; 4] = [
    by_rate("7a: time per message", BUFFERS_AND_TIME, of_paper),
    by_rate("7b: throughput", BUFFERS_AND_THROUGHPUT, of_paper),
    by_rate("what-if 7a: time per message", BUFFERS_AND_TIME, what_if),
    by_rate("what-if 7b: throughput", BUFFERS_AND_THROUGHPUT, what_if),
];

/// Table I: a row for each speed.
fn speeds(cells: &Cells<'_>) -> Table {
    let operations = [Opcode::Send, Opcode::WriteImm, Opcode::Write, Opcode::Read];
    let rates: BTreeSet<LinkRate> = cells.iter().filter_map(|c| c.params().rate).collect();
    let gbps = |mbps: u32| format!("{} Gb/s", f64::from(mbps) / 1e3);
    let row = |rate: LinkRate| {
        let highest = |op| {
            let own = cells.filter(|r| r.params.rate == Some(rate) && r.params.op == op);
            let samples = own.iter().filter_map(|c| c.sample(Quantity::Megabits));
            let highest = samples.map(|s| s.median).max_by(f64::total_cmp);
            highest.map_or_else(String::new, format::megabits)
        };
        let name = format!("4x {}", rate.to_string().to_uppercase());
        let rates = [gbps(rate.signalled_mbps()), gbps(rate.usable_mbps())];
        let rates = std::iter::once(name).chain(rates);
        rates.chain(operations.map(highest)).collect()
    };
    let columns = ["speed", "signalled", "usable"].into_iter();
    let named = operations.map(|op| format::opcode(Program::Blast, op));
    Table {
        columns: columns.chain(named).collect(),
        rows: rates.into_iter().map(row).collect(),
    }
}

/// Returns whether devices are compared by this cell: a blast with busy polling, not inline, no packet
/// impaired, at the link's own rate, every request signaled. It does not matter which figure the cell was measured for.
pub(super) fn is_comparable(r: &PairRecord) -> bool {
    let p = &r.params;
    let is_plain = not_inline(r) && !p.verify && p.signal == Signaling::All;
    let is_usual = p.impairment.is_none() && p.rate.is_none() && polling(r);
    of_blast(r) && is_plain && is_usual && (is_small(r) || is_large(r))
}

/// Messages up to 1 KiB, one at a time.
fn is_small(r: &PairRecord) -> bool {
    singly(r) && r.params.buffers == 1 && r.params.size_bytes <= Bytes::kib(1)
}

/// WRITEs from 1 KiB to 64 KiB, in lists.
fn is_large(r: &PairRecord) -> bool {
    let sizes = Bytes::kib(1)..=Bytes::kib(64);
    in_lists(r) && r.params.op == Opcode::Write && sizes.contains(&r.params.size_bytes)
}

const PANELS_8: [PanelSpec; 4] = [
    PanelSpec::new(
        "8a: time per message, one buffer",
        SIZE_AND_TIME,
        |r| is_comparable(r) && is_small(r),
        label::by_operation_and_device,
    ),
    PanelSpec::new(
        "8b: throughput, one buffer",
        SIZE_AND_THROUGHPUT,
        |r| is_comparable(r) && is_small(r),
        label::by_operation_and_device,
    ),
    PanelSpec::new(
        "8c: time per message of WRITEs in lists",
        BUFFERS_AND_TIME,
        |r| is_comparable(r) && is_large(r),
        label::by_size_and_device,
    ),
    PanelSpec::new(
        "8d: throughput of WRITEs in lists",
        BUFFERS_AND_THROUGHPUT,
        |r| is_comparable(r) && is_large(r),
        label::by_size_and_device,
    ),
];
