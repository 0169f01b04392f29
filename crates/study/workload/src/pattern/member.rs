//! Runs one member.

use std::sync::atomic::{AtomicU64, Ordering};

use adverb_results::{LatencyRecorder, Opcode};
use adverb_units::{CpuTime, Span, Time};
use adverb_verbs::{
    Context, Counters, Level, LoadTally, MemoryRegion, QueuePair, RecvRequest, RoleId, Station,
    WaitError, WordCount, Work, WorkCompletion, WrId,
};
use serde::{Deserialize, Serialize};

use crate::attend::{DONE, Members, Within};
use crate::engine::{Engine, Parts, Target};
use crate::error::Fault;
use crate::load::{Load, Timing};
use crate::pattern::shape::{Member, Part, Pattern, Piece};
use crate::pattern::tenant::{churn, strand};
use crate::pattern::wiring::Wiring;
use crate::polled::Polled;
use crate::random::Random;
use crate::reap::BATCH;
use crate::sample::{Sampler, Ticker, Watch};

/// A line of memory, in bytes.
const LINE: usize = 64;

/// After its measured time a receiving member waits for this long before it asks the others whether they
/// still send: members do not start and end at the same moment.
const GRACE: Span = Span::from_us(200);
/// Timeout for their answer.
const GLANCE: Span = Span::from_us(10);

/// How long members work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Before the measured time.
    pub warm_up: Span,
    /// The measured time.
    pub measured: Span,
}

/// Results of a member in the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Completed requests, or received messages.
    pub completed: u64,
    /// Those in the first half of the measured time, which need not end after a whole one.
    pub completed_first: f64,
    /// Elapsed time.
    pub elapsed: Span,
    /// Times from free buffer to seen completion, if requests were timed.
    pub waits: Option<LatencyRecorder>,
    /// CPU time.
    pub cpu: CpuTime,
    /// Elapsed time of `cpu`.
    pub cpu_over: Span,
    /// Begin and end of the measured time on the clock of its host, if the member reached both.
    pub window: Option<[Time; 2]>,
    /// Counters of the device in the measured time, if the member reads them.
    pub counted: Counters,
    /// Their part in the first half of that time.
    pub counted_first: Counters,
    /// Requests executed in the whole run.
    pub executed: u64,
    /// The first word of its memory at the end, if threads of its machine may have added to it.
    pub word: Option<u64>,
    /// NUMA node of its memory, if all of it is on one.
    pub memory_node: Option<u32>,
    /// What the threads that load its machine did.
    pub load: LoadTally,
    /// Words that it fetched from memory that threads of its peer write, as far as it looked at them.
    pub words: WordCount,
}

impl Tally {
    /// Returns the completions per second; `None` if nothing was measured.
    pub fn per_second(&self) -> Option<f64> {
        let elapsed = self.elapsed.as_secs_f64();
        (elapsed > 0.0 && self.completed > 0).then(|| self.completed as f64 / elapsed)
    }

    /// Returns the share of one CPU that it used; 0 if nothing was measured.
    pub fn cpu_share(&self) -> f64 {
        if self.cpu_over == Span::ZERO {
            return 0.0;
        }
        let used = self.cpu.user + self.cpu.system;
        used.as_ns_f64() / self.cpu_over.as_ns_f64()
    }

    /// Returns the mean time from free buffer to reaped completion; `None` if nothing was timed.
    pub fn mean_wait(&self) -> Option<Span> {
        let ns = self.waits.as_ref()?.mean_ns()?;
        Some(Span::from_secs_f64(ns / 1e9))
    }
}

/// A clock reading, with the completions by then.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Time,
    completed: u64,
}

impl Look {
    /// Returns the completions at a time between this reading and the `next` one, at the rate between them.
    fn completed_at(self, time: Time, next: Look) -> f64 {
        if next.at == self.at {
            return next.completed as f64;
        }
        let share = (time - self.at).as_ns_f64() / (next.at - self.at).as_ns_f64();
        self.completed as f64 + (next.completed - self.completed) as f64 * share
    }
}

