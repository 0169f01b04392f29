//! The roles' side of a star: each process of roles has one socket to its parent, the hub, which forwards
//! messages to the roles of other processes and hosts.
//!
//! A frame is a length (u32, little-endian), a kind (one byte) and:
//!
//! ```text
//! M  sender (u32), receiver (u32), bytes   an out-of-band message between roles
//! E  role (u32)                            the role has ended and sends nothing more
//! C  bytes                                 between the hub and the process itself
//! ```

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use adverb_units::Span;
use adverb_verbs::{OutOfBandError, RoleId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::link::{MAX_FRAME, MAX_MESSAGE, SEND_TIMEOUT, is_gone, take_frame, too_long};

const MESSAGE: u8 = b'M';
const ENDED: u8 = b'E';
const CONTROL: u8 = b'C';
/// Longest wait in one system call; longer waits are repeated.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// A frame without its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubFrame {
    /// An out-of-band message.
    Message {
        /// The sender.
        from: RoleId,
        /// The receiver.
        to: RoleId,
        /// The message.
        bytes: Vec<u8>,
    },
    /// A role has ended.
    Ended(RoleId),
    /// A message between the hub and the process itself.
    Control(Vec<u8>),
}

impl HubFrame {
    /// The bytes of the frame.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            HubFrame::Message { from, to, bytes } => {
                let (from, to) = (from.0.to_le_bytes(), to.0.to_le_bytes());
                [&[MESSAGE], &from[..], &to, bytes].concat()
            }
            HubFrame::Ended(role) => [&[ENDED], &role.0.to_le_bytes()[..]].concat(),
            HubFrame::Control(bytes) => [&[CONTROL], &bytes[..]].concat(),
        }
    }

    /// Reads a frame; `None` if it is malformed.
    pub fn read(frame: &[u8]) -> Option<Self> {
        let (kind, rest) = frame.split_first()?;
        let role = |bytes: &[u8; 4]| RoleId(u32::from_le_bytes(*bytes));
        match *kind {
            MESSAGE => {
                let (from, rest) = rest.split_first_chunk()?;
                let (to, bytes) = rest.split_first_chunk()?;
                let bytes = bytes.to_vec();
                let (from, to) = (role(from), role(to));
                Some(HubFrame::Message { from, to, bytes })
            }
            ENDED => Some(HubFrame::Ended(role(rest.try_into().ok()?))),
            CONTROL => Some(HubFrame::Control(rest.to_vec())),
            _ => None,
        }
    }
}

/// A process's socket to the hub, which its roles share.
pub struct HubLink {
    stream: UnixStream,
    /// Held while a frame is written.
    sending: Mutex<()>,
    inbox: Mutex<Inbox>,
    /// Signalled when the thread that reads from the socket has put something into the inbox.
    arrived: Condvar,
}

/// What has arrived.
#[derive(Default)]
struct Inbox {
    /// The beginning of a frame.
    partial: Vec<u8>,
    /// Messages by sender and receiver.
    messages: HashMap<(RoleId, RoleId), VecDeque<Vec<u8>>>,
    control: VecDeque<Vec<u8>>,
    ended: HashSet<RoleId>,
    /// The hub has closed the socket.
    is_closed: bool,
    /// A thread waits at the socket; the others wait for it.
    has_reader: bool,
}

impl Inbox {
    /// Sorts the frames in `bytes`.
    fn take_in(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        loop {
            match take_frame(&mut self.partial, MAX_FRAME) {
                Ok(None) => return,
                Ok(Some(frame)) => match HubFrame::read(&frame) {
                    Some(HubFrame::Message { from, to, bytes }) => {
                        self.messages
                            .entry((from, to))
                            .or_default()
                            .push_back(bytes);
                    }
                    Some(HubFrame::Ended(role)) => drop(self.ended.insert(role)),
                    Some(HubFrame::Control(bytes)) => self.control.push_back(bytes),
                    None => self.is_closed = true,
                },
                Err(_) => {
                    self.is_closed = true;
                    return;
                }
            }
        }
    }

    fn is_gone(&self, role: RoleId) -> bool {
        self.is_closed || self.ended.contains(&role)
    }
}

