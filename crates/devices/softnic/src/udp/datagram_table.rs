//! The UD queue pairs of the UDP port, their multicast groups and address handles.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use adverb_transport::Counters;
use adverb_verbs::{AhRef, Destination, PathMtu, Qpn, TrafficClass};
use adverb_wire::frame::Addresses;
use adverb_wire::ipv4::{Fragmentation, Unseen};
use adverb_wire::{Packet, grh};

use super::address::socket_of;
use super::datagrams::{DatagramLink, receive_grh};
use super::groups::Groups;
use super::host::Endpoint;
use super::packet::{Remote, Target};
use crate::shm::layout::qp_index;

/// Set in the names of address handles that the UDP port stores. Other handles are named by their protection domain,
/// whose number has 32 bits.
const UDP_HANDLE: u64 = 1 << 63;

/// Whether the UDP port stores the handle.
pub(crate) fn is_udp_handle(ah: AhRef<'_>) -> bool {
    ah.name() & UDP_HANDLE != 0
}

/// An address handle.
#[derive(Clone, Copy, Debug)]
struct AddressHandle {
    pd: u32,
    ip: IpAddr,
    class: TrafficClass,
}

#[derive(Debug)]
pub(super) struct DatagramTable {
    own: SocketAddr,
    mtu: PathMtu,
    links: HashMap<u32, Box<DatagramLink>>,
    pub(super) groups: Groups,
    handles: HashMap<u64, AddressHandle>,
    /// Number of handles made so far. Names are not reused.
    made: u64,
}

impl DatagramTable {
    pub(super) fn new(own: SocketAddr, mtu: PathMtu) -> Self {
        DatagramTable {
            own,
            mtu,
            links: HashMap::new(),
            groups: Groups::default(),
            handles: HashMap::new(),
            made: 0,
        }
    }

    // --- address handles

    /// Makes a handle of protection domain `pd`; returns its name. `None` if `ip` is of the other IP version.
    pub(super) fn make_handle(
        &mut self,
        pd: u32,
        (ip, class): (IpAddr, TrafficClass),
    ) -> Option<u64> {
        Addresses::of(self.own.ip(), ip)?;
        self.made += 1;
        let name = UDP_HANDLE | self.made;
        self.handles.insert(name, AddressHandle { pd, ip, class });
        Some(name)
    }

    pub(super) fn forget_handle(&mut self, name: u64) {
        self.handles.remove(&name);
    }

    /// Returns the target of a datagram of protection domain `pd`. `None` if the domain has no such handle. A handle of
    /// this host's own address leads to a process that shares no memory with this one.
    pub(super) fn target(&self, pd: u32, to: &Destination<'_>) -> Option<Target> {
        let (ip, class) = if is_udp_handle(to.ah) {
            let handle = self.handles.get(&to.ah.name());
            let handle = handle.filter(|handle| handle.pd == pd)?;
            (handle.ip, handle.class)
        } else {
            let is_own = to.ah.name() == u64::from(pd);
            is_own.then(|| (self.own.ip(), TrafficClass::default()))?
        };
        let to = socket_of(ip, to.qpn);
        Target::new(self.own, Remote { to, class })
    }

    // --- queue pairs

    /// Adds a queue pair, which receives from now on.
    pub(super) fn insert(&mut self, qp: &Arc<dyn Endpoint>) {
        let link = DatagramLink::new(qp, self.mtu);
        self.links.insert(qp_index(qp.qpn()), Box::new(link));
    }

    pub(super) fn remove(&mut self, qpn: Qpn) -> Option<Box<DatagramLink>> {
        self.links.remove(&qp_index(qpn))
    }

    pub(super) fn link(&mut self, qpn: Qpn) -> Option<&mut DatagramLink> {
        let link = self.links.get_mut(&qp_index(qpn))?;
        (link.qp.qpn() == qpn).then_some(link)
    }

    /// Passes a packet to its queue pair, or to all members of its group. `length` is the packet's length with its ICRC,
    /// `identification` is from its IP header. Returns false if no queue pair takes it.
    pub(super) fn deliver(
        &mut self,
        packet: &Packet<'_>,
        (addresses, length, identification): (Addresses, usize, u16),
    ) -> bool {
        let unseen = Unseen {
            identification,
            fragmentation: Fragmentation::Forbidden,
        };
        let grh = || receive_grh(addresses, length, unseen);
        let (qpn, to) = (packet.headers.bth.dest_qp, addresses.destination());
        if to.is_multicast() && qpn == Qpn::MULTICAST {
            return self.deliver_to_group(packet, to, &grh());
        }
        match self.link(qpn) {
            Some(link) if !to.is_multicast() => {
                link.take(packet, &grh());
                true
            }
            _ => false,
        }
    }

    fn deliver_to_group(
        &mut self,
        packet: &Packet<'_>,
        group: IpAddr,
        grh: &[u8; grh::LEN],
    ) -> bool {
        let mut is_taken = false;
        for qpn in self.groups.members(group) {
            if let Some(link) = self.links.get_mut(&qp_index(*qpn)) {
                link.take(packet, grh);
                is_taken = true;
            }
        }
        is_taken
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = &Counters> {
        self.links.values().map(|link| link.counters())
    }
}
