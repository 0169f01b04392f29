//! A stream of WRITEs over UDP between two addresses of the loopback, while somebody else sends packets
//! with the address of one end to the other.
#![allow(dead_code, unreachable_pub, reason = "each program uses a part of it")]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use adverb_softnic::SoftQp;
use adverb_units::Bytes;
use adverb_verbs::{
    Context, Counters, MemoryRegion, Operation, PathMtu, Psn, Qpn, QueuePair, RemoteAddress,
    SendFlags, SendRequest, WcStatus, WrId,
};
use adverb_wire::bth::{self, BthFlags};
use adverb_wire::frame::{Addresses, Flow};
use adverb_wire::ipv4::{self, Fragmentation, Ipv4, Unseen};
use adverb_wire::udp::{self, Udp};
use adverb_wire::{
    Aeth, Bth, Credits, Deth, Extension, NakCode, Opcode, PacketHeaders, Reth, Syndrome, icrc,
};

use rustix::net::{
    AddressFamily, SendFlags as SendFlagsOfSocket, SocketType, ipproto, sendto, socket,
};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::network::{FIRST_PSN, How, Network, connect_to};
use super::{End, slot_of, unused_qpn};

const MEMORY: Bytes = Bytes::mib(1);
/// Bytes of a message.
const MESSAGE: u32 = 64 << 10;
/// Packets of a message.
const PACKETS: u64 = MESSAGE as u64 / 4096;
/// WRITEs that are outstanding.
const DEPTH: u64 = 16;
const HOW: How = How {
    mtu: PathMtu::B4096,
    timeout: 14, // 67 ms; the device waits four times as long
    retries: 7,
};

/// What is forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request behind others that have not arrived.
    FutureRequest,
    /// A WRITE that was carried out, which asks to be acknowledged again.
    RepeatedWrite,
    /// A READ that was never carried out, as a repeated one.
    RepeatedRead,
    /// An acknowledgement of packets that were not sent.
    FutureAck,
    /// An acknowledgement of what is acknowledged.
    PastAck,
    /// A sequence error at the oldest packet that may be outstanding.
    Nak,
    /// A congestion notification.
    Cnp,
    /// Headers that end too early.
    Malformed,
    /// A request with a wrong ICRC.
    WrongIcrc,
    /// A request to a queue pair that does not exist.
    WrongQueuePair,
    /// A request to a queue pair of another process.
    WrongSlot,
    /// A request of another partition.
    WrongPartition,
    /// A datagram to the RC queue pair.
    Datagram,
}

impl Kind {
    pub const ALL: [Kind; 13] = [
        Kind::FutureRequest,
        Kind::RepeatedWrite,
        Kind::RepeatedRead,
        Kind::FutureAck,
        Kind::PastAck,
        Kind::Nak,
        Kind::Cnp,
        Kind::Malformed,
        Kind::WrongIcrc,
        Kind::WrongQueuePair,
        Kind::WrongSlot,
        Kind::WrongPartition,
        Kind::Datagram,
    ];

    /// Whether it is sent to the requester, or to the responder.
    const fn is_response(self) -> bool {
        matches!(self, Kind::FutureAck | Kind::PastAck | Kind::Nak)
    }

    /// The number of its packet, relative to the first one that is not known to be acknowledged.
    const fn ahead(self) -> i64 {
        match self {
            Kind::RepeatedWrite | Kind::RepeatedRead | Kind::PastAck => -8,
            Kind::Nak => 0,
            _ => 1000,
        }
    }

    /// What counts it: the requester's (0) or the responder's (1) counter of this name.
    pub const fn counter(self) -> (usize, &'static str) {
        let end = !self.is_response() as usize;
        let name = match self {
            Kind::FutureRequest => "drop_out_of_sequence",
            Kind::RepeatedWrite => "duplicate_request",
            Kind::RepeatedRead => "drop_stale_duplicate",
            Kind::FutureAck => "drop_unsent_response",
            Kind::PastAck | Kind::Nak => "drop_stale_response",
            Kind::Malformed => "drop_malformed",
            Kind::WrongIcrc => "drop_icrc_err",
            Kind::WrongQueuePair | Kind::WrongSlot => "drop_unknown_queue_pair",
            Kind::WrongPartition => "drop_partition",
            Kind::Datagram => "drop_wrong_service",
            Kind::Cnp => "drop_at_socket",
        };
        (end, name)
    }

