//! The command lines of `closed-loop` and `open-loop`.

use std::str::FromStr;

use adverb_patterns::SlotLayout;
use adverb_results::Opcode;
use adverb_units::{Bytes, Span};
use adverb_verbs::{NodeChoice, PathMtu, Probability};
use clap::{Args, ValueEnum};

use super::services::{ClientArgs, PostingArgs};
use super::value::{count, duration, word_of};

/// Measure request rate and latency of client threads that keep one-sided requests in flight
///
/// Each client thread opens --qps queue pairs (RC), spread round-robin over
/// --machines targets, and keeps --outstanding requests in flight on each.
///
///   rate     requests per second of all threads together
///   least    rate of the thread that was served least; most: that served most
///   mean     from a request's post until its completion is seen
///
/// The targets' CPUs take no part in it, but threads there can load their machine:
/// --workers access the words that requests access, --load threads access arrays of
/// their own. Words that workers read are checked to be whole.
///
/// NUMA nodes are named relative to the NIC: nic, other, any (not bound), or by
/// number. Threads are bound by CPU affinity, memory by the kernel's memory policy,
/// and records contain where both were.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb closed-loop --op read                       READs of 64 B, two clients
  adverb closed-loop --op fetch-add --outstanding 16
  adverb closed-loop --op read --inbound --clients 20 --device model:cx7
  adverb closed-loop --op write --size 32 --inline --outstanding 32
         --device model:connect_ib --clients 10
  adverb closed-loop --op read --batch 1 --outstanding 1 --numa-memory other
         --device model:cx3_fdr_nurdma"
)]
pub(crate) struct ClosedLoopArgs {
    #[command(flatten)]
    pub(crate) loops: LoopArgs,
}

/// Measure the request rate of client threads that post one-sided requests as fast as they can
///
/// Each client thread opens --qps queue pairs (RC) and posts until the send queue
/// of --outstanding requests is full; the same thread polls for completions. Only
/// the rate is measured.
///
/// The targets' CPUs take no part in it, but threads there can load their machine:
/// --workers access the words that requests access, --load threads access arrays of
/// their own. Words that workers read are checked to be whole.
///
/// NUMA nodes are named relative to the NIC: nic, other, any (not bound), or by
/// number. Threads are bound by CPU affinity, memory by the kernel's memory policy,
/// and records contain where both were.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb open-loop --op write --size 8..4K
  adverb open-loop --op write --inbound --clients 2,8,32 --device model:cx7
  adverb open-loop --op write --size 8 --slots packed --workers 1
  adverb open-loop --op write --size 8 --slots packed --clients 8 --workers 16
         --worker-mix 10:90 --numa-memory other --device model:cx3_fdr_nurdma
  adverb open-loop --op read --clients 8 --load 32 --load-size 1M
         --device model:cx3_fdr_nurdma"
)]
pub(crate) struct OpenLoopArgs {
    #[command(flatten)]
    pub(crate) loops: LoopArgs,
}

