//! Receives datagrams: one GRO buffer per system call.

use std::net::SocketAddr;

use adverb_wire::frame::{Addresses, Flow};

use super::gro::{Boundaries, GroSplitter};
use super::socket::{LONGEST, Received, RoceSocket};

/// A receive buffer: the datagrams of the last call.
#[derive(Debug)]
pub(super) struct RxBatch {
    bytes: Vec<u8>,
    received: Option<Received>,
    /// State of the first datagram's ICRC.
    icrc: Icrc,
    /// Local address of the socket that it was filled from.
    at: SocketAddr,
}

/// State of a datagram's ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Icrc {
    /// Not checked yet.
    Unchecked,
    /// Right, with this IP identification.
    Right(u16),
    /// Wrong for every length.
    Wrong,
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    pub(super) from: SocketAddr,
    /// Local address, or that of a multicast group.
    pub(super) to: SocketAddr,
    /// Index in its GRO buffer.
    pub(super) place: u16,
    pub(super) icrc: Icrc,
    pub(super) bytes: &'a [u8],
}

#[cfg(feature = "testing")]
impl Datagram<'_> {
    /// Returns a datagram with the same addresses and other contents, whose ICRC is not checked yet.
    pub(super) const fn unchecked<'a>(&self, bytes: &'a [u8]) -> Datagram<'a> {
        Datagram {
            from: self.from,
            to: self.to,
            place: self.place,
            icrc: Icrc::Unchecked,
            bytes,
        }
    }
}

/// Returns the flow of a datagram. `None` if its addresses are of two IP versions.
pub(super) fn flow(from: SocketAddr, to: SocketAddr) -> Option<Flow> {
    Some(Flow {
        addresses: Addresses::of(from.ip(), to.ip())?,
        source_port: from.port(),
        destination_port: to.port(),
    })
}

impl Default for RxBatch {
    fn default() -> Self {
        RxBatch {
            bytes: vec![0; LONGEST],
            received: None,
            icrc: Icrc::Unchecked,
            at: SocketAddr::from(([0; 4], 0)),
        }
    }
}

impl RxBatch {
    /// Receives what is waiting at `socket`: a datagram, or a GRO buffer of several. Returns false if there is none.
    pub(super) fn fill(&mut self, socket: &RoceSocket) -> bool {
        (self.at, self.icrc) = (socket.at(), Icrc::Unchecked);
        // On an error nothing is waiting, or the network reported a failure, which retransmission handles.
        self.received = socket.receive(&mut self.bytes).ok();
        self.received.is_some()
    }

    /// The same, with the packet boundaries from the source that `gro` chooses.
    #[inline]
    pub(super) fn fill_split(&mut self, socket: &RoceSocket, gro: &mut GroSplitter) -> bool {
        match gro.boundaries() {
            Boundaries::FromKernel => {
                let is_filled = self.fill(socket);
                if let Some(received) = &self.received {
                    gro.note_kernel(received.length, received.each);
                }
                is_filled
            }
            Boundaries::FromIcrc => self.fill_whole(socket, gro),
        }
    }

    #[inline]
    fn fill_whole(&mut self, socket: &RoceSocket, gro: &mut GroSplitter) -> bool {
        let Ok((length, from)) = socket.receive_whole(&mut self.bytes) else {
            self.received = None;
            return false;
        };
        self.at = socket.at();
        let found = flow(from, self.at).and_then(|flow| gro.find(&flow, &self.bytes[..length]));
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
