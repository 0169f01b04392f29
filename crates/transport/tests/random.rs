//! Random operations of both sides under every mix of faults, against a simple model of memory and
//! completions: each operation happens once, in order.
//!
//! `ADVERB_TRANSPORT_SEED=N` runs one seed again; a failure names its seed. `ADVERB_TRANSPORT_SEEDS=N`
//! runs so many.

mod lab;

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;

use adverb_transport::{
    AtomicOperation, Completion, CreditPolicy, Queue, RcQp, ReceiveWork, SendWork, Work,
};
use adverb_units::Span;
use adverb_verbs::{
    AckTimeout, Comparison, Imm, PathMtu, RemoteAddress, SendFlags, WcOpcode, WcStatus, WrId,
};
use lab::memory::{REMOTE, pieces};
use lab::{Fate, Lab, Random, Side, config, connected};

const OPERATIONS: usize = 120;
/// The part of the peer's region that operations use.
const AREA: u64 = 64 << 10;
/// Local memory of one operation or receive request.
const SLOT: usize = 6 << 10;
const RECEIVE_SLOT: usize = 6 << 10;

/// How many packets of 1000 have which fate.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    drop: u64,
    duplicate: u64,
    delay: u64,
    corrupt: u64,
}

/// One direction as it should come out.
struct Model {
    memory: Vec<u8>,
    /// What the program has asked for, in order.
    posted: Vec<Posted>,
    /// Messages that the peer is to receive.
    messages: Vec<Message>,
    /// Ranges read since the last fence.
    read: Vec<(u64, u64)>,
}

struct Posted {
    work: SendWork,
    /// What its local memory shall hold in the end.
    answer: Option<(usize, Vec<u8>)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Message {
    opcode: WcOpcode,
    length: u32,
    imm: Option<Imm>,
    solicited: bool,
    /// The payload, where it goes to the receive request.
    payload: Option<Vec<u8>>,
}

fn faults(random: &mut Random) -> Faults {
    let mut rate = |most| match random.below(3) {
        0 => 0,
        _ => random.below(most),
    };
    Faults {
        drop: rate(60),
        duplicate: rate(100),
        delay: rate(150),
        corrupt: rate(40),
    }
}

fn rule(faults: Faults, seed: u64) -> lab::Rule {
    let mut random = Random::new(seed);
    Box::new(move |_| {
        let later = Span::from_ns(random.below(60_000));
        let bit = random.number() as usize;
        if random.chance(faults.drop) {
            Fate::Drop
        } else if random.chance(faults.corrupt) {
            Fate::Corrupt(bit)
        } else if random.chance(faults.duplicate) {
            Fate::Duplicate(later)
        } else if random.chance(faults.delay) {
            Fate::Delay(later)
        } else {
            Fate::Pass
        }
    })
}

impl Model {
    fn new() -> Self {
        Model {
            memory: vec![0; lab::memory::SIZE],
            posted: vec![],
            messages: vec![],
            read: vec![],
        }
    }

