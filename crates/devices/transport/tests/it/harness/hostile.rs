//! A network that sends what nobody should: packets with any values, near those in use or not, between
//! two hosts that have a queue pair of each service, and programs that post and take rights away
//! meanwhile. Nothing may panic or hang; memory outside of what was given stays as it is; each request
//! ends once, in order.

use adverb_transport::{
    Payload, Queue, RcQp, ReceiveQueue, ReceiveWork, SendWork, UcConfig, UcQp, UdConfig, UdQp, Work,
};
use adverb_verbs::{
    AccessFlags, Comparison, Imm, Psn, RetryCount, SendFlags, Srqn, WcStatus, WrId,
};
use adverb_wire::{Opcode, Verb};

use super::QKEY;
use crate::lab::memory::{REMOTE, REMOTE_KEY, piece, pieces};
use crate::lab::network::{AnyQp, At, Host, Network, Station, To};
use crate::lab::{Delivery, Random, Side, TestMemory, config};

/// Queue pairs of a host: RC, UC, UD.
const SERVICES: usize = 3;
const SHARED: usize = 4096;
/// Local memory is in slots: first what is sent, then what is received into; between them guards.
const SLOT: usize = 1024;
const USED: usize = 960;
const SOURCES: usize = 4;
const SLOTS: usize = 12;
const GUARD: u8 = 0xee;
/// Opcodes of RC, UC, UD and of other services that nobody has.
const UNKNOWN: [u8; 8] = [0x15, 0x18, 0x1f, 0x2c, 0x66, 0x40, 0xa4, 0xff];
/// Number of steps after which it is idle, or waits only for receive requests.
const STEPS: usize = 2000;

pub struct Hostile {
    network: Network,
    random: Random,
    /// Send and receive requests posted to each queue pair.
    posted: [[[u64; 2]; SERVICES]; 2],
    shared: [Vec<u8>; 2],
}

fn places() -> impl Iterator<Item = At> {
    (0..2).flat_map(|host| (0..SERVICES).map(move |qp| At { host, qp }))
}

fn qps(own: usize, rights: AccessFlags) -> Vec<AnyQp> {
    let at = |host, qp| At { host, qp };
    let mut rc = config([Side::A, Side::B][own]);
    (rc.qpn, rc.peer) = (at(own, 0).qpn(), at(1 - own, 0).qpn());
    rc.requester.retry.rnr_retry = RetryCount::new(3).unwrap();
    rc.responder.access = rights;
    let uc = UcConfig {
        qpn: at(own, 1).qpn(),
        peer: at(1 - own, 1).qpn(),
        path_mtu: rc.path_mtu,
        first_psn: rc.requester.first_psn,
        peer_first_psn: rc.responder.first_psn,
        access: rights,
        max_work: 8,
    };
    let ud = UdConfig {
        qpn: at(own, 2).qpn(),
        qkey: QKEY,
        mtu: rc.path_mtu,
        first_psn: rc.requester.first_psn,
        max_work: 8,
    };
    let receives = || ReceiveQueue::new(16);
    vec![
        AnyQp::Rc(Box::new(RcQp::new(&rc, receives())), at(1 - own, 0)),
        AnyQp::Uc(Box::new(UcQp::new(&uc, receives())), at(1 - own, 1)),
        AnyQp::Ud(Box::new(UdQp::new(&ud, receives()))),
    ]
}

impl Hostile {
    pub fn new(mut random: Random) -> Self {
        let rights = AccessFlags::from_bits_truncate(random.below(256) as u32);
        let hosts = [0, 1].map(|own| {
            let mut memory = TestMemory::sized(SLOT * SLOTS, SHARED);
            memory.local.fill(GUARD);
            memory.shared.fill(own as u8 + 1);
            memory.rights = rights;
            Host::new(memory, qps(own, AccessFlags::all()))
        });
        let shared = [0, 1].map(|own: usize| hosts[own].memory.shared.clone());
        Hostile {
            network: Network::new(hosts.into(), Box::new(|| Delivery::Pass)),
            random,
            posted: [[[0; 2]; SERVICES]; 2],
            shared,
        }
    }

