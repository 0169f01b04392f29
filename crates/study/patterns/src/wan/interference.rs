//! `interference`: a server executes a computation of fixed length, first alone, then while clients stream to it.
//!
//! If readers poll, one thread of the server computes, and takes what has arrived between two slices of its computation:
//! SENDs and their receives, or what sockets hold. WRITEs need none of this. If readers sleep, each client has a reader at
//! the server's host, on the core of the computation, which wakes up for what arrives. The time of the computation contains
//! this work, and what the kernel does on the same core.
//!
//! A computation may read memory, too, by which it competes with messages for the memory's bandwidth.

use adverb_results::Completion;
use adverb_units::{Bytes, Span};
use adverb_verbs::{Level, PathOptions, RoleId, Station, Work};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;
use adverb_workload::streams::send_all;

use super::content::message;
use super::end::End;
use super::receiver::Receiver;
use super::streams::Way;
use super::{By, DONE, WanTally, streams};

const SERVER: RoleId = RoleId(0);
const GO: &[u8] = b"go";
/// Queues and socket buffers are full: clients count from now on.
const COUNT: &[u8] = b"count";
const STOP: &[u8] = b"stop";
/// The computation between two looks for messages.
const SLICE: Span = Span::from_ms(1);
/// Computations under load that are not measured.
const WARM_UP: u32 = 2;
/// Outstanding requests of a client, and receives that its receiver posts for it.
pub(super) const WINDOW: u32 = 8;
/// The array that a computation reads, in turn: no cache holds it.
const ARRAY: usize = 64 << 20;
const LINE: usize = 64;

/// The parameters of an interference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interference {
    pub(super) by: By,
    pub(super) completion: Completion,
    pub(super) clients: u32,
    /// Length of the computation, apart from memory that it reads.
    pub(super) compute: Span,
    /// Bytes of memory that it reads in each slice.
    pub(super) reads: Bytes,
    pub(super) size: u32,
    /// Measured computations, alone and under load.
    pub(super) iters: u32,
}

impl Interference {
    /// Whether each client has a reader that sleeps.
    pub(super) fn has_readers(&self) -> bool {
        self.completion != Completion::Poll
    }

    /// Returns the role that receives a client's messages: clients are 1 and up, their readers follow.
    fn receiver_of(&self, client: RoleId) -> RoleId {
        match self.has_readers() {
            true => RoleId(client.0 + self.clients),
            false => SERVER,
        }
    }

    /// Returns the clients whose messages a role receives.
    fn clients_of(&self, role: RoleId) -> impl Iterator<Item = RoleId> {
        let clients = (1..=self.clients).map(RoleId);
        clients.filter(move |client| self.receiver_of(*client) == role)
    }

    fn is_client(&self, role: RoleId) -> bool {
        (1..=self.clients).contains(&role.0)
    }

    /// Distance of messages in memory.
    pub(super) fn slot(&self) -> u64 {
        u64::from(self.size).next_multiple_of(64)
    }

    /// Returns the memory of a role for messages.
    pub(super) fn memory(&self, role: RoleId) -> u64 {
        let messages = match self.by {
            _ if self.is_client(role) => 1,
            By::Send => WINDOW as usize * self.clients_of(role).count(),
            _ => self.clients_of(role).count(),
        };
        self.slot() * messages as u64
    }

    pub(super) fn run<S: Station>(
        self,
        members: &Members<'_, S>,
        (me, path): (RoleId, PathOptions),
    ) -> Result<WanTally, Fault> {
        let tally = match me {
            client if self.is_client(client) => self.stream(members, (me, path))?,
            _ => {
                let clients = self.clients_of(me).collect();
                let mut receiver = Receiver::new(members, self, (me, clients), path)?;
                members.meet()?;
                let mut tally = WanTally::default();
                if me == SERVER {
                    tally = self.serve(members, &mut receiver)?;
                }
                receiver.take_rest()?;
                tally
            }
        };
        // No role ends while another one still looks whether it is there.
        members.meet()?;
        Ok(tally)
    }

