//! The command lines of programs with several members.

use adverb_launch::DeviceChoice;
use adverb_units::Bytes;
use clap::{Args, ValueEnum};

use super::length::RunsArgs;
use super::place::DeviceArgs;
use super::target::TargetArgs;
use super::value::{count, rate};

/// Measure a sequencer: unique numbers for many clients, by RPC or by FETCH_ADD
///
/// One machine hands out the numbers from 0 on. The ways, three of them after Kalia
/// et al. (ATC 2016):
///
///   rpc      clients WRITE requests (UC, inline) into slots that the server's
///            cores poll; a core adds the number of requests that it finds to one
///            counter, by one atomic instruction, and answers each by a SEND (UD)
///   rpc-imm  requests and answers are SENDs without payload: a number is immediate
///            data
///   atomics  no CPU on the server: clients post FETCH_ADD (RC)
///   tcp      both over a connection of each client, whose sockets both sides poll:
///            with --device tcp, and on models
///
/// All numbers are checked: each was handed out exactly once, or the command fails.
///
///   rate     numbers per second, counted at the server's cores (atomics: at the
///            clients)
///   least    rate of the client that was served least; most: that served most
///   batch    answers that a core posts with one doorbell, on average
///   mean ... from when a request could be sent (with --rate: was due) until its
///            answer is seen
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb sequencer                                   on the user-space device
  adverb sequencer --by rpc-imm --rate 100k --json   latency at an offered load
  adverb sequencer --by atomics --device model:connect_ib    what its NIC counts
  adverb sequencer --device tcp                      the same over kernel TCP
  adverb sequencer --by rpc --device model:connect_ib --clients 70 --machines 5
         --outstanding 32 --qps 3 --batch 32 --cores 6       40 times as many"
)]
pub(crate) struct SequencerArgs {
    /// How requests are served: rpc, rpc-imm, atomics or tcp (see above) [default: rpc; with --device tcp: tcp]
    #[arg(long, value_name = "HOW")]
    pub(crate) by: Option<SequencerBy>,

    #[command(flatten)]
    pub(crate) server: ServerArgs,

    #[command(flatten)]
    pub(crate) clients: ClientArgs,
}

/// How numbers are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SequencerBy {
    Rpc,
    RpcImm,
    Atomics,
    Tcp,
}

/// Measure a key-value store: by RPC, or by READs alone
///
/// Keys have 16 B. Two ways, after HERD and its rivals (Kalia et al., ATC 2016):
///
///   rpc      clients WRITE requests (UC, inline) into slots that the server's
///            cores poll; a core looks keys up in a hash table of its own, many at
///            a time, and answers by a SEND (UD)
///   memory   a GET is --reads dependent READs of --value bytes (RC), which the
///            server's CPU takes no part in; a PUT depends on --puts: lock, two
///            FETCH_ADDs that lock and unlock the item; or ask, a WRITE to a core
///            of the server, which puts the value in place and answers by a SEND
///
/// All values are checked, or the command fails: they belong to their key, and are
/// whole.
///
///   rate     operations per second, counted at the server's cores (memory: at the
///            clients)
///   least    rate of the client that was served least; most: that served most
///   batch    answers that a core posts with one doorbell, on average
///   mean ... from when an operation could begin (with --rate: was due) until its
///            end is seen
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb kv                                            on the user-space device
  adverb kv --put 0.5 --value 256 --clients 4
  adverb kv --by memory --reads 2 --device model:cx3   two READs for each GET
  adverb kv --by memory --puts ask --put 0.5           as Pilaf and FaRM do
  adverb kv --device model:connect_ib --clients 64 --machines 8 --cores 8 --json"
)]
pub(crate) struct KvArgs {
    /// How requests are served: rpc or memory (see above)
    #[arg(long, value_name = "HOW", default_value = "rpc")]
    pub(crate) by: KvBy,

    /// Bytes of a value: 32, 1K
    #[arg(long, value_name = "SIZE", default_value = "32")]
    pub(crate) value: Bytes,

    /// Share of PUTs, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.05", value_parser = share)]
    pub(crate) put: f64,

