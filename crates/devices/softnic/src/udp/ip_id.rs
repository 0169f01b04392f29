//! Predicts the IPv4 identification that Linux gives to outgoing packets: the ICRC covers it, and a UDP socket
//! does not see it.
//!
//! This buys connected sockets ([`super::peer_sockets`]), whose route the kernel looks up once instead of for each
//! packet: an eighth of the cost of a short message. `ADVERB_UDP_WITHOUT=ip_id` sends all packets through the main
//! socket.
//!
//! If the socket is not connected, packets that may not be fragmented get 0, and those of a GSO batch their index
//! in the batch. A connected socket counts its send calls from a random number: a call takes one number, and
//! the packets of a batch count up from there.
//!
//! The kernel does not report this count. But the filter of a receiving socket sees the IP header and may
//! truncate the datagram: here, to a length that encodes one byte of the identification.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use adverb_wire::udp;

use super::filter::{attach, statement};
use crate::shm::sync::lock;

/// How the kernel numbers the packets of a socket.
#[derive(Debug)]
pub(super) enum IpId {
    /// Each call begins with 0. (IPv6 packets have no identification.)
    Zero,
    /// The next call begins with this number. Relaxed: only one thread at a time sends.
    Counted(AtomicU16),
}

impl IpId {
    /// Returns the identification of the next call's first packet.
    #[inline]
    pub(super) fn next(&self) -> u16 {
        match self {
            IpId::Zero => 0,
            IpId::Counted(next) => next.load(Ordering::Relaxed),
        }
    }

    /// Returns how far `calls` calls advance the number.
    #[inline]
    pub(super) fn after(&self, calls: usize) -> u16 {
        match self {
            IpId::Zero => 0,
            IpId::Counted(_) => calls as u16,
        }
    }

    /// Records `calls` send calls.
    #[inline]
    pub(super) fn count(&self, calls: usize) {
        if let IpId::Counted(next) = self {
            let after = next.load(Ordering::Relaxed).wrapping_add(calls as u16);
            next.store(after, Ordering::Relaxed);
        }
    }

    /// Takes over the other's number.
    pub(super) fn set(&self, other: &Self) {
        if let IpId::Counted(next) = self {
            next.store(other.next(), Ordering::Relaxed);
        }
    }

    /// Learns the number of a connected socket by sending to `probe`.
    pub(super) fn learn(socket: &UdpSocket, probe: &Probe) -> io::Result<Self> {
        // One socket at a time: the probe listens to one sender at a time.
        let _turn = lock(&probe.turn);
        let byte = |part| probe.byte(socket, part);
        let (upper, lower, after) = (byte(Byte::Upper)?, byte(Byte::Lower)?, byte(Byte::Lower)?);
        if after != lower.wrapping_add(1) {
            return Err(io::Error::other("the kernel does not count"));
        }
        let first = u16::from_be_bytes([upper, lower.wrapping_sub(1)]);
        Ok(IpId::Counted(AtomicU16::new(first.wrapping_add(3))))
    }
}

/// A socket that learns the identification of datagrams sent to it.
#[derive(Debug)]
pub(super) struct Probe {
    socket: UdpSocket,
    at: SocketAddr,
    turn: Mutex<()>,
}

impl Probe {
    /// Binds it at `own`, in the calling thread's network namespace. Any thread may use it afterwards.
    pub(super) fn new(own: IpAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind((own, 0))?;
        let at = socket.local_addr()?;
        // Connected to itself until it is used, so that nobody else can fill its receive buffer.
        socket.connect(at)?;
        report_ip_id_by_length(&socket)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        let turn = Mutex::default();
        Ok(Probe { socket, at, turn })
    }

    /// Drops all further datagrams.
    #[cfg(all(test, not(loom)))]
    pub(super) fn mute(&self) {
        let nothing = statement(libc::BPF_RET | libc::BPF_K, 0);
        attach(&self.socket, &mut [nothing]).expect("a filter");
    }

    /// Returns a byte of the identification of the next packet that `from` sends.
    fn byte(&self, from: &UdpSocket, part: Byte) -> io::Result<u8> {
        let sender = from.local_addr()?;
        self.socket.connect(sender)?;
        from.send_to(&[part as u8; PROBE], self.at)?;
        // Datagrams of others arrived before this socket was connected to `sender`: their number is limited.
        loop {
            let (length, came_from) = self.socket.recv_from(&mut [0; PROBE])?;
            if came_from == sender && length != 0 {
                return Ok((length - 1) as u8);
            }
        }
    }
}

/// Within a host a datagram arrives before `send` returns, unless the host is very busy.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Payload of a probe datagram: longer than the largest length that encodes a byte.
const PROBE: usize = 300;

/// Which byte of its identification a probe datagram asks for: the first byte of its payload, in bits to shift by.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Byte {
    Lower = 0,
    Upper = 8,
}

/// Offset of the identification in an IPv4 header.
const IDENTIFICATION: u32 = 4;

/// Attaches a filter that truncates each datagram to 1 + b bytes of payload, where b is the lowest byte of its
/// identification shifted right by the first byte of the payload.
pub(super) fn report_ip_id_by_length(socket: &UdpSocket) -> io::Result<()> {
    use libc::{
        BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_K, BPF_LD, BPF_MISC, BPF_RET,
        BPF_RSH, BPF_TAX, BPF_X,
    };
    let payload = udp::LEN as u32;
    let mut program = [
        statement(BPF_LD | BPF_B | BPF_ABS, payload),
        statement(BPF_MISC | BPF_TAX, 0),
        statement(
            BPF_LD | BPF_H | BPF_ABS,
            (libc::SKF_NET_OFF as u32).wrapping_add(IDENTIFICATION),
        ),
        statement(BPF_ALU | BPF_RSH | BPF_X, 0),
        statement(BPF_ALU | BPF_AND | BPF_K, 0xff),
        statement(BPF_ALU | BPF_ADD | BPF_K, payload + 1),
        statement(BPF_RET | BPF_A, 0),
    ];
    attach(socket, &mut program)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use adverb_verbs::TrafficClass;

    use super::super::socket::{Remote, RoceSocket};
    use super::*;

    /// A probe that accepted everyone's datagrams learned nothing while others kept its buffer full.
    #[test]
    fn a_flood_from_others_does_not_disturb_the_probe() {
        let own = IpAddr::from([127, 0, 0, 1]);
        let probe = Arc::new(Probe::new(own).unwrap());
        let [stranger, peer] = [(); 2].map(|()| UdpSocket::bind((own, 0)).unwrap());
        let flood = || {
            for _ in 0..5000 {
                stranger.send_to(&[0; PROBE], probe.at).unwrap();
            }
        };
        flood();
        let to = Remote {
            to: peer.local_addr().unwrap(),
            class: TrafficClass(0),
        };
        let connected = RoceSocket::connected(own, to, &probe);
        let connected = connected.expect("the probe heard the connected");
        for _ in 0..3 {
            let before = connected.ip_id.next();
            flood();
            connected
                .relearn_ip_id()
                .expect("the probe heard the connected");
            assert_eq!(connected.ip_id.next(), before.wrapping_add(3));
        }
    }
}
