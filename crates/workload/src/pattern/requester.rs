//! Posting requests over links, within limits.

use std::collections::VecDeque;

use adverb_units::{Span, Time};
use adverb_verbs::{
    Comparison, Context, Imm, MemoryRegion, Operation, QueuePair, RemoteAddress, SendFlags,
    SendRequest, Sge, Station, WaitError, WorkCompletion, WrId,
};

use crate::pattern::error::PatternError;
use crate::pattern::load::{Aim, Load, MAX_LIST, Places, Refill, Request, Seen, Timing};
use crate::pattern::member::{BATCH, Watch};
use crate::pattern::polled::Polled;
use crate::pattern::random::Random;
use crate::pattern::reap::Reaper;
use crate::pattern::wiring::Wiring;

/// How long a requester waits for a completion before it gives up.
const PATIENCE: Span = Span::from_secs(10);

/// What one link has under way.
#[derive(Default)]
struct Track {
    under_way: u32,
    /// Posted since the last signaled request.
    unsignaled: u32,
    /// When requests were posted, where each is signaled.
    posted: VecDeque<Time>,
    /// What compare-and-swap expects.
    expected: u64,
    /// When it was last seen that requests were done.
    seen: Option<Time>,
    /// Requests that were done in the measured time.
    done: f64,
    /// Requests a nanosecond, at the last look.
    pace: f64,
}

/// A member that posts.
pub(crate) struct Requester<'w, S: Station> {
    station: &'w S,
    wiring: &'w Wiring<S::Context>,
    load: &'w Load,
    reaper: Reaper<'w, S>,
    tracks: Vec<Track>,
    under_way: u32,
    /// Of them, those that ask for a completion.
    signaled: u32,
    polled: Option<Polled>,
    next: usize,
    random: Random,
    /// The peer that the last request of a DC initiator went to.
    aimed: usize,
    signal_every: u32,
    began: Time,
    /// The time at the last look.
    now: Time,
}

impl<'w, S: Station> Requester<'w, S> {
    pub(crate) fn new(station: &'w S, wiring: &'w Wiring<S::Context>, load: &'w Load) -> Self {
        let now = station.now();
        Requester {
            station,
            wiring,
            load,
            reaper: Reaper::new(station, wiring),
            tracks: wiring.qps.iter().map(|_| Track::default()).collect(),
            aimed: 0,
            under_way: 0,
            signaled: 0,
            polled: Polled::of(load, wiring.polled),
            next: 0,
            random: Random::new(load.seed),
            signal_every: load.signal_every(),
            began: now,
            now,
        }
    }

    /// Posts and reaps until the watch's time is over; then waits for what is under way.
    pub(crate) fn run(mut self, watch: &mut Watch) -> Result<(), PatternError> {
        if self.load.seen == Seen::Memory {
            self.read_and_look(watch)?;
            return self.drain(watch);
        }
        while self.now < watch.until {
            match self.load.refill {
                Refill::List => self.fill_links()?,
                Refill::Continuous | Refill::Window => self.fill()?,
            }
            self.reap(watch)?;
            while self.load.refill == Refill::Window && self.signaled > 0 {
                self.reap(watch)?;
            }
        }
        self.drain(watch)
    }

    /// Posts lists while there is room.
    fn fill(&mut self) -> Result<(), PatternError> {
        let list = self.load.list();
        while self.may_post(list) {
            let link = self.choose(list);
            self.post(link, list)?;
        }
        self.fill_silent_links(list)
    }

    /// Where nothing that is under way asks for a completion, a shorter list is the only way on.
    fn fill_silent_links(&mut self, list: u32) -> Result<(), PatternError> {
        // A single request finds room wherever there is any.
        let links = if list > 1 { self.tracks.len() } else { 0 };
        for link in 0..links {
            let track = &self.tracks[link];
            let is_silent = track.under_way > 0 && track.under_way == track.unsignaled;
            let room = self.room(link);
            if is_silent && (1..list).contains(&room) {
                self.post(link, room)?;
            }
        }
        if self.signaled == 0 {
            let link = self.choose(1);
            self.post(link, list.min(self.room(link)))?;
        }
        Ok(())
    }

    /// Posts all that each link has room for, in one list.
    fn fill_links(&mut self) -> Result<(), PatternError> {
        for link in 0..self.tracks.len() {
            let room = self.room(link);
            if room > 0 {
                self.post(link, room)?;
            }
        }
        Ok(())
    }

