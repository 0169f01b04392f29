//! Runs a cell: the two roles, with the steps listed in [`crate::pair::message`].

use adverb_results::{Delivery, Metrics, Params, Program, RepetitionSample, Usage};
use adverb_units::{Bytes, MessageRate, Span, Throughput};
use adverb_verbs::{PathMtu, Station};
use serde::{Deserialize, Serialize};

use crate::Program as _;
use crate::error::{Fault, Phase, RunError, Side};
use crate::pair::bench::Bench;
use crate::pair::message::{Hello, Message};
use crate::pair::part::{Part, Ran};
use crate::pair::peer::Peer;
use crate::pair::spec::{CellSpec, LONGEST_CELL, Length, WARM_UP, WARM_UP_SHARE};
use crate::pair::stream::{Line, Socket};
use crate::pair::{bench, blast, layout, ping};
use crate::sample::Sampler;

/// Timeout of a run of unknown length. If the other side ends, this side is notified at once.
const LONGEST_RUN: Span = Span::from_secs(24 * 3600);
/// A run ends early if it exceeds the planned duration of its repetition by this much, because other work has
/// started on the machine since the warm-up. No further run starts if less than this much is missing.
const TOLERANCE: Tolerance = Tolerance(4);
/// Maximum number of runs of one repetition.
const MOST_RUNS: u32 = 16;

/// What a cell measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// Actual parameters: iterations and warm-up as run; the caller adds the cores.
    pub params: Params,
    /// The figures.
    pub metrics: Metrics,
}

/// A share of 1 / n.
struct Tolerance(u64);

impl Tolerance {
    fn longest(&self, wanted: Span) -> Span {
        wanted + wanted / self.0
    }

    fn is_enough(&self, elapsed: Span, wanted: Span) -> bool {
        elapsed >= wanted.saturating_sub(wanted / self.0)
    }
}

/// Runs the active side of a cell; the passive side runs as role [`PASSIVE`](crate::pair::PASSIVE) at the
/// same time.
pub fn run_active<S: Station>(station: &S, spec: &CellSpec) -> Result<CellResult, RunError> {
    let peer = Peer::of(Side::Active, station, spec);
    let mut session = Session::new(station, &peer, spec, Side::Active);
    session.active()
}

/// Runs the passive side of a cell; the active side runs as role [`ACTIVE`](crate::pair::ACTIVE) at the
/// same time.
pub fn run_passive<S: Station>(station: &S, spec: &CellSpec) -> Result<(), RunError> {
    let peer = Peer::of(Side::Passive, station, spec);
    let mut session = Session::new(station, &peer, spec, Side::Passive);
    session.passive()
}

struct Session<'s, S: Station> {
    station: &'s S,
    peer: &'s Peer<'s, S>,
    spec: &'s CellSpec,
    side: Side,
    phase: Phase,
    /// Timeout of a wait beyond the expected time.
    timeout: Span,
}

/// Parameters of a run.
struct Run {
    /// Messages or rounds.
    iters: u64,
    /// Maximum duration ...
    at_most: Option<Span>,
    /// ... but with at least this many messages or rounds.
    least: u64,
}

impl Run {
    /// Returns a run of `iters` messages without a maximum duration.
    fn of(iters: u64) -> Self {
        Run {
            iters,
            at_most: None,
            least: iters,
        }
    }
}

/// Result of the warm-up.
struct WarmUp {
    iters: u64,
    /// Time of one message or round; `None` without a warm-up.
    mean: Option<Span>,
}

impl<'s, S: Station> Session<'s, S> {
    fn new(station: &'s S, peer: &'s Peer<'s, S>, spec: &'s CellSpec, side: Side) -> Self {
        Session {
            station,
            peer,
            spec,
            side,
            phase: Phase::SetUp,
            timeout: layout::timeout(spec),
        }
    }

