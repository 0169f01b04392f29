//! The command lines of `ping` and `blast`.

use adverb_results::{Completion, Opcode, Posting, Program, Signaling, Transport};
use adverb_units::Bytes;
use adverb_verbs::LinkRate;
use adverb_workload::pair::operations;
use clap::Args;

use super::length::LengthArgs;
use super::target::TargetArgs;
use super::value::{count, word_of};
use crate::table::ThroughputUnit;

/// Measure latency: one message is sent back and forth
///
/// Rows are sizes; figures:
///
///   one-way        half of a round, mean over all rounds; ±95 %: its confidence
///                  interval over repetitions
///   round trip     of READ and atomics: a round is one request
///   p50 ... max    of single sampled rounds, halved likewise
///   rate           messages per second, counting both directions
///   throughput     payload bytes per second, counting both directions
///   one direction  half of it, as the paper counts (not for READ and atomics)
///   user+sys       CPU time of either side by getrusage over elapsed time, in
///                  percent of one core
///
/// Records (--json) have half of the round for READ and atomics, too.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Operations:
  send        SEND into a posted RECV
  write-imm   RDMA WRITE WITH IMMEDIATE, announced by a RECV
  write       RDMA WRITE into memory that the other side polls (as perftest's
              ib_write_lat); it knows no completion events
  write-read  the client pushes with WRITE and pulls with READ; the server's CPU
              does nothing
  read        the client READs; the server's CPU does nothing
  fetch-add   the client adds 1 to a counter of the server, 8 B
  cas         compare-and-swap of that counter, 8 B (also cmp-swap)

All pairs: measures each pair of hosts in turn (by default 200 ms a figure):
this ping once, and the throughput of a blast WRITE with 16 buffers in each
direction. Prints two matrices and names the slow pairs: more than 1.5 times
slower than the median of all pairs, or with fewer than five hosts than their
first quartile.

Examples:
  adverb ping --op send                         64 B, busy polling
  adverb ping --op send --size 1..1K --inline   powers of two, in the request
  adverb ping --op send --completion event      sleeping: slower, cheaper
  adverb ping --op write --size 8 --duration 2s --json
  adverb ping --op read --device model:cx3      what a ConnectX-3 would do
  adverb ping --op send --device soft@127.0.0.1 --loss 1%    over UDP, with loss
  adverb ping --op send --device tcp            kernel TCP, for comparison
  adverb ping --op send --all-pairs --peer nodeB --peer nodeC"
)]
pub(crate) struct PingArgs {
    /// Operation: send, write-imm, write, read, write-read, fetch-add or cas (see below)
    #[arg(long, value_parser = word_of(operations(Program::Ping)))]
    pub(crate) op: Opcode,

    /// Which requests ask for a completion: all, or write-unsignaled (only with --op write-read)
    #[arg(long, value_name = "WHICH", default_value = "all", value_parser = signaling)]
    pub(crate) signal: Signaling,

    /// Measure between every two of this host and the peers (see below)
    #[arg(long)]
    pub(crate) all_pairs: bool,

    #[command(flatten)]
    pub(crate) common: MeasureArgs,
}

/// Measure throughput and message rate: one side sends as fast as its buffers allow
///
/// The time per message is elapsed / messages, from just before the first post to
/// just after the last completion. Rows are sizes; figures:
///
///   time per message   mean; ±95 %: its confidence interval over repetitions
///   p50 ... max        from a message's post to its completion, of sampled
///                      signaled messages
///   rate               messages per second
///   throughput         payload bytes per second
///   lost               messages that did not arrive, of send and write-imm over uc
///                      and ud; the other figures are of those that did
///   user+sys           CPU time of either side by getrusage over elapsed time, in
///                      percent of one core
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Operations:
  send        SEND into a posted RECV
  write-imm   RDMA WRITE WITH IMMEDIATE, announced by a RECV
  write       RDMA WRITE; the server's CPU does nothing
  read        RDMA READ; the server's CPU does nothing
  fetch-add   fetch-and-add of 1 to one counter of the server, 8 B
  cas         compare-and-swap of that counter, 8 B (also cmp-swap)

