//! A client of memory: keeps trains of requests under way.

use adverb_units::Time;
use adverb_verbs::{
    MemoryRegion, Operation, QueuePair, RoleId, SendFlags, SendRequest, Station, WorkCompletion,
    WrId,
};

use crate::error::PatternError;
use crate::load::Timing;
use crate::member::{BATCH, Schedule};
use crate::random::Random;
use crate::tally::ServiceTally;
use crate::wiring::Wiring;

use super::layout::{FREED, LOCKED, Layout};
use super::{Items, MAX_LIST, OneSided, PATIENCE, Remote};

/// The next step of a lane's operation.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Takes a number.
    Count,
    /// Reads a record; so many READs follow.
    Read { level: usize, place: u64, left: u32 },
    /// Locks an item.
    Lock { item: u64 },
    /// Frees it.
    Free { item: u64 },
    /// The client begins nothing more.
    Idle,
}

/// A lane, with when its operation began.
#[derive(Clone, Copy, Debug)]
struct Lane {
    step: Step,
    began: Option<Time>,
}

/// Requests that are posted together.
struct Train {
    wire: usize,
    lanes: Vec<Lane>,
    /// Offset of what the lanes' steps bring.
    buffers: u64,
}

/// A client at work.
pub(super) struct Client<'w, S: Station> {
    station: &'w S,
    wiring: &'w Wiring<S::Context>,
    program: &'w OneSided,
    layout: &'w Layout,
    trains: Vec<Train>,
    random: Random,
    from: Time,
    until: Time,
    tally: ServiceTally,
}

impl<'w, S: Station> Client<'w, S> {
    pub(super) fn new(
        station: &'w S,
        wiring: &'w Wiring<S::Context>,
        program: &'w OneSided,
        layout: &'w Layout,
        (me, schedule): (RoleId, Schedule),
    ) -> Self {
        let (list, each) = (program.list(), program.clients.outstanding);
        let mut trains = Vec::new();
        let mut buffers = 0;
        for wire in 0..wiring.wires.len() {
            let mut left = each;
            while left > 0 {
                let lanes = left.min(list);
                left -= lanes;
                let idle = Lane {
                    step: Step::Idle,
                    began: None,
                };
                trains.push(Train {
                    wire,
                    lanes: vec![idle; lanes as usize],
                    buffers,
                });
                buffers += u64::from(lanes) * layout.widest();
            }
        }
        let from = station.now() + schedule.warm_up;
        let seed = program.clients.seed.wrapping_mul(1_000_003);
        Client {
            station,
            wiring,
            program,
            layout,
            trains,
            random: Random::new(seed + u64::from(me.0)),
            from,
            until: from + schedule.measured,
            tally: ServiceTally {
                elapsed: schedule.measured,
                ..ServiceTally::default()
            },
        }
    }

    /// Works until the measured time is over, and ends what it has begun.
    pub(super) fn run(mut self) -> Result<ServiceTally, PatternError> {
        let now = self.station.now();
        let mut under_way = 0;
        for train in 0..self.trains.len() {
            for lane in 0..self.trains[train].lanes.len() {
                self.trains[train].lanes[lane] = self.begin(now);
            }
            under_way += u32::from(self.post(train)?);
        }
        while under_way > 0 {
            let mut completions = [WorkCompletion::default(); BATCH];
            let cq = &self.wiring.cq;
            let n = self.station.spin(cq, &mut completions, PATIENCE)?;
            let now = self.station.now();
            for wc in &completions[..n] {
                if !wc.status.is_success() {
                    return Err(PatternError::Completion {
                        wr_id: wc.wr_id,
                        status: wc.status,
                    });
                }
                let train = wc.wr_id.0 as usize;
                self.advance(train, now)?;
                under_way -= u32::from(!self.post(train)?);
            }
        }
        Ok(self.tally)
    }

    /// Begins another operation, if there is time for it.
    fn begin(&mut self, now: Time) -> Lane {
        let step = if now >= self.until {
            Step::Idle
        } else {
            match &self.program.remote {
                Remote::Counter => Step::Count,
                Remote::Items(items) => choose(items, &mut self.random),
            }
        };
        let is_timed = self.program.clients.timing == Timing::Each;
        Lane {
            step,
            began: is_timed.then_some(now),
        }
    }

