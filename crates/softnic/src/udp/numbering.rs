//! The identification of IPv4 packets, which the ICRC covers and a socket does not see.
//!
//! Linux gives 0 to packets that may not be fragmented, and to those of a batch their place in it, as long
//! as their socket is not connected. A connected socket counts its calls from a random number on: a batch
//! takes one number, and its packets those from there on.
//!
//! Where the count is the kernel does not tell. But the filter of a receiving socket sees the IP header, and
//! may shorten what comes: here it leaves so many bytes of a datagram as a byte of its identification says.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use adverb_wire::udp;

use super::filter::{attach, statement};
use crate::port::lock;

/// What the packets of a socket are numbered from.
#[derive(Debug)]
pub(super) enum Numbering {
    /// Each call from 0. (Over IPv6 there are no such numbers.)
    Zero,
    /// The next call from here. One thread at a time sends.
    Counted(AtomicU16),
}

impl Numbering {
    /// That of the next call's first packet.
    #[inline]
    pub(super) fn next(&self) -> u16 {
        match self {
            Numbering::Zero => 0,
            Numbering::Counted(next) => next.load(Ordering::Relaxed),
        }
    }

    /// How far apart the numbers of so many calls are.
    #[inline]
    pub(super) fn after(&self, calls: usize) -> u16 {
        match self {
            Numbering::Zero => 0,
            Numbering::Counted(_) => calls as u16,
        }
    }

    /// So many calls were made.
    #[inline]
    pub(super) fn count(&self, calls: usize) {
        if let Numbering::Counted(next) = self {
            let after = next.load(Ordering::Relaxed).wrapping_add(calls as u16);
            next.store(after, Ordering::Relaxed);
        }
    }

    /// Goes on where another stands.
    pub(super) fn set(&self, other: &Self) {
        if let Numbering::Counted(next) = self {
            next.store(other.next(), Ordering::Relaxed);
        }
    }

    /// Learns that of a connected socket.
    pub(super) fn learn(socket: &UdpSocket, probe: &Probe) -> io::Result<Self> {
        // One at a time, for each hears what comes for all.
        let _turn = lock(&probe.turn);
        let byte = |part| probe.byte(socket, part);
        let (upper, lower, after) = (byte(Byte::Upper)?, byte(Byte::Lower)?, byte(Byte::Lower)?);
        if after != lower.wrapping_add(1) {
            return Err(io::Error::other("the kernel does not count"));
        }
        let first = u16::from_be_bytes([upper, lower.wrapping_sub(1)]);
        Ok(Numbering::Counted(AtomicU16::new(first.wrapping_add(3))))
    }
}

/// A socket to which others send to learn how they are numbered.
#[derive(Debug)]
pub(super) struct Probe {
    socket: UdpSocket,
    at: SocketAddr,
    turn: Mutex<()>,
}

impl Probe {
    /// At an address of the calling thread's network namespace. From then on any thread may use it.
    pub(super) fn new(own: IpAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind((own, 0))?;
        let at = socket.local_addr()?;
        // What anybody sends does not come in: it would take the place of what is waited for.
        socket.connect(at)?;
        tell_by_length(&socket)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let turn = Mutex::default();
        Ok(Probe { socket, at, turn })
    }

    /// From now on nothing comes.
    #[cfg(all(test, not(loom)))]
    pub(super) fn listen_to_nobody(&self) {
        let nothing = statement(libc::BPF_RET | libc::BPF_K, 0);
        attach(&self.socket, &mut [nothing]).expect("a filter");
    }

    /// A byte of the number of the next packet that `from` sends.
    fn byte(&self, from: &UdpSocket, part: Byte) -> io::Result<u8> {
        let sender = from.local_addr()?;
        self.socket.connect(sender)?;
        from.send_to(&[part as u8; PROBE], self.at)?;
        // What came from others did so before this socket was connected, and ends.
        loop {
            let (length, came_from) = self.socket.recv_from(&mut [0; PROBE])?;
            if came_from == sender && length != 0 {
                return Ok((length - 1) as u8);
            }
        }
    }
}

/// On this host a datagram is there when it is sent, unless the host is very busy.
const PATIENCE: Duration = Duration::from_millis(100);
/// Longer than any byte says.
const PROBE: usize = 300;

/// What a probe is to tell of its identification: the first byte of its payload, by which it is shifted.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Byte {
    Lower = 0,
    Upper = 8,
}

/// Where the identification is in an IPv4 header.
const IDENTIFICATION: u32 = 4;

/// From now on a datagram to `socket` has one more byte than its identification, shifted by its first byte,
/// says in its lowest byte.
pub(super) fn tell_by_length(socket: &UdpSocket) -> io::Result<()> {
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

    /// Once others could fill the probe's buffer, and nothing was learned for as long as they sent.
    #[test]
    fn a_flood_of_others_does_not_keep_numbers_from_being_learned() {
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
        let lane = RoceSocket::lane(own, to, &probe);
        let lane = lane.expect("the probe heard the lane");
        for _ in 0..3 {
            let before = lane.numbering.next();
            flood();
            lane.count_anew().expect("the probe heard the lane");
            assert_eq!(lane.numbering.next(), before.wrapping_add(3));
        }
    }
}
