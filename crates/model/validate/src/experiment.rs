//! An experiment: hardware, program, and parameters in groups.
//!
//! An absent parameter does not apply to the program, or has the model's default. `data/schema.md` defines
//! each. Fields have the names of their columns, unless serde renames them.

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
    /// The name of the hardware.
    pub preset: String,
    /// The program that runs.
    pub program: Program,
    /// What is measured. The prediction is in its unit.
    pub metric: Metric,
    /// All other parameters.
    pub parameters: Parameters,
    /// Which values the estimated parameters of the hardware have; `None`: those of the preset.
    pub sample: Option<Sample>,
}

/// A sample of a model's estimated parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its number, from 0.
    pub number: u32,
    /// The number of all samples.
    pub of: u32,
}

/// An experiment's parameters, in groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// The machine on which the metric is measured.
    pub measured_at: Option<Side>,
    /// The measured operation.
    pub operation: Operation,
    /// How requests are posted and completions detected.
    pub posting: Posting,
    /// The number of queue pairs, and of requests in flight.
    pub queueing: Queueing,
    /// The number of machines and threads.
    pub parties: Parties,
    /// The placement of buffers and threads.
    pub placement: Placement,
    /// The responder's path from PCIe to memory.
    pub host: HostIo,
    /// The load of the responder's CPUs.
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
    /// Its opcode.
    pub opcode: Option<Opcode>,
    /// Its transport service.
    pub transport: Option<Transport>,
    /// Its payload; for RPC programs, the payload of the response.
    #[serde(default, rename = "size_bytes", deserialize_with = "cell::bytes")]
    pub size: Option<Bytes>,
    /// Whether the payload is inline.
    pub inline: Option<bool>,
    /// Whether the receive's completion carries the payload.
    pub inline_recv: Option<bool>,
    /// Whether SENDs have no payload, only 4 B of immediate data: a WQE of one line.
    pub header_only: Option<bool>,
}

/// How requests are posted and completions detected.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Posting {
    /// One in this many requests of a queue pair is signaled.
    pub signaled_every: Option<NonZeroU32>,
    /// How completions are detected.
    pub completion: Option<Completion>,
    /// Work requests per post call.
    pub post_list: Option<PostList>,
    /// When freed slots are reused.
    pub refill: Option<Refill>,
}

/// Work requests per post call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostList {
    /// As many as there are free slots (0 in the data).
    AllFree,
    /// This number; for RPC programs the largest opportunistic batch. Single requests can be written by MMIO.
    Of(NonZeroU32),
}

impl<'de> Deserialize<'de> for PostList {
    fn deserialize<D: Deserializer<'de>>(cell: D) -> Result<Self, D::Error> {
        let n = NonZeroU32::new(u32::deserialize(cell)?);
        Ok(n.map_or(PostList::AllFree, PostList::Of))
    }
}

/// The number of queue pairs, and of requests in flight.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Queueing {
    /// Queue pairs in use at the measured NIC, which compete for its context cache.
    pub qps: Option<u32>,
    /// Queue pairs that one posting core uses in turn.
    pub qps_per_core: Option<NonZeroU32>,
    /// Largest number of requests in flight per queue pair; for DMA programs, operations in flight.
    pub outstanding: Option<NonZeroU32>,
    /// Largest number of requests in flight per posting core, over all its queue pairs.
    pub window_per_core: Option<NonZeroU32>,
    /// Largest number of outstanding READs and atomics per queue pair.
    pub max_rd_atomic: Option<NonZeroU32>,
    /// The peer that a DC initiator addresses.
    pub dc_target: Option<DcTarget>,
}

/// The number of machines and threads.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Parties {
    /// Posting or serving threads on the measured machine; may be 0.
    pub cores: Option<u32>,
    /// Other machines.
    pub peers: Option<u32>,
    /// Client threads on all other machines together.
    pub peer_threads: Option<u32>,
    /// Requests that a client thread keeps in flight (RPC programs).
    pub peer_outstanding: Option<NonZeroU32>,
    /// Requests in flight per other machine.
    pub peer_window: Option<NonZeroU32>,
    /// Offered load; if absent, a closed loop.
    #[serde(
        default,
        rename = "offered_ops_per_s",
        deserialize_with = "cell::per_second"
    )]
    pub offered: Option<MessageRate>,
}

/// The placement of buffers and threads.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Placement {
    /// Node of the responder's buffer, relative to its NIC.
    #[serde(rename = "numa_buffer")]
    pub buffer: Option<Node>,
    /// Node of the requester's threads and memory, relative to its NIC.
    #[serde(rename = "numa_requester")]
    pub requester: Option<Node>,
    /// Where the accessed lines are.
    pub buffer_state: Option<BufferState>,
    /// Whether slots of several queue pairs share a line of 64 B.
    pub shared_cache_line: Option<bool>,
    /// Range of random addresses.
    #[serde(
        default,
        rename = "window_bytes",
        deserialize_with = "cell::some_bytes"
    )]
    pub window: Option<Bytes>,
}

/// The responder's path from PCIe to memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct HostIo {
    /// Whether the root port's writes allocate in the last-level cache.
    pub ddio: Option<Ddio>,
    /// Ways of the last-level cache that these writes may use.
    pub ddio_ways: Option<u32>,
    /// Whether an IOMMU translates, with 4 KiB pages.
    pub iommu: Option<bool>,
    /// Size of the receive ring (`ddio_forward`).
    pub rx_descriptors: Option<NonZeroU32>,
}

/// The load of the responder's CPUs during the run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CpuLoad {
    /// Number of threads.
    #[serde(rename = "load_threads")]
    pub threads: Option<u32>,
    /// What each does.
    #[serde(rename = "load_op")]
    pub op: Option<LoadOp>,
    /// Share of writes of [`LoadOp::Rw`].
    #[serde(rename = "load_write_ratio")]
    pub write_ratio: Option<Share>,
    /// The node that they run on.
    #[serde(rename = "load_numa")]
    pub node: Option<LoadNode>,
    /// The memory that they access.
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
    /// Mean number of READs per GET.
    #[serde(default, deserialize_with = "cell::mean")]
    pub get_reads: Option<f64>,
    /// Sizes of these READs, in order.
    #[serde(default, deserialize_with = "cell::sizes")]
    pub get_read_bytes: Vec<Bytes>,
}

/// The network between the machines.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Network {
    /// Name of a group of runs with the same place in the network (A, B, …).
    pub session: Option<String>,
    /// Path MTU; on Ethernet any size.
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
    /// Reads the parameters; faults stay with the reader.
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
