//! A client of one-sided operations: keeps trains of requests outstanding.

use std::collections::VecDeque;

use adverb_units::Time;
use adverb_verbs::{
    MemoryRegion, Operation, QueuePair, RecvRequest, RoleId, SendFlags, SendRequest, Sge, Station,
    WcOpcode, WorkCompletion, WrId,
};

use crate::rpc::slots::{Kind, Slots, last_byte};
use crate::tally::ServiceTally;
use adverb_workload::attend::Members;
use adverb_workload::pattern::PatternError;
use adverb_workload::pattern::Timing;
use adverb_workload::pattern::wiring::Wiring;
use adverb_workload::pattern::{Meter, Schedule};
use adverb_workload::random::Random;
use adverb_workload::reap::{BATCH, Reaper};

use super::item_server::{answers, question};
use super::layout::{FREED, LOCKED, Layout};
use super::{Items, MAX_LIST, OneSided, Puts, Remote};

/// The next step of a lane's operation.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Draws a number.
    Count,
    /// Reads a record; `left` READs follow.
    Read { level: usize, place: u64, left: u32 },
    /// Locks an item.
    Lock { item: u64 },
    /// Frees it.
    Free { item: u64 },
    /// Asks the owner's core to change an item.
    Ask { item: u64 },
    /// The client starts no further operations.
    Idle,
}

/// A lane and the start of its operation.
#[derive(Clone, Copy, Debug)]
struct Lane {
    step: Step,
    began: Option<Time>,
}

/// Requests that are posted together.
struct Train {
    wire: usize,
    lanes: Vec<Lane>,
    /// Offset of the buffers of the lanes.
    buffers: u64,
    /// Completions and answers that it waits for.
    awaits: u32,
}

/// The questions of a client to the owner's core.
struct Questions {
    slots: Slots,
    /// Index of the client among the clients of its core.
    place: u32,
    /// Number of questions so far.
    asked: u64,
    /// Trains that wait for answers, by the queue pair of the answer.
    waiting: Vec<VecDeque<usize>>,
    bytes: Vec<u8>,
}

/// A request to be posted, without its id.
type Drafted<'m> = (Operation, Sge<'m>, SendFlags);

/// The state of a running client.
pub(super) struct Client<'w, S: Station> {
    station: &'w S,
    members: &'w Members<'w, S>,
    reaper: Reaper<'w, S::Context>,
    wiring: &'w Wiring<S::Context>,
    program: &'w OneSided,
    layout: &'w Layout,
    trains: Vec<Train>,
    questions: Option<Questions>,
    random: Random,
    until: Time,
    /// Finished operations.
    finished: u64,
    meter: Meter,
    tally: ServiceTally,
}

