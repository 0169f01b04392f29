//! What queue pairs ask of the driver: to connect, to change, to send.

use std::sync::Arc;

use adverb_transport::UdDestination;
use adverb_verbs::{QpAttr, Qpn, SendRequest, WcStatus};

use super::Driver;
use crate::layout::qp_index;
use crate::qp::QpInner;
use crate::udp::address::{ip_of, socket_of};
use crate::udp::datagrams::Outgoing;
use crate::udp::link::{Link, send_work};
use crate::udp::memory::Regions;
use crate::udp::outbox::Room;
use crate::udp::socket::{Remote, RoceSocket};

impl Driver {
    // --- life and settings

    /// Lets a queue pair receive (RTR), an RC or UC one from the peer that `attr` names. `None` if the
    /// peer's address is of another IP version.
    pub(in crate::udp) fn connect(&mut self, qp: &Arc<QpInner>, attr: &QpAttr) -> Option<()> {
        let (Some(dest), Some(address)) = (attr.dest_qpn, attr.address) else {
            self.seams.begin();
            self.datagrams.insert(qp);
            return Some(());
        };
        let way = self.lanes.way(Remote {
            to: socket_of(ip_of(address.dgid), dest),
            class: address.traffic_class,
        })?;
        let index = qp_index(qp.qpn()) as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        self.disconnect(qp.qpn());
        self.seams.begin();
        self.links[index] = Some(Box::new(Link::new(qp, attr, way, self.window)));
        Some(())
    }

    /// Takes the peers to whom lanes are missing. (Packets that suffer have to be sealed before their turn.)
    pub(in crate::udp) fn take_missing_lanes(&mut self) -> Vec<Remote> {
        match self.outbox.impaired() {
            None => self.lanes.take_missing(),
            Some(_) => Vec::new(),
        }
    }

    /// What left by lanes that are lost leaves by the one socket from now on.
    #[cold]
    pub(super) fn leave_lanes(&mut self) {
        for lost in self.outbox.lost.drain(..) {
            let links = self.links.iter_mut().flatten();
            for link in links.filter(|link| Arc::ptr_eq(&link.way.by, &lost)) {
                if let Some(way) = self.lanes.main_to(link.way.target.to) {
                    link.way = way;
                }
            }
        }
    }

    /// From now on what goes to a peer leaves by this lane.
    pub(in crate::udp) fn open_lane(&mut self, lane: RoceSocket) {
        let Some(way) = self.lanes.open(lane) else {
            return;
        };
        let links = self.links.iter_mut().flatten();
        links
            .filter(|link| link.way.target.to == way.target.to)
            .for_each(|link| link.way = way.clone());
    }

    /// Forgets a queue pair; whether there was one.
    pub(in crate::udp) fn disconnect(&mut self, qpn: Qpn) -> bool {
        if let Some(gone) = self.datagrams.remove(qpn) {
            self.past.add(gone.counters());
            return true;
        }
        let link = self.links.get_mut(qp_index(qpn) as usize);
        let gone = link.and_then(Option::take);
        if let Some(link) = &gone {
            self.past.add(link.machine.counters());
        }
        gone.is_some()
    }

    /// Applies a Modify QP after RTR.
    pub(in crate::udp) fn modify(&mut self, qpn: Qpn, attr: &QpAttr) {
        let index = qp_index(qpn);
        if let Some(link) = self.link(index) {
            link.machine.modify(attr);
            self.list(index);
        } else if let (Some(link), Some(first)) = (self.datagrams.link(qpn), attr.sq_psn) {
            link.start_sending(first);
        }
    }

    /// Takes a queue pair to the error state. The regions are not held.
    pub(in crate::udp) fn enter_error(&mut self, qpn: Qpn) {
        let index = qp_index(qpn);
        if let Some(link) = self.link(index) {
            link.machine.enter_error();
            link.settle();
            link.qp.end_in_error();
            self.list(index);
        } else if let Some(link) = self.datagrams.link(qpn) {
            link.enter_error();
        }
    }

    // --- requests

    /// Gives a request to a queue pair; [`Driver::transmit`] sends it.
    pub(in crate::udp) fn post(
        &mut self,
        regions: &Regions<'_>,
        qpn: Qpn,
        (count, request): (u64, &SendRequest<'_>),
    ) -> Result<(), WcStatus> {
        let (index, turn) = (qp_index(qpn), self.turns);
        let link = self.link(index).ok_or(WcStatus::WrFlushErr)?;
        link.post(count, request, regions)?;
        link.answering.posted(turn);
        self.list(index);
        Ok(())
    }

    /// Sends a datagram, but for [`Driver::transmit`]; how the request ended, or none where it has to
    /// wait for the socket.
    pub(in crate::udp) fn send_datagram(
        &mut self,
        regions: &Regions<'_>,
        qp: &QpInner,
        request: &SendRequest<'_>,
    ) -> Option<WcStatus> {
        if self.room == Room::Full {
            self.room = self.outbox.flush();
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
        let memory = regions.reached_by((qp.domain(), qp.domain()), qp.peer_access());
        let there = UdDestination {
            address,
            qpn: to.qpn,
            qkey: to.qkey,
        };
        match link.send(work, there, (&memory, self.outbox.place())) {
            Outgoing::Failed(status) => Some(status),
            Outgoing::Packet(length, target) => {
                self.room = self.outbox.add(&self.lanes.main(target), length);
                Some(WcStatus::Success)
            }
        }
    }
}
