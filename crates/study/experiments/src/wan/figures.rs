//! What the study's figures show. The captions say which device can answer.

use std::collections::BTreeMap;

use adverb_report::{FigureSpec, Plots, Quantity, Table, X, format};
use adverb_results::Record;

use super::plan::LOSSY_WINDOWS;
use crate::programs::{every, panel, parameter, place, word};

const SIZE: (X, &str, &str) = (X::Size, "size_bytes", "message size (bytes)");
const DELAY: (X, &str, &str) = (X::Time, "impairment.delay_ns", "delay of the path, one way");
const COMPUTE: (X, &str, &str) = (X::Time, "compute_ns", "computation");
const RESPONSE: (X, &str, &str) = (X::Time, "response_delay_ns", "response delay of the server");
const MEMORY: (X, &str, &str) = (
    X::Size,
    "read_memory_bytes",
    "memory that the computation reads in each millisecond (bytes)",
);
const ROUND_TRIP: (&str, Quantity) = ("communication_ns.p50", Quantity::RoundTrip);
const RATIO: (&str, Quantity) = ("overlap_ratio", Quantity::Ratio);
const LATENCY_OF: (&str, Quantity) = ("latency_ns.p50", Quantity::Latency);
const SLOWDOWN: (&str, Quantity) = ("slowdown", Quantity::Ratio);
const LOSS: (X, &str, &str) = (X::Loss, "impairment.loss", "share of packets lost");
const GOODPUT: (&str, Quantity) = ("bytes_per_s", Quantity::Goodput);
const ONE_WAY: (&str, Quantity) = ("one_way_ns.p50", Quantity::OneWay);

pub(super) const LATENCY: FigureSpec = FigureSpec {
    id: "wan3",
    name: "WAN Figure 3",
    title: "Round trip by WRITE and by TCP, over size and over delay",
    caption: "3a: without delay; 3b: 1 KiB. The receivers poll: memory, or a non-blocking socket; or they sleep until data \
              arrive on a blocking socket. The router of the publication had a delay of its own, which is not part of 3a. Any device can answer 3a, one that delays \
              packets (model, soft@ADDR) also 3b.",
    plots: Plots::Records(
        &[
            panel("3a: over size", SIZE, ROUND_TRIP, without_delay, by),
            panel("3b: 1 KiB over delay", DELAY, ROUND_TRIP, of_1_kib, by),
        ],
        None,
    ),
};

pub(super) const OVERLAP: FigureSpec = FigureSpec {
    id: "wan4a",
    name: "WAN Figure 4a",
    title: "Overlap of computation and communication, without delay",
    caption: "The client starts a message of 1 KiB, computes, and waits for the answer. The ratio is the time of the \
              computation alone, divided by the time of the whole. A model and hardware can answer. On soft@ADDR the \
              NIC's work is done by CPUs of both hosts, and on soft by the requester when it posts: there the figure \
              shows what the program's own CPU does for the NIC.",
    plots: Plots::Records(
        &[panel(
            "4a: ratio over computation",
            COMPUTE,
            RATIO,
            every,
            by,
        )],
        None,
    ),
};

pub(super) const FETCH: FigureSpec = FigureSpec {
    id: "wan4b",
    name: "WAN Figure 4b",
    title: "Data of a busy server, without delay",
    caption: PROGRESS_CAPTION,
    plots: Plots::Records(
        &[panel(
            "4b: time over response delay",
            RESPONSE,
            LATENCY_OF,
            without_delay,
            by,
        )],
        None,
    ),
};

pub(super) const OVERLAP_DELAYED: FigureSpec = FigureSpec {
    id: "wan5",
    name: "WAN Figure 5",
    title: "Overlap of computation and communication, over a long path",
    caption: "5a: a path of 1 ms in each direction; 5b: a computation of 2 ms. A model and hardware can answer. On \
              soft@ADDR the NIC's work is done by CPUs of both hosts, but a long delay hides even that.",
    plots: Plots::Records(
        &[
            panel(
                "5a: ratio over computation, path of 1 ms",
                COMPUTE,
                RATIO,
                with_1_ms,
                by,
            ),
            panel(
                "5b: ratio over delay, computation of 2 ms",
                DELAY,
                RATIO,
                with_2_ms_of_computation,
                by,
            ),
        ],
        None,
    ),
};

