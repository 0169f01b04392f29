//! `ping`: one message in flight, back and forth.
//!
//! A [`PingSide`] is one side's part of a round trip, by a verb or by a stream; one loop plays all of them.

use adverb_results::{Opcode, Signaling};
use adverb_verbs::{
    Comparison, Imm, MemoryRegion, Operation, QueuePair, RecvRequest, SendFlags, SendRequest, Sge,
    Station, WaitError, WcFlags, WorkCompletion, WrId,
};

use crate::attend::Awaited;
use crate::error::{Fault, Side};
use crate::pair::bench::Bench;
use crate::pair::layout::{self, IN, PING_RECEIVES};
use crate::pair::part::{Part, Ran};
use crate::pair::peer::Peer;
use crate::pair::spec::{CellSpec, SIGNALED_WRITES};
use crate::reap::Reaper;
use crate::sample::Sampler;

/// Buffer of sent messages.
const OUT: u32 = 0;

/// One side's way of taking part in rounds. Rounds are counted over all runs of a cell.
pub(crate) trait PingSide {
    /// `rounds` more rounds follow.
    fn begin(&mut self, rounds: u64) {
        let _ = rounds;
    }

    /// Posts this side's message.
    fn push(&mut self) -> Result<(), Fault>;

    /// Cleans up while messages are in flight.
    fn settle(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Waits for the other side's message.
    fn take(&mut self) -> Result<(), Fault>;

    /// The rounds are over.
    fn end(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Messages of a round.
    fn messages(&self) -> u64 {
        2
    }
}

/// A side with its place in the round.
pub(crate) struct Rounds<'b, S: Station, H> {
    peer: &'b Peer<'b, S>,
    spec: &'b CellSpec,
    side: Side,
    ping: H,
}

impl<S: Station, H: PingSide> Part for Rounds<'_, S, H> {
    fn run(&mut self, rounds: u64, sampler: Option<&mut Sampler>) -> Result<Ran, Fault> {
        self.ping.begin(rounds);
        let station = self.peer.station;
        let start = station.now();
        let iters = match (self.side, sampler) {
            (Side::Active, None) => self.lead_for(0, rounds),
            (Side::Active, Some(sampler)) => self.lead_sampled(rounds, sampler),
            (Side::Passive, _) => self.follow_for(rounds),
        };
        let iters = iters.map_err(|fault| or_lost(self.spec, fault))?;
        self.ping.end()?;
        let elapsed = station.now() - start;
        Ok(Ran { iters, elapsed })
    }
}

