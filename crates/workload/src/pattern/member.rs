//! One member's part.

use adverb_units::{CpuTime, Span, Time};
use adverb_verbs::{
    Context, Counters, Level, MemoryRegion, QueuePair, RecvRequest, RoleId, Station, WaitError,
    Work, WorkCompletion, WrId,
};
use serde::{Deserialize, Serialize};

use crate::pattern::error::PatternError;
use crate::pattern::random::Random;
use crate::pattern::reap::Reaper;
use crate::pattern::requester::Requester;
use crate::pattern::shape::{Member, Part, Pattern, Piece};
use crate::pattern::tenant::{churn, strand};
use crate::pattern::wiring::{Wiring, is_done, meet, say_done};

/// Completions taken at a time.
pub const BATCH: usize = 16;

/// A line of memory, in bytes.
const LINE: usize = 64;

/// Who takes messages waits for so long, once its time is over, before it asks who still sends:
/// members do not begin and end at the same moment.
const GRACE: Span = Span::from_us(200);
/// How long it waits for that word.
const GLANCE: Span = Span::from_us(10);

/// How long members work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Before it counts.
    pub warm_up: Span,
    /// While it counts.
    pub measured: Span,
}

/// What a member did in the measured time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Requests that completed, or messages that came.
    pub completed: u64,
    /// In this time.
    pub elapsed: Span,
    /// Time from post to seen completion, of all requests that were timed.
    pub waited: Span,
    /// How many were timed.
    pub timed: u64,
    /// CPU time between the first and the last completion that were seen.
    pub cpu: CpuTime,
    /// The time between them.
    pub cpu_over: Span,
    /// What the device counted in the measured time, of a member that counts.
    pub counted: Counters,
}

impl Tally {
    /// Completions a second; none where nothing was measured.
    pub fn per_second(&self) -> Option<f64> {
        let elapsed = self.elapsed.as_secs_f64();
        (elapsed > 0.0 && self.completed > 0).then(|| self.completed as f64 / elapsed)
    }

    /// Share of one CPU that it used; nothing where it saw nothing.
    pub fn cpu_share(&self) -> f64 {
        if self.cpu_over == Span::ZERO {
            return 0.0;
        }
        let used = self.cpu.user + self.cpu.system;
        used.as_ns_f64() / self.cpu_over.as_ns_f64()
    }

    /// Mean time from post to seen completion; none where nothing was timed.
    pub fn mean_wait(&self) -> Option<Span> {
        (self.timed > 0).then(|| self.waited / self.timed)
    }
}

/// Counts within the measured time.
///
/// The time is fixed beforehand, and not from one completion to another: those of several queue
/// pairs come in bunches, whose first would weigh nothing.
pub(crate) struct Watch {
    from: Time,
    pub(crate) until: Time,
    /// Time and CPU time at the first and the last completion.
    seen: Option<[(Time, CpuTime); 2]>,
    tally: Tally,
}

impl Watch {
    pub(crate) fn new(now: Time, schedule: Schedule) -> Self {
        Watch {
            from: now + schedule.warm_up,
            until: now + schedule.warm_up + schedule.measured,
            seen: None,
            tally: Tally {
                elapsed: schedule.measured,
                ..Tally::default()
            },
        }
    }

    fn is_open(&self, now: Time) -> bool {
        (self.from..self.until).contains(&now)
    }

    /// `count` completions were seen.
    #[inline]
    pub(crate) fn saw<S: Station>(&mut self, station: &S, now: Time, count: u64) {
        if self.is_open(now) {
            self.tally.completed += count;
        }
        self.looked(station, now);
    }

    /// How many of the `count` requests that were done evenly from `since` to `now` were done in the
    /// measured time; none if it is over: then nobody posts any more, and what is left goes faster.
    #[inline]
    pub(crate) fn share(&self, since: Time, now: Time, count: u32) -> f64 {
        if !self.is_open(now) {
            return 0.0;
        }
        // A single one was done when it was seen.
        if count == 1 || since >= self.from || now <= since {
            return f64::from(count);
        }
        f64::from(count) * (now - self.from).as_ns_f64() / (now - since).as_ns_f64()
    }

    /// How many more were done until the measured time was over, if it went on at `pace` (requests a
    /// nanosecond) from `last` on.
    pub(crate) fn rest(&self, last: Time, pace: f64) -> f64 {
        pace * (self.until - last.max(self.from)).as_ns_f64()
    }

    /// Requests were done in the measured time.
    pub(crate) fn did(&mut self, done: f64) {
        self.tally.completed += done.round() as u64;
    }

    /// CPU time is counted between looks.
    #[inline]
    pub(crate) fn looked<S: Station>(&mut self, station: &S, now: Time) {
        if self.is_open(now) {
            let last = (now, station.cpu());
            self.seen = Some([self.seen.map_or(last, |[first, _]| first), last]);
        }
    }

    #[inline]
    pub(crate) fn timed(&mut self, now: Time, span: Span) {
        if self.is_open(now) {
            self.tally.waited += span;
            self.tally.timed += 1;
        }
    }

