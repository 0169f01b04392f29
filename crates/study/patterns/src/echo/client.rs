//! A client: sends requests within its window and at its pace, and checks every byte of the replies.

use adverb_units::{Span, Time};
use adverb_verbs::{
    Imm, MemoryRegion, Operation, QueuePair, SendFlags, SendRequest, Station, WcOpcode,
    WorkCompletion, WrId,
};
use adverb_workload::attend::{Awaited, Members, attentively};
use adverb_workload::pattern::{PatternError, Schedule, Wait};
use adverb_workload::random::Random;
use adverb_workload::reap::{BATCH, Reaper};

use super::answers::Answers;
use super::ends::Ends;
use super::server::{FAREWELL, SLOT_BITS};
use super::{Echo, EchoBy, RECORDS, content, load, or_none, record};
use crate::due::{self, Asked, Due};
use crate::rpc::TIMEOUT;
use crate::rpc::slots::{Kind, Scan, last_byte};
use crate::sends::Sends;
use crate::tally::ServiceTally;

/// What a wait has found.
struct Found {
    /// When it ended. Slots of replies are free from then on.
    now: Time,
    /// There was no completion until the timeout.
    timed_out: bool,
    /// A timer ended the client's sleep.
    slept: bool,
}

/// The state of a running client.
pub(super) struct Client<'w, S: Station> {
    station: &'w S,
    members: &'w Members<'w, S>,
    echo: &'w Echo,
    ends: &'w Ends<S::Context>,
    /// Index of the client among the clients of its core.
    place: u32,
    random: Random,
    /// Seeds of the client's requests.
    seed: u64,
    /// Number of requests so far.
    asked: u64,
    outstanding: u32,
    slots: Vec<Option<Asked>>,
    due: Due,
    /// Completions of requests, and replies that share their queue pair.
    reaper: Reaper<'w, S::Context>,
    /// Replies that have queue pairs of their own.
    replies: Option<Reaper<'w, S::Context>>,
    sends: Sends,
    scan: Scan,
    /// A request or a reply.
    bytes: Vec<u8>,
    until: Time,
    answers: Answers,
}

impl<'w, S: Station> Client<'w, S> {
    pub(super) fn new(
        members: &'w Members<'w, S>,
        echo: &'w Echo,
        ends: &'w Ends<S::Context>,
        client: u32,
        schedule: Schedule,
    ) -> Self {
        let station = members.station();
        let now = station.now();
        let window = echo.clients.outstanding as usize;
        let seed = due::seed(&echo.clients, client);
        let mut random = Random::new(seed);
        let due = Due::new(&echo.clients, &mut random, now);
        let separate = (!ends.shares_queue()).then(|| ends.replying().queue.reaper());
        Client {
            station,
            members,
            echo,
            ends,
            place: echo.seats().place(client),
            random,
            seed,
            asked: 0,
            outstanding: 0,
            slots: vec![None; window],
            due,
            reaper: ends.requesting().queue.reaper(),
            replies: separate,
            sends: Sends::new(1, ends.depth, ends.depth / 2),
            scan: Scan::new(echo.replies(), 1),
            bytes: vec![0; echo.request.max(echo.reply) as usize],
            until: now + schedule.warm_up + schedule.measured,
            answers: Answers::new(echo, now, schedule),
        }
    }

    /// Sends requests until the measured time is over, waits for outstanding ones, and announces the end.
    pub(super) fn run(mut self) -> Result<ServiceTally, PatternError> {
        let mut found = Found {
            now: self.station.now(),
            timed_out: true,
            slept: false,
        };
        while found.now < self.until {
            while let Some(due) = self.due().filter(|due| *due <= found.now) {
                // A client that sleeps is woken late by its timer, which is not part of the request's latency.
                let at = if found.slept { found.now } else { due };
                self.ask(at)?;
            }
            found = match self.due() {
                Some(due) => self.take(due.min(self.until) - found.now)?,
                None => self.insist()?,
            };
        }
        while self.outstanding > 0 {
            self.insist()?;
        }
        self.farewell()?;
        Ok(self.answers.into_tally())
    }

