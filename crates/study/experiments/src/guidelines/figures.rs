//! What the study's figures show. The captions say which device can answer.

use adverb_report::findings::keeps_up;
use adverb_report::{FigureSpec, Plots, Quantity, RecordPanel, X};
use adverb_results::Record;
use serde_json::Value;

use super::ladder::{Step, generations, ladder, operation, pcie};
use crate::programs::{every, panel, parameter, word};

pub(super) static FIGURES: [&FigureSpec; 14] = [
    &LADDER,
    &CORES,
    &OFFERED,
    &QUEUES,
    &ANSWERS,
    &ATOMICS,
    &UNITS,
    &SENDS,
    &INBOUND,
    &WINDOWS,
    &KV,
    &HERD,
    &GENERATIONS,
    &PCIE,
];

const SERVED_BY: (X, &str, &str) = (X::Count, "server_cores", "server cores");
const LOAD: (X, &str, &str) = (X::Rate, "offered_per_s", "offered requests per second");
const QUEUE_PAIRS: (X, &str, &str) = (X::Count, "qps", "queue pairs of a core at each port");
const ALL_QUEUE_PAIRS: (X, &str, &str) = (X::Count, "qps", "queue pairs of the core");
const CLIENTS: (X, &str, &str) = (X::Parameter(Quantity::Count), "clients", "clients");
const WORDS: (X, &str, &str) = (
    X::Parameter(Quantity::Count),
    "words",
    "words that atomics choose from",
);
const PUTS: (X, &str, &str) = (X::Share, "put_ratio", "share of PUTs");
const SIZE: (X, &str, &str) = (X::Count, "size_bytes", "payload (bytes)");
const WINDOW: (X, &str, &str) = (X::Count, "outstanding", "READs outstanding of each core");
const BARS: (X, &str, &str) = (X::Bars, "", "");
const RATE: (&str, Quantity) = ("requests_per_s", Quantity::RequestRate);
const MEAN: (&str, Quantity) = ("latency_ns.mean", Quantity::Latency);
const P99: (&str, Quantity) = ("latency_ns.p99", Quantity::LatencyP99);
const LINES: (&str, Quantity) = ("pcie_lines_per_request", Quantity::Ratio);
const BATCH: (&str, Quantity) = ("batch_mean", Quantity::Ratio);

pub(super) const LADDER: FigureSpec = FigureSpec {
    id: "ladder",
    name: "The ladder",
    title: "A sequencer from FETCH_ADD to RPCs without payload",
    caption: "Each design has what the one before it has, and one thing more; the last one has two: it answers without \
              payload, and has more cores, as in the publication. All clients have requests outstanding all \
              the time, so that the latency under load is their number over the rate; the last plot has one client with \
              one request. The table names the busiest resource of the model, which limits the rate if it is near 100 %; on a real device it \
              is not known. On \
              soft, clients and server share this machine's cores. TCP is not a step, but shown for comparison: a \
              connection of each client, which both sides poll; a core sends all answers that it has for a client by one \
              call.",
    plots: Plots::Records(
        &[
            panel("Rate", BARS, RATE, under_load, design),
            panel("Mean latency under load", BARS, MEAN, under_load, design),
            panel(
                "Mean latency of one request at a time",
                BARS,
                MEAN,
                alone,
                design_alone,
            ),
        ],
        Some(ladder),
    ),
};

pub(super) const CORES: FigureSpec = FigureSpec {
    id: "cores",
    name: "Rate over cores",
    title: "A sequencer by RPC over the cores of the server",
    caption: "8 B: requests by WRITE, answers by SEND (UD) with the number inline. Header-only: both are SENDs without \
              payload. A core posts what it has found with one doorbell, up to 32 answers, or each alone. A model and \
              hardware can answer; on soft there are as many cores as this machine has.",
    plots: Plots::Records(
        &[
            panel("Rate", SERVED_BY, RATE, every, by_answer),
            panel(
                "Answers per doorbell",
                SERVED_BY,
                BATCH,
                in_lists,
                by_answer,
            ),
        ],
        None,
    ),
};

