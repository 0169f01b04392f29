//! The command lines of `adverb overlap`, `fetch`, `interference` and `rendezvous`.

use adverb_patterns::By;
use adverb_patterns::rendezvous::Protocol;
use adverb_results::Completion;
use adverb_units::{Bytes, Span};
use clap::Args;

use super::target::TargetArgs;
use super::value::{count, duration, word_of};

/// How both sides wait for messages.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WaitArgs {
    /// How both sides wait for messages: poll (busy; a non-blocking socket), event (sleep until one arrives; a
    /// blocking socket) or hybrid:TIME (poll for TIME, then sleep; not tcp); WRITEs are polled in any case
    #[arg(long, value_name = "HOW", default_value = "poll")]
    pub(crate) completion: Completion,
}

/// Measure how much of a computation overlaps with communication
///
/// A client starts a message, computes for --compute, then waits for the end: the
/// peer's answer of the same size. In the same run it measures the exchange without
/// computation and the computation alone.
///
///   total    of an exchange with the computation
///   comm     of an exchange without it
///   compute  of the computation alone
///   ratio    compute / total: 1 if communication is hidden completely
///
/// On soft@ADDR the NIC's work is done by CPUs of the two hosts, so that less
/// overlaps than with a NIC.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb overlap --compute 0,10us,100us             WRITE and poll memory
  adverb overlap --by read --compute 100us --size 64K
  adverb overlap --device tcp --compute 0,20us,40us,80us
  adverb overlap --device model:ammasso_gige --by tcp --compute 0,50us,100us"
)]
pub(crate) struct OverlapArgs {
    /// How messages are sent: write, read, send or tcp (kernel TCP; on a model) [default: write; tcp on --device tcp]
    #[arg(long, visible_alias = "over", value_name = "HOW", value_parser = word_of(&[By::Write, By::Read, By::Send, By::Tcp]))]
    pub(crate) by: Option<By>,

    /// Length of the client's computation: 0, 50us, 10ms; at most 5s
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) compute: Span,

    /// Payload of a message and of its answer: 1 B to 64 MiB
    #[arg(long, value_name = "SIZE", default_value = "1K")]
    pub(crate) size: Bytes,

    /// Measured exchanges of each kind
    #[arg(long, value_name = "N", default_value = "100", value_parser = count::<u32, _>(1..=1_000_000))]
    pub(crate) iters: u32,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) on: TargetArgs,
}

/// Measure how long a client waits for data of a busy server
///
/// The client fetches --size bytes, again and again. The server computes for
/// --response-delay before it answers, as if it were busy with other work.
///
///   read  the client READs: the server's CPU, which computes all the time, takes
///         no part in it
///   send  the client SENDs a request of 16 B; the server answers by a SEND
///   tcp   the same over sockets
///
/// On soft@ADDR the server's CPU answers READs, too, on another thread.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb fetch --response-delay 0,1ms,10ms          READs do not wait
  adverb fetch --by send --response-delay 0,1ms,10ms
  adverb fetch --device tcp --response-delay 1ms --completion poll,event
  adverb fetch --device model:ammasso_gige --by tcp --response-delay 0,1ms"
)]
pub(crate) struct FetchArgs {
    /// How data are fetched: read, send or tcp (kernel TCP; on a model) [default: read; tcp on --device tcp]
    #[arg(long, visible_alias = "over", value_name = "HOW", value_parser = word_of(&[By::Read, By::Send, By::Tcp]))]
    pub(crate) by: Option<By>,

    /// What the server computes before it answers: 0, 100us, 10ms; at most 5s
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) response_delay: Span,

    /// Payload of an answer: 1 B to 64 MiB
    #[arg(long, value_name = "SIZE", default_value = "1K")]
    pub(crate) size: Bytes,

    /// Measured fetches
    #[arg(long, value_name = "N", default_value = "100", value_parser = count::<u32, _>(1..=1_000_000))]
    pub(crate) iters: u32,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) on: TargetArgs,
}

