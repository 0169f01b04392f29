//! The driver of the UDP port: receives packets, runs timers and sends. It runs on the thread that polls, posts or
//! waits, or on the engine's.

mod queue_pairs;
mod receive;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use adverb_impair::FaultInjector;
use adverb_units::{Span, Time};
use adverb_verbs::{Impairment, PathMtu};

use super::datagram_table::DatagramTable;
use super::delayed_ack::{Caller, DelayedAcks};
use super::drops::Drops;
use super::host::Host;
use super::link::{Link, Stop};
use super::mailbox::{Mailbox, ReceivedMad};
use super::memory::Regions;
use super::rx_batch::RxBatch;
use super::socket::RoceSocket;
use super::totals::Totals;
use super::tx_batch::{Room, TxBatch};

/// Turns of an idle poller per look at the clock: reading it is a good part of an idle turn's cost, and a timer may
/// expire a few turns late.
const TURNS_PER_LOOK: u64 = 4;

/// The work left after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// None until this time, or until a packet arrives.
    Until(Option<Time>),
    /// Queue pairs have more to send now.
    More,
    /// Packets are waiting for room in the socket's send buffer.
    Blocked,
}

/// Whether a turn has changed the state of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No queue pair has changed.
    None,
    Made,
}

/// The connected queue pairs of a UDP port, and its buffers.
#[derive(Debug)]
pub(super) struct Driver {
    began: Instant,
    /// By index of the queue pair.
    links: Vec<Option<Box<Link>>>,
    /// Indices of queue pairs that may have packets to send, in turn: one that has sent, or filled the socket, goes behind
    /// the others.
    ready: VecDeque<u32>,
    /// Empty between turns; kept to reuse its memory.
    still_ready: VecDeque<u32>,
    /// `None` while its packets are being delivered.
    rx: Option<Box<RxBatch>>,
    tx: TxBatch,
    room: Room,
    pub(super) datagrams: DatagramTable,
    /// Takes the packets to queue pair 1, if the program wants them.
    pub(super) mailbox: Option<Arc<Mailbox>>,
    /// Packets to queue pair 1 while it is closed, which the turn forwards or refuses.
    unclaimed: Vec<ReceivedMad>,
    /// Connections that failed. Their queue pairs are moved to the error state after the lock on the regions
    /// has been released: a completion queue's lock comes before it.
    failed: Vec<u32>,
    /// The earliest time at which a timer may expire.
    deadline: Option<Time>,
    window: u32,
    delayed_acks: DelayedAcks,
    /// Number of turns.
    turns: u64,
    /// The last turn was idle.
    was_idle: bool,
    drops: Drops,
    /// Counters of destroyed queue pairs.
    past: Totals,
    #[cfg(feature = "testing")]
    pub(super) receive_faults: Option<FaultInjector<super::packet::ReceivedDatagram<'static>>>,
}

impl Driver {
    pub(super) fn new(
        (socket, mtu): (&Arc<RoceSocket>, PathMtu),
        window: u32,
        delayed_acks: DelayedAcks,
    ) -> Self {
        let own = socket.at();
        Driver {
            began: Instant::now(),
            links: Vec::new(),
            ready: VecDeque::new(),
            still_ready: VecDeque::new(),
            rx: None,
            tx: TxBatch::new(socket),
            room: Room::Free,
            datagrams: DatagramTable::new(own, mtu),
            mailbox: None,
            unclaimed: Vec::new(),
            failed: Vec::new(),
            deadline: None,
            window,
            delayed_acks,
            turns: 0,
            was_idle: false,
            drops: Drops::default(),
            past: Totals::default(),
            #[cfg(feature = "testing")]
            receive_faults: None,
        }
    }

    pub(super) fn now(&self) -> Time {
        Time::ZERO + Span::from(self.began.elapsed())
    }

    // --- queue pairs

    /// Moves the queue pairs of failed connections to the error state. The caller holds no lock on the regions.
    pub(super) fn end_failed(&mut self) {
        while let Some(index) = self.failed.pop() {
            if let Some(link) = self.link(index) {
                if let Some(fault) = link.transport.take_fault() {
                    link.qp.report_fault(fault);
                }
                link.qp.end_in_error();
            }
        }
    }

    fn link(&mut self, index: u32) -> Option<&mut Link> {
        self.links.get_mut(index as usize)?.as_deref_mut()
    }

    fn mark_ready(&mut self, index: u32) {
        if let Some(link) = self.links.get_mut(index as usize)
            && let Some(link) = link
            && !link.is_ready
        {
            link.is_ready = true;
            self.ready.push_back(index);
        }
    }

    // --- turns

