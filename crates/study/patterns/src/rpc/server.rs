//! The server loop of a core: polls for requests, executes them, answers.

use adverb_units::{Span, Time};
use adverb_verbs::{
    Imm, MemoryRegion, Operation, QueuePair, SendFlags, SendRequest, Sge, Station, WorkCompletion,
    WrId,
};

use adverb_workload::attend::Members;
use adverb_workload::pattern::Meter;
use adverb_workload::pattern::PatternError;
use adverb_workload::pattern::Schedule;
use adverb_workload::pattern::Tally;
use adverb_workload::reap::Reaper;

use super::service::{Backend, loaded};
use super::slots::{Call, Kind, Scan};
use super::wiring::CoreEnds;
use super::{MAX_BATCH, RequestBy, Rpc};
use crate::sends::Sends;
use crate::tally::ServiceTally;

/// Answers between two readings of the clock, which costs as much as an answer in a batch.
const LOOK_EVERY: u64 = 32;
/// If they take longer than this, the clock is read at the next answer, and then less often again.
const LOOK_WITHIN: Span = Span::from_us(100);
/// The bit of a request's immediate data by which a client announces its end.
pub(super) const FAREWELL: u32 = 1 << 31;

/// Counts answers, and the posts that they took.
struct Answered {
    answers: u64,
    posts: u64,
    /// The last reading of the clock.
    looked: Time,
    /// Number of answers until the next one.
    every: u64,
    next_look: u64,
    /// End of the measured time.
    until: Time,
    meters: [Meter; 2],
}

impl Answered {
    fn new(now: Time, schedule: Schedule) -> Self {
        Answered {
            answers: 0,
            posts: 0,
            looked: now,
            every: LOOK_EVERY,
            next_look: 0,
            until: now + schedule.warm_up + schedule.measured,
            meters: [Meter::new(now, schedule); 2],
        }
    }

    #[inline]
    fn count<S: Station>(&mut self, station: &S, answers: u64, posts: u64) {
        self.answers += answers;
        self.posts += posts;
        if self.answers >= self.next_look {
            let now = station.now();
            self.every = match now - self.looked > LOOK_WITHIN {
                true => 1,
                false => (self.every + 1).min(LOOK_EVERY),
            };
            self.next_look = self.answers + self.every;
            self.look(station, now);
        }
    }

    fn look<S: Station>(&mut self, station: &S, now: Time) {
        self.looked = now;
        for (meter, count) in self.meters.iter_mut().zip([self.answers, self.posts]) {
            meter.look(station, now, count);
        }
    }

    /// Returns the results after the last client has ended. Clients may have begun, and ended, a little earlier than this core.
    /// So the rate counts until the last reading while they were served, and the CPU time in the whole measured time.
    fn end<S: Station>(mut self, station: &S) -> ServiceTally {
        let now = station.now();
        if now - self.looked > LOOK_WITHIN {
            self.look(station, now);
        }
        let served = self.tally();
        if now < self.until {
            station.sleep(self.until - now);
        }
        self.look(station, station.now());
        let ServiceTally {
            cpu,
            cpu_over,
            window,
            ..
        } = self.tally();
        ServiceTally {
            cpu,
            cpu_over,
            window,
            ..served
        }
    }

    fn tally(&self) -> ServiceTally {
        let [answers, posts] = &self.meters;
        let (of_answers, of_posts) = (answers.tally(), posts.tally());
        // Counts are rounded, and their times corrected for that: a ratio of counts could exceed the longest list.
        let per_second = |tally: &Tally| tally.completed as f64 / tally.elapsed.as_secs_f64();
        ServiceTally {
            posts: of_posts.completed,
            batch: (of_posts.completed > 0)
                .then(|| per_second(&of_answers) / per_second(&of_posts)),
            ..ServiceTally::default()
        }
        .measured_by(answers)
    }
}

/// The state of a running core.
pub(super) struct Core<'w, S: Station> {
    station: &'w S,
    members: &'w Members<'w, S>,
    rpc: &'w Rpc,
    ends: &'w CoreEnds<S::Context>,
    sends: Reaper<'w, S::Context>,
    receives: Reaper<'w, S::Context>,
    scan: Scan,
    answers: Sends,
    /// Answers posted so far, by queue pair.
    posted: Vec<u64>,
    /// Index of the first port's queue pair for the next list; the other ports' queue pairs follow.
    next: usize,
    calls: Vec<Call>,
    /// Clients that have announced their end.
    gone: usize,
    answered: Answered,
}

impl<'w, S: Station> Core<'w, S> {
    pub(super) fn new(
        members: &'w Members<'w, S>,
        rpc: &'w Rpc,
        ends: &'w CoreEnds<S::Context>,
        schedule: Schedule,
    ) -> Self {
        let station = members.station();
        Core {
            station,
            members,
            rpc,
            ends,
            sends: ends.sends.reaper(),
            receives: ends.recvs.reaper(),
            scan: Scan::new(ends.slots, ends.clients.len()),
            answers: Sends::new(ends.datagrams.len(), ends.depth, rpc.serving.signaled_every),
            posted: vec![0; ends.datagrams.len()],
            next: 0,
            calls: Vec::with_capacity(MAX_BATCH as usize),
            gone: 0,
            answered: Answered::new(station.now(), schedule),
        }
    }

    /// Serves until all clients have announced their end.
    pub(super) fn run(mut self, backend: &mut Backend<'_>) -> Result<ServiceTally, PatternError> {
        while self.gone < self.ends.clients.len() {
            match self.rpc.request_by() {
                RequestBy::Write => self.poll_slots()?,
                RequestBy::HeaderOnly => self.poll_queue()?,
            }
            let found = self.calls.len();
            self.calls.retain(|call| call.kind != Kind::Bye);
            self.gone += found - self.calls.len();
            if !self.calls.is_empty() {
                self.sort_by_port();
                backend.begin(self.station, &self.ends.mr, &self.calls)?;
                self.answer_all(backend)?;
            }
        }
        Ok(self.answered.end(self.station))
    }