pub(super) const OFFERED: FigureSpec = FigureSpec {
    id: "offered",
    name: "Latency over load",
    title: "Latency of a sequencer over the offered load",
    caption: "Header-only, with ten cores or as many as there are. Requests arrive at random times (Poisson); \
              latency counts from then, also while a client has its maximum outstanding. Beyond what the server can answer \
              requests wait for longer and longer, so that the lines of latency end at the highest load that it keeps up \
              with.",
    plots: Plots::Records(
        &[
            panel("Mean", LOAD, MEAN, keeps_up, by_answer),
            panel("99th percentile", LOAD, P99, keeps_up, by_answer),
            panel("Rate reached", LOAD, RATE, every, by_answer),
        ],
        None,
    ),
};

pub(super) const QUEUES: FigureSpec = FigureSpec {
    id: "queues",
    name: "Rate over queue pairs",
    title: "Cores that answer from several queue pairs in turn",
    caption: "Lists of up to 32 answers of 8 B. A NIC processes a queue pair in one of its processing units, so that a \
              core needs several to use more of them; several cores have more queue pairs together, and may need fewer \
              each. A model and hardware can answer; on soft there are no units.",
    plots: Plots::Records(&[panel("Rate", QUEUE_PAIRS, RATE, every, by_cores)], None),
};

pub(super) const ANSWERS: FigureSpec = FigureSpec {
    id: "answers",
    name: "Ways to answer",
    title: "Requests of many clients to one core, answered by WRITE, by SEND, or by the NIC alone",
    caption: "Requests and replies of 32 B. WRITE answered by WRITE: both sides poll memory. WRITE answered by SEND: as HERD. READ: the client \
              fetches its reply, and the core takes no part. TCP: a connection of each client, which both sides \
              poll. A reply by UD needs one queue pair for all clients, the others one for each. A model and hardware can answer; on soft a queue pair costs what its memory costs.",
    plots: Plots::Records(
        &[
            panel("Rate", CLIENTS, RATE, every, by_way),
            panel("Mean latency", CLIENTS, MEAN, every, by_way),
        ],
        None,
    ),
};

pub(super) const ATOMICS: FigureSpec = FigureSpec {
    id: "atomics",
    name: "Atomics over words",
    title: "FETCH_ADD on one word and on many",
    caption: "Clients choose among adjacent words of 8 B at random. A NIC locks a word for a round trip over PCIe; some \
              lock by the low-order bits of the address, some all words. On soft the atomics are instructions of the \
              clients' cores.",
    plots: Plots::Records(&[panel("Rate", WORDS, RATE, every, fetch_add)], None),
};

pub(super) const UNITS: FigureSpec = FigureSpec {
    id: "units",
    name: "SENDs of one core",
    title: "SENDs (UD) of one core over queue pairs",
    caption: "60 B inline, which fill two lines of a WQE. In lists of 16 the NIC fetches the WQEs, and one processing \
              unit limits a queue pair. Peers drop what they receive. A model and hardware can answer.",
    plots: Plots::Records(
        &[panel("Rate", ALL_QUEUE_PAIRS, RATE, every, by_list)],
        None,
    ),
};

pub(super) const SENDS: FigureSpec = FigureSpec {
    id: "sends",
    name: "SENDs over payload",
    title: "SENDs (UD) of all cores over payload",
    caption: "Inline, from four queue pairs of each core, single or in lists of 16; 0 B is header-only. Each further line \
              of 64 B of a WQE costs PCIe bandwidth, so that rates have steps. A model and hardware can answer.",
    plots: Plots::Records(&[panel("Rate", SIZE, RATE, every, by_list)], None),
};

pub(super) const INBOUND: FigureSpec = FigureSpec {
    id: "inbound",
    name: "Inbound over payload",
    title: "READs and WRITEs of many clients to one machine over payload",
    caption: "READs (RC) and inline WRITEs (UC, in lists of 16; not inline above 128 B). The CPU of the machine takes no \
              part. A model and hardware can answer; on soft the clients' cores copy.",
    plots: Plots::Records(&[panel("Rate", SIZE, RATE, every, by_op)], None),
};