impl<'b, S: Station, H: PingSide> Rounds<'b, S, H> {
    pub(crate) fn new((peer, spec, side): (&'b Peer<'b, S>, &'b CellSpec, Side), ping: H) -> Self {
        Rounds {
            peer,
            spec,
            side,
            ping,
        }
    }

    #[inline]
    fn lead(&mut self) -> Result<(), Fault> {
        self.ping.push()?;
        self.ping.settle()?;
        self.ping.take()
    }

    #[inline]
    fn follow(&mut self) -> Result<(), Fault> {
        self.ping.take()?;
        self.ping.push()?;
        self.ping.settle()
    }

    /// Runs `rounds` rounds, after `done` ones, or until the time is over; returns their number.
    fn lead_for(&mut self, done: u64, rounds: u64) -> Result<u64, Fault> {
        for round in 1..=rounds {
            self.lead()?;
            if self.peer.limit.is_over(done + round) {
                return Ok(round);
            }
        }
        Ok(rounds)
    }

    /// The same, with sampled rounds timed.
    fn lead_sampled(&mut self, rounds: u64, sampler: &mut Sampler) -> Result<u64, Fault> {
        let station = self.peer.station;
        let mut left = rounds;
        while left > 0 && !self.peer.limit.is_over(rounds - left) {
            let start = station.now();
            self.lead()?;
            let end = station.now();
            sampler.record(start, end, self.ping.messages());
            self.peer.limit.look(end);
            left -= 1;
            left -= self.lead_for(rounds - left, left.min(sampler.every - 1))?;
        }
        Ok(rounds - left)
    }

    /// Runs `rounds` rounds, or until the other side has ended the run; returns their number.
    fn follow_for(&mut self, rounds: u64) -> Result<u64, Fault> {
        for round in 0..rounds {
            match self.follow() {
                Err(Fault::Stopped) => return Ok(round),
                followed => followed?,
            }
        }
        Ok(rounds)
    }
}

/// A wait that timed out where nothing is sent again means that a message was lost.
fn or_lost(spec: &CellSpec, fault: Fault) -> Fault {
    let transport = spec.params.traffic.transport;
    match fault {
        Fault::Wait(WaitError::TimedOut { timeout, .. }) if !transport.is_reliable() => {
            Fault::LostMessage { transport, timeout }
        }
        fault => fault,
    }
}

/// Gives `drive` this side's part of the cell's ping.
pub(crate) fn with_part<S: Station, T>(
    bench: &Bench<'_, S>,
    drive: impl FnOnce(&mut dyn Part) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let (send, recv) = (bench.send.reaper(), bench.recv.reaper());
    let out = [bench.sge(OUT)?];
    let out = bench.pieces(&out);
    match bench.spec.params.op {
        Opcode::Send | Opcode::SendImm | Opcode::WriteImm => {
            let into = receive_buffers(bench)?;
            let ping = Messages::new(bench, send, recv, out, &into)?;
            drive(&mut in_place(bench, ping))
        }
        Opcode::Write => drive(&mut in_place(bench, PolledMemory::new(bench, send, out)?)),
        Opcode::WriteRead | Opcode::Read | Opcode::FetchAdd | Opcode::Cas => {
            let pulled = [bench.sge(IN)?];
            let pulled = bench.pieces(&pulled);
            drive(&mut in_place(bench, Alone::new(bench, send, out, pulled)))
        }
    }
}

fn in_place<'b, S: Station, H: PingSide>(bench: &'b Bench<'_, S>, ping: H) -> Rounds<'b, S, H> {
    Rounds::new((bench.peer, bench.spec, bench.side), ping)
}

/// Returns the flags of requests with payload.
pub(crate) fn outgoing_flags<S: Station>(bench: &Bench<'_, S>) -> SendFlags {
    if bench.spec.params.inline {
        SendFlags::INLINE
    } else {
        SendFlags::empty()
    }
}

/// Returns the immediate data of a message.
pub(crate) fn immediate(message: u64) -> Imm {
    Imm(message as u32)
}

/// Checks the completion of the receive of `message`.
pub(crate) fn check_completion<S: Station>(
    bench: &Bench<'_, S>,
    wc: &WorkCompletion,
    message: u64,
) -> Result<(), Fault> {
    let wrong = |what, expected: u64, found: u64| Fault::WrongCompletion {
        message,
        what,
        expected,
        found,
    };
    let length = bench.size() + layout::header(bench.spec);
    if u64::from(wc.byte_len) != length {
        return Err(wrong("byte_len", length, wc.byte_len.into()));
    }
    if bench.spec.params.op != Opcode::WriteImm {
        return Ok(());
    }
    let expected = immediate(message);
    match wc.imm {
        Some(imm) if imm == expected && wc.flags.contains(WcFlags::WITH_IMM) => Ok(()),
        Some(imm) => Err(wrong("immediate data", expected.0.into(), imm.0.into())),
        None => Err(wrong("immediate data", expected.0.into(), u64::MAX)),
    }
}

fn receive_buffers<'b, S: Station>(bench: &'b Bench<'_, S>) -> Result<Vec<[Sge<'b>; 1]>, Fault> {
    (IN..IN + PING_RECEIVES)
        .map(|slot| Ok([bench.receive_sge(slot)?]))
        .collect()
}

/// SEND, or WRITE WITH IMM.
struct Messages<'b, S: Station> {
    bench: &'b Bench<'b, S>,
    send: Reaper<'b, S::Context>,
    recv: Reaper<'b, S::Context>,
    request: SendRequest<'b>,
    /// A request for each receive buffer, with its buffer as `wr_id`.
    receives: Vec<RecvRequest<'b>>,
    /// The receive that the last message consumed.
    consumed: usize,
    round: u64,
}

