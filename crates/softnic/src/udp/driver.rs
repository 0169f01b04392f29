//! What drives the UDP port, on the thread of whoever polls, posts or waits, or of the engine: takes
//! packets from the socket, runs timers, sends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use adverb_transport::{Beginning, Patience, UdDestination};
use adverb_units::{Impairment, Span, Time};
use adverb_verbs::{PathMtu, Qpn, RnrTimer, SendRequest, WcStatus};
use adverb_wire::bth::BthView;
use adverb_wire::frame::Flow;
use adverb_wire::{Bth, DEFAULT_PKEY, Packet, UnknownOpcode, WireError, icrc};

use super::answering::By;
use super::datagram_table::DatagramTable;
use super::datagrams::Outgoing;
use super::drops::{Drop, Drops};
use super::impairment::{self, Impaired};
use super::inbox::{self, Datagram, Icrc, Inbox};
use super::lanes::Lanes;
use super::link::{Link, Peer, Sending, send_work};
use super::memory::Regions;
use super::outbox::{Outbox, Room};
use super::seams::Seams;
use super::socket::RoceSocket;
use super::totals::Totals;
use crate::layout::{qp_index, slot_of};
use crate::port::Port;
use crate::qp::QpInner;

/// Receiving calls of one turn, and packets that it sends of one queue pair, so that none starves the
/// others, nor what the program does beside.
const CALLS: usize = 32;
const PACKETS: usize = 128;
/// Who polls in vain looks at the clock in one turn of so many: that costs a good part of such a turn, and a
/// timer may well end a few turns late.
const TURNS_PER_LOOK: u64 = 4;
/// Membership is the upper bit of a partition key; the rest is the partition.
const PARTITION: u16 = 0x7fff;

/// What is left to do after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing before this time, or a packet.
    Until(Option<Time>),
    /// More of the same, at once.
    More,
    /// Packets that the socket does not take now.
    Blocked,
}

/// What a turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing: no queue pair has changed.
    Idle,
    Busy,
}

/// The socket's queue pairs and buffers.
#[derive(Debug)]
pub(super) struct Driver {
    slot: u32,
    began: Instant,
    /// By index of the queue pair.
    links: Vec<Option<Box<Link>>>,
    /// Those that may have something to send.
    listed: Vec<u32>,
    /// Empty: kept for its memory.
    again: Vec<u32>,
    /// Out while what it holds is taken.
    inbox: Option<Box<Inbox>>,
    seams: Seams,
    outbox: Outbox,
    lanes: Lanes,
    room: Room,
    pub(super) datagrams: DatagramTable,
    /// Connections that are over, to be told to their queue pairs without the regions being held: a
    /// completion queue's lock comes before those.
    over: Vec<u32>,
    /// No timer ends before.
    deadline: Option<Time>,
    window: u32,
    /// Counts turns.
    turns: u64,
    /// The last turn found nothing.
    was_idle: bool,
    drops: Drops,
    /// Of queue pairs that are gone.
    past: Totals,
    #[cfg(feature = "testing")]
    pub(super) mangler: super::mangle::Mangler,
}

impl Driver {
    pub(super) fn new((socket, mtu): (&Arc<RoceSocket>, PathMtu), slot: u32, window: u32) -> Self {
        let own = socket.at();
        Driver {
            slot,
            began: Instant::now(),
            links: Vec::new(),
            listed: Vec::new(),
            again: Vec::new(),
            inbox: None,
            seams: Seams::new(),
            outbox: Outbox::new(socket),
            lanes: Lanes::new(socket),
            room: Room::Free,
            datagrams: DatagramTable::new(own, mtu),
            over: Vec::new(),
            deadline: None,
            window,
            turns: 0,
            was_idle: false,
            drops: Drops::default(),
            past: Totals::default(),
            #[cfg(feature = "testing")]
            mangler: super::mangle::Mangler::default(),
        }
    }

    pub(super) fn now(&self) -> Time {
        Time::ZERO + Span::from(self.began.elapsed())
    }

    // --- queue pairs

    /// Connects a queue pair. None where its addresses are of two families.
    pub(super) fn connect(&mut self, qp: &Arc<QpInner>, peer: &Peer) -> Option<()> {
        let way = self.lanes.way(peer.socket)?;
        let index = qp_index(qp.qpn()) as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        self.disconnect(qp.qpn());
        self.seams.begin();
        self.links[index] = Some(Box::new(Link::new(qp, peer, way, self.window)));
        Some(())
    }