    /// Creates the objects and connects them to the other side's.
    fn connected(&mut self) -> Result<Bench<'s, S>, Fault> {
        let mut bench = Bench::new(self.station, self.peer, self.spec, self.side)?;
        self.phase = Phase::Connect;
        let theirs = self.greet(bench.hello()?)?;
        bench.connect(&theirs)?;
        Ok(bench)
    }

    /// The byte stream, connected to the other side's.
    fn stream(&mut self) -> Result<Line<'s, S>, Fault> {
        let (spec, side) = (self.spec, self.side);
        let (socket, hello) = Socket::new((self.station, self.peer), (spec, side))?;
        self.phase = Phase::Connect;
        let theirs = self.greet(hello)?;
        socket.connect(&theirs, spec, side)
    }

    /// Tells the other side what it must know, and hears the same.
    fn greet(&self, hello: Hello) -> Result<Hello, Fault> {
        self.peer.tell(Message::Hello(Box::new(hello)))?;
        match self.peer.hear("a greeting", self.timeout)? {
            Message::Hello(hello) => Ok(*hello),
            other => Err(other.unexpected("a greeting")),
        }
    }

    /// Whether this side takes no part in transfers: the active side does it all.
    fn is_idle(&self) -> bool {
        bench::is_idle(self.spec, self.side)
    }

    /// Neither side starts before both queue pairs are ready and all receives are posted.
    fn meet(&self) -> Result<(), Fault> {
        self.peer.tell(Message::Connected)?;
        self.peer
            .hear_that(&Message::Connected, "a connected queue pair", self.timeout)
    }

    // A failing side reports the reason before it destroys its objects, so that the other side gets the
    // reason before its own requests fail.

    fn active(&mut self) -> Result<CellResult, RunError> {
        if self.spec.is_stream() {
            let line = self.stream().map_err(|fault| self.fail(fault))?;
            let result = line.with_part(|part| self.drive(part));
            return result.map_err(|fault| self.fail(fault));
        }
        let bench = self.connected().map_err(|fault| self.fail(fault))?;
        let drive = |part: &mut dyn Part| self.drive(part);
        let result = match bench.spec.program {
            Program::Ping => ping::with_part(&bench, drive),
            Program::Blast => blast::with_part(&bench, drive),
        };
        let result = result.map(|mut result| {
            let retry = bench.retry_params();
            result.params.path_mtu_bytes = bench.path_mtu.map(PathMtu::bytes);
            result.params.ack_timeout = retry.and_then(|retry| retry.timeout.span());
            result.params.retry_cnt = retry.map(|retry| retry.retry_cnt.get());
            result
        });
        result.map_err(|fault| self.fail(fault))
    }

    fn passive(&mut self) -> Result<(), RunError> {
        if self.spec.is_stream() {
            let line = self.stream().map_err(|fault| self.fail(fault))?;
            let end = line.with_part(|part| self.follow(part));
            return end.map_err(|fault| self.fail(fault));
        }
        let bench = self.connected().map_err(|fault| self.fail(fault))?;
        let is_idle = self.is_idle();
        let mut follow = |part: &mut dyn Part| self.follow(part);
        let end = match bench.spec.program {
            _ if is_idle => follow(&mut Idle(&bench)),
            Program::Ping => ping::with_part(&bench, follow),
            Program::Blast => blast::with_part(&bench, follow),
        };
        end.map_err(|fault| self.fail(fault))
    }

    /// The active side's runs: warm-up, then repetitions.
    fn drive(&mut self, part: &mut dyn Part) -> Result<CellResult, Fault> {
        self.meet()?;
        self.phase = Phase::WarmUp;
        let warm_up = self.warm_up(part)?;
        let guess = Span::from_us(1);
        let mean = warm_up.mean.unwrap_or(guess);
        let mut sampler = Sampler::new(self.station, mean);
        let p = &self.spec.params;
        let mut samples = Vec::with_capacity(p.repetitions as usize);
        let least = self.least();
        let iters = match p.length {
            Length::Iters(n) => n,
            Length::Duration(all) => {
                let longest = all.max(LONGEST_CELL) / u64::from(p.repetitions);
                let affordable = least.min(iters_in(longest, mean));
                iters_in(self.spec.repetition(all), mean).max(affordable)
            }
        };
        for repetition in 1..=p.repetitions {
            self.phase = Phase::Repetition(repetition);
            samples.push(match p.length {
                Length::Iters(_) => self.run(part, Run::of(iters), Some(&mut sampler))?,
                Length::Duration(all) => {
                    let wanted = self.spec.repetition(all);
                    self.repetition(part, (wanted, iters), &mut sampler)?
                }
            });
        }
        self.phase = Phase::End;
        self.peer.tell(Message::Finish)?;
        self.result(&samples, &sampler, &warm_up, iters)
    }

    /// Measures a repetition of about the duration `wanted`: a run of as many messages as the warm-up predicts,
    /// and further runs if it ended too early, or for losses.
    fn repetition(
        &self,
        part: &mut dyn Part,
        (wanted, iters): (Span, u64),
        sampler: &mut Sampler,
    ) -> Result<RepetitionSample, Fault> {
        let first = Run {
            iters,
            at_most: Some(TOLERANCE.longest(wanted)),
            least: self.least().min(iters),
        };
        let mut all = self.run(part, first, Some(sampler))?;
        let is_virtual = self.station.is_virtual();
        let losses = is_virtual
            .then(|| self.spec.prolonged_for_losses())
            .flatten();
        for _ in 1..MOST_RUNS {
            let (until, most) = match losses {
                Some((waits, most)) if TOLERANCE.is_enough(all.elapsed, wanted) => (waits, most),
                _ => (wanted, u64::MAX),
            };
            if TOLERANCE.is_enough(all.elapsed, until) || all.sent() >= most {
                break;
            }
            let iters = iters_in(
                until.saturating_sub(all.elapsed),
                all.elapsed / all.sent().max(1),
            );
            let next = Run {
                iters: iters.min(most - all.sent()),
                at_most: Some(TOLERANCE.longest(until).saturating_sub(all.elapsed)),
                least: 0,
            };
            let next = self.run(part, next, Some(sampler))?;
            all = all.and(next);
        }
        Ok(all)
    }

    /// Returns the minimum number of messages or rounds of a repetition.
    fn least(&self) -> u64 {
        match self.station.is_virtual() {
            true => self.spec.least_in_virtual_time(),
            false => self.spec.least(),
        }
    }

    fn warm_up(&self, part: &mut dyn Part) -> Result<WarmUp, Fault> {
        let p = &self.spec.params;
        let (budget, most) = match (p.length, p.warmup) {
            (Length::Iters(_), Some(0)) => {
                return Ok(WarmUp {
                    iters: 0,
                    mean: None,
                });
            }
            (_, Some(wanted)) => {
                let run = self.run(part, Run::of(wanted.max(1)), None)?;
                let mean = Some(run.elapsed / run.sent().max(1));
                return Ok(WarmUp {
                    iters: run.sent(),
                    mean,
                });
            }
            (Length::Iters(n), None) => (WARM_UP.1, (n / WARM_UP_SHARE).max(1)),
            (Length::Duration(all), None) => {
                let budget = (all / WARM_UP_SHARE).clamp(WARM_UP.0, WARM_UP.1);
                let path = self.spec.params.path.impairment.unwrap_or_default();
                // A TCP window grows from 10 segments, twofold in a round trip, until losses make it small again.
                let round_trips = match (self.spec.is_stream(), path.loses()) {
                    (false, _) => 2,
                    (true, false) => 8,
                    (true, true) => 20,
                };
                // A quarter is a long run.
                let on_the_path = self.spec.round_trip_delay() * round_trips * 4;
                (budget.max(on_the_path), u64::MAX)
            }
        };
        self.warm_up_until(part, (budget, most))
    }

    /// Runs longer and longer, until two consecutive runs take a considerable part of `budget`, or `most`
    /// messages were sent. Two, because a single short run may take long if it was interrupted; one in virtual time.
    fn warm_up_until(
        &self,
        part: &mut dyn Part,
        (budget, most): (Span, u64),
    ) -> Result<WarmUp, Fault> {
        // With packet loss, short runs without a loss do not predict the time of longer ones, and one message that waits
        // for a retransmission does not predict the time of a window.
        let impaired = self.spec.params.path.impairment.is_some();
        let window = u64::from(self.spec.params.in_flight());
        let growth = if impaired { 4 } else { 64 };
        let is_one_enough = impaired || self.station.is_virtual();
        let (mut total, mut iters, mut elapsed) = (0, 1, Span::ZERO);
        let mut long_before: Option<Span> = None;
        loop {
            let run = Run {
                iters,
                at_most: (!impaired).then_some(budget),
                least: 0,
            };
            let run = self.run(part, run, None)?;
            total += run.sent();
            elapsed += run.elapsed;
            let mean = match impaired {
                true => elapsed / total,
                false => run.elapsed / run.sent().max(1),
            };
            let is_long = run.elapsed >= budget / 4 && (!impaired || total >= window);
            if (is_long && (is_one_enough || long_before.is_some())) || total >= most {
                let before = long_before.filter(|_| !impaired);
                let mean = Some(before.map_or(mean, |before| before.min(mean)));
                return Ok(WarmUp { iters: total, mean });
            }
            long_before = is_long.then_some(mean);
            if !is_long {
                let least = if impaired { window } else { 0 };
                iters = iters_in(budget / 2, mean).max(least).min(iters * growth);
            }
            iters = iters.min(most - total).max(1);
        }
    }

    /// Performs one run on both sides.
    fn run(
        &self,
        part: &mut dyn Part,
        Run {
            iters,
            at_most,
            least,
        }: Run,
        sampler: Option<&mut Sampler>,
    ) -> Result<RepetitionSample, Fault> {
        let repetition = match self.phase {
            Phase::Repetition(n) => n,
            _ => 0,
        };
        self.peer.tell(Message::Prepare { repetition, iters })?;
        self.peer
            .hear_that(&Message::Ready, "readiness", self.timeout)?;
        let before = self.station.cpu();
        // If both sides send, each sends all of its messages.
        let at_most = at_most.filter(|_| !self.spec.params.traffic.bidirectional);
        let at = at_most.map(|span| self.station.now() + span);
        self.peer.limit.begin(at, least);
        let Ran { iters, elapsed } = part.run(iters, sampler)?;
        let active = self.station.cpu().since(before);
        self.peer.tell(Message::Stop {
            iters,
            carried: part.carried(),
        })?;
        match self.peer.hear("the end of a run", self.timeout)? {
            Message::Done {
                usage,
                ran,
                carried,
                received,
            } => {
                let arrived = received.unwrap_or(iters).min(iters);
                if !carried.is_empty() {
                    part.check_given(&carried)?;
                }
                Ok(RepetitionSample {
                    iters: arrived,
                    lost: iters - arrived,
                    elapsed: elapsed.max(ran),
                    active,
                    passive: Some(usage),
                })
            }
            other => Err(other.unexpected("the end of a run")),
        }
    }

    /// The passive side's runs, as the active side says.
    fn follow(&mut self, part: &mut dyn Part) -> Result<(), Fault> {
        self.meet()?;
        let mut total = 0;
        loop {
            match self.peer.hear("a run", self.timeout)? {
                Message::Prepare { repetition, iters } => {
                    self.phase = match repetition {
                        0 => Phase::WarmUp,
                        n => Phase::Repetition(n),
                    };
                    let (done, iters, carried) = self.follow_run(part, iters)?;
                    total += iters;
                    match &carried[..] {
                        [] => part.check_given(&[total])?,
                        carried => part.check_given(carried)?,
                    }
                    self.peer.tell(done)?;
                }
                Message::Finish => return Ok(()),
                other => return Err(other.unexpected("a run")),
            }
        }
    }

    /// Performs one run; returns the CPU time from readiness to the last message, the number of messages, and
    /// the messages of each queue pair.
    fn follow_run(
        &self,
        part: &mut dyn Part,
        iters: u64,
    ) -> Result<(Message, u64, Vec<u64>), Fault> {
        part.prepare()?;
        let (start, before) = (self.station.now(), self.station.cpu());
        let used = || Usage {
            cpu: self.station.cpu().since(before),
            elapsed: self.station.now() - start,
        };
        self.peer.tell(Message::Ready)?;
        let mut ran = part.run(iters, None)?;
        // Participants have now seen the last message; the others sleep until these are done.
        let took_part = (!self.is_idle()).then(used);
        let stop = self.peer.hear("the end of a run", LONGEST_RUN)?;
        let Message::Stop { iters, carried } = stop else {
            return Err(stop.unexpected("the end of a run"));
        };
        let sends = bench::sends(self.spec, self.side);
        let is_receiver = !self.is_idle() && !sends;
        if is_receiver && ran.iters < iters {
            // The last messages may arrive after the message about their end.
            let late = part.take_late(iters - ran.iters)?;
            ran.iters += late.iters;
            ran.elapsed = ran.elapsed.max(late.elapsed);
        }
        let may_lose = self.spec.may_lose();
        if is_receiver && ran.iters != iters && !may_lose {
            let stop = Message::Stop { iters, carried };
            return Err(stop.unexpected("the end of all messages that came"));
        }
        let done = Message::Done {
            usage: took_part.unwrap_or_else(used),
            ran: if sends || may_lose {
                ran.elapsed
            } else {
                Span::ZERO
            },
            carried: part.carried(),
            received: may_lose.then_some(ran.iters),
        };
        Ok((done, iters, carried))
    }

    fn result(
        &self,
        samples: &[RepetitionSample],
        sampler: &Sampler,
        warm_up: &WarmUp,
        iters: u64,
    ) -> Result<CellResult, Fault> {
        let p = &self.spec.params;
        let sum = |of: fn(&RepetitionSample) -> u64| samples.iter().map(of).sum();
        let (sent, received): (u64, u64) = (sum(RepetitionSample::sent), sum(|s| s.iters));
        if received == 0 && self.spec.may_lose() {
            return Err(Fault::NothingArrived { sent });
        }
        // At most one of the messages in flight is timed.
        let every = sampler.every.max(p.in_flight().into());
        let latencies = Some((&sampler.recorder, every));
        let mut metrics = Metrics::from_samples(self.spec.program, p.size, samples, latencies)
            .ok_or(Fault::NothingMeasured)?;
        if self.spec.program.is_round_trip(p.op) {
            rate(&mut metrics, 1, p.size);
        }
        if p.traffic.bidirectional {
            rate(&mut metrics, 2, p.size);
            halve(&mut metrics);
        }
        metrics.delivery = self.spec.may_lose().then_some(Delivery {
            sent,
            received,
            lost: sent - received,
        });
        let fewest = samples.iter().map(|sample| sample.iters).min();
        metrics.few_messages = fewest.is_some_and(|fewest| fewest < self.least());
        let params = self.spec.params(Some(iters), Some(warm_up.iters));
        Ok(CellResult { params, metrics })
    }

    /// Returns the error of this side: its fault, or the other side's if that came first; notifies the other side.
    fn fail(&self, fault: Fault) -> RunError {
        let fault = self.peer.root_cause(fault);
        if !matches!(fault, Fault::Peer(_) | Fault::PeerEnded(_)) {
            let reason = format!("{} side, {}: {fault}", self.side, self.phase);
            // The other side may be gone; this side's error is what matters.
            let _ = self.peer.tell(Message::Abort { reason });
        }
        RunError {
            side: self.side,
            phase: self.phase,
            fault: Box::new(fault),
        }
    }
}