/// Options of both loops.
#[derive(Debug, Args)]
pub(crate) struct LoopArgs {
    /// Operation: write, read, fetch-add or cas
    #[arg(
        long,
        value_parser = word_of(&[Opcode::Write, Opcode::Read, Opcode::FetchAdd, Opcode::Cas])
    )]
    pub(crate) op: Opcode,

    /// Payload of a WRITE or READ: bytes (64), binary multiples (4K) [default: 64; an atomic operation
    /// always has 8]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Bytes>,

    /// Carry the payload in the request itself (WRITE)
    #[arg(long)]
    pub(crate) inline: bool,

    /// Have the clients on --machines machines, and let all access one server (on a model, a machine for each client)
    #[arg(long)]
    pub(crate) inbound: bool,

    /// Slots of the queue pairs in the target's memory: lines (no shared cache line) or packed (no gaps)
    #[arg(
        long,
        value_name = "HOW",
        default_value = "lines",
        value_parser = word_of(&[SlotLayout::Lines, SlotLayout::Packed])
    )]
    pub(crate) slots: SlotLayout,

    /// Outstanding READs and atomics of a queue pair (max_rd_atomic)
    #[arg(long, value_name = "N", default_value = "16", value_parser = count::<u8, _>(1..=255))]
    pub(crate) rd_atomic: u8,

    /// Compute before each post: 32ns, 1us
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) think: Span,

    /// Threads at each target that walk through the words that requests access
    #[arg(long, value_name = "N", default_value = "0", value_parser = count::<u32, _>(0..=1024))]
    pub(crate) workers: u32,

    /// Reads and writes among the accesses of --workers, as parts: 1:0, 1:1, 10:90 [default: 1:1]
    #[arg(long, value_name = "READ:WRITE")]
    pub(crate) worker_mix: Option<WorkerMix>,

    /// Compute after each access of --workers: 35ns, 1us
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) worker_think: Span,

    #[command(flatten)]
    pub(crate) load: LoadArgs,

    /// Have a thread at each target flush the accessed lines from the caches, again and again
    #[arg(long)]
    pub(crate) flush: bool,

    /// Whether NICs write to the last-level cache: on or off (models only) [default: as the preset says]
    #[arg(long, value_name = "WHICH")]
    pub(crate) ddio: Option<OnOff>,

    /// MTU of the links: 256, 512, 1024, 2048 or 4096 (models only) [default: as the preset says]
    #[arg(long, value_name = "BYTES")]
    pub(crate) link_mtu: Option<PathMtu>,

    #[command(flatten)]
    pub(crate) numa: NumaArgs,

    /// Node of --workers and --flush [default: --numa-memory]
    #[arg(long, value_name = "NODE")]
    pub(crate) numa_workers: Option<NodeChoice>,

    #[command(flatten)]
    pub(crate) posting: PostingArgs,

    #[command(flatten)]
    pub(crate) clients: ClientArgs,
}

/// NUMA nodes of a program's parts.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct NumaArgs {
    /// Node of the clients' threads and memory: nic, other, any or a number
    #[arg(long, value_name = "NODE")]
    pub(crate) numa_client: Option<NodeChoice>,

    /// Node of the servers' threads
    #[arg(long, value_name = "NODE")]
    pub(crate) numa_server: Option<NodeChoice>,

    /// Node of the memory that requests access [default: --numa-server]
    #[arg(long, value_name = "NODE")]
    pub(crate) numa_memory: Option<NodeChoice>,
}

/// An independent load of the servers' machines.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LoadArgs {
    /// Threads at each server that access arrays of their own at random, 8 B at a time
    #[arg(long, value_name = "N", default_value = "0", value_parser = count::<u32, _>(0..=4096))]
    pub(crate) load: u32,

    /// Array of each thread of --load: 8K, 64M, 8G [default: 64M]
    #[arg(long, value_name = "SIZE")]
    pub(crate) load_size: Option<Bytes>,

    /// Share of writes among the accesses of --load: 0.5, 50% [default: 0.5]
    #[arg(long, value_name = "SHARE")]
    pub(crate) load_writes: Option<Probability>,

    /// Node of the threads of --load [default: any]
    #[arg(long, value_name = "NODE")]
    pub(crate) numa_load: Option<NodeChoice>,

    /// Node of the arrays of --load [default: each thread's own]
    #[arg(long, value_name = "NODE")]
    pub(crate) numa_load_memory: Option<NodeChoice>,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}

/// Reads and writes among accesses, as typed: `10:90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerMix {
    reads: u32,
    writes: u32,
}

impl WorkerMix {
    /// Returns the share of writes.
    pub(crate) fn writes(self) -> Probability {
        let all = f64::from(self.reads) + f64::from(self.writes);
        Probability::new(f64::from(self.writes) / all).expect("it is a share")
    }
}

impl FromStr for WorkerMix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once(':').and_then(|(reads, writes)| {
            let mix = WorkerMix {
                reads: reads.parse().ok()?,
                writes: writes.parse().ok()?,
            };
            (mix.reads > 0 || mix.writes > 0).then_some(mix)
        });
        parsed.ok_or_else(|| {
            format!("invalid mix '{text}': expected parts READ:WRITE, such as 1:1 or 10:90")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_read_as_parts() {
        let writes = |text: &str| text.parse::<WorkerMix>().map(|mix| mix.writes().get());
        assert_eq!(writes("10:90"), Ok(0.9));
        assert_eq!(writes("1:0"), Ok(0.0));
        for bad in ["", "1", "0:0", "1:-1", "a:b"] {
            assert!(writes(bad).is_err(), "{bad}");
        }
    }
}
