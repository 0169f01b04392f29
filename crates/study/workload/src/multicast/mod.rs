//! `mcast`: one publisher sends numbered datagrams to a multicast group, subscribers count what arrives.
//!
//! The publisher does not know who is in the group. Subscribers that churn leave it after a quarter of the
//! messages and join again after half of them; they learn from the publisher when that is, but it does not wait
//! for them. A message is lost to a subscriber if it did not arrive while the subscriber was in the group: it was
//! lost in the network, or no receive was posted.
//!
//! The first member of a group, here the publisher, determines its MTU; a port with a smaller one cannot join (IBTA
//! vol. 1, 15.2.5.17: the subnet manager refuses it). Groups of IP have no MTU, so that here the subscribers check.
//!
//! Sources: IBTA vol. 1, 10.5 (multicast), annex A17 (RoCEv2 uses the groups of IP).

mod subscriber;

use adverb_results::Completion;
use adverb_units::{Bytes, CpuTime, Span};
use adverb_verbs::{
    AccessFlags, Context, DeviceCaps, Endpoint, Gid, GroupMember, Lid, LinkLayer, MemoryRegion,
    Operation, PathMtu, PathOptions, PortCaps, Psn, QpCaps, QpType, Qpn, QueuePair, Rkey, RoleId,
    SendFlags, SendRequest, Station, WorkCompletion, WrId,
};
use serde::{Deserialize, Serialize};

use crate::attend::{Awaited, DONE, Members};
use crate::error::Fault;
use crate::pattern::wiring::send;
use crate::reap::{BATCH, Queue};
use crate::wiring::{GRH, Kit, PeerAddress, QKEY};
use crate::{Role, RoleLoad};
use subscriber::{Churn, subscribe};

const PUBLISHER: RoleId = RoleId(0);
/// The publisher has sent a quarter of its messages.
const QUARTER: &[u8] = b"quarter";
/// The publisher has sent half of its messages.
const HALF: &[u8] = b"half";
/// Messages that the publisher has in flight at most, each from a buffer of its own.
const WINDOW: u32 = 32;
/// A publisher sleeps until its next message is due, unless that is sooner.
const SLEEP: Span = Span::from_ms(1);

/// The parameters of `mcast`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Multicast {
    /// The group.
    pub group: Gid,
    /// Subscribers.
    pub subscribers: u32,
    /// Hosts of the subscribers, besides the publisher's.
    pub machines: u32,
    /// Subscribers that leave and join again.
    pub churn: u32,
    /// Messages.
    pub messages: u64,
    /// Payload of a message.
    pub size: Bytes,
    /// Receives that each subscriber keeps posted.
    pub receives: u32,
    /// Time from one message to the next; `None`: the publisher sends as fast as it can.
    pub interval: Option<Span>,
    /// How subscribers wait.
    pub completion: Completion,
    /// The host whose roles run where the program is started: 0 for the publisher, 1 for subscribers.
    pub home: u32,
    /// Options of the path.
    pub path: PathOptions,
}

/// What subscribers learn from the publisher before they join.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Announcement {
    /// Messages of this publisher contain it.
    key: [u8; 8],
    /// The group's MTU.
    mtu: PathMtu,
}

/// What a role of `mcast` counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MulticastTally {
    /// Messages sent, or messages that arrived, each counted once.
    pub messages: u64,
    /// Messages that did not arrive while the subscriber was in the group.
    pub lost: u64,
    /// Messages that were sent while the subscriber had left the group.
    pub away: u64,
    /// Messages that arrived again.
    pub duplicates: u64,
    /// Messages that arrived after a later one.
    pub reordered: u64,
    /// Messages of other publishers to the same group.
    pub foreign: u64,
    /// Mean duration of joining the group.
    pub join: Option<Span>,
    /// From the first message to the last one.
    pub elapsed: Span,
    /// CPU time of the role.
    pub cpu: CpuTime,
    /// The time over which `cpu` was used.
    pub cpu_over: Span,
}

impl Multicast {
    /// Smallest message: its number and the publisher's key.
    pub const LEAST_SIZE: Bytes = Bytes::new(16);

