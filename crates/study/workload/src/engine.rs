//! The load engine: posts requests over links, within limits, and reaps their completions.
//!
//! It is the active side of `blast` and each requester of a pattern. Its cost per message limits the rate that
//! can be measured, so requests are built once, only `wr_id` and flags are written for each message, and the
//! clock is read rarely.

use adverb_results::Opcode;
use adverb_units::{Span, Time};
use adverb_verbs::{
    Comparison, Context, Destination, Imm, Operation, QueuePair, RemoteAddress, SendFlags,
    SendRequest, Sge, Station, WorkCompletion, WrId,
};

use crate::attend::Attend;
use crate::error::Fault;
use crate::load::{Aim, Load, Places, Refill, Seen};
use crate::polled::Polled;
use crate::random::Random;
use crate::reap::{BATCH, Reaper};
use crate::sample::{Ticker, Watch};

/// Target of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'w> {
    /// The peer's memory.
    pub(crate) remote: RemoteAddress,
    /// Its queue pair, if each request carries an address.
    pub(crate) to: Option<Destination<'w>>,
}

/// Payload that differs between messages, so that it can be checked.
pub(crate) trait Contents {
    /// Prepares the memory and the request of message `message` of a link, in its buffer `buffer`.
    fn fill(
        &self,
        link_and_buffer: (usize, u64),
        message: u64,
        operation: &mut Operation,
    ) -> Result<(), Fault>;

    /// Checks the data that message `message` of a link fetched into its buffer `buffer`.
    fn check(&self, link_and_buffer: (usize, u64), message: u64) -> Result<(), Fault>;
}

/// Receives on the completion queue of the requests.
pub(crate) trait Inbox {
    /// Handles the completions of receives, moves completions of requests to the front, and returns the number
    /// of the latter.
    fn take(&self, completions: &mut [WorkCompletion]) -> Result<usize, Fault>;

    /// Returns the number of messages received.
    fn received(&self) -> u64;
}

/// Objects that the engine uses.
pub(crate) struct Parts<'w, S: Station, A> {
    pub(crate) station: &'w S,
    pub(crate) attend: &'w A,
    pub(crate) load: &'w Load,
    pub(crate) mr: &'w <S::Context as Context>::Mr,
    pub(crate) reaper: Reaper<'w, S::Context>,
    /// The queue pairs, and the targets of their requests: one per queue pair, or any for DC initiators.
    pub(crate) qps: Vec<&'w <S::Context as Context>::Qp>,
    pub(crate) targets: Vec<Target<'w>>,
    /// Whether the queue pairs are DC initiators.
    pub(crate) is_dc: bool,
    /// The local buffers.
    pub(crate) buffers: &'w [[Sge<'w>; 1]],
    /// Contents of the messages, if the payload is checked.
    pub(crate) contents: Option<&'w dyn Contents>,
    /// Receives whose completions arrive through the reaper, too.
    pub(crate) inbox: Option<&'w dyn Inbox>,
    /// Destination memory of READs, if it is polled.
    pub(crate) polled: Option<Polled>,
}

/// One queue pair and its requests.
struct Link<'w, C: Context> {
    qp: &'w C::Qp,
    /// A request for each position in a list. With a buffer for each message, a request for each buffer, and
    /// all of them twice, so that consecutive requests are one slice, also across the end.
    ring: Vec<SendRequest<'w>>,
    /// Position of the next request.
    next: usize,
    outstanding: u32,
    /// Requests posted since the last signaled one.
    unsignaled: u32,
    posted: u64,
    /// No message is posted over this link after this one, if links are filled ([`Refill::List`]).
    end: u64,
    completed: u64,
    /// The expected value of the next compare-and-swap.
    expected: u64,
}

/// Posts and reaps.
pub(crate) struct Engine<'w, S: Station, A> {
    parts: Parts<'w, S, A>,
    links: Vec<Link<'w, S::Context>>,
    flags: SendFlags,
    signal_every: u32,
    /// Requests in a list.
    list: u32,
    /// Maximum number of requests in flight.
    window: u64,
    /// Whether requests differ between messages.
    varies: bool,
    outstanding: u32,
    /// Signaled requests in flight.
    signaled: u32,
    posted: u64,
    completed: u64,
    /// No message is posted after this one.
    end: u64,
    /// The link of the next request.
    next: usize,
    random: Random,
    /// The target of the last request of a DC initiator.
    aimed: usize,
    ticker: Ticker,
    completions: Vec<WorkCompletion>,
}

