//! The server loop of a core: takes requests, computes replies from them, and sends those.

use std::collections::VecDeque;

use adverb_units::Time;
use adverb_verbs::{
    Imm, MemoryRegion, Operation, QpType, QueuePair, SendFlags, SendRequest, Station, WcOpcode,
    WorkCompletion,
};
use adverb_workload::Ticker;
use adverb_workload::attend::Members;
use adverb_workload::pattern::{Meter, PatternError, Schedule};
use adverb_workload::reap::{BATCH, Reaper};

use super::ends::Ends;
use super::{Echo, EchoBy, content, load_request, or_none, served};
use crate::rpc::MAX_BATCH;
use crate::rpc::slots::{Call, Kind, Scan, last_byte};
use crate::sends::Sends;
use crate::tally::ServiceTally;

/// The bit of a request's immediate data by which a client announces its end.
pub(super) const FAREWELL: u32 = 1 << 31;
/// Bits of immediate data for the number of a slot; the ones above are for the client.
pub(super) const SLOT_BITS: u32 = 16;

/// A request that a core has found.
struct Request {
    call: Call,
    /// Offset of its bytes.
    offset: u64,
    /// The receive to post again.
    receive: Option<u64>,
}

/// The state of a running core.
pub(super) struct Core<'w, S: Station> {
    station: &'w S,
    members: &'w Members<'w, S>,
    echo: &'w Echo,
    ends: &'w Ends<S::Context>,
    /// Clients that have not announced their end.
    clients: usize,
    /// Completions of replies; of requests, too, if they are received.
    reaper: Reaper<'w, S::Context>,
    sends: Sends,
    scan: Scan,
    requests: VecDeque<Request>,
    /// Where the replies begin.
    outbox: u64,
    /// A request, a reply.
    request: Vec<u8>,
    reply: Vec<u8>,
    answered: u64,
    ticker: Ticker,
    until: Time,
    meter: Meter,
}

impl<'w, S: Station> Core<'w, S> {
    pub(super) fn new(
        members: &'w Members<'w, S>,
        echo: &'w Echo,
        ends: &'w Ends<S::Context>,
        core: u32,
        schedule: Schedule,
    ) -> Self {
        let station = members.station();
        let clients = echo.clients_of(core) as usize;
        let now = station.now();
        let replying = ends.replying();
        Core {
            station,
            members,
            echo,
            ends,
            clients,
            reaper: replying.queue.reaper(),
            sends: Sends::new(replying.qps.len(), ends.depth, ends.depth / 2),
            scan: Scan::new(echo.requests(), clients),
            requests: VecDeque::with_capacity(BATCH),
            outbox: echo.requests().bytes() * clients as u64,
            request: vec![0; echo.request as usize],
            reply: vec![0; echo.reply as usize],
            answered: 0,
            ticker: Ticker::new(station),
            until: now + schedule.warm_up + schedule.measured,
            meter: Meter::new(now, schedule),
        }
    }

    /// Serves until all clients have announced their end.
    pub(super) fn run(mut self) -> Result<ServiceTally, PatternError> {
        while self.clients > 0 {
            if self.requests.is_empty() {
                let waited = match self.echo.by.writes_requests() {
                    true => self.poll_slots(),
                    false => self.reap(),
                };
                // Clients may send requests seldom. One that has failed ends the wait.
                or_none(waited.map(|()| 0))?;
            }
            while let Some(request) = self.requests.pop_front() {
                self.serve(&request)?;
            }
        }
        Ok(served(self.station, self.until, self.meter, self.answered))
    }

    /// Waits for requests in the slots.
    fn poll_slots(&mut self) -> Result<(), PatternError> {
        let batch = MAX_BATCH as usize;
        let mut calls = Vec::with_capacity(batch);
        self.scan
            .wait(self.members, self.ends.requests(), batch, &mut calls)?;
        let slots = self.echo.requests();
        let found = calls.into_iter().map(|call| Request {
            offset: slots.end(call.client, call.number) - u64::from(self.echo.request),
            call,
            receive: None,
        });
        self.requests.extend(found);
        Ok(())
    }

    /// Waits for completions: of replies, or of received requests.
    fn reap(&mut self) -> Result<(), PatternError> {
        let mut completions = [WorkCompletion::default(); BATCH];
        let n = self
            .reaper
            .reap(self.station, self.members, &mut completions)?;
        for wc in &completions[..n] {
            if wc.opcode != WcOpcode::Recv {
                self.sends.completed(wc.wr_id);
                continue;
            }
            let Some(Imm(word)) = wc.imm else {
                return Err(PatternError::Wrong("a request without a client"));
            };
            let client = (word & !FAREWELL) >> SLOT_BITS;
            let (offset, length) = self.ends.received(wc.wr_id.0, wc.byte_len);
            let kind = if word & FAREWELL == 0 {
                Kind::Get
            } else {
                Kind::Bye
            };
            if kind == Kind::Get && length != self.echo.request {
                return Err(PatternError::Wrong("a request of another length"));
            }
            self.requests.push_back(Request {
                call: Call {
                    client,
                    number: u64::from(word & ((1 << SLOT_BITS) - 1)),
                    kind,
                },
                offset,
                receive: Some(wc.wr_id.0),
            });
        }
        Ok(())
    }

    fn serve(&mut self, request: &Request) -> Result<(), PatternError> {
        if let Some(receive) = request.receive.filter(|_| request.call.kind == Kind::Bye) {
            self.ends.post_receive(receive)?;
        }
        if request.call.kind == Kind::Bye {
            self.clients -= 1;
            return Ok(());
        }
        load_request(self.station, self.echo.request);
        self.ends
            .requests()
            .read(request.offset, &mut self.request)?;
        content::fill(&mut self.reply, content::digest(&self.request));
        // The client may send its next request into the receive as soon as it has the reply.
        if let Some(receive) = request.receive {
            self.ends.post_receive(receive)?;
        }
        self.reply_to(request.call)?;
        self.answered += 1;
        if let Some(now) = self.ticker.tick(self.station) {
            self.meter.look(self.station, now, self.answered);
        }
        Ok(())
    }

    fn reply_to(&mut self, call: Call) -> Result<(), PatternError> {
        let place = call.client as usize;
        let replying = self.ends.replying();
        let queue = match self.echo.transport {
            QpType::Ud => 0,
            _ => place,
        };
        while !self.sends.has_room(queue, 1) {
            self.reap()?;
        }
        let (slots, length) = (self.echo.replies(), self.echo.reply);
        if self.echo.by == EchoBy::Write {
            let last = last_byte(Kind::Get, call.number, slots.each);
            self.reply[length as usize - 1] = last;
        }
        // No other reply uses the buffer, because the client has taken the slot's previous one.
        let offset = self.outbox + slots.end(call.client, call.number) - u64::from(length);
        replying.mr.write(offset, &self.reply)?;
        let operation = match self.echo.by {
            EchoBy::Write => {
                let there = slots.end(0, call.number) - u64::from(length);
                Operation::RdmaWrite(replying.wires[place].remote.at(there))
            }
            _ => {
                let slot = call.number % u64::from(slots.each);
                Operation::SendWithImm(Imm(slot as u32))
            }
        };
        let (name, mut flags) = self.sends.next(queue);
        if length <= replying.inline {
            flags |= SendFlags::INLINE;
        }
        let sges = [replying.mr.sge(offset, length)?];
        let mut reply = SendRequest::new(name, operation, &sges).with_flags(flags);
        if let Some(destination) = replying.destination(place) {
            reply = reply.to(destination);
        }
        Ok(replying.qps[queue].post_send(&[reply])?)
    }
}
