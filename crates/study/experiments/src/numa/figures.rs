//! What the study's figures show. The captions say which device can answer.

use adverb_report::{FigureSpec, Plots, Quantity, RecordPanel, X};
use adverb_results::Record;

use super::tables::{by_queue_pair, remedies, updates};
use crate::programs::{every, panel, parameter, word};

pub(super) static FIGURES: [&FigureSpec; 9] = [
    &NODES,
    &CLOSED,
    &OPEN,
    &INDEPENDENT,
    &WORKERS,
    &SLOTS,
    &STORE,
    &REMEDIES,
    &SYNC,
];

const CLIENTS: (X, &str, &str) = (X::Count, "clients", "queue pairs, one for each client");
const SIZE: (X, &str, &str) = (X::Size, "size_bytes", "payload (bytes)");
const THREADS: (X, &str, &str) = (X::Count, "load_threads", "threads of the load");
const ARRAY: (X, &str, &str) = (X::Size, "load_bytes", "array of each thread (bytes)");
const WORKING: (X, &str, &str) = (X::Count, "workers", "workers on the accessible words");
const CONNECTIONS: (X, &str, &str) = (X::Parameter(Quantity::Count), "connections", "connections");
const BARS: (X, &str, &str) = (X::Bars, "clients", "");
pub(super) const MEAN: (&str, Quantity) = ("latency_ns.mean", Quantity::Latency);
const SPREAD: (&str, Quantity) = ("latency_ns.sd", Quantity::Latency);
pub(super) const RATE: (&str, Quantity) = ("requests_per_s", Quantity::RequestRate);
const REMOTE: (&str, Quantity) = ("word.remote.updates_per_s", Quantity::RequestRate);
const LOCAL: (&str, Quantity) = ("word.local.each_ns", Quantity::Latency);

pub(super) const NODES: FigureSpec = FigureSpec {
    id: "numa2",
    name: "NUMA Figure 2",
    title: "Memory and caches of this machine, by node",
    caption: "Measured on the machine that ran the study, whatever the device: no NIC takes part, and a model's host is another one. \
              A CPU of one node accesses memory of one node: loads that depend on each other, at random places of an \
              array that the last-level cache holds and of a larger one; reading the larger one in order; and half \
              of the round trip of a cache line between two CPUs of these nodes. A machine with one node says nothing \
              about another one.",
    plots: Plots::Records(
        &[
            machine(
                "2: load from the last-level cache",
                ("cached_ns", Quantity::Latency),
            ),
            machine("2: load from memory", ("memory_ns", Quantity::Latency)),
            machine(
                "2: reading by one thread",
                ("read_bytes_per_s", Quantity::Throughput),
            ),
            machine(
                "2: a cache line between CPUs",
                ("line_ns", Quantity::OneWay),
            ),
        ],
        None,
    ),
};

const fn machine(title: &'static str, y: (&'static str, Quantity)) -> RecordPanel {
    panel(title, (X::Bars, "cpu_node", ""), y, every, |record| {
        let [cpus, memory] = ["cpu_node", "memory_node"].map(|name| parameter(record, name));
        format!("CPU of node {cpus}, memory of node {memory}")
    })
}

pub(super) const CLOSED: FigureSpec = FigureSpec {
    id: "numa3",
    name: "NUMA Figure 3",
    title: "Closed loop: latency over queue pairs, by the node of the accessible memory",
    caption: "Each client waits for its request of 64 B, MTU 256. Mean and standard deviation of all requests; the \
              table has means over queue pairs: of the first seven, of the others, of the fastest and of the slowest one. Nodes are relative to the NIC of the memory's machine. A \
              model and hardware with two nodes can answer. On soft the requester's CPU accesses the memory: its lines \
              show this machine's cores, not a NIC.",
    plots: Plots::Records(
        &[
            panel("3a: mean", CLIENTS, MEAN, every, by_memory),
            panel("3b: standard deviation", CLIENTS, SPREAD, every, by_memory),
        ],
        Some(by_queue_pair),
    ),
};