    /// Makes up an operation, carries it out in the model, and notes what it shall give.
    fn operation(&mut self, index: usize, random: &mut Random) {
        let length = match random.below(4) {
            0 => 0,
            1 => random.below(9),
            2 => random.below(300),
            _ => random.below(SLOT as u64),
        };
        let at = random.below(AREA - SLOT as u64);
        let remote = REMOTE.at(at);
        let imm = Imm(random.number() as u32);
        let bytes = random.bytes(length as usize);
        let word = REMOTE.at(at / 8 * 8);
        let number = random.below(4);
        let work = match random.below(9) {
            0 => Work::Send,
            1 => Work::SendWithImm(imm),
            2 | 3 => Work::Write(remote),
            4 => Work::WriteWithImm(remote, imm),
            5 | 6 => Work::Read(remote),
            7 => Work::FetchAdd(word, number),
            _ => {
                let expected = self.word(word);
                Work::CompareSwap(
                    word,
                    Comparison {
                        expected: expected ^ (number & 1),
                        new: number,
                    },
                )
            }
        };
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, random.below(3) != 0);
        flags.set(SendFlags::SOLICITED, random.below(4) == 0);
        let slot = index * SLOT;
        flags.set(
            SendFlags::FENCE,
            random.below(8) == 0 || self.needs_fence(&work, length),
        );
        if flags.contains(SendFlags::FENCE) {
            self.read.clear();
        }
        let answer = self
            .carry_out(&work, &bytes, flags)
            .map(|answer| (slot, answer));
        let payload = match work {
            Work::FetchAdd(..) | Work::CompareSwap(..) => lab::memory::piece(slot, 8),
            _ if random.below(6) == 0 && !work.is_answered() => {
                adverb_transport::Payload::Inline(bytes.iter().copied().collect())
            }
            // In pieces of uneven lengths.
            _ => adverb_transport::Payload::Memory(cut(slot, bytes.len(), random)),
        };
        let wr_id = WrId(index as u64);
        let work = SendWork {
            wr_id,
            work,
            payload,
            flags,
        };
        self.posted.push(Posted { work, answer });
        self.sources(slot, bytes);
    }

    fn sources(&mut self, slot: usize, bytes: Vec<u8>) {
        let last = self.posted.last_mut().expect("just posted");
        if last.answer.is_none() {
            last.answer = Some((slot, bytes));
        }
    }

    /// A READ that is repeated after a loss reads again: whoever changes what it reads has to wait.
    fn needs_fence(&self, work: &Work, length: u64) -> bool {
        let (from, to) = match work {
            Work::Write(remote) | Work::WriteWithImm(remote, _) => {
                (remote.addr, remote.addr + length)
            }
            Work::FetchAdd(remote, _) | Work::CompareSwap(remote, _) => {
                (remote.addr, remote.addr + 8)
            }
            _ => return false,
        };
        self.read.iter().any(|&(a, b)| from < b && a < to)
    }

    fn word(&self, at: RemoteAddress) -> u64 {
        let from = (at.addr - REMOTE.addr) as usize;
        u64::from_ne_bytes(self.memory[from..from + 8].try_into().unwrap())
    }

    /// Does it, and gives what it brings.
    fn carry_out(&mut self, work: &Work, bytes: &[u8], flags: SendFlags) -> Option<Vec<u8>> {
        let place = |remote: &RemoteAddress| (remote.addr - REMOTE.addr) as usize;
        let mut message = Message {
            opcode: WcOpcode::Recv,
            length: bytes.len() as u32,
            imm: None,
            solicited: flags.contains(SendFlags::SOLICITED),
            payload: Some(bytes.to_vec()),
        };
        match work {
            Work::Send => self.messages.push(message),
            Work::SendWithImm(imm) => {
                message.imm = Some(*imm);
                self.messages.push(message);
            }
            Work::Write(remote) | Work::WriteWithImm(remote, _) => {
                self.memory[place(remote)..][..bytes.len()].copy_from_slice(bytes);
                if let Work::WriteWithImm(_, imm) = work {
                    message.imm = Some(*imm);
                    message.opcode = WcOpcode::RecvRdmaWithImm;
                    message.payload = None;
                    self.messages.push(message);
                }
            }
            Work::Read(remote) => {
                self.read
                    .push((remote.addr, remote.addr + bytes.len() as u64));
                return Some(self.memory[place(remote)..][..bytes.len()].to_vec());
            }
            Work::FetchAdd(remote, add) => {
                return Some(self.atomic(*remote, AtomicOperation::FetchAdd(*add)));
            }
            Work::CompareSwap(remote, c) => {
                return Some(self.atomic(*remote, AtomicOperation::CompareSwap(*c)));
            }
            Work::SendWithInvalidate(_) => unreachable!("not made up"),
        }
        None
    }