impl<'b, S: Station> Messages<'b, S> {
    fn new(
        bench: &'b Bench<'_, S>,
        send: Reaper<'b, S::Context>,
        recv: Reaper<'b, S::Context>,
        out: &'b [Sge<'b>],
        into: &'b [[Sge<'b>; 1]],
    ) -> Result<Self, Fault> {
        let with_imm = bench.spec.params.op == Opcode::WriteImm;
        let operation = if with_imm {
            Operation::RdmaWriteWithImm(bench.remote(IN), Imm(0))
        } else {
            Operation::Send
        };
        let flags = outgoing_flags(bench) | SendFlags::SIGNALED;
        let name = |i: usize| WrId(i as u64);
        let receives = (0..into.len()).map(|i| {
            // The sender chooses where the payload of a WRITE WITH IMM is written.
            let sges = if with_imm {
                &[]
            } else {
                bench.receive_pieces(&into[i])
            };
            RecvRequest::new(name(i), sges)
        });
        let mut ping = Messages {
            bench,
            send,
            recv,
            request: SendRequest::new(WrId(0), operation, out).with_flags(flags),
            receives: receives.collect(),
            consumed: 0,
            round: 0,
        };
        ping.request.to = bench.destination(0);
        bench.qp().post_recv(&ping.receives)?;
        Ok(ping)
    }

    /// Returns the number of a message. There are two per round, numbered in the order of sending.
    fn message(&self, from: Side) -> u64 {
        2 * self.round + u64::from(from == Side::Passive)
    }

    fn prepare(&mut self, message: u64) -> Result<(), Fault> {
        self.bench.write_payload(OUT, message)?;
        if let Operation::RdmaWriteWithImm(_, imm) = &mut self.request.operation {
            *imm = immediate(message);
        }
        Ok(())
    }

    fn check(&self, wc: &WorkCompletion, message: u64) -> Result<(), Fault> {
        check_completion(self.bench, wc, message)?;
        let slot = match self.bench.spec.params.op {
            Opcode::WriteImm => IN,
            _ => IN + self.consumed as u32,
        };
        self.bench.check_received(slot, message)
    }

    /// Counts a round after the passive side's message.
    fn passed(&mut self, from: Side) {
        self.round += u64::from(from == Side::Passive);
    }
}

impl<S: Station> PingSide for Messages<'_, S> {
    #[inline]
    fn push(&mut self) -> Result<(), Fault> {
        let side = self.bench.side;
        let message = self.message(side);
        if self.bench.spec.params.verify {
            self.prepare(message)?;
        }
        self.request.wr_id = WrId(message);
        self.bench
            .qp()
            .post_send(std::slice::from_ref(&self.request))?;
        self.passed(side);
        Ok(())
    }

    /// Reposts the last consumed receive, and reaps the completion of the message in flight.
    #[inline]
    fn settle(&mut self) -> Result<(), Fault> {
        // Before the first message of the active side nothing was consumed.
        if self.round > 0 {
            let receive = &self.receives[self.consumed];
            self.bench.qp().post_recv(std::slice::from_ref(receive))?;
        }
        let mut wc = [WorkCompletion::default()];
        self.send.reap(self.bench.station, self.bench, &mut wc)?;
        Ok(())
    }

    #[inline]
    fn take(&mut self) -> Result<(), Fault> {
        let from = self.bench.side.other();
        let mut wc = [WorkCompletion::default()];
        self.recv.reap(self.bench.station, self.bench, &mut wc)?;
        self.consumed = wc[0].wr_id.0 as usize;
        if self.bench.spec.params.verify {
            self.check(&wc[0], self.message(from))?;
        }
        self.passed(from);
        Ok(())
    }
}

/// WRITE into memory that the other side polls: the last byte changes with each message.
struct PolledMemory<'b, S: Station> {
    bench: &'b Bench<'b, S>,
    send: Reaper<'b, S::Context>,
    request: SendRequest<'b>,
    /// Messages sent, and received.
    pushed: u64,
    taken: u64,
    /// The run's last message.
    last: u64,
}

impl<'b, S: Station> PolledMemory<'b, S> {
    fn new(
        bench: &'b Bench<'_, S>,
        send: Reaper<'b, S::Context>,
        out: &'b [Sge<'b>],
    ) -> Result<Self, Fault> {
        let operation = Operation::RdmaWrite(bench.remote(IN));
        Ok(PolledMemory {
            bench,
            send,
            request: SendRequest::new(WrId(0), operation, out),
            pushed: 0,
            taken: 0,
            last: 0,
        })
    }

    /// Returns the last byte of the `n`th message, counted from 1; it differs from the neighbours'.
    fn flag(n: u64) -> u8 {
        n as u8
    }
}

