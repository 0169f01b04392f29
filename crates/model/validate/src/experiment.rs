//! An experiment: hardware, program, and its parameters in groups, so that a program reads what
//! concerns it.
//!
//! An absent parameter does not apply to the program, or is the model's default. `data/schema.md`
//! defines each. Fields have the names of their columns, except where serde renames them.

use std::num::{NonZeroU32, NonZeroU64};

use adverb_units::{Bytes, MessageRate, Span, Throughput};
use serde::{Deserialize, Deserializer};

use crate::cell::{self, Share};
use crate::cells::Reader;
use crate::columns::Column;
use crate::words::{
    BufferState, Completion, DcTarget, Ddio, Interferer, LoadNode, LoadOp, LoadTarget, Metric,
    Node, Opcode, Program, Refill, Side, Transport,
};

/// One experiment of a model: what to build, what to run on it, what to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Name of the hardware: the model knows it or refuses it.
    pub preset: String,
    /// What runs.
    pub program: Program,
    /// What is measured: the prediction is in its unit.
    pub metric: Metric,
    /// Everything else.
    pub parameters: Parameters,
}

/// An experiment's parameters, in groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// At which machine the metric is measured.
    pub measured_at: Option<Side>,
    /// The measured operation.
    pub operation: Operation,
    /// How requests are posted and completions noticed.
    pub posting: Posting,
    /// How many queue pairs, and how much is in flight on them.
    pub queueing: Queueing,
    /// Machines and threads.
    pub parties: Parties,
    /// Where buffers and threads lie.
    pub placement: Placement,
    /// The responder's way from PCIe to memory.
    pub host: HostIo,
    /// What the responder's CPUs do meanwhile.
    pub load: CpuLoad,
    /// Counters and items of atomics and key-value stores.
    pub store: Store,
    /// The network between the machines.
    pub network: Network,
    /// The second tenant of the NICs.
    pub interferer: Option<Interferer>,
}

/// The measured operation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Operation {
    /// What it is.
    pub opcode: Option<Opcode>,
    /// Over which transport service.
    pub transport: Option<Transport>,
    /// Payload of one; of RPC programs the response's.
    #[serde(default, rename = "size_bytes", deserialize_with = "cell::bytes")]
    pub size: Option<Bytes>,
    /// Whether the payload stands in the work queue entry.
    pub inline: Option<bool>,
    /// Whether the responder gets the payload in the receive's completion entry.
    pub inline_recv: Option<bool>,
    /// Zero-length SEND, data only in the 4 B immediate: a work queue entry of one line.
    pub header_only: Option<bool>,
}

/// How requests are posted and completions noticed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Posting {
    /// One signaled request in that many on a queue pair.
    pub signaled_every: Option<NonZeroU32>,
    /// How completions are noticed.
    pub completion: Option<Completion>,
    /// Work requests per post call.
    pub post_list: Option<PostList>,
    /// When freed slots are posted again.
    pub refill: Option<Refill>,
}

/// Work requests per post call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostList {
    /// As many as are free (0 in the data).
    AllFree,
    /// So many; of RPC programs the largest opportunistic batch. One: each entry is posted alone,
    /// so that it may go by MMIO.
    Of(NonZeroU32),
}

impl<'de> Deserialize<'de> for PostList {
    fn deserialize<D: Deserializer<'de>>(cell: D) -> Result<Self, D::Error> {
        let n = NonZeroU32::new(u32::deserialize(cell)?);
        Ok(n.map_or(PostList::AllFree, PostList::Of))
    }
}

/// How many queue pairs, and how much is in flight on them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Queueing {
    /// Queue pairs in use at the measured NIC: what its context cache has to hold.
    pub qps: Option<u32>,
    /// Queue pairs one posting core rotates over.
    pub qps_per_core: Option<NonZeroU32>,
    /// Requests in flight per queue pair at most; of DMA programs the operations in flight.
    pub outstanding: Option<NonZeroU32>,
    /// Requests in flight per posting core at most, over all its queue pairs.
    pub window_per_core: Option<NonZeroU32>,
    /// READs and atomics in flight per queue pair on the wire at most.
    pub max_rd_atomic: Option<NonZeroU32>,
    /// Whom a dynamically connected initiator addresses.
    pub dc_target: Option<DcTarget>,
}