/// Measure how much of a server's CPU its clients' messages take
///
/// The server executes a computation of fixed length, first alone, then while
/// --clients stream messages to it. One thread computes, and takes what has arrived
/// after each millisecond: SENDs and new receives, or what the sockets hold. WRITEs
/// do not need that. With --completion event, each client has a reader instead: it
/// sleeps until a message arrives, and then preempts the computation on its core.
///
///   alone     time of the computation without messages
///   loaded    time of the computation while messages arrive
///   slowdown  loaded / alone: 1 if the messages take no CPU
///
/// On soft@ADDR the NIC's work is done by the server's CPU: WRITEs take some of it,
/// too.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb interference --clients 1                   WRITEs
  adverb interference --by send --clients 1 --size 16K
  adverb interference --device model:ammasso_gige --clients 40 --size 16K
  adverb interference --device model:ammasso_gige --by tcp --size 1K..64K
  adverb interference --device tcp --completion event    blocking readers"
)]
pub(crate) struct InterferenceArgs {
    /// How clients send: write, send or tcp (kernel TCP; on a model) [default: write; tcp on --device tcp]
    #[arg(long, visible_alias = "over", value_name = "HOW", value_parser = word_of(&[By::Write, By::Send, By::Tcp]))]
    pub(crate) by: Option<By>,

    /// Clients, each with a process of its own, 1 to 1000
    #[arg(long, value_name = "N", default_value = "2", value_parser = count::<u32, _>(1..=1000))]
    pub(crate) clients: u32,

    /// Machines that they are on [default: 1, or as many as there are other hosts; on a model one for each client]
    #[arg(long, value_name = "N", value_parser = count::<u32, _>(1..=1000))]
    pub(crate) machines: Option<u32>,

    /// Length of the computation: 1ms, 20ms; at most 5s
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    pub(crate) compute: Span,

    /// Payload of a message: 1 B to 64 MiB
    #[arg(long, value_name = "SIZE", default_value = "16K")]
    pub(crate) size: Bytes,

    /// Measured computations, alone and loaded
    #[arg(long, value_name = "N", default_value = "10", value_parser = count::<u32, _>(1..=10_000))]
    pub(crate) iters: u32,

    /// Memory that the computation reads in each millisecond, in addition: 256K, 1M, at most 64M [default: none]
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "0",
        hide_default_value = true
    )]
    pub(crate) read_memory: Bytes,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) on: TargetArgs,
}

/// Measure protocols that move a message: rendezvous, prearranged buffer, eager copy, sockets
///
/// Two peers send each other messages in turn. The time of a message is half of a
/// round.
///
///   write        rendezvous: START, the receiver's reply with an address, the data
///                by WRITE, FIN (four messages)
///   read         rendezvous: START with the sender's address, the data by READ,
///                FIN (three)
///   prearranged  the data by WRITE to a buffer that the peers have agreed on, FIN,
///                and a credit (three)
///   eager        copied to registered slots of 4 KiB, sent by SEND, copied again,
///                and a credit for every eighth
///   sockets      kernel TCP
///
/// Every byte is checked, and the number of messages.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb rendezvous --size 64,4K,256K
  adverb rendezvous --protocol eager --size 64..64K --out eager
  adverb rendezvous --device tcp --size 64..64K
  adverb rendezvous --device model:ammasso_gige --protocol read --size 64K"
)]
pub(crate) struct RendezvousArgs {
    /// Protocol: write, read, prearranged, eager or sockets (see above) [default: write; sockets on --device tcp]
    #[arg(
        long,
        value_name = "WHICH",
        value_parser = word_of(&[
            Protocol::Write,
            Protocol::Read,
            Protocol::Prearranged,
            Protocol::Eager,
            Protocol::Sockets,
        ])
    )]
    pub(crate) protocol: Option<Protocol>,

    /// Payload of a message: 1 B to 64 MiB
    #[arg(long, value_name = "SIZE", default_value = "1K")]
    pub(crate) size: Bytes,

    /// Measured rounds
    #[arg(long, value_name = "N", default_value = "100", value_parser = count::<u32, _>(1..=1_000_000))]
    pub(crate) iters: u32,

    #[command(flatten)]
    pub(crate) on: TargetArgs,
}
