//! Hosts with queue pairs of every service, joined by links in virtual time. A rule decides the delivery
//! of each packet; a link may have a rate, and then a host sends one packet after the other.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;

use adverb_transport::{
    Completion, Counters, DropReason, PACKET_SPACE, PacketBuffer, PostError, RcQp, ReceiveWork,
    SendWork, UcQp, UdDestination, UdQp,
};
use adverb_units::{Span, Time};
use adverb_verbs::Qpn;
use adverb_wire::frame::Addresses;
use adverb_wire::ipv4::Unseen;
use adverb_wire::{Bth, Flow, Packet, ROCE_PORT, UnknownOpcode, WireError, grh, icrc};

use super::{Delivery, FLIGHT, TestMemory};

/// Bytes that a packet over Ethernet and IPv4 has besides the ones that the ICRC ends: preamble and
/// gap 20, Ethernet 14 and 4, IPv4 20, UDP 8.
const FRAME: u64 = 66;

/// A queue pair: host and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    pub host: usize,
    pub qp: usize,
}

impl At {
    /// Its number on its host.
    pub fn qpn(self) -> Qpn {
        Qpn::new(0x100 + self.qp as u32).unwrap()
    }
}

/// A queue pair, and its other end where it is connected.
pub enum AnyQp {
    Rc(Box<RcQp>, At),
    Uc(Box<UcQp>, At),
    Ud(Box<UdQp<usize>>),
}

impl AnyQp {
    fn packet(
        &mut self,
        now: Time,
        from: usize,
        packet: &Packet<'_>,
        memory: &mut TestMemory,
    ) -> Result<(), DropReason> {
        match self {
            AnyQp::Rc(qp, _) => qp.handle_packet(now, packet, memory),
            AnyQp::Uc(qp, _) => qp.handle_packet(packet, memory),
            AnyQp::Ud(qp) => qp.handle_packet(packet, &area(from), memory),
        }
    }

    fn unknown(&mut self, unknown: &UnknownOpcode) {
        match self {
            AnyQp::Rc(qp, _) => qp.handle_unknown(unknown),
            AnyQp::Uc(qp, _) => qp.handle_unknown(unknown),
            AnyQp::Ud(qp) => qp.handle_unknown(unknown),
        };
    }

    fn malformed(&mut self, bytes: &[u8]) {
        let (bth, _) = Bth::parse(bytes).expect("only its length is wrong");
        match self {
            AnyQp::Rc(qp, _) => qp.handle_malformed(&bth),
            AnyQp::Uc(qp, _) => qp.handle_malformed(&bth),
            AnyQp::Ud(_) => return,
        };
    }

    /// Builds the next packet; returns its length and destination host.
    fn transmit(
        &mut self,
        now: Time,
        memory: &TestMemory,
        out: &mut PacketBuffer,
    ) -> Option<(usize, usize)> {
        match self {
            AnyQp::Rc(qp, to) => Some((qp.poll_transmit(now, memory, out)?, to.host)),
            AnyQp::Uc(qp, to) => Some((qp.poll_transmit(memory, out)?, to.host)),
            AnyQp::Ud(qp) => qp.poll_transmit(memory, out),
        }
    }

    fn completion(&mut self) -> Option<Completion> {
        match self {
            AnyQp::Rc(qp, _) => qp.poll_completion(),
            AnyQp::Uc(qp, _) => qp.poll_completion(),
            AnyQp::Ud(qp) => qp.poll_completion(),
        }
    }

    fn receive(&mut self, work: ReceiveWork) -> Result<(), PostError> {
        match self {
            AnyQp::Rc(qp, _) => qp.post_receive(work),
            AnyQp::Uc(qp, _) => qp.post_receive(work),
            AnyQp::Ud(qp) => qp.post_receive(work),
        }
    }

    fn deadline(&self) -> Option<Time> {
        match self {
            AnyQp::Rc(qp, _) => qp.poll_timeout(),
            _ => None,
        }
    }

    pub fn counters(&self) -> &Counters {
        match self {
            AnyQp::Rc(qp, _) => qp.counters(),
            AnyQp::Uc(qp, _) => qp.counters(),
            AnyQp::Ud(qp) => qp.counters(),
        }
    }
}

/// What a datagram from a host has in front of its payload.
pub fn area(from: usize) -> [u8; grh::LEN] {
    [0x60 + from as u8; grh::LEN]
}

/// What is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The other end of the connection.
    Peer,
    /// A datagram queue pair, under this key.
    Datagram { at: At, qkey: u32 },
}

pub struct Station {
    pub qp: AnyQp,
    pub completions: Vec<Completion>,
}