    /// So many things happen; then all requests must end.
    pub fn run(&mut self, actions: usize) {
        for _ in 0..actions {
            self.act();
        }
        for _ in 0..STEPS {
            if !self.network.step() {
                break;
            }
        }
        for at in places() {
            self.network.end(at);
        }
        self.check();
    }

    fn act(&mut self) {
        let at = At {
            host: self.random.below(2) as usize,
            qp: self.random.below(SERVICES as u64) as usize,
        };
        match self.random.below(8) {
            0 | 1 => self.inject(at),
            2 | 3 => self.send(at),
            4 => self.receive(at),
            5 => {
                let memory = &mut self.network.hosts[at.host].memory;
                memory.valid = self.random.below(4) != 1;
            }
            _ => {
                self.network.step();
            }
        }
    }

    fn send(&mut self, at: At) {
        let slot = self.random.below(SOURCES as u64) as usize;
        let length = [0, 8, 256, 600][self.random.below(4) as usize];
        let remote = REMOTE.at(self.random.below(SHARED as u64 + 8) & !7);
        let work = match self.random.below(8) {
            0 => Work::Send,
            1 => Work::SendWithImm(Imm(1)),
            2 => Work::SendWithInvalidate(REMOTE_KEY),
            3 => Work::Write(remote),
            4 => Work::WriteWithImm(remote, Imm(2)),
            5 => Work::Read(remote),
            6 => Work::FetchAdd(remote, 1),
            _ => {
                let (expected, new) = (1, 2);
                Work::CompareSwap(remote, Comparison { expected, new })
            }
        };
        let answered = work.is_answered();
        let slot = if answered { slot + SOURCES } else { slot };
        let length = if work.atomic().is_some() { 8 } else { length };
        let payload = match self.random.below(8) {
            1 if !answered => Payload::Inline([7; 32].into_iter().collect()),
            // Beyond the region.
            2 => piece(SLOT * SLOTS - 4, length),
            _ => piece(slot * SLOT, length),
        };
        let work = SendWork {
            wr_id: WrId(self.posted[at.host][at.qp][0]),
            work,
            payload,
            flags: SendFlags::from_bits_truncate(self.random.below(16) as u32)
                | SendFlags::SIGNALED,
            remote_srqn: Srqn(0),
        };
        let to = match at.qp {
            2 => To::Datagram {
                at: At {
                    host: 1 - at.host,
                    qp: 2,
                },
                qkey: QKEY,
            },
            _ => To::Peer,
        };
        let taken = self.network.post(at, work, to).is_ok();
        self.posted[at.host][at.qp][0] += u64::from(taken);
    }

    fn receive(&mut self, at: At) {
        let slot = 2 * SOURCES + self.random.below((SLOTS - 2 * SOURCES) as u64) as usize;
        let length = [0, 40, 300, USED][self.random.below(4) as usize];
        let work = ReceiveWork {
            wr_id: WrId(self.posted[at.host][at.qp][1]),
            pieces: pieces(slot * SLOT, length),
        };
        let taken = self.network.receive(at, work).is_ok();
        self.posted[at.host][at.qp][1] += u64::from(taken);
    }