    fn headers(self, dest: Qpn, psn: Psn, remote: RemoteAddress) -> PacketHeaders {
        let bth = |opcode| Bth::new(opcode, dest, psn);
        let length = 8;
        let request = Extension::Rdma(Reth { remote, length });
        let ack = |syndrome| Extension::Ack(Aeth { syndrome, msn: 0 });
        let (mut bth, extension) = match self {
            Kind::RepeatedRead => (bth(Opcode::RcReadRequest), request),
            Kind::FutureAck | Kind::PastAck => {
                (bth(Opcode::RcAck), ack(Syndrome::Ack(Credits::NONE)))
            }
            Kind::Nak => {
                let nak = Syndrome::Nak(NakCode::PsnSequenceError);
                (bth(Opcode::RcAck), ack(nak))
            }
            Kind::Cnp => (bth(Opcode::Cnp), Extension::None),
            Kind::Datagram => {
                let src_qp = dest;
                let deth = Deth { qkey: 0, src_qp };
                (bth(Opcode::UdSendOnly), Extension::Datagram(deth))
            }
            _ => (bth(Opcode::RcWriteOnly), request),
        };
        match self {
            Kind::WrongPartition => bth.pkey = 0x8001,
            Kind::WrongQueuePair => bth.dest_qp = unused_qpn(dest),
            Kind::WrongSlot => bth.dest_qp = Qpn::new(dest.get() ^ 1 << 20).expect("24 bits"),
            Kind::RepeatedWrite => bth = bth.with(BthFlags::ACK_REQ),
            _ => {}
        }
        PacketHeaders::new(bth, extension)
    }
}

/// What a flood consists of.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    pub kind: Kind,
    /// Packets a second.
    pub rate: u64,
    pub target: Target,
}

/// Where the packets of a flood are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To an end of the stream.
    Stream,
    /// To a socket that nobody reads, so that only sending them takes time.
    Nobody,
}

/// Where forged packets are sent from, and whereto.
struct Forger {
    source: Source,
    to: SocketAddr,
    flow: Flow,
    dest: Qpn,
    remote: RemoteAddress,
    nobody: UdpSocket,
}

/// The sender of forged packets.
enum Source {
    /// A raw socket, whose packets have the addresses and ports of the peer's. It requires `CAP_NET_RAW`.
    Raw(OwnedFd),
    /// A socket at the peer's address with another port.
    Port(UdpSocket),
}

impl Source {
    /// Makes a source at `from`.
    fn new(from: IpAddr) -> Self {
        let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW));
        match raw {
            Ok(raw) => Source::Raw(raw),
            Err(_) => Source::Port(UdpSocket::bind((from, 0)).unwrap()),
        }
    }

    /// Sends a packet. Losses in a full network queue are part of the flood.
    fn send(&self, flow: &Flow, packet: &[u8], to: SocketAddr) {
        match (self, flow.addresses) {
            (Source::Port(socket), _) => {
                let _ = socket.send_to(packet, to);
            }
            (Source::Raw(raw), Addresses::V4(source, destination)) => {
                let length = (udp::LEN + packet.len()) as u16;
                let ip = Ipv4 {
                    tos: 0,
                    total_length: ipv4::LEN as u16 + length,
                    unseen: UNSEEN,
                    ttl: 64,
                    source,
                    destination,
                };
                let udp = Udp {
                    source: flow.source_port,
                    destination: to.port(),
                    length,
                    checksum: 0,
                };
                let bytes = [&ip.to_bytes()[..], &udp.to_bytes(), packet].concat();
                let _ = sendto(raw, &bytes, SendFlagsOfSocket::empty(), &to);
            }
            (Source::Raw(_), Addresses::V6(..)) => unreachable!("the networks are IPv4"),
        }
    }
}

