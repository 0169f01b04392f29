//! RC: each operation happens once and in order. One direction of a connection against a simple model
//! of the peer's memory and of completions.

use std::collections::BTreeMap;

use adverb_transport::{
    AtomicOperation, Completion, LocalPiece, Payload, Pieces, Queue, ReceiveWork, SendWork,
    Solicited, Work,
};
use adverb_units::Span;
use adverb_verbs::{
    Comparison, Imm, RemoteAddress, Rkey, SendFlags, Srqn, WcOpcode, WcStatus, WrId,
};

use super::{Path, Space, TICKETS};
use crate::lab::Random;
use crate::lab::memory::{LOCAL, LOCAL_KEY, REMOTE, pieces};
use crate::lab::network::Network;

/// The part of the peer's region that a direction has for itself.
const AREA: usize = 16 << 10;
/// The longest message.
const LONGEST: u64 = 6 << 10;
/// The first of the keys that exist to be invalidated.
const SPARE: u32 = 0x1000;

pub struct Reliable {
    pub path: Path,
    /// Where its area begins in the peer's region.
    base: u64,
    /// Expected contents of the area.
    memory: Vec<u8>,
    /// What the program asks for, in order.
    posted: Vec<Posted>,
    /// Messages that the peer is to receive, and where.
    messages: Vec<(usize, Message)>,
    /// Ranges read since the last fence.
    read: Vec<(u64, u64)>,
}

struct Posted {
    work: SendWork,
    local: usize,
    answer: Answer,
}

/// Expected contents of a request's local memory.
enum Answer {
    Bytes(Vec<u8>),
    /// The previous value of this word, to which other requesters add, too.
    Ticket(RemoteAddress),
}

#[derive(Debug, PartialEq, Eq)]
struct Message {
    opcode: WcOpcode,
    length: u32,
    imm: Option<Imm>,
    invalidated: Option<Rkey>,
    solicited: bool,
    /// The payload, if the receive request gets it.
    payload: Option<Vec<u8>>,
}

impl Reliable {
    pub fn new(path: Path, operations: usize, spaces: &mut [Space], random: &mut Random) -> Self {
        let mut direction = Reliable {
            path,
            base: REMOTE.addr + spaces[path.to.host].shared(AREA) as u64,
            memory: vec![0; AREA],
            posted: vec![],
            messages: vec![],
            read: vec![],
        };
        for index in 0..operations {
            direction.operation(index, spaces, random);
        }
        direction
    }

    pub fn count(&self) -> usize {
        self.posted.len()
    }

    pub fn work(&self) -> impl Iterator<Item = SendWork> {
        self.posted.iter().map(|posted| posted.work.clone())
    }

    /// Makes up an operation, applies it to the model, and notes the expected result.
    fn operation(&mut self, index: usize, spaces: &mut [Space], random: &mut Random) {
        let length = length(random);
        let at = random.below(AREA as u64 - LONGEST);
        let work = self.choose(at, spaces, random);
        let length = if work.atomic().is_some() { 8 } else { length };
        let bytes = random.bytes(length as usize);
        let flags = self.flags(&work, length, random);
        let answer = self.carry_out(&work, &bytes, flags);
        let own = &mut spaces[self.path.from.host];
        let local = own.local(bytes.len());
        let inline = random.below(6) == 0 && !work.is_answered();
        let payload = match inline {
            true => Payload::Inline(bytes.iter().copied().collect()),
            // In pieces of uneven lengths.
            false if work.atomic().is_none() => Payload::Memory(cut(local, bytes.len(), random)),
            false => Payload::Memory(pieces(local, 8)),
        };
        let answer = answer.unwrap_or_else(|| {
            own.sources.push((local, bytes.clone()));
            Answer::Bytes(bytes)
        });
        if work.consumes_receive() {
            let (place, message) = self.messages.last_mut().expect("it was noted");
            *place = spaces[self.path.to.host].local(message.length as usize);
        }
        let work = SendWork {
            wr_id: WrId(index as u64),
            work,
            payload,
            flags,
            remote_srqn: Srqn(0),
        };
        self.posted.push(Posted {
            work,
            local,
            answer,
        });
    }

