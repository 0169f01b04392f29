//! `overlap` and `fetch`: a client that sends requests one after another, and a server that answers each.
//!
//! The client may compute between the start of a request and its end (`overlap`), the server before it answers
//! (`fetch`). A READ is answered by the server's NIC; its CPU computes in pieces as long as the response delay.
//!
//! Message `n` uses the slots `n % 2`, so that an end may check a message while the next one arrives.

use adverb_results::Completion;
use adverb_units::Span;
use adverb_verbs::{PathOptions, RoleId, Station};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;
use adverb_workload::streams::{reading, receive_all_by, send_all};

use super::content::{check, last_byte, message};
use super::end::{End, Traffic};
use super::{By, DONE, WanTally, Way, streams};

const CLIENT: RoleId = RoleId(0);
const SERVER: RoleId = RoleId(1);
/// Rounds that are not measured.
const WARM_UP: u64 = 3;
/// How long a server without a load sleeps between two looks whether the client has finished.
const ATTENTION: Span = Span::from_ms(5);

/// The parameters of an exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) by: By,
    /// How both wait for messages, and for READs.
    pub(super) completion: Completion,
    /// The client's computation between start and end; `None`: it has none, and only whole exchanges are measured.
    pub(super) compute: Option<Span>,
    /// What the server computes before it answers.
    pub(super) response_delay: Span,
    /// Lengths of request and response.
    pub(super) request: u32,
    pub(super) response: u32,
    /// Measured exchanges.
    pub(super) iters: u32,
}

impl Exchange {
    /// Distance of the slots of messages.
    fn slot(&self) -> u64 {
        u64::from(self.request.max(self.response)).next_multiple_of(64)
    }

    /// Returns the offset of an outgoing message.
    fn outgoing(&self, number: u64) -> u64 {
        number % 2 * self.slot()
    }

    /// Returns the offset of an incoming message.
    fn incoming(&self, number: u64) -> u64 {
        (2 + number % 2) * self.slot()
    }

    /// Returns the memory of each end.
    pub(super) fn memory(&self) -> u64 {
        4 * self.slot()
    }

    /// Number of exchanges, measured or not.
    fn rounds(&self) -> u64 {
        let phases = if self.compute.is_some() { 2 } else { 1 };
        WARM_UP + phases * u64::from(self.iters)
    }

    pub(super) fn run<S: Station>(
        self,
        members: &Members<'_, S>,
        (me, path): (RoleId, PathOptions),
    ) -> Result<WanTally, Fault> {
        let is_client = me == CLIENT;
        let peer = if is_client { SERVER } else { CLIENT };
        let by_stream = self.by == By::Tcp;
        let way = match (by_stream, is_client) {
            (true, true) => Way::Stream(streams::connect(members, peer)?),
            (true, false) => Way::Stream(streams::accept(members, &[peer])?.swap_remove(0)),
            (false, _) => {
                let path = (path, self.completion);
                let end = End::new(members, &[peer], (self.memory(), 8, 4), path)?;
                Way::Verbs(Box::new(end))
            }
        };
        let (out, length) = match is_client {
            true => (self.request, self.response),
            false => (self.response, self.request),
        };
        let mut side = Side {
            exchange: self,
            members,
            way,
            out: (out, Vec::new()),
            received: vec![0; length as usize],
        };
        side.make_ready()?;
        members.meet()?;
        let mut tally = match is_client {
            true => side.request_all()?,
            false => side.serve_all()?,
        };
        tally.traffic = side.traffic();
        tally.checked = self.rounds();
        // No role ends while another one still looks whether it is there.
        members.meet()?;
        Ok(tally)
    }
}

/// One side of an exchange.
struct Side<'m, S: Station> {
    exchange: Exchange,
    members: &'m Members<'m, S>,
    way: Way<'m, S>,
    /// Length of the own messages, and the next one if it is sent over a stream.
    out: (u32, Vec<u8>),
    /// The last received message.
    received: Vec<u8>,
}

