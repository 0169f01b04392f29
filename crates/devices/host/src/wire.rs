//! Frames over a stream socket for an owner that sleeps in `poll` and must not block.
//!
//! It uses the frames of [`Link`](crate::Link): a length (u32, little-endian) and that many bytes. Unsent data
//! and incomplete frames are buffered.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use adverb_units::Bytes;
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;

use crate::link::{MAX_FRAME, is_gone, take_frame};

/// An idle connection is probed after this time …
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// … this many times …
const PROBES: u32 = 3;
/// … at this interval, which is also the timeout for the other host's acknowledgement.
const PROBE_EVERY: Duration = Duration::from_secs(2);
const UNACKNOWLEDGED_MS: u32 = 10_000;

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The other end closed it, or its process ended.
    #[error("the connection was closed by the other end")]
    Closed,
    /// A frame exceeds the maximum.
    #[error("frame of {given} exceeds the maximum of {max}")]
    TooLong {
        /// The announced length.
        given: Bytes,
        /// The maximum.
        max: Bytes,
    },
    /// The system, or the network.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// One end of a TCP connection or, within a host, of a Unix socket pair.
#[derive(Debug)]
pub struct Wire<S = TcpStream> {
    stream: S,
    /// Maximum length of a received frame.
    longest: Bytes,
    arrived: Vec<u8>,
    unsent: Vec<u8>,
    last_heard: Instant,
    last_sent: Instant,
}

impl Wire {
    /// Connects to `address`.
    ///
    /// # Errors
    /// The connection was refused, or timed out after `timeout`.
    pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        Wire::new(TcpStream::connect_timeout(&address, timeout)?)
    }

    /// Uses a connected stream, which becomes nonblocking and detects when the other host is gone.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, PROBE_AFTER)?;
        sockopt::set_tcp_keepintvl(&stream, PROBE_EVERY)?;
        sockopt::set_tcp_keepcnt(&stream, PROBES)?;
        sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MS)?;
        Ok(Wire::over(stream))
    }

    /// Returns the address of this end.
    pub fn local_ip(&self) -> io::Result<IpAddr> {
        Ok(self.stream.local_addr()?.ip())
    }

    /// Closes the sending direction. Data from the other end can still be received.
    pub fn finish(&self) {
        // The connection may have ended already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

impl Wire<UnixStream> {
    /// Uses a connected local stream, which becomes nonblocking.
    pub fn local(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Wire::over(stream))
    }
}

