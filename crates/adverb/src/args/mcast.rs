//! The command line of `adverb mcast`.

use std::net::IpAddr;

use adverb_launch::{DeviceChoice, SoftAddress};
use adverb_results::Completion;
use adverb_units::Bytes;
use clap::{Args, ValueEnum};

use super::target::TargetArgs;
use super::value::rate;

/// Measure multicast: one publisher, and what each subscriber loses
///
/// A publisher sends --messages datagrams (UD) to a multicast group, each with its
/// number. Subscribers keep --receives receives posted and count what arrives. Both
/// run: `publish` (the default) runs the publisher here and the subscribers on the
/// peers, `subscribe` the other way round.
///
///   messages   sent, or arrived (each counted once)
///   rate       of these per second
///   lost       not arrived while the subscriber was in the group: on the way, or
///              no receive was posted
///   away       sent while the subscriber had left the group (--churn)
///   reordered  arrived after a later one
///   join       duration of attaching the queue pair to the group
///
/// The publisher, the first member, determines the group's MTU; a port with a
/// smaller one cannot join (use --mtu).
///
/// Devices: soft@ADDR; model:PRESET, whose switch makes the copies; verbs+cm:NAME,
/// which joins the group by rdma_cm (on InfiniBand with the subnet manager, on RoCE
/// with the network's switches); and verbs:NAME, which only attaches its queue
/// pairs. Refused: soft without an address and tcp (no network that copies
/// messages), iWARP (no UD).
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb mcast --device soft@127.0.0.1
  adverb mcast --device soft@127.0.0.1 --receives 1..64 --rate 100k --out loss
  adverb mcast --device soft@127.0.0.1 --subscribers 4 --churn 2
  adverb mcast --device model:connect_ib --subscribers 4 --receives 1..64
  adverb mcast publish --device verbs+cm:mlx5_0 --peer 10.0.0.2 --peer 10.0.0.3"
)]
pub(crate) struct McastArgs {
    /// What runs on this host if there are peers: publish or subscribe
    #[arg(value_name = "SIDE", default_value = "publish")]
    pub(crate) side: McastSide,

    /// Subscribers, 1 to 64
    #[arg(long, value_name = "N", default_value = "2")]
    pub(crate) subscribers: u32,

    /// The group: a multicast address of IP [default: 239.193.77.1; at an IPv6 address ff15::adbe:4d01]
    #[arg(long, value_name = "ADDR")]
    group: Option<IpAddr>,

    /// Messages, 1 to 100000000
    #[arg(long, value_name = "N", default_value = "10000")]
    pub(crate) messages: u64,

    /// Payload of a message: 16 B up to the path MTU
    #[arg(long, value_name = "SIZE", default_value = "64")]
    pub(crate) size: Bytes,

    /// Receives that each subscriber keeps posted, 1 to 1024
    #[arg(long, value_name = "N", default_value = "64")]
    pub(crate) receives: u32,

    /// Messages per second: 5000, 100k [default: as fast as the publisher can]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<f64>,

    /// Subscribers that leave the group after a quarter of the messages and join again after half of them
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) churn: u32,

    /// How subscribers wait: poll, event, or hybrid:TIME (poll for TIME, then sleep)
    #[arg(long, value_name = "HOW", default_value = "poll")]
    pub(crate) completion: Completion,

    #[command(flatten)]
    pub(crate) on: TargetArgs,
}

/// Which roles of a multicast program run on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum McastSide {
    Publish,
    Subscribe,
}

impl McastArgs {
    /// Returns the address of the group: as typed, or of the IP version of the device.
    pub(crate) fn group(&self) -> IpAddr {
        let usual = match self.on.device.choice() {
            DeviceChoice::Soft(SoftAddress::At(IpAddr::V6(_))) => {
                [0xff15, 0, 0, 0, 0, 0, 0xadbe, 0x4d01].into()
            }
            _ => [239, 193, 77, 1].into(),
        };
        self.group.unwrap_or(usual)
    }

    /// Returns the number of hosts besides the publisher's, at least one; on a model one for each subscriber.
    pub(crate) fn other_hosts(&self) -> u32 {
        match self.on.device.choice() {
            DeviceChoice::Model(_) => self.subscribers,
            _ => self.on.other_hosts(),
        }
    }
}