    /// Takes the peers to whom lanes are missing. (Packets that suffer have to be sealed before their turn.)
    pub(super) fn take_missing_lanes(&mut self) -> Vec<SocketAddr> {
        match self.outbox.impaired() {
            None => self.lanes.take_missing(),
            Some(_) => Vec::new(),
        }
    }

    /// What left by lanes that are lost leaves by the one socket from now on.
    #[cold]
    fn leave_lanes(&mut self) {
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
    pub(super) fn open_lane(&mut self, lane: RoceSocket) {
        let Some(way) = self.lanes.open(lane) else {
            return;
        };
        let links = self.links.iter_mut().flatten();
        links
            .filter(|link| link.way.target.to == way.target.to)
            .for_each(|link| link.way = way.clone());
    }

    /// From now on a UD queue pair gets what comes for it.
    pub(super) fn attach(&mut self, qp: &Arc<QpInner>) {
        self.seams.begin();
        self.datagrams.insert(qp);
    }

    /// Forgets a queue pair; whether there was one.
    pub(super) fn disconnect(&mut self, qpn: Qpn) -> bool {
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

    pub(super) fn start_sending(&mut self, qpn: Qpn, sending: &Sending) {
        if let Some(link) = self.link(qp_index(qpn)) {
            link.machine.start_sending(sending);
        } else if let Some(link) = self.datagrams.link(qpn) {
            link.start_sending(sending);
        }
    }

    pub(super) fn set_rnr_timer(&mut self, qpn: Qpn, timer: RnrTimer) {
        if let Some(link) = self.link(qp_index(qpn)) {
            link.machine.set_rnr_timer(timer);
        }
    }

    pub(super) fn set_patience(&mut self, qpn: Qpn, patience: &Patience) {
        if let Some(link) = self.link(qp_index(qpn)) {
            link.machine.set_patience(patience);
        }
    }

    pub(super) fn set_beginning(&mut self, qpn: Qpn, beginning: Beginning) {
        let index = qp_index(qpn);
        if let Some(link) = self.link(index) {
            link.machine.set_beginning(beginning);
            self.list(index);
        }
    }

    /// Has a queue pair send again whose send queue was in error.
    pub(super) fn resume(&mut self, qpn: Qpn) {
        if let Some(link) = self.link(qp_index(qpn)) {
            link.machine.resume();
        }
    }

    /// Takes a queue pair to the error state. The regions are not held.
    pub(super) fn enter_error(&mut self, qpn: Qpn) {
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

    /// Has queue pairs follow their connections that are over. The regions are not held.
    pub(super) fn end_those_over(&mut self) {
        while let Some(index) = self.over.pop() {
            if let Some(link) = self.link(index) {
                link.qp.end_in_error();
            }
        }
    }

    fn link(&mut self, index: u32) -> Option<&mut Link> {
        self.links.get_mut(index as usize)?.as_deref_mut()
    }

    /// Gives a request to a queue pair; [`Driver::transmit`] sends it.
    pub(super) fn post(
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
    pub(super) fn send_datagram(
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

    fn list(&mut self, index: u32) {
        if let Some(link) = self.links.get_mut(index as usize)
            && let Some(link) = link
            && !link.is_listed
        {
            link.is_listed = true;
            self.listed.push(index);
        }
    }

    // --- turns

    /// Takes what has come, looks at the timers, sends what is to be sent.
    #[inline]
    pub(super) fn turn(&mut self, port: &Port, socket: &RoceSocket, by: By) -> Turn {
        self.turns += 1;
        let came = self.take_what_came(port, socket, by);
        self.was_idle = came.is_none();
        self.look_at_timers(came, by);
        if self.listed.is_empty() && self.room == Room::Free && !self.holds_strays() {
            return if came.is_none() {
                Turn::Idle
            } else {
                Turn::Busy
            };
        }
        let now = came.unwrap_or_else(|| self.now());
        self.transmit(now, &Regions::of(port), by);
        self.end_those_over();
        Turn::Busy
    }

    /// Takes what waits at the sockets; when, if there was something. A look at the clock is a good
    /// part of what a packet costs, so the rest of the turn takes this time for the present one.
    fn take_what_came(&mut self, port: &Port, socket: &RoceSocket, by: By) -> Option<Time> {
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
            self.drops.count(why);
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
        let is_here = slot_of(qpn) == self.slot && !datagram.to.ip().is_multicast();
        match self.link(qp_index(qpn)).filter(|_| is_here) {
            Some(link) if link.peer_ip() != datagram.from.ip() => Err(Drop::WrongSource),
            link => Ok(link),
        }
    }

    /// Ends the timers that are due; `now`, if the time is known.
    #[inline]
    fn look_at_timers(&mut self, now: Option<Time>, by: By) {
        let Some(deadline) = self.deadline else {
            return;
        };
        let may_wait = by == By::Poller && !self.turns.is_multiple_of(TURNS_PER_LOOK);
        if now.is_none() && may_wait {
            return;
        }
        let now = now.unwrap_or_else(|| self.now());
        if now >= deadline {
            self.end_timers(now);
        }
    }

    #[cold]
    fn end_timers(&mut self, now: Time) {
        self.deadline = None;
        for index in 0..self.links.len() {
            let Some(link) = self.links[index].as_deref_mut() else {
                continue;
            };
            match link.deadline() {
                Some(deadline) if deadline <= now => {
                    link.machine.handle_timeout(now);
                    self.list(index as u32);
                }
                deadline => self.bring_forward(deadline),
            }
        }
    }

    fn bring_forward(&mut self, deadline: Option<Time>) {
        self.deadline = match (self.deadline, deadline) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
    }

    /// Hands on what the listed queue pairs have completed, and sends what they have to send.
    pub(super) fn transmit(&mut self, mut now: Time, regions: &Regions<'_>, by: By) {
        for index in 0..self.listed.len() {
            if let Some(link) = self.link(self.listed[index]) {
                link.settle();
            }
        }
        let mut room = self.outbox.flush();
        let mut again = std::mem::take(&mut self.again);
        while room == Room::Free
            && let Some(index) = self.listed.pop()
        {
            let Some(link) = self.links.get_mut(index as usize).and_then(Option::as_mut) else {
                continue;
            };
            if link.answering.may_keep(by)
                && link.machine.only_acknowledges()
                && self.outbox.joins(link.peer_ip())
                && link.answering.keeps(by, self.turns)
            {
                again.push(index);
                continue;
            }
            let memory = link.reach(regions);
            let mut left = PACKETS;
            while room == Room::Free && left > 0 {
                let Some(length) = link
                    .machine
                    .poll_transmit(now, &memory, self.outbox.place())
                else {
                    break;
                };
                room = self.outbox.add(&link.way, length);
                left -= 1;
            }
            link.settle();
            if link.is_over() {
                self.over.push(index);
            }
            link.is_listed = room == Room::Full || left == 0;
            if link.is_listed {
                again.push(index);
            }
            let deadline = link.deadline();
            self.bring_forward(deadline);
            // Its packets took a while, if they were many.
            if !self.listed.is_empty() {
                now = self.now();
            }
        }
        self.listed.append(&mut again);
        self.again = again;
        self.room = self.outbox.flush();
        if !self.outbox.lost.is_empty() {
            self.leave_lanes();
        }
        if self.holds_strays() {
            self.bring_forward(Some(now + Span::from(impairment::HOLD)));
        }
    }

    /// From now on the packets that are sent suffer so.
    pub(super) fn impair(&mut self, how: Impairment) {
        self.outbox.impair(how);
    }

    fn holds_strays(&self) -> bool {
        self.outbox.impaired().is_some_and(Impaired::holds)
    }

    /// What is left to do.
    pub(super) fn left(&self) -> Left {
        match self.room {
            Room::Full => Left::Blocked,
            Room::Free if !self.listed.is_empty() => Left::More,
            Room::Free => Left::Until(self.deadline),
        }
    }

    // --- counters

    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        let mut all = self.past.clone();
        let links = self.links.iter().flatten();
        links.for_each(|link| all.add(link.machine.counters()));
        self.datagrams.counters().for_each(|link| all.add(link));
        let mut counters = all.by_name();
        counters.extend(self.drops.by_name());
        counters.insert("send_err".to_owned(), self.outbox.refused);
        let impaired = self.outbox.impaired().map(Impaired::counters);
        counters.extend(impaired.into_iter().flatten());
        counters
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