    fn choose(&self, at: u64, spaces: &mut [Space], random: &mut Random) -> Work {
        let imm = Imm(random.number() as u32);
        let remote = RemoteAddress {
            addr: self.base + at,
            ..REMOTE
        };
        let word = RemoteAddress {
            addr: self.base + at / 8 * 8,
            ..REMOTE
        };
        let number = random.below(4);
        match random.below(11) {
            0 => Work::Send,
            1 => Work::SendWithImm(imm),
            2 | 3 => Work::Write(remote),
            4 => Work::WriteWithImm(remote, imm),
            5 | 6 => Work::Read(remote),
            7 => Work::FetchAdd(word, number),
            8 => {
                let expected = self.word(word) ^ (number & 1);
                let new = number;
                Work::CompareSwap(word, Comparison { expected, new })
            }
            9 => Work::FetchAdd(REMOTE.at(8 * (number % TICKETS)), 1),
            _ => {
                let spare = &mut spaces[self.path.to.host].spare;
                let key = SPARE + spare.len() as u32;
                spare.push(key);
                Work::SendWithInvalidate(Rkey(key))
            }
        }
    }

    fn flags(&mut self, work: &Work, length: u64, random: &mut Random) -> SendFlags {
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, random.below(3) != 0);
        flags.set(SendFlags::SOLICITED, random.below(4) == 0);
        let fence = random.below(8) == 1 || self.needs_fence(work, length);
        flags.set(SendFlags::FENCE, fence);
        if fence {
            self.read.clear();
        }
        flags
    }

    /// A READ that is repeated after a loss reads the memory again, so changes of this memory have to wait.
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

    fn place(&self, remote: RemoteAddress) -> usize {
        (remote.addr - self.base) as usize
    }

    fn word(&self, at: RemoteAddress) -> u64 {
        let from = self.place(at);
        u64::from_ne_bytes(self.memory[from..from + 8].try_into().unwrap())
    }

    /// Applies an operation to the model; returns its result, if it has one.
    fn carry_out(&mut self, work: &Work, bytes: &[u8], flags: SendFlags) -> Option<Answer> {
        let mut message = Message {
            opcode: WcOpcode::Recv,
            length: bytes.len() as u32,
            imm: None,
            invalidated: None,
            solicited: flags.contains(SendFlags::SOLICITED),
            payload: Some(bytes.to_vec()),
        };
        match *work {
            Work::Send => {}
            Work::SendWithImm(imm) => message.imm = Some(imm),
            Work::SendWithInvalidate(key) => message.invalidated = Some(key),
            Work::Write(remote) | Work::WriteWithImm(remote, _) => {
                let from = self.place(remote);
                self.memory[from..from + bytes.len()].copy_from_slice(bytes);
                let Work::WriteWithImm(_, imm) = *work else {
                    return None;
                };
                message.imm = Some(imm);
                message.opcode = WcOpcode::RecvRdmaWithImm;
                message.payload = None;
            }
            Work::Read(remote) => {
                let length = bytes.len();
                self.read.push((remote.addr, remote.addr + length as u64));
                let from = self.place(remote);
                return Some(Answer::Bytes(self.memory[from..from + length].to_vec()));
            }
            Work::FetchAdd(remote, _) if remote.addr < self.base => {
                return Some(Answer::Ticket(remote));
            }
            Work::FetchAdd(remote, add) => {
                return Some(self.atomic(remote, AtomicOperation::FetchAdd(add)));
            }
            Work::CompareSwap(remote, c) => {
                return Some(self.atomic(remote, AtomicOperation::CompareSwap(c)));
            }
        }
        self.messages.push((0, message));
        None
    }

    fn atomic(&mut self, at: RemoteAddress, operation: AtomicOperation) -> Answer {
        let found = self.word(at);
        let from = self.place(at);
        self.memory[from..from + 8].copy_from_slice(&operation.apply(found).to_ne_bytes());
        Answer::Bytes(found.to_ne_bytes().to_vec())
    }

    /// Has the peer post receive requests, now and later.
    pub fn post_receives(&self, network: &mut Network, random: &mut Random) {
        let mut after = Span::ZERO;
        for (index, (place, message)) in self.messages.iter().enumerate() {
            if random.below(3) == 0 {
                after += Span::from_ns(random.below(40_000));
            }
            let work = ReceiveWork {
                wr_id: WrId(index as u64),
                pieces: pieces(*place, message.length as usize),
            };
            network.receive_after(self.path.to, after, work);
        }
    }

    pub fn check(&self, network: &Network) {
        let Path { from, to } = self.path;
        let local = &network.hosts[from.host].memory.local;
        self.check_sends(&network.station(from).completions, local);
        let shared = &network.hosts[to.host].memory.shared;
        let area = (self.base - REMOTE.addr) as usize;
        assert!(
            shared[area..area + AREA] == self.memory,
            "the peer's memory differs"
        );
        let local = &network.hosts[to.host].memory.local;
        self.check_receives(&network.station(to).completions, local);
    }

    fn check_sends(&self, completions: &[Completion], local: &[u8]) {
        let ended = completions.iter().filter(|c| c.queue == Queue::Send);
        let ids = ended.map(|c| {
            assert_eq!(c.work.status, WcStatus::Success, "{c:?}");
            c.work.wr_id
        });
        let signaled = |p: &&Posted| p.work.flags.contains(SendFlags::SIGNALED);
        let wanted = self.posted.iter().filter(signaled).map(|p| p.work.wr_id);
        assert!(ids.eq(wanted), "completions of sends");
        for posted in &self.posted {
            if let Answer::Bytes(bytes) = &posted.answer {
                let there = &local[posted.local..posted.local + bytes.len()];
                assert!(there == bytes, "local memory of {:?}", posted.work);
            }
        }
    }

    fn check_receives(&self, completions: &[Completion], local: &[u8]) {
        let ended = completions.iter().filter(|c| c.queue == Queue::Receive);
        let ended: Vec<_> = ended.collect();
        assert_eq!(ended.len(), self.messages.len(), "messages received");
        for (index, (c, (at, wanted))) in ended.iter().zip(&self.messages).enumerate() {
            let payload = wanted.payload.as_ref();
            let seen = Message {
                opcode: c.work.opcode,
                length: c.work.byte_len,
                imm: c.work.imm,
                invalidated: c.work.invalidated,
                solicited: c.solicited == Solicited::Yes,
                payload: payload.map(|p| local[*at..at + p.len()].to_vec()),
            };
            assert_eq!(c.work.wr_id, WrId(index as u64));
            assert!(&seen == wanted, "message {index}: {seen:?}, not {wanted:?}");
        }
    }
}