impl<'w, S: Station> Client<'w, S> {
    pub(super) fn new(
        members: &'w Members<'w, S>,
        wiring: &'w Wiring<S::Context>,
        program: &'w OneSided,
        layout: &'w Layout,
        (me, schedule): (RoleId, Schedule),
    ) -> Result<Self, PatternError> {
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
                    awaits: 0,
                });
                buffers += u64::from(lanes) * layout.widest();
            }
        }
        let station = members.station();
        let now = station.now();
        let seed = program.clients.seed.wrapping_mul(1_000_003);
        let questions = program.slots().map(|slots| Questions {
            slots,
            place: (me.0 - program.owners()) / program.owners(),
            asked: 0,
            waiting: vec![VecDeque::new(); wiring.qps.len()],
            bytes: vec![0; layout.question() as usize],
        });
        let client = Client {
            station,
            members,
            reaper: wiring.queue.reaper(),
            wiring,
            program,
            layout,
            trains,
            questions,
            random: Random::new(seed + u64::from(me.0)),
            until: now + schedule.warm_up + schedule.measured,
            finished: 0,
            meter: Meter::new(now, schedule),
            tally: ServiceTally::timed(program.clients.timing),
        };
        if client.questions.is_some() {
            for qp in 0..wiring.qps.len() {
                (0..answers(each)).try_for_each(|_| client.expect_answer(qp))?;
            }
        }
        Ok(client)
    }

    /// Runs operations until the measured time is over, and finishes those in progress.
    pub(super) fn run(mut self) -> Result<ServiceTally, PatternError> {
        let now = self.station.now();
        let mut outstanding = 0;
        for train in 0..self.trains.len() {
            for lane in 0..self.trains[train].lanes.len() {
                self.trains[train].lanes[lane] = self.begin(now);
            }
            outstanding += u32::from(self.post(train)?);
        }
        while outstanding > 0 {
            let mut completions = [WorkCompletion::default(); BATCH];
            let n = self
                .reaper
                .reap(self.station, self.members, &mut completions)?;
            let now = self.station.now();
            for wc in &completions[..n] {
                let train = self.concerned(wc)?;
                self.trains[train].awaits -= 1;
                if self.trains[train].awaits == 0 {
                    self.advance(train, now)?;
                    outstanding -= u32::from(!self.post(train)?);
                }
            }
            self.meter.look(self.station, now, self.finished);
        }
        self.farewell()?;
        Ok(self.tally.measured_by(&self.meter))
    }

    /// Returns the train that a completion belongs to: of its last request, or of an answer.
    fn concerned(&mut self, wc: &WorkCompletion) -> Result<usize, PatternError> {
        let name = wc.wr_id.0 as usize;
        let Some(questions) = self
            .questions
            .as_mut()
            .filter(|_| wc.opcode == WcOpcode::Recv)
        else {
            return Ok(name);
        };
        let train = questions.waiting[name].pop_front();
        self.expect_answer(name)?;
        train.ok_or(PatternError::Wrong("an answer to no question"))
    }

    /// Posts a receive for an answer over a queue pair.
    fn expect_answer(&self, qp: usize) -> Result<(), PatternError> {
        let receive = RecvRequest::new(WrId(qp as u64), &[]);
        Ok(self.wiring.qps[qp].post_recv(&[receive])?)
    }

    /// Tells the owner's core that this client has no more questions.
    fn farewell(&mut self) -> Result<(), PatternError> {
        if self.questions.is_none() {
            return Ok(());
        }
        let (operation, piece, flags) = self.ask(0, 0, (Kind::Bye, 0))?;
        let pieces = [piece];
        let request = SendRequest::new(WrId(0), operation, &pieces);
        let request = request.with_flags(flags | SendFlags::SIGNALED);
        self.wiring.qps[0].post_send(&[request])?;
        let mut completion = [WorkCompletion::default()];
        self.reaper
            .reap(self.station, self.members, &mut completion)
            .map(drop)
    }

    /// Writes a question to the owner's core at `buffer` and returns its request.
    fn ask(
        &mut self,
        wire: usize,
        buffer: u64,
        (kind, item): (Kind, u64),
    ) -> Result<Drafted<'w>, PatternError> {
        let (mr, inline) = (&self.wiring.mr, self.wiring.inline);
        let remote = self.wiring.wires[wire].remote;
        let missing = PatternError::Wrong("a question where nobody is asked");
        let questions = self.questions.as_mut().ok_or(missing)?;
        let number = questions.asked;
        questions.asked += 1;
        let last = last_byte(kind, number, questions.slots.each);
        question(item, number, last, &mut questions.bytes);
        mr.write(buffer, &questions.bytes)?;
        let length = questions.bytes.len() as u32;
        let there = questions.slots.end(questions.place, number) - u64::from(length);
        let flags = if length <= inline {
            SendFlags::INLINE
        } else {
            SendFlags::empty()
        };
        Ok((
            Operation::RdmaWrite(remote.at(there)),
            mr.sge(buffer, length)?,
            flags,
        ))
    }

    /// Notes that `train` waits for the answer to the latest question.
    fn await_answer(&mut self, train: usize) {
        if let Some(questions) = &mut self.questions {
            let over = (questions.asked - 1) % questions.waiting.len() as u64;
            questions.waiting[over as usize].push_back(train);
            self.trains[train].awaits += 1;
        }
    }

    /// Starts another operation, unless the time is over.
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

    /// Handles the completion of all steps of a train.
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

    /// Checks the result of a step and returns the next one; `None` if the operation is finished.
    fn look(&mut self, step: Step, buffer: u64) -> Result<Option<Step>, PatternError> {
        match step {
            Step::Idle => Ok(None),
            Step::Ask { .. } => {
                self.tally.locked += 1;
                Ok(None)
            }
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
        self.finished += 1;
        if let (Some(began), Some(waits)) = (lane.began, &mut self.tally.waits)
            && self.meter.is_open(now)
        {
            waits.record(now - began);
        }
    }

    /// Posts the steps of a train; returns false if all of its lanes are idle.
    fn post(&mut self, train: usize) -> Result<bool, PatternError> {
        let mr = &self.wiring.mr;
        let mut drafted = [None; MAX_LIST as usize];
        let mut n = 0;
        let (wire, mut buffer) = (self.trains[train].wire, self.trains[train].buffers);
        for place in 0..self.trains[train].lanes.len() {
            if let Some(request) = self.draft(train, place, buffer)? {
                drafted[n] = Some(request);
                n += 1;
            }
            buffer += self.layout.widest();
        }
        if n == 0 {
            return Ok(false);
        }
        let name = WrId(train as u64);
        let mut sges = [mr.sge(0, 0)?; MAX_LIST as usize];
        for (sge, (_, piece, _)) in sges.iter_mut().zip(drafted.iter().flatten()) {
            *sge = *piece;
        }
        let mut requests = [SendRequest::new(name, Operation::Send, &[]); MAX_LIST as usize];
        let pieces = sges.iter().map(std::slice::from_ref);
        for ((request, piece), (operation, _, flags)) in requests
            .iter_mut()
            .zip(pieces)
            .zip(drafted.iter().flatten())
        {
            *request = SendRequest::new(name, *operation, piece).with_flags(*flags);
        }
        requests[n - 1].flags |= SendFlags::SIGNALED;
        self.trains[train].awaits += 1;
        self.wiring.qps[wire].post_send(&requests[..n])?;
        self.tally.posts += 1;
        Ok(true)
    }

    /// Returns the next request of a lane with its buffer at `buffer`.
    fn draft(
        &mut self,
        train: usize,
        place: usize,
        buffer: u64,
    ) -> Result<Option<Drafted<'w>>, PatternError> {
        let wire = self.trains[train].wire;
        let remote = self.wiring.wires[wire].remote;
        let add = |item, what| {
            let there = remote.at(self.layout.lock(item));
            (Operation::FetchAdd(there, what), 8)
        };
        let (operation, length) = match self.trains[train].lanes[place].step {
            Step::Idle => return Ok(None),
            Step::Ask { item } => {
                let request = self.ask(wire, buffer, (Kind::Put, item))?;
                self.await_answer(train);
                return Ok(Some(request));
            }
            Step::Count => add(0, 1),
            Step::Lock { item } => add(item, LOCKED),
            Step::Free { item } => add(item, FREED),
            Step::Read { level, place, .. } => {
                let (offset, length) = self.layout.record(level, place);
                (Operation::RdmaRead(remote.at(offset)), length)
            }
        };
        let piece = self.wiring.mr.sge(buffer, length)?;
        Ok(Some((operation, piece, SendFlags::empty())))
    }
}

/// Chooses a GET or a PUT of a random item.
fn choose(items: &Items, random: &mut Random) -> Step {
    let item = random.below(items.items);
    if random.chance(items.put_ratio) {
        return match items.puts {
            Puts::Lock => Step::Lock { item },
            Puts::Ask { .. } => Step::Ask { item },
        };
    }
    let more = items.mean_reads - 1.0;
    let left = more.floor() as u32 + u32::from(random.chance(more.fract()));
    Step::Read {
        level: 0,
        place: item,
        left,
    }
}