    /// Returns when the next request is due, if there is room for it: slots are used in turn.
    fn due(&self) -> Option<Time> {
        let slot = (self.asked % self.slots.len() as u64) as usize;
        match self.slots[slot] {
            Some(_) => None,
            None => self.due.next(),
        }
    }

    /// Waits until there is a completion.
    fn insist(&mut self) -> Result<Found, PatternError> {
        let found = self.take(TIMEOUT)?;
        if !found.timed_out {
            return Ok(found);
        }
        Err(PatternError::Lost {
            missing: self.outstanding,
            timeout: TIMEOUT,
        })
    }

    /// Waits for completions, and takes replies.
    fn take(&mut self, timeout: Span) -> Result<Found, PatternError> {
        if self.echo.by == EchoBy::Write {
            return self.poll_slots(timeout);
        }
        let mut completions = [WorkCompletion::default(); BATCH];
        let reaper = self.replies.as_mut().unwrap_or(&mut self.reaper);
        let n = if timeout < TIMEOUT {
            reaper.reap_within(self.station, self.members, &mut completions, timeout)?
        } else {
            or_none(reaper.reap(self.station, self.members, &mut completions))?
        };
        let now = self.station.now();
        for wc in &completions[..n] {
            match wc.opcode {
                WcOpcode::Recv => self.received(wc, now)?,
                WcOpcode::RdmaRead => {
                    let offset =
                        self.echo.replies().end(0, wc.wr_id.0) - u64::from(self.echo.reply);
                    self.answered(wc.wr_id.0, offset, now)?;
                }
                _ => self.sends.completed(wc.wr_id),
            }
        }
        self.answers.look(self.station, now);
        let timed_out = n == 0;
        let sleeps = match self.echo.wait {
            Wait::Poll => false,
            Wait::Event => true,
            Wait::Hybrid(polling) => timeout > polling,
        };
        Ok(Found {
            now,
            timed_out,
            slept: timed_out && sleeps,
        })
    }

    /// Polls the slots for replies.
    fn poll_slots(&mut self, timeout: Span) -> Result<Found, PatternError> {
        let (scan, mr) = (&mut self.scan, self.ends.replies());
        let mut calls = Vec::with_capacity(BATCH);
        let station = self.station;
        let mut spin = |timeout| {
            station.spin_on(mr, timeout, || {
                scan.take(mr, BATCH, &mut calls)?;
                Ok((!calls.is_empty()).then_some(()))
            })
        };
        let found = if timeout < TIMEOUT {
            spin(timeout).map_err(PatternError::from)
        } else {
            attentively(self.members, Awaited::Message, spin)
        };
        or_none(found.map(|()| 1))?;
        let now = self.station.now();
        for call in &calls {
            let slots = self.echo.replies();
            let slot = call.number % u64::from(slots.each);
            self.answered(slot, slots.end(0, slot) - u64::from(self.echo.reply), now)?;
        }
        self.answers.look(self.station, now);
        Ok(Found {
            now,
            timed_out: calls.is_empty(),
            slept: false,
        })
    }

    /// Takes a received reply, and posts its receive again.
    fn received(&mut self, wc: &WorkCompletion, now: Time) -> Result<(), PatternError> {
        let (offset, length) = self.ends.received(wc.wr_id.0, wc.byte_len);
        if length != self.echo.reply {
            return Err(PatternError::Wrong("a reply of another length"));
        }
        let Some(Imm(slot)) = wc.imm else {
            return Err(PatternError::Wrong("a reply to no request"));
        };
        self.answered(slot.into(), offset, now)?;
        self.ends.post_receive(wc.wr_id.0)
    }