/// What the IP header of a packet contains that is sent alone.
const UNSEEN: Unseen = Unseen {
    identification: 0,
    fragmentation: Fragmentation::Forbidden,
};

impl Forger {
    /// Forges packets from queue pair `own` at `from` to queue pair `dest` at `to`.
    fn new((from, own): (IpAddr, Qpn), (to, dest): (IpAddr, Qpn), remote: RemoteAddress) -> Self {
        let source = Source::new(from);
        let port = |qpn| 4791 + slot_of(qpn) as u16;
        let flow = Flow {
            addresses: Addresses::of(from, to).unwrap(),
            source_port: match &source {
                Source::Raw(_) => port(own),
                Source::Port(socket) => socket.local_addr().unwrap().port(),
            },
            destination_port: port(dest),
        };
        let nobody = UdpSocket::bind((to, 0)).unwrap();
        let to = SocketAddr::new(to, flow.destination_port);
        Forger {
            source,
            to,
            flow,
            dest,
            remote,
            nobody,
        }
    }

    /// Sends packets at this rate until `is_over`.
    fn flood(&self, rate: u64, kind: Kind, stream: &Shared) {
        let begin = Instant::now();
        for count in 0.. {
            let due = Duration::from_secs_f64(count as f64 / rate as f64);
            while begin.elapsed() < due && !stream.is_over.load(Ordering::Relaxed) {
                let left = due.saturating_sub(begin.elapsed());
                std::thread::sleep(left.min(Duration::from_millis(10)));
            }
            if stream.is_over.load(Ordering::Relaxed) {
                return;
            }
            self.send(kind, stream.acknowledged.load(Ordering::Relaxed));
            stream.forged.store(count + 1, Ordering::Relaxed);
        }
    }

    fn send(&self, kind: Kind, acknowledged: u64) {
        let ahead = acknowledged.wrapping_add_signed(kind.ahead());
        let headers = kind.headers(self.dest, FIRST_PSN.advance(ahead as u32), self.remote);
        let mut packet = [0; 128];
        let payload = match headers.bth.opcode {
            Opcode::RcWriteOnly | Opcode::UdSendOnly => 8,
            Opcode::Cnp => 16,
            _ => 0,
        };
        let (length, _) = headers.lay_out(payload, &mut packet).unwrap();
        let length = match kind {
            Kind::Malformed => bth::LEN,
            _ => length,
        };
        let length = icrc::seal(&self.flow, UNSEEN, &mut packet, length).unwrap();
        if kind == Kind::WrongIcrc {
            packet[length - 1] ^= 1;
        }
        self.source.send(&self.flow, &packet[..length], self.to);
    }
}

/// What the threads of a stream share.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    /// Packets that are acknowledged.
    acknowledged: AtomicU64,
    /// Forged packets that were sent.
    forged: AtomicU64,
}

/// Two devices and a connection between them.
pub struct Stream {
    network: Network,
    a: End,
    b: End,
    qp_a: SoftQp,
    qp_b: SoftQp,
    placement: Placement,
    progress: Progress,
}

/// Where a stream's threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    Anywhere,
    /// The requester and the forger on the first core, the responder on the second: three busy threads that
    /// wander over two cores are no measure.
    Pinned,
}

impl Placement {
    fn settle(self, core: usize) {
        let mut cores = CpuSet::new();
        cores.set(core);
        if self == Placement::Pinned {
            sched_setaffinity(None, &cores).expect("a machine of two cores");
        }
    }
}

/// WRITEs that were posted, and that completed.
#[derive(Clone, Copy, Default)]
struct Progress {
    posted: u64,
    completed: u64,
}

impl Progress {
    fn is_outstanding(self) -> bool {
        self.completed < self.posted
    }
}

/// What a stream did while it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    pub messages: u64,
    pub time: Duration,
    pub forged: u64,
    /// How the connection ended, if it did.
    pub failure: Option<WcStatus>,
}

impl Stream {
    pub fn new(net: u8, placement: Placement) -> Self {
        let network = Network::loopback(net);
        let (a, b) = (network.end(0, MEMORY), network.end(1, MEMORY));
        let (qp_a, qp_b) = (a.qp(), b.qp());
        connect_to(&qp_a, network.address(1), qp_b.qpn(), HOW);
        connect_to(&qp_b, network.address(0), qp_a.qpn(), HOW);
        Stream {
            network,
            a,
            b,
            qp_a,
            qp_b,
            placement,
            progress: Progress::default(),
        }
    }

