//! Datagrams on their way from the socket: as many at a time as the kernel has joined.

use std::net::SocketAddr;

use adverb_wire::frame::{Addresses, Flow};

use super::seams::{Seams, Way};
use super::socket::{LONGEST, Received, RoceSocket};

/// Where datagrams are received to.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    received: Option<Received>,
    /// Of the first datagram.
    icrc: Icrc,
    /// Address of the socket that it was filled at.
    at: SocketAddr,
}

/// What is known of the ICRC of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Icrc {
    /// Nothing yet.
    Unchecked,
    /// It is right, with this identification.
    Right(u16),
    /// It is not right, whatever the length.
    Wrong,
}

/// A datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    pub(super) from: SocketAddr,
    /// This side's address, or a group's.
    pub(super) to: SocketAddr,
    /// Which one it is of those that the kernel joined.
    pub(super) place: u16,
    pub(super) icrc: Icrc,
    pub(super) bytes: &'a [u8],
}

/// The flow that a datagram belongs to; none where its addresses are of two versions.
pub(super) fn flow(from: SocketAddr, to: SocketAddr) -> Option<Flow> {
    Some(Flow {
        addresses: Addresses::of(from.ip(), to.ip())?,
        source_port: from.port(),
        destination_port: to.port(),
    })
}

impl Default for Inbox {
    fn default() -> Self {
        Inbox {
            bytes: vec![0; LONGEST],
            received: None,
            icrc: Icrc::Unchecked,
            at: SocketAddr::from(([0; 4], 0)),
        }
    }
}

impl Inbox {
    /// Takes a datagram that waits at `socket`, or several that the kernel has joined; whether there
    /// was one.
    pub(super) fn fill(&mut self, socket: &RoceSocket) -> bool {
        (self.at, self.icrc) = (socket.at(), Icrc::Unchecked);
        // Nothing waits; or an error of the network, which retries answer.
        self.received = socket.receive(&mut self.bytes).ok();
        self.received.is_some()
    }

    /// The same, in the way that `seams` finds best.
    #[inline]
    pub(super) fn fill_by(&mut self, socket: &RoceSocket, seams: &mut Seams) -> bool {
        match seams.way() {
            Way::Told => {
                let is_filled = self.fill(socket);
                if let Some(received) = &self.received {
                    seams.told(received.length, received.each);
                }
                is_filled
            }
            Way::Found => self.fill_plainly(socket, seams),
        }
    }

    #[inline]
    fn fill_plainly(&mut self, socket: &RoceSocket, seams: &mut Seams) -> bool {
        let Ok((length, from)) = socket.receive_plainly(&mut self.bytes) else {
            self.received = None;
            return false;
        };
        self.at = socket.at();
        let found = flow(from, self.at).and_then(|flow| seams.find(&flow, &self.bytes[..length]));
        let (each, icrc) = match found {
            Some((each, identification)) => (each, Icrc::Right(identification)),
            None => (length.max(1), Icrc::Wrong),
        };
        self.icrc = icrc;
        self.received = Some(Received { from, length, each });
        true
    }

    pub(super) fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.received.iter().flat_map(|received| {
            let parts = self.bytes[..received.length].chunks(received.each);
            parts.enumerate().map(|(place, bytes)| Datagram {
                from: received.from,
                to: self.at,
                place: place as u16,
                icrc: match place {
                    0 => self.icrc,
                    _ => Icrc::Unchecked,
                },
                bytes,
            })
        })
    }
}