impl<'w, S: Station, A: Attend> Engine<'w, S, A> {
    pub(crate) fn new(parts: Parts<'w, S, A>) -> Self {
        let load = parts.load;
        let links = parts.qps.iter().enumerate();
        let links: Vec<_> = links
            .map(|(link, qp)| Link::new(&parts, link, qp))
            .collect();
        let per_link = u64::from(load.limits.per_qp);
        let window = (links.len() as u64 * per_link).min(load.limits.per_member.into());
        let batch = match load.refill {
            // All completed requests are posted again as one list.
            Refill::List => (window as usize).max(BATCH),
            Refill::Continuous | Refill::Window => BATCH,
        };
        Engine {
            flags: match load.inline {
                true => SendFlags::INLINE,
                false => SendFlags::empty(),
            },
            signal_every: load.signal_every(),
            list: load.list(),
            window,
            varies: parts.contents.is_some()
                || parts.is_dc
                || load.op == Opcode::Cas
                || matches!(load.places, Places::Random { .. }),
            outstanding: 0,
            signaled: 0,
            posted: 0,
            completed: 0,
            end: u64::MAX,
            next: 0,
            random: Random::new(load.seed),
            aimed: 0,
            ticker: Ticker::new(parts.station),
            completions: vec![WorkCompletion::default(); batch],
            links,
            parts,
        }
    }

    /// Returns the number of messages posted.
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    /// Returns the number of messages completed.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns the number of messages posted over each link.
    pub(crate) fn carried(&self) -> Vec<u64> {
        self.links.iter().map(|link| link.posted).collect()
    }