impl HubLink {
    /// Uses a connected stream, with a timeout of a few seconds for writes.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(HubLink {
            stream,
            sending: Mutex::default(),
            inbox: Mutex::default(),
            arrived: Condvar::default(),
        })
    }

    /// Sends a frame.
    pub fn send(&self, frame: &HubFrame) -> io::Result<()> {
        let body = frame.to_bytes();
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.stream).write_all(&[&length.to_le_bytes(), &body[..]].concat())
    }

    /// Waits for the hub's next message to this process; `None` if there was none within `timeout`.
    ///
    /// # Errors
    /// The hub has closed the socket.
    pub fn control(&self, timeout: Span) -> io::Result<Option<Vec<u8>>> {
        let taken = self.wait(timeout, |inbox| match inbox.control.pop_front() {
            None if inbox.is_closed => Some(None),
            None => None,
            some => Some(some),
        })?;
        match taken {
            Some(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(some) => Ok(some),
            None => Ok(None),
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `take` finds something. One of the waiting threads reads from the socket.
    fn wait<R>(
        &self,
        timeout: Span,
        mut take: impl FnMut(&mut Inbox) -> Option<R>,
    ) -> io::Result<Option<R>> {
        let deadline = Instant::now().checked_add(timeout.into());
        let mut has_looked = false;
        let mut inbox = self.inbox();
        loop {
            if let Some(found) = take(&mut inbox) {
                return Ok(Some(found));
            }
            let left = deadline.map_or(LONGEST_WAIT, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if has_looked && left.is_zero() {
                return Ok(None);
            }
            has_looked = true;
            if inbox.has_reader {
                let waited = self.arrived.wait_timeout(inbox, left);
                inbox = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            inbox.has_reader = true;
            drop(inbox);
            let mut bytes = [0; 16 * 1024];
            let read = self.read(&mut bytes, left);
            inbox = self.inbox();
            inbox.has_reader = false;
            self.arrived.notify_all();
            match read? {
                None => {}
                Some(0) => inbox.is_closed = true,
                Some(n) => inbox.take_in(&bytes[..n]),
            }
        }
    }

    /// Reads some bytes, 0 at the end of the stream; `None` if none arrive within `timeout`.
    fn read(&self, into: &mut [u8], timeout: Duration) -> io::Result<Option<usize>> {
        let timeout = Timespec::try_from(timeout.min(LONGEST_WAIT)).ok();
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        match recv(&self.stream, into, RecvFlags::DONTWAIT) {
            Ok((_, n)) => Ok(Some(n)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            // The hub closed the socket with unread data.
            Err(Errno::CONNRESET) => Ok(Some(0)),
            Err(e) => Err(e.into()),
        }
    }
}

/// A role's mailbox on its process's socket.
#[derive(Clone)]
pub struct HubMail {
    link: Arc<HubLink>,
    role: RoleId,
    roles: u32,
}

impl HubMail {
    /// Returns the mailbox of `role`, one of `roles` of the program.
    pub fn new(link: Arc<HubLink>, role: RoleId, roles: u32) -> Self {
        HubMail { link, role, roles }
    }

    fn check(&self, peer: RoleId) -> Result<(), OutOfBandError> {
        match peer.0 < self.roles {
            true => Ok(()),
            false => Err(OutOfBandError::NoSuchRole(peer)),
        }
    }

    /// Sends `message` to role `to`.
    pub(crate) fn send(&self, to: RoleId, message: &[u8]) -> Result<(), OutOfBandError> {
        self.check(to)?;
        if message.len() as u64 > MAX_MESSAGE.get() {
            return Err(too_long(message.len() as u64));
        }
        // A message about the end of a role may have arrived unread.
        self.link.wait(Span::ZERO, |_| None::<()>)?;
        if self.link.inbox().is_gone(to) {
            return Err(OutOfBandError::PeerGone(to));
        }
        let frame = HubFrame::Message {
            from: self.role,
            to,
            bytes: message.to_vec(),
        };
        self.link.send(&frame).map_err(|e| match e.kind() {
            _ if is_gone(&e) => OutOfBandError::PeerGone(to),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => OutOfBandError::TimedOut {
                role: to,
                timeout: SEND_TIMEOUT.into(),
            },
            _ => OutOfBandError::System(e),
        })
    }

    /// Waits for the next message of role `from`.
    pub(crate) fn receive(&self, from: RoleId, timeout: Span) -> Result<Vec<u8>, OutOfBandError> {
        self.check(from)?;
        let key = (from, self.role);
        let taken = self.link.wait(timeout, |inbox| {
            let message = inbox.messages.get_mut(&key).and_then(VecDeque::pop_front);
            match message {
                None if inbox.is_gone(from) => Some(Err(OutOfBandError::PeerGone(from))),
                message => message.map(Ok),
            }
        })?;
        taken.unwrap_or(Err(OutOfBandError::TimedOut {
            role: from,
            timeout,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;

    const SOON: Span = Span::from_ms(20);
    const LATE: Span = Span::from_secs(10);

    fn process(roles: u32) -> (Wire<UnixStream>, Vec<HubMail>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let link = Arc::new(HubLink::new(theirs).unwrap());
        let mail = |role| HubMail::new(Arc::clone(&link), RoleId(role), roles);
        (Wire::local(ours).unwrap(), (0..roles).map(mail).collect())
    }

    fn message(from: u32, to: u32, text: &str) -> HubFrame {
        HubFrame::Message {
            from: RoleId(from),
            to: RoleId(to),
            bytes: text.as_bytes().to_vec(),
        }
    }

    #[test]
    fn frames_are_read_as_they_are_written_and_others_are_refused() {
        let frames = [
            message(1, 2, "hello"),
            HubFrame::Ended(RoleId(7)),
            HubFrame::Control(b"{}".to_vec()),
        ];
        for frame in frames {
            assert_eq!(HubFrame::read(&frame.to_bytes()), Some(frame));
        }
        for bad in [&b""[..], b"X", b"M\0\0\0\0\0\0", b"E\0\0\0", b"E\0\0\0\0\0"] {
            assert_eq!(HubFrame::read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn messages_reach_the_role_they_are_for_in_their_order() {
        let (mut hub, roles) = process(3);
        for frame in [message(2, 0, "a"), message(2, 1, "x"), message(2, 0, "b")] {
            hub.send(&[&frame.to_bytes()]).unwrap();
        }
        assert_eq!(roles[0].receive(RoleId(2), LATE).unwrap(), b"a");
        assert_eq!(roles[1].receive(RoleId(2), LATE).unwrap(), b"x");
        assert_eq!(roles[0].receive(RoleId(2), LATE).unwrap(), b"b");
        roles[1].send(RoleId(2), b"back").unwrap();
        let sent = hub.receive().unwrap().unwrap();
        assert_eq!(HubFrame::read(&sent), Some(message(1, 2, "back")));
    }

    #[test]
    fn a_thread_gets_what_another_one_read() {
        let (mut hub, roles) = process(3);
        std::thread::scope(|scope| {
            let waiting: Vec<_> = roles[..2]
                .iter()
                .map(|role| scope.spawn(|| role.receive(RoleId(2), LATE).unwrap()))
                .collect();
            std::thread::sleep(Duration::from_millis(20));
            for frame in [message(2, 1, "one"), message(2, 0, "nil")] {
                hub.send(&[&frame.to_bytes()]).unwrap();
            }
            let got: Vec<_> = waiting.into_iter().map(|t| t.join().unwrap()).collect();
            assert_eq!(got, [b"nil", b"one"]);
        });
    }

    #[test]
    fn silence_ends_and_unknown_roles_are_told_apart() {
        let (mut hub, roles) = process(3);
        let error = |role: u32| roles[0].receive(RoleId(role), SOON).unwrap_err();
        assert!(matches!(error(1), OutOfBandError::TimedOut { .. }));
        assert!(matches!(error(9), OutOfBandError::NoSuchRole(RoleId(9))));
        hub.send(&[&message(1, 0, "last").to_bytes()]).unwrap();
        hub.send(&[&HubFrame::Ended(RoleId(1)).to_bytes()]).unwrap();
        let end = roles[0].send(RoleId(1), b"x").unwrap_err();
        assert!(matches!(end, OutOfBandError::PeerGone(RoleId(1))), "{end}");
        assert_eq!(roles[0].receive(RoleId(1), LATE).unwrap(), b"last");
        assert!(matches!(error(1), OutOfBandError::PeerGone(RoleId(1))));
        drop(hub);
        assert!(matches!(error(2), OutOfBandError::PeerGone(RoleId(2))));
        let long = vec![0; MAX_MESSAGE.as_usize() + 1];
        let long = roles[0].send(RoleId(2), &long).unwrap_err();
        assert!(matches!(long, OutOfBandError::TooLong { .. }), "{long}");
    }
}
