//! Byte streams between roles: TCP, for programs that compare RDMA with sockets.

use std::io;
use std::net::SocketAddr;

use adverb_units::Span;
use serde::{Deserialize, Serialize};

use crate::station::WaitError;

/// Where a listener accepts its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamAddress {
    /// Its address.
    pub at: SocketAddr,
    /// A random number that the peer sends first, because anyone can connect to the address.
    pub key: [u8; 16],
}

/// The streams of a station.
///
/// Sending and receiving transfer a part of the given bytes, at least one, as `send` and `recv` do.
pub trait Streams {
    /// A socket that accepts connections.
    type Listener;
    /// One end of a connection.
    type Stream;

    /// Listens at an address of this station and returns that address, for one peer. Calls `note` after each step.
    ///
    /// # Errors
    /// The address belongs to another host, or its port is in use.
    fn listen_by_step(
        &self,
        note: Note<'_>,
    ) -> Result<(Self::Listener, StreamAddress), StreamError>;

    /// Listens at an address of this station and returns that address, for one peer.
    ///
    /// # Errors
    /// The address belongs to another host, or its port is in use.
    fn listen(&self) -> Result<(Self::Listener, StreamAddress), StreamError> {
        self.listen_by_step(&mut |_| ())
    }

    /// Sleeps until the peer connects. Connections without the listener's key are closed.
    ///
    /// # Errors
    /// Timeout, or the system failed.
    fn accept(&self, listener: &Self::Listener, timeout: Span) -> Result<Self::Stream, WaitError>;

    /// Connects to a listening peer. Calls `note` after each step.
    ///
    /// # Errors
    /// Timeout, or the peer cannot be reached or refuses.
    fn connect_by_step(
        &self,
        to: StreamAddress,
        timeout: Span,
        note: Note<'_>,
    ) -> Result<Self::Stream, WaitError>;

    /// Connects to a listening peer.
    ///
    /// # Errors
    /// Timeout, or the peer cannot be reached or refuses.
    fn connect(&self, to: StreamAddress, timeout: Span) -> Result<Self::Stream, WaitError> {
        self.connect_by_step(to, timeout, &mut |_| ())
    }

    /// Ends both directions of a connection. Dropping the stream closes it.
    ///
    /// # Errors
    /// The system failed. It is not an error if the peer has ended the connection first.
    fn shutdown(&self, stream: &Self::Stream) -> Result<(), StreamError>;

    /// Sends as much of `bytes` as there is room for and returns how much; waits for room.
    ///
    /// # Errors
    /// Timeout, or the connection has ended.
    fn send_some(
        &self,
        stream: &Self::Stream,
        bytes: &[u8],
        how: StreamWait,
        timeout: Span,
    ) -> Result<usize, WaitError>;

    /// Receives what has arrived, as far as `into` has room, and returns how much; waits for it.
    ///
    /// # Errors
    /// Timeout, or the connection has ended.
    fn receive_some(
        &self,
        stream: &Self::Stream,
        into: &mut [u8],
        how: StreamWait,
        timeout: Span,
    ) -> Result<usize, WaitError>;

    /// Receives what has arrived, as far as `into` has room, without waiting, and returns how much.
    ///
    /// # Errors
    /// The connection has ended.
    fn receive_arrived(&self, stream: &Self::Stream, into: &mut [u8]) -> Result<usize, WaitError> {
        match self.receive_some(stream, into, StreamWait::Poll, Span::ZERO) {
            Err(WaitError::TimedOut { .. }) => Ok(0),
            received => received,
        }
    }
}

/// Called after each step.
pub type Note<'n> = &'n mut dyn FnMut(StreamStep);

/// A step towards a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStep {
    /// Made a socket and set its options.
    Socket,
    /// Bound it to an address.
    Bind,
    /// Listened.
    Listen,
    /// Connected.
    Connect,
}

/// How a role waits for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamWait {
    /// Non-blocking calls, again and again.
    Poll,
    /// A call that blocks.
    Sleep,
}

/// A stream failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// Nothing can listen at the address.
    #[error("cannot listen at {at}: {source}; {}", listen_remedy(source))]
    Listen {
        /// The address.
        at: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The peer cannot be reached.
    #[error(
        "cannot connect to {to}: {source}; check that its address is reached from here (`ip route get`) and that no firewall blocks the port"
    )]
    Connect {
        /// The address of the peer.
        to: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The peer has closed the connection, or its host has reset it.
    #[error("the peer has closed the connection")]
    Closed,
    /// The system failed.
    #[error("the connection failed: {0}")]
    System(#[from] io::Error),
}

fn listen_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "name a free port, or leave the port out",
        io::ErrorKind::AddrNotAvailable => "name an address of this host (`ip address`)",
        _ => "name another address or port",
    }
}
