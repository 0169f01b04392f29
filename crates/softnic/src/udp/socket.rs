//! The socket: packets in batches, in as few system calls as the kernel allows.
//!
//! Unconnected, since it talks to all peers; "don't fragment", so that Linux gives all packets the
//! IP identification 0, and those of a segmented batch their number in it.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::net::sockopt;

/// Bytes that the socket shall hold, each way: a burst of every peer.
const BUFFER: usize = 8 << 20;
/// Buffers of a receiving call.
const SLOTS: usize = 8;
/// A buffer's length: the kernel joins datagrams up to the longest IP packet.
const SLOT: usize = 1 << 16;

/// A UDP socket at one address.
#[derive(Debug)]
pub(super) struct RoceSocket {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl RoceSocket {
    pub(super) fn bind(at: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        let state = UdpSocketState::new((&socket).into())?;
        // Beyond the administrator's limit with the capability to, up to it without. What came of it
        // is what the window goes by.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER));
        let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER);
        Ok(RoceSocket { socket, state })
    }

    /// Bytes that wait for this process at most.
    pub(super) fn receive_buffer(&self) -> usize {
        sockopt::socket_recv_buffer_size(&self.socket).unwrap_or(0)
    }

    /// Datagrams that one call can send.
    pub(super) fn most_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends `contents`, datagrams of `segment` bytes (the last may be shorter).
    pub(super) fn send(&self, to: SocketAddr, contents: &[u8], segment: usize) -> io::Result<()> {
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents,
            segment_size: Some(segment),
            src_ip: None,
        };
        self.state.try_send((&self.socket).into(), &transmit)
    }
}

impl AsFd for RoceSocket {
    /// Readable while datagrams wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Where datagrams are received to.
pub(super) struct Inbox {
    bytes: Vec<u8>,
    metas: [RecvMeta; SLOTS],
    filled: usize,
}

/// A datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    pub(super) from: SocketAddr,
    /// Which one it is of those that the kernel joined.
    pub(super) place: u16,
    pub(super) bytes: &'a [u8],
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox")
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Inbox {
            bytes: vec![0; SLOTS * SLOT],
            metas: [RecvMeta::default(); SLOTS],
            filled: 0,
        }
    }
}

impl Inbox {
    /// Takes what waits at `socket`, up to a batch; whether there may be more.
    pub(super) fn fill(&mut self, socket: &RoceSocket) -> bool {
        let mut chunks = self.bytes.chunks_exact_mut(SLOT);
        let mut slots: [IoSliceMut<'_>; SLOTS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let received = (socket.state).recv((&socket.socket).into(), &mut slots, &mut self.metas);
        // Nothing waits; or an error of the network, which retries answer.
        self.filled = received.unwrap_or(0);
        self.filled == SLOTS
    }

    pub(super) fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        let slots = self.bytes.chunks_exact(SLOT).zip(&self.metas);
        slots.take(self.filled).flat_map(|(bytes, meta)| {
            let stride = meta.stride.max(1);
            let bytes = &bytes[..meta.len.min(SLOT)];
            let parts = bytes.chunks(stride).enumerate();
            parts.map(|(place, bytes)| Datagram {
                from: meta.addr,
                place: place as u16,
                bytes,
            })
        })
    }
}
