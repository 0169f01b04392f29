//! `blast`: as many messages in flight as there are buffers.

use std::cell::RefCell;

use adverb_results::{Opcode, Posting, Signaling};
use adverb_units::{Span, Time};
use adverb_verbs::{
    CompletionQueue, Operation, QueuePair, RecvRequest, Sge, Station, WaitError, WorkCompletion,
    WrId,
};

use crate::attend::Within;
use crate::engine::{Contents, Engine, Inbox, Parts, Target};
use crate::error::Fault;
use crate::load::{Limits, Load, Places, Refill};
use crate::pair::bench::Bench;
use crate::pair::layout;
use crate::pair::part::{Part, Ran};
use crate::pair::ping::{check_completion, immediate};
use crate::reap::{BATCH, Reaper};
use crate::sample::{Sampler, Watch};
use crate::wiring::MAX_RD_ATOMIC;

/// Gives `drive` this side's part of the cell's blast.
pub(crate) fn with_part<S: Station, T>(
    bench: &Bench<'_, S>,
    drive: impl FnOnce(&mut dyn Part) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let sge = |slot| match bench.sends() && (bench.layout.inbox == 0 || slot < bench.layout.inbox) {
        true => bench.sge(slot),
        false => bench.receive_sge(slot),
    };
    let sges: Vec<[Sge<'_>; 1]> = (0..bench.layout.slots)
        .map(|slot| Ok([sge(slot)?]))
        .collect::<Result<_, Fault>>()?;
    if !bench.sends() {
        return drive(&mut Receiver::new(bench, &sges)?);
    }
    let receives = bench.layout.receives > 0;
    let receiver = receives.then(|| Receiver::new(bench, &sges)).transpose()?;
    let receiver = receiver.map(RefCell::new);
    let inbox = receiver.as_ref().map(|receiver| receiver as &dyn Inbox);
    let load = load(bench);
    let contents: &dyn Contents = bench;
    let target = |link| Target {
        remote: bench.remote(0),
        to: bench.destination(link),
    };
    let engine = Engine::new(Parts {
        station: bench.station,
        attend: bench,
        load: &load,
        mr: bench.mr(),
        reaper: bench.send.reaper(),
        qps: bench.qps.iter().collect(),
        targets: (0..bench.qps.len()).map(target).collect(),
        is_dc: false,
        buffers: &sges,
        // Atomics are checked by their counter.
        contents: (bench.spec.params.verify && !bench.spec.params.op.is_atomic())
            .then_some(contents),
        inbox,
        polled: None,
    });
    drive(&mut Sender {
        bench,
        engine,
        expected: 0,
    })
}

/// Returns the load of a sender.
fn load<S: Station>(bench: &Bench<'_, S>) -> Load {
    let p = &bench.spec.params;
    Load {
        inline: p.inline,
        signaled_every: match p.signal {
            Signaling::Periodic => (p.buffers / 2).max(1),
            Signaling::Every(every) => every.max(1),
            Signaling::All | Signaling::WriteUnsignaled => 1,
        },
        refill: match p.post {
            Posting::Single => Refill::Continuous,
            Posting::List => Refill::List,
        },
        limits: Limits::of_each_qp(p.buffers, MAX_RD_ATOMIC),
        places: Places::Buffers(bench.layout.offset(1)),
        ..Load::new(p.op, u32::try_from(p.size.get()).unwrap_or(u32::MAX))
    }
}

/// A sending side: the active one, or both. Messages are counted over all runs of a cell.
struct Sender<'e, 'b, S: Station> {
    bench: &'e Bench<'b, S>,
    engine: Engine<'e, S, Bench<'b, S>>,
    /// Messages of the other side, if it sends.
    expected: u64,
}

impl<S: Station> Part for Sender<'_, '_, S> {
    fn run(&mut self, messages: u64, sampler: Option<&mut Sampler>) -> Result<Ran, Fault> {
        let (bench, engine) = (self.bench, &mut self.engine);
        let first = engine.posted();
        let mut watch = Watch::new(sampler, first);
        let start = bench.station.now();
        engine.run(first + messages, &mut watch, |now, completed| {
            bench.peer.limit.look(now);
            bench.peer.limit.is_over(completed - first)
        })?;
        engine.finish(&mut watch)?;
        self.expected += messages;
        engine.receive(self.expected, &mut watch)?;
        Ok(Ran {
            iters: engine.completed() - first,
            elapsed: bench.station.now() - start,
        })
    }

    fn carried(&self) -> Vec<u64> {
        self.engine.carried()
    }

    fn check_given(&self, carried: &[u64]) -> Result<(), Fault> {
        self.bench.check_given(carried)
    }
}

impl<S: Station> Contents for Bench<'_, S> {
    fn fill(
        &self,
        (link, buffer): (usize, u64),
        message: u64,
        operation: &mut Operation,
    ) -> Result<(), Fault> {
        let slot = link as u32 * self.spec.params.buffers + buffer as u32;
        let number = self.number(link, message);
        if self.spec.params.op == Opcode::Read {
            // Other bytes than the READ fetches, so that its effect is visible.
            return Ok(self.write_payload(slot, u64::MAX)?);
        }
        self.write_payload(slot, number)?;
        if let Operation::RdmaWriteWithImm(there, imm) = operation {
            let targets = u64::from(layout::targets(self.spec));
            *there = self.remote((link as u64 * targets + message % targets) as u32);
            *imm = immediate(number);
        }
        Ok(())
    }

    fn check(&self, (link, buffer): (usize, u64), _message: u64) -> Result<(), Fault> {
        let slot = link as u32 * self.spec.params.buffers + buffer as u32;
        match self.spec.params.op {
            Opcode::Read => self.check_payload(slot, slot.into()),
            _ => Ok(()),
        }
    }
}