pub(super) const OPEN: FigureSpec = FigureSpec {
    id: "numa4",
    name: "NUMA Figure 4",
    title: "Open loop: rate over payload, by the node of the accessible memory",
    caption: "Eight clients on a model, one on a real device, post until the send queue is full, MTU 256. Slots of 8 B \
              are packed, so that eight share a cache line. A model and hardware can answer; on soft the rate is a \
              core's copies.",
    plots: Plots::Records(&[panel("4: rate", SIZE, RATE, every, by_memory)], None),
};

pub(super) const INDEPENDENT: FigureSpec = FigureSpec {
    id: "numa5c",
    name: "NUMA Section V-C",
    title: "Open loop while threads of the server access arrays of their own",
    caption: "Half of their accesses are writes of 8 B at random places. On real machines threads and clients share \
              cores if there are too few. In the model arrays that fit the last-level cache do not meet the NIC's accesses: \
              that they have no effect holds there by construction. Larger ones evict the clients' buffers.",
    plots: Plots::Records(
        &[
            panel(
                "5C: over threads, arrays of 64 MiB",
                THREADS,
                RATE,
                with_large_arrays,
                by_size,
            ),
            panel("5C: over arrays", ARRAY, RATE, with_most_threads, by_size),
        ],
        None,
    ),
};

pub(super) const WORKERS: FigureSpec = FigureSpec {
    id: "numa5",
    name: "NUMA Figure 5",
    title: "Open loop while workers of the server access the same words",
    caption: "Packed slots of 8 B; workers run on the memory's node. On models with two switches these cells have one, as \
              in the publication. On a model eight clients have one cache line, and 32 have four; a real device has one client. On \
              a model and on hardware the NIC's accesses meet those of the cores; on soft a client's core meets the \
              workers' cores in that line, really measured. 5a and 5b of the publication are two testbeds: devices.",
    plots: Plots::Records(
        &[
            panel("5: 90 % writes", WORKING, RATE, mostly_writes, by_memory),
            panel("5: 1:1", WORKING, RATE, half_writes, by_memory),
            panel("5: reads only", WORKING, RATE, only_reads, by_memory),
            panel(
                "5: 90 % writes, 32 queue pairs",
                WORKING,
                RATE,
                four_lines,
                by_memory,
            ),
        ],
        None,
    ),
};

pub(super) const SLOTS: FigureSpec = FigureSpec {
    id: "numa5d",
    name: "NUMA Section V-D",
    title: "Workers on slots with a cache line each",
    caption: "As Figure 5 with 90 % writes, but the slot of each queue pair has 64 B.",
    plots: Plots::Records(
        &[panel("5D: slots of 64 B", WORKING, RATE, every, by_memory)],
        None,
    ),
};

pub(super) const STORE: FigureSpec = FigureSpec {
    id: "numa6",
    name: "NUMA Figure 6",
    title: "A store whose values clients READ, under memslap's load, by placement and load",
    caption: "90 % GETs, 10 % PUTs of 67 B; one server core, and one client thread with one operation outstanding on each \
              connection. The load is threads of the server's machine with arrays of their own: on any node, or all \
              bound to the server's. The placements are Adverb's: the publication's are not among the published values \
              that it has. A model lets the load take turns with the server's core on their node, and the NIC's \
              accesses cross to the other node. A machine with one node has one placement, and no bound load.",
    plots: Plots::Records(
        &[
            panel("6a: no load", CONNECTIONS, RATE, without_load, by_placement),
            panel(
                "6b: load on any node",
                CONNECTIONS,
                RATE,
                with_agnostic_load,
                by_placement,
            ),
            panel(
                "6c: load on the server's node",
                CONNECTIONS,
                RATE,
                with_bound_load,
                by_placement,
            ),
        ],
        None,
    ),
};

pub(super) const REMEDIES: FigureSpec = FigureSpec {
    id: "numa7",
    name: "NUMA Section VII",
    title: "Flushed memory, no DDIO, and larger MTUs",
    caption: "Open loop. Flushing has a thread of the server flush the accessed lines again and again; real machines \
              can, too. DDIO and the subnet's MTU are what-if changes of the model.",
    plots: Plots::Records(
        &[panel(
            "VII: rate over payload",
            SIZE,
            RATE,
            over_sizes,
            by_mtu,
        )],
        Some(remedies),
    ),
};

