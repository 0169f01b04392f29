//! UC and UD: messages may be lost, but those that arrive are whole and name their sender. They arrive once
//! unless the network repeats packets, and in order unless it repeats or reorders them.

use std::collections::{BTreeMap, BTreeSet};

use adverb_transport::{Completion, Queue, ReceiveWork, SendWork, Solicited, Work};
use adverb_units::Span;
use adverb_verbs::{Imm, SendFlags, Srqn, WcFlags, WcOpcode, WcStatus, WrId};
use adverb_wire::grh;

use super::{Faults, QKEY, Space};
use crate::lab::Random;
use crate::lab::memory::{REMOTE, piece, pieces};
use crate::lab::network::{At, Network, To, area};

/// The longest message of UC.
const LONGEST: u64 = 3000;
/// Length in bytes of the prefix that identifies a message.
const NAME: usize = 8;

/// The service that carries messages.
pub enum Service {
    /// A connection to this queue pair.
    Uc(At),
    /// Datagrams, up to this length, to each of these.
    Ud { all: Vec<At>, longest: u64 },
}

/// What one queue pair sends.
pub struct Loose {
    pub from: At,
    service: Service,
    messages: Vec<Message>,
}

struct Message {
    to: At,
    work: Work,
    bytes: Vec<u8>,
    local: usize,
    flags: SendFlags,
    /// Q_Key of the request.
    qkey: u32,
}

impl Message {
    /// Returns the offset of a WRITE in the peer's memory.
    fn written_at(&self) -> Option<usize> {
        match self.work {
            Work::Write(remote) | Work::WriteWithImm(remote, _) => {
                Some((remote.addr - REMOTE.addr) as usize)
            }
            _ => None,
        }
    }

    /// Whether it may arrive.
    fn has_key(&self) -> bool {
        self.qkey == QKEY || self.qkey >> 31 == 1
    }
}

/// What message `id` of a queue pair consists of.
fn pattern(from: At, id: usize, length: usize) -> Vec<u8> {
    let name = [from.host as u8, from.qp as u8, 0, 0].into_iter();
    let name = name.chain((id as u32).to_le_bytes());
    let rest =
        (NAME..length).map(|i| (i ^ (i >> 8) ^ (31 * id) ^ (from.host << 4) ^ from.qp) as u8);
    name.chain(rest).take(length).collect()
}

impl Loose {
    pub fn new(
        service: Service,
        from: At,
        count: usize,
        spaces: &mut [Space],
        random: &mut Random,
    ) -> Self {
        let messages = (0..count).map(|id| match &service {
            Service::Uc(to) => uc_message(from, *to, id, spaces, random),
            Service::Ud { all, longest } => ud_message(from, all, *longest, id, random),
        });
        let mut messages: Vec<_> = messages.collect();
        for message in &mut messages {
            let own = &mut spaces[from.host];
            message.local = own.local(message.bytes.len());
            own.sources.push((message.local, message.bytes.clone()));
        }
        Loose {
            from,
            service,
            messages,
        }
    }

    pub fn count(&self) -> usize {
        self.messages.len()
    }

    pub fn work(&self) -> impl Iterator<Item = (SendWork, To)> {
        self.messages.iter().enumerate().map(|(id, message)| {
            let work = SendWork {
                wr_id: WrId(id as u64),
                work: message.work,
                payload: piece(message.local, message.bytes.len()),
                flags: message.flags,
                remote_srqn: Srqn(0),
            };
            let to = match self.service {
                Service::Uc(_) => To::Peer,
                Service::Ud { .. } => To::Datagram {
                    at: message.to,
                    qkey: message.qkey,
                },
            };
            (work, to)
        })
    }

    pub fn check_sends(&self, network: &Network) {
        let ended = &network.station(self.from).completions;
        let ids = ended.iter().filter(|c| c.queue == Queue::Send).map(|c| {
            assert_eq!(c.work.status, WcStatus::Success, "{c:?}");
            c.work.wr_id.0 as usize
        });
        let signaled = |id: &usize| self.messages[*id].flags.contains(SendFlags::SIGNALED);
        assert!(ids.eq((0..self.count()).filter(signaled)), "sends");
    }