/// Marks the `wr_id` of receives: if both sides send, sends and receives share a completion queue.
const RECEIVE: u64 = 1 << 63;

/// A side that receives SENDs and WRITEs WITH IMM: keeps receives posted.
struct Receiver<'b, S: Station> {
    bench: &'b Bench<'b, S>,
    reaper: Reaper<'b, S::Context>,
    /// All receives; the `wr_id` of each is its index.
    receives: Vec<RecvRequest<'b>>,
    /// Receives to repost as one list.
    list: Vec<RecvRequest<'b>>,
    completions: Vec<WorkCompletion>,
    received: u64,
    /// Messages received over each queue pair.
    of_links: Vec<u64>,
    /// When the first and the last message of the run arrived, if some may be lost.
    arrivals: Option<(Time, Time)>,
}

/// Missing messages count as lost if none arrives for this long, not counting time in which this side does not
/// run.
const QUIET: Span = Span::from_ms(50);

impl<'b, S: Station> Receiver<'b, S> {
    fn new(bench: &'b Bench<'_, S>, sges: &'b [[Sge<'b>; 1]]) -> Result<Self, Fault> {
        let receive = |place: u32| {
            // The sender chooses where the payload of a WRITE WITH IMM is written.
            let into: &[Sge<'b>] = match bench.spec.params.op {
                Opcode::WriteImm => &[],
                _ => &sges[(bench.layout.inbox + place) as usize],
            };
            RecvRequest::new(WrId(RECEIVE | u64::from(place)), into)
        };
        let all = bench.layout.receives * bench.spec.params.traffic.qps;
        let receives: Vec<RecvRequest<'b>> = (0..all).map(receive).collect();
        let of_each = receives.chunks(bench.layout.receives as usize);
        for (qp, receives) in bench.qps.iter().zip(of_each) {
            qp.post_recv(receives)?;
        }
        let batch = match bench.spec.params.post {
            // All consumed receives are reposted as one list.
            Posting::List => receives.len().max(1),
            Posting::Single => BATCH,
        };
        Ok(Receiver {
            bench,
            reaper: bench.recv.reaper(),
            list: Vec::with_capacity(receives.len()),
            receives,
            completions: vec![WorkCompletion::default(); batch],
            received: 0,
            of_links: vec![0; bench.qps.len()],
            arrivals: None,
        })
    }

    /// Returns the queue pair that a receive is posted to.
    #[inline]
    fn link(&self, receive: WrId) -> usize {
        match self.bench.qps.len() {
            1 => 0,
            _ => place(receive) / self.bench.layout.receives as usize,
        }
    }

    /// Handles the first `n` completions.
    #[inline]
    fn arrived(&mut self, n: usize) -> Result<(), Fault> {
        if self.bench.spec.params.verify {
            self.check(n)?;
        }
        self.repost(n)?;
        self.received += n as u64;
        if self.bench.spec.may_lose() {
            let now = self.bench.station.now();
            self.arrivals = Some((self.arrivals.map_or(now, |(first, _)| first), now));
        }
        Ok(())
    }

    /// Returns how many messages arrived after `first`, and in how long from the run's `start`.
    fn ran(&self, first: u64, start: Time) -> Ran {
        Ran {
            iters: self.received - first,
            elapsed: match self.bench.spec.may_lose() {
                true => self
                    .arrivals
                    .map_or(Span::ZERO, |(first, last)| last - first),
                false => self.bench.station.now() - start,
            },
        }
    }

    /// Makes the receives that were consumed available again.
    #[inline]
    fn repost(&mut self, n: usize) -> Result<(), Fault> {
        let (consumed, qps) = (&self.completions[..n], &self.bench.qps);
        match self.bench.spec.params.post {
            Posting::Single => {
                for wc in consumed {
                    let receive = &self.receives[place(wc.wr_id)];
                    qps[self.link(wc.wr_id)].post_recv(std::slice::from_ref(receive))?;
                }
            }
            Posting::List => {
                let receives = consumed.iter().map(|wc| self.receives[place(wc.wr_id)]);
                self.list.clear();
                self.list.extend(receives);
                if qps.len() > 1 {
                    self.list.sort_unstable_by_key(|receive| receive.wr_id);
                }
                let link = |receive: &RecvRequest<'_>| self.link(receive.wr_id);
                for of_one in self.list.chunk_by(|one, next| link(one) == link(next)) {
                    qps[link(&of_one[0])].post_recv(of_one)?;
                }
            }
        }
        Ok(())
    }

    fn check(&mut self, n: usize) -> Result<(), Fault> {
        for wc in &self.completions[..n] {
            let link = self.link(wc.wr_id);
            let message = self.of_links[link];
            self.of_links[link] += 1;
            let number = self.bench.number(link, message);
            check_completion(self.bench, wc, number)?;
            let targets = u64::from(layout::targets(self.bench.spec));
            let slot = match self.bench.spec.params.op {
                Opcode::WriteImm => link as u64 * targets + message % targets,
                _ => place(wc.wr_id) as u64,
            };
            let slot = self.bench.layout.inbox + slot as u32;
            self.bench.check_payload(slot, number)?;
        }
        Ok(())
    }
}