pub(super) const PROGRESS: FigureSpec = FigureSpec {
    id: "wan6",
    name: "WAN Figure 6",
    title: "Data of a busy server, over a long path",
    caption: PROGRESS_CAPTION,
    plots: Plots::Records(
        &[
            panel(
                "6a: over response delay, path of 1 ms",
                RESPONSE,
                LATENCY_OF,
                with_1_ms,
                by,
            ),
            panel(
                "6a: over response delay, without delay",
                RESPONSE,
                LATENCY_OF,
                without_delay,
                by,
            ),
            panel(
                "6b: over delay, response delay of 2 ms",
                DELAY,
                LATENCY_OF,
                with_2_ms_of_load,
                by,
            ),
        ],
        None,
    ),
};

const PROGRESS_CAPTION: &str = "A client fetches 1 KiB from a server that computes before it answers: by READ, by \
                                SEND and by TCP. A model and hardware can answer; so can soft, where one-sided \
                                operations bypass the server. On soft@ADDR a thread of the server's CPU answers \
                                READs: they depend on a free core.";

pub(super) const INTERFERENCE: FigureSpec = FigureSpec {
    id: "wan7",
    name: "WAN Figure 7",
    title: "CPU that clients take from a computation at the server",
    caption: "Time of a computation of 20 ms while clients stream to the server, divided by its time alone: 40 \
              clients on a model, two on a real device. The thread that computes takes arrived messages after each \
              millisecond; or each client has a reader on the same core that sleeps until a message arrives. Interrupts of \
              the kernel's TCP run there, too. The last panel is beyond the publication: the computation also reads \
              memory, whose bandwidth it shares with what arrives. A model and hardware can answer; on soft \
              the clients' CPU carries out their WRITEs, so that they take none of the server's, except for caches \
              and memory bandwidth. On soft@ADDR the server's CPU is its NIC: WRITEs take CPU, too. A \
              model's TCP does not merge small writes: its line begins at 1 KiB.",
    plots: Plots::Records(
        &[
            panel(
                "7a: slowdown over size",
                SIZE,
                SLOWDOWN,
                |record| without_delay(record) && !reads_memory(record),
                by,
            ),
            panel(
                "7b: slowdown over delay, 16 KiB",
                DELAY,
                SLOWDOWN,
                |record| of_16_kib(record) && !reads_memory(record),
                by,
            ),
            panel(
                "16 KiB: slowdown over memory read in a millisecond",
                MEMORY,
                SLOWDOWN,
                reads_memory,
                by,
            ),
        ],
        None,
    ),
};

pub(super) const LAN: FigureSpec = FigureSpec {
    id: "wan8",
    name: "WAN Figure 8",
    title: "Round trip in a LAN by WRITE and by TCP, over size",
    caption: "The cells of Figure 3a: no router is between the hosts. Any device can answer.",
    plots: Plots::Records(&[panel("8: over size", SIZE, ROUND_TRIP, every, by)], None),
};

pub(super) const RENDEZVOUS: FigureSpec = FigureSpec {
    id: "wan9",
    name: "WAN Figure 9",
    title: "Protocols for a message: which is best where",
    caption: "One-way time of a message, half of a round, by rendezvous (WRITE, READ), into a prearranged buffer, by an \
              eager copy, and by sockets. The table is the map: the fastest protocol for each size and delay, and the \
              fastest one that needs no agreement on a buffer before. Any device can answer for itself.",
    plots: Plots::Records(
        &[
            panel(
                "9: over size, without delay",
                SIZE,
                ONE_WAY,
                without_delay,
                by_protocol,
            ),
            panel(
                "9: over size, path of 1 ms",
                SIZE,
                ONE_WAY,
                with_1_ms,
                by_protocol,
            ),
        ],
        Some(map),
    ),
};

pub(super) const BEYOND: FigureSpec = FigureSpec {
    id: "beyond",
    name: "Beyond the publication",
    title: "Streams over long paths: what is in flight, and what loss costs",
    caption: "Goodput of messages of 64 KiB by RC, with a number of WRITEs in flight, and by one TCP stream, whose window \
              adapts. A stream needs delay × bandwidth in flight, for both directions of the path. With go-back-N a loss \
              costs RC a round trip and what was sent in it; TCP resends only what was lost, and shrinks its window. Any \
              device that delays packets can answer; a modelled iWARP adapter has no congestion control, so that a loss costs \
              it too little. TCP of a real machine crosses such a path with --degen.",
    plots: Plots::Records(
        &[
            panel(
                "no loss: over delay",
                DELAY,
                GOODPUT,
                |record| loss(record) == 0.0,
                by_window,
            ),
            panel(
                "path of 1 ms: over loss",
                LOSS,
                GOODPUT,
                |record| with_1_ms(record) && is_compared(record),
                by_window,
            ),
            panel(
                "path of 10 ms: over loss",
                LOSS,
                GOODPUT,
                |record| delay(record) == 10_000_000 && is_compared(record),
                by_window,
            ),
        ],
        None,
    ),
};