    /// Requests that may still be posted over a link.
    fn room(&self, link: usize) -> u32 {
        let limits = &self.load.limits;
        let of_link = limits.per_qp - self.tracks[link].under_way;
        of_link.min(limits.per_member - self.under_way)
    }

    /// Whether a list may be posted: over any link, where it is chosen at random; else over the next one, for
    /// which those after it wait, so that no link gets more than its turns.
    fn may_post(&self, list: u32) -> bool {
        let limits = &self.load.limits;
        let has_room = |track: &Track| track.under_way + list <= limits.per_qp;
        let link_has_room = if self.load.random_link {
            self.tracks.iter().any(has_room)
        } else {
            has_room(&self.tracks[self.next])
        };
        self.under_way + list <= limits.per_member && link_has_room
    }

    /// The next link, in turn or at random, that has room.
    fn choose(&mut self, list: u32) -> usize {
        let links = self.tracks.len();
        if self.load.random_link {
            self.next = self.random.below(links as u64) as usize;
        }
        while self.tracks[self.next].under_way + list > self.load.limits.per_qp {
            self.next = (self.next + 1) % links;
        }
        let chosen = self.next;
        self.next = (chosen + 1) % links;
        chosen
    }

    fn post(&mut self, link: usize, list: u32) -> Result<(), PatternError> {
        if self.load.think > Span::ZERO {
            self.station.compute(self.load.think);
        }
        let payload = self.load.payload();
        let place = self.polled.as_ref().map_or(0, Polled::next);
        let sges = [self.wiring.mr.sge(place, payload)?];
        let pieces: &[Sge<'_>] = if payload > 0 { &sges } else { &[] };
        if list == 1 {
            let request = self.request((link, 0), pieces)?;
            return Ok(self.queue_pair(link).post_send(&[request])?);
        }
        let mut requests = [SendRequest::new(WrId(0), Operation::Send, pieces); MAX_LIST as usize];
        let mut left = list as usize;
        while left > 0 {
            let n = left.min(MAX_LIST as usize);
            for (position, request) in requests[..n].iter_mut().enumerate() {
                *request = self.request((link, position), pieces)?;
            }
            self.queue_pair(link).post_send(&requests[..n])?;
            left -= n;
        }
        Ok(())
    }

    fn queue_pair(&self, link: usize) -> &'w <S::Context as Context>::Qp {
        &self.wiring.qps[link]
    }

