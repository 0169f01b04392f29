//! `blast`: as many messages in flight as there are buffers.

use adverb_results::{Completion, Opcode, Posting, Signaling};
use adverb_verbs::{
    Imm, Operation, QueuePair, RecvRequest, SendFlags, SendRequest, Sge, Station, WorkCompletion,
    WrId,
};

use crate::pair::bench::Bench;
use crate::pair::error::{Fault, Side};
use crate::pair::layout;
use crate::pair::ping::{check_completion, immediate, outgoing_flags};
use crate::pair::reap::{BATCH, Reap};
use crate::pair::sample::{Sampler, Watch};
use crate::pair::session::{Part, Ran};

/// Gives `drive` this side's part of the cell's blast.
pub(crate) fn with_part<S: Station, T>(
    bench: &Bench<'_, S>,
    drive: impl FnOnce(&mut dyn Part) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let queue = match bench.side {
        Side::Active => &bench.send,
        Side::Passive => &bench.recv,
    };
    match (bench.spec.params.completion, queue.notified()) {
        (Completion::Event, Some(events)) => with_queue(bench, events, drive),
        _ => with_queue(bench, queue.polling(), drive),
    }
}

fn with_queue<S: Station, R: Reap<S>, T>(
    bench: &Bench<'_, S>,
    queue: R,
    drive: impl FnOnce(&mut dyn Part) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let slots = match bench.side {
        Side::Active => bench.spec.params.buffers,
        Side::Passive => bench.layout.receives.min(bench.layout.slots),
    };
    let sges: Vec<[Sge<'_>; 1]> = (0..slots)
        .map(|slot| Ok([bench.sge(slot)?]))
        .collect::<Result<_, Fault>>()?;
    match bench.side {
        Side::Active => drive(&mut Sender::new(bench, queue, &sges)),
        Side::Passive => drive(&mut Receiver::new(bench, queue, &sges)?),
    }
}

/// The active side. Messages are counted over all runs of a cell; a request is named by its message.
struct Sender<'b, S: Station, R> {
    bench: &'b Bench<'b, S>,
    queue: R,
    /// A request for each buffer, twice in a row: the requests of any number of buffers that follow
    /// one another, also past the last, are one slice.
    requests: Vec<SendRequest<'b>>,
    flags: SendFlags,
    /// Buffer of the next message.
    slot: usize,
    posted: u64,
    /// All messages before this one are completed.
    completed: u64,
    /// Every how many messages one is signaled.
    signal_every: u64,
    /// Messages until the next signaled one, with it.
    until_signal: u64,
}

