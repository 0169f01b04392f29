//! `adverb serve`: runs roles for any number of callers on other hosts at the same time. A rank of a job
//! serves only the caller that it has connected to.
//!
//! A single thread sleeps in `poll`; while a program runs it wakes once a second to send a keepalive. A
//! [`Caller`] is a connection before its request; a [`Session`] is an admitted connection, with its own
//! processes. No session waits for another session or for a silent caller.

mod caller;
mod desk;
mod session;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use adverb_host::Wire;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags};

use crate::catalog::Catalog;
use crate::control::{HostPort, wait_until};
use crate::device::DeviceChoice;
use crate::event::{Event, Log};
use crate::interrupt::Interrupt;
use crate::place::Pinning;
use caller::{Caller, Link, Step};
use desk::Desk;
use session::Session;

/// Maximum number of connections before their request; more wait in the listening socket.
const MAX_CALLERS: usize = MAX_SESSIONS;
/// Pause before new connections are accepted when no file descriptors are left.
const RESPITE: Duration = Duration::from_secs(1);

/// Maximum number of sessions; more callers are refused.
const MAX_SESSIONS: usize = 64;

/// Timeout for a silent caller between runs, whose output may be waiting for a reader.
const LEISURE: Duration = Duration::from_secs(30);
/// The same for a caller that cannot reconnect; the kernel notices when its host is gone.
const NO_END: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How to serve.
#[derive(Clone, Debug, Default)]
pub struct AgentOptions {
    /// Address to listen on; only this host reaches the default.
    pub bind: Option<HostPort>,
    /// The device of all roles; by default the one that a caller names.
    pub device: Option<DeviceChoice>,
    /// Cores of the roles.
    pub pinning: Pinning,
    /// When the agent ends by itself.
    pub until: Until,
}

/// When an agent ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// Never: a signal ends it.
    #[default]
    Signal,
    /// When the first session has ended.
    FirstSession,
}

/// Serves until a signal arrives, or the first session has ended.
///
/// # Errors
/// The address or the device cannot be used.
pub fn serve(options: &AgentOptions, catalog: &'static Catalog, log: Log) -> anyhow::Result<()> {
    let desk = Desk::new(options, LEISURE)?;
    let listener = listen(options.bind.as_ref())?;
    let interrupt = Interrupt::listen()?;
    introduce(listener.local_addr()?, &desk, log);
    let most = match options.until {
        Until::FirstSession => 1,
        Until::Signal => u64::MAX,
    };
    let server = Server::new(Some(listener), desk, (catalog, log));
    server.serve(&interrupt, |server| server.served < most)?;
    Ok(())
}

/// Serves the caller at the other end of `connection`, whose address is `from`; returns whether it left a
/// run unfinished.
///
/// # Errors
/// The device cannot be used.
pub(crate) fn serve_caller(
    (connection, from): (Link, SocketAddr),
    options: &AgentOptions,
    (catalog, log): (&'static Catalog, Log),
) -> anyhow::Result<Farewell> {
    let desk = Desk::new(options, NO_END)?;
    let interrupt = Interrupt::listen()?;
    let mut server = Server::new(None, desk, (catalog, log));
    let caller = Caller::greeted(connection, from, (catalog, log));
    server.callers.push(caller);
    server.serve(&interrupt, |server| {
        !server.callers.is_empty() || !server.sessions.is_empty()
    })
}

/// How the last session of an agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// Between runs.
    Idle,
    /// In a run.
    Running,
}