pub struct Host {
    pub memory: TestMemory,
    pub stations: Vec<Station>,
    /// Packets that the ICRC refused.
    pub damaged: u64,
    /// Queue pairs that may have something to send, in turn.
    active: VecDeque<usize>,
    /// When the link takes the next packet.
    free: Time,
}

impl Host {
    pub fn new(memory: TestMemory, qps: Vec<AnyQp>) -> Self {
        let station = |qp| Station {
            qp,
            completions: vec![],
        };
        Host {
            memory,
            stations: qps.into_iter().map(station).collect(),
            damaged: 0,
            active: VecDeque::new(),
            free: Time::ZERO,
        }
    }

    fn wake(&mut self, qp: usize) {
        if !self.active.contains(&qp) {
            self.active.push_back(qp);
        }
    }
}

enum Event {
    Arrives { from: usize, bytes: Vec<u8> },
    Receive(usize, ReceiveWork),
    LinkIsFree,
}

/// Hosts and what is between them.
pub struct Network {
    pub now: Time,
    pub hosts: Vec<Host>,
    /// Packets sent.
    pub packets: u64,
    /// Transmission time of a byte. `None`: 0.
    pub byte: Option<Span>,
    /// How long a packet is on its way.
    pub flight: Span,
    delivery: Box<dyn FnMut() -> Delivery>,
    events: BTreeMap<(Time, u64), (usize, Event)>,
    count: u64,
    trace: DefaultHasher,
}

impl Network {
    pub fn new(hosts: Vec<Host>, delivery: Box<dyn FnMut() -> Delivery>) -> Self {
        Network {
            now: Time::ZERO,
            hosts,
            packets: 0,
            byte: None,
            flight: FLIGHT,
            delivery,
            events: BTreeMap::new(),
            count: 0,
            trace: DefaultHasher::new(),
        }
    }

    /// A number that two runs have in common if and only if they sent the same packets at the same
    /// times and ended the same requests.
    pub fn trace(&self) -> u64 {
        self.trace.finish()
    }

    pub fn station(&self, at: At) -> &Station {
        &self.hosts[at.host].stations[at.qp]
    }

    /// The other end of a connection.
    pub fn peer(&self, at: At) -> Option<At> {
        match self.station(at).qp {
            AnyQp::Rc(_, peer) | AnyQp::Uc(_, peer) => Some(peer),
            AnyQp::Ud(_) => None,
        }
    }

    /// Posts a send request.
    pub fn post(&mut self, at: At, work: SendWork, to: To) -> Result<(), PostError> {
        let host = &mut self.hosts[at.host];
        match (&mut host.stations[at.qp].qp, to) {
            (AnyQp::Rc(qp, _), To::Peer) => qp.post_send(work, &host.memory)?,
            (AnyQp::Uc(qp, _), To::Peer) => qp.post_send(work)?,
            (AnyQp::Ud(qp), To::Datagram { at, qkey }) => {
                let (address, qpn) = (at.host, at.qpn());
                qp.post_send(work, UdDestination { address, qpn, qkey })?;
            }
            _ => panic!("no such destination for this service"),
        }
        host.wake(at.qp);
        Ok(())
    }

    /// Posts a receive request.
    pub fn receive(&mut self, at: At, work: ReceiveWork) -> Result<(), PostError> {
        let host = &mut self.hosts[at.host];
        host.wake(at.qp);
        host.stations[at.qp].qp.receive(work)
    }

    /// Hands the bytes of a packet over that nobody sent.
    pub fn inject(&mut self, at: At, bytes: &[u8]) {
        let host = &mut self.hosts[at.host];
        let qp = &mut host.stations[at.qp].qp;
        match Packet::parse(bytes) {
            Ok(packet) => {
                let _ = qp.packet(self.now, 0, &packet, &mut host.memory);
            }
            Err(WireError::Opcode(unknown)) => qp.unknown(&unknown),
            Err(WireError::Pad { .. } | WireError::UnexpectedPayload { .. }) => qp.malformed(bytes),
            Err(_) => return,
        }
        host.wake(at.qp);
    }

    /// Ends a queue pair.
    pub fn end(&mut self, at: At) {
        match &mut self.hosts[at.host].stations[at.qp].qp {
            AnyQp::Rc(qp, _) => qp.enter_error(),
            AnyQp::Uc(qp, _) => qp.enter_error(),
            AnyQp::Ud(qp) => qp.enter_error(),
        }
        self.take_completions(at);
    }

    /// Posts a receive request, now or later.
    pub fn receive_after(&mut self, at: At, span: Span, work: ReceiveWork) {
        let (time, event) = (self.now + span, Event::Receive(at.qp, work));
        self.schedule(time, at.host, event);
    }