/// Counts the completions in the measured time. At its two ends it interpolates between the clock readings before and
/// after: the measured times of all members have the same length, however long a thread does not run at an end.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    from: Time,
    pub(crate) until: Time,
    last: Look,
    /// Completions at the beginning and at the end of the measured time.
    completed: [Option<f64>; 2],
    /// Completions in its middle.
    half: Option<f64>,
    /// Time and CPU time at the first reading in the measured time, and at the first one after it.
    cpu: [Option<(Time, CpuTime)>; 2],
}

impl Meter {
    /// Measures by a schedule that begins `now`.
    pub fn new(now: Time, schedule: Schedule) -> Self {
        let from = now + schedule.warm_up;
        Meter {
            from,
            until: from + schedule.measured,
            last: Look {
                at: now,
                completed: 0,
            },
            completed: [None; 2],
            half: None,
            cpu: [None; 2],
        }
    }

    /// Whether `now` is in the measured time.
    pub fn is_open(&self, now: Time) -> bool {
        (self.from..self.until).contains(&now)
    }

    /// Takes a clock reading with the completions so far. Returns whether the measured time is over.
    pub fn look<S: Station>(&mut self, station: &S, now: Time, completed: u64) -> bool {
        let look = Look { at: now, completed };
        for (end, time) in [self.from, self.until].into_iter().enumerate() {
            if now >= time && self.completed[end].is_none() {
                self.completed[end] = Some(self.last.completed_at(time, look));
                self.cpu[end] = Some((now, station.cpu()));
            }
        }
        let middle = self.from + (self.until - self.from) / 2;
        if now >= middle && self.half.is_none() {
            self.half = Some(self.last.completed_at(middle, look));
        }
        self.last = look;
        now >= self.until
    }

    /// Returns the results. The measured time of a member that had nothing more to do ends at its last reading. The
    /// elapsed time is corrected for completions being whole numbers.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        if let [Some(first), end] = self.completed {
            let (until, last) = match end {
                Some(last) => (self.until, last),
                None => (self.last.at, self.last.completed as f64),
            };
            let completed = (last - first).round();
            if completed > 0.0 {
                let elapsed = (until - self.from).as_ns_f64() * completed / (last - first);
                tally.completed = completed as u64;
                tally.completed_first = self.half.unwrap_or(last) - first;
                tally.elapsed = Span::from_ns_f64(elapsed);
            }
        }
        if let [Some(first), Some(last)] = self.cpu {
            tally.cpu = last.1.since(first.1);
            tally.cpu_over = last.0 - first.0;
            tally.window = Some([self.from, self.until]);
        }
        tally
    }
}

/// Runs member `me`; all members run at the same time.
///
/// # Errors
/// An object could not be made, a request was refused or failed, or another member is gone.
pub fn run<S: Station>(
    station: &S,
    pattern: &Pattern,
    me: RoleId,
    schedule: Schedule,
) -> Result<Tally, Fault> {
    let member = &pattern.members[me.0 as usize];
    let count = pattern.members.len() as u32;
    let links = member.links.iter().map(|link| link.peer);
    let members = Members::new(station, (me, count), links);
    station.bind(member.numa)?;
    let wiring = Wiring::new(&members, pattern, member)?;
    let memory_node = station.memory_node(&wiring.mr)?;
    let checks = pattern.shares_memory();
    if checks {
        fill(&wiring.mr, me)?;
    }
    if let Part::Work(loads) = &member.part {
        let together = || members.meet().and_then(|()| members.meet());
        let begun = station.now();
        let (met, load) = station.under_load(loads, &wiring.mr, together)?;
        met?;
        return Ok(Tally {
            elapsed: station.now() - begun,
            word: (!checks).then(|| first_word(&wiring.mr)).transpose()?,
            memory_node,
            load,
            ..Tally::default()
        });
    }
    if let Part::Receive { depth, size } = member.part {
        for qp in 0..wiring.qps.len() {
            (0..depth).try_for_each(|slot| post_receive::<S>(&wiring, name(qp, slot), size))?;
        }
    }
    members.meet()?;
    let mut meter = Meter::new(station.now(), schedule);
    let tally = match &member.part {
        Part::Request(load) => {
            let tally = request(&members, &wiring, (load, checks), meter)?;
            let takers = peers(pattern, member, |part| matches!(part, Part::Receive { .. }));
            takers
                .into_iter()
                .try_for_each(|role| members.send(role, DONE))?;
            tally
        }
        Part::Receive { size, .. } => {
            let senders = peers(pattern, member, |part| matches!(part, Part::Request(_)));
            take(&members, (&wiring, senders), *size, meter)?
        }
        Part::Compute(piece) => {
            compute(station, &wiring, *piece, &mut meter)?;
            meter.tally()
        }
        Part::Churn { region } => {
            churn(station, *region, meter.until)?;
            Tally::default()
        }
        Part::Strand(load) => {
            strand(station, &wiring, load, meter.until)?;
            Tally::default()
        }
        Part::Serve | Part::Work(_) => Tally::default(),
        Part::Count => count_by_device(station, schedule),
    };
    members.meet()?;
    Ok(Tally {
        memory_node,
        ..tally
    })
}