/// Returns the delay of the path in ns.
pub(super) fn delay(record: &Record) -> u64 {
    let path = record.params.get("impairment");
    let delay = path.and_then(|path| path.get("delay_ns"));
    delay.and_then(serde_json::Value::as_f64).unwrap_or(0.0) as u64
}

fn without_delay(record: &Record) -> bool {
    delay(record) == 0
}

fn with_1_ms(record: &Record) -> bool {
    delay(record) == 1_000_000
}

fn with_2_ms_of_computation(record: &Record) -> bool {
    parameter(record, "compute_ns") == 2_000_000
}

fn with_2_ms_of_load(record: &Record) -> bool {
    parameter(record, "response_delay_ns") == 2_000_000
}

fn of_1_kib(record: &Record) -> bool {
    parameter(record, "size_bytes") == 1024
}

fn of_16_kib(record: &Record) -> bool {
    parameter(record, "size_bytes") == 16_384
}

fn reads_memory(record: &Record) -> bool {
    parameter(record, "read_memory_bytes") > 0
}

/// Returns how messages were sent, and whether readers slept.
pub(super) fn by(record: &Record) -> String {
    let by = word(record, "by").to_uppercase();
    match word(record, "completion") {
        "" | "poll" => by,
        _ => with_sleeping_readers(&by),
    }
}

/// Names a way of sending whose readers sleep.
pub(super) fn with_sleeping_readers(by: &str) -> String {
    format!("{by}, sleeping reader")
}

pub(super) fn by_protocol(record: &Record) -> String {
    let protocol = word(record, "protocol");
    match protocol {
        "write" | "read" => format!("rendezvous by {}", protocol.to_uppercase()),
        other => other.to_owned(),
    }
}

/// Returns the share of packets lost.
pub(super) fn loss(record: &Record) -> f64 {
    let path = record.params.get("impairment");
    let loss = path.and_then(|path| path.get("loss"));
    loss.and_then(serde_json::Value::as_f64).unwrap_or(0.0)
}

pub(super) fn is_tcp(record: &Record) -> bool {
    word(record, "transport") == "tcp"
}

/// Returns whether TCP or one of the windows that are compared with it carries the messages.
fn is_compared(record: &Record) -> bool {
    is_tcp(record)
        || LOSSY_WINDOWS
            .map(u64::from)
            .contains(&parameter(record, "buffers"))
}

fn by_window(record: &Record) -> String {
    match is_tcp(record) {
        true => "TCP".to_owned(),
        false => format!("RC, {} in flight", parameter(record, "buffers")),
    }
}

/// The fastest protocols by device, delay and size.
fn map(records: &[&Record]) -> Table {
    type Key<'r> = (String, u64, u64);
    let mut cells: BTreeMap<Key<'_>, BTreeMap<&str, f64>> = BTreeMap::new();
    for record in records {
        if let Some(time) = record.metric(ONE_WAY.0) {
            let size = parameter(record, "size_bytes");
            let key = (place(record), delay(record), size);
            cells
                .entry(key)
                .or_default()
                .insert(word(record, "protocol"), time);
        }
    }
    let fastest = |times: &BTreeMap<&str, f64>, without: &str| {
        let times = times.iter().filter(|(protocol, _)| **protocol != without);
        let least = times.min_by(|a, b| a.1.total_cmp(b.1));
        least.map_or_else(
            || "–".to_owned(),
            |(protocol, time)| format!("{protocol} ({})", format::time(*time)),
        )
    };
    let rows = cells.iter().map(|((device, delay, size), times)| {
        vec![
            device.clone(),
            match delay {
                0 => "none".to_owned(),
                delay => format::time(*delay as f64),
            },
            format::size(*size),
            fastest(times, ""),
            fastest(times, "prearranged"),
        ]
    });
    Table {
        columns: vec![
            "Device",
            "Delay",
            "Size",
            "Fastest",
            "Without a prearranged buffer",
        ],
        rows: rows.collect(),
    }
}
