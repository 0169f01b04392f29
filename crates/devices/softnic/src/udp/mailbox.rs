//! Queue pair 1 of the UDP port: a bounded queue of management datagrams, which a thread of the program waits for.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use adverb_transport::PacketBuffer;
use adverb_verbs::Psn;
use adverb_wire::cm::CmMessage;
use adverb_wire::mad::{self, GSI_QKEY, GSI_QPN};
use adverb_wire::{Bth, Deth, Extension, Opcode, Packet, PacketHeaders, ROCE_PORT};

use super::address::udp_port;
use crate::shm::layout::MAX_SLOTS;
use crate::shm::sync::lock;

/// Maximum number of datagrams that wait. Further ones are dropped: their senders repeat them.
const CAPACITY: usize = 1024;
/// Length of what follows a forwarded datagram: the address of its sender, IPv4 mapped, and its UDP port.
const SENDER: usize = 20;

/// A management datagram that has arrived.
#[derive(Clone, Debug)]
pub struct ReceivedMad {
    /// The sender's port.
    pub from: SocketAddr,
    /// Its bytes.
    pub bytes: Box<[u8; mad::LEN]>,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inside: Mutex<Inside>,
    arrival: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    waiting: VecDeque<ReceivedMad>,
    is_woken: bool,
}

impl Mailbox {
    /// Adds a datagram; returns false if it was dropped.
    pub(super) fn put(&self, mad: ReceivedMad) -> bool {
        let mut inside = lock(&self.inside);
        if inside.waiting.len() >= CAPACITY {
            return false;
        }
        inside.waiting.push_back(mad);
        self.arrival.notify_one();
        true
    }

    /// Ends the current or next [`Mailbox::wait`].
    pub(crate) fn wake(&self) {
        lock(&self.inside).is_woken = true;
        self.arrival.notify_one();
    }

    /// Takes a datagram. Waits for it until `timeout` has passed or the mailbox is woken.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Option<ReceivedMad> {
        let is_idle = |inside: &mut Inside| inside.waiting.is_empty() && !inside.is_woken;
        let inside = lock(&self.inside);
        let timeout = timeout.unwrap_or(Duration::from_secs(3600));
        let waited = self.arrival.wait_timeout_while(inside, timeout, is_idle);
        let (mut inside, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        inside.is_woken = false;
        inside.waiting.pop_front()
    }
}

/// Parses the payload of a packet to queue pair 1 of the port at `own`. `None` if it is invalid.
///
/// A datagram that another process at this address forwards is followed by its sender.
pub(super) fn parse(
    packet: &Packet<'_>,
    (from, own): (SocketAddr, SocketAddr),
) -> Option<ReceivedMad> {
    let Extension::Datagram(deth) = packet.headers.extension else {
        return None;
    };
    if deth.qkey != GSI_QKEY {
        return None;
    }
    let (bytes, sender) = packet.payload.split_first_chunk()?;
    let from = match sender.len() {
        0 => from,
        SENDER if from.ip() == own.ip() && is_slot_port(from.port()) => parse_sender(sender),
        _ => return None,
    };
    Some(ReceivedMad {
        from: reply_address(from),
        bytes: Box::new(*bytes),
    })
}

fn parse_sender(bytes: &[u8]) -> SocketAddr {
    let ip: [u8; 16] = std::array::from_fn(|index| bytes[index]);
    let port = u16::from_be_bytes([bytes[16], bytes[17]]);
    SocketAddr::new(IpAddr::from(ip).to_canonical(), port)
}

impl ReceivedMad {
    /// Returns the service that it requests, if it is a REQ or SIDR_REQ.
    pub fn requested_service(&self) -> Option<u64> {
        match CmMessage::parse(&self.bytes[..]).ok()?.1 {
            CmMessage::Req(req) => Some(req.service.0),
            CmMessage::SidrReq(req) => Some(req.service.0),
            _ => None,
        }
    }
}

/// Returns the address that gets the answers: a process of this device receives at the port that it sends from, another
/// RoCE implementation at the standard port.
fn reply_address(from: SocketAddr) -> SocketAddr {
    match is_slot_port(from.port()) {
        true => from,
        false => SocketAddr::new(from.ip(), ROCE_PORT),
    }
}

fn is_slot_port(port: u16) -> bool {
    (udp_port(0)..=udp_port(MAX_SLOTS - 1)).contains(&port)
}

/// Builds the packet of a datagram, followed by the sender that it is forwarded for; returns its length.
pub(super) fn build(
    mad: &[u8; mad::LEN],
    sender: Option<SocketAddr>,
    out: &mut PacketBuffer,
) -> usize {
    let mut payload = [0; mad::LEN + SENDER];
    payload[..mad::LEN].copy_from_slice(mad);
    let mut length = mad::LEN;
    if let Some(sender) = sender {
        let ip = match sender.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        payload[length..length + 16].copy_from_slice(&ip.octets());
        payload[length + 16..length + 18].copy_from_slice(&sender.port().to_be_bytes());
        length += SENDER;
    }
    let bth = Bth::new(Opcode::UdSendOnly, GSI_QPN, Psn::default());
    let extension = Extension::Datagram(Deth {
        qkey: GSI_QKEY,
        src_qp: GSI_QPN,
    });
    let packet = Packet {
        headers: PacketHeaders::new(bth, extension),
        payload: &payload[..length],
    };
    packet.emit(out).expect("a packet has room for 276 bytes")
}