fn listen(bind: Option<&HostPort>) -> anyhow::Result<TcpListener> {
    let default = HostPort::loopback();
    let address = bind.unwrap_or(&default);
    let addresses = address.resolve().context("--bind")?;
    let listener = TcpListener::bind(&addresses[..]).with_context(|| {
        format!(
            "cannot listen at {address}: choose an address of this host and a free port with --bind"
        )
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Logs the address, and which hosts can reach it.
fn introduce(address: SocketAddr, desk: &Desk, log: Log) {
    let device = desk.device().map_or_else(
        || "the device that the client names".to_owned(),
        ToString::to_string,
    );
    log(Event::Note(format!("listening at {address}, for {device}")));
    log(if address.ip().is_loopback() {
        Event::Note(
            "only this host can reach it; for other hosts use --bind 0.0.0.0 or an address of the RDMA network"
                .to_owned(),
        )
    } else {
        Event::Warning(format!(
            "anyone who reaches {address} can run measurements on this host: there is no authentication and no encryption"
        ))
    });
}

struct Server {
    /// `None` if only the first caller is served.
    listener: Option<TcpListener>,
    desk: Desk,
    callers: Vec<Caller>,
    sessions: Vec<Session>,
    /// Until when no connections are accepted.
    respite: Option<Instant>,
    /// Sessions that have ended.
    served: u64,
    farewell: Farewell,
    catalog: &'static Catalog,
    log: Log,
}

impl Server {
    fn new(
        listener: Option<TcpListener>,
        desk: Desk,
        (catalog, log): (&'static Catalog, Log),
    ) -> Self {
        Server {
            listener,
            desk,
            callers: Vec::new(),
            sessions: Vec::new(),
            respite: None,
            served: 0,
            farewell: Farewell::Idle,
            catalog,
            log,
        }
    }

    /// Serves until a signal arrives, or `goes_on` returns false.
    fn serve(
        mut self,
        interrupt: &Interrupt,
        goes_on: impl Fn(&Self) -> bool,
    ) -> anyhow::Result<Farewell> {
        loop {
            // Before any sleep: a request read together with its greeting would not wake `poll`.
            self.hear_callers();
            self.attend();
            if interrupt.raised() || !goes_on(&self) {
                break;
            }
            self.sleep(interrupt)?;
            self.accept();
        }
        let farewell = self.farewell;
        self.close();
        Ok(farewell)
    }

    /// Sleeps until a caller or a role sends something, a signal arrives, or a timeout ends.
    fn sleep(&self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(interrupt.fd(), PollFlags::IN)];
        let mut wake_at: Option<Instant> = self.respite;
        if let Some(listener) = self.listener.as_ref().filter(|_| self.can_accept()) {
            fds.push(PollFd::new(listener, PollFlags::IN));
        }
        let mut earlier = |at: Instant| wake_at = Some(wake_at.map_or(at, |w| w.min(at)));
        for caller in &self.callers {
            fds.push(caller.poll_fd());
            earlier(caller.deadline());
        }
        for session in &self.sessions {
            fds.extend(session.poll_fds());
            earlier(session.wake_at());
        }
        wait_until(&mut fds, wake_at)
    }

    fn accept(&mut self) {
        self.respite = self.respite.filter(|until| Instant::now() < *until);
        while self.can_accept() {
            let Some(listener) = &self.listener else {
                return;
            };
            match listener.accept() {
                Ok((stream, from)) => match Wire::new(stream) {
                    Ok(wire) => {
                        let caller = Caller::new(wire, from, (self.catalog, self.log));
                        self.callers.push(caller);
                    }
                    Err(e) => (self.log)(Event::Note(format!("{from}: {e}"))),
                },
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // The caller has closed the connection already.
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    let line = format!("cannot accept a connection: {e}");
                    (self.log)(Event::Warning(line));
                    self.respite = Some(Instant::now() + RESPITE);
                }
            }
        }
    }

    fn can_accept(&self) -> bool {
        self.respite.is_none() && self.callers.len() < MAX_CALLERS
    }

    fn hear_callers(&mut self) {
        for mut caller in std::mem::take(&mut self.callers) {
            match caller.turn() {
                Step::Waits => self.callers.push(caller),
                Step::Left => {}
                Step::Asks(visit) => {
                    let admitted = match self.sessions.len() < MAX_SESSIONS {
                        true => self.desk.admit(&visit, caller.reached_at()),
                        false => Err(format!(
                            "busy with {MAX_SESSIONS} sessions: try again when one of them has ended"
                        )),
                    };
                    match admitted {
                        Ok(place) => self.sessions.extend(caller.welcome(place, &visit)),
                        Err(reason) => self.callers.extend(caller.refuse(&reason)),
                    }
                }
            }
        }
    }

    /// Gives each session a turn; removes those that have ended.
    fn attend(&mut self) {
        let mut at = 0;
        while at < self.sessions.len() {
            // This session must not use cores of other sessions' busy roles.
            let (before, rest) = self.sessions.split_at_mut(at);
            let (session, after) = rest.split_first_mut().expect("at is within");
            let others = before.iter().chain(after.iter());
            match session.turn(|| others.clone().flat_map(Session::cores).collect()) {
                Ok(()) => at += 1,
                Err(why) => {
                    session.farewell(&why);
                    self.farewell = match session.is_running() {
                        true => Farewell::Running,
                        false => Farewell::Idle,
                    };
                    self.sessions.swap_remove(at);
                    self.served += 1;
                }
            }
        }
    }

    /// Notifies the callers and ends their roles.
    fn close(self) {
        for mut session in self.sessions {
            session.stopped();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::control::{Connection, Greeting};

    static CATALOG: Catalog = Catalog {
        version: "test",
        programs: &[],
    };

    /// A rank waited for 300 s where the first word of rank 0 arrived together with its greeting.
    #[test]
    fn a_word_that_arrives_with_the_greeting_is_heard_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let ours = TcpStream::connect(at).unwrap();
        let mut theirs = Wire::new(listener.accept().unwrap().0).unwrap();
        theirs.send(&[&Greeting::ours(&CATALOG, None)]).unwrap();
        theirs.send(&[b"no word of the protocol"]).unwrap();
        let (connection, _) =
            Connection::greet(Wire::new(ours).unwrap(), "rank 0", None, &CATALOG).unwrap();
        let start = Instant::now();
        let farewell = serve_caller(
            (connection, at),
            &AgentOptions::default(),
            (&CATALOG, |_| {}),
        );
        assert_eq!(farewell.unwrap(), Farewell::Idle);
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