    fn schedule(&mut self, at: Time, host: usize, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), (host, event));
    }

    /// Sends what can be sent now; returns the time of the next event. `None` if nothing will ever happen.
    pub fn next_event(&mut self) -> Option<Time> {
        self.flush();
        let arrival = self.events.first_key_value().map(|((at, _), _)| *at);
        let stations = self.hosts.iter().flat_map(|host| &host.stations);
        let deadlines = stations.filter_map(|station| station.qp.deadline());
        deadlines.chain(arrival).min()
    }

    /// Goes to the next event; false if nothing will ever happen.
    pub fn step(&mut self) -> bool {
        let Some(next) = self.next_event() else {
            return false;
        };
        assert!(next >= self.now, "a deadline in the past");
        self.now = next;
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > next {
                break;
            }
            let (host, event) = entry.remove();
            self.deliver(host, event);
        }
        for host in &mut self.hosts {
            for qp in 0..host.stations.len() {
                if let AnyQp::Rc(rc, _) = &mut host.stations[qp].qp
                    && rc.poll_timeout().is_some_and(|deadline| deadline <= next)
                {
                    rc.handle_timeout(next);
                    host.wake(qp);
                }
            }
        }
        self.flush();
        true
    }

    fn deliver(&mut self, to: usize, event: Event) {
        let host = &mut self.hosts[to];
        match event {
            Event::LinkIsFree => {}
            Event::Receive(qp, work) => {
                host.stations[qp].qp.receive(work).expect("there is room");
            }
            Event::Arrives { from, bytes } => {
                let Ok(packet) = icrc::check(&flow(from, to), Unseen::default(), &bytes) else {
                    host.damaged += 1;
                    return;
                };
                let packet = Packet::parse(packet).expect("its ICRC is right");
                let qpn = packet.headers.bth.dest_qp;
                let found = (0..host.stations.len()).find(|&qp| At { host: to, qp }.qpn() == qpn);
                let qp = found.expect("no packet goes to a queue pair that is not there");
                let station = &mut host.stations[qp];
                let taken = station.qp.packet(self.now, from, &packet, &mut host.memory);
                taken.hash(&mut self.trace);
                host.wake(qp);
            }
        }
    }

    /// Sends what can be sent now, and takes completions.
    fn flush(&mut self) {
        for host in 0..self.hosts.len() {
            self.flush_host(host);
        }
    }

    fn flush_host(&mut self, from: usize) {
        let mut out = [0; PACKET_SPACE];
        loop {
            let host = &mut self.hosts[from];
            let Some(&qp) = host.active.front() else {
                return;
            };
            self.take_completions(At { host: from, qp });
            let host = &mut self.hosts[from];
            if host.free > self.now {
                return;
            }
            let station = &mut host.stations[qp];
            let Some((length, to)) = station.qp.transmit(self.now, &host.memory, &mut out) else {
                self.take_completions(At { host: from, qp });
                self.hosts[from].active.pop_front();
                continue;
            };
            host.active.rotate_left(1);
            self.send(from, to, &mut out, length);
        }
    }

    fn take_completions(&mut self, at: At) {
        let station = &mut self.hosts[at.host].stations[at.qp];
        while let Some(completion) = station.qp.completion() {
            let work = &completion.work;
            (self.now.as_ps(), at, work.wr_id.0, work.byte_len).hash(&mut self.trace);
            work.status.is_success().hash(&mut self.trace);
            station.completions.push(completion);
        }
    }

    fn send(&mut self, from: usize, to: usize, out: &mut PacketBuffer, length: usize) {
        let length = icrc::seal(&flow(from, to), Unseen::default(), out, length).unwrap();
        let mut bytes = out[..length].to_vec();
        (self.now.as_ps(), from, to, &bytes).hash(&mut self.trace);
        self.packets += 1;
        let departure = match self.byte {
            None => self.now,
            Some(byte) => {
                let departure = self.now + byte * (FRAME + length as u64);
                self.hosts[from].free = departure;
                self.schedule(departure, from, Event::LinkIsFree);
                departure
            }
        };
        let arrival = departure + self.flight;
        match (self.delivery)() {
            Delivery::Drop => return,
            Delivery::Pass => {}
            Delivery::Delay(later) => {
                self.schedule(arrival + later, to, Event::Arrives { from, bytes });
                return;
            }
            Delivery::Duplicate(later) => {
                let bytes = bytes.clone();
                self.schedule(arrival + later, to, Event::Arrives { from, bytes });
            }
            Delivery::Corrupt(bit) => {
                let bit = bit % (8 * length);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        self.schedule(arrival, to, Event::Arrives { from, bytes });
    }
}

fn flow(from: usize, to: usize) -> Flow {
    let address = |host: usize| Ipv4Addr::new(10, 0, 0, 1 + host as u8);
    Flow {
        addresses: Addresses::V4(address(from), address(to)),
        source_port: 0xc000,
        destination_port: ROCE_PORT,
    }
}
