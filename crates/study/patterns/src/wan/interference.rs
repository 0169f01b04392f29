//! `interference`: a server executes a computation of fixed length, first alone, then while clients stream to it.
//!
//! One thread of the server computes and takes what has arrived between two slices of its computation: SENDs and
//! their receives, or what sockets hold. WRITEs need none of this. The time of the computation contains this work, and
//! what the kernel does on the same core.

use adverb_units::Span;
use adverb_verbs::{PathOptions, RoleId, Station, Streams};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;
use adverb_workload::streams::{StreamOf, send_all};

use super::content::{check, message};
use super::end::End;
use super::{By, DONE, WanTally, streams};

const SERVER: RoleId = RoleId(0);
const GO: &[u8] = b"go";
const STOP: &[u8] = b"stop";
/// The computation between two looks for messages.
const SLICE: Span = Span::from_ms(1);
/// Computations under load that are not measured.
const WARM_UP: u32 = 2;
/// Outstanding requests of a client, and receives that the server posts for each.
const WINDOW: u32 = 8;
/// Bytes that the server takes from a socket at once.
const READ_AT_ONCE: usize = 64 * 1024;

/// The parameters of an interference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interference {
    pub(super) by: By,
    pub(super) clients: u32,
    /// Length of the computation.
    pub(super) compute: Span,
    pub(super) size: u32,
    /// Measured computations, alone and under load.
    pub(super) iters: u32,
}

impl Interference {
    /// Distance of messages in memory.
    fn slot(&self) -> u64 {
        u64::from(self.size).next_multiple_of(64)
    }

    /// Returns the memory of the server, or of a client.
    pub(super) fn memory(&self, is_server: bool) -> u64 {
        match (is_server, self.by) {
            (true, By::Send) => self.slot() * u64::from(self.clients * WINDOW),
            (true, _) => self.slot() * u64::from(self.clients),
            (false, _) => self.slot(),
        }
    }

    pub(super) fn run<S: Station>(
        self,
        members: &Members<'_, S>,
        (me, path): (RoleId, PathOptions),
    ) -> Result<WanTally, Fault> {
        let tally = match me {
            SERVER => self.serve(members, path)?,
            _ => self.stream(members, (me, path))?,
        };
        // No role ends while another one still looks whether it is there.
        members.meet()?;
        Ok(tally)
    }

    fn serve<S: Station>(
        self,
        members: &Members<'_, S>,
        path: PathOptions,
    ) -> Result<WanTally, Fault> {
        let clients: Vec<RoleId> = (1..=self.clients).map(RoleId).collect();
        let inbox = match self.by {
            By::Tcp => Inbox::Streams(streams::accept(members, &clients)?, vec![0; READ_AT_ONCE]),
            _ => {
                let receives = if self.by == By::Send { WINDOW } else { 1 };
                let sizes = (self.memory(true), 1, receives);
                Inbox::Verbs(Box::new(End::new(members, &clients, sizes, path)?))
            }
        };
        let mut server = Server {
            interference: self,
            members,
            inbox,
            received: vec![0; clients.len()],
        };
        server.post_receives()?;
        members.meet()?;
        let mut tally = WanTally::default();
        for _ in 0..self.iters {
            tally.computation.record(server.compute()?);
        }
        clients
            .iter()
            .try_for_each(|client| members.send(*client, GO))?;
        for _ in 0..WARM_UP {
            server.compute()?;
        }
        let station = members.station();
        let (begun, cpu) = (station.now(), station.cpu());
        for _ in 0..self.iters {
            tally.whole.record(server.compute()?);
        }
        (tally.elapsed, tally.cpu) = (station.now() - begun, station.cpu().since(cpu));
        clients
            .iter()
            .try_for_each(|client| members.send(*client, STOP))?;
        server.finish(&clients)?;
        Ok(tally)
    }

    fn stream<S: Station>(
        self,
        members: &Members<'_, S>,
        (me, path): (RoleId, PathOptions),
    ) -> Result<WanTally, Fault> {
        let content = message(me.0.into(), self.size);
        let mut outbox = match self.by {
            By::Tcp => Outbox::Stream(streams::connect(members, SERVER)?),
            _ => {
                let sizes = (self.memory(false), WINDOW + 1, 1);
                let end = End::new(members, &[SERVER], sizes, path)?;
                end.store(0, &content)?;
                Outbox::Verbs(Box::new(end))
            }
        };
        members.meet()?;
        members.receive(SERVER)?;
        let (station, place) = (members.station(), u64::from(me.0 - 1));
        let (begun, cpu) = (station.now(), station.cpu());
        let mut sent: u64 = 0;
        // A look for the end is a system call.
        while sent == 0 || members.receive_within(SERVER, Span::ZERO)?.is_none() {
            for _ in 0..WINDOW {
                match &mut outbox {
                    Outbox::Stream(stream) => send_all(members, stream, &content)?,
                    Outbox::Verbs(end) => {
                        end.drain_to(WINDOW - 1)?;
                        match self.by {
                            By::Send => end.send(0, (0, self.size))?,
                            _ => {
                                let to = end.remote(0, place * self.slot());
                                end.write(0, (0, self.size), to)?;
                            }
                        }
                    }
                }
                sent += 1;
            }
        }
        let mut tally = WanTally::default();
        if let Outbox::Verbs(end) = &mut outbox {
            end.drain_to(0)?;
            tally.traffic = end.traffic();
        }
        (tally.elapsed, tally.cpu) = (station.now() - begun, station.cpu().since(cpu));
        (tally.messages, tally.bytes) = (sent, sent * u64::from(self.size));
        members.send(SERVER, &tally.bytes.to_le_bytes())?;
        // The stream is closed after the server has taken everything.
        match members.receive(SERVER)? == DONE {
            true => Ok(tally),
            false => Err(Fault::Wrong("another message than the end")),
        }
    }
}

