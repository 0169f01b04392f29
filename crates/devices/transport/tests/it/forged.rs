//! Connections under forged packets, in virtual time: whatever arrives, and however much of it, no request waits for a
//! timeout, and the goodput stays above half of what it is without. Left out is what cannot be told from the peer's own
//! packets: a request with the expected number, and an acknowledgement of packets that are outstanding.
//! `docs/transport.md` lists what bounds the cost.

use crate::lab::goodput::{Kind, Row};
use crate::lab::memory::REMOTE;
use crate::lab::network::{AnyQp, At, Network, To};
use crate::lab::{Side, config};
use adverb_transport::PACKET_SPACE;
use adverb_units::{Span, Time};
use adverb_verbs::{PathMtu, Psn, Qpn, RnrTimer, WcStatus};
use adverb_wire::bth::BthFlags;
use adverb_wire::{Aeth, Bth, Credits, Deth, Extension, NakCode, Opcode, PacketHeaders, Reth};
use adverb_wire::{Syndrome, bth};

const A: At = At { host: 0, qp: 0 };
const B: At = At { host: 1, qp: 0 };
/// How long a stream is looked at.
const TIME: Span = Span::from_ms(10);
/// Forged packets a second.
const RATES: [u64; 3] = [100, 3000, 70_000];
/// A number that is far ahead of all that are in use.
const AHEAD: i64 = 1000;
/// What a forged WRITE would write.
const FORGED: u8 = 0xee;

/// What is forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forged {
    /// A request behind others that have not arrived.
    FutureRequest,
    /// A WRITE that was carried out, which requests an ACK again.
    PastRequest,
    /// A READ that was never carried out, as a repeated one.
    PastRead,
    /// The last READ that was answered.
    RepeatedRead,
    /// The READ that is being answered.
    PendingRead,
    FutureAck,
    PastAck,
    /// A sequence error at the oldest packet that may be outstanding.
    Nak,
    FutureNak,
    PastNak,
    PastRnrNak,
    /// Data of a READ that is complete.
    PastData,
    /// Congestion notification.
    Cnp,
    /// A request to another queue pair.
    OtherQueuePair,
    /// An acknowledgement with a payload.
    WrongLength,
    UnknownOpcode,
    /// A datagram to the RC queue pair.
    Datagram,
}

const ALL: [Forged; 17] = [
    Forged::FutureRequest,
    Forged::PastRequest,
    Forged::PastRead,
    Forged::RepeatedRead,
    Forged::PendingRead,
    Forged::FutureAck,
    Forged::PastAck,
    Forged::Nak,
    Forged::FutureNak,
    Forged::PastNak,
    Forged::PastRnrNak,
    Forged::PastData,
    Forged::Cnp,
    Forged::OtherQueuePair,
    Forged::WrongLength,
    Forged::UnknownOpcode,
    Forged::Datagram,
];

impl Forged {
    /// The number of its packet in a stream of messages of `packets` packets, relative to the first one that is not known
    /// to be acknowledged.
    const fn ahead(self, packets: i64) -> i64 {
        match self {
            Forged::Nak | Forged::PendingRead => 0,
            Forged::RepeatedRead => -packets,
            Forged::PastRequest
            | Forged::PastRead
            | Forged::PastAck
            | Forged::PastNak
            | Forged::PastRnrNak
            | Forged::PastData => -1,
            _ => AHEAD,
        }
    }

    fn headers(self, size: usize) -> (Opcode, Extension) {
        let rdma = |remote, length| Extension::Rdma(Reth { remote, length });
        let ack = |syndrome| Extension::Ack(Aeth { syndrome, msn: 0 });
        let ok = ack(Syndrome::Ack(Credits::NONE));
        let src_qp = Qpn::new(1).unwrap();
        match self {
            // Not where the stream's own READs are.
            Forged::PastRead => (Opcode::RcReadRequest, rdma(REMOTE.at(8), 8)),
            Forged::RepeatedRead | Forged::PendingRead => {
                (Opcode::RcReadRequest, rdma(REMOTE, size as u32))
            }
            Forged::FutureAck | Forged::PastAck | Forged::WrongLength => (Opcode::RcAck, ok),
            Forged::Nak | Forged::FutureNak | Forged::PastNak => {
                let nak = Syndrome::Nak(NakCode::PsnSequenceError);
                (Opcode::RcAck, ack(nak))
            }
            Forged::PastRnrNak => {
                let longest = Syndrome::RnrNak(RnrTimer::new(0).unwrap());
                (Opcode::RcAck, ack(longest))
            }
            Forged::PastData => (Opcode::RcReadResponseOnly, ok),
            Forged::Cnp => (Opcode::Cnp, Extension::None),
            Forged::Datagram => {
                let deth = Deth { qkey: 0, src_qp };
                (Opcode::UdSendOnly, Extension::Datagram(deth))
            }
            _ => (Opcode::RcWriteOnly, rdma(REMOTE, 8)),
        }
    }