/// Beyond the publication, which leaves open how local and remote updates are synchronised.
pub(super) const SYNC: FigureSpec = FigureSpec {
    id: "sync",
    name: "Beyond",
    title: "One word that NICs and CPUs update, by the way of the CPUs",
    caption: "Remote clients add to a word by FETCH_ADD while threads of its machine do so by the CPU's atomic \
              instructions, by FETCH_ADDs of their own NIC (loopback), or by loads and stores, which lose updates in any \
              case. Eight clients and four threads on a model, one each on a real device. Updates are lost if atomics are \
              atomic only within the NIC (IBV_ATOMIC_HCA). A model knows the prices, and not what is lost; on soft, CPUs \
              execute the atomics of both.",
    plots: Plots::Records(
        &[
            panel("Updates of remote clients", BARS, REMOTE, every, by_local),
            panel(
                "Time of an update of the CPUs",
                BARS,
                LOCAL,
                every,
                by_local,
            ),
        ],
        Some(updates),
    ),
};

pub(super) fn op(record: &Record) -> String {
    word(record, "op").to_uppercase()
}

pub(super) fn by_memory(record: &Record) -> String {
    match word(record, "numa_memory") {
        "other" => format!("{}, memory on the other node", op(record)),
        "nic" => format!("{}, memory on the NIC's node", op(record)),
        _ => op(record),
    }
}

fn by_size(record: &Record) -> String {
    let bound = match word(record, "numa_load") {
        "nic" => ", bound to the NIC's node",
        _ => "",
    };
    format!(
        "{} of {} B{bound}",
        op(record),
        parameter(record, "size_bytes")
    )
}

/// The placement of a store and its client.
fn by_placement(record: &Record) -> String {
    let placement = match (word(record, "numa_server"), word(record, "numa_client")) {
        ("nic", _) => "all on the NIC's node",
        ("other", "other") => "all on the other node",
        ("other", _) => "server and values on the other node",
        _ => "not bound",
    };
    placement.to_owned()
}

fn without_load(record: &Record) -> bool {
    parameter(record, "load_threads") == 0
}

fn with_agnostic_load(record: &Record) -> bool {
    !without_load(record) && word(record, "numa_load").is_empty()
}

fn with_bound_load(record: &Record) -> bool {
    !word(record, "numa_load").is_empty()
}

fn by_mtu(record: &Record) -> String {
    match parameter(record, "path_mtu_bytes").max(parameter(record, "link_mtu_bytes")) {
        0 => op(record),
        mtu => format!("{}, MTU {mtu}", op(record)),
    }
}

fn share_of_writes(record: &Record) -> f64 {
    let share = record.params.get("worker_writes");
    share.and_then(serde_json::Value::as_f64).unwrap_or(0.0)
}

/// Whether the record shows workers with this share of writes, or none, and one cache line.
fn works(record: &Record, share: f64) -> bool {
    let is_idle = parameter(record, "workers") == 0;
    parameter(record, "clients") < 32 && (is_idle || share_of_writes(record) == share)
}

fn mostly_writes(record: &Record) -> bool {
    works(record, 0.9)
}

fn half_writes(record: &Record) -> bool {
    works(record, 0.5)
}

fn only_reads(record: &Record) -> bool {
    works(record, 0.0)
}

fn four_lines(record: &Record) -> bool {
    parameter(record, "clients") == 32
}

/// Size of the arrays of the panel over threads.
pub(super) const LARGE: u64 = 64 << 20;

fn with_large_arrays(record: &Record) -> bool {
    let threads = parameter(record, "load_threads");
    threads == 0 || parameter(record, "load_bytes") == LARGE
}

/// Threads of the panel over arrays.
fn with_most_threads(record: &Record) -> bool {
    parameter(record, "load_bytes") > 0
        && word(record, "numa_load").is_empty()
        && [4, 48].contains(&parameter(record, "load_threads"))
}

fn over_sizes(record: &Record) -> bool {
    word(record, "ddio").is_empty() && record.params.get("flush").is_none()
}

pub(super) fn by_local(record: &Record) -> String {
    match word(record, "local") {
        "none" => "no local updates",
        "cpu" => "atomic instructions",
        "loopback" => "loopback",
        _ => "loads and stores",
    }
    .to_owned()
}