    fn atomic(&mut self, at: RemoteAddress, operation: AtomicOperation) -> Vec<u8> {
        let found = self.word(at);
        let from = (at.addr - REMOTE.addr) as usize;
        self.memory[from..from + 8].copy_from_slice(&operation.apply(found).to_ne_bytes());
        found.to_ne_bytes().to_vec()
    }
}

/// Local memory in up to three pieces.
fn cut(slot: usize, length: usize, random: &mut Random) -> adverb_transport::Pieces {
    let mut cuts = [
        random.below(length as u64 + 1),
        random.below(length as u64 + 1),
    ];
    cuts.sort_unstable();
    let ends = [0, cuts[0] as usize, cuts[1] as usize, length];
    let piece = |w: &[usize]| adverb_transport::LocalPiece {
        addr: lab::memory::LOCAL + (slot + w[0]) as u64,
        length: (w[1] - w[0]) as u32,
        lkey: lab::memory::LOCAL_KEY,
    };
    ends.windows(2).map(piece).collect()
}

/// A run of one seed, to its end.
struct Run {
    lab: Lab<RcQp>,
    models: [Model; 2],
}

fn set_up(seed: u64) -> Run {
    let mut random = Random::new(seed);
    let faults = faults(&mut random);
    let mtu =
        [PathMtu::B256, PathMtu::B512, PathMtu::B1024, PathMtu::B4096][random.below(4) as usize];
    let (mut a, mut b) = (config(Side::A), config(Side::B));
    let reads = 1 + random.below(4) as u8;
    let window = [1, 2, 5, 64][random.below(4) as usize];
    let credits = [CreditPolicy::None, CreditPolicy::Posted][random.below(2) as usize];
    for side in [&mut a, &mut b] {
        side.path_mtu = mtu;
        side.requester.max_reads = reads;
        side.responder.max_reads = reads;
        side.requester.window = window;
        side.responder.credits = credits;
        side.requester.max_work = 16;
        side.requester.timeout = AckTimeout::new(7).unwrap();
    }
    let mut lab = connected(&a, &b, rule(faults, seed ^ 0x5eed));
    let models = [Side::A, Side::B].map(|side| {
        let mut model = Model::new();
        for index in 0..OPERATIONS {
            model.operation(index, &mut random);
        }
        prepare(&mut lab, side, &model, &mut random);
        model
    });
    Run { lab, models }
}

/// Puts sources into local memory, and has the peer post receive requests now and later.
fn prepare(lab: &mut Lab<RcQp>, side: Side, model: &Model, random: &mut Random) {
    let memory = &mut lab.end(side).memory;
    memory.local.resize(OPERATIONS * (SLOT + RECEIVE_SLOT), 0);
    for posted in &model.posted {
        if let (false, Some((slot, bytes))) = (posted.work.work.is_answered(), &posted.answer) {
            memory.local[*slot..slot + bytes.len()].copy_from_slice(bytes);
        }
    }
    let mut after = Span::ZERO;
    for index in 0..model.messages.len() {
        if random.below(3) == 0 {
            after += Span::from_ns(random.below(40_000));
        }
        let at = OPERATIONS * SLOT + index * RECEIVE_SLOT;
        let work = ReceiveWork {
            wr_id: WrId(index as u64),
            pieces: pieces(at, RECEIVE_SLOT),
        };
        lab.receive_after(side.other(), after, work);
    }
}

impl Run {
    fn finish(&mut self) {
        let mut left = [0, 1].map(|i: usize| {
            let work = self.models[i]
                .posted
                .iter()
                .map(|posted| posted.work.clone());
            work.collect::<VecDeque<_>>()
        });
        loop {
            for (side, left) in [Side::A, Side::B].into_iter().zip(&mut left) {
                let end = self.lab.end(side);
                while let Some(work) = left.front() {
                    if end.qp.post_send(work.clone(), &end.memory).is_err() {
                        break;
                    }
                    left.pop_front();
                }
            }
            if !self.lab.step() {
                break;
            }
            assert!(
                self.lab.now.as_ps() < Span::from_secs(50).as_ps(),
                "it hangs"
            );
        }
        assert!(
            left.iter().all(VecDeque::is_empty),
            "not all could be posted"
        );
    }