/// Returns the index of a receive.
#[inline]
fn place(receive: WrId) -> usize {
    receive.0 as u32 as usize
}

impl<S: Station> Inbox for RefCell<Receiver<'_, S>> {
    fn take(&self, completions: &mut [WorkCompletion]) -> Result<usize, Fault> {
        let receiver = &mut *self.borrow_mut();
        let (mut sent, mut arrived) = (0, 0);
        if receiver.completions.len() < completions.len() {
            let empty = WorkCompletion::default();
            receiver.completions.resize(completions.len(), empty);
        }
        for at in 0..completions.len() {
            if completions[at].wr_id.0 & RECEIVE == 0 {
                completions[sent] = completions[at];
                sent += 1;
            } else {
                receiver.completions[arrived] = completions[at];
                arrived += 1;
            }
        }
        if arrived > 0 {
            receiver.arrived(arrived)?;
        }
        Ok(sent)
    }

    fn received(&self) -> u64 {
        self.borrow().received
    }
}

impl<S: Station> Part for Receiver<'_, S> {
    fn run(&mut self, messages: u64, _sampler: Option<&mut Sampler>) -> Result<Ran, Fault> {
        let bench = self.bench;
        let first = self.received;
        let end = first + messages;
        let start = bench.station.now();
        self.arrivals = None;
        while self.received < end {
            let n = match self
                .reaper
                .reap(bench.station, bench, &mut self.completions)
            {
                Err(Fault::Stopped) => break,
                reaped => reaped?,
            };
            self.arrived(n)?;
        }
        Ok(self.ran(first, start))
    }

    fn prepare(&mut self) -> Result<(), Fault> {
        while self.bench.spec.may_lose() {
            match self.bench.recv.cq.poll(&mut self.completions)? {
                0 => break,
                n => self.repost(n)?,
            }
        }
        Ok(())
    }

    fn take_late(&mut self, messages: u64) -> Result<Ran, Fault> {
        let bench = self.bench;
        if !bench.spec.may_lose() {
            return self.run(messages, None);
        }
        let (first, start) = (self.received, bench.station.now());
        while self.received < first + messages {
            let into = &mut self.completions;
            match self.reaper.reap(bench.station, &Within(bench, QUIET), into) {
                Err(Fault::Wait(WaitError::TimedOut { .. })) => break,
                reaped => self.arrived(reaped?)?,
            }
        }
        Ok(self.ran(first, start))
    }
}
