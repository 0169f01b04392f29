//! Endpoints joined by a link in virtual time, where a rule decides the delivery of each packet.
#![allow(dead_code, unreachable_pub)]

pub mod goodput;
pub mod memory;
pub mod network;
pub mod steps;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use adverb_transport::{
    Completion, DropReason, Memory, PACKET_SPACE, PacketBuffer, RcConfig, RcQp, ReceiveQueue,
    ReceiveWork, RequesterConfig, ResponderConfig,
};
use adverb_units::{Span, Time};
use adverb_verbs::{AccessFlags, AckTimeout, PathMtu, Psn, QpType, Qpn, RetryParams, RnrTimer};
use adverb_wire::frame::Addresses;
use adverb_wire::ipv4::Unseen;
use adverb_wire::{Flow, Packet, PacketHeaders, ROCE_PORT, icrc};
pub use memory::TestMemory;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// How long a packet is on its way.
pub const FLIGHT: Span = Span::from_us(2);

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    A,
    B,
}

impl Side {
    pub fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }

    fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, 1 + self as u8)
    }

    pub fn qpn(self) -> Qpn {
        Qpn::new(0x11 + self as u32).unwrap()
    }
}

/// A packet that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub from: Side,
    pub at: Time,
    pub headers: PacketHeaders,
    pub payload: usize,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    Pass,
    Drop,
    /// It arrives twice, the second time later.
    Duplicate(Span),
    /// It arrives later, after packets that were sent after it.
    Delay(Span),
    /// One bit of it is wrong.
    Corrupt(usize),
}

/// Decides the delivery of each packet.
pub type Rule = Box<dyn FnMut(&Sent) -> Delivery>;

/// What an endpoint of a lab does.
pub trait Endpoint {
    fn packet(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        memory: &mut TestMemory,
    ) -> Result<(), DropReason>;
    fn timeout(&mut self, now: Time);
    fn deadline(&self) -> Option<Time>;
    fn transmit(&mut self, now: Time, memory: &TestMemory, out: &mut PacketBuffer)
    -> Option<usize>;
    fn completion(&mut self) -> Option<Completion>;
    fn receive(&mut self, work: ReceiveWork);
}

impl Endpoint for RcQp {
    fn packet(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        memory: &mut TestMemory,
    ) -> Result<(), DropReason> {
        self.handle_packet(now, packet, memory)
    }
    fn timeout(&mut self, now: Time) {
        self.handle_timeout(now);
    }
    fn deadline(&self) -> Option<Time> {
        self.poll_timeout()
    }
    fn transmit(
        &mut self,
        now: Time,
        memory: &TestMemory,
        out: &mut PacketBuffer,
    ) -> Option<usize> {
        self.poll_transmit(now, memory, out)
    }
    fn completion(&mut self) -> Option<Completion> {
        self.poll_completion()
    }
    fn receive(&mut self, work: ReceiveWork) {
        self.post_receive(work).unwrap();
    }
}

pub struct End<Q> {
    pub qp: Q,
    pub memory: TestMemory,
    pub completions: Vec<Completion>,
    /// Packets that the ICRC refused.
    pub damaged: u64,
}

enum Event {
    Arrives(Vec<u8>),
    Receive(ReceiveWork),
}

/// Two endpoints and what is between them.
pub struct Lab<Q> {
    pub now: Time,
    pub a: End<Q>,
    pub b: End<Q>,
    pub sent: Vec<Sent>,
    rule: Rule,
    events: BTreeMap<(Time, u64), (Side, Event)>,
    count: u64,
}

/// A configuration that both sides of a test begin with.
pub fn config(side: Side) -> RcConfig {
    let first = |side: Side| Psn::new(0xff_fff0 + 7 * side as u32);
    RcConfig {
        qp_type: QpType::Rc,
        qpn: side.qpn(),
        peer: side.other().qpn(),
        path_mtu: PathMtu::B256,
        requester: RequesterConfig {
            first_psn: first(side),
            max_work: 64,
            retry: RetryParams {
                timeout: AckTimeout::new(6).unwrap(),
                ..RetryParams::default()
            },
            max_reads: 4,
            window: 64,
            max_window: 64,
        },
        responder: ResponderConfig {
            first_psn: first(side.other()),
            access: AccessFlags::all(),
            max_reads: 4,
            rnr_timer: RnrTimer::new(1).unwrap(),
        },
    }
}

/// Two connected RC queue pairs with these configurations.
pub fn connected(a: &RcConfig, b: &RcConfig, rule: Rule) -> Lab<RcQp> {
    let qp = |config| RcQp::new(config, ReceiveQueue::new(1024));
    Lab::new(qp(a), qp(b), rule)
}

/// Two connected RC queue pairs whose packets all arrive.
pub fn quiet() -> Lab<RcQp> {
    connected(
        &config(Side::A),
        &config(Side::B),
        Box::new(|_| Delivery::Pass),
    )
}

impl<Q: Endpoint> Lab<Q> {
    pub fn new(a: Q, b: Q, rule: Rule) -> Self {
        let end = |qp| End {
            qp,
            memory: TestMemory::new(),
            completions: vec![],
            damaged: 0,
        };
        Lab {
            now: Time::ZERO,
            a: end(a),
            b: end(b),
            sent: vec![],
            rule,
            events: BTreeMap::new(),
            count: 0,
        }
    }

