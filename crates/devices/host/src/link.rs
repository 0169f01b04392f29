//! Out-of-band messages between two roles.
//!
//! A frame is its length (u32, little-endian) and that many bytes, at most [`MAX_MESSAGE`]. The
//! stream below is a Unix socket between processes of one host, or TCP between hosts.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use adverb_units::{Bytes, Span};
use adverb_verbs::{OutOfBandError, RoleId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Longest message between roles.
pub const MAX_MESSAGE: Bytes = Bytes::mib(1);
/// Longest frame between processes, which may also contain a role's report.
pub const MAX_FRAME: Bytes = Bytes::mib(8);

/// Timeout for sending a message when the stream is full.
pub(crate) const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Length of a frame's header.
const HEADER: usize = size_of::<u32>();

/// A byte stream that reads and writes with timeouts.
pub trait Stream: Send {
    /// Reads some bytes; 0 at the end of the stream.
    fn read(&self, into: &mut [u8]) -> io::Result<usize>;

    /// Writes all bytes.
    fn write_all(&self, bytes: &[u8]) -> io::Result<()>;

    /// Whether a read would end at once.
    fn is_readable(&self) -> io::Result<bool>;

    /// Sets the timeout of reads; `None` waits indefinitely.
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// Sets the timeout of writes; `None` waits indefinitely.
    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
}

macro_rules! stream {
    ($($type:ty),+) => {$(
        impl Stream for $type {
            fn read(&self, into: &mut [u8]) -> io::Result<usize> {
                Read::read(&mut &*self, into)
            }
            fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
                Write::write_all(&mut &*self, bytes)
            }
            fn is_readable(&self) -> io::Result<bool> {
                let mut fds = [PollFd::new(self, PollFlags::IN)];
                match poll(&mut fds, Some(&Timespec::default())) {
                    Err(Errno::INTR) => Ok(false),
                    ready => Ok(ready? > 0),
                }
            }
            fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                <$type>::set_read_timeout(self, timeout)
            }
            fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                <$type>::set_write_timeout(self, timeout)
            }
        }
    )+};
}

stream!(UnixStream, TcpStream);

/// One end of an out-of-band channel.
pub struct Link<T: Stream = UnixStream> {
    stream: T,
    /// Received bytes: a frame may arrive in parts, across timeouts.
    arrived: Cell<Vec<u8>>,
}

impl Link<UnixStream> {
    /// Two ends that are connected to each other.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Link::new(one)?, Link::new(other)?))
    }
}

impl<T: Stream> Link<T> {
    /// One end over `stream`.
    pub fn new(stream: T) -> io::Result<Self> {
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Link {
            stream,
            arrived: Cell::default(),
        })
    }

    /// Sends `message`; `peer` names the other end in errors.
    pub fn send(&self, peer: RoleId, message: &[u8]) -> Result<(), OutOfBandError> {
        let length = u32::try_from(message.len())
            .ok()
            .filter(|n| u64::from(*n) <= MAX_MESSAGE.get())
            .ok_or_else(|| too_long(message.len() as u64))?;
        let frame = [&length.to_le_bytes(), message].concat();
        self.stream.write_all(&frame).map_err(|e| match e.kind() {
            _ if is_gone(&e) => OutOfBandError::PeerGone(peer),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => OutOfBandError::TimedOut {
                role: peer,
                timeout: SEND_TIMEOUT.into(),
            },
            _ => OutOfBandError::System(e),
        })
    }

    /// Waits for the next message; `peer` names the other end in errors.
    pub fn receive(&self, peer: RoleId, timeout: Span) -> Result<Vec<u8>, OutOfBandError> {
        let mut arrived = self.arrived.take();
        let message = self.receive_into(&mut arrived, peer, timeout);
        self.arrived.set(arrived);
        message
    }

    fn receive_into(
        &self,
        arrived: &mut Vec<u8>,
        peer: RoleId,
        timeout: Span,
    ) -> Result<Vec<u8>, OutOfBandError> {
        let deadline = Instant::now().checked_add(timeout.into());
        let mut piece = [0; 4096];
        loop {
            let taken = take_frame(arrived, MAX_MESSAGE);
            if let Some(message) = taken.map_err(|given| too_long(given.get()))? {
                return Ok(message);
            }
            if timeout == Span::ZERO && !self.stream.is_readable()? {
                // The shortest timeout of a socket is a tick of the kernel: milliseconds.
                let role = peer;
                return Err(OutOfBandError::TimedOut { role, timeout });
            }
            // A timeout of zero would mean no timeout.
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let left = left.map(|d| d.max(Duration::from_micros(1)));
            self.stream.set_read_timeout(left)?;
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(OutOfBandError::PeerGone(peer)),
                Ok(n) => arrived.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if deadline.is_some_and(|d| Instant::now() >= d) {
                        let role = peer;
                        return Err(OutOfBandError::TimedOut { role, timeout });
                    }
                }
                Err(e) if is_gone(&e) => return Err(OutOfBandError::PeerGone(peer)),
                Err(e) => return Err(OutOfBandError::System(e)),
            }
        }
    }
}