Examples:
  adverb blast --op write --size 64K --buffers 4
  adverb blast --op write --size 16 --inline --buffers 16 --post list
  adverb blast --op write --size 16 --buffers 16 --signal periodic
  adverb blast --op write --buffers 4 --qps 1..32          several queue pairs
  adverb blast --op send --size 1..1M --completion event --json
  adverb blast --op send --size 1M --device tcp            kernel TCP"
)]
pub(crate) struct BlastArgs {
    /// Operation: send, write-imm, write, read, fetch-add or cas (see below)
    #[arg(long, value_parser = word_of(operations(Program::Blast)))]
    pub(crate) op: Opcode,

    /// Messages in flight at most on each queue pair, each with its own buffer
    #[arg(long, value_name = "N", default_value = "4", value_parser = count::<u32, _>(1..))]
    pub(crate) buffers: u32,

    /// Queue pairs between the two sides; messages take them in turn
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<u32, _>(1..))]
    pub(crate) qps: u32,

    /// Send from both sides at the same time; rates count both directions
    #[arg(long)]
    pub(crate) bidirectional: bool,

    /// How requests are posted: single (one call each) or list (all that are free, in one call)
    #[arg(
        long,
        value_name = "HOW",
        default_value = "single",
        value_parser = word_of(&[Posting::Single, Posting::List])
    )]
    pub(crate) post: Posting,

    /// Which requests ask for a completion: all, periodic (one in buffers/2) or every=N (one in N)
    #[arg(long, value_name = "WHICH", default_value = "all", value_parser = signaling)]
    pub(crate) signal: Signaling,

    #[command(flatten)]
    pub(crate) common: MeasureArgs,
}

/// What `ping` and `blast` have in common.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Payload of a message: bytes (8), binary multiples (4K), a list (8,64,4K) or a range that doubles
    /// (1..1M) [default: 64; 8 of atomics]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Bytes>,

    /// Rate of the packets: sdr, ddr, qdr, fdr, edr, hdr, ndr or xdr (InfiniBand, four lanes) [default: the
    /// link's]
    ///
    /// On verbs:NAME the static rate of the path, up to the link's; of a model, the rate of its link.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<LinkRate>,

    /// Carry the payload in the request itself (up to the device's limit; see `adverb devices`)
    #[arg(long)]
    pub(crate) inline: bool,

    /// How both sides detect completions: poll (busy), event (sleep until one arrives) or hybrid:TIME (poll
    /// for TIME, then sleep)
    #[arg(long, value_name = "HOW", default_value = "poll")]
    pub(crate) completion: Completion,

    #[command(flatten)]
    pub(crate) length: LengthArgs,

    /// Transport service: rc, uc (no READ, no atomics) or ud (send, up to the path MTU); tcp with
    /// --device tcp and on models [default: rc]
    #[arg(
        long,
        alias = "over",
        value_name = "WHICH",
        value_parser = word_of(&[Transport::Rc, Transport::Uc, Transport::Ud, Transport::Tcp])
    )]
    pub(crate) transport: Option<Transport>,

    /// Swap the places of the sides: the active one runs at the server of --peer, the passive one here
    #[arg(long)]
    pub(crate) reversed: bool,

    /// Check each payload on arrival (costs time: do not compare with unverified figures)
    #[arg(long)]
    pub(crate) verify: bool,

    /// Throughput in bits per second (records always have bytes per second)
    #[arg(long)]
    gbits: bool,

    #[command(flatten)]
    pub(crate) on: TargetArgs,
}

impl MeasureArgs {
    pub(crate) fn throughput_unit(&self) -> ThroughputUnit {
        match self.gbits {
            true => ThroughputUnit::BitsPerSecond,
            false => ThroughputUnit::BytesPerSecond,
        }
    }
}

/// Parses which requests ask for a completion. Whether the program supports it is checked later.
fn signaling(text: &str) -> Result<Signaling, String> {
    match text {
        "all" => Ok(Signaling::All),
        "periodic" => Ok(Signaling::Periodic),
        "write-unsignaled" => Ok(Signaling::WriteUnsignaled),
        _ => match text.strip_prefix("every=").map(str::parse::<u32>) {
            Some(Ok(n)) if n > 0 => Ok(Signaling::Every(n)),
            _ => Err(format!(
                "invalid signaling '{text}': expected all, periodic, write-unsignaled, or every=N with N from 1"
            )),
        },
    }
}
