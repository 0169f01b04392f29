//! Receives packets, checks them and passes them to their queue pairs. Nothing that arrives is trusted.

use std::net::SocketAddr;

#[cfg(feature = "testing")]
use adverb_impair::Verdict;
use adverb_transport::cm::{CmParams, Manager};
use adverb_units::Time;
use adverb_verbs::Qpn;
use adverb_wire::mad::GSI_QPN;
use adverb_wire::{Bth, DEFAULT_PKEY, Opcode, Packet, UnknownOpcode, WireError, icrc};

use super::Driver;
use crate::shm::layout::qp_index;
use crate::udp::delayed_ack::Caller;
use crate::udp::drops::PortDrop;
use crate::udp::host::Host;
use crate::udp::link::Link;
use crate::udp::mailbox;
use crate::udp::memory::Regions;
use crate::udp::packet::{ReceivedDatagram, unseen};
use crate::udp::rx_batch::RxBatch;
use crate::udp::socket::RoceSocket;

/// Maximum number of receive calls per turn, so that arriving packets starve neither sending nor the program.
const CALLS: usize = 32;
/// Number of packets of other services, such as congestion notifications, after which the filter is attached.
const UNSERVED: u64 = 16;
/// Maximum number of packets to a closed queue pair 1 per turn. Each costs a look into the shared directory.
const UNCLAIMED: usize = 16;
/// Membership is the upper bit of a partition key; the rest is the partition.
const PARTITION: u16 = 0x7fff;

impl Driver {
    /// Receives and delivers the packets that are waiting at the sockets. Returns the time of the last receive, `None` if nothing
    /// was waiting. Reading the clock is a good part of a packet's cost, so the rest of the turn uses this time.
    pub(super) fn receive(
        &mut self,
        host: &dyn Host,
        socket: &RoceSocket,
        by: Caller,
    ) -> Option<Time> {
        // A busy poll usually ends with a single message; another receive call would delay it.
        let most = match by {
            Caller::Poller if self.was_idle => 1,
            _ => CALLS,
        };
        let mut rx = self.rx.take().unwrap_or_default();
        let mut last = None;
        let mut calls = 0;
        while calls < most && rx.fill(socket) {
            last = Some(self.deliver_all(&rx, &Regions::of(host)));
            calls += 1;
        }
        if !self.datagrams.groups.is_empty() {
            last = self.take_from_groups(&mut rx, host).or(last);
        }
        self.rx = Some(rx);
        last
    }

    /// Receives and delivers the packets that are waiting at a socket other than the main one.
    pub(in crate::udp) fn receive_from(&mut self, host: &dyn Host, socket: &RoceSocket) {
        let mut rx = self.rx.take().unwrap_or_default();
        let mut calls = 0..CALLS;
        while calls.next().is_some() && rx.fill(socket) {
            self.deliver_all(&rx, &Regions::of(host));
        }
        self.rx = Some(rx);
    }

    #[cold]
    fn take_from_groups(&mut self, rx: &mut RxBatch, host: &dyn Host) -> Option<Time> {
        let mut last = None;
        for group in self.datagrams.groups.sockets() {
            // The rest is received in the next turn.
            if rx.fill(&group) {
                last = Some(self.deliver_all(rx, &Regions::of(host)));
            }
        }
        last
    }

    /// Delivers the received packets; returns the time.
    #[cfg(not(feature = "testing"))]
    fn deliver_all(&mut self, rx: &RxBatch, regions: &Regions<'_>) -> Time {
        let now = self.now();
        rx.datagrams()
            .for_each(|datagram| self.take(datagram, now, regions));
        now
    }

    /// The same, with fault injection.
    #[cfg(feature = "testing")]
    fn deliver_all(&mut self, rx: &RxBatch, regions: &Regions<'_>) -> Time {
        let now = self.now();
        let mut faults = self.receive_faults.take();
        for datagram in rx.datagrams() {
            let Some(faults) = &mut faults else {
                self.take(datagram, now, regions);
                continue;
            };
            let alone = || datagram.bytes.to_vec();
            if faults.judge(&datagram.with_bytes(&[]), alone) == Verdict::Pass {
                self.take(datagram, now, regions);
            }
            faults.release(|route, bytes| {
                self.take(route.with_bytes(bytes), now, regions);
                true
            });
        }
        self.receive_faults = faults;
        now
    }

    fn take(&mut self, datagram: ReceivedDatagram<'_>, now: Time, regions: &Regions<'_>) {
        if let Err(why) = self.deliver(datagram, now, regions) {
            self.drop(why);
        }
    }

    /// Counts a dropped packet. The filter costs each packet about 100 ns, so it is attached only once it turns
    /// out to be useful.
    #[cold]
    fn drop(&mut self, why: PortDrop) {
        self.drops.count(why);
        if why == PortDrop::Service && self.drops.of(why) == UNSERVED {
            // Without a filter the driver continues to drop them.
            let _ = self.tx.socket().refuse_notifications();
        }
    }