    /// A packet to a queue pair that its peer may not have sent.
    fn inject(&mut self, at: At) {
        let random = &mut self.random;
        let opcode = Opcode::ALL[random.below(Opcode::ALL.len() as u64) as usize];
        let mut bytes = vec![0; 12];
        bytes[0] = match opcode.verb() {
            // That one is for the driver; in its place one that is for nobody.
            Verb::Cnp => UNKNOWN[random.below(UNKNOWN.len() as u64) as usize],
            _ => opcode.code(),
        };
        bytes[1] = (random.below(4) as u8) << 6;
        bytes[5..8].copy_from_slice(&at.qpn().get().to_be_bytes()[1..]);
        let first = config([Side::B, Side::A][at.host]).requester.first_psn;
        let own = config([Side::A, Side::B][at.host]).requester.first_psn;
        let near = if opcode.verb().is_response() {
            own
        } else {
            first
        };
        let psn: Psn = match random.below(4) {
            0 => near.advance(random.below(1 << 24) as u32),
            _ => near.advance(random.below(16) as u32),
        };
        bytes[8] = (random.below(2) as u8) << 7;
        bytes[9..12].copy_from_slice(&psn.get().to_be_bytes()[1..]);
        bytes.extend(extended(opcode, random));
        let payload = [0, 4, 256, 260][random.below(4) as usize];
        bytes.resize(bytes.len() + payload, 0x55);
        self.network.inject(at, &bytes);
    }

    fn check(&self) {
        for at in places() {
            let station = self.network.station(at);
            for queue in [Queue::Send, Queue::Receive] {
                let posted = self.posted[at.host][at.qp][queue as usize];
                check_order(station, queue, posted);
            }
        }
        for (own, host) in self.network.hosts.iter().enumerate() {
            let memory = &host.memory;
            let changes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
            let may = memory.rights.intersects(changes);
            assert!(
                may || memory.shared == self.shared[own],
                "wrote without right"
            );
            for (index, slot) in memory.local.chunks(SLOT).enumerate() {
                let kept = if index < SOURCES { 0 } else { USED };
                assert!(slot[kept..].iter().all(|&b| b == GUARD), "slot {index}");
            }
        }
    }
}

/// Each request ended once and in order; after one that failed, none succeeded.
fn check_order(station: &Station, queue: Queue, posted: u64) {
    let mut failed = false;
    let ended = station.completions.iter().filter(|c| c.queue == queue);
    let ids = ended.map(|c| {
        let success = c.work.status == WcStatus::Success;
        assert!(!(failed && success), "success after an error: {c:?}");
        failed |= !success;
        c.work.wr_id.0
    });
    assert!(ids.eq(0..posted), "{queue:?} of {posted} requests");
}

/// Extended headers with any values, or such as could be meant.
fn extended(opcode: Opcode, random: &mut Random) -> Vec<u8> {
    use adverb_wire::Headers;
    let headers = opcode.headers();
    let mut bytes = vec![];
    if headers.contains(Headers::DETH) {
        bytes.extend([QKEY, QKEY ^ 1][random.below(2) as usize].to_be_bytes());
        bytes.extend(0x100u32.to_be_bytes());
    }
    if headers.intersects(Headers::RETH | Headers::ATOMIC_ETH) {
        let addr = match random.below(4) {
            0 => u64::MAX - random.below(16),
            _ => REMOTE.addr + random.below(SHARED as u64 + 16),
        };
        bytes.extend(addr.to_be_bytes());
        let rkey = [REMOTE_KEY.0, REMOTE_KEY.0, 0][random.below(3) as usize];
        bytes.extend(rkey.to_be_bytes());
    }
    if headers.contains(Headers::RETH) {
        let length = [0, 4, 256, 260, 600, u32::MAX][random.below(6) as usize];
        bytes.extend(length.to_be_bytes());
    }
    if headers.contains(Headers::ATOMIC_ETH) {
        bytes.extend(random.below(256).to_be_bytes());
        bytes.extend(random.below(256).to_be_bytes());
    }
    if headers.contains(Headers::AETH) {
        bytes.push(random.below(256) as u8);
        bytes.extend([0, 0, random.below(256) as u8]);
    }
    if headers.contains(Headers::ATOMIC_ACK_ETH) {
        bytes.extend([1; 8]);
    }
    if headers.contains(Headers::IMM_DT) {
        bytes.extend([2; 4]);
    }
    if headers.contains(Headers::IETH) {
        bytes.extend(REMOTE_KEY.0.to_be_bytes());
    }
    bytes
}