    /// Waits for requests in the slots.
    fn poll_slots(&mut self) -> Result<(), PatternError> {
        let batch = self.rpc.batch() as usize;
        self.scan
            .wait(self.members, &self.ends.mr, batch, &mut self.calls)?;
        loaded(self.station, self.calls.len());
        Ok(())
    }

    /// Waits for requests in the completion queue, and posts their receives again.
    fn poll_queue(&mut self) -> Result<(), PatternError> {
        let mut completions = [WorkCompletion::default(); MAX_BATCH as usize];
        let room = &mut completions[..self.rpc.batch() as usize];
        let n = self.receives.reap(self.station, self.members, room)?;
        self.calls.clear();
        for wc in &completions[..n] {
            self.ends.post_receive(wc.wr_id.0)?;
            let Imm(word) = wc
                .imm
                .ok_or(PatternError::Wrong("a request without a client"))?;
            let client = word & !FAREWELL;
            if client as usize >= self.ends.clients.len() {
                return Err(PatternError::Wrong("a request of an unknown client"));
            }
            self.calls.push(Call {
                client,
                number: 0,
                kind: if word == client { Kind::Get } else { Kind::Bye },
            });
        }
        loaded(self.station, n);
        Ok(())
    }

    /// Sorts the requests that are answered by the same lists by the ports of their clients.
    fn sort_by_port(&mut self) {
        let ports = self.ends.ports as usize;
        if ports > 1 {
            for list in self.calls.chunks_mut(self.rpc.list() as usize) {
                list.sort_by_key(|call| port(call, ports));
            }
        }
    }

    /// Answers the batch by single posts or by lists, one for each port, each on the port's next queue pair.
    fn answer_all(&mut self, backend: &mut Backend<'_>) -> Result<(), PatternError> {
        let list = self.rpc.list() as usize;
        let ports = self.ends.ports as usize;
        let mut begin = 0;
        while begin < self.calls.len() {
            let end = self.calls.len().min(begin + list);
            while begin < end {
                let first = port(&self.calls[begin], ports);
                let of_port = |call: &&Call| port(call, ports) == first;
                let count = self.calls[begin..end].iter().take_while(of_port).count();
                let queue = self.next + first;
                let room = (queue, count as u32);
                self.answers
                    .make_room(room, self.members, &mut self.sends)?;
                self.post(backend, queue, begin..begin + count)?;
                self.answered.count(self.station, count as u64, 1);
                begin += count;
            }
            self.next = (self.next + ports) % self.posted.len();
        }
        Ok(())
    }

    fn post(
        &mut self,
        backend: &mut Backend<'_>,
        queue: usize,
        places: std::ops::Range<usize>,
    ) -> Result<(), PatternError> {
        let mr = &self.ends.mr;
        let mut sges = [mr.sge(0, 0)?; MAX_BATCH as usize];
        let mut requests = [SendRequest::new(WrId(0), Operation::Send, &[]); MAX_BATCH as usize];
        let n = places.len();
        for (slot, place) in places.clone().enumerate() {
            sges[slot] = self.payload(backend, queue, slot, place)?;
        }
        for ((request, sge), place) in requests.iter_mut().zip(&sges).zip(places) {
            let call = self.calls[place];
            // Without payload: the lower half of the number. Otherwise: the number of the request.
            let imm = match self.rpc.request_by() {
                RequestBy::HeaderOnly => backend.number(place).unwrap_or_default() as u32,
                RequestBy::Write => (call.number % u64::from(self.ends.slots.each)) as u32,
            };
            let pieces = if sge.length() > 0 {
                std::slice::from_ref(sge)
            } else {
                &[]
            };
            let (name, flags) = self.flags(queue, sge.length());
            *request = SendRequest::new(name, Operation::SendWithImm(Imm(imm)), pieces)
                .with_flags(flags)
                .to(self.ends.clients[call.client as usize].destination());
        }
        Ok(self.ends.datagrams[queue].post_send(&requests[..n])?)
    }

    /// Writes the payload of an answer to a buffer that no outstanding answer uses.
    fn payload(
        &self,
        backend: &mut Backend<'_>,
        queue: usize,
        slot: usize,
        place: usize,
    ) -> Result<Sge<'w>, PatternError> {
        let mr = &self.ends.mr;
        if self.rpc.request_by() == RequestBy::HeaderOnly {
            return Ok(mr.sge(0, 0)?);
        }
        let depth = u64::from(self.ends.depth);
        let turn = (self.posted[queue] + slot as u64) % depth;
        let (first, stride) = self.ends.answers;
        let offset = first + (queue as u64 * depth + turn) * stride;
        let answer = backend.answer(mr, place, &self.calls[place])?;
        mr.write(offset, answer)?;
        Ok(mr.sge(offset, answer.len() as u32)?)
    }

    /// Returns id and flags of the next answer.
    fn flags(&mut self, queue: usize, length: u32) -> (WrId, SendFlags) {
        self.posted[queue] += 1;
        let (name, mut flags) = self.answers.next(queue);
        if length > 0 && length <= self.ends.inline {
            flags |= SendFlags::INLINE;
        }
        (name, flags)
    }
}

/// Returns the port of the client that sent a request: clients are assigned to ports in turn.
fn port(call: &Call, ports: usize) -> usize {
    call.client as usize % ports
}
