//! A client of an RPC server: sends requests within its window and at its pace, and checks the answers.

use std::collections::VecDeque;

use adverb_units::{Span, Time};
use adverb_verbs::{
    Imm, MemoryRegion, Operation, QueuePair, SendFlags, SendRequest, Station, WaitError,
    WorkCompletion, WrId,
};

use adverb_workload::attend::{Awaited, Members, attentively};
use adverb_workload::error::succeeded;
use adverb_workload::pattern::PatternError;
use adverb_workload::pattern::Timing;
use adverb_workload::pattern::{Meter, Schedule};
use adverb_workload::random::Random;
use adverb_workload::reap::{BATCH, Reaper};
use adverb_workload::wiring::GRH;

use super::server::FAREWELL;
use super::slots::{Kind, last_byte, request_bytes};
use super::wiring::ClientEnds;
use super::{RequestBy, Rpc, Service, StoreLoad, TIMEOUT, table};
use crate::due::Due;
use crate::tally::ServiceTally;

/// An outstanding request in its slot.
#[derive(Clone, Copy, Debug, Default)]
enum Slot {
    #[default]
    Free,
    /// Outstanding, with its start if requests are timed.
    Asked {
        item: u64,
        kind: Kind,
        at: Option<Time>,
    },
}

/// The state of a running client.
pub(super) struct Client<'w, S: Station> {
    station: &'w S,
    members: &'w Members<'w, S>,
    rpc: &'w Rpc,
    ends: &'w ClientEnds<S::Context>,
    /// Index of the client among the clients of its core.
    place: u32,
    random: Random,
    /// Number of requests so far.
    asked: u64,
    outstanding: u32,
    slots: Vec<Slot>,
    /// Starts of requests without slots, in order.
    times: VecDeque<Time>,
    /// Requests without a send completion so far.
    unsent: u32,
    /// The highest number so far, which determines the upper half of others.
    newest: u64,
    due: Due,
    until: Time,
    answers: u64,
    meter: Meter,
    sends: Reaper<'w, S::Context>,
    tally: ServiceTally,
}

impl<'w, S: Station> Client<'w, S> {
    pub(super) fn new(
        members: &'w Members<'w, S>,
        rpc: &'w Rpc,
        ends: &'w ClientEnds<S::Context>,
        client: u32,
        schedule: Schedule,
    ) -> Self {
        let station = members.station();
        let now = station.now();
        let mut random = Random::new(rpc.clients.seed.wrapping_mul(1_000_003) + u64::from(client));
        Client {
            station,
            members,
            rpc,
            ends,
            place: rpc.seats().place(client),
            asked: 0,
            outstanding: 0,
            slots: vec![Slot::Free; rpc.clients.outstanding as usize],
            times: VecDeque::new(),
            unsent: 0,
            newest: ends.first_number,
            due: Due::new(&rpc.clients, &mut random, now),
            random,
            until: now + schedule.warm_up + schedule.measured,
            answers: 0,
            meter: Meter::new(now, schedule),
            sends: ends.sends.reaper(),
            tally: ServiceTally::timed(rpc.clients.timing),
        }
    }

    /// Sends requests until the measured time is over, waits for outstanding ones, and announces the end.
    pub(super) fn run(mut self) -> Result<ServiceTally, PatternError> {
        let mut now = self.station.now();
        while now < self.until {
            while let Some(due) = self.due().filter(|due| *due <= now) {
                self.ask(due)?;
            }
            now = self.wait(now)?;
        }
        while self.outstanding > 0 {
            if self.take(TIMEOUT)?.0 == 0 {
                return Err(self.lost());
            }
        }
        self.farewell()?;
        Ok(self.tally.measured_by(&self.meter))
    }

    /// Returns when the next request is due, if there is room for it: slots are used in turn.
    fn due(&self) -> Option<Time> {
        let slot = (self.asked % self.slots.len() as u64) as usize;
        let has_room = self.outstanding < self.rpc.clients.outstanding
            && matches!(self.slots[slot], Slot::Free);
        self.due.next().filter(|_| has_room)
    }

    /// Waits for answers, or until the next request is due; returns the time.
    fn wait(&mut self, now: Time) -> Result<Time, PatternError> {
        let due = self.due();
        let timeout = due.map_or(TIMEOUT, |due| due.min(self.until) - now);
        match self.take(timeout)? {
            (0, _) if due.is_none() => Err(self.lost()),
            (_, now) => Ok(now),
        }
    }