    /// Checks the reply to the request in `slot`, which is at `offset`.
    fn answered(&mut self, slot: u64, offset: u64, now: Time) -> Result<(), PatternError> {
        let asked = self.slots.get_mut(slot as usize).and_then(Option::take);
        let asked = asked.ok_or(PatternError::Wrong("a reply to no request"))?;
        let reply = &mut self.bytes[..self.echo.reply as usize];
        load(self.station, self.echo.reply);
        self.ends.replies().read(offset, reply)?;
        // The last byte in a slot that is polled is a mark.
        let checked = match self.echo.by {
            EchoBy::Write => &reply[..reply.len() - 1],
            _ => &*reply,
        };
        self.answers.take(checked, asked, now)?;
        self.outstanding -= 1;
        self.due.answered(now + self.echo.think);
        Ok(())
    }

    /// Sends a request that was due `at`.
    fn ask(&mut self, at: Time) -> Result<(), PatternError> {
        self.due.sent(&mut self.random);
        let slot = self.asked % self.slots.len() as u64;
        let seed = match self.echo.by {
            EchoBy::Read => self.read(slot)?,
            _ => self.request(Kind::Get)?,
        };
        self.slots[slot as usize] = Some(Asked { seed, at });
        self.asked += 1;
        self.outstanding += 1;
        Ok(())
    }

    /// READs a record into the slot; returns the record's seed.
    fn read(&mut self, slot: u64) -> Result<u64, PatternError> {
        let place = self.random.below(RECORDS);
        let (slots, length) = (self.echo.replies(), self.echo.reply);
        let wiring = self.ends.requesting();
        let sges = [wiring
            .mr
            .sge(slots.end(0, slot) - u64::from(length), length)?];
        let there = wiring.wires[0].remote.at(record(slots, place));
        let read = SendRequest::new(WrId(slot), Operation::RdmaRead(there), &sges);
        wiring.qps[0].post_send(&[read.with_flags(SendFlags::SIGNALED)])?;
        Ok(place)
    }

    /// Announces that this client sends no more requests.
    fn farewell(&mut self) -> Result<(), PatternError> {
        match self.echo.by {
            EchoBy::Read => Ok(()),
            _ => self.request(Kind::Bye).map(drop),
        }
    }

    /// Sends the next request; returns the seed of its reply.
    fn request(&mut self, kind: Kind) -> Result<u64, PatternError> {
        self.make_room()?;
        let (slots, number) = (self.echo.requests(), self.asked);
        let bytes = &mut self.bytes[..self.echo.request as usize];
        content::fill(bytes, self.seed.wrapping_add(number));
        bytes[bytes.len() - 1] = last_byte(kind, number, slots.each);
        // No other request uses the buffer, because the slot's previous one was answered.
        let wiring = self.ends.requesting();
        let outbox = self.echo.replies().bytes();
        let (length, end) = (bytes.len() as u32, slots.end(0, number));
        let offset = outbox + end - u64::from(length);
        wiring.mr.write(offset, bytes)?;
        let seed = content::digest(bytes);
        let operation = if self.echo.by.writes_requests() {
            let there = slots.end(self.place, number) - u64::from(length);
            Operation::RdmaWrite(wiring.wires[0].remote.at(there))
        } else {
            let bye = if kind == Kind::Bye { FAREWELL } else { 0 };
            let slot = (number % u64::from(slots.each)) as u32;
            Operation::SendWithImm(Imm(bye | self.place << SLOT_BITS | slot))
        };
        let (name, mut flags) = self.sends.next(0);
        if length <= wiring.inline {
            flags |= SendFlags::INLINE;
        }
        let sges = [wiring.mr.sge(offset, length)?];
        let mut request = SendRequest::new(name, operation, &sges).with_flags(flags);
        if let Some(destination) = wiring.destination(0) {
            request = request.to(destination);
        }
        wiring.qps[0].post_send(&[request])?;
        Ok(seed)
    }

    /// Waits until there is room for a request.
    fn make_room(&mut self) -> Result<(), PatternError> {
        if self.echo.by == EchoBy::Write || !self.ends.shares_queue() {
            return self.sends.make_room((0, 1), self.members, &mut self.reaper);
        }
        while !self.sends.has_room(0, 1) {
            self.insist()?;
        }
        Ok(())
    }
}