impl<'b, S: Station, R: Reap<S>> Sender<'b, S, R> {
    fn new(bench: &'b Bench<'_, S>, queue: R, sges: &'b [[Sge<'b>; 1]]) -> Self {
        let p = &bench.spec.params;
        let request = |slot: usize| {
            let there = bench.remote(slot as u32);
            let operation = match p.op {
                Opcode::Send => Operation::Send,
                Opcode::WriteImm => Operation::RdmaWriteWithImm(there, Imm(0)),
                Opcode::Read => Operation::RdmaRead(there),
                Opcode::Write | Opcode::WriteRead => Operation::RdmaWrite(there),
            };
            SendRequest::new(WrId(0), operation, &sges[slot])
        };
        let signal_every = match p.signal {
            Signaling::Periodic => u64::from(p.buffers / 2).max(1),
            Signaling::Every(every) => u64::from(every.max(1)),
            Signaling::All | Signaling::WriteUnsignaled => 1,
        };
        Sender {
            bench,
            queue,
            requests: (0..2 * sges.len())
                .map(|i| request(i % sges.len()))
                .collect(),
            flags: outgoing_flags(bench),
            slot: 0,
            posted: 0,
            completed: 0,
            signal_every,
            until_signal: signal_every,
        }
    }

    /// How many messages are posted when the last of them is next a signaled one.
    fn next_signaled(&self) -> u64 {
        self.posted + self.until_signal % self.signal_every
    }

    fn buffers(&self) -> usize {
        self.requests.len() / 2
    }

    /// Posts the next `count` messages, which have free buffers; `end` is the run's end.
    #[inline]
    fn post(&mut self, count: usize, end: u64, watch: &mut Watch<'_>) -> Result<(), Fault> {
        let (bench, first) = (self.bench, self.slot);
        match bench.spec.params.post {
            Posting::Single => {
                for place in first..first + count {
                    self.prepare(place, end, watch)?;
                    watch.posting(bench.station);
                    bench
                        .qp
                        .post_send(std::slice::from_ref(&self.requests[place]))?;
                }
            }
            Posting::List => {
                for place in first..first + count {
                    self.prepare(place, end, watch)?;
                }
                watch.posting(bench.station);
                bench.qp.post_send(&self.requests[first..first + count])?;
            }
        }
        self.slot = (first + count) % self.buffers();
        Ok(())
    }

    /// Makes the request at `place` that of the next message.
    #[inline]
    fn prepare(&mut self, place: usize, end: u64, watch: &mut Watch<'_>) -> Result<(), Fault> {
        let message = self.posted;
        self.posted += 1;
        self.until_signal -= 1;
        let mut flags = self.flags;
        if self.until_signal == 0 || self.posted == end {
            self.until_signal = self.signal_every;
            flags |= SendFlags::SIGNALED;
            watch.choose(message);
        }
        let request = &mut self.requests[place];
        request.wr_id = WrId(message);
        request.flags = flags;
        if self.bench.spec.params.verify {
            self.fill(place, message)?;
        }
        Ok(())
    }

    /// Gives a message that can be checked its payload, target and immediate data.
    fn fill(&mut self, place: usize, message: u64) -> Result<(), Fault> {
        let slot = (place % self.buffers()) as u32;
        if self.bench.spec.params.op == Opcode::Read {
            // Spoilt, so that the READ shows.
            return Ok(self.bench.write_payload(slot, u64::MAX)?);
        }
        self.bench.write_payload(slot, message)?;
        if let Operation::RdmaWriteWithImm(there, imm) = &mut self.requests[place].operation {
            let targets = u64::from(layout::targets(self.bench.spec));
            *there = self.bench.remote((message % targets) as u32);
            *imm = immediate(message);
        }
        Ok(())
    }

    /// Takes note that `message`, and all before it, are completed.
    #[inline]
    fn complete(&mut self, message: u64) -> Result<(), Fault> {
        let p = &self.bench.spec.params;
        if p.verify && p.op == Opcode::Read {
            let buffers = self.buffers() as u64;
            for read in self.completed..=message {
                let slot = read % buffers;
                self.bench.check_payload(slot as u32, slot)?;
            }
        }
        self.completed = message + 1;
        Ok(())
    }
}

impl<S: Station, R: Reap<S>> Sender<'_, S, R> {
    /// Keeps the buffers in flight until the messages before `end` are completed, or time is over.
    fn send_until(&mut self, end: u64, watch: &mut Watch<'_>) -> Result<(), Fault> {
        let bench = self.bench;
        let buffers = self.buffers() as u64;
        let mut completions = [WorkCompletion::default(); BATCH];
        while self.completed < end {
            let free = buffers - (self.posted - self.completed);
            let count = free.min(end - self.posted);
            if count > 0 {
                self.post(count as usize, end, watch)?;
            }
            let n = self.queue.reap(bench, &mut completions)?;
            for wc in &completions[..n] {
                self.complete(wc.wr_id.0)?;
            }
            if watch.reaped(bench.station, self.completed, &bench.limit) && bench.limit.is_over() {
                break;
            }
        }
        Ok(())
    }
}