/// Machines and threads.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Parties {
    /// Posting or serving threads at the measured machine; 0: none.
    pub cores: Option<u32>,
    /// Other machines.
    pub peers: Option<u32>,
    /// Client threads on all of them together.
    pub peer_threads: Option<u32>,
    /// Requests that a client thread keeps in flight (RPC programs).
    pub peer_outstanding: Option<NonZeroU32>,
    /// Requests in flight per other machine.
    pub peer_window: Option<NonZeroU32>,
    /// Offered load; absent: closed loop.
    #[serde(
        default,
        rename = "offered_ops_per_s",
        deserialize_with = "cell::per_second"
    )]
    pub offered: Option<MessageRate>,
}

/// Where buffers and threads lie.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Placement {
    /// Node of the responder's buffer, relative to its NIC.
    #[serde(rename = "numa_buffer")]
    pub buffer: Option<Node>,
    /// Node of the requester's threads and memory, relative to its NIC.
    #[serde(rename = "numa_requester")]
    pub requester: Option<Node>,
    /// Where the target's lines are.
    pub buffer_state: Option<BufferState>,
    /// Whether slots of several queue pairs lie in one line of 64 B.
    pub shared_cache_line: Option<bool>,
    /// Range that random addresses are drawn from.
    #[serde(
        default,
        rename = "window_bytes",
        deserialize_with = "cell::some_bytes"
    )]
    pub window: Option<Bytes>,
}

/// The responder's way from PCIe to memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct HostIo {
    /// Whether the root port's writes allocate in the last-level cache.
    pub ddio: Option<Ddio>,
    /// Ways of the last-level cache that they may use.
    pub ddio_ways: Option<u32>,
    /// Whether an IOMMU translates, with 4 KiB pages.
    pub iommu: Option<bool>,
    /// Size of the receive ring (`ddio_forward`).
    pub rx_descriptors: Option<NonZeroU32>,
}

/// What the responder's CPUs do during the run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CpuLoad {
    /// On how many threads.
    #[serde(rename = "load_threads")]
    pub threads: Option<u32>,
    /// What.
    #[serde(rename = "load_op")]
    pub op: Option<LoadOp>,
    /// Share of writes of [`LoadOp::Rw`].
    #[serde(rename = "load_write_ratio")]
    pub write_ratio: Option<Share>,
    /// On which node.
    #[serde(rename = "load_numa")]
    pub node: Option<LoadNode>,
    /// On which memory.
    #[serde(rename = "load_target")]
    pub target: Option<LoadTarget>,
}

/// Counters and items.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Store {
    /// Words of 8 B that atomics choose from.
    pub counters: Option<NonZeroU64>,
    /// Share of PUTs.
    pub put_ratio: Option<Share>,
    /// READs per GET, a mean: it may have a fraction.
    #[serde(default, deserialize_with = "cell::mean")]
    pub get_reads: Option<f64>,
    /// Their sizes, in order.
    #[serde(default, deserialize_with = "cell::sizes")]
    pub get_read_bytes: Vec<Bytes>,
}

/// The network between the machines.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Network {
    /// Group of runs with the same place in the network (A, B, …: any name).
    pub session: Option<String>,
    /// Path MTU; of Ethernet it may be any.
    #[serde(default, deserialize_with = "cell::some_bytes")]
    pub mtu: Option<Bytes>,
    /// Data rate, if it is not the preset's.
    #[serde(default, rename = "link_gbps", deserialize_with = "cell::gbps")]
    pub rate: Option<Throughput>,
    /// Added one-way delay.
    #[serde(default, rename = "link_delay_us", deserialize_with = "cell::micros")]
    pub added_delay: Option<Span>,
}

impl Parameters {
    /// What the cells give; faults stay with the reader.
    pub(crate) fn read(cells: &mut Reader<'_>) -> Self {
        Parameters {
            measured_at: cells.opt(Column::MeasuredAt),
            operation: cells.read(),
            posting: cells.read(),
            queueing: cells.read(),
            parties: cells.read(),
            placement: cells.read(),
            host: cells.read(),
            load: cells.read(),
            store: cells.read(),
            network: cells.read(),
            interferer: cells.opt(Column::Interferer),
        }
    }
}