/// Checks the words to which all requesters add 1: each returned number is unique.
pub fn check_tickets(directions: &[Reliable], network: &Network) {
    let mut handed: BTreeMap<(usize, u64), Vec<u64>> = BTreeMap::new();
    for direction in directions {
        let local = &network.hosts[direction.path.from.host].memory.local;
        for posted in &direction.posted {
            if let Answer::Ticket(word) = posted.answer {
                let at = posted.local;
                let number = u64::from_ne_bytes(local[at..at + 8].try_into().unwrap());
                let key = (direction.path.to.host, word.addr);
                handed.entry(key).or_default().push(number);
            }
        }
    }
    for ((host, word), mut numbers) in handed {
        numbers.sort_unstable();
        let count = numbers.len() as u64;
        assert!(numbers.iter().copied().eq(0..count), "{numbers:?}");
        let at = (word - REMOTE.addr) as usize;
        let there = &network.hosts[host].memory.shared[at..at + 8];
        assert_eq!(there, count.to_ne_bytes());
    }
}

pub fn length(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => 0,
        1 => random.below(9),
        2 => random.below(300),
        _ => random.below(LONGEST),
    }
}

/// Local memory in up to three pieces.
fn cut(at: usize, length: usize, random: &mut Random) -> Pieces {
    let mut cuts = [
        random.below(length as u64 + 1),
        random.below(length as u64 + 1),
    ];
    cuts.sort_unstable();
    let ends = [0, cuts[0] as usize, cuts[1] as usize, length];
    let piece = |w: &[usize]| LocalPiece {
        addr: LOCAL + (at + w[0]) as u64,
        length: (w[1] - w[0]) as u32,
        lkey: LOCAL_KEY,
    };
    ends.windows(2).map(piece).collect()
}