    pub(crate) fn tally(mut self) -> Tally {
        if let Some([first, last]) = self.seen {
            self.tally.cpu = last.1.since(first.1);
            self.tally.cpu_over = last.0 - first.0;
        }
        self.tally
    }
}

/// Does the part of member `me`: all members run at the same time.
///
/// # Errors
/// An object could not be made, a request was refused or failed, or another member is gone.
pub fn run<S: Station>(
    station: &S,
    pattern: &Pattern,
    me: RoleId,
    schedule: Schedule,
) -> Result<Tally, PatternError> {
    let member = &pattern.members[me.0 as usize];
    let members = pattern.members.len() as u32;
    let wiring = Wiring::new(station, pattern, member)?;
    let receives = match &member.part {
        Part::Receive { depth, size } => Some((*depth, *size)),
        _ => None,
    };
    if let Some((depth, size)) = receives {
        for qp in 0..wiring.qps.len() {
            (0..depth).try_for_each(|slot| post_receive::<S>(&wiring, name(qp, slot), size))?;
        }
    }
    meet(station, me, members)?;
    let mut watch = Watch::new(station.now(), schedule);
    match &member.part {
        Part::Request(load) => {
            Requester::new(station, &wiring, load).run(&mut watch)?;
            let takers = peers(pattern, member, |part| matches!(part, Part::Receive { .. }));
            takers
                .into_iter()
                .try_for_each(|role| say_done(station, role))?;
        }
        Part::Receive { size, .. } => {
            let senders = peers(pattern, member, |part| matches!(part, Part::Request(_)));
            take(station, (&wiring, senders), *size, &mut watch)?;
        }
        Part::Compute(piece) => compute(station, &wiring, *piece, &mut watch)?,
        Part::Churn { region } => churn(station, *region, watch.until)?,
        Part::Strand(load) => strand(station, &wiring, load, watch.until)?,
        Part::Serve => {}
        Part::Count => watch.tally = count(station, schedule),
    }
    let tally = watch.tally();
    meet(station, me, members)?;
    Ok(tally)
}

/// What the device counts in the measured time, but for its end: members do not begin at the same moment, and
/// the first ones stop before the last ones do.
fn count<S: Station>(station: &S, schedule: Schedule) -> Tally {
    station.sleep(schedule.warm_up);
    let (began, before) = (station.now(), station.context().counters());
    station.sleep(schedule.measured.saturating_sub(schedule.measured / 8));
    let mut counted = station.context().counters();
    for (name, count) in &mut counted {
        *count -= before.get(name).copied().unwrap_or(0).min(*count);
    }
    Tally {
        counted,
        elapsed: station.now() - began,
        ..Tally::default()
    }
}

/// Computes until the watch's time is over.
fn compute<S: Station>(
    station: &S,
    wiring: &Wiring<S::Context>,
    piece: Piece,
    watch: &mut Watch,
) -> Result<(), PatternError> {
    let lines = wiring.mr.length().get() / LINE as u64;
    let mut random = Random::new(1);
    let mut line = [0; LINE];
    let mut now = station.now();
    while now < watch.until {
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
        watch.saw(station, now, 1);
    }
    Ok(())
}

/// A receive's name: its queue pair and its buffer.
fn name(qp: usize, slot: u32) -> WrId {
    WrId((qp as u64) << 32 | u64::from(slot))
}

fn post_receive<S: Station>(
    wiring: &Wiring<S::Context>,
    name: WrId,
    size: u32,
) -> Result<(), PatternError> {
    let (qp, slot) = ((name.0 >> 32) as usize, name.0 as u32);
    let sges = [wiring.mr.sge(u64::from(slot) * u64::from(size), size)?];
    Ok(wiring.qps[qp].post_recv(&[RecvRequest::new(name, &sges)])?)
}

/// The members that a member is linked with and that do such a part.
fn peers(pattern: &Pattern, member: &Member, does: impl Fn(&Part) -> bool) -> Vec<RoleId> {
    let linked = member.links.iter().map(|link| link.peer);
    let mut peers: Vec<_> = linked
        .filter(|peer| does(&pattern.members[peer.0 as usize].part))
        .collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}

/// Takes messages and posts their receives again, until all senders are done: one that began late
/// would otherwise wait for a receive.
fn take<S: Station>(
    station: &S,
    (wiring, mut senders): (&Wiring<S::Context>, Vec<RoleId>),
    size: u32,
    watch: &mut Watch,
) -> Result<(), PatternError> {
    let mut completions = [WorkCompletion::default(); BATCH];
    let mut reaper = Reaper::new(station, wiring);
    loop {
        let now = station.now();
        let end = watch.until + GRACE;
        if now >= end
            && let Some(sender) = senders.last()
            && is_done(station, *sender, GLANCE)?
        {
            senders.pop();
        }
        if senders.is_empty() {
            return Ok(());
        }
        let patience = if now < end { end - now } else { GRACE };
        let n = match reaper.reap(&mut completions, patience) {
            Ok(n) => n,
            Err(PatternError::Wait(WaitError::TimedOut { .. })) => 0,
            Err(error) => return Err(error),
        };
        for wc in &completions[..n] {
            post_receive::<S>(wiring, wc.wr_id, size)?;
        }
        watch.saw(station, station.now(), n as u64);
    }
}