    fn lost(&self) -> PatternError {
        PatternError::Lost {
            missing: self.outstanding,
            timeout: TIMEOUT,
        }
    }

    /// Takes answers; returns their number, and the time just before they were checked, from which on their
    /// slots are free.
    fn take(&mut self, timeout: Span) -> Result<(usize, Time), PatternError> {
        let mut completions = [WorkCompletion::default(); BATCH];
        let n = match self.spin(&mut completions, timeout) {
            Err(PatternError::Wait(WaitError::TimedOut { .. })) => 0,
            other => other?,
        };
        let now = self.station.now();
        let is_open = self.meter.is_open(now);
        for wc in &completions[..n] {
            succeeded(wc)?;
            let asked = self.answered(wc)?;
            self.outstanding -= 1;
            self.due.answered(now);
            self.answers += 1;
            self.ends.post_receive(wc.wr_id.0)?;
            if let (true, Some(asked), Some(waits)) = (is_open, asked, &mut self.tally.waits) {
                waits.record(now - asked);
            }
        }
        self.meter.look(self.station, now, self.answers);
        Ok((n, now))
    }

    /// Waits for answers; a long wait ends early if another member has failed.
    fn spin(&self, into: &mut [WorkCompletion], timeout: Span) -> Result<usize, PatternError> {
        let cq = &self.ends.recvs.cq;
        if timeout < TIMEOUT {
            return Ok(self.station.spin(cq, into, timeout)?);
        }
        attentively(self.members, Awaited::Message, |timeout| {
            self.station.spin(cq, into, timeout)
        })
    }

    /// Checks an answer; returns the start of its request.
    fn answered(&mut self, wc: &WorkCompletion) -> Result<Option<Time>, PatternError> {
        let imm = wc
            .imm
            .ok_or(PatternError::Wrong("an answer to no request"))?
            .0;
        if self.rpc.request_by() == RequestBy::HeaderOnly {
            if self.outstanding == 0 {
                return Err(PatternError::Wrong("an answer to no request"));
            }
            let number = whole(imm, self.newest);
            self.newest = self.newest.max(number);
            self.tally.handed.add(number);
            // The answer does not identify its request. Assuming the oldest does not change the mean.
            return Ok(self.times.pop_front());
        }
        let slot = self.slots.get_mut(imm as usize).map(std::mem::take);
        let Some(Slot::Asked { item, kind, at }) = slot else {
            return Err(PatternError::Wrong("an answer to no request"));
        };
        let length = wc.byte_len.saturating_sub(GRH);
        match self.rpc.service {
            Service::Sequencer(_) => self.number(wc.wr_id, length)?,
            Service::Store(store) => self.value(wc.wr_id, length, (store, item, kind))?,
        }
        Ok(at)
    }

    fn number(&mut self, name: WrId, length: u32) -> Result<(), PatternError> {
        let mut number = [0; 8];
        if length as usize != number.len() {
            return Err(PatternError::Wrong("a number that has not 8 B"));
        }
        self.ends
            .mr
            .read(self.ends.receives.payload(name.0), &mut number)?;
        self.tally.handed.add(u64::from_le_bytes(number));
        Ok(())
    }

    fn value(
        &mut self,
        name: WrId,
        length: u32,
        (store, item, kind): (StoreLoad, u64, Kind),
    ) -> Result<(), PatternError> {
        let expected = if kind == Kind::Get { store.value } else { 0 };
        if length != expected {
            return Err(PatternError::Wrong("a value of another length"));
        }
        let mut value = [0; 4096];
        let value = &mut value[..length as usize];
        self.ends
            .mr
            .read(self.ends.receives.payload(name.0), value)?;
        if !table::is_right(value, item) {
            return Err(PatternError::Wrong("a value that belongs to another key"));
        }
        self.tally.values_checked += 1;
        Ok(())
    }