    /// Passes a packet to its queue pair.
    #[inline]
    fn deliver(
        &mut self,
        datagram: ReceivedDatagram<'_>,
        now: Time,
        regions: &Regions<'_>,
    ) -> Result<(), PortDrop> {
        let flow = datagram.flow().ok_or(PortDrop::WrongSource)?;
        // This device's packets have their index in the batch as identification. For other senders it is solved for.
        let assumed = unseen(datagram.place);
        let found = icrc::find_identification(&flow, assumed, datagram.bytes);
        let (bytes, identification) = found.map_err(|_| PortDrop::Icrc)?;
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(WireError::Opcode(unknown)) => return self.deliver_unknown(&unknown, &datagram),
            Err(WireError::Pad { .. } | WireError::UnexpectedPayload { .. }) => {
                return self.deliver_malformed(bytes, &datagram);
            }
            Err(_) => return Err(PortDrop::Malformed),
        };
        let bth = &packet.headers.bth;
        check_partition(bth.pkey)?;
        if bth.opcode == Opcode::Cnp {
            return Err(PortDrop::Service);
        }
        let Some(link) = self.connected(bth.dest_qp, &datagram)? else {
            if bth.dest_qp == GSI_QPN {
                return self.deliver_mad(&packet, &datagram);
            }
            let header = (flow.addresses, datagram.bytes.len(), identification);
            let is_taken = self.datagrams.deliver(&packet, header);
            return is_taken.then_some(()).ok_or(PortDrop::UnknownQueuePair);
        };
        let is_request = !packet.opcode().verb().is_response();
        if is_request {
            link.pass_receives();
        }
        let srqn = packet.headers.xrc.map(|header| header.srqn);
        let mut memory = link.reach_for(regions, srqn);
        // The queue pair counts what it drops.
        let taken = link.transport.handle_packet(now, &packet, &mut memory);
        if is_request && taken.is_ok() && !std::mem::replace(&mut link.is_established, true) {
            link.qp.report_established();
        }
        self.mark_ready(qp_index(bth.dest_qp));
        Ok(())
    }

    /// Passes a packet to queue pair 1 to the program.
    #[cold]
    fn deliver_mad(
        &mut self,
        packet: &Packet<'_>,
        datagram: &ReceivedDatagram<'_>,
    ) -> Result<(), PortDrop> {
        // It may end a connection: what arrived before is complete when the program learns of it.
        self.deliver_ready();
        let own = self.tx.socket().at();
        let mad = mailbox::parse(packet, (datagram.from, own)).ok_or(PortDrop::Malformed)?;
        let is_taken = match &self.mailbox {
            Some(mailbox) => mailbox.put(mad),
            None if self.unclaimed.len() < UNCLAIMED => {
                self.unclaimed.push(mad);
                true
            }
            None => false,
        };
        is_taken.then_some(()).ok_or(PortDrop::Mailbox)
    }

    /// Forwards requests to the processes that listen, and refuses all others.
    #[cold]
    pub(super) fn forward_unclaimed(&mut self, host: &dyn Host) {
        let own = self.tx.socket().at();
        for mad in std::mem::take(&mut self.unclaimed) {
            let service = mad.requested_service();
            if let Some(port) = service.and_then(|service| host.listener(service)) {
                let to = SocketAddr::new(own.ip(), port);
                self.send_mad(to, &mad.bytes, Some(mad.from));
                continue;
            }
            // A manager without services.
            let mut manager = Manager::new(CmParams::default(), 1);
            manager.handle_mad(Time::ZERO, mad.from, &mad.bytes[..]);
            while let Some((to, answer)) = manager.poll_transmit() {
                self.send_mad(to, &answer, None);
            }
        }
        self.room = self.tx.flush();
    }

    /// Passes a packet with an unknown opcode to its queue pair, which drops it and may answer with a NAK.
    #[cold]
    fn deliver_unknown(
        &mut self,
        unknown: &UnknownOpcode,
        datagram: &ReceivedDatagram<'_>,
    ) -> Result<(), PortDrop> {
        check_partition(unknown.pkey)?;
        if unknown.service().is_none() {
            return Err(PortDrop::Service);
        }
        if let Some(link) = self.connected(unknown.dest_qp, datagram)? {
            link.transport.handle_unknown(unknown);
            self.mark_ready(qp_index(unknown.dest_qp));
            return Ok(());
        }
        let link = self.datagrams.link(unknown.dest_qp);
        link.ok_or(PortDrop::UnknownQueuePair)?
            .drop_unknown(unknown);
        Ok(())
    }

    /// Passes a packet whose length contradicts its headers to its queue pair, which drops it and may answer with
    /// a NAK.
    #[cold]
    fn deliver_malformed(
        &mut self,
        bytes: &[u8],
        datagram: &ReceivedDatagram<'_>,
    ) -> Result<(), PortDrop> {
        let (bth, _) = Bth::parse(bytes).map_err(|_| PortDrop::Malformed)?;
        check_partition(bth.pkey)?;
        let link = self.connected(bth.dest_qp, datagram)?;
        link.ok_or(PortDrop::Malformed)?
            .transport
            .handle_malformed(&bth);
        self.mark_ready(qp_index(bth.dest_qp));
        Ok(())
    }

    /// Returns the connected queue pair to which a datagram is addressed, if any.
    #[inline]
    fn connected(
        &mut self,
        qpn: Qpn,
        datagram: &ReceivedDatagram<'_>,
    ) -> Result<Option<&mut Link>, PortDrop> {
        let is_for_one = !datagram.to.ip().is_multicast();
        let link = self.link(qp_index(qpn));
        match link.filter(|link| is_for_one && link.qp.qpn() == qpn) {
            Some(link) if link.peer_ip() != datagram.from.ip() => Err(PortDrop::WrongSource),
            link => Ok(link),
        }
    }
}

fn check_partition(pkey: u16) -> Result<(), PortDrop> {
    if pkey & PARTITION == DEFAULT_PKEY & PARTITION {
        Ok(())
    } else {
        Err(PortDrop::Partition)
    }
}