/// Returns the first word of a region.
fn first_word(mr: &impl MemoryRegion) -> Result<u64, Fault> {
    let mut bytes = [0; size_of::<u64>()];
    mr.read(0, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Fills a region with words in which all bytes are equal, by which a peer can see that a word is whole. They differ from
/// those that threads of a load write.
fn fill(mr: &impl MemoryRegion, me: RoleId) -> Result<(), Fault> {
    let bytes = vec![128 + (me.0 % 127) as u8; mr.length().as_usize()];
    Ok(mr.write(0, &bytes)?)
}

/// Posts and reaps until the measured time is over; then waits for all requests in flight.
fn request<S: Station>(
    members: &Members<'_, S>,
    wiring: &Wiring<S::Context>,
    (load, checks): (&Load, bool),
    mut meter: Meter,
) -> Result<Tally, Fault> {
    let station = members.station();
    let mut words = Words::of(wiring, load, checks);
    let polled = Polled::of(load, wiring.polled);
    let offsets: Vec<u64> = match &polled {
        Some(polled) => polled.offsets().collect(),
        None => vec![0],
    };
    let sge = |offset: &u64| Ok([wiring.mr.sge(*offset, load.payload())?]);
    let buffers = offsets.iter().map(sge).collect::<Result<Vec<_>, Fault>>()?;
    let targets = (0..wiring.wires.len()).map(|wire| Target {
        remote: wiring.wires[wire].remote,
        to: wiring.destination(wire),
    });
    let mut engine = Engine::new(Parts {
        station,
        attend: members,
        load,
        mr: &wiring.mr,
        reaper: wiring.queue.reaper(),
        qps: wiring.qps.iter().collect(),
        targets: targets.collect(),
        is_dc: wiring.is_dc(),
        buffers: &buffers,
        contents: None,
        inbox: None,
        polled,
    });
    // Requests posted in the warm-up are not timed.
    let mut warm_up = Watch::new(None, 0);
    engine.run(u64::MAX, &mut warm_up, |now, completed| {
        meter.look(station, now, completed);
        now >= meter.from
    })?;
    let mut sampler = (load.timing == Timing::Each).then(|| Sampler::adapting(station));
    let mut watch = Watch::new(sampler.as_mut(), engine.posted());
    engine.run(u64::MAX, &mut watch, |now, completed| {
        words.look();
        meter.look(station, now, completed)
    })?;
    engine.drain(&mut Watch::new(None, 0))?;
    Ok(Tally {
        executed: engine.posted(),
        waits: sampler.map(|sampler| sampler.recorder),
        words: words.count,
        ..meter.tally()
    })
}

/// Words that a member's READs fetch, which it looks at from time to time.
struct Words<'w> {
    fetched: &'w [AtomicU64],
    count: WordCount,
}

impl<'w> Words<'w> {
    /// The words of the buffer of READs if they are to be checked; otherwise none.
    fn of<C: Context>(wiring: &'w Wiring<C>, load: &Load, checks: bool) -> Self {
        let is_fetched = checks && load.op == Opcode::Read;
        let words = wiring.mr.words().filter(|_| is_fetched);
        let length = load.size as usize / size_of::<u64>();
        Words {
            fetched: words.and_then(|words| words.get(..length)).unwrap_or(&[]),
            count: WordCount::default(),
        }
    }

    fn look(&mut self) {
        let words = self.fetched.iter();
        words.for_each(|word| self.count.check(word.load(Ordering::Relaxed)));
    }
}

/// Returns the growth of the device's counters in the measured time except its end: members do not start at the
/// same moment, and the first ones stop before the last ones.
fn count_by_device<S: Station>(station: &S, schedule: Schedule) -> Tally {
    station.sleep(schedule.warm_up);
    let (began, before) = (station.now(), station.context().counters());
    let half = schedule.measured.saturating_sub(schedule.measured / 8) / 2;
    let grown = || {
        station.sleep(half);
        let mut counted = station.context().counters();
        for (name, count) in &mut counted {
            *count -= before.get(name).copied().unwrap_or(0).min(*count);
        }
        counted
    };
    Tally {
        counted_first: grown(),
        counted: grown(),
        elapsed: station.now() - began,
        ..Tally::default()
    }
}

/// Computes until the measured time is over.
fn compute<S: Station>(
    station: &S,
    wiring: &Wiring<S::Context>,
    piece: Piece,
    meter: &mut Meter,
) -> Result<(), Fault> {
    let mut pieces = 0;
    let lines = wiring.mr.length().get() / LINE as u64;
    let mut random = Random::new(1);
    let mut line = [0; LINE];
    let mut now = station.now();
    while now < meter.until {
        station.compute(piece.busy);
        for _ in 0..piece.lines {
            wiring
                .mr
                .read(random.below(lines) * LINE as u64, &mut line)?;
            std::hint::black_box(&line);
        }
        station.account(Work::Load {
            lines: piece.lines,
            from: Level::Memory,
        });
        now = station.now();
        pieces += 1;
        meter.look(station, now, pieces);
    }
    Ok(())
}

/// Returns the `wr_id` of a receive: its queue pair and buffer.
fn name(qp: usize, slot: u32) -> WrId {
    WrId((qp as u64) << 32 | u64::from(slot))
}

fn post_receive<S: Station>(
    wiring: &Wiring<S::Context>,
    name: WrId,
    size: u32,
) -> Result<(), Fault> {
    let (qp, slot) = ((name.0 >> 32) as usize, name.0 as u32);
    let sges = [wiring.mr.sge(u64::from(slot) * u64::from(size), size)?];
    Ok(wiring.qps[qp].post_recv(&[RecvRequest::new(name, &sges)])?)
}

/// Returns the members that a member is linked with and whose part matches.
fn peers(pattern: &Pattern, member: &Member, does: impl Fn(&Part) -> bool) -> Vec<RoleId> {
    let linked = member.links.iter().map(|link| link.peer);
    let mut peers: Vec<_> = linked
        .filter(|peer| does(&pattern.members[peer.0 as usize].part))
        .collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}

/// Receives messages and reposts their receives until all senders are done: a sender that started late would
/// otherwise wait for a receive.
fn take<S: Station>(
    members: &Members<'_, S>,
    (wiring, mut senders): (&Wiring<S::Context>, Vec<RoleId>),
    size: u32,
    mut meter: Meter,
) -> Result<Tally, Fault> {
    let station = members.station();
    let mut completions = [WorkCompletion::default(); BATCH];
    let mut reaper = wiring.queue.reaper();
    let mut ticker = Ticker::new(station);
    let (mut taken, mut is_over) = (0, false);
    while !senders.is_empty() {
        let n = match reaper.reap(station, &Within(members, GRACE), &mut completions) {
            Ok(n) => n,
            Err(Fault::Wait(WaitError::TimedOut { .. })) => 0,
            Err(error) => return Err(error),
        };
        for wc in &completions[..n] {
            post_receive::<S>(wiring, wc.wr_id, size)?;
        }
        taken += n as u64;
        let now = if n == 0 {
            Some(station.now())
        } else {
            ticker.tick(station)
        };
        let now = now.or_else(|| is_over.then(|| station.now()));
        if let Some(now) = now {
            meter.look(station, now, taken);
            is_over = now >= meter.until + GRACE;
        }
        if is_over
            && let Some(sender) = senders.last()
            && members.receive_within(*sender, GLANCE)?.is_some()
        {
            senders.pop();
        }
    }
    Ok(meter.tally())
}