    /// Items of each core's table (memory with --puts lock: of the whole)
    #[arg(long, value_name = "N", default_value = "65536", value_parser = count::<u64, _>(1..))]
    pub(crate) items: u64,

    /// READs of a GET, each at an address that the previous one returned (--by memory) [default: 1]
    #[arg(long, value_name = "N", value_parser = count::<u32, _>(1..))]
    pub(crate) reads: Option<u32>,

    /// How a PUT changes an item (--by memory): lock or ask [default: lock]
    #[arg(long, value_name = "HOW")]
    pub(crate) puts: Option<KvPuts>,

    #[command(flatten)]
    pub(crate) server: ServerArgs,

    #[command(flatten)]
    pub(crate) clients: ClientArgs,
}

/// How the store is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KvBy {
    Rpc,
    Memory,
}

/// The side that changes items of a store that clients READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KvPuts {
    Lock,
    Ask,
}

/// How queue pairs are used.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PostingArgs {
    /// Queue pairs per server core at each port (atomics, memory, closed-loop: per client) [default: 2]
    #[arg(long, value_name = "N", value_parser = count::<u32, _>(1..=1024))]
    qps: Option<u32>,

    /// Maximum requests or answers posted with one doorbell; 1 posts each alone [default: 16, or
    /// --outstanding if that is less]
    #[arg(long, value_name = "N", value_parser = count::<u32, _>(1..))]
    pub(crate) batch: Option<u32>,
}

impl PostingArgs {
    /// Returns the queue pairs: as typed, or 2.
    pub(crate) fn qps(&self) -> u32 {
        self.qps.unwrap_or(2)
    }

    /// Returns the option that was typed, if one was.
    pub(crate) fn typed(&self) -> Option<&'static str> {
        let qps = self.qps.map(|_| "--qps");
        qps.or(self.batch.map(|_| "--batch"))
    }
}

/// The server's part.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ServerArgs {
    /// Server polling threads (only by RPC, and with --puts ask)
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<u32, _>(1..))]
    pub(crate) cores: u32,

    /// Open loop: offer this many requests per second, with Poisson arrivals: 100k, 2.5M [default: closed
    /// loop]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<f64>,

    #[command(flatten)]
    pub(crate) posting: PostingArgs,
}

/// The clients' part, and where.
#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    /// Client threads
    #[arg(long, value_name = "N", default_value = "2", value_parser = count::<u32, _>(1..=4096))]
    pub(crate) clients: u32,

    /// Outstanding requests: per client by RPC, otherwise per queue pair of a client
    #[arg(long, value_name = "N", default_value = "8", value_parser = count::<u32, _>(1..=4096))]
    pub(crate) outstanding: u32,

    /// Machines besides the first one [default: 1, or as many as there are other hosts]
    #[arg(long, value_name = "N", value_parser = count::<u32, _>(1..=1024))]
    pub(crate) machines: Option<u32>,

    #[command(flatten)]
    pub(crate) runs: RunsArgs,

    /// Count the bytes over PCIe of this host for each request, by the counters of an Intel Xeon (from
    /// Skylake on, as root or with CAP_PERFMON; all devices, so keep the others quiet)
    #[arg(long)]
    pub(crate) pcie_counters: bool,

    #[command(flatten)]
    pub(crate) on: TargetArgs,
}

impl ClientArgs {
    /// Returns the machines of clients of one server: as typed; on a model one for each, since the NIC of a few would limit
    /// the rate.
    pub(crate) fn machines_of_clients(&self, device: &DeviceArgs) -> u32 {
        match (self.machines, device.choice()) {
            (None, DeviceChoice::Model(_)) => self.clients,
            _ => self.machines(),
        }
    }

    /// Returns the number of machines besides the first one: as typed, or as there are other hosts.
    pub(crate) fn machines(&self) -> u32 {
        self.machines.unwrap_or_else(|| self.on.other_hosts())
    }
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|s| (0.0..=1.0).contains(s));
    share.ok_or_else(|| format!("invalid share '{text}': expected a number from 0 to 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read() {
        assert_eq!(share("0.5"), Ok(0.5));
        for bad in ["", "1.1", "-0.1", "nan"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}