/// Removes the first frame from `arrived`, if it is complete. The error is the length of a frame that exceeds
/// `longest`.
pub(crate) fn take_frame(arrived: &mut Vec<u8>, longest: Bytes) -> Result<Option<Vec<u8>>, Bytes> {
    let Some(header) = arrived.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*header);
    let given = Bytes::new(length.into());
    if given > longest {
        return Err(given);
    }
    let end = HEADER + length as usize;
    if arrived.len() < end {
        return Ok(None);
    }
    let message = arrived[HEADER..end].to_vec();
    arrived.drain(..end);
    Ok(Some(message))
}

pub(crate) fn too_long(given: u64) -> OutOfBandError {
    OutOfBandError::TooLong {
        given,
        max: MAX_MESSAGE.get(),
    }
}

/// Whether the other end is gone.
pub(crate) fn is_gone(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PEER: RoleId = RoleId(7);
    const SOON: Span = Span::from_ms(20);
    const LATE: Span = Span::from_secs(10);

    #[test]
    fn messages_keep_their_borders_and_order() {
        let (a, b) = Link::pair().unwrap();
        for message in [&b"one"[..], b"", &[9; 5000]] {
            a.send(PEER, message).unwrap();
        }
        assert_eq!(b.receive(PEER, LATE).unwrap(), b"one");
        assert_eq!(b.receive(PEER, LATE).unwrap(), b"");
        assert_eq!(b.receive(PEER, LATE).unwrap(), [9; 5000]);
    }

    #[test]
    fn the_longest_message_passes_and_a_longer_one_is_refused() {
        let (a, b) = Link::pair().unwrap();
        let longest = vec![1; MAX_MESSAGE.as_usize()];
        let sent = longest.clone();
        let sender = std::thread::spawn(move || a.send(PEER, &sent).map(|()| a).unwrap());
        assert_eq!(b.receive(PEER, LATE).unwrap(), longest);
        let a = sender.join().unwrap();
        let error = a.send(PEER, &[longest, vec![1]].concat()).unwrap_err();
        assert!(matches!(error, OutOfBandError::TooLong { given, .. } if given == (1 << 20) + 1));
    }

    #[test]
    fn a_header_that_announces_too_much_is_refused() {
        let (a, b) = UnixStream::pair().unwrap();
        Write::write_all(&mut &a, &u32::MAX.to_le_bytes()).unwrap();
        let b = Link::new(b).unwrap();
        let error = b.receive(PEER, LATE).unwrap_err();
        assert!(matches!(error, OutOfBandError::TooLong { .. }), "{error}");
    }

    #[test]
    fn silence_times_out_and_half_a_frame_is_kept() {
        let (a, b) = UnixStream::pair().unwrap();
        let b = Link::new(b).unwrap();
        Write::write_all(&mut &a, &[3, 0, 0, 0, b'a']).unwrap();
        let error = b.receive(PEER, SOON).unwrap_err();
        assert!(
            matches!(error, OutOfBandError::TimedOut { role: PEER, .. }),
            "{error}"
        );
        Write::write_all(&mut &a, b"bc").unwrap();
        assert_eq!(b.receive(PEER, LATE).unwrap(), b"abc");
        assert!(b.receive(PEER, Span::ZERO).is_err());
    }

    #[test]
    fn the_end_of_the_other_side_is_told_after_what_it_said() {
        let (a, b) = Link::pair().unwrap();
        a.send(PEER, b"last words").unwrap();
        drop(a);
        assert_eq!(b.receive(PEER, LATE).unwrap(), b"last words");
        let receive = b.receive(PEER, LATE).unwrap_err();
        assert!(
            matches!(receive, OutOfBandError::PeerGone(PEER)),
            "{receive}"
        );
        let send = b.send(PEER, b"x").unwrap_err();
        assert!(matches!(send, OutOfBandError::PeerGone(PEER)), "{send}");
    }

    #[test]
    fn tcp_carries_the_same_frames() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = Link::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
        let b = Link::new(listener.accept().unwrap().0).unwrap();
        a.send(PEER, b"over tcp").unwrap();
        assert_eq!(b.receive(PEER, LATE).unwrap(), b"over tcp");
    }
}