    fn check(&mut self) {
        for (index, side) in [Side::A, Side::B].into_iter().enumerate() {
            let model = &self.models[index];
            let end = &self.lab.end(side);
            check_sends(&end.completions, &end.memory.local, model);
            let peer = &self.lab.end(side.other());
            assert!(
                peer.memory.shared == model.memory,
                "the peer's memory differs"
            );
            check_receives(&peer.completions, &peer.memory.local, model);
        }
    }
}

fn check_sends(completions: &[Completion], local: &[u8], model: &Model) {
    let ended = completions.iter().filter(|c| c.queue == Queue::Send);
    let ids: Vec<_> = ended
        .map(|c| {
            assert_eq!(c.work.status, WcStatus::Success, "{c:?}");
            c.work.wr_id
        })
        .collect();
    let signaled = model
        .posted
        .iter()
        .filter(|p| p.work.flags.contains(SendFlags::SIGNALED));
    let wanted: Vec<_> = signaled.map(|p| p.work.wr_id).collect();
    assert_eq!(ids, wanted, "completions of sends");
    for posted in &model.posted {
        let (slot, bytes) = posted.answer.as_ref().expect("each has local memory");
        let there = &local[*slot..slot + bytes.len()];
        assert!(there == bytes, "local memory of {:?}", posted.work);
    }
}

fn check_receives(completions: &[Completion], local: &[u8], model: &Model) {
    let ended: Vec<_> = completions
        .iter()
        .filter(|c| c.queue == Queue::Receive)
        .collect();
    assert_eq!(ended.len(), model.messages.len(), "messages received");
    for (index, (c, wanted)) in ended.iter().zip(&model.messages).enumerate() {
        let at = OPERATIONS * SLOT + index * RECEIVE_SLOT;
        let seen = Message {
            opcode: c.work.opcode,
            length: c.work.byte_len,
            imm: c.work.imm,
            solicited: c.solicited == adverb_transport::Solicited::Yes,
            payload: wanted
                .payload
                .as_ref()
                .map(|p| local[at..at + p.len()].to_vec()),
        };
        assert_eq!(c.work.wr_id, WrId(index as u64));
        assert!(&seen == wanted, "message {index}: {seen:?}, not {wanted:?}");
    }
}

/// A number in the environment.
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

fn seeds() -> std::ops::Range<u64> {
    match variable("ADVERB_TRANSPORT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("ADVERB_TRANSPORT_SEEDS").unwrap_or(300),
    }
}

#[test]
fn every_operation_happens_once_and_in_order() {
    let mut faults_met = [0; 4];
    for seed in seeds() {
        let tried = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut run = set_up(seed);
            run.finish();
            run.check();
            let (a, b) = (run.lab.a.qp.counters(), run.lab.b.qp.counters());
            [
                a.resent + b.resent,
                a.duplicates + b.duplicates,
                a.rnr_naks + b.rnr_naks,
                run.lab.a.damaged + run.lab.b.damaged,
            ]
        }));
        let Ok(counts) = tried else {
            panic!("seed {seed}: run it again with ADVERB_TRANSPORT_SEED={seed}");
        };
        for (sum, count) in faults_met.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    // A few seeds may be spared.
    let few = seeds().count() < 300;
    assert!(few || faults_met.iter().all(|&n| n > 500), "{faults_met:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let trace = || {
        let mut run = set_up(7);
        run.finish();
        let sent = run.lab.sent.iter();
        let packets: Vec<_> = sent.map(|s| (s.at, s.from, s.headers, s.payload)).collect();
        (packets, run.lab.a.completions, run.lab.b.completions)
    };
    let (one, two) = (trace(), trace());
    assert!(one == two);
    assert!(one.0.len() > 200);
}
