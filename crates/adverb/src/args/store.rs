//! The command line of `adverb store`.

use std::net::SocketAddr;

use adverb_units::Bytes;
use clap::{Args, Subcommand};

use super::loops::{LoadArgs, NumaArgs};
use super::services::share;
use super::target::TargetArgs;
use super::value::count;

/// Measure a store whose values clients READ, under memslap's load
///
/// After RDMA-Memcached: one server with a hash table, which evicts the least
/// recently used items. To PUT, a client SENDs a request (RC) and the server READs
/// the value from the client's memory; to GET, the server answers with the place of
/// the value, and the client READs it. Each client thread keeps one operation
/// outstanding on each of its --connections. With --workers, each server thread has
/// a share of the items; connections are assigned to threads in turn, and ask for
/// items of theirs.
///
/// Clients first PUT all --items, then run --requests operations on each
/// connection. All values are checked, or the command fails: they belong to their
/// key, and are whole. GETs of items that the store evicted are misses.
///
/// The server's machine can be loaded (--load). NUMA nodes are named relative to
/// the NIC: nic, other, any (not bound), or by number; --numa-memory is the node of
/// the values.
///
///   rate     operations per second of all clients
///   least    rate of the client that was served least; most: that served most
///   mean ... from an operation's request until its end is seen
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb store                                        on the user-space device
  adverb store --connections 1,2,4,8,16,32 --repetitions 10      memslap's load
  adverb store --workers 1,2,4 --clients 4 --connections 8 --requests 2000
         --device model:cx3_fdr_nurdma              more server threads
  adverb store --memory 1M --items 100000 --value 300   one that evicts
  adverb store --device model:cx3_fdr_nurdma --connections 8 --requests 2000
  adverb store --connections 32 --load 48 --numa-server nic --numa-load nic
         --requests 1000 --device model:cx3_fdr_nurdma
  adverb store serve                                  for clients of memcached"
)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    pub(crate) command: Option<StoreCommand>,

    #[command(flatten)]
    pub(crate) load: StoreLoadArgs,
}

/// What `adverb store` does other than to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    Serve(StoreServeArgs),
}

/// Serve a store to clients of memcached over TCP
///
/// Speaks memcached's text protocol and its meta commands. The values are in a
/// memory region of the user-space device.
///
/// There is no authentication: anyone who reaches the port can read and change all
/// items. Without --listen, only this host reaches it. Ends on Ctrl-C.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb store serve                       at memcached's port of this host
  adverb store serve --memory 1G --threads 4 --listen 10.0.0.2:11211
  memccp --servers=127.0.0.1 FILE          stores a file (libmemcached-tools)"
)]
pub(crate) struct StoreServeArgs {
    /// Where to listen: an address of this host; port 0 is a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:11211")]
    pub(crate) listen: SocketAddr,

    /// Memory for values, each in a block of a power of two from 64 B on; keys and index need about 150 B more
    /// for each item
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    pub(crate) memory: Bytes,

    /// Largest value
    #[arg(long, value_name = "SIZE", default_value = "1M")]
    pub(crate) max_value: Bytes,

    /// Threads that serve clients of TCP, and as many that serve clients of RDMA
    #[arg(long, value_name = "N", default_value = "4", value_parser = count::<u32, _>(1..=256))]
    pub(crate) threads: u32,

    /// Most connections at the same time; further ones are refused
    #[arg(long, value_name = "N", default_value = "1024", value_parser = count::<u32, _>(1..=1_000_000))]
    pub(crate) connections: u32,

    /// Refuse new items when the memory is full, instead of evicting the least recently used ones
    #[arg(long)]
    pub(crate) no_evict: bool,
}

/// The load on a store.
#[derive(Debug, Args)]
pub(crate) struct StoreLoadArgs {
    /// Bytes of a value, 1 to 1M
    #[arg(long, value_name = "SIZE", default_value = "67")]
    pub(crate) value: Bytes,

    /// Share of PUTs, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = share)]
    pub(crate) put: f64,

    /// Items that clients ask for
    #[arg(long, value_name = "N", default_value = "10000", value_parser = count::<u64, _>(1..))]
    pub(crate) items: u64,

    /// Server threads, each with a share of the items and of --memory
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<u32, _>(1..=256))]
    pub(crate) workers: u32,

    /// Memory of the server for values, each in a block of a power of two from 64 B on
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    pub(crate) memory: Bytes,

    /// Client threads
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<u32, _>(1..=4096))]
    pub(crate) clients: u32,

    /// Connections of each client, with one outstanding operation each
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<u32, _>(1..=4096))]
    pub(crate) connections: u32,

    /// Operations over each connection
    #[arg(long, value_name = "N", default_value = "100000", value_parser = count::<u64, _>(1..))]
    pub(crate) requests: u64,

    /// Use a server that is running: the address of an `adverb store serve`
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) server: Option<SocketAddr>,

    /// Machines besides the server's [default: 1, or as many as there are other hosts]
    #[arg(long, value_name = "N", value_parser = count::<u32, _>(1..=1024))]
    machines: Option<u32>,

    /// Runs of the whole program: their spread gives the mean its interval
    #[arg(long, value_name = "RUNS", default_value = "1", value_parser = count::<u32, _>(1..=1000))]
    pub(crate) repetitions: u32,

    #[command(flatten)]
    pub(crate) numa: NumaArgs,

    #[command(flatten)]
    pub(crate) load: LoadArgs,

    #[command(flatten)]
    pub(crate) on: TargetArgs,
}

impl StoreLoadArgs {
    /// Returns the number of machines besides the server's: as typed, or as there are other hosts.
    pub(crate) fn machines(&self) -> u32 {
        self.machines.unwrap_or_else(|| self.on.other_hosts())
    }
}