    /// Counters of requester and responder.
    pub fn counters(&self) -> [Counters; 2] {
        [&self.a, &self.b].map(|end| end.context.counters())
    }

    /// Whether forged packets have the peer's port, too.
    pub fn spoofs_port(&self) -> bool {
        matches!(Source::new(self.network.ip(0)), Source::Raw(_))
    }

    /// Fills the memory that is sent.
    pub fn fill(&self, byte: u8) {
        self.a.mr.write(0, &[byte; MESSAGE as usize]).unwrap();
    }

    /// Whether exactly the bytes `byte` have arrived, and nothing behind them.
    pub fn has_arrived(&self, byte: u8) -> bool {
        let mut bytes = vec![0; MEMORY.get() as usize];
        self.b.mr.read(0, &mut bytes).unwrap();
        let (message, rest) = bytes.split_at(MESSAGE as usize);
        message.iter().all(|&b| b == byte) && rest.iter().all(|&b| b == 0)
    }

    fn forger(&self, flood: &Flood) -> Forger {
        let a = (self.network.ip(0), self.qp_a.qpn());
        let b = (self.network.ip(1), self.qp_b.qpn());
        let (from, to) = match flood.kind.is_response() {
            true => (b, a),
            false => (a, b),
        };
        let mut forger = Forger::new(from, to, self.b.mr.remote(0));
        if flood.target == Target::Nobody {
            forger.to = forger.nobody.local_addr().unwrap();
        }
        forger
    }

    /// Streams during a flood until `is_enough` and all messages have completed, or until the connection ends.
    pub fn run(&mut self, flood: Flood, mut is_enough: impl FnMut(&Measured) -> bool) -> Measured {
        let forger = self.forger(&flood);
        let shared = Shared::default();
        let (begin, mut progress) = (Instant::now(), self.progress);
        let first = progress.completed;
        let mut measured = Measured::default();
        std::thread::scope(|scope| {
            let (b, placement) = (&self.b, &self.placement);
            placement.settle(0);
            scope.spawn(|| forger.flood(flood.rate, flood.kind, &shared));
            scope.spawn(|| {
                placement.settle(1);
                while !shared.is_over.load(Ordering::Relaxed) {
                    assert!(b.poll().is_empty(), "a WRITE completes at its requester");
                }
            });
            let mut depth = DEPTH;
            while measured.failure.is_none() && (depth != 0 || progress.is_outstanding()) {
                measured.failure = self.step(&mut progress, depth);
                let acknowledged = progress.completed * PACKETS;
                shared.acknowledged.store(acknowledged, Ordering::Relaxed);
                measured.messages = progress.completed - first;
                measured.forged = shared.forged.load(Ordering::Relaxed);
                measured.time = begin.elapsed();
                if is_enough(&measured) {
                    depth = 0;
                }
            }
            shared.is_over.store(true, Ordering::Relaxed);
        });
        self.progress = progress;
        measured
    }

    /// Posts as many WRITEs as may be outstanding, and polls; how the connection ended, if it did.
    fn step(&self, progress: &mut Progress, depth: u64) -> Option<WcStatus> {
        while progress.posted < progress.completed + depth {
            let sges = [self.a.mr.sge(0, MESSAGE).unwrap()];
            let write = Operation::RdmaWrite(self.b.mr.remote(0));
            let request = SendRequest::new(WrId(progress.posted), write, &sges);
            let request = request.with_flags(SendFlags::SIGNALED);
            self.qp_a.post_send(&[request]).unwrap();
            progress.posted += 1;
        }
        let completions = self.a.poll();
        let is_success = |status: &WcStatus| *status == WcStatus::Success;
        let mut statuses = completions.iter().map(|completion| completion.status);
        progress.completed += statuses.clone().filter(is_success).count() as u64;
        statuses.find(|status| !is_success(status))
    }
}
