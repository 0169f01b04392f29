//! The kernel's TCP as the streams of a station.
//!
//! Sockets block: a role that polls asks for single calls that do not (`MSG_DONTWAIT`), one that sleeps
//! sets a timeout, and the kernel wakes it. Messages are sent at once (`TCP_NODELAY`).

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::Duration;

use adverb_units::Span;
use adverb_verbs::{Context, StreamError, StreamWait, Streams, WaitError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_nodelay};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, recv, send,
    socket_with,
};

use crate::link::Stream;
use crate::station::HostStation;

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

    /// Limits later blocking calls to `part`, at least a microsecond: 0 is no limit.
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

/// Connects within `patience` (Linux applies `SO_SNDTIMEO` to `connect`), from the address `from` if it is
/// of the same family.
fn connected(from: SocketAddr, to: SocketAddr, patience: Span) -> io::Result<TcpConnection> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if from.is_ipv4() == to.is_ipv4() {
        bind(&socket, &SocketAddr::new(from.ip(), 0))?;
    }
    let connection = TcpConnection::new(socket)?;
    set_socket_timeout(&connection.socket, Timeout::Send, Some(patience.into()))?;
    match connect(&connection.socket, &to) {
        Err(Errno::INPROGRESS) => Err(Errno::TIMEDOUT.into()),
        ended => Ok(ended.map(|()| connection)?),
    }
}

impl<C: Context, T: Stream> Streams for HostStation<C, T> {
    type Listener = TcpListener;
    type Stream = TcpConnection;

    fn listen(&self) -> Result<(TcpListener, SocketAddr), StreamError> {
        let at = self.address();
        let failed = |source| StreamError::Listen { at, source };
        let listener = TcpListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        Ok((listener, at))
    }

    fn accept(&self, listener: &TcpListener, patience: Span) -> Result<TcpConnection, WaitError> {
        let accepted = self.wait_in_parts(patience, |part| {
            let limit = Timespec::try_from(Duration::from(part)).ok();
            let mut fds = [PollFd::new(listener, PollFlags::IN)];
            let ready = transferred(poll(&mut fds, limit.as_ref()))?;
            if ready.is_none_or(|ready| ready == 0) {
                return Ok(None);
            }
            match listener.accept() {
                Ok((stream, _)) => Ok(Some(
                    TcpConnection::new(stream.into()).map_err(StreamError::System)?,
                )),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(error) => Err(StreamError::System(error).into()),
            }
        })?;
        let what = "connection";
        accepted.ok_or(WaitError::TimedOut { what, patience })
    }

    fn connect(&self, to: SocketAddr, patience: Span) -> Result<TcpConnection, WaitError> {
        let made = connected(self.address(), to, patience);
        Ok(made.map_err(|source| StreamError::Connect { to, source })?)
    }

    #[inline]
    fn send_some(
        &self,
        stream: &TcpConnection,
        bytes: &[u8],
        how: StreamWait,
        patience: Span,
    ) -> Result<usize, WaitError> {
        let what = "room on the connection";
        if how == StreamWait::Poll {
            return self.poll_until(what, patience, || stream.send(bytes, SendFlags::DONTWAIT));
        }
        let sent = self.wait_in_parts(patience, |part| {
            stream.limit(Timeout::Send, part)?;
            stream.send(bytes, SendFlags::empty())
        })?;
        sent.ok_or(WaitError::TimedOut { what, patience })
    }

    #[inline]
    fn receive_some(
        &self,
        stream: &TcpConnection,
        into: &mut [u8],
        how: StreamWait,
        patience: Span,
    ) -> Result<usize, WaitError> {
        let what = "data on the connection";
        if how == StreamWait::Poll {
            return self.poll_until(what, patience, || stream.receive(into, RecvFlags::DONTWAIT));
        }
        let received = self.wait_in_parts(patience, |part| {
            stream.limit(Timeout::Recv, part)?;
            stream.receive(into, RecvFlags::empty())
        })?;
        received.ok_or(WaitError::TimedOut { what, patience })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use crate::tcp::{TcpContext, TcpDevice};
    use adverb_verbs::{Device, Station};

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

    #[test]
    fn a_wait_for_bytes_or_room_ends_when_patience_does() {
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
    fn a_port_in_use_and_a_peer_that_does_not_listen_are_named() {
        let (listener, at) = station().listen().unwrap();
        let error = station().at_address(at).listen().unwrap_err().to_string();
        let told = format!(
            "cannot listen at {at}: Address already in use (os error 98); name a free port, or leave the port out"
        );
        assert_eq!(error, told);
        drop(listener);
        let error = Streams::connect(&station(), at, LATE).unwrap_err();
        let told = format!("cannot connect to {at}: Connection refused");
        assert!(error.to_string().starts_with(&told), "{error}");
        assert!(station().streams().is_ok());
    }
}
