//! The process at the other end of a UDP port: it opens the device, connects, and answers questions.
//! Its binary has a test `role` that calls [`play`].
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::net::IpAddr;
use std::process::Command;

use adverb_softnic::{SoftDevice, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{Context, MemoryRegion, PathMtu, Qpn, QueuePair, RemoteAddress, Rkey};
use rustix::process::{Pid, Signal, kill_process};

use super::network::{How, Network, connect_to};
use super::victim::{Victim, hear, tell};
use super::{End, wait_until};

/// A peer, seen from the test.
pub struct Peer {
    process: Victim,
    /// Its memory.
    pub memory: RemoteAddress,
    /// Its queue pairs.
    pub qpns: Vec<Qpn>,
}

impl Peer {
    /// On host 1.
    pub fn start(network: &Network, memory: Bytes, queue_pairs: usize) -> Self {
        Self::start_as(network, memory, queue_pairs, |command| command)
    }

    /// The same, with a command that differs.
    pub fn start_as(
        network: &Network,
        memory: Bytes,
        queue_pairs: usize,
        change: impl FnOnce(&mut Command) -> &mut Command + Send,
    ) -> Self {
        let order = format!("{} {} {queue_pairs}", network.ip(1), memory.get());
        let start = || Victim::start_as(&order, change);
        let mut process = network.on(1, start);
        let numbers = numbers(&process.hear());
        let qpn = |number: &u64| Qpn::new(*number as u32).unwrap();
        Peer {
            process,
            memory: RemoteAddress {
                addr: numbers[0],
                rkey: Rkey(numbers[1] as u32),
            },
            qpns: numbers[2..].iter().map(qpn).collect(),
        }
    }

    /// Connects its queue pairs to these of host 0, one by one.
    pub fn connect(&mut self, network: &Network, to: &[SoftQp], how: How) {
        let qpns: Vec<String> = to.iter().map(|qp| qp.qpn().get().to_string()).collect();
        let (mtu, qpns) = (how.mtu.bytes().get(), qpns.join(" "));
        self.process
            .tell(&format!("{} {mtu} {qpns}", network.ip(0)));
        assert_eq!(self.process.hear(), "connected");
    }

    /// A counter of its device.
    pub fn counter(&mut self, name: &str) -> u64 {
        self.process.tell(&format!("counter {name}"));
        self.process.hear().parse().unwrap()
    }

    /// The first word of its memory.
    pub fn word(&mut self) -> u64 {
        self.process.tell("word");
        self.process.hear().parse().unwrap()
    }

    pub fn kill(mut self) {
        self.process.kill();
    }

    /// Stops it until [`Peer::go_on`].
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.process.id());
        let is_stopped = || std::fs::read_to_string(&stat).unwrap().contains(") T ");
        assert!(wait_until(is_stopped));
    }

    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.id() as i32).unwrap(), signal).unwrap();
    }
}

fn numbers(line: &str) -> Vec<u64> {
    let words = line.split_whitespace();
    words.map(|word| word.parse().expect("a number")).collect()
}

/// The peer itself, by its order; never polls once it is connected. Ends with the test.
pub fn play(order: &str) {
    let mut words = order.split(' ');
    let mut next = || words.next().unwrap();
    let ip: IpAddr = next().parse().unwrap();
    let memory = Bytes::new(next().parse().unwrap());
    let end = End::of(SoftDevice::at(ip), memory);
    let qps: Vec<SoftQp> = (0..next().parse().unwrap()).map(|_| end.qp()).collect();
    let qpns: Vec<String> = qps.iter().map(|qp| qp.qpn().get().to_string()).collect();
    let at = end.mr.remote(0);
    tell(&format!("{} {} {}", at.addr, at.rkey.0, qpns.join(" ")));
    connect_all(&end, &qps, &hear());
    tell("connected");
    loop {
        let line = hear();
        match line.trim().split_once(' ') {
            Some(("counter", name)) => tell(&end.context.counters()[name].to_string()),
            _ => {
                let mut word = [0; 8];
                end.mr.read(0, &mut word).unwrap();
                tell(&u64::from_ne_bytes(word).to_string());
            }
        }
    }
}

fn connect_all(end: &End, qps: &[SoftQp], line: &str) {
    let (ip, rest) = line.split_once(' ').unwrap();
    let address = adverb_verbs::AddressVector {
        dgid: super::network::gid_of(ip.parse().unwrap()),
        ..end.local_address()
    };
    let numbers = numbers(rest);
    let mtu = [PathMtu::B1024, PathMtu::B4096]
        .into_iter()
        .find(|mtu| mtu.bytes().get() == numbers[0])
        .unwrap();
    let how = How {
        mtu,
        timeout: 14,
        retries: 7,
    };
    for (qp, dest) in qps.iter().zip(&numbers[1..]) {
        connect_to(qp, address, Qpn::new(*dest as u32).unwrap(), how);
    }
}