enum Outbox<'m, S: Station> {
    Verbs(Box<End<'m, S>>),
    Stream(StreamOf<S>),
}

enum Inbox<'m, S: Station> {
    Verbs(Box<End<'m, S>>),
    /// With room for what a socket holds.
    Streams(Vec<StreamOf<S>>, Vec<u8>),
}

struct Server<'m, S: Station> {
    interference: Interference,
    members: &'m Members<'m, S>,
    inbox: Inbox<'m, S>,
    /// Bytes received of each client.
    received: Vec<u64>,
}

impl<S: Station> Server<'_, S> {
    fn post_receives(&mut self) -> Result<(), Fault> {
        let Interference { by, clients, .. } = self.interference;
        if by != By::Send {
            return Ok(());
        }
        (0..clients as usize)
            .flat_map(|link| (0..WINDOW).map(move |slot| (link, slot)))
            .try_for_each(|receive| self.post_receive(receive))
    }

    fn post_receive(&mut self, (link, slot): (usize, u32)) -> Result<(), Fault> {
        let buffer = self.buffer(link, slot);
        match &mut self.inbox {
            Inbox::Verbs(end) => end.post_receive((link, slot), buffer),
            Inbox::Streams(..) => Ok(()),
        }
    }

    fn buffer(&self, link: usize, slot: u32) -> (u64, u32) {
        let place = link as u64 * u64::from(WINDOW) + u64::from(slot);
        (place * self.interference.slot(), self.interference.size)
    }

    /// Executes the computation once; returns its duration.
    fn compute(&mut self) -> Result<Span, Fault> {
        let station = self.members.station();
        let begun = station.now();
        let mut left = self.interference.compute;
        while left > Span::ZERO {
            let slice = left.min(SLICE);
            station.execute(slice);
            left = left.saturating_sub(slice);
            self.take_arrived()?;
        }
        Ok((station.now() - begun).saturating_sub(station.clock_cost()))
    }

    /// Takes what has arrived, without waiting.
    fn take_arrived(&mut self) -> Result<(), Fault> {
        match &mut self.inbox {
            Inbox::Verbs(_) if self.interference.by != By::Send => Ok(()),
            Inbox::Verbs(end) => {
                // No more than the receives that were posted, or computation would never go on.
                let most = self.interference.clients * WINDOW;
                let mut taken = Vec::new();
                while let Some(arrival) = end.take_arrived()? {
                    taken.push(arrival);
                    if taken.len() >= most as usize {
                        break;
                    }
                }
                for arrival in taken {
                    self.received[arrival.link] += u64::from(arrival.bytes);
                    self.post_receive((arrival.link, arrival.slot))?;
                }
                Ok(())
            }
            Inbox::Streams(all, room) => {
                let streams = self.members.station().streams();
                for (stream, received) in all.iter().zip(&mut self.received) {
                    *received += streams.receive_arrived(stream, room)? as u64;
                }
                Ok(())
            }
        }
    }

    /// Takes the rest of the messages, and compares what has arrived with what clients have sent.
    fn finish(&mut self, clients: &[RoleId]) -> Result<(), Fault> {
        let mut sent = vec![None; clients.len()];
        while sent.iter().any(Option::is_none) {
            for (client, sent) in clients.iter().zip(&mut sent) {
                if sent.is_none()
                    && let Some(said) = self.members.receive_within(*client, Span::ZERO)?
                {
                    let said = <[u8; 8]>::try_from(&said[..]);
                    let said = said.map_err(|_| Fault::Wrong("a count of another length"))?;
                    *sent = Some(u64::from_le_bytes(said));
                }
            }
            self.take_arrived()?;
            self.members.station().compute(Span::from_us(10));
        }
        let sent: Vec<u64> = sent.into_iter().flatten().collect();
        if self.interference.by != By::Write {
            while self.received.iter().zip(&sent).any(|(got, all)| got < all) {
                self.take_arrived()?;
                self.members.station().compute(Span::from_us(10));
            }
            if self.received != sent {
                return Err(Fault::Wrong("more bytes than were sent"));
            }
        }
        self.check_messages(clients)?;
        clients
            .iter()
            .try_for_each(|client| self.members.send(*client, DONE))
    }

    /// Checks every byte of the last message of each client that is in memory.
    fn check_messages(&self, clients: &[RoleId]) -> Result<(), Fault> {
        let Inbox::Verbs(end) = &self.inbox else {
            return Ok(());
        };
        let mut found = vec![0; self.interference.size as usize];
        for (link, client) in clients.iter().enumerate() {
            let at = match self.interference.by {
                By::Send => self.buffer(link, 0).0,
                _ => link as u64 * self.interference.slot(),
            };
            end.load(at, &mut found)?;
            check(client.0.into(), &found)?;
        }
        Ok(())
    }
}