    /// Sends a request. Its time starts when it was due, whether or not there was room for it then.
    fn ask(&mut self, due: Time) -> Result<(), PatternError> {
        self.due.sent(&mut self.random);
        let at = (self.rpc.clients.timing == Timing::Each).then_some(due);
        match self.rpc.service {
            Service::Sequencer(RequestBy::HeaderOnly) => {
                self.times.extend(at);
                self.send(self.place)?;
            }
            Service::Sequencer(RequestBy::Write) => self.write((Kind::Get, 0), at)?,
            Service::Store(store) => {
                let item = self.random.below(store.items);
                let kind = if self.random.chance(store.put_ratio) {
                    Kind::Put
                } else {
                    Kind::Get
                };
                self.write((kind, item), at)?;
            }
        }
        self.outstanding += 1;
        Ok(())
    }

    /// Announces that this client sends no more requests.
    fn farewell(&mut self) -> Result<(), PatternError> {
        match self.rpc.request_by() {
            RequestBy::HeaderOnly => self.send(self.place | FAREWELL),
            RequestBy::Write => self.write((Kind::Bye, 0), None),
        }
    }

    /// Returns id and flags of the next request: one in half of the queue is signaled.
    fn flags(&mut self) -> Result<(WrId, SendFlags), PatternError> {
        let half = self.ends.depth / 2;
        while self.unsent >= self.ends.depth {
            let mut completions = [WorkCompletion::default(); 2];
            let n = self
                .sends
                .reap(self.station, self.members, &mut completions)?;
            self.unsent -= half * n as u32;
        }
        self.unsent += 1;
        self.asked += 1;
        let is_signaled = self.asked.is_multiple_of(half.into());
        let flags = if is_signaled {
            SendFlags::SIGNALED
        } else {
            SendFlags::empty()
        };
        Ok((WrId(self.asked), flags))
    }

    /// Sends a request without payload.
    fn send(&mut self, imm: u32) -> Result<(), PatternError> {
        let (name, flags) = self.flags()?;
        let request = SendRequest::new(name, Operation::SendWithImm(Imm(imm)), &[])
            .with_flags(flags)
            .to(self.ends.core.destination());
        Ok(self.ends.datagrams.post_send(&[request])?)
    }

    /// Writes a request to the end of the next slot.
    fn write(&mut self, (kind, item): (Kind, u64), at: Option<Time>) -> Result<(), PatternError> {
        let number = self.asked;
        let each = self.ends.slots.each;
        let length = request_bytes(&self.rpc.service, kind);
        let end = self.ends.slots.end(0, number);
        let begin = end - u64::from(length);
        self.fill((kind, item), begin, end)?;
        let last = last_byte(kind, number, each);
        self.ends.mr.write(end - 1, &[last])?;
        let (name, mut flags) = self.flags()?;
        if length <= self.ends.inline {
            flags |= SendFlags::INLINE;
        }
        if kind != Kind::Bye {
            self.slots[(number % u64::from(each)) as usize] = Slot::Asked { item, kind, at };
        }
        let sges = [self.ends.mr.sge(begin, length)?];
        let operation = Operation::RdmaWrite(self.ends.remote.at(begin));
        let request = SendRequest::new(name, operation, &sges).with_flags(flags);
        let qp = self.ends.writes.as_ref();
        let qp = qp.expect("clients that write have a queue pair for it");
        Ok(qp.post_send(&[request])?)
    }

    /// Writes a request except for its last byte.
    fn fill(
        &mut self,
        (kind, item): (Kind, u64),
        begin: u64,
        end: u64,
    ) -> Result<(), PatternError> {
        let Service::Store(store) = self.rpc.service else {
            return Ok(());
        };
        let key = table::key(item);
        let mr = &self.ends.mr;
        mr.write(end - 1 - key.len() as u64, &key)?;
        if kind == Kind::Put {
            let mut value = [0; 4096];
            let value = &mut value[..store.value as usize];
            table::fill(value, item, self.asked as u8);
            mr.write(begin, value)?;
            mr.write(begin + u64::from(store.value), &[store.value as u8])?;
        }
        Ok(())
    }
}

/// Returns the number with lower half `low` that is nearest to `newest`, which is within 2^31.
fn whole(low: u32, newest: u64) -> u64 {
    let ahead = low.wrapping_sub(newest as u32) as i32;
    newest.wrapping_add_signed(ahead.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_half_follows_from_the_newest_number() {
        let wrap = 1u64 << 32;
        for newest in [0, 5, wrap - 3, wrap, wrap + 2, 7 * wrap - 1, 7 * wrap] {
            for number in newest.saturating_sub(1000)..newest + 1000 {
                assert_eq!(whole(number as u32, newest), number, "next to {newest}");
            }
        }
    }
}
