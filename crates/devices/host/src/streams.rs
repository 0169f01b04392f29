//! The kernel's TCP as the streams of a station.
//!
//! Sockets block: a role that polls asks for single calls that do not (`MSG_DONTWAIT`), one that sleeps
//! sets a timeout, and the kernel wakes it. Messages are sent at once (`TCP_NODELAY`).

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use adverb_units::Span;
use adverb_verbs::{
    Context, Note, StreamAddress, StreamError, StreamStep, StreamWait, Streams, WaitError,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_reuseaddr, set_socket_timeout, set_tcp_nodelay};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, bind, connect, listen,
    recv, send, shutdown, socket_with,
};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::link::Stream;
use crate::station::HostStation;

/// Connections that wait to be accepted, at most: the default of `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Maximum number of connections that have not sent the whole key; the oldest gives way to a new one.
const MAX_PENDING: usize = 64;

/// Accepts the connection of one peer.
#[derive(Debug)]
pub struct KeyedListener {
    listener: TcpListener,
    key: [u8; 16],
    pending: RefCell<Vec<PendingConnection>>,
}

/// A connection that has not sent the whole key.
#[derive(Debug)]
struct PendingConnection {
    connection: TcpConnection,
    sent: Vec<u8>,
}

impl PendingConnection {
    /// Reads a part of the key; returns false if the connection has ended, or sent something else.
    fn hear(&mut self, key: &[u8]) -> bool {
        let mut rest = vec![0; key.len() - self.sent.len()];
        match self.connection.receive(&mut rest, RecvFlags::DONTWAIT) {
            Ok(received) => self.sent.extend_from_slice(&rest[..received.unwrap_or(0)]),
            Err(_) => return false,
        }
        key.starts_with(&self.sent)
    }
}

impl KeyedListener {
    fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let mut key = [0; 16];
        getrandom(&mut key[..], GetRandomFlags::empty())?;
        Ok(KeyedListener {
            listener,
            key,
            pending: RefCell::default(),
        })
    }

    /// Waits until a connection arrives or sends something.
    fn wait(&self, timeout: Duration) -> Result<(), WaitError> {
        let pending = self.pending.borrow();
        let sockets = pending.iter().map(|one| &one.connection.socket);
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
        transferred(poll(&mut fds, Timespec::try_from(timeout).ok().as_ref()))?;
        Ok(())
    }

    /// Returns the connection of the peer, if it has sent the key.
    fn take(&self) -> Result<Option<TcpConnection>, StreamError> {
        let mut pending = self.pending.borrow_mut();
        match self.listener.accept() {
            Ok((stream, _)) => {
                if pending.len() == MAX_PENDING {
                    pending.remove(0);
                }
                let connection = TcpConnection::new(stream.into())?;
                let sent = Vec::new();
                pending.push(PendingConnection { connection, sent });
            }
            // The other end has closed the connection already.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(StreamError::System(error)),
        }
        pending.retain_mut(|one| one.hear(&self.key));
        let peer = pending.iter().position(|one| one.sent == self.key);
        Ok(peer.map(|at| pending.swap_remove(at).connection))
    }
}

/// One end of a TCP connection.
#[derive(Debug)]
pub struct TcpConnection {
    socket: OwnedFd,
    /// Timeouts of blocking calls, as last set: setting one is a system call.
    send_timeout: Cell<Option<Span>>,
    receive_timeout: Cell<Option<Span>>,
}

impl TcpConnection {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        set_tcp_nodelay(&socket, true)?;
        Ok(TcpConnection {
            socket,
            send_timeout: Cell::new(None),
            receive_timeout: Cell::new(None),
        })
    }

    fn send(&self, bytes: &[u8], flags: SendFlags) -> Result<Option<usize>, WaitError> {
        transferred(send(&self.socket, bytes, flags | SendFlags::NOSIGNAL))
    }

    fn receive(&self, into: &mut [u8], flags: RecvFlags) -> Result<Option<usize>, WaitError> {
        match transferred(recv(&self.socket, into, flags).map(|(received, _)| received))? {
            Some(0) => Err(StreamError::Closed.into()),
            received => Ok(received),
        }
    }

    /// Limits later blocking calls to `part`, at least a microsecond: 0 would mean no limit.
    fn limit(&self, which: Timeout, part: Span) -> Result<(), WaitError> {
        let last = match which {
            Timeout::Recv => &self.receive_timeout,
            Timeout::Send => &self.send_timeout,
        };
        if last.get() != Some(part) {
            let limit = Duration::from(part).max(Duration::from_micros(1));
            set_socket_timeout(&self.socket, which, Some(limit)).map_err(system)?;
            last.set(Some(part));
        }
        Ok(())
    }
}

/// The number of transferred bytes; `None` if the call would have blocked, or its timeout has expired.
fn transferred(result: Result<usize, Errno>) -> Result<Option<usize>, WaitError> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(Errno::CONNRESET | Errno::PIPE) => Err(StreamError::Closed.into()),
        Err(error) => Err(system(error)),
    }
}

fn system(error: Errno) -> WaitError {
    StreamError::System(error.into()).into()
}