    /// All steps of a train have been carried out.
    fn advance(&mut self, train: usize, now: Time) -> Result<(), PatternError> {
        let mut buffer = self.trains[train].buffers;
        for place in 0..self.trains[train].lanes.len() {
            let lane = self.trains[train].lanes[place];
            let next = self.look(lane.step, buffer)?;
            self.trains[train].lanes[place] = match next {
                Some(step) => Lane { step, ..lane },
                None => {
                    if !matches!(lane.step, Step::Idle) {
                        self.done(lane, now);
                    }
                    self.begin(now)
                }
            };
            buffer += self.layout.widest();
        }
        Ok(())
    }

    /// Looks at what a step brought: the next step, or none where the operation is done.
    fn look(&mut self, step: Step, buffer: u64) -> Result<Option<Step>, PatternError> {
        match step {
            Step::Idle => Ok(None),
            Step::Count => {
                let number = self.word(buffer)?;
                self.tally.handed.add(number);
                Ok(None)
            }
            Step::Lock { item } => {
                self.word(buffer)?;
                Ok(Some(Step::Free { item }))
            }
            Step::Free { .. } => {
                if self.word(buffer)? % FREED == 0 {
                    return Err(PatternError::Wrong("a lock that was free before its end"));
                }
                self.tally.locked += 1;
                Ok(None)
            }
            Step::Read { level, place, left } => {
                let (_, length) = self.layout.record(level, place);
                let mut record = vec![0; length as usize];
                self.wiring.mr.read(buffer, &mut record)?;
                let next = self.layout.follow(level, place, &record)?;
                self.tally.values_checked += 1;
                Ok((left > 0).then(|| Step::Read {
                    level: level + 1,
                    place: next,
                    left: left - 1,
                }))
            }
        }
    }

    fn word(&self, buffer: u64) -> Result<u64, PatternError> {
        let mut word = [0; 8];
        self.wiring.mr.read(buffer, &mut word)?;
        Ok(u64::from_ne_bytes(word))
    }

    fn done(&mut self, lane: Lane, now: Time) {
        if (self.from..self.until).contains(&now) {
            self.tally.requests += 1;
            if let Some(began) = lane.began {
                self.tally.samples.add(now - began, &mut self.random);
            }
        }
    }

    /// Posts the steps of a train; false where all its lanes are idle.
    fn post(&mut self, train: usize) -> Result<bool, PatternError> {
        let (mr, wiring) = (&self.wiring.mr, self.wiring);
        let mut sges = [mr.sge(0, 0)?; MAX_LIST as usize];
        let mut operations = [None; MAX_LIST as usize];
        let at = &self.trains[train];
        let remote = wiring.wires[at.wire].remote;
        let mut n = 0;
        for (place, lane) in at.lanes.iter().enumerate() {
            let buffer = at.buffers + place as u64 * self.layout.widest();
            let (operation, length) = match lane.step {
                Step::Idle => continue,
                Step::Count => (Operation::FetchAdd(remote.at(self.layout.lock(0)), 1), 8),
                Step::Lock { item } => {
                    let there = remote.at(self.layout.lock(item));
                    (Operation::FetchAdd(there, LOCKED), 8)
                }
                Step::Free { item } => {
                    let there = remote.at(self.layout.lock(item));
                    (Operation::FetchAdd(there, FREED), 8)
                }
                Step::Read { level, place, .. } => {
                    let (offset, length) = self.layout.record(level, place);
                    (Operation::RdmaRead(remote.at(offset)), length)
                }
            };
            sges[n] = mr.sge(buffer, length)?;
            operations[n] = Some(operation);
            n += 1;
        }
        if n == 0 {
            return Ok(false);
        }
        let name = WrId(train as u64);
        let mut requests = [SendRequest::new(name, Operation::Send, &[]); MAX_LIST as usize];
        for place in 0..n {
            let operation = operations[place].expect("one for each of the first n");
            let piece = std::slice::from_ref(&sges[place]);
            requests[place] = SendRequest::new(name, operation, piece);
        }
        requests[n - 1].flags = SendFlags::SIGNALED;
        let qp = &wiring.qps[at.wire];
        qp.post_send(&requests[..n])?;
        self.tally.posts += 1;
        Ok(true)
    }
}

/// A GET or a PUT of any item.
fn choose(items: &Items, random: &mut Random) -> Step {
    let item = random.below(items.items);
    if random.chance(items.put_ratio) {
        return Step::Lock { item };
    }
    let more = items.mean_reads - 1.0;
    let left = more.floor() as u32 + u32::from(random.chance(more.fract()));
    Step::Read {
        level: 0,
        place: item,
        left,
    }
}
