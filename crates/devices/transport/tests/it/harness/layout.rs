//! Hosts, their memory, and the connections between them, before there is anything to do.

use adverb_transport::{RcConfig, RcQp, ReceiveQueue, UcConfig, UcQp, UdConfig, UdQp};
use adverb_verbs::{AccessFlags, AckTimeout, PathMtu, Psn};

use super::{QKEY, TICKETS};
use crate::lab::network::{AnyQp, At, Host};
use crate::lab::{Random, Side, TestMemory, config};

/// Receive requests that a queue pair holds.
const RECEIVES: usize = 1024;
/// Requests that a queue pair holds.
const MAX_WORK: usize = 16;

/// Memory of a host that is given out from its beginning.
#[derive(Clone, Debug)]
pub struct Space {
    pub local: usize,
    pub shared: usize,
    /// Local bytes that are there from the start.
    pub sources: Vec<(usize, Vec<u8>)>,
    /// Keys that the peers end.
    pub spare: Vec<u32>,
}

impl Space {
    fn new() -> Self {
        Space {
            local: 0,
            shared: TICKETS as usize * 8,
            sources: vec![],
            spare: vec![],
        }
    }

    pub fn local(&mut self, bytes: usize) -> usize {
        self.local += bytes;
        self.local - bytes
    }

    pub fn shared(&mut self, bytes: usize) -> usize {
        self.shared = self.shared.next_multiple_of(8) + bytes;
        self.shared - bytes
    }

    fn build(&self) -> TestMemory {
        let mut memory = TestMemory::sized(self.local, self.shared);
        for (at, bytes) in &self.sources {
            memory.local[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        memory.spare = self.spare.iter().copied().collect();
        memory
    }
}

/// One direction: sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    pub from: At,
    pub to: At,
}

/// Hosts with their connections, before there is anything to do.
pub struct Layout {
    pub spaces: Vec<Space>,
    /// The queue pairs of each host.
    pub qps: Vec<Vec<AnyQp>>,
    pub mtu: PathMtu,
}

impl Layout {
    /// So many hosts without queue pairs.
    pub fn new(hosts: usize, mtu: PathMtu) -> Self {
        Layout {
            spaces: vec![Space::new(); hosts],
            qps: (0..hosts).map(|_| vec![]).collect(),
            mtu,
        }
    }

    /// The hosts as they are at the beginning.
    pub fn build(self) -> Vec<Host> {
        let hosts = self.spaces.iter().zip(self.qps);
        hosts
            .map(|(space, qps)| Host::new(space.build(), qps))
            .collect()
    }

    fn next(&self, host: usize) -> At {
        let qp = self.qps[host].len();
        At { host, qp }
    }

    /// Two different hosts' next queue pairs.
    fn pair(&self, random: &mut Random) -> [At; 2] {
        let count = self.qps.len() as u64;
        let one = random.below(count);
        let two = (one + 1 + random.below(count - 1)) % count;
        [one, two].map(|host| self.next(host as usize))
    }

    pub fn connect_rc(&mut self, random: &mut Random) -> [Path; 2] {
        let ends = self.pair(random);
        let [a, b] = rc_configs(ends, self.mtu, random);
        for (own, peer, config) in [(ends[0], ends[1], a), (ends[1], ends[0], b)] {
            let qp = RcQp::new(&config, ReceiveQueue::new(RECEIVES));
            self.qps[own.host].push(AnyQp::Rc(Box::new(qp), peer));
        }
        both_ways(ends)
    }

    pub fn connect_uc(&mut self, random: &mut Random) -> [Path; 2] {
        let ends = self.pair(random);
        let psns = [psn(random), psn(random)];
        for (own, peer) in [(0, 1), (1, 0)] {
            let config = UcConfig {
                qpn: ends[own].qpn(),
                peer: ends[peer].qpn(),
                path_mtu: self.mtu,
                first_psn: psns[own],
                peer_first_psn: psns[peer],
                access: AccessFlags::all(),
                max_work: MAX_WORK,
            };
            let qp = UcQp::new(&config, ReceiveQueue::new(RECEIVES));
            self.qps[ends[own].host].push(AnyQp::Uc(Box::new(qp), ends[peer]));
        }
        both_ways(ends)
    }

    pub fn add_ud(&mut self, host: usize, random: &mut Random) -> At {
        let at = self.next(host);
        let config = UdConfig {
            qpn: at.qpn(),
            qkey: QKEY,
            mtu: self.mtu,
            first_psn: psn(random),
            max_work: MAX_WORK,
        };
        let qp = UdQp::new(&config, ReceiveQueue::new(RECEIVES));
        self.qps[host].push(AnyQp::Ud(Box::new(qp)));
        at
    }
}

fn both_ways([one, two]: [At; 2]) -> [Path; 2] {
    let path = |from, to| Path { from, to };
    [path(one, two), path(two, one)]
}

/// Often one from which it is not far to zero.
fn psn(random: &mut Random) -> Psn {
    match random.below(2) {
        0 => Psn::new(0xff_ffff - random.below(64) as u32),
        _ => Psn::new(random.below(1 << 24) as u32),
    }
}

fn rc_configs(ends: [At; 2], mtu: PathMtu, random: &mut Random) -> [RcConfig; 2] {
    let mut configs = [config(Side::A), config(Side::B)];
    let psns = [psn(random), psn(random)];
    let reads = 1 + random.below(4) as u8;
    // A window of 5 packets grows.
    let (window, most) = [(1, 1), (2, 2), (5, 64), (64, 64)][random.below(4) as usize];
    for (own, peer) in [(0, 1), (1, 0)] {
        let config = &mut configs[own];
        (config.qpn, config.peer) = (ends[own].qpn(), ends[peer].qpn());
        config.path_mtu = mtu;
        config.requester.first_psn = psns[own];
        config.responder.first_psn = psns[peer];
        config.requester.max_reads = reads;
        config.responder.max_reads = reads;
        config.requester.window = window;
        config.requester.max_window = most;
        config.requester.max_work = MAX_WORK;
        config.requester.retry.timeout = AckTimeout::new(7).unwrap();
    }
    configs
}