    /// Passes one to the end that it is for. The first `done` messages of `size` bytes are acknowledged.
    fn inject(self, network: &mut Network, size: usize, done: usize) {
        let (opcode, extension) = self.headers(size);
        let at = match opcode.verb().is_response() {
            true => A,
            false => B,
        };
        let first: Psn = config(Side::A).requester.first_psn;
        let packets = size.div_ceil(4096) as i64;
        let ahead = done as i64 * packets + self.ahead(packets);
        let dest = match self {
            Forged::OtherQueuePair => Qpn::new(0x777).unwrap(),
            _ => at.qpn(),
        };
        let mut bth = Bth::new(opcode, dest, first.advance(ahead as u32));
        if self == Forged::PastRequest {
            bth = bth.with(BthFlags::ACK_REQ);
        }
        let payload = match opcode {
            Opcode::RcWriteOnly | Opcode::UdSendOnly | Opcode::RcReadResponseOnly => 8,
            Opcode::Cnp => 16,
            _ => 0,
        };
        let mut bytes = [FORGED; PACKET_SPACE];
        let headers = PacketHeaders::new(bth, extension);
        let (length, _) = headers.lay_out(payload, &mut bytes).unwrap();
        match self {
            Forged::WrongLength => network.inject(at, &bytes[..length + 4]),
            Forged::UnknownOpcode => {
                // The last opcode of RC, which nobody has defined.
                bytes[0] = 0x1f;
                network.inject(at, &bytes[..bth::LEN]);
            }
            _ => network.inject(at, &bytes[..length]),
        }
    }
}

/// A stream of requests: the row of a table, and how many are outstanding.
#[derive(Clone, Copy, Debug)]
struct Stream {
    row: Row,
    depth: usize,
    flight: Span,
}

fn streams() -> impl Iterator<Item = Stream> {
    let flights = [2, 20].map(Span::from_us).into_iter();
    flights.flat_map(|flight| {
        [Kind::Write, Kind::Read].into_iter().flat_map(move |kind| {
            let streams = [(16, 64 << 10, 64), (16, 64 << 10, 256), (1, 64, 64)];
            streams.map(|(depth, size, window)| Stream {
                row: Row {
                    kind,
                    mtu: PathMtu::B4096,
                    window,
                    size,
                    long: None,
                },
                depth,
                flight,
            })
        })
    })
}

impl Stream {
    /// Returns how many messages complete within [`TIME`] while `forge` is called `rate` times a second, with the number of
    /// messages that are complete.
    fn messages(&self, rate: u64, mut forge: impl FnMut(&mut Network, usize)) -> usize {
        let mut network = self.row.network(0);
        network.flight = self.flight;
        let bytes: Vec<u8> = (0..self.row.size).map(|n| n as u8 % 0xc1).collect();
        match self.row.kind {
            Kind::Write => network.hosts[0].memory.local.copy_from_slice(&bytes),
            Kind::Read => network.hosts[1].memory.shared.copy_from_slice(&bytes),
        }
        let interval = Span::from_secs(1) / rate;
        let mut due = Time::ZERO + interval / 2;
        let mut posted = 0;
        loop {
            let done = network.station(A).completions.len();
            while posted < done + self.depth {
                let work = self.row.work(posted as u64);
                network.post(A, work, To::Peer).expect("there is room");
                posted += 1;
            }
            let event = network.next_event().expect("requests are outstanding");
            if event.min(due) > Time::ZERO + TIME {
                break;
            }
            if due <= event {
                network.now = due;
                forge(&mut network, done);
                due = due + interval;
            } else {
                assert!(network.step());
            }
        }
        check(&network, &bytes);
        network.station(A).completions.len()
    }
}

/// Everything succeeded without a timeout, and the bytes are where they belong.
fn check(network: &Network, bytes: &[u8]) {
    let completions = &network.station(A).completions;
    let failed = completions
        .iter()
        .find(|c| c.work.status != WcStatus::Success);
    assert_eq!(failed, None);
    for at in [A, B] {
        let station = network.station(at);
        assert!(
            matches!(&station.qp, AnyQp::Rc(qp, _) if qp.state() == adverb_verbs::QpState::Rts)
        );
        assert_eq!(station.qp.counters().timeouts, 0);
    }
    assert_eq!(network.hosts[0].memory.local, bytes);
    assert_eq!(network.hosts[1].memory.shared, bytes);
}

#[test]
fn no_forged_packet_costs_a_stream_half_of_its_goodput_or_a_timeout() {
    for stream in streams() {
        let undisturbed = stream.messages(1, |_, _| {});
        for (forged, rate) in floods(&stream) {
            let forge = |network: &mut Network, done| forged.inject(network, stream.row.size, done);
            let messages = stream.messages(rate, forge);
            let share = messages as f64 / undisturbed as f64;
            assert!(share > 0.5, "{stream:?}: {forged:?} at {rate}/s: {share}");
        }
    }
}

/// What is forged next to a stream, and how often.
fn floods(stream: &Stream) -> impl Iterator<Item = (Forged, u64)> {
    // Which READ is being answered is known only if there are several.
    let is_deep_read = stream.row.kind == Kind::Read && stream.depth > 1;
    let all = ALL
        .into_iter()
        .flat_map(|forged| RATES.map(|rate| (forged, rate)));
    all.filter(move |&(forged, rate)| match forged {
        // Each copy of a READ's request has the whole READ sent again, up to 32 times.
        Forged::RepeatedRead => rate < 70_000,
        Forged::PendingRead => rate < 70_000 && is_deep_read,
        _ => true,
    })
}
