//! The command line of `adverb connect`.

use adverb_results::Transport;
use adverb_units::Bytes;
use adverb_verbs::{PageKind, RetryCount};
use clap::Args;

use super::target::TargetArgs;
use super::value::{count, one_of, word_of};

/// Measure the life of connections: each step of set-up, use and break-down
///
/// After R. D. Russell's tutorial (2013). An active and a passive role open
/// --connections connections (RC), one after another, each with objects of its own;
/// then every connection carries its messages; then each is broken down. Each step
/// is timed by the role that takes it.
///
///   set-up      protection domain (PD), completion channel, completion queue (CQ),
///               memory region, queue pair (QP), exchange of addresses (out of
///               band, over the launcher's sockets), RESET to INIT, RTR and RTS;
///               with verbs+cm:NAME rdma_cm connects instead
///   use         the first SEND, further SENDs (64 B), and "finished", a SEND with
///               the number of messages, which the passive role checks; each until
///               its completion
///   break-down  to ERR until the receives are flushed, then all objects in reverse
///
/// With --device tcp, or --transport tcp on a model, the connections are sockets
/// of the kernel's TCP:
///
///   set-up      socket, bind, listen (once for all connections), exchange of
///               addresses, connect or accept
///   use         each message until the peer's answer of 8 B: send returns before a
///               message has arrived
///   break-down  shutdown, close
///
/// `calls` is the mean number of system calls of the role's thread in a step,
/// counted by the kernel (tracepoint raw_syscalls:sys_enter), which takes root and
/// tracefs.
///
/// A step that a model does not charge for is missing, not 0.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb connect                                     100 connections on soft
  adverb connect --device soft@127.0.0.1,soft@127.0.0.2    over UDP
  adverb connect --device tcp                        the kernel's TCP
  adverb connect --device soft --device tcp          both, side by side
  adverb connect --device model:cx3 --transport tcp  the same in the model
  adverb connect --size 4K,64K,1M,16M --connections 10     registration by size
  adverb connect --device verbs:mlx5_0 --size 1G --connections 2 --pages huge
  adverb connect --connections 1..1000 --agents 2 --out life
  adverb connect --rnr-retry 3                       no receive: how SENDs fail
  adverb connect --device verbs+cm:mlx5_0 --peer 10.0.0.2  by rdma_cm"
)]
pub(crate) struct ConnectArgs {
    /// Connections that exist at the same time, 1 to 1000
    #[arg(long, value_name = "N", default_value = "100", value_parser = count::<u32, _>(1..=1000))]
    pub(crate) connections: u32,

    /// Passive roles, to which a listener hands the connections in turn, 1 to 64 [default: one, without a
    /// listener]
    #[arg(long, value_name = "N", value_parser = count::<u32, _>(1..=64))]
    pub(crate) agents: Option<u32>,

    /// Messages after the first one on each connection, 0 to 100000
    #[arg(long, value_name = "N", default_value = "10", value_parser = count::<u32, _>(0..=100_000))]
    pub(crate) messages: u32,

    /// Memory that each end of a connection allocates and registers: 4K to 1G and beyond [default: 4K]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Bytes>,

    /// Transport: rc, or tcp (kernel TCP; on a model) [default: rc; tcp on --device tcp]
    #[arg(long, alias = "over", value_name = "WHICH", value_parser = word_of(&[Transport::Rc, Transport::Tcp]))]
    pub(crate) transport: Option<Transport>,

    /// Pages of that memory, small or huge (verbs:NAME) [default: reserved huge pages for 2M and more, if there are any]
    ///
    /// small: 4 KiB, also if the kernel would merge them; huge: 2 MiB, reserved by the administrator
    /// (vm.nr_hugepages).
    #[arg(
        long,
        value_name = "KIND",
        value_parser = one_of([("small", PageKind::Small), ("huge", PageKind::Huge)])
    )]
    pub(crate) pages: Option<PageKind>,

    /// Post no receives, so that the first SEND fails after N RNR retries, 0 to 6
    ///
    /// The failure is fatal for the queue pair: what is posted after it is flushed.
    #[arg(long, value_name = "N")]
    pub(crate) rnr_retry: Option<RetryCount>,

    #[command(flatten)]
    pub(crate) on: TargetArgs,
}