    /// The roles: the publisher, then the subscribers.
    pub fn roles(&self) -> Vec<Role> {
        let role = |number: u32| Role {
            name: match number.checked_sub(1) {
                None => "publisher".to_owned(),
                Some(subscriber) => format!("subscriber {subscriber}"),
            },
            host: number
                .checked_sub(1)
                .map_or(0, |subscriber| 1 + subscriber % self.machines.max(1)),
            process: number,
            load: RoleLoad::Busy,
        };
        (0..=self.subscribers).map(role).collect()
    }

    /// Returns the memory that a role registers, at the largest MTU: messages of the publisher, receives of a subscriber.
    pub fn memory(&self, role: RoleId) -> Bytes {
        let (count, each) = match role {
            PUBLISHER => (WINDOW, self.size.get()),
            _ => (self.receives, PathMtu::B4096.bytes().get() + u64::from(GRH)),
        };
        Bytes::new(each.saturating_mul(count.into()))
    }

    /// Checks the parameters against the limits of the device.
    ///
    /// # Errors
    /// The parameter that is out of range, and its limit.
    pub fn check(&self, caps: &DeviceCaps) -> Result<(), String> {
        if self.receives > caps.max_qp_wr {
            return Err(format!(
                "{} receives exceed the device's max_qp_wr {}; use fewer --receives",
                self.receives, caps.max_qp_wr
            ));
        }
        if self.path.ack_timeout.is_some() || self.path.retries.is_some() {
            let reason = "nothing is acknowledged or sent again; leave --timeout and --retries out";
            return Err(format!("multicast uses UD queue pairs, where {reason}"));
        }
        Ok(())
    }

    /// Returns the MTU that a port has for the group.
    ///
    /// # Errors
    /// The port has no multicast, or its packets are too small for a message.
    fn mtu_of(&self, port: &PortCaps) -> Result<PathMtu, Fault> {
        let refusal = match port.link_layer {
            LinkLayer::SharedMemory => {
                "device soft has no multicast groups without a UDP port; name an address: --device soft@ADDR, such as soft@127.0.0.1".to_owned()
            }
            LinkLayer::Iwarp => {
                "an iWARP device has no UD queue pairs and therefore no multicast; use a RoCE or InfiniBand device".to_owned()
            }
            _ => {
                let mtu = self.path.path_mtu_up_to(port.active_mtu)?;
                if self.size <= mtu.bytes() {
                    return Ok(mtu);
                }
                format!(
                    "size {} exceeds the path MTU {} of the group, and a datagram is one packet; choose a smaller --size",
                    self.size, mtu.bytes()
                )
            }
        };
        Err(Fault::Refused(refusal))
    }

    /// Checks that a port with this MTU may join a group with `groups`.
    fn check_join(&self, own: PathMtu, groups: PathMtu) -> Result<(), Fault> {
        if own >= groups {
            return Ok(());
        }
        let (own, groups) = (own.bytes(), groups.bytes());
        Err(Fault::Refused(format!(
            "path MTU {own} of this port is smaller than the {groups} of the group, which its first member, the publisher, determined; choose --mtu {}",
            own.get()
        )))
    }

    /// Returns the objects of a role's queue pair, with a region of `bytes`.
    fn kit<'s, S: Station>(&self, station: &'s S, bytes: u64) -> Result<Kit<'s, S>, Fault> {
        Kit::new(station, (bytes, AccessFlags::LOCAL_WRITE), self.path)
    }

    /// Returns the address of the group with this GID and LID.
    fn address<S: Station>(
        kit: &Kit<'_, S>,
        (gid, lid): (Gid, Lid),
    ) -> Result<PeerAddress<S::Context>, Fault> {
        let group = Endpoint {
            qpn: Qpn::MULTICAST,
            psn: Psn::new(0),
            gid,
            lid,
            port: adverb_verbs::PortNum::ONE,
            cm: None,
        };
        kit.peer_address(&group, QKEY)
    }
}

/// Runs one role of `mcast`.
///
/// # Errors
/// The device refuses, or another role has failed.
pub fn run_multicast<S: Station>(
    station: &S,
    multicast: &Multicast,
    role: RoleId,
) -> Result<MulticastTally, Fault> {
    let members = Members::new(station, (role, multicast.subscribers + 1), []);
    let (begun, cpu) = (station.now(), station.cpu());
    let tally = match role {
        PUBLISHER => publish(&members, multicast)?,
        subscriber => {
            let churn = match subscriber.0 <= multicast.churn {
                true => Churn::Leaves,
                false => Churn::Stays,
            };
            subscribe(&members, multicast, churn)?
        }
    };
    Ok(MulticastTally {
        cpu: station.cpu().since(cpu),
        cpu_over: station.now() - begun,
        ..tally
    })
}