pub(super) const WINDOWS: FigureSpec = FigureSpec {
    id: "windows",
    name: "READs over windows",
    title: "READs of all cores by the number that each has outstanding",
    caption: "Each core posts a window of READs of 8 B, waits for all of them, and posts the next one. A NIC whose cache \
              of WQEs is smaller than all windows together fetches WQEs again. A model and hardware can answer.",
    plots: Plots::Records(&[panel("Rate", WINDOW, RATE, every, by_op)], None),
};

pub(super) const KV: FigureSpec = FigureSpec {
    id: "kv",
    name: "A key-value store",
    title: "A key-value store over the share of PUTs: READs and locks, questions, and RPCs",
    caption: "GETs are one, two or three dependent READs of 64 B. A PUT locks its item by FETCH_ADD and frees it in the \
              same way, or asks a core of the server, as in Pilaf and FaRM. HERD: GETs and PUTs of 32 B are RPCs to all \
              cores of the server. Values are in caches, except for those of HERD's tables on a model.",
    plots: Plots::Records(&[panel("Rate", PUTS, RATE, every, by_store)], None),
};

pub(super) const HERD: FigureSpec = FigureSpec {
    id: "herd",
    name: "HERD over cores",
    title: "A key-value store by RPC over cores and queue pairs of each",
    caption: "5 % PUTs, values of 32 B, tables in memory. A core takes up to 32 requests at once and answers each alone, \
              or all with one doorbell.",
    plots: Plots::Records(&[panel("Rate", SERVED_BY, RATE, every, by_queues)], None),
};

pub(super) const GENERATIONS: FigureSpec = FigureSpec {
    id: "generations",
    name: "Devices side by side",
    title: "What each step of the ladder gains, device by device",
    caption: "The rate of each design over the one before it. Of models, connect_ib, cx3 and cx are the generations of \
              the publication; a server has as many cores as they have CPUs, but not more than the publication's. The last \
              step takes more cores, too.",
    plots: Plots::Records(&[], Some(generations)),
};

pub(super) const PCIE: FigureSpec = FigureSpec {
    id: "pcie",
    name: "PCIe per operation",
    title: "Cache lines over PCIe for each operation, at the server or at the machine that posts",
    caption: "Lines of 64 B that the CPU writes to the NIC (WQEs by MMIO; doorbells, which on mlx5 contain the last WQE of a list), \
              that the NIC reads (WQEs, payload, contexts), and that it writes (payload; completions). A verb carries 32 B, an atomic \
              operation 8 B, a SEND with immediate nothing; each request is signaled. From the counters of the model; on real devices they are not known.",
    plots: Plots::Records(
        &[
            RecordPanel {
                parts: &PCIE_LINES,
                ..panel("Of each verb", BARS, LINES, is_of_a_verb, operation)
            },
            RecordPanel {
                parts: &PCIE_LINES,
                ..panel("Of programs", BARS, LINES, is_plain, operation)
            },
        ],
        Some(pcie),
    ),
};

/// Kinds of lines over PCIe, and their names in a record.
pub(super) const PCIE_LINES: [(&str, &str); 5] = [
    ("WQEs by MMIO", "wqe_writes"),
    ("Doorbells", "doorbells"),
    ("DMA reads", "dma_reads"),
    ("Data written", "data_writes"),
    ("Completions", "completions"),
];

/// Whether a record is in no other figure than the one of PCIe transactions.
pub(super) fn is_of_a_verb(record: &Record) -> bool {
    record.figures == [PCIE.id]
}

fn alone(record: &Record) -> bool {
    parameter(record, "clients") == 1
}

pub(super) fn under_load(record: &Record) -> bool {
    !alone(record)
}

/// Whether the plot of PCIe transactions shows a record: designs of the ladder, and a size or number of each operation.
fn is_plain(record: &Record) -> bool {
    let is = |name, value| parameter(record, name) == value;
    match record.program.as_str() {
        "sequencer" => record.figures.iter().any(|id| id == LADDER.id) && under_load(record),
        "atomics" => is("words", 1) || is("words", 4096),
        "rpc" => is("clients", 16),
        "kv" => is_plain_store(record),
        "outbound" if word(record, "op") == "read" => is("outstanding", 1),
        "outbound" => is("size_bytes", 60) && is("qps", 4) && is("clients", 1),
        _ => is("size_bytes", 32) && !is_of_a_verb(record),
    }
}