impl<S: Station> PingSide for PolledMemory<'_, S> {
    fn begin(&mut self, rounds: u64) {
        self.last = self.pushed + rounds;
    }

    #[inline]
    fn push(&mut self) -> Result<(), Fault> {
        self.pushed += 1;
        let bench = self.bench;
        if bench.spec.params.verify {
            bench.write_payload(
                OUT,
                2 * self.pushed + u64::from(bench.side == Side::Passive),
            )?;
        }
        let flag = [Self::flag(self.pushed)];
        bench.mr().write(bench.layout.last_byte(OUT), &flag)?;
        self.request.wr_id = WrId(self.pushed);
        self.request.flags = outgoing_flags(bench);
        if self.is_signaled() {
            self.request.flags |= SendFlags::SIGNALED;
        }
        bench.qp().post_send(std::slice::from_ref(&self.request))?;
        Ok(())
    }

    #[inline]
    fn settle(&mut self) -> Result<(), Fault> {
        if self.is_signaled() {
            let mut wc = [WorkCompletion::default()];
            self.send.reap(self.bench.station, self.bench, &mut wc)?;
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self) -> Result<(), Fault> {
        let bench = self.bench;
        let offset = bench.layout.last_byte(IN);
        let flag = Self::flag(self.taken + 1);
        bench.attentively(Awaited::Message, |timeout| {
            let waited = bench.station.spin_memory(bench.mr(), offset, flag, timeout);
            waited.map_err(|error| bench.unless_a_send_failed(error))
        })?;
        self.taken += 1;
        if bench.spec.params.verify {
            let message = 2 * self.taken + u64::from(bench.side == Side::Active);
            bench.check_payload_but_last(IN, message)?;
        }
        Ok(())
    }
}

impl<S: Station> PolledMemory<'_, S> {
    fn is_signaled(&self) -> bool {
        self.pushed.is_multiple_of(SIGNALED_WRITES.into()) || self.pushed == self.last
    }
}

/// Returns the compare-and-swap of a round, which increments the counter.
fn swap(round: u64) -> Comparison {
    Comparison {
        expected: round,
        new: round + 1,
    }
}

/// One-sided ping: the active side WRITEs (in `write-read`) and READs or uses atomics.
struct Alone<'b, S: Station> {
    bench: &'b Bench<'b, S>,
    send: Reaper<'b, S::Context>,
    write: Option<SendRequest<'b>>,
    read: SendRequest<'b>,
    round: u64,
}

impl<'b, S: Station> Alone<'b, S> {
    fn new(
        bench: &'b Bench<'_, S>,
        send: Reaper<'b, S::Context>,
        out: &'b [Sge<'b>],
        pulled: &'b [Sge<'b>],
    ) -> Self {
        let there = bench.remote(0);
        let pull = match bench.spec.params.op {
            Opcode::FetchAdd => Operation::FetchAdd(there, 1),
            Opcode::Cas => Operation::CompareSwap(there, swap(0)),
            _ => Operation::RdmaRead(there),
        };
        let signaled = match bench.spec.params.signal {
            Signaling::WriteUnsignaled => SendFlags::empty(),
            _ => SendFlags::SIGNALED,
        };
        let write = SendRequest::new(WrId(0), Operation::RdmaWrite(there), out)
            .with_flags(outgoing_flags(bench) | signaled);
        Alone {
            bench,
            send,
            write: (bench.spec.params.op == Opcode::WriteRead).then_some(write),
            read: SendRequest::new(WrId(0), pull, pulled).with_flags(SendFlags::SIGNALED),
            round: 0,
        }
    }

    fn pull(&mut self) -> Result<(), Fault> {
        self.read.wr_id = WrId(self.round);
        if let Operation::CompareSwap(_, comparison) = &mut self.read.operation {
            *comparison = swap(self.round);
        }
        self.bench
            .qp()
            .post_send(std::slice::from_ref(&self.read))?;
        Ok(())
    }

    fn reap(&mut self) -> Result<(), Fault> {
        let mut wc = [WorkCompletion::default()];
        self.send.reap(self.bench.station, self.bench, &mut wc)?;
        Ok(())
    }
}

impl<S: Station> PingSide for Alone<'_, S> {
    /// The WRITE, its completion where it is signaled, and the READ.
    #[inline]
    fn push(&mut self) -> Result<(), Fault> {
        let Some(write) = &mut self.write else {
            return self.pull();
        };
        if self.bench.spec.params.verify {
            self.bench.write_payload(OUT, self.round)?;
        }
        write.wr_id = WrId(self.round);
        self.bench.qp().post_send(std::slice::from_ref(write))?;
        if write.flags.contains(SendFlags::SIGNALED) {
            self.reap()?;
        }
        self.pull()
    }

    #[inline]
    fn take(&mut self) -> Result<(), Fault> {
        self.reap()?;
        let params = &self.bench.spec.params;
        if params.verify && params.op.is_atomic() {
            // The value before the operation.
            self.bench.check_word(IN, self.round, self.round)?;
        } else if params.verify {
            // The server's buffer of a READ ping never changes. The local copy is overwritten after its
            // check, so that the effect of each READ is visible.
            let message = if self.write.is_some() { self.round } else { 0 };
            self.bench.check_payload(IN, message)?;
            self.bench.write_payload(IN, u64::MAX)?;
        }
        self.round += 1;
        Ok(())
    }
}