    fn serve<S: Station>(
        self,
        members: &Members<'_, S>,
        receiver: &mut Receiver<'_, S>,
    ) -> Result<WanTally, Fault> {
        let station = members.station();
        let mut array = Array::new(self.reads);
        let mut compute = || self.compute(station, (&mut array, &mut *receiver));
        let tell = |word| {
            let mut clients = (1..=self.clients).map(RoleId);
            clients.try_for_each(|client| members.send(client, word))
        };
        let mut tally = WanTally::default();
        for _ in 0..self.iters {
            tally.computation.record(compute()?);
        }
        tell(GO)?;
        for _ in 0..WARM_UP {
            compute()?;
        }
        tell(COUNT)?;
        let (begun, cpu) = (station.now(), station.cpu());
        for _ in 0..self.iters {
            tally.whole.record(compute()?);
        }
        (tally.elapsed, tally.cpu) = (station.now() - begun, station.cpu().since(cpu));
        tell(STOP)?;
        Ok(tally)
    }

    /// Executes the computation once; returns its duration.
    fn compute<S: Station>(
        &self,
        station: &S,
        (array, receiver): (&mut Array, &mut Receiver<'_, S>),
    ) -> Result<Span, Fault> {
        let begun = station.now();
        let mut left = self.compute;
        while left > Span::ZERO {
            let slice = left.min(SLICE);
            station.execute(slice);
            array.read(station, self.reads);
            left = left.saturating_sub(slice);
            receiver.take_arrived()?;
        }
        Ok((station.now() - begun).saturating_sub(station.clock_cost()))
    }

    fn stream<S: Station>(
        self,
        members: &Members<'_, S>,
        (me, path): (RoleId, PathOptions),
    ) -> Result<WanTally, Fault> {
        let content = message(me.0.into(), self.size);
        let receiver = self.receiver_of(me);
        let mut way = match self.by {
            By::Tcp => Way::Stream(streams::connect(members, receiver)?),
            _ => {
                let sizes = (self.memory(me), WINDOW + 1, 1);
                let path = (path, Completion::Poll);
                let end = End::new(members, &[receiver], sizes, path)?;
                end.store(0, &content)?;
                Way::Verbs(Box::new(end))
            }
        };
        members.meet()?;
        members.receive(SERVER)?;
        let station = members.station();
        let place = match self.has_readers() {
            true => 0,
            false => u64::from(me.0 - 1),
        };
        let mut sent: u64 = 0;
        let mut since = (sent, station.now(), station.cpu());
        loop {
            // A system call.
            match members.receive_within(SERVER, Span::ZERO)? {
                Some(word) if word == COUNT => since = (sent, station.now(), station.cpu()),
                Some(_) => break,
                None => {}
            }
            for _ in 0..WINDOW {
                match &mut way {
                    Way::Stream(stream) => send_all(members, stream, &content)?,
                    Way::Verbs(end) => {
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
        let (before, begun, cpu) = since;
        let mut tally = WanTally {
            messages: sent - before,
            bytes: (sent - before) * u64::from(self.size),
            elapsed: station.now() - begun,
            cpu: station.cpu().since(cpu),
            ..WanTally::default()
        };
        if let Way::Verbs(end) = &mut way {
            end.drain_to(0)?;
        }
        tally.traffic = way.traffic();
        let bytes = sent * u64::from(self.size);
        members.send(receiver, &bytes.to_le_bytes())?;
        // The stream is closed after the receiver has taken everything.
        match members.receive(receiver)? == DONE {
            true => Ok(tally),
            false => Err(Fault::Wrong("another message than the end")),
        }
    }
}

/// Memory that a computation reads.
struct Array {
    words: Vec<u64>,
    next: usize,
}

impl Array {
    /// Is empty if nothing is read.
    fn new(reads: Bytes) -> Self {
        let length = if reads == Bytes::new(0) { 0 } else { ARRAY / 8 };
        Array {
            // Not zero: all pages of zeros would be the same one.
            words: vec![1; length],
            next: 0,
        }
    }

    /// Reads the next `bytes`, a word of each line.
    fn read<S: Station>(&mut self, station: &S, bytes: Bytes) {
        let lines = bytes.get().div_ceil(LINE as u64);
        let mut sum = 0_u64;
        for _ in 0..lines {
            sum = sum.wrapping_add(self.words[self.next]);
            self.next = (self.next + LINE / 8) % self.words.len();
        }
        std::hint::black_box(sum);
        station.account(Work::Load {
            lines: lines as u32,
            from: Level::Memory,
        });
    }
}
