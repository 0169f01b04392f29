//! The command line of `adverb rpc`.

use adverb_patterns::EchoBy;
use adverb_results::{Completion, Transport};
use adverb_units::{Bytes, Span};
use clap::Args;

use super::services::ClientArgs;
use super::value::{count, duration, rate, word_of};

/// Compare ways to answer requests: SEND, WRITE and polling, or READ?
///
/// Clients send requests to one server, which computes a reply from all bytes of
/// each. The ways:
///
///   send        request and reply by SEND; both sides wait for completions
///   write       request and reply by WRITE; both sides poll memory
///   write-send  the request by WRITE, the reply by SEND, as in HERD; with
///               --transport ud requests use UC, because UD has no WRITE
///   read        the client READs what it wants from the server's memory, whose CPU
///               does nothing: only if that is all that a server has to do
///   tcp         both over sockets that client and server poll: with --device tcp,
///               and on models if named
///
/// Each way runs over each transport that can carry it; ways, transports and all
/// numbers take lists. Each byte of each reply is checked, or the command fails.
///
///   rate           replies per second at all clients
///   mean ... p99   from when a request could be sent (with --rate: was due) until
///                  its reply is seen
///   client CPU     of a client thread on average, in percent of a core
///   server CPU     of all server cores together
///   least, most    rate of the client that was served least and most
///
/// Below the rows, one sentence for each device names the ways from best to worst:
/// by rate, or, if all points have a --rate, by p50.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb rpc                                         on the user-space device
  adverb rpc --clients 20 --device model:cx3,model:connect_ib   one table
  adverb rpc --device soft,tcp                       compared with kernel TCP
  adverb rpc --by send,write --transport rc --reply 64,1K,16K
  adverb rpc --by send --transport rc --rate 10k,50k,200k
         --completion poll,event,hybrid:20us      latency and CPU against load
  adverb rpc --clients 4 --peer HOST --device verbs:mlx5_0   the server at HOST"
)]
pub(crate) struct RpcArgs {
    /// How requests and replies are sent: send, write, write-send, read or tcp (see above)
    /// [default: each, as the device can]
    #[arg(
        long,
        value_name = "HOW",
        value_parser = word_of(&EchoBy::ALL)
    )]
    pub(crate) by: Option<EchoBy>,

    /// Transport service: rc, uc (no READ) or ud (no READ, no WRITE; up to the path MTU) [default: each]
    #[arg(
        long,
        value_name = "HOW",
        value_parser = word_of(&[Transport::Rc, Transport::Uc, Transport::Ud])
    )]
    pub(crate) transport: Option<Transport>,

    /// Bytes of a request, from 8 on: 64, 1K
    #[arg(long, value_name = "SIZE", default_value = "64")]
    pub(crate) request: Bytes,

    /// Bytes of a reply, or of what a client READs, from 8 on
    #[arg(long, value_name = "SIZE", default_value = "64")]
    pub(crate) reply: Bytes,

    /// Time from a reply to the next request in its place: 10us, 1ms
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) think: Span,

    /// Open loop: offer this many requests per second, with Poisson arrivals: 100k, 2.5M [default: closed
    /// loop]
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "think")]
    pub(crate) rate: Option<f64>,

    /// How both sides wait for completions: poll (busy), event (sleep until one arrives) or hybrid:TIME (poll
    /// for TIME, then sleep); memory is polled in any case
    #[arg(long, value_name = "HOW", default_value = "poll")]
    pub(crate) completion: Completion,

    /// Server threads; each serves its share of the clients
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<u32, _>(1..=1024))]
    pub(crate) cores: u32,

    #[command(flatten)]
    pub(crate) clients: ClientArgs,
}