/// Stores of the figure over PUTs, with as many PUTs as GETs.
fn is_plain_store(record: &Record) -> bool {
    let share = record.params.get("put_ratio").and_then(Value::as_f64);
    share == Some(0.5)
}

fn in_lists(record: &Record) -> bool {
    parameter(record, "batch") > 1
}

/// `+ 6 cores`.
pub(super) fn design(record: &Record) -> String {
    let (cores, qps) = (parameter(record, "server_cores"), parameter(record, "qps"));
    match Step::of(record) {
        None => String::new(),
        Some(Step::Tcp) => "TCP, one core".to_owned(),
        Some(Step::FetchAdd) => "FETCH_ADD".to_owned(),
        Some(Step::Rpc) => "RPC, one core".to_owned(),
        Some(Step::Lists) => "+ doorbell batching".to_owned(),
        Some(Step::Queues) => format!("+ {qps} queue pairs a port"),
        Some(Step::Cores) => format!("+ {cores} cores"),
        Some(Step::HeaderOnly) => format!("+ header-only, {cores} cores"),
    }
}

fn design_alone(record: &Record) -> String {
    match Step::of(record) {
        Some(Step::Tcp) => "TCP".to_owned(),
        Some(Step::FetchAdd) => "FETCH_ADD".to_owned(),
        Some(Step::HeaderOnly) => "RPC, header-only".to_owned(),
        _ => "RPC".to_owned(),
    }
}

fn by_answer(record: &Record) -> String {
    let what = match word(record, "by") {
        "rpc-imm" => "header-only",
        _ => "8 B",
    };
    let how = match parameter(record, "batch") {
        0 | 1 => "one answer a doorbell",
        _ => "lists",
    };
    format!("{what}, {how}")
}

/// `one core`, `6 cores`.
fn by_cores(record: &Record) -> String {
    counted(parameter(record, "server_cores"))
}

pub(super) fn counted(cores: u64) -> String {
    match cores {
        1 => "one core".to_owned(),
        n => format!("{n} cores"),
    }
}

/// `WRITE answered by SEND (UD)`.
pub(super) fn by_way(record: &Record) -> String {
    let transport = word(record, "transport").to_uppercase();
    let way = match word(record, "by") {
        "send" => "SEND answered by SEND",
        "write" => "WRITE answered by WRITE",
        "write-send" => "WRITE answered by SEND",
        "tcp" => return "TCP".to_owned(),
        _ => "READ",
    };
    format!("{way} ({transport})")
}

pub(super) fn by_list(record: &Record) -> String {
    match parameter(record, "batch") {
        0 | 1 => "SEND, single".to_owned(),
        n => format!("SEND, lists of {n}"),
    }
}

pub(super) fn by_op(record: &Record) -> String {
    let op = word(record, "op").to_uppercase();
    match op.strip_suffix("-IMM") {
        Some(op) => format!("{op} with immediate"),
        None => op.replace('-', "_"),
    }
}

fn fetch_add(_: &Record) -> String {
    "FETCH_ADD".to_owned()
}

pub(super) fn by_store(record: &Record) -> String {
    match (word(record, "by"), word(record, "puts")) {
        ("rpc", _) => "HERD".to_owned(),
        (_, "ask") => format!("{} READs, PUTs ask", parameter(record, "reads")),
        (..) => match parameter(record, "reads") {
            1 => "1 READ, PUTs lock".to_owned(),
            n => format!("{n} READs, PUTs lock"),
        },
    }
}

pub(super) fn by_queues(record: &Record) -> String {
    let how = match parameter(record, "batch") {
        0 | 1 => "single",
        _ => "lists",
    };
    match parameter(record, "qps") {
        1 => format!("1 queue pair a port, {how}"),
        n => format!("{n} queue pairs a port, {how}"),
    }
}