/// Makes a TCP socket of the address's family.
fn socket_for(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    Ok(socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Listens at an address, also if connections of an earlier listener are not forgotten yet.
fn listening(at: SocketAddr, note: Note<'_>) -> io::Result<TcpListener> {
    let socket = socket_for(at)?;
    set_socket_reuseaddr(&socket, true)?;
    note(StreamStep::Socket);
    bind(&socket, &at)?;
    note(StreamStep::Bind);
    listen(&socket, BACKLOG)?;
    note(StreamStep::Listen);
    Ok(TcpListener::from(socket))
}

/// Connects within `timeout` (Linux applies `SO_SNDTIMEO` to `connect`), from the address `from` if it is
/// of the same family.
fn connected(
    from: SocketAddr,
    to: SocketAddr,
    timeout: Span,
    note: Note<'_>,
) -> io::Result<TcpConnection> {
    let connection = TcpConnection::new(socket_for(to)?)?;
    set_socket_timeout(&connection.socket, Timeout::Send, Some(timeout.into()))?;
    note(StreamStep::Socket);
    if from.is_ipv4() == to.is_ipv4() {
        bind(&connection.socket, &SocketAddr::new(from.ip(), 0))?;
        note(StreamStep::Bind);
    }
    match connect(&connection.socket, &to) {
        Err(Errno::INPROGRESS) => Err(Errno::TIMEDOUT.into()),
        ended => Ok(ended.map(|()| connection)?),
    }
    .inspect(|_| note(StreamStep::Connect))
}

impl<C: Context, T: Stream> Streams for HostStation<C, T> {
    type Listener = KeyedListener;
    type Stream = TcpConnection;

    fn listen_by_step(
        &self,
        note: Note<'_>,
    ) -> Result<(KeyedListener, StreamAddress), StreamError> {
        let at = self.address();
        let failed = |source| StreamError::Listen { at, source };
        let listener = listening(at, note).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        let listener = KeyedListener::new(listener).map_err(failed)?;
        let key = listener.key;
        Ok((listener, StreamAddress { at, key }))
    }

    fn accept(&self, listener: &KeyedListener, timeout: Span) -> Result<TcpConnection, WaitError> {
        let accepted = self.wait_in_parts(timeout, |part| {
            let until = Instant::now() + Duration::from(part);
            loop {
                // A foreign connection that wakes this wait does not shorten it.
                let left = until.saturating_duration_since(Instant::now());
                listener.wait(left)?;
                let peer = listener.take()?;
                if peer.is_some() || left.is_zero() {
                    return Ok(peer);
                }
            }
        })?;
        let what = "connection";
        accepted.ok_or(WaitError::TimedOut { what, timeout })
    }

    fn connect_by_step(
        &self,
        to: StreamAddress,
        timeout: Span,
        note: Note<'_>,
    ) -> Result<TcpConnection, WaitError> {
        let made = connected(self.address(), to.at, timeout, note);
        let failed = |source| StreamError::Connect { to: to.at, source };
        let connection = made.map_err(failed)?;
        match connection.send(&to.key, SendFlags::empty())? {
            Some(sent) if sent == to.key.len() => Ok(connection),
            // The buffer of a new connection has room for the key, unless the other end has reset it.
            _ => Err(StreamError::Closed.into()),
        }
    }

    fn shutdown(&self, stream: &TcpConnection) -> Result<(), StreamError> {
        match shutdown(&stream.socket, Shutdown::Both) {
            Err(error) if error != Errno::NOTCONN => Err(StreamError::System(error.into())),
            _ => Ok(()),
        }
    }

    #[inline]
    fn send_some(
        &self,
        stream: &TcpConnection,
        bytes: &[u8],
        how: StreamWait,
        timeout: Span,
    ) -> Result<usize, WaitError> {
        let what = "room on the connection";
        if how == StreamWait::Poll {
            return self.poll_until(what, timeout, || stream.send(bytes, SendFlags::DONTWAIT));
        }
        let sent = self.wait_in_parts(timeout, |part| {
            stream.limit(Timeout::Send, part)?;
            stream.send(bytes, SendFlags::empty())
        })?;
        sent.ok_or(WaitError::TimedOut { what, timeout })
    }

    #[inline]
    fn receive_some(
        &self,
        stream: &TcpConnection,
        into: &mut [u8],
        how: StreamWait,
        timeout: Span,
    ) -> Result<usize, WaitError> {
        let what = "data on the connection";
        if how == StreamWait::Poll {
            return self.poll_until(what, timeout, || stream.receive(into, RecvFlags::DONTWAIT));
        }
        let received = self.wait_in_parts(timeout, |part| {
            stream.limit(Timeout::Recv, part)?;
            stream.receive(into, RecvFlags::empty())
        })?;
        received.ok_or(WaitError::TimedOut { what, timeout })
    }

    fn receive_arrived(&self, stream: &TcpConnection, into: &mut [u8]) -> Result<usize, WaitError> {
        self.check_stop()?;
        Ok(stream.receive(into, RecvFlags::DONTWAIT)?.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use crate::tcp::{TcpContext, TcpDevice};
    use adverb_verbs::Device;
    use std::net::TcpStream;

    const SOON: Span = Span::from_ms(20);
    const LATE: Span = Span::from_secs(60);

    fn station() -> HostStation<TcpContext> {
        HostStation::new(TcpDevice.open().unwrap(), std::iter::empty::<(_, Link)>())
    }

    fn pair(station: &HostStation<TcpContext>) -> (TcpConnection, TcpConnection) {
        let (listener, at) = station.listen().unwrap();
        let one = Streams::connect(station, at, LATE).unwrap();
        (one, station.accept(&listener, LATE).unwrap())
    }

    #[test]
    fn bytes_arrive_in_order_whether_the_reader_polls_or_sleeps() {
        let station = station();
        for how in [StreamWait::Poll, StreamWait::Sleep] {
            let (one, other) = pair(&station);
            let sent: Vec<u8> = (0..=255).collect();
            assert_eq!(station.send_some(&one, &sent, how, LATE).unwrap(), 256);
            let (mut received, mut room) = (Vec::new(), [0; 100]);
            while received.len() < sent.len() {
                let n = station.receive_some(&other, &mut room, how, LATE).unwrap();
                received.extend_from_slice(&room[..n]);
            }
            assert_eq!(received, sent);
        }
    }

    /// The first connection was taken for the peer.
    #[test]
    fn connections_without_the_key_do_not_take_the_place_of_the_peer() {
        let station = station();
        let (listener, address) = station.listen().unwrap();
        let foreign = |sent: &[u8]| {
            let stream = TcpStream::connect(address.at).unwrap();
            stream.write_all(sent).unwrap();
            stream
        };
        let wrong_key = address.key.map(|byte| byte ^ 1);
        let mut pending: Vec<_> = (0..MAX_PENDING).map(|_| foreign(b"")).collect();
        pending.push(foreign(&address.key[..15]));
        pending.push(foreign(&wrong_key));
        let error = station.accept(&listener, SOON).unwrap_err();
        assert_eq!(error.to_string(), "no connection within 20.0 ms");
        let one = Streams::connect(&station, address, LATE).unwrap();
        let other = station.accept(&listener, LATE).unwrap();
        let how = StreamWait::Sleep;
        assert_eq!(station.send_some(&one, b"peer", how, LATE).unwrap(), 4);
        let mut received = [0; 4];
        station
            .receive_some(&other, &mut received, how, LATE)
            .unwrap();
        assert_eq!(&received, b"peer");
    }

    #[test]
    fn a_wait_for_bytes_or_room_times_out() {
        let station = station();
        for how in [StreamWait::Poll, StreamWait::Sleep] {
            let (one, _other) = pair(&station);
            let error = station.receive_some(&one, &mut [0], how, SOON).unwrap_err();
            assert_eq!(
                error.to_string(),
                "no data on the connection within 20.0 ms"
            );
            let much = vec![0; 1 << 20];
            let full = loop {
                if let Err(error) = station.send_some(&one, &much, how, SOON) {
                    break error;
                }
            };
            assert_eq!(full.to_string(), "no room on the connection within 20.0 ms");
        }
    }

    #[test]
    fn a_peer_that_is_gone_is_noticed() {
        let station = station();
        for how in [StreamWait::Poll, StreamWait::Sleep] {
            let (one, other) = pair(&station);
            drop(other);
            let error = station.receive_some(&one, &mut [0], how, LATE).unwrap_err();
            assert!(
                matches!(error, WaitError::Stream(StreamError::Closed)),
                "{error}"
            );
        }
    }

    #[test]
    fn the_steps_to_a_connection_are_noted_in_their_order() {
        use StreamStep::{Bind, Connect, Listen, Socket};
        let (station, mut steps) = (station(), Vec::new());
        let (listener, address) = station
            .listen_by_step(&mut |step| steps.push(step))
            .unwrap();
        let one = station.connect_by_step(address, LATE, &mut |step| steps.push(step));
        assert_eq!(steps, [Socket, Bind, Listen, Socket, Bind, Connect]);
        let (one, other) = (one.unwrap(), station.accept(&listener, LATE).unwrap());
        station.shutdown(&one).unwrap();
        let how = StreamWait::Poll;
        let error = station.receive_some(&other, &mut [0], how, LATE);
        assert!(matches!(error, Err(WaitError::Stream(StreamError::Closed))));
        station.shutdown(&other).unwrap();
        station.shutdown(&one).unwrap();
    }

    #[test]
    fn a_port_in_use_and_a_peer_that_does_not_listen_are_named() {
        let (listener, address) = station().listen().unwrap();
        let at = address.at;
        let error = station().at_address(at).listen().unwrap_err().to_string();
        let told = format!(
            "cannot listen at {at}: Address already in use (os error 98); name a free port, or leave the port out"
        );
        assert_eq!(error, told);
        drop(listener);
        let error = Streams::connect(&station(), address, LATE).unwrap_err();
        let told = format!("cannot connect to {at}: Connection refused");
        assert!(error.to_string().starts_with(&told), "{error}");
    }
}