    pub fn end(&mut self, side: Side) -> &mut End<Q> {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    pub fn rule(&mut self, rule: impl FnMut(&Sent) -> Delivery + 'static) {
        self.rule = Box::new(rule);
    }

    /// Loses the first packet for which `is_chosen` holds.
    pub fn lose_first(&mut self, is_chosen: impl Fn(&Sent) -> bool + 'static) {
        let mut first = true;
        self.rule(move |s| match is_chosen(s) && std::mem::take(&mut first) {
            true => Delivery::Drop,
            false => Delivery::Pass,
        });
    }

    /// Posts a receive request later.
    pub fn receive_after(&mut self, side: Side, span: Span, work: ReceiveWork) {
        self.schedule(self.now + span, side, Event::Receive(work));
    }

    fn schedule(&mut self, at: Time, side: Side, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), (side, event));
    }

    /// Sends all that the endpoints have to send now, and takes their completions.
    pub fn flush(&mut self) {
        for side in [Side::A, Side::B] {
            let now = self.now;
            let mut out = [0; PACKET_SPACE];
            loop {
                let end = self.end(side);
                let Some(length) = end.qp.transmit(now, &end.memory, &mut out) else {
                    break;
                };
                self.send(side, &mut out, length);
            }
            let end = self.end(side);
            while let Some(completion) = end.qp.completion() {
                end.completions.push(completion);
            }
        }
    }

    fn send(&mut self, from: Side, out: &mut PacketBuffer, length: usize) {
        let packet = Packet::parse(&out[..length]).expect("a transport builds packets");
        let sent = Sent {
            from,
            at: self.now,
            headers: packet.headers,
            payload: packet.payload.len(),
        };
        let delivery = (self.rule)(&sent);
        self.sent.push(sent);
        let length = icrc::seal(&flow(from), Unseen::default(), out, length).unwrap();
        let mut bytes = out[..length].to_vec();
        let (to, arrival) = (from.other(), self.now + FLIGHT);
        match delivery {
            Delivery::Pass => self.schedule(arrival, to, Event::Arrives(bytes)),
            Delivery::Drop => {}
            Delivery::Duplicate(later) => {
                self.schedule(arrival, to, Event::Arrives(bytes.clone()));
                self.schedule(arrival + later, to, Event::Arrives(bytes));
            }
            Delivery::Delay(later) => self.schedule(arrival + later, to, Event::Arrives(bytes)),
            Delivery::Corrupt(bit) => {
                let bit = bit % (8 * length);
                bytes[bit / 8] ^= 1 << (bit % 8);
                self.schedule(arrival, to, Event::Arrives(bytes));
            }
        }
    }

    /// Goes to the next event; false if nothing will ever happen.
    pub fn step(&mut self) -> bool {
        self.flush();
        let arrival = self.events.first_key_value().map(|((at, _), _)| *at);
        let deadlines = [self.a.qp.deadline(), self.b.qp.deadline()];
        let Some(next) = deadlines.into_iter().chain([arrival]).flatten().min() else {
            return false;
        };
        assert!(next >= self.now, "a deadline in the past");
        self.now = next;
        let now = next;
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (side, event) = entry.remove();
            self.deliver(side, event);
        }
        for side in [Side::A, Side::B] {
            let end = self.end(side);
            if end.qp.deadline().is_some_and(|deadline| deadline <= now) {
                end.qp.timeout(now);
            }
        }
        self.flush();
        true
    }

    fn deliver(&mut self, side: Side, event: Event) {
        let now = self.now;
        let end = self.end(side);
        match event {
            Event::Receive(work) => end.qp.receive(work),
            Event::Arrives(bytes) => {
                // A wrong bit in what may change on the way leaves the ICRC right.
                let Ok(packet) = icrc::check(&flow(side.other()), Unseen::default(), &bytes) else {
                    end.damaged += 1;
                    return;
                };
                let packet = Packet::parse(packet).expect("its ICRC is right");
                let _ = end.qp.packet(now, &packet, &mut end.memory);
            }
        }
    }

    /// Runs until nothing happens any more, at most for 100 s.
    pub fn run(&mut self) {
        let limit = Time::ZERO + Span::from_secs(100);
        while self.step() {
            assert!(self.now < limit, "it does not come to rest");
        }
    }
}

fn flow(from: Side) -> Flow {
    Flow {
        addresses: Addresses::V4(from.address(), from.other().address()),
        source_port: 0xc000,
        destination_port: ROCE_PORT,
    }
}

/// Random numbers: of a seed, or what a fuzzer makes of them, and zero after that.
pub enum Random {
    Seed(Box<ChaCha8Rng>),
    Bytes(std::vec::IntoIter<u8>),
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Random::Seed(Box::new(ChaCha8Rng::seed_from_u64(seed)))
    }

    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        Random::Bytes(bytes.into_iter())
    }

    /// Below `n`. A fuzzer spends no more bytes on it than it needs.
    pub fn below(&mut self, n: u64) -> u64 {
        match self {
            Random::Seed(seed) => seed.next_u64() % n,
            Random::Bytes(bytes) => {
                let few = (64 - (n - 1).leading_zeros()).div_ceil(8) as usize;
                bytes.take(few).fold(0, |n, byte| n << 8 | u64::from(byte)) % n
            }
        }
    }

    pub fn number(&mut self) -> u64 {
        match self {
            Random::Seed(seed) => seed.next_u64(),
            Random::Bytes(_) => self.below(1 << 16),
        }
    }

    /// True once in `1000 / permille` times; not where a fuzzer's bytes are spent.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) >= 1000 - permille
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        match self {
            Random::Seed(seed) => seed.fill_bytes(&mut bytes),
            // What is in a message does not decide anything.
            Random::Bytes(_) => ChaCha8Rng::seed_from_u64(length as u64).fill_bytes(&mut bytes),
        }
        bytes
    }
}

/// Whether a memory can be read where a test looks.
pub fn read(memory: &impl Memory, place: adverb_transport::Place, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    memory.read(place, &mut bytes).unwrap();
    bytes
}
