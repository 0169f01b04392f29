//! From the sockets to the queue pairs: what comes is checked, and taken by whom it is for. Nothing of
//! it is trusted.

use adverb_units::Time;
use adverb_verbs::Qpn;
use adverb_wire::bth::BthView;
use adverb_wire::frame::Flow;
use adverb_wire::{Bth, DEFAULT_PKEY, Opcode, Packet, UnknownOpcode, WireError, icrc};

use super::Driver;
use crate::layout::qp_index;
use crate::port::Port;
use crate::udp::answering::By;
use crate::udp::drops::Drop;
use crate::udp::inbox::{self, Datagram, Icrc, Inbox};
use crate::udp::link::Link;
use crate::udp::memory::Regions;
use crate::udp::seams::Seams;
use crate::udp::socket::RoceSocket;

/// Receiving calls of one turn, so that what comes starves neither what is to be sent nor what the program
/// does beside.
const CALLS: usize = 32;
/// Packets that reach no queue pair before the socket gets its filter.
const UNSERVED: u64 = 16;
/// Membership is the upper bit of a partition key; the rest is the partition.
const PARTITION: u16 = 0x7fff;

impl Driver {
    /// Takes what waits at the sockets; when, if there was something. A look at the clock is a good
    /// part of what a packet costs, so the rest of the turn takes this time for the present one.
    pub(super) fn take_what_came(
        &mut self,
        port: &Port,
        socket: &RoceSocket,
        by: By,
    ) -> Option<Time> {
        // What ends a wait by polling is one message, as a rule: to ask for more would delay it.
        let most = match by {
            By::Poller if self.was_idle => 1,
            _ => CALLS,
        };
        let mut inbox = self.inbox.take().unwrap_or_default();
        let mut came = None;
        let mut calls = 0;
        while calls < most && inbox.fill_by(socket, &mut self.seams) {
            came = Some(self.take_all(&inbox, &Regions::of(port)));
            calls += 1;
        }
        if !self.datagrams.groups.is_empty() {
            came = self.take_from_groups(&mut inbox, port).or(came);
        }
        self.inbox = Some(inbox);
        came
    }

    #[cold]
    fn take_from_groups(&mut self, inbox: &mut Inbox, port: &Port) -> Option<Time> {
        let mut came = None;
        for group in self.datagrams.groups.sockets() {
            // What it leaves the next turn takes.
            if inbox.fill(&group) {
                came = Some(self.take_all(inbox, &Regions::of(port)));
            }
        }
        came
    }

    /// Takes what was received; when.
    #[cfg(not(feature = "testing"))]
    fn take_all(&mut self, inbox: &Inbox, regions: &Regions<'_>) -> Time {
        let now = self.now();
        inbox
            .datagrams()
            .for_each(|datagram| self.take(datagram, now, regions));
        now
    }

    #[cfg(feature = "testing")]
    fn take_all(&mut self, inbox: &Inbox, regions: &Regions<'_>) -> Time {
        let now = self.now();
        let mut mangler = std::mem::take(&mut self.mangler);
        mangler.pass(inbox.datagrams(), |datagram| {
            self.take(datagram, now, regions);
        });
        self.mangler = mangler;
        now
    }

    fn take(&mut self, datagram: Datagram<'_>, now: Time, regions: &Regions<'_>) {
        if let Err(why) = self.deliver(datagram, now, regions) {
            self.drop(why);
        }
    }

    /// Counts a packet that reaches no queue pair. The filter costs each packet some 100 ns, so the socket
    /// has none until it turns out to be of use.
    #[cold]
    fn drop(&mut self, why: Drop) {
        let before = self.drops.unserved();
        self.drops.count(why);
        if before < UNSERVED && self.drops.unserved() == UNSERVED {
            // Without it the driver goes on to drop them.
            let _ = self.outbox.main().take_only_served();
        }
    }