    /// What WRITEs left: each place has only what was meant for it.
    pub fn check_writes(&self, network: &Network, faults: &Faults) {
        for (id, message) in self.messages.iter().enumerate() {
            let Some(at) = message.written_at() else {
                continue;
            };
            let shared = &network.hosts[message.to.host].memory.shared;
            let there = &shared[at..at + message.bytes.len()];
            let fits = |(seen, sent): (&u8, &u8)| *seen == 0 || seen == sent;
            assert!(there.iter().zip(&message.bytes).all(fits), "WRITE {id}");
            let sure = *faults == Faults::default() && matches!(message.work, Work::Write(_));
            assert!(!sure || there == message.bytes, "WRITE {id} is not whole");
        }
    }
}

fn uc_message(from: At, to: At, id: usize, spaces: &mut [Space], random: &mut Random) -> Message {
    let imm = Imm(id as u32);
    let length = match random.below(3) {
        0 => random.below(40),
        1 => random.below(600),
        _ => random.below(LONGEST),
    };
    let kind = random.below(4);
    let length = match kind {
        0 | 1 => length.max(NAME as u64) as usize,
        _ => length as usize,
    };
    let remote = |spaces: &mut [Space]| REMOTE.at(spaces[to.host].shared(length) as u64);
    let work = match kind {
        0 => Work::Send,
        1 => Work::SendWithImm(imm),
        2 => Work::Write(remote(spaces)),
        _ => Work::WriteWithImm(remote(spaces), imm),
    };
    Message {
        to,
        work,
        bytes: pattern(from, id, length),
        local: 0,
        flags: flags(random),
        qkey: QKEY,
    }
}

fn ud_message(from: At, all: &[At], longest: u64, id: usize, random: &mut Random) -> Message {
    let length = random.below(longest + 1).max(NAME as u64) as usize;
    let work = match random.below(2) {
        0 => Work::Send,
        _ => Work::SendWithImm(Imm(id as u32)),
    };
    Message {
        to: all[random.below(all.len() as u64) as usize],
        work,
        bytes: pattern(from, id, length),
        local: 0,
        flags: flags(random),
        // A wrong key, and a key that means the sender's own.
        qkey: [QKEY, QKEY, QKEY ^ 1, 1 << 31][random.below(4) as usize],
    }
}

fn flags(random: &mut Random) -> SendFlags {
    let mut flags = SendFlags::empty();
    flags.set(SendFlags::SIGNALED, random.below(2) == 0);
    flags.set(SendFlags::SOLICITED, random.below(4) == 0);
    flags
}

/// The receive requests of a queue pair.
pub struct Inbox {
    at: At,
    count: usize,
    /// Where in local memory they are, one after the other.
    first: usize,
    slot: usize,
    /// Whether all are posted before anything is sent.
    early: bool,
}

impl Inbox {
    /// Of each queue pair that something is sent to one.
    pub fn all(senders: &[Loose], spaces: &mut [Space], random: &mut Random) -> Vec<Self> {
        let mut counts: BTreeMap<At, (usize, usize)> = BTreeMap::new();
        for message in senders.iter().flat_map(|sender| &sender.messages) {
            let (count, longest) = counts.entry(message.to).or_default();
            *count += usize::from(message.work.consumes_receive());
            *longest = (*longest).max(grh::LEN + message.bytes.len());
        }
        let inbox = |(at, (count, slot)): (At, (usize, usize))| Inbox {
            at,
            count,
            first: spaces[at.host].local(count * slot),
            slot,
            early: random.below(2) == 0,
        };
        counts.into_iter().map(inbox).collect()
    }

    pub fn post(&self, network: &mut Network, random: &mut Random) {
        let mut after = Span::ZERO;
        for index in 0..self.count {
            if !self.early && random.below(2) == 0 {
                after += Span::from_ns(random.below(20_000));
            }
            let work = ReceiveWork {
                wr_id: WrId(index as u64),
                pieces: pieces(self.first + index * self.slot, self.slot),
            };
            network.receive_after(self.at, after, work);
        }
    }

