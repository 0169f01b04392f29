//! The driver's operations on queue pairs: connect, modify, post.

use std::net::SocketAddr;
use std::sync::Arc;

use adverb_transport::UdDestination;
use adverb_verbs::{QpAttr, Qpn, SendRequest, TrafficClass, WcStatus};
use adverb_wire::mad;

use super::Driver;
use crate::shm::layout::qp_index;
use crate::udp::address::{ip_of, socket_of};
use crate::udp::datagrams::Outgoing;
use crate::udp::host::Endpoint;
use crate::udp::link::{Link, send_work};
use crate::udp::mailbox;
use crate::udp::memory::Regions;
use crate::udp::packet::{Remote, Target};
use crate::udp::tx_batch::Room;

impl Driver {
    // --- states and attributes

    /// Moves a queue pair to RTR: RC and UC queue pairs are connected to the peer named by `attr`. `None` if the
    /// peer's address is of the other IP version.
    pub(in crate::udp) fn connect(&mut self, qp: &Arc<dyn Endpoint>, attr: &QpAttr) -> Option<()> {
        let (Some(dest), Some(address)) = (attr.dest_qpn, attr.address) else {
            self.datagrams.insert(qp);
            return Some(());
        };
        let to = Remote {
            to: socket_of(ip_of(address.dgid), dest),
            class: address.traffic_class,
        };
        let target = Target::new(self.tx.socket().at(), to)?;
        let index = qp_index(qp.qpn()) as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        self.disconnect(qp.qpn());
        self.links[index] = Some(Box::new(Link::new(qp, attr, target, self.window)));
        Some(())
    }

    /// Removes a queue pair; returns false if it was not connected.
    pub(in crate::udp) fn disconnect(&mut self, qpn: Qpn) -> bool {
        if let Some(gone) = self.datagrams.remove(qpn) {
            self.past.add(gone.counters());
            return true;
        }
        let link = self.links.get_mut(qp_index(qpn) as usize);
        let gone = link.and_then(Option::take);
        if let Some(link) = &gone {
            self.past.add(link.transport.counters());
        }
        gone.is_some()
    }

    /// Applies a Modify QP after RTR.
    pub(in crate::udp) fn modify(&mut self, qpn: Qpn, attr: &QpAttr) {
        let index = qp_index(qpn);
        if let Some(link) = self.link(index) {
            link.transport.modify(attr);
            self.mark_ready(index);
        } else if let (Some(link), Some(first)) = (self.datagrams.link(qpn), attr.sq_psn) {
            link.start_sending(first);
        }
    }

    /// Moves a queue pair to the error state. The caller holds no lock on the regions.
    pub(in crate::udp) fn enter_error(&mut self, qpn: Qpn) {
        let index = qp_index(qpn);
        if let Some(link) = self.link(index) {
            link.transport.enter_error();
            link.deliver_completions();
            link.qp.end_in_error();
            self.mark_ready(index);
        } else if let Some(link) = self.datagrams.link(qpn) {
            link.enter_error();
        }
    }

    // --- requests

    /// Posts a request, which [`Driver::transmit`] sends.
    pub(in crate::udp) fn post(
        &mut self,
        regions: &Regions<'_>,
        qpn: Qpn,
        (count, request): (u64, &SendRequest<'_>),
    ) -> Result<(), WcStatus> {
        let (index, turn) = (qp_index(qpn), self.turns);
        let link = self.link(index).ok_or(WcStatus::WrFlushErr)?;
        link.post(count, request, regions)?;
        link.delayed_ack.posted(turn);
        self.mark_ready(index);
        Ok(())
    }

    /// Whether a send request of a connected queue pair is not complete.
    pub(in crate::udp) fn has_unfinished_sends(&mut self, qpn: Qpn) -> bool {
        let link = self.link(qp_index(qpn));
        link.is_some_and(Link::has_unfinished_sends)
    }

    /// Whether a connected queue pair is in SQD and not drained.
    pub(in crate::udp) fn is_draining(&mut self, qpn: Qpn) -> bool {
        let link = self.link(qp_index(qpn));
        link.is_some_and(Link::is_draining)
    }

    /// Adds a datagram to the batch, which [`Driver::transmit`] sends. Returns the request's status, or `None` if
    /// the socket takes no more packets now.
    pub(in crate::udp) fn send_datagram(
        &mut self,
        regions: &Regions<'_>,
        qp: &dyn Endpoint,
        request: &SendRequest<'_>,
    ) -> Option<WcStatus> {
        if self.room == Room::Full {
            self.room = self.tx.flush();
        }
        if self.room == Room::Full {
            return None;
        }
        let Some(to) = &request.to else {
            return Some(WcStatus::LocQpOpErr);
        };
        let Some(address) = self.datagrams.target(qp.domain(), to) else {
            return Some(WcStatus::LocQpOpErr);
        };
        let work = match send_work(0, request) {
            Ok(work) => work,
            Err(status) => return Some(status),
        };
        let Some(link) = self.datagrams.link(qp.qpn()) else {
            return Some(WcStatus::WrFlushErr);
        };
        let memory = regions.reached_by(qp.qpn(), (qp.domain(), qp.domain()), qp.peer_access());
        let there = UdDestination {
            address,
            qpn: to.qpn,
            qkey: to.qkey,
        };
        match link.send(work, there, (&memory, self.tx.place())) {
            Outgoing::Failed(status) => Some(status),
            Outgoing::Packet(length, target) => {
                self.room = self.tx.add(&target, length);
                Some(WcStatus::Success)
            }
        }
    }

    /// Adds a management datagram to the batch, which [`Driver::transmit`] sends. It is lost if the socket takes no more
    /// packets now, or the address is of the other IP version: its sender repeats it.
    pub(in crate::udp) fn send_mad(
        &mut self,
        to: SocketAddr,
        mad: &[u8; mad::LEN],
        sender: Option<SocketAddr>,
    ) {
        if self.room == Room::Full {
            self.room = self.tx.flush();
        }
        let class = TrafficClass::default();
        let target = Target::new(self.tx.socket().at(), Remote { to, class });
        if let (Room::Free, Some(target)) = (self.room, target) {
            let length = mailbox::build(mad, sender, self.tx.place());
            self.room = self.tx.add(&target, length);
        }
    }
}
