//! Packets, as the sockets send and receive them.

use std::net::SocketAddr;

use adverb_verbs::TrafficClass;
use adverb_wire::frame::{Addresses, Flow};
use adverb_wire::ipv4::{self, Fragmentation, Unseen};
use adverb_wire::ipv6;

/// A peer's socket, and the traffic class of the packets to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Remote {
    pub(super) to: SocketAddr,
    pub(super) class: TrafficClass,
}

/// The destination of a packet, as the socket and the ICRC need it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) to: Remote,
    pub(super) flow: Flow,
}

impl Target {
    /// Makes the target for packets from `own`. `None` if the addresses are of two IP versions.
    pub(super) fn new(own: SocketAddr, to: Remote) -> Option<Self> {
        let flow = Flow {
            addresses: Addresses::of(own.ip(), to.to.ip())?,
            source_port: own.port(),
            destination_port: to.to.port(),
        };
        Some(Target { to, flow })
    }
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedDatagram<'a> {
    pub(super) from: SocketAddr,
    /// The local address, or a multicast group's.
    pub(super) to: SocketAddr,
    /// Index in its GRO buffer.
    pub(super) place: u16,
    pub(super) bytes: &'a [u8],
}

impl ReceivedDatagram<'_> {
    /// Returns the flow. `None` if its addresses are of two IP versions.
    pub(super) fn flow(&self) -> Option<Flow> {
        Some(Flow {
            addresses: Addresses::of(self.from.ip(), self.to.ip())?,
            source_port: self.from.port(),
            destination_port: self.to.port(),
        })
    }

    /// Returns a datagram with the same addresses and other contents.
    #[cfg(feature = "testing")]
    pub(super) const fn with_bytes<'a>(&self, bytes: &'a [u8]) -> ReceivedDatagram<'a> {
        ReceivedDatagram { bytes, ..*self }
    }
}

/// Returns the fields of the IP header that the ICRC covers and a socket does not see.
pub(super) fn unseen(identification: u16) -> Unseen {
    Unseen {
        identification,
        fragmentation: Fragmentation::Forbidden,
    }
}

/// Returns the bytes on the wire around the UDP payload of packets from or to this address: the IP header, UDP header 8,
/// Ethernet header 14, check sequence 4, preamble 8 and gap 12.
pub(super) const fn around(address: SocketAddr) -> usize {
    46 + match address {
        SocketAddr::V4(_) => ipv4::LEN,
        SocketAddr::V6(_) => ipv6::LEN,
    }
}