    fn received<'n>(&self, network: &'n Network) -> impl Iterator<Item = &'n Completion> {
        let ended = &network.station(self.at).completions;
        ended.iter().filter(|c| c.queue == Queue::Receive)
    }

    pub fn check(&self, senders: &[Loose], network: &Network, faults: &Faults) {
        let mut last: BTreeMap<At, usize> = BTreeMap::new();
        let mut requests = BTreeSet::new();
        let mut messages = BTreeSet::new();
        for c in self.received(network) {
            assert_eq!(c.work.status, WcStatus::Success, "{c:?}");
            assert!(requests.insert(c.work.wr_id.0), "a receive request twice");
            let (from, id) = self.identify(c, network);
            let sender = senders.iter().find(|sender| sender.from == from);
            let message = &sender.expect("somebody sent it").messages[id];
            assert_eq!(message.to, self.at, "a message of another");
            self.check_one(c, from, message, network);
            let is_first = messages.insert((from, id));
            assert!(faults.duplicate != 0 || is_first, "a message twice");
            let before = last.insert(from, id);
            assert!(faults.disorders() || before < Some(id), "out of order");
        }
        let sure = self.early && *faults == Faults::default();
        let sent = |sender: &Loose| sender.to(self.at).filter(|m| m.has_key()).count();
        let sent: usize = senders.iter().map(sent).sum();
        assert!(!sure || requests.len() == sent, "not all came");
    }

    /// The sender and number of a message.
    fn identify(&self, c: &Completion, network: &Network) -> (At, usize) {
        if c.work.opcode == WcOpcode::RecvRdmaWithImm {
            let peer = network.peer(self.at).expect("a WRITE needs a connection");
            return (peer, c.work.imm.expect("it is with one").0 as usize);
        }
        let at = self.first + c.work.wr_id.0 as usize * self.slot;
        let local = &network.hosts[self.at.host].memory.local;
        let front = if c.work.src_qp.is_some() { grh::LEN } else { 0 };
        let name = &local[at + front..][..NAME];
        let from = At {
            host: name[0].into(),
            qp: name[1].into(),
        };
        let id = u32::from_le_bytes(name[4..8].try_into().unwrap());
        (from, id as usize)
    }

    fn check_one(&self, c: &Completion, from: At, message: &Message, network: &Network) {
        let memory = &network.hosts[self.at.host].memory;
        let at = self.first + c.work.wr_id.0 as usize * self.slot;
        let there = &memory.local[at..at + self.slot];
        let length = c.work.byte_len as usize;
        assert!(message.has_key(), "under another queue key");
        let solicited = message.flags.contains(SendFlags::SOLICITED);
        assert_eq!(c.solicited == Solicited::Yes, solicited);
        match message.work {
            Work::SendWithImm(imm) | Work::WriteWithImm(_, imm) => {
                assert_eq!(c.work.imm, Some(imm));
            }
            _ => assert_eq!(c.work.imm, None),
        }
        if let Some(written) = message.written_at() {
            let there = &memory.shared[written..written + length];
            assert!(there == message.bytes, "a WRITE was told of, not done");
        } else if c.work.src_qp.is_none() {
            assert!(there[..length] == message.bytes, "mixed");
        } else {
            assert_eq!(c.work.src_qp, Some(from.qpn()));
            assert!(c.work.flags.contains(WcFlags::GRH));
            assert_eq!(there[..grh::LEN], area(from.host));
            assert!(there[grh::LEN..length] == message.bytes, "mixed");
        }
    }

    /// Returns the numbers of messages sent and received.
    pub fn sent_and_received(&self, senders: &[Loose], network: &Network) -> (usize, usize) {
        let sent = senders.iter().map(|sender| sender.to(self.at).count());
        (sent.sum(), self.received(network).count())
    }
}

impl Loose {
    /// Messages to a queue pair that take a receive request.
    fn to(&self, at: At) -> impl Iterator<Item = &Message> {
        let to = move |m: &&Message| m.to == at && m.work.consumes_receive();
        self.messages.iter().filter(to)
    }
}