impl<S: Station> Side<'_, S> {
    fn traffic(&self) -> Traffic {
        self.way.traffic()
    }

    /// Posts the first receives, or stores what READs bring.
    fn make_ready(&mut self) -> Result<(), Fault> {
        if let (Way::Verbs(end), By::Read) = (&self.way, self.exchange.by) {
            let (length, at) = (self.out.0, self.exchange.outgoing(0));
            return end.store(at, &message(0, length));
        }
        (0..2).try_for_each(|number| self.post_receive(number))
    }

    /// Posts the receive of a message, if messages need receives.
    fn post_receive(&mut self, number: u64) -> Result<(), Fault> {
        let exchange = self.exchange;
        match &mut self.way {
            Way::Verbs(end) if exchange.by == By::Send => {
                let buffer = (exchange.incoming(number), self.received.len() as u32);
                end.post_receive((0, (number % 2) as u32), buffer)
            }
            _ => Ok(()),
        }
    }

    /// Makes the own message `number`. The previous one that used its slot has been received.
    fn prepare(&mut self, number: u64) -> Result<(), Fault> {
        let (exchange, length) = (self.exchange, self.out.0);
        match &mut self.way {
            Way::Verbs(end) if exchange.by == By::Read => {
                // What the last READ left must not be taken for what this one brings.
                end.store(exchange.incoming(number), &vec![0; self.received.len()])
            }
            Way::Verbs(end) => {
                end.drain_to(1)?;
                end.store(exchange.outgoing(number), &message(number, length))
            }
            Way::Stream(_) => {
                self.out.1 = message(number, length);
                Ok(())
            }
        }
    }

    /// Sends the own message `number`; or posts the READ.
    fn start(&mut self, number: u64) -> Result<(), Fault> {
        let (exchange, length) = (self.exchange, self.out.0);
        let from = (exchange.outgoing(number), length);
        match &mut self.way {
            Way::Stream(stream) => send_all(self.members, stream, &self.out.1),
            Way::Verbs(end) => match exchange.by {
                By::Read => {
                    let into = (exchange.incoming(number), exchange.response);
                    let from = end.remote(0, exchange.outgoing(0));
                    end.read(0, into, from)
                }
                By::Write => {
                    let to = end.remote(0, exchange.incoming(number));
                    end.write(0, from, to)
                }
                By::Send | By::Tcp => end.send(0, from),
            },
        }
    }

    /// Waits for the peer's message `number`; or for the end of the READ.
    fn finish(&mut self, number: u64) -> Result<(), Fault> {
        let exchange = self.exchange;
        match &mut self.way {
            Way::Stream(stream) => {
                let how = reading(exchange.completion);
                receive_all_by(self.members, stream, how, &mut self.received)
            }
            Way::Verbs(end) => match exchange.by {
                By::Read => end.drain_to(0),
                By::Write => {
                    let last = exchange.incoming(number) + self.received.len() as u64 - 1;
                    end.spin_memory(last, last_byte(number))
                }
                By::Send | By::Tcp => end.take().and_then(|arrival| {
                    match arrival.bytes as usize == self.received.len() {
                        true => Ok(()),
                        false => Err(Fault::Wrong("a message of another length")),
                    }
                }),
            },
        }
    }

    /// Checks every byte of the peer's message `number`.
    fn check(&mut self, number: u64) -> Result<(), Fault> {
        let exchange = self.exchange;
        if let Way::Verbs(end) = &self.way {
            end.load(exchange.incoming(number), &mut self.received)?;
        }
        // All READs bring the same message.
        let of = if exchange.by == By::Read { 0 } else { number };
        check(of, &self.received)?;
        self.post_receive(number)
    }

    /// An exchange at the client, which computes in it; returns its duration.
    fn round(&mut self, number: u64, compute: Span) -> Result<Span, Fault> {
        let station = self.members.station();
        self.prepare(number)?;
        let begun = station.now();
        self.start(number)?;
        if compute > Span::ZERO {
            station.execute(compute);
        }
        self.finish(number)?;
        let took = (station.now() - begun).saturating_sub(station.clock_cost());
        self.check(number)?;
        Ok(took)
    }

    fn request_all(&mut self) -> Result<WanTally, Fault> {
        let (exchange, station) = (self.exchange, self.members.station());
        let mut tally = WanTally::default();
        let mut numbers = 0..exchange.rounds();
        for number in numbers.by_ref().take(WARM_UP as usize) {
            self.round(number, Span::ZERO)?;
        }
        let iters = exchange.iters as usize;
        if let Some(compute) = exchange.compute {
            station.execute(compute);
            for number in numbers.by_ref().take(iters) {
                tally.communication.record(self.round(number, Span::ZERO)?);
                let begun = station.now();
                station.execute(compute);
                let took = (station.now() - begun).saturating_sub(station.clock_cost());
                tally.computation.record(took);
            }
        }
        let (begun, cpu) = (station.now(), station.cpu());
        for number in numbers {
            let took = self.round(number, exchange.compute.unwrap_or_default())?;
            tally.whole.record(took);
        }
        tally.elapsed = station.now() - begun;
        tally.cpu = station.cpu().since(cpu);
        tally.messages = u64::from(exchange.iters);
        tally.bytes = tally.messages * u64::from(exchange.response);
        self.members.send(SERVER, DONE)?;
        Ok(tally)
    }

    fn serve_all(&mut self) -> Result<WanTally, Fault> {
        let (exchange, station) = (self.exchange, self.members.station());
        let (begun, cpu) = (station.now(), station.cpu());
        match exchange.by {
            By::Read => self.own_memory()?,
            _ => {
                for number in 0..exchange.rounds() {
                    self.prepare(number)?;
                    self.finish(number)?;
                    station.compute(exchange.response_delay);
                    self.start(number)?;
                    self.check(number)?;
                }
                self.members.receive(CLIENT)?;
                if let Way::Verbs(end) = &mut self.way {
                    end.drain_to(0)?;
                }
            }
        }
        Ok(WanTally {
            elapsed: station.now() - begun,
            cpu: station.cpu().since(cpu),
            ..WanTally::default()
        })
    }

    /// Computes while the NIC answers READs, until the client has finished.
    fn own_memory(&mut self) -> Result<(), Fault> {
        let (exchange, station) = (self.exchange, self.members.station());
        let pause = match exchange.response_delay {
            Span::ZERO => ATTENTION,
            _ => Span::ZERO,
        };
        loop {
            station.compute(exchange.response_delay);
            if self.members.receive_within(CLIENT, pause)?.is_some() {
                return Ok(());
            }
        }
    }
}