impl<S: AsFd> Wire<S>
where
    for<'s> &'s S: Read + Write,
{
    fn over(stream: S) -> Self {
        let now = Instant::now();
        Wire {
            stream,
            longest: MAX_FRAME,
            arrived: Vec::new(),
            unsent: Vec::new(),
            last_heard: now,
            last_sent: now,
        }
    }

    /// Limits received frames to `longest`.
    pub fn take_at_most(&mut self, longest: Bytes) {
        self.longest = longest;
    }

    /// Sends a frame that consists of these pieces; data that does not fit is sent later.
    ///
    /// # Errors
    /// [`WireError::TooLong`] beyond [`MAX_FRAME`]; otherwise the connection has ended.
    pub fn send(&mut self, pieces: &[&[u8]]) -> Result<(), WireError> {
        let given = Bytes::new(pieces.iter().map(|piece| piece.len() as u64).sum());
        if given > MAX_FRAME {
            let max = MAX_FRAME;
            return Err(WireError::TooLong { given, max });
        }
        let length = u32::try_from(given.get()).unwrap_or(u32::MAX);
        self.unsent.extend_from_slice(&length.to_le_bytes());
        for piece in pieces {
            self.unsent.extend_from_slice(piece);
        }
        self.flush()
    }

    /// Sends unsent data as far as it fits.
    pub fn flush(&mut self) -> Result<(), WireError> {
        let mut sent = 0;
        let result = loop {
            if sent == self.unsent.len() {
                break Ok(());
            }
            match (&self.stream).write(&self.unsent[sent..]) {
                Ok(n) => {
                    sent += n;
                    self.last_sent = Instant::now();
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => break Err(ended(e)),
            }
        };
        self.unsent.drain(..sent);
        result
    }

    /// Returns the next frame, if it has arrived completely.
    ///
    /// # Errors
    /// The connection has ended, and all frames before that have been returned.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        let mut piece = [0; 4096];
        loop {
            match take_frame(&mut self.arrived, self.longest) {
                Ok(None) => {}
                Ok(frame) => return Ok(frame),
                Err(given) => {
                    let max = self.longest;
                    return Err(WireError::TooLong { given, max });
                }
            }
            match (&self.stream).read(&mut piece) {
                Ok(0) => return Err(WireError::Closed),
                Ok(n) => {
                    self.arrived.extend_from_slice(&piece[..n]);
                    self.last_heard = Instant::now();
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(ended(e)),
            }
        }
    }

    /// Returns what to poll for: data to receive, or room to send.
    pub fn poll_fd(&self) -> PollFd<'_> {
        let room = if self.unsent.is_empty() {
            PollFlags::empty()
        } else {
            PollFlags::OUT
        };
        PollFd::new(&self.stream, PollFlags::IN | room)
    }

    /// Returns the amount of unsent data.
    pub fn unsent(&self) -> Bytes {
        Bytes::new(self.unsent.len() as u64)
    }

    /// Returns when data last arrived, initially the time of the connection.
    pub fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// Returns when data was last sent, initially the time of the connection.
    pub fn last_sent(&self) -> Instant {
        self.last_sent
    }
}

fn ended(e: io::Error) -> WireError {
    if is_gone(&e) {
        WireError::Closed
    } else {
        WireError::System(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Wire, Wire) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let one = Wire::connect(address, Duration::from_secs(5)).unwrap();
        (one, Wire::new(listener.accept().unwrap().0).unwrap())
    }

    /// The next frame, which is on its way; room is made for `from` to send it.
    fn next(to: &mut Wire, from: &mut Wire) -> Result<Vec<u8>, WireError> {
        let start = Instant::now();
        loop {
            from.flush()?;
            if let Some(frame) = to.receive()? {
                return Ok(frame);
            }
            assert!(start.elapsed() < Duration::from_secs(20), "nothing came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn frames_larger_than_the_sockets_buffers_pass_without_blocking() {
        let (mut a, mut b) = pair();
        let long = vec![7; MAX_FRAME.as_usize()];
        for _ in 0..3 {
            a.send(&[&long]).unwrap();
        }
        a.send(&[b"la", b"st"]).unwrap();
        for _ in 0..3 {
            assert_eq!(next(&mut b, &mut a).unwrap(), long);
        }
        assert_eq!(next(&mut b, &mut a).unwrap(), b"last");
        assert!(b.receive().unwrap().is_none());
    }

    #[test]
    fn frames_that_are_too_long_are_refused_at_both_ends() {
        let (mut a, mut b) = pair();
        let long = vec![0; MAX_FRAME.as_usize() + 1];
        assert!(matches!(a.send(&[&long]), Err(WireError::TooLong { .. })));
        b.take_at_most(Bytes::new(4));
        a.send(&[b"12345"]).unwrap();
        let mut sink = pair().0;
        let error = next(&mut b, &mut sink).unwrap_err();
        let told = "frame of 5 B exceeds the maximum of 4 B";
        assert_eq!(error.to_string(), told);
    }

    #[test]
    fn the_end_comes_after_the_last_frame() {
        let (mut a, mut b) = pair();
        a.send(&[b"last words"]).unwrap();
        drop(a);
        let mut sink = pair().0;
        assert_eq!(next(&mut b, &mut sink).unwrap(), b"last words");
        let end = next(&mut b, &mut sink);
        assert!(matches!(end, Err(WireError::Closed)), "{end:?}");
    }
}