fn publish<S: Station>(
    members: &Members<'_, S>,
    multicast: &Multicast,
) -> Result<MulticastTally, Fault> {
    let station = members.station();
    let context = station.context();
    let window = WINDOW.min(context.caps().max_qp_wr);
    let size = multicast.size.get();
    let mtu = multicast.mtu_of(&context.port(context.port_num())?)?;
    let kit = multicast.kit(station, u64::from(window) * size)?;
    let sends = Queue::new(context, window, Completion::Poll, Awaited::OwnRequest)?;
    let qp = kit.queue_pair(QpType::Ud, (&sends, &sends), QpCaps::new(window, 1), 0)?;
    let joined = qp.join_mcast(multicast.group, GroupMember::Sender)?;
    let group = Multicast::address(&kit, joined)?;
    let key = key(&kit.endpoint(&qp), kit.mr.rkey());
    for subscriber in 1..=multicast.subscribers {
        send(members, RoleId(subscriber), &Announcement { key, mtu })?;
    }
    members.meet()?;
    let begun = station.now();
    let mut reaper = sends.reaper();
    let mut completions = [WorkCompletion::default(); BATCH];
    let mut in_flight = 0;
    for number in 0..multicast.messages {
        for (mark, word) in [(4, QUARTER), (2, HALF)] {
            if number == multicast.messages / mark {
                (1..=multicast.churn)
                    .try_for_each(|churning| members.send(RoleId(churning), word))?;
            }
        }
        if let Some(interval) = multicast.interval {
            let due = (begun + interval * number) - station.now();
            match due < SLEEP {
                true => station.compute(due),
                false => station.sleep(due),
            }
        }
        if in_flight == window {
            in_flight -= reaper.reap(station, members, &mut completions)? as u32;
        }
        let place = number % u64::from(window) * size;
        kit.mr.write(place, &[number.to_le_bytes(), key].concat())?;
        let sges = [kit.mr.sge(place, size as u32)?];
        let request = SendRequest::new(WrId(number), Operation::Send, &sges);
        let request = request.with_flags(SendFlags::SIGNALED);
        qp.post_send(&[request.to(group.destination())])?;
        in_flight += 1;
    }
    while in_flight > 0 {
        in_flight -= reaper.reap(station, members, &mut completions)? as u32;
    }
    let elapsed = station.now() - begun;
    for subscriber in 1..=multicast.subscribers {
        members.send(RoleId(subscriber), DONE)?;
    }
    members.meet()?;
    Ok(MulticastTally {
        messages: multicast.messages,
        elapsed,
        ..MulticastTally::default()
    })
}

/// Returns a key that distinguishes this publisher's messages from other messages to the same group: no other
/// publisher has the same queue pair, region and address.
fn key(publisher: &Endpoint, region: Rkey) -> [u8; 8] {
    let own = u64::from(region.0) << 32 | u64::from(publisher.qpn.get());
    let address = u128::from_le_bytes(publisher.gid.0);
    (own ^ address as u64 ^ (address >> 64) as u64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_a_smaller_mtu_than_the_group_cannot_join() {
        let multicast = Multicast {
            group: Gid::from_ipv4([239, 1, 2, 3].into()),
            subscribers: 1,
            machines: 1,
            churn: 0,
            messages: 1,
            size: Multicast::LEAST_SIZE,
            receives: 1,
            interval: None,
            completion: Completion::Poll,
            home: 0,
            path: PathOptions::default(),
        };
        let join = |own, groups| multicast.check_join(own, groups);
        assert!(join(PathMtu::B1024, PathMtu::B1024).is_ok());
        assert!(join(PathMtu::B4096, PathMtu::B1024).is_ok());
        let refused = join(PathMtu::B512, PathMtu::B1024).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "path MTU 512 B of this port is smaller than the 1 KiB of the group, which its first member, the publisher, determined; choose --mtu 512"
        );
    }
}