    /// Gives a packet to its queue pair.
    #[inline]
    fn deliver(
        &mut self,
        datagram: Datagram<'_>,
        now: Time,
        regions: &Regions<'_>,
    ) -> Result<(), Drop> {
        let flow = inbox::flow(datagram.from, datagram.to).ok_or(Drop::WrongSource)?;
        let found = packet_of(&datagram, &flow, &mut self.seams);
        let (bytes, identification) = found.ok_or(Drop::Icrc)?;
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(WireError::Opcode(unknown)) => return self.deliver_unknown(&unknown, &datagram),
            Err(WireError::Pad { .. } | WireError::UnexpectedPayload { .. }) => {
                return self.deliver_malformed(bytes, &datagram);
            }
            Err(_) => return Err(Drop::Malformed),
        };
        let bth = &packet.headers.bth;
        check_partition(bth.pkey)?;
        if bth.opcode == Opcode::Cnp {
            return Err(Drop::Service);
        }
        let Some(link) = self.connected(bth.dest_qp, &datagram)? else {
            let way = (flow.addresses, datagram.bytes.len(), identification);
            let is_taken = self.datagrams.deliver(&packet, way);
            return is_taken.then_some(()).ok_or(Drop::UnknownQueuePair);
        };
        if !packet.opcode().verb().is_response() {
            link.feed();
        }
        let mut memory = link.reach(regions);
        // What it drops it counts itself.
        let _ = link.machine.handle_packet(now, &packet, &mut memory);
        self.list(qp_index(bth.dest_qp));
        Ok(())
    }

    /// Gives a packet of an unknown opcode to its queue pair, which drops it and may have to say so.
    #[cold]
    fn deliver_unknown(
        &mut self,
        unknown: &UnknownOpcode,
        datagram: &Datagram<'_>,
    ) -> Result<(), Drop> {
        check_partition(unknown.pkey)?;
        if unknown.service().is_none() {
            return Err(Drop::Service);
        }
        if let Some(link) = self.connected(unknown.dest_qp, datagram)? {
            link.machine.handle_unknown(unknown);
            self.list(qp_index(unknown.dest_qp));
            return Ok(());
        }
        let link = self.datagrams.link(unknown.dest_qp);
        link.ok_or(Drop::UnknownQueuePair)?.drop_unknown(unknown);
        Ok(())
    }

    /// Gives a packet whose length does not go with its headers to its queue pair, which drops it and may
    /// have to say so.
    #[cold]
    fn deliver_malformed(&mut self, bytes: &[u8], datagram: &Datagram<'_>) -> Result<(), Drop> {
        let view = BthView::new(bytes).map_err(|_| Drop::Malformed)?.0;
        let bth = Bth::parse(&view).map_err(|_| Drop::Malformed)?;
        check_partition(bth.pkey)?;
        let link = self.connected(bth.dest_qp, datagram)?;
        link.ok_or(Drop::Malformed)?.machine.handle_malformed(&bth);
        self.list(qp_index(bth.dest_qp));
        Ok(())
    }

    /// The connected queue pair that a datagram is for, if it is for one.
    #[inline]
    fn connected(&mut self, qpn: Qpn, datagram: &Datagram<'_>) -> Result<Option<&mut Link>, Drop> {
        let is_for_one = !datagram.to.ip().is_multicast();
        let link = self.link(qp_index(qpn));
        match link.filter(|link| is_for_one && link.qp.qpn() == qpn) {
            Some(link) if link.peer_ip() != datagram.from.ip() => Err(Drop::WrongSource),
            link => Ok(link),
        }
    }
}

fn check_partition(pkey: u16) -> Result<(), Drop> {
    if pkey & PARTITION == DEFAULT_PKEY & PARTITION {
        Ok(())
    } else {
        Err(Drop::Partition)
    }
}

/// The packet of a datagram, if its ICRC is right, and its identification.
#[inline]
fn packet_of<'a>(
    datagram: &Datagram<'a>,
    flow: &Flow,
    seams: &mut Seams,
) -> Option<(&'a [u8], u16)> {
    let bytes = datagram.bytes;
    match datagram.icrc {
        Icrc::Right(identification) => {
            let (packet, _) = icrc::split(bytes).ok()?;
            Some((packet, identification))
        }
        Icrc::Unchecked => seams.packet(flow, datagram.place, bytes),
        Icrc::Wrong => None,
    }
}