    /// Receives, runs timers and sends.
    #[inline]
    pub(super) fn turn(
        &mut self,
        host: &dyn Host,
        socket: &RoceSocket,
        caller: Caller,
    ) -> Progress {
        self.turns += 1;
        let received_at = self.receive(host, socket, caller);
        self.was_idle = received_at.is_none();
        if !self.unclaimed.is_empty() {
            self.forward_unclaimed(host);
        }
        self.look_at_timers(received_at, caller);
        if self.ready.is_empty() && self.room == Room::Free && !self.is_release_due() {
            return if received_at.is_none() {
                Progress::None
            } else {
                Progress::Made
            };
        }
        let now = received_at.unwrap_or_else(|| self.now());
        self.transmit(now, &Regions::of(host), caller);
        self.end_failed();
        Progress::Made
    }

    /// Handles expired timers. `now` is the time, if it is known.
    #[inline]
    fn look_at_timers(&mut self, now: Option<Time>, caller: Caller) {
        let Some(deadline) = self.deadline else {
            return;
        };
        let may_wait = caller == Caller::Poller && !self.turns.is_multiple_of(TURNS_PER_LOOK);
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
                    link.transport.handle_timeout(now);
                    self.mark_ready(index as u32);
                }
                deadline => self.bring_forward(deadline),
            }
        }
        self.bring_forward(self.next_release());
    }

    fn bring_forward(&mut self, deadline: Option<Time>) {
        self.deadline = match (self.deadline, deadline) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
    }

    /// Delivers the completions of the ready queue pairs and sends their packets.
    pub(super) fn transmit(&mut self, mut now: Time, regions: &Regions<'_>, caller: Caller) {
        self.deliver_ready();
        self.room = self.tx.flush();
        let mut still_ready = std::mem::take(&mut self.still_ready);
        while self.room == Room::Free
            && let Some(index) = self.ready.pop_front()
        {
            let Some(link) = self.links.get_mut(index as usize).and_then(Option::as_mut) else {
                continue;
            };
            if self.delayed_acks == DelayedAcks::On
                && link.delays_ack((caller, self.turns), &self.tx)
            {
                still_ready.push_back(index);
                continue;
            }
            let stop = link.transmit(now, regions, &mut self.tx);
            link.deliver_completions();
            if link.has_failed() {
                self.failed.push(index);
            }
            link.is_ready = stop != Stop::Done;
            if link.is_ready {
                still_ready.push_back(index);
            }
            let deadline = link.deadline();
            self.bring_forward(deadline);
            if stop == Stop::Full {
                self.room = Room::Full;
            }
            // Sending many packets takes time.
            if !self.ready.is_empty() {
                now = self.now();
            }
        }
        self.ready.append(&mut still_ready);
        self.still_ready = still_ready;
        self.room = self.tx.flush();
        self.bring_forward(self.next_release());
    }

    /// Delivers the completions of the ready queue pairs.
    #[inline]
    fn deliver_ready(&mut self) {
        for index in 0..self.ready.len() {
            if let Some(link) = self.link(self.ready[index]) {
                link.deliver_completions();
            }
        }
    }

    /// Injects faults into all further packets.
    pub(super) fn impair(&mut self, how: Impairment) {
        self.tx.impair(how);
    }

    /// Returns when the next packet that fault injection holds back is due.
    pub(super) fn next_release(&self) -> Option<Time> {
        let at = self.tx.impaired()?.next_release()?;
        Some(Time::ZERO + Span::from(at.saturating_duration_since(self.began)))
    }

    /// Whether a packet that fault injection holds back is due.
    fn is_release_due(&self) -> bool {
        self.next_release().is_some_and(|at| at <= self.now())
    }

    /// Sends the packets that are due.
    pub(super) fn release(&mut self) {
        if self.is_release_due() {
            self.room = self.tx.flush();
        }
    }

    /// Returns the work left.
    pub(super) fn left(&self) -> Left {
        match self.room {
            Room::Full => Left::Blocked,
            Room::Free if !self.ready.is_empty() => Left::More,
            Room::Free => Left::Until(self.deadline),
        }
    }

    // --- counters

    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        let mut all = self.past.clone();
        let links = self.links.iter().flatten();
        links.for_each(|link| all.add(link.transport.counters()));
        self.datagrams.counters().for_each(|link| all.add(link));
        let mut counters = all.by_name();
        counters.extend(self.drops.by_name());
        counters.insert("drop_at_socket".to_owned(), self.tx.socket().dropped());
        counters.insert("send_err".to_owned(), self.tx.refused);
        if let Some(capture) = self.tx.socket().capture() {
            counters.insert("not_captured_pkts".to_owned(), capture.missing());
        }
        let impaired = self.tx.impaired().map(FaultInjector::counters);
        counters.extend(impaired.into_iter().flatten());
        counters
    }
}
