//! The load engine: posts requests over links, within limits, and reaps their completions.
//!
//! It is the active side of `blast` and each requester of a pattern. What a message costs here is what
//! the fastest device is measured with, so requests are built once and only their names and flags are
//! written for each message, and the clock is read seldom.

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

/// Where requests go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'w> {
    /// The peer's memory.
    pub(crate) remote: RemoteAddress,
    /// Its queue pair, where each request carries its address.
    pub(crate) to: Option<Destination<'w>>,
}

/// What makes each message differ from the one before it in its place: its payload can be checked.
pub(crate) trait Contents {
    /// Prepares the memory and the request of message `message` of a link, in its buffer `buffer`.
    fn fill(
        &self,
        link_and_buffer: (usize, u64),
        message: u64,
        operation: &mut Operation,
    ) -> Result<(), Fault>;

    /// Checks what message `message` of a link brought into its buffer `buffer`.
    fn check(&self, link_and_buffer: (usize, u64), message: u64) -> Result<(), Fault>;
}

/// What comes in while requests go out, by the same completion queue.
pub(crate) trait Inbox {
    /// Takes the completions of receives, leaves those of requests at the beginning, and returns how many
    /// they are.
    fn take(&self, completions: &mut [WorkCompletion]) -> Result<usize, Fault>;

    /// Messages received.
    fn received(&self) -> u64;
}

/// What the engine works with.
pub(crate) struct Parts<'w, S: Station, A> {
    pub(crate) station: &'w S,
    pub(crate) attend: &'w A,
    pub(crate) load: &'w Load,
    pub(crate) mr: &'w <S::Context as Context>::Mr,
    pub(crate) reaper: Reaper<'w, S::Context>,
    /// The queue pairs, and where their requests go: to one each, or, by DC initiators, to any.
    pub(crate) qps: Vec<&'w <S::Context as Context>::Qp>,
    pub(crate) targets: Vec<Target<'w>>,
    /// Whether the queue pairs are DC initiators.
    pub(crate) is_dc: bool,
    /// The local buffers.
    pub(crate) buffers: &'w [[Sge<'w>; 1]],
    /// Checked payload, if it is to be checked.
    pub(crate) contents: Option<&'w dyn Contents>,
    /// Receives whose completions come by the reaper, too.
    pub(crate) inbox: Option<&'w dyn Inbox>,
    /// Memory that READs land in which is polled.
    pub(crate) polled: Option<Polled>,
}

/// One queue pair and its requests.
struct Link<'w, C: Context> {
    qp: &'w C::Qp,
    /// A request for each place of a list. With a buffer for each message, a request for each buffer, twice
    /// in a row: those that follow one another, also past the last, are one slice.
    ring: Vec<SendRequest<'w>>,
    /// Place of the next request.
    next: usize,
    outstanding: u32,
    /// Posted since the last signaled request.
    unsignaled: u32,
    posted: u64,
    completed: u64,
    /// What compare-and-swap expects.
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
    /// Requests in flight at most.
    window: u64,
    /// Whether requests change from message to message.
    varies: bool,
    outstanding: u32,
    /// Of them, those that ask for a completion.
    signaled: u32,
    posted: u64,
    completed: u64,
    /// No message is posted after this one.
    end: u64,
    /// The link of the next request.
    next: usize,
    random: Random,
    /// The peer that the last request of a DC initiator went to.
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
            // All that has completed makes one list.
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

    /// Messages posted.
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    /// Messages completed.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// Messages posted over each link.
    pub(crate) fn carried(&self) -> Vec<u64> {
        self.links.iter().map(|link| link.posted).collect()
    }

    /// Keeps requests in flight until all messages before `end` are completed, or until `is_over`, which is
    /// told the time and the number of completed messages now and then.
    pub(crate) fn run(
        &mut self,
        end: u64,
        watch: &mut Watch<'_>,
        mut is_over: impl FnMut(Time, u64) -> bool,
    ) -> Result<(), Fault> {
        self.end = end;
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

    /// Waits for what is in flight. Where the last requests of a link ask for no completion, one more does,
    /// which stands for them.
    pub(crate) fn finish(&mut self, watch: &mut Watch<'_>) -> Result<(), Fault> {
        self.end = u64::MAX;
        for link in 0..self.links.len() {
            if self.links[link].unsignaled > 0 {
                while self.room(link) == 0 {
                    self.reap(watch)?;
                }
                self.end = self.posted + 1;
                self.post(link, 1, watch)?;
            }
        }
        self.drain(watch)
    }

    /// Waits until the inbox has received as many messages.
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

    /// Waits for what is signaled. What is not completes unseen, when the queue pair goes.
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
        // A single request finds room wherever there is any.
        if list > 1 || self.signaled == 0 {
            self.fill_silent_links(list, watch)?;
        }
        Ok(())
    }

    /// Where nothing that is in flight asks for a completion, a shorter list is the only way on.
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

    /// Posts all that each link has room for, in one list.
    fn fill_links(&mut self, watch: &mut Watch<'_>) -> Result<(), Fault> {
        for link in 0..self.links.len() {
            let room = self.room(link);
            if room > 0 {
                self.post(link, room, watch)?;
            }
        }
        Ok(())
    }

    /// Requests that may still be posted over a link.
    fn room(&self, link: usize) -> u32 {
        let limits = &self.parts.load.limits;
        let of_link = limits.per_qp - self.links[link].outstanding;
        let of_member = limits.per_member - self.outstanding;
        let left = u32::try_from(self.end - self.posted).unwrap_or(u32::MAX);
        of_link.min(of_member).min(left)
    }

    /// Whether a list may be posted: over any link, where it is chosen at random; else over the next one, for
    /// which those after it wait, so that no link gets more than its turns.
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

    /// The next link, in turn or at random, that has room.
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

    /// Makes the request at `place` that of the next message.
    #[inline]
    fn prepare(&mut self, at: usize, place: usize, watch: &mut Watch<'_>) -> Result<(), Fault> {
        let link = &mut self.links[at];
        watch.posted(self.posted, (at, link.posted));
        link.posted += 1;
        link.outstanding += 1;
        link.unsignaled += 1;
        self.posted += 1;
        self.outstanding += 1;
        // The name says how many requests the completion stands for.
        let name = WrId((at as u64) << 32 | u64::from(link.unsignaled));
        let mut flags = self.flags;
        if link.unsignaled >= self.signal_every || self.must_signal() {
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

    /// Whether the last posted request must ask for a completion, out of its turn.
    #[inline]
    fn must_signal(&self) -> bool {
        let load = self.parts.load;
        let left = self.end - self.posted;
        let is_full = self.outstanding >= load.limits.per_member;
        let is_last_round = match self.links.len() as u64 {
            1 => left == 0,
            links => left < links * u64::from(self.list),
        };
        // Without a completion to come, a full window would stay full.
        let is_stuck = self.signaled == 0 && self.parts.polled.is_none();
        is_last_round || is_full && (load.refill == Refill::Window || is_stuck)
    }

    /// Writes what differs from the request that had this place before.
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

    /// Whom a request of a queue pair goes to: its own peer, or the one that a DC initiator addresses.
    fn wire(&mut self, qp: usize) -> usize {
        if !self.parts.is_dc {
            return qp;
        }
        let peers = self.parts.targets.len();
        self.aimed = match self.parts.load.dc.aim {
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

    /// Posts READs over links at random or in turn, each as soon as the oldest of the window is done.
    /// Where the link has no room, it waits for that.
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
            // To some devices an element of length 0 is one of 2 GiB.
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