    /// Keeps requests in flight until all messages before `end` are completed, or until `is_over` returns true
    /// for the time and the number of completed messages, with which it is called now and then.
    pub(crate) fn run(
        &mut self,
        end: u64,
        watch: &mut Watch<'_>,
        mut is_over: impl FnMut(Time, u64) -> bool,
    ) -> Result<(), Fault> {
        self.end = end;
        self.share();
        if self.parts.load.seen == Seen::Memory {
            return self.read_and_look(watch, &mut is_over);
        }
        while self.completed < end {
            let room = self.window - u64::from(self.outstanding);
            let room = room.min(end - self.posted);
            let began = watch.posting(self.parts.station, (self.posted, room));
            if began.is_some_and(|now| is_over(now, self.completed)) {
                return Ok(());
            }
            match self.parts.load.refill {
                Refill::List => self.fill_links(watch)?,
                Refill::Continuous | Refill::Window => self.fill(watch)?,
            }
            let mut now = self.reap(watch)?;
            while self.parts.load.refill == Refill::Window && self.signaled > 0 {
                now = self.reap(watch)?.or(now);
            }
            let now = now.or_else(|| self.ticker.tick(self.parts.station));
            if now.is_some_and(|now| is_over(now, self.completed)) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Divides the messages that are left among the links. A link that is filled whenever it has room would not know
    /// otherwise which of its messages is the last one, which must be signaled.
    fn share(&mut self) {
        let (left, links) = (self.end - self.posted, self.links.len() as u64);
        for (link, before) in self.links.iter_mut().zip(0..) {
            link.end = link.posted + left / links + u64::from(before < left % links);
        }
    }

    /// Waits for all requests in flight. If the last requests of a link are unsignaled, posts a signaled one
    /// whose completion covers them.
    pub(crate) fn finish(&mut self, watch: &mut Watch<'_>) -> Result<(), Fault> {
        for link in 0..self.links.len() {
            if self.links[link].unsignaled > 0 {
                self.end = u64::MAX;
                while self.room(link) == 0 {
                    self.reap(watch)?;
                }
                self.end = self.posted + 1;
                self.post(link, 1, watch)?;
            }
        }
        self.drain(watch)
    }

    /// Waits until the inbox has received `messages` messages.
    pub(crate) fn receive(&mut self, messages: u64, watch: &mut Watch<'_>) -> Result<(), Fault> {
        while self
            .parts
            .inbox
            .is_some_and(|inbox| inbox.received() < messages)
        {
            self.reap(watch)?;
        }
        Ok(())
    }

    /// Waits for all signaled requests. Unsignaled ones end with the queue pair.
    pub(crate) fn drain(&mut self, watch: &mut Watch<'_>) -> Result<(), Fault> {
        while self.signaled > 0 {
            self.reap(watch)?;
        }
        Ok(())
    }

    /// Posts lists while there is room.
    #[inline]
    fn fill(&mut self, watch: &mut Watch<'_>) -> Result<(), Fault> {
        let list = self.list;
        while self.may_post(list) {
            let link = self.choose(list);
            self.post(link, list, watch)?;
        }
        // A single request fits wherever there is room.
        if list > 1 || self.signaled == 0 {
            self.fill_silent_links(list, watch)?;
        }
        Ok(())
    }

    /// Posts a shorter list if nothing in flight is signaled: no completion would ever make room.
    #[cold]
    fn fill_silent_links(&mut self, list: u32, watch: &mut Watch<'_>) -> Result<(), Fault> {
        for link in 0..self.links.len() {
            let silent = &self.links[link];
            let is_silent = silent.outstanding > 0 && silent.outstanding == silent.unsignaled;
            let room = self.room(link);
            if is_silent && (1..list).contains(&room) {
                self.post(link, room, watch)?;
            }
        }
        if self.signaled == 0 && self.posted < self.end {
            let link = self.choose(1);
            self.post(link, list.min(self.room(link)), watch)?;
        }
        Ok(())
    }

    /// Posts one list over each link that fills it.
    fn fill_links(&mut self, watch: &mut Watch<'_>) -> Result<(), Fault> {
        for link in 0..self.links.len() {
            let Link { end, posted, .. } = self.links[link];
            let room = u64::from(self.room(link)).min(end - posted);
            if room > 0 {
                self.post(link, room as u32, watch)?;
            }
        }
        Ok(())
    }

    /// Returns the number of requests that fit on a link.
    fn room(&self, link: usize) -> u32 {
        let limits = &self.parts.load.limits;
        let of_link = limits.per_qp - self.links[link].outstanding;
        let of_member = limits.per_member - self.outstanding;
        let left = u32::try_from(self.end - self.posted).unwrap_or(u32::MAX);
        of_link.min(of_member).min(left)
    }

    /// Whether a list may be posted: over any link, if links are chosen at random; otherwise only over the next
    /// link, so that all links get equal turns.
    #[inline]
    fn may_post(&self, list: u32) -> bool {
        let limits = &self.parts.load.limits;
        let has_room = |link: &Link<'_, _>| link.outstanding + list <= limits.per_qp;
        let link_has_room = if self.parts.load.random_link {
            self.links.iter().any(has_room)
        } else {
            has_room(&self.links[self.next])
        };
        link_has_room
            && self.outstanding + list <= limits.per_member
            && self.posted + u64::from(list) <= self.end
    }

    /// Returns the next link with room, in turn or at random.
    #[inline]
    fn choose(&mut self, list: u32) -> usize {
        let links = self.links.len();
        if self.parts.load.random_link {
            self.next = self.random.below(links as u64) as usize;
        }
        while self.links[self.next].outstanding + list > self.parts.load.limits.per_qp {
            self.next = following(self.next, links);
        }
        let chosen = self.next;
        self.next = following(chosen, links);
        chosen
    }

    /// Posts the next `count` requests over a link in one call.
    #[inline]
    fn post(&mut self, link: usize, count: u32, watch: &mut Watch<'_>) -> Result<(), Fault> {
        if self.parts.load.think > Span::ZERO {
            self.parts.station.compute(self.parts.load.think);
        }
        let (first, count) = (self.links[link].next, count as usize);
        for place in first..first + count {
            self.prepare(link, place, watch)?;
        }
        let link = &mut self.links[link];
        link.qp.post_send(&link.ring[first..first + count])?;
        if self.parts.load.has_buffers() {
            link.next = (first + count) % (link.ring.len() / 2);
        }
        Ok(())
    }

    /// Updates the request at `place` for the next message.
    #[inline]
    fn prepare(&mut self, at: usize, place: usize, watch: &mut Watch<'_>) -> Result<(), Fault> {
        let link = &mut self.links[at];
        watch.posted(self.posted, (at, link.posted));
        link.posted += 1;
        link.outstanding += 1;
        link.unsignaled += 1;
        self.posted += 1;
        self.outstanding += 1;
        // The `wr_id` contains the number of requests that the completion covers.
        let name = WrId((at as u64) << 32 | u64::from(link.unsignaled));
        let mut flags = self.flags;
        if link.unsignaled >= self.signal_every || self.must_signal(at) {
            flags |= SendFlags::SIGNALED;
            self.links[at].unsignaled = 0;
            self.signaled += 1;
        }
        let request = &mut self.links[at].ring[place];
        request.wr_id = name;
        request.flags = flags;
        if self.varies {
            self.vary(at, place)?;
        }
        Ok(())
    }

    /// Whether the last posted request must be signaled in addition to the regular ones.
    #[inline]
    fn must_signal(&self, at: usize) -> bool {
        let load = self.parts.load;
        let left = self.end - self.posted;
        let is_full = self.outstanding >= load.limits.per_member;
        let links = self.links.len() as u64;
        let is_last_of_link = match load.refill {
            Refill::List => self.links[at].posted == self.links[at].end,
            Refill::Continuous | Refill::Window => links > 1 && left < links * u64::from(self.list),
        };
        // Without a signaled request in flight, a full window would stay full.
        let is_stuck = self.signaled == 0 && self.parts.polled.is_none();
        left == 0 || is_last_of_link || is_full && (load.refill == Refill::Window || is_stuck)
    }

    /// Writes the payload and operands that differ between messages.
    #[cold]
    fn vary(&mut self, at: usize, place: usize) -> Result<(), Fault> {
        let wire = self.wire(at);
        let (load, target) = (self.parts.load, self.parts.targets[wire]);
        let link = &mut self.links[at];
        let (buffers, message) = (link.ring.len() / 2, link.posted - 1);
        let request = &mut link.ring[place];
        if let Some(contents) = self.parts.contents {
            let buffer = (at, (place % buffers) as u64);
            return contents.fill(buffer, message, &mut request.operation);
        }
        let there = match load.places {
            Places::Random { align, within } => {
                let offset = self.random.below(within / align.max(1)) * align;
                target.remote.at(offset)
            }
            _ => load.place(target.remote, at, place),
        };
        request.to = target.to;
        request.operation = operation(load.op, there, at);
        if let Operation::CompareSwap(_, comparison) = &mut request.operation {
            let expected = link.expected;
            link.expected += 1;
            let new = expected + 1;
            *comparison = Comparison { expected, new };
        }
        Ok(())
    }

    /// Returns the target of a request: the queue pair's peer, or the one that a DC initiator addresses.
    fn wire(&mut self, qp: usize) -> usize {
        if !self.parts.is_dc {
            return qp;
        }
        let peers = self.parts.targets.len();
        self.aimed = match self.parts.load.dc.aim {
            Aim::Fixed(peer) => peer as usize % peers,
            Aim::Random => self.random.below(peers as u64) as usize,
            // Any except the last one.
            Aim::Other if peers > 1 => {
                let step = 1 + self.random.below(peers as u64 - 1) as usize;
                (self.aimed + step) % peers
            }
            Aim::Other => 0,
        };
        self.aimed
    }

    /// Waits for completions. Returns the time, if it was read.
    #[inline]
    fn reap(&mut self, watch: &mut Watch<'_>) -> Result<Option<Time>, Fault> {
        let Parts {
            station,
            attend,
            reaper,
            ..
        } = &mut self.parts;
        let mut n = reaper.reap(*station, *attend, &mut self.completions)?;
        if let Some(inbox) = self.parts.inbox {
            n = inbox.take(&mut self.completions[..n])?;
        }
        for wc in &self.completions[..n] {
            let (at, count) = ((wc.wr_id.0 >> 32) as usize, wc.wr_id.0 as u32);
            let link = &mut self.links[at];
            if let Some(contents) = self.parts.contents {
                let buffers = (link.ring.len() / 2) as u64;
                for message in link.completed..link.completed + u64::from(count) {
                    contents.check((at, message % buffers), message)?;
                }
            }
            link.outstanding -= count;
            link.completed += u64::from(count);
            self.outstanding -= count;
            self.completed += u64::from(count);
        }
        self.signaled -= n as u32;
        let is_timed = watch
            .open()
            .is_some_and(|(link, message)| message < self.links[link].completed);
        Ok(is_timed.then(|| watch.reaped(self.parts.station, self.posted, self.window)))
    }

    /// Posts READs over links at random or in turn, each as soon as the oldest of the window is done and its
    /// link has room.
    fn read_and_look(
        &mut self,
        watch: &mut Watch<'_>,
        is_over: &mut impl FnMut(Time, u64) -> bool,
    ) -> Result<(), Fault> {
        let (links, per_qp) = (self.links.len(), self.parts.load.limits.per_qp);
        loop {
            let (station, attend, mr) = (self.parts.station, self.parts.attend, self.parts.mr);
            let Some(polled) = &mut self.parts.polled else {
                return Ok(());
            };
            let is_due = polled.is_full() && polled.wait_for_oldest(station, attend, mr)?;
            if is_due && is_over(station.now(), polled.done()) {
                return Ok(());
            }
            let link = if self.parts.load.random_link {
                self.random.below(links as u64) as usize
            } else {
                following(self.next, links)
            };
            self.next = link;
            while self.links[link].outstanding >= per_qp {
                self.reap(watch)?;
            }
            if let Some(polled) = &mut self.parts.polled {
                polled.mark(mr)?;
                self.links[link].ring[0].sges = &self.parts.buffers[polled.post()];
            }
            self.post(link, 1, watch)?;
        }
    }
}

impl<'w, C: Context> Link<'w, C> {
    fn new<S: Station<Context = C>, A>(
        parts: &Parts<'w, S, A>,
        link: usize,
        qp: &'w C::Qp,
    ) -> Self {
        let load = parts.load;
        let target = parts.targets[link % parts.targets.len()];
        let per_qp = load.limits.per_qp as usize;
        let length = match load.places {
            Places::Buffers(_) => 2 * per_qp,
            _ => load.list() as usize,
        };
        let request = |place: usize| {
            let buffer: &'w [Sge<'w>; 1] = match load.places {
                Places::Buffers(_) => &parts.buffers[link * per_qp + place % per_qp],
                _ => &parts.buffers[0],
            };
            // Some devices take a length of 0 as 2 GiB.
            let pieces: &'w [Sge<'w>] = if load.payload() > 0 { buffer } else { &[] };
            let there = load.place(target.remote, link, place);
            let operation = operation(load.op, there, link);
            let mut request = SendRequest::new(WrId(0), operation, pieces);
            request.to = target.to;
            request
        };
        Link {
            qp,
            ring: (0..length).map(request).collect(),
            next: 0,
            outstanding: 0,
            unsignaled: 0,
            posted: 0,
            end: u64::MAX,
            completed: 0,
            expected: 0,
        }
    }
}

#[inline]
fn following(link: usize, links: usize) -> usize {
    if link + 1 == links { 0 } else { link + 1 }
}

fn operation(op: Opcode, there: RemoteAddress, link: usize) -> Operation {
    let imm = Imm(link as u32);
    match op {
        Opcode::Send => Operation::Send,
        Opcode::SendImm => Operation::SendWithImm(imm),
        Opcode::Write | Opcode::WriteRead => Operation::RdmaWrite(there),
        Opcode::WriteImm => Operation::RdmaWriteWithImm(there, imm),
        Opcode::Read => Operation::RdmaRead(there),
        Opcode::FetchAdd => Operation::FetchAdd(there, 1),
        Opcode::Cas => {
            let (expected, new) = (0, 1);
            Operation::CompareSwap(there, Comparison { expected, new })
        }
    }
}
