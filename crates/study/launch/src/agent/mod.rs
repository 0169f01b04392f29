//! `adverb serve`: runs roles for any number of callers on other hosts at the same time. A rank of a job
//! serves only the caller that it has connected to.
//!
//! A single thread sleeps in `poll`; while a program runs it wakes once a second to send a keepalive. A
//! [`Caller`] is a connection before its session; a [`Session`] is an admitted connection, with its own
//! processes. No session waits for another session or for a silent caller. When all places are taken, callers
//! without a request and sessions without a run give way to newcomers ([`crowd`]).

mod admission;
mod caller;
mod crowd;
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
use admission::Admission;
use caller::Caller;
use crowd::{Holder, MAX_SESSIONS, counts, first_out};
use session::{Link, Session};

/// Maximum number of connections before their session; more wait in the listening socket.
const MAX_CALLERS: usize = 256;
/// How many connections the listening socket keeps until they are accepted.
const BACKLOG: i32 = 4096;
/// Pause before new connections are accepted when no file descriptors are left.
const RESPITE: Duration = Duration::from_secs(1);

/// The log mentions a crowd of callers once in this time.
const CROWD_NOTE: Duration = Duration::from_secs(60);

/// Maximum number of callers that wait for a session; more are refused.
const MAX_WAITING: usize = 64;

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
    let admission = Admission::new(options, LEISURE)?;
    let listener = listen(options.bind.as_ref())?;
    let interrupt = Interrupt::listen()?;
    introduce(listener.local_addr()?, &admission, log);
    let most = match options.until {
        Until::FirstSession => 1,
        Until::Signal => u64::MAX,
    };
    let server = Server::new(Some(listener), admission, (catalog, log));
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
    let admission = Admission::new(options, NO_END)?;
    let interrupt = Interrupt::listen()?;
    let mut server = Server::new(None, admission, (catalog, log));
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
    // The standard library's backlog of 128 connections is less than a crowd may fill.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Logs the address, and which hosts can reach it.
fn introduce(address: SocketAddr, admission: &Admission, log: Log) {
    let device = admission.device().map_or_else(
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
    admission: Admission,
    callers: Vec<Caller>,
    sessions: Vec<Session>,
    /// Until when no connections are accepted.
    respite: Option<Instant>,
    /// When the log last mentioned that callers give way.
    crowd_noted: Option<Instant>,
    /// Sessions that have ended.
    served: u64,
    farewell: Farewell,
    catalog: &'static Catalog,
    log: Log,
}

impl Server {
    fn new(
        listener: Option<TcpListener>,
        admission: Admission,
        (catalog, log): (&'static Catalog, Log),
    ) -> Self {
        Server {
            listener,
            admission,
            callers: Vec::new(),
            sessions: Vec::new(),
            respite: None,
            crowd_noted: None,
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
            // Before any sleep: a request read together with its greeting would not wake `poll`. Callers and
            // sessions are read before newcomers take places: what has arrived counts.
            self.hear_callers();
            self.attend();
            self.accept();
            self.admit();
            if interrupt.raised() || !goes_on(&self) {
                break;
            }
            self.sleep(interrupt)?;
        }
        let farewell = self.farewell;
        self.close();
        Ok(farewell)
    }

    /// Sleeps until a caller or a role sends something, a signal arrives, or a timeout ends.
    fn sleep(&self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(interrupt.fd(), PollFlags::IN)];
        let mut wake_at: Option<Instant> = self.respite;
        let mut earlier = |at: Instant| wake_at = Some(wake_at.map_or(at, |w| w.min(at)));
        let yields = |places: Vec<Holder>| places.into_iter().filter_map(|holder| holder.yields_at);
        match &self.listener {
            Some(listener) if self.can_accept() => fds.push(PollFd::new(listener, PollFlags::IN)),
            Some(_) if self.respite.is_none() => {
                yields(self.caller_places()).for_each(&mut earlier);
            }
            _ => {}
        }
        if !self.line().is_empty() {
            yields(self.session_places()).for_each(&mut earlier);
        }
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

    fn caller_places(&self) -> Vec<Holder> {
        self.callers.iter().map(Caller::holder).collect()
    }

    fn session_places(&self) -> Vec<Holder> {
        self.sessions.iter().map(Session::holder).collect()
    }

    fn hear_callers(&mut self) {
        let callers = std::mem::take(&mut self.callers);
        self.callers = callers.into_iter().filter_map(Caller::turn).collect();
    }

    fn accept(&mut self) {
        self.respite = self.respite.filter(|until| Instant::now() < *until);
        while self.can_accept() {
            let Some(listener) = &self.listener else {
                return;
            };
            match listener.accept() {
                Ok((stream, from)) => match Wire::new(stream) {
                    Ok(wire) => self.greet(wire, from),
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

    /// Whether there is a place for a new connection, or one that gives way.
    fn can_accept(&self) -> bool {
        self.respite.is_none()
            && (self.callers.len() < MAX_CALLERS
                || first_out(&self.caller_places(), Instant::now()).is_some())
    }

    fn greet(&mut self, wire: Wire, from: SocketAddr) {
        if self.callers.len() >= MAX_CALLERS
            && let Some(at) = first_out(&self.caller_places(), Instant::now())
        {
            self.callers.remove(at);
            if self.crowd_noted.is_none_or(|at| at.elapsed() >= CROWD_NOTE) {
                self.crowd_noted = Some(Instant::now());
                (self.log)(Event::Warning(format!(
                    "{MAX_CALLERS} connections without a request: closing the oldest for new ones"
                )));
            }
        }
        let caller = Caller::new(wire, from, (self.catalog, self.log));
        self.callers.push(caller);
    }

    /// Returns the callers that wait for a session, in the order in which they get one: first those whose sender has
    /// the fewest.
    fn line(&self) -> Vec<usize> {
        let callers = self.callers.iter().enumerate();
        let asked = callers.filter(|(_, caller)| caller.request().is_some());
        let mut line: Vec<usize> = asked.map(|(at, _)| at).collect();
        if line.len() > 1 {
            let counts = counts(&self.session_places());
            let sessions = |at: &usize| counts.get(&self.callers[*at].sender()).copied();
            line.sort_by_key(sessions);
        }
        line
    }

    /// Gives sessions to callers that wait for one. Idle sessions give way to them.
    fn admit(&mut self) {
        while let Some(next) = self.line().first().copied() {
            let mut yielding = None;
            if self.sessions.len() >= MAX_SESSIONS {
                yielding = first_out(&self.session_places(), Instant::now());
                if yielding.is_none() {
                    break;
                }
            }
            let caller = self.callers.remove(next);
            let visit = caller.request().expect("a caller in the line has asked");
            match self.admission.admit(visit, caller.reached_at()) {
                Ok(place) => {
                    if let Some(at) = yielding {
                        let evicted = self.sessions.swap_remove(at).evict();
                        let with = (self.catalog, self.log);
                        self.callers
                            .extend(evicted.map(|(link, from)| Caller::refused(link, from, with)));
                        self.served += 1;
                    }
                    self.sessions.extend(caller.welcome(place));
                }
                Err(reason) => self.callers.extend(caller.refuse(&reason)),
            }
        }
        let mut line = self.line();
        line.drain(..line.len().min(MAX_WAITING));
        line.sort_unstable();
        for at in line.into_iter().rev() {
            let refused = self.callers.remove(at).refuse_busy();
            self.callers.extend(refused);
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
