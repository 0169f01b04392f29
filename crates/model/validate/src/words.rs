//! Columns that hold one of a few words, which `data/schema.md` defines; and the outcomes of rows.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

macro_rules! words {
    ($($(#[$doc:meta])+ $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal,)+ })+) => {
        $(
            $(#[$doc])+
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
            pub enum $name {
                $(#[doc = concat!("`", $word, "`")] $(#[$word_doc])* #[serde(rename = $word)] $variant,)+
            }

            impl $name {
                /// All values.
                pub const ALL: &'static [$name] = &[$($name::$variant,)+];

                /// The word in the data.
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
        /// From a printed number, a bar's label or raw data.
        Table = "table",
        Text = "text",
        /// Measured in a figure's image, to about 3 %.
        FigureRead = "figure-read",
        /// Arithmetic on published numbers.
        Derived = "derived",
    }

    /// The experiment's program.
    Program {
        /// A message, answered by one of the same kind and size.
        Ping = "ping",
        /// RDMA WRITE, then RDMA READ of the same size, to a passive server.
        WriteReadPing = "write_read_ping",
        /// Cores keep requests in flight and wait for completions.
        ClosedLoop = "closed_loop",
        /// Requests as fast as possible; the requester is measured.
        BlastOutbound = "blast_outbound",
        /// Requests as fast as possible; the responder is measured.
        BlastInbound = "blast_inbound",
        /// Every machine is requester and responder.
        Symmetric = "symmetric",
        /// Atomics on random words.
        Atomics = "atomics",
        SequencerAtomics = "sequencer_atomics",
        SequencerRpc = "sequencer_rpc",
        KvHerd = "kv_herd",
        KvOnesided = "kv_onesided",
        /// NUMA: one request in flight per queue pair.
        NumaClosedLoop = "numa_closed_loop",
        /// NUMA: full send queues.
        NumaOpenLoop = "numa_open_loop",
        /// NUMA: full send queues while the server's CPUs access memory.
        NumaServerLoad = "numa_server_load",
        PcieDmaRead = "pcie_dma_read",
        PcieDmaWrite = "pcie_dma_write",
        /// A bare device writes, then reads the same address.
        PcieDmaWrrd = "pcie_dma_wrrd",
        /// Ethernet frames forwarded through the last-level cache.
        DdioForward = "ddio_forward",
        /// A computation on a machine that others write to.
        CpuInterference = "cpu_interference",
        /// Two tenants on one pair of NICs.
        SharedNic = "shared_nic",
    }

    /// The measured operations.
    Opcode {
        Send = "SEND",
        Write = "WRITE",
        WriteImm = "WRITE_IMM",
        Read = "READ",
        FetchAdd = "FETCH_ADD",
        Cas = "CAS",
        /// Of `write_read_ping`.
        WriteThenRead = "WRITE+READ",
        /// GETs by READ, PUTs by FETCH_ADD (`kv_onesided`).
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
        Rc = "RC",
        Uc = "UC",
        Ud = "UD",
        Dc = "DC",
        /// Kernel TCP, as the reference of a comparison.
        Sockets = "sockets",
    }

    /// How completions are detected.
    Completion {
        Poll = "poll",
        /// By interrupt, sleeping in `ibv_get_cq_event`.
        Event = "event",
    }

    /// When freed slots are reused.
    Refill {
        /// Each as soon as it is free.
        Continuous = "continuous",
        /// Post a window, wait for all of it, repeat.
        Window = "window",
        /// Poll all completions, and post as many requests in one call.
        List = "list",
    }

    /// The machine whose rate or CPU is reported.
    Side {
        Requester = "requester",
        Responder = "responder",
    }

    /// A NUMA node, relative to the NIC.
    Node {
        NicLocal = "nic_local",
        NicRemote = "nic_remote",
    }

    /// Where the threads of the load run.
    LoadNode {
        NicLocal = "nic_local",
        NicRemote = "nic_remote",
        Agnostic = "agnostic",
    }

    /// Where the accessed lines are when an operation arrives.
    BufferState {
        Llc = "llc",
        /// The buffer is larger than the cache, or flushed.
        Dram = "dram",
    }

    /// Whether the root port's writes allocate in the last-level cache.
    Ddio {
        On = "on",
        Off = "off",
    }

    /// What the threads of the load do.
    LoadOp {
        Read = "read",
        Rw = "rw",
        /// Compare-and-swap until it succeeds.
        Cas = "cas",
        /// Compute, without memory.
        Compute = "compute",
    }

    /// What the threads of the load access.
    LoadTarget {
        /// The buffer of the RDMA operations.
        SameBuffer = "same_buffer",
        /// Their own arrays.
        Independent = "independent",
    }

    /// The peer that a DC initiator addresses.
    DcTarget {
        Fixed = "fixed",
        /// Never the same peer twice in a row.
        Other = "other",
        /// A random peer.
        Random = "random",
    }

    /// What the second tenant of a NIC does.
    Interferer {
        None = "none",
        Cas = "cas",
        MrChurn = "mr_churn",
        Rnr = "rnr",
    }

    /// What is measured.
    Metric {
        /// Completed operations per second, over all cores and queue pairs.
        OpsPerS = "ops_per_s",
        /// Elapsed time over operations.
        NsPerOp = "ns_per_op",
        /// Half a round trip.
        OneWayNs = "one_way_ns",
        /// Mean time from post to detected completion; of a ping, the round trip.
        RoundTripNs = "round_trip_ns",
        /// Time of one DMA operation as the device sees it.
        DmaNs = "dma_ns",
        Gbps = "gbps",
        /// CPU time of the measured side's thread, relative to elapsed time.
        CpuPercent = "cpu_percent",
        /// CPU time (user and kernel) per iteration.
        CpuNsPerOp = "cpu_ns_per_op",
        /// Reads of 64 B lines of host memory by the NIC (`PCIeRdCur`).
        PcieReadsPerS = "pcie_reads_per_s",
        /// Hit rate of PCIe accesses in the last-level cache.
        HitPercent = "hit_percent",
        /// Mean responses per doorbell.
        BatchMean = "batch_mean",
    }

    /// The outcome of a row.
    Status {
        /// The prediction is inside `lo..hi`.
        Inside = "inside",
        /// The prediction is outside.
        Outside = "outside",
        /// There is a prediction, but the row does not count (`grade` 0).
        Ungraded = "ungraded",
        /// No prediction: hardware or program is unknown, the model lacks something, or the row is
        /// unreadable.
        Cannot = "cannot",
        /// No prediction: a deadlock, a budget used up, or another failure.
        Failed = "failed",
    }

    /// What a selection of rows names.
    LabelKind {
        Program = "program",
        Preset = "preset",
        Curve = "curve",
        File = "file",
    }

    /// A metric's unit.
    Unit {
        PerSecond = "1/s",
        Nanoseconds = "ns",
        GigabitsPerSecond = "Gb/s",
        Percent = "%",
        /// A pure number.
        One = "1",
    }
}

impl Metric {
    /// The unit of published and predicted values.
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

/// What a row publishes: a metric, or a comparison of two experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantity {
    /// The metric itself.
    Plain(Metric),
    /// The experiment divided by its reference.
    Ratio,
    /// The experiment minus its reference, in nanoseconds.
    Delta,
}

const RATIO: &str = "ratio";
const DELTA: &str = "delta_ns";

impl Quantity {
    /// The word in the data.
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