impl<S: Station, R: Reap<S>> Part for Sender<'_, S, R> {
    fn run(&mut self, messages: u64, sampler: Option<&mut Sampler>) -> Result<Ran, Fault> {
        let bench = self.bench;
        let first = self.posted;
        let mut end = first + messages;
        let mut watch = Watch::new(sampler, first);
        let start = bench.station.now();
        self.send_until(end, &mut watch)?;
        if self.completed < end {
            end = end.min(self.next_signaled());
            bench.limit.begin(None);
            self.send_until(end, &mut watch)?;
        }
        Ok(Ran {
            iters: end - first,
            elapsed: bench.station.now() - start,
        })
    }
}

/// The passive side of SEND and WRITE WITH IMM: keeps receives posted.
struct Receiver<'b, S: Station, R> {
    bench: &'b Bench<'b, S>,
    queue: R,
    /// All receives; each is named by its place.
    receives: Vec<RecvRequest<'b>>,
    /// Room for a list of receives to repost.
    list: [RecvRequest<'b>; BATCH],
    received: u64,
}

impl<'b, S: Station, R: Reap<S>> Receiver<'b, S, R> {
    fn new(bench: &'b Bench<'_, S>, queue: R, sges: &'b [[Sge<'b>; 1]]) -> Result<Self, Fault> {
        let receive = |place: u32| {
            // The payload of a WRITE WITH IMM goes where the sender says.
            let into: &[Sge<'b>] = match bench.spec.params.op {
                Opcode::WriteImm => &[],
                _ => &sges[place as usize],
            };
            RecvRequest::new(WrId(place.into()), into)
        };
        let receives: Vec<RecvRequest<'b>> = (0..bench.layout.receives).map(receive).collect();
        bench.qp.post_recv(&receives)?;
        Ok(Receiver {
            bench,
            queue,
            receives,
            list: [RecvRequest::new(WrId(0), &[]); BATCH],
            received: 0,
        })
    }

    /// Makes the receives that were consumed available again.
    #[inline]
    fn repost(&mut self, consumed: &[WorkCompletion]) -> Result<(), Fault> {
        match self.bench.spec.params.post {
            Posting::Single => {
                for wc in consumed {
                    let receive = &self.receives[wc.wr_id.0 as usize];
                    self.bench.qp.post_recv(std::slice::from_ref(receive))?;
                }
            }
            Posting::List => {
                for (place, wc) in self.list.iter_mut().zip(consumed) {
                    *place = self.receives[wc.wr_id.0 as usize];
                }
                self.bench.qp.post_recv(&self.list[..consumed.len()])?;
            }
        }
        Ok(())
    }

    fn check(&self, arrived: &[WorkCompletion]) -> Result<(), Fault> {
        for (wc, message) in arrived.iter().zip(self.received..) {
            check_completion(self.bench, wc, message)?;
            let slot = match self.bench.spec.params.op {
                Opcode::WriteImm => message % u64::from(layout::targets(self.bench.spec)),
                _ => wc.wr_id.0,
            };
            self.bench.check_payload(slot as u32, message)?;
        }
        Ok(())
    }
}

impl<S: Station, R: Reap<S>> Part for Receiver<'_, S, R> {
    fn run(&mut self, messages: u64, _sampler: Option<&mut Sampler>) -> Result<Ran, Fault> {
        let bench = self.bench;
        let first = self.received;
        let end = first + messages;
        let mut completions = [WorkCompletion::default(); BATCH];
        let start = bench.station.now();
        while self.received < end {
            let n = match self.queue.reap(bench, &mut completions) {
                Err(Fault::Stopped) => break,
                reaped => reaped?,
            };
            let arrived = &completions[..n];
            if bench.spec.params.verify {
                self.check(arrived)?;
            }
            self.repost(arrived)?;
            self.received += n as u64;
        }
        Ok(Ran {
            iters: self.received - first,
            elapsed: bench.station.now() - start,
        })
    }
}
