//! What drives the UDP port, on the thread of whoever polls, posts or waits, or of the engine: takes
//! packets from the socket, runs timers, sends.

mod queue_pairs;
mod receive;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use adverb_units::{Span, Time};
use adverb_verbs::{Impairment, PathMtu};

use super::answering::By;
use super::datagram_table::DatagramTable;
use super::drops::Drops;
use super::impairment::{self, Impaired};
use super::inbox::Inbox;
use super::lanes::Lanes;
use super::link::{Link, Stop};
use super::memory::Regions;
use super::outbox::{Outbox, Room};
use super::seams::Seams;
use super::socket::RoceSocket;
use super::totals::Totals;
use crate::port::Port;

/// Who polls in vain looks at the clock in one turn of so many: that costs a good part of such a turn, and a
/// timer may well end a few turns late.
const TURNS_PER_LOOK: u64 = 4;

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
    pub(super) fn new((socket, mtu): (&Arc<RoceSocket>, PathMtu), window: u32) -> Self {
        let own = socket.at();
        Driver {
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
        self.settle_listed();
        self.room = self.outbox.flush();
        let mut again = std::mem::take(&mut self.again);
        while self.room == Room::Free
            && let Some(index) = self.listed.pop()
        {
            let Some(link) = self.links.get_mut(index as usize).and_then(Option::as_mut) else {
                continue;
            };
            if link.waits_for_answer((by, self.turns), &self.outbox) {
                again.push(index);
                continue;
            }
            let stop = link.transmit(now, regions, &mut self.outbox);
            link.settle();
            if link.is_over() {
                self.over.push(index);
            }
            link.is_listed = stop != Stop::Done;
            if link.is_listed {
                again.push(index);
            }
            let deadline = link.deadline();
            self.bring_forward(deadline);
            if stop == Stop::Full {
                self.room = Room::Full;
            }
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

    /// Hands on what the listed queue pairs have completed.
    #[inline]
    fn settle_listed(&mut self) {
        for index in 0..self.listed.len() {
            if let Some(link) = self.link(self.listed[index]) {
                link.settle();
            }
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
        counters.insert("drop_at_socket".to_owned(), self.outbox.main().dropped());
        counters.insert("send_err".to_owned(), self.outbox.refused);
        let impaired = self.outbox.impaired().map(Impaired::counters);
        counters.extend(impaired.into_iter().flatten());
        counters
    }
}
