//! The words of the columns that hold one of a few: what is done, how, where.
//!
//! Meanings are those of `data/schema.md`; verbs are named as in `libibverbs`.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

macro_rules! words {
    ($($(#[$doc:meta])+ $name:ident { $($(#[$word_doc:meta])+ $variant:ident = $word:literal,)+ })+) => {
        $(
            $(#[$doc])+
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
            pub enum $name {
                $($(#[$word_doc])+ #[serde(rename = $word)] $variant,)+
            }

            impl $name {
                /// All of them.
                pub const ALL: &'static [$name] = &[$($name::$variant,)+];

                /// As it stands in the data.
                pub const fn as_str(self) -> &'static str {
                    match self {
                        $($name::$variant => $word,)+
                    }
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.pad(self.as_str())
                }
            }
        )+
    };
}

words! {
    /// How a published number was obtained.
    Exactness {
        /// A printed number, a bar's label or raw data.
        Table = "table",
        /// Running text.
        Text = "text",
        /// Read from a figure's image, to about 3 %.
        FigureRead = "figure-read",
        /// Arithmetic on published numbers.
        Derived = "derived",
    }

    /// The experiment's program.
    Program {
        /// One message there, one of the same kind and size back.
        Ping = "ping",
        /// RDMA WRITE, then RDMA READ of the same size, to a passive server.
        WriteReadPing = "write_read_ping",
        /// Cores that keep requests in flight and wait for completions.
        ClosedLoop = "closed_loop",
        /// Requests without thinking; the requester is measured.
        BlastOutbound = "blast_outbound",
        /// Requests without thinking; the responder is measured.
        BlastInbound = "blast_inbound",
        /// Equal machines, each requester and responder.
        Symmetric = "symmetric",
        /// Atomics on words drawn uniformly.
        Atomics = "atomics",
        /// Atomics on one word.
        SequencerAtomics = "sequencer_atomics",
        /// A sequencer by RPC.
        SequencerRpc = "sequencer_rpc",
        /// A key-value store by RPC.
        KvHerd = "kv_herd",
        /// A key-value store by READs and atomics.
        KvOnesided = "kv_onesided",
        /// NUMA: one request at a time and queue pair.
        NumaClosedLoop = "numa_closed_loop",
        /// NUMA: full send queues.
        NumaOpenLoop = "numa_open_loop",
        /// NUMA: full send queues while the server's CPUs touch memory.
        NumaServerLoad = "numa_server_load",
        /// A bare device reads host memory.
        PcieDmaRead = "pcie_dma_read",
        /// A bare device writes host memory.
        PcieDmaWrite = "pcie_dma_write",
        /// A bare device writes, then reads the same address.
        PcieDmaWrrd = "pcie_dma_wrrd",
        /// Ethernet frames forwarded through the last-level cache.
        DdioForward = "ddio_forward",
        /// A computation on a machine that is written to.
        CpuInterference = "cpu_interference",
        /// Two tenants on one pair of NICs.
        SharedNic = "shared_nic",
    }

    /// What the measured operations are.
    Opcode {
        /// SEND.
        Send = "SEND",
        /// RDMA WRITE.
        Write = "WRITE",
        /// RDMA WRITE with immediate.
        WriteImm = "WRITE_IMM",
        /// RDMA READ.
        Read = "READ",
        /// Atomic fetch-and-add.
        FetchAdd = "FETCH_ADD",
        /// Atomic compare-and-swap.
        Cas = "CAS",
        /// A WRITE, then a READ (`write_read_ping`).
        WriteThenRead = "WRITE+READ",
        /// GETs by READ, PUTs by fetch-and-add (`kv_onesided`).
        ReadAndFetchAdd = "READ+FETCH_ADD",
        /// GETs by READ, PUTs by WRITE (`kv_onesided`).
        ReadAndWrite = "READ+WRITE",
        /// The NIC's reads over PCIe (`ddio_forward`).
        PcieRead = "pcie_read",
        /// The NIC's writes over PCIe (`ddio_forward`).
        PcieWrite = "pcie_write",
    }

    /// Transport service.
    Transport {
        /// Reliable connection.
        Rc = "RC",
        /// Unreliable connection.
        Uc = "UC",
        /// Unreliable datagram.
        Ud = "UD",
        /// Dynamically connected (mlx5).
        Dc = "DC",
        /// The kernel's TCP, as the reference of a comparison.
        Sockets = "sockets",
    }

    /// How a completion is noticed.
    Completion {
        /// By polling.
        Poll = "poll",
        /// By interrupt, asleep in `ibv_get_cq_event`.
        Event = "event",
    }

    /// When freed slots are posted again.
    Refill {
        /// Each as soon as it is free.
        Continuous = "continuous",
        /// Post a window, wait for all of it, repeat.
        Window = "window",
        /// Reap all that has arrived, repost all of it in one call.
        List = "list",
    }

    /// The machine whose rate or CPU is reported.
    Side {
        /// The one that posts.
        Requester = "requester",
        /// The other.
        Responder = "responder",
    }

    /// A NUMA node, as seen from the NIC of its machine.
    Node {
        /// The NIC's own.
        NicLocal = "nic_local",
        /// The other.
        NicRemote = "nic_remote",
    }

    /// Where threads of the load run.
    LoadNode {
        /// On the NIC's node.
        NicLocal = "nic_local",
        /// On the other.
        NicRemote = "nic_remote",
        /// Spread over all CPUs.
        Agnostic = "agnostic",
    }

    /// Where the target's lines are when the operation comes.
    BufferState {
        /// In the last-level cache.
        Llc = "llc",
        /// In memory: the buffer is larger than the cache, or flushed.
        Dram = "dram",
    }

    /// Whether the root port's writes allocate in the last-level cache.
    Ddio {
        /// They do.
        On = "on",
        /// They go to memory.
        Off = "off",
    }

    /// What the threads of the load do.
    LoadOp {
        /// Read memory.
        Read = "read",
        /// Read and write memory.
        Rw = "rw",
        /// Compare-and-swap until it succeeds.
        Cas = "cas",
        /// Compute, without memory.
        Compute = "compute",
    }

    /// What the threads of the load touch.
    LoadTarget {
        /// The buffer that RDMA goes to.
        SameBuffer = "same_buffer",
        /// Arrays of their own.
        Independent = "independent",
    }

    /// Whom a dynamically connected initiator addresses.
    DcTarget {
        /// Always the same peer.
        Fixed = "fixed",
        /// Never the same twice in a row.
        Other = "other",
        /// Any, uniformly.
        Random = "random",
    }

    /// What the second tenant of a NIC does.
    Interferer {
        /// Nothing.
        None = "none",
        /// Compare-and-swap.
        Cas = "cas",
        /// Deregisters and registers memory.
        MrChurn = "mr_churn",
        /// SENDs without posted receives.
        Rnr = "rnr",
    }

    /// What is measured.
    Metric {
        /// Completed operations per second, all cores and queue pairs together.
        OpsPerS = "ops_per_s",
        /// Elapsed time over operations.
        NsPerOp = "ns_per_op",
        /// Half a round trip.
        OneWayNs = "one_way_ns",
        /// Mean time from post to detected completion; of a ping the full round trip.
        RoundTripNs = "round_trip_ns",
        /// Time of one DMA operation as the device sees it.
        DmaNs = "dma_ns",
        /// Payload bits per second.
        Gbps = "gbps",
        /// CPU time of the measured side's thread over elapsed time.
        CpuPercent = "cpu_percent",
        /// CPU time (user and kernel) per iteration.
        CpuNsPerOp = "cpu_ns_per_op",
        /// Reads of 64 B lines of host memory by the NIC (`PCIeRdCur`).
        PcieReadsPerS = "pcie_reads_per_s",
        /// PCIe accesses that the last-level cache served.
        HitPercent = "hit_percent",
        /// Mean responses per doorbell.
        BatchMean = "batch_mean",
    }

    /// A metric's unit.
    Unit {
        /// Per second.
        PerSecond = "1/s",
        /// Nanoseconds.
        Nanoseconds = "ns",
        /// Gigabits per second.
        GigabitsPerSecond = "Gb/s",
        /// Percent.
        Percent = "%",
        /// A pure number.
        One = "1",
    }
}

impl Metric {
    /// Its unit: that of the published and of the predicted value.
    pub const fn unit(self) -> Unit {
        match self {
            Metric::OpsPerS | Metric::PcieReadsPerS => Unit::PerSecond,
            Metric::NsPerOp
            | Metric::OneWayNs
            | Metric::RoundTripNs
            | Metric::DmaNs
            | Metric::CpuNsPerOp => Unit::Nanoseconds,
            Metric::Gbps => Unit::GigabitsPerSecond,
            Metric::CpuPercent | Metric::HitPercent => Unit::Percent,
            Metric::BatchMean => Unit::One,
        }
    }
}

/// What a row publishes: a metric, or how two experiments compare in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantity {
    /// The metric itself.
    Plain(Metric),
    /// The experiment over its reference.
    Ratio,
    /// The experiment minus its reference, in nanoseconds.
    Delta,
}

const RATIO: &str = "ratio";
const DELTA: &str = "delta_ns";

impl Quantity {
    /// As it stands in the data.
    pub const fn as_str(self) -> &'static str {
        match self {
            Quantity::Plain(metric) => metric.as_str(),
            Quantity::Ratio => RATIO,
            Quantity::Delta => DELTA,
        }
    }

    /// Its unit.
    pub const fn unit(self) -> Unit {
        match self {
            Quantity::Plain(metric) => metric.unit(),
            Quantity::Ratio => Unit::One,
            Quantity::Delta => Unit::Nanoseconds,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(cell: D) -> Result<Self, D::Error> {
        let text = String::deserialize(cell)?;
        let metrics = Metric::ALL.iter().copied().map(Quantity::Plain);
        let all = || metrics.clone().chain([Quantity::Ratio, Quantity::Delta]);
        let names = || all().map(Quantity::as_str).collect::<Vec<_>>().join(", ");
        let found = all().find(|quantity| quantity.as_str() == text);
        found.ok_or_else(|| D::Error::custom(format!("one of {}", names())))
    }
}