/// The part of a passive side that takes no part.
struct Idle<'b, 's, S: Station>(&'b Bench<'s, S>);

impl<S: Station> Part for Idle<'_, '_, S> {
    fn run(&mut self, _iters: u64, _sampler: Option<&mut Sampler>) -> Result<Ran, Fault> {
        Ok(Ran::default())
    }

    fn check_given(&self, carried: &[u64]) -> Result<(), Fault> {
        self.0.check_given(carried)
    }
}

/// Returns how many messages of duration `mean` fit into `span`, at least one.
fn iters_in(span: Span, mean: Span) -> u64 {
    (span.as_ps() / mean.as_ps().max(1)).max(1)
}

/// Sets the rates for iterations of `messages_per_iter` messages: 1 in a READ ping, whose request has no payload,
/// 2 if both sides of a blast send.
fn rate(metrics: &mut Metrics, messages_per_iter: u64, size: Bytes) {
    let iters: u64 = metrics.repetitions.iter().map(|r| r.iters).sum();
    let messages = messages_per_iter * iters;
    let bytes = Bytes::new(size.get().saturating_mul(messages));
    metrics.messages_per_s = MessageRate::over(messages, metrics.elapsed);
    metrics.bytes_per_s = Throughput::over(bytes, metrics.elapsed);
}

/// Halves the time per message if both sides send.
fn halve(metrics: &mut Metrics) {
    let times = [&mut metrics.one_way_ns.mean, &mut metrics.one_way_ns.ci95];
    times.into_iter().flatten().for_each(|ns| *ns /= 2.0);
    let repetitions = metrics.repetitions.iter_mut();
    repetitions.for_each(|repetition| repetition.one_way_ns /= 2.0);
}