    /// The next request over a link, at its position in a list.
    fn request<'r>(
        &mut self,
        (link, position): (usize, usize),
        pieces: &'r [Sge<'r>],
    ) -> Result<SendRequest<'r>, PatternError>
    where
        'w: 'r,
    {
        let wire = self.wire(link);
        let operation = self.operation((link, position), wire);
        let is_timed = self.load.timing == Timing::Each && self.signal_every == 1;
        let now = is_timed.then(|| self.station.now());
        let track = &mut self.tracks[link];
        track.under_way += 1;
        track.unsignaled += 1;
        self.under_way += 1;
        track.posted.extend(now);
        let mut flags = SendFlags::empty();
        let last_of_window =
            self.load.refill == Refill::Window && self.under_way >= self.load.limits.per_member;
        // The name says how many requests the completion stands for.
        let stands_for = u64::from(track.unsignaled);
        // Without a completion to come, a full window would stay full.
        let is_stuck = self.signaled == 0
            && self.under_way >= self.load.limits.per_member
            && self.polled.is_none();
        if track.unsignaled >= self.signal_every || last_of_window || is_stuck {
            flags |= SendFlags::SIGNALED;
            track.unsignaled = 0;
            self.signaled += 1;
        }
        if self.load.inline {
            flags |= SendFlags::INLINE;
        }
        let name = WrId((link as u64) << 32 | stands_for);
        let request = SendRequest::new(name, operation, pieces).with_flags(flags);
        Ok(match self.wiring.destination(wire) {
            Some(to) => request.to(to),
            None => request,
        })
    }

    /// The link that a request of a queue pair goes over: its own, or the one that a DC initiator
    /// addresses.
    fn wire(&mut self, qp: usize) -> usize {
        if !self.wiring.is_dc() {
            return qp;
        }
        let peers = self.wiring.wires.len();
        self.aimed = match self.load.dc.aim {
            Aim::Fixed(peer) => peer as usize % peers,
            Aim::Random => self.random.below(peers as u64) as usize,
            // One of those that the last one was not.
            Aim::Other if peers > 1 => {
                let step = 1 + self.random.below(peers as u64 - 1) as usize;
                (self.aimed + step) % peers
            }
            Aim::Other => 0,
        };
        self.aimed
    }

    fn operation(&mut self, (link, position): (usize, usize), wire: usize) -> Operation {
        let there = self.place((link, position), wire);
        match self.load.request {
            Request::Send => Operation::Send,
            Request::SendHeaderOnly => Operation::SendWithImm(Imm(link as u32)),
            Request::Write => Operation::RdmaWrite(there),
            Request::WriteImm => Operation::RdmaWriteWithImm(there, Imm(link as u32)),
            Request::Read => Operation::RdmaRead(there),
            Request::FetchAdd => Operation::FetchAdd(there, 1),
            Request::CompareSwap => {
                let expected = self.tracks[link].expected;
                self.tracks[link].expected += 1;
                let new = expected + 1;
                Operation::CompareSwap(there, Comparison { expected, new })
            }
        }
    }

    fn place(&mut self, (link, position): (usize, usize), wire: usize) -> RemoteAddress {
        let there = self.wiring.wires[wire].remote;
        match self.load.places {
            Places::Own(distance) => {
                let first = (self.load.first_place + link as u64) * self.load.places_a_link();
                there.at((first + position as u64 % self.load.places_a_link()) * distance)
            }
            Places::Random { align, within } => {
                there.at(self.random.below(within / align.max(1)) * align)
            }
        }
    }

    /// Waits for completions; returns how many requests they stand for.
    fn reap(&mut self, watch: &mut Watch) -> Result<u32, PatternError> {
        let mut completions = [WorkCompletion::default(); BATCH];
        let n = self.reaper.reap(&mut completions, PATIENCE)?;
        let now = self.station.now();
        let mut all = 0;
        for wc in &completions[..n] {
            let (link, count) = ((wc.wr_id.0 >> 32) as usize, wc.wr_id.0 as u32);
            let track = &mut self.tracks[link];
            track.under_way -= count;
            all += count;
            let since = track.seen.unwrap_or(self.began);
            track.done += watch.share(since, now, count);
            if now < watch.until && now > since {
                track.pace = f64::from(count) / (now - since).as_ns_f64();
                track.seen = Some(now);
            }
            if let Some(posted) = track.posted.pop_front() {
                watch.timed(now, now - posted);
            }
        }
        self.under_way -= all;
        self.signaled -= n as u32;
        if self.polled.is_none() {
            watch.looked(self.station, now);
        }
        self.now = now;
        Ok(all)
    }

    /// Requests of a link that were done in the measured time, those that show only later among them.
    fn done(&self, track: &Track, watch: &Watch) -> f64 {
        let last = track.seen.filter(|_| self.signal_every > 1);
        let rest = last.map_or(0.0, |last| watch.rest(last, track.pace));
        track.done + rest.min(self.signal_every.into())
    }

    /// Posts READs over links at random or in turn, each as soon as the oldest of the window is done.
    /// Where the link has no room, it waits for that.
    fn read_and_look(&mut self, watch: &mut Watch) -> Result<(), PatternError> {
        let (links, per_qp) = (self.tracks.len(), self.load.limits.per_qp);
        while self.now < watch.until {
            if let Some(polled) = self.polled.as_mut()
                && polled.is_full()
            {
                let done = polled.wait_for_oldest(self.station, &self.wiring.mr, PATIENCE)?;
                if done > 0 {
                    self.now = self.station.now();
                    watch.saw(self.station, self.now, done);
                }
            }
            let link = if self.load.random_link {
                self.random.below(links as u64) as usize
            } else {
                (self.next + 1) % links
            };
            self.next = link;
            while self.tracks[link].under_way >= per_qp {
                self.reap(watch)?;
            }
            if let Some(polled) = self.polled.as_mut() {
                polled.mark(&self.wiring.mr)?;
            }
            self.post(link, 1)?;
            if let Some(polled) = self.polled.as_mut() {
                polled.posted();
            }
        }
        Ok(())
    }

    /// Waits for what is signaled. What is not completes unseen, when the queue pair goes.
    fn drain(&mut self, watch: &mut Watch) -> Result<(), PatternError> {
        let unsignaled: u32 = self.tracks.iter().map(|track| track.unsignaled).sum();
        while self.under_way > unsignaled {
            match self.reap(watch) {
                Ok(_) => {}
                Err(PatternError::Wait(WaitError::TimedOut { .. })) => break,
                Err(error) => return Err(error),
            }
        }
        if self.polled.is_none() {
            let done = self.tracks.iter().map(|track| self.done(track, watch));
            let done = done.sum();
            watch.did(done);
        }
        Ok(())
    }
}
