//! Receives datagrams: one GRO buffer per system call.
//!
//! The kernel joins packets of one flow and one length, and reports this length (the segment size). The last packet may
//! be shorter. So cutting the buffer at multiples of the segment size gives the packets that were sent.

use std::net::SocketAddr;

use super::packet::ReceivedDatagram;
use super::packet::around;
use super::socket::{LONGEST, Received, RoceSocket};
use adverb_impair::Route;

/// A receive buffer: the datagrams of the last call.
#[derive(Debug)]
pub(super) struct RxBatch {
    bytes: Vec<u8>,
    received: Option<Received>,
    /// Local address of the socket that it was filled from.
    at: SocketAddr,
}

impl Route for ReceivedDatagram<'_> {
    fn around(&self) -> usize {
        around(self.from)
    }
}

impl Default for RxBatch {
    fn default() -> Self {
        RxBatch {
            bytes: vec![0; LONGEST],
            received: None,
            at: SocketAddr::from(([0; 4], 0)),
        }
    }
}

impl RxBatch {
    /// Receives what is waiting at `socket`: a datagram, or a GRO buffer of several. Returns false if there is none.
    #[inline]
    pub(super) fn fill(&mut self, socket: &RoceSocket) -> bool {
        self.at = socket.at();
        // On an error nothing is waiting, or the network reported a failure, which retransmission handles.
        self.received = socket.receive(&mut self.bytes).ok();
        if let Some(capture) = socket.capture() {
            capture.received(self.datagrams());
        }
        self.received.is_some()
    }

    pub(super) fn datagrams(&self) -> impl Iterator<Item = ReceivedDatagram<'_>> {
        self.received.iter().flat_map(|received| {
            let parts = self.bytes[..received.length].chunks(received.segment);
            parts.enumerate().map(|(place, bytes)| ReceivedDatagram {
                from: received.from,
                to: self.at,
                place: place as u16,
                bytes,
            })
        })
    }
}
