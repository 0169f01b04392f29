//! A connection before its session: a client, a program that uses the wrong port, or an attacker. Its time and
//! memory are limited.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use adverb_host::{MAX_FRAME, Wire, WireError};
use rustix::event::PollFd;

use super::admission::Place;
use super::crowd::{Holder, MAX_SESSIONS, Sender};
use super::session::{Link, Session};
use crate::catalog::Catalog;
use crate::control::{Connection, Frame, Greeting, MAX_GREETING, ToAgent, ToCaller, Visit};
use crate::event::{Event, Log};
use crate::text::printable;

/// Timeout for a caller's request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The same for a caller that this agent connected to.
const CALLED_TIMEOUT: Duration = Duration::from_secs(300);
/// A caller without a greeting keeps its place for at least this time. A client sends its greeting at once.
const GRACE: Duration = Duration::from_secs(1);
/// The same for a caller without a request.
const REQUEST_GRACE: Duration = Duration::from_secs(3);
/// Timeout for a session, once requested: half of the client's.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for a refused caller to close the connection.
const FAREWELL: Duration = Duration::from_secs(1);

pub(super) struct Caller {
    from: SocketAddr,
    since: Instant,
    deadline: Instant,
    stage: Stage,
    catalog: &'static Catalog,
    log: Log,
}

enum Stage {
    /// Waiting for its greeting.
    Calls(Wire),
    /// Waiting for its request.
    Greeted(Link),
    /// It waits for a session.
    Asked(Link, Visit),
    /// It was refused, and closes the connection first, which shows that it has read the reason.
    Refused(Link),
    /// Placeholder while the stage changes.
    Gone,
}

impl Caller {
    /// Greets a new connection.
    pub(super) fn new(
        mut wire: Wire,
        from: SocketAddr,
        (catalog, log): (&'static Catalog, Log),
    ) -> Self {
        wire.take_at_most(MAX_GREETING);
        // A closed connection is noticed when it is read.
        let _ = wire.send(&[&Greeting::ours(catalog, None)]);
        Caller::at(Stage::Calls(wire), from, TIMEOUT, (catalog, log))
    }

    /// Returns a caller that this agent connected to. It waits until all agents have connected.
    pub(super) fn greeted(
        connection: Link,
        from: SocketAddr,
        with: (&'static Catalog, Log),
    ) -> Self {
        Caller::at(Stage::Greeted(connection), from, CALLED_TIMEOUT, with)
    }

    /// Returns a caller that has been sent the reason why it has no session.
    pub(super) fn refused(
        connection: Link,
        from: SocketAddr,
        with: (&'static Catalog, Log),
    ) -> Self {
        connection.finish();
        Caller::at(Stage::Refused(connection), from, FAREWELL, with)
    }

    fn at(
        stage: Stage,
        from: SocketAddr,
        timeout: Duration,
        (catalog, log): (&'static Catalog, Log),
    ) -> Self {
        let since = Instant::now();
        Caller {
            from,
            since,
            deadline: since + timeout,
            stage,
            catalog,
            log,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn sender(&self) -> Sender {
        self.from.into()
    }

    /// Returns the place that it takes. It gives way to a newcomer unless it waits for a session.
    pub(super) fn holder(&self) -> Holder {
        Holder {
            sender: self.sender(),
            yields_at: match self.stage {
                Stage::Asked(..) => None,
                Stage::Greeted(_) => Some(self.since + REQUEST_GRACE),
                Stage::Calls(_) | Stage::Refused(_) | Stage::Gone => Some(self.since + GRACE),
            },
        }
    }

    /// Returns its request, if it waits for a session.
    pub(super) fn request(&self) -> Option<&Visit> {
        match &self.stage {
            Stage::Asked(_, visit) => Some(visit),
            _ => None,
        }
    }

    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        match &self.stage {
            Stage::Calls(wire) => wire.poll_fd(),
            Stage::Greeted(connection)
            | Stage::Asked(connection, _)
            | Stage::Refused(connection) => connection.poll_fd(),
            Stage::Gone => unreachable!("a caller that is gone was dropped"),
        }
    }

    /// Returns the address of this host that the caller connected to.
    pub(super) fn reached_at(&self) -> Option<IpAddr> {
        match &self.stage {
            Stage::Greeted(connection)
            | Stage::Asked(connection, _)
            | Stage::Refused(connection) => connection.local_ip(),
            Stage::Calls(_) | Stage::Gone => None,
        }
    }

    fn note(&self, line: &str) {
        (self.log)(Event::Note(format!("{}: {line}", self.from)));
    }

    /// Handles what the caller sent; `None` if it is gone.
    pub(super) fn turn(mut self) -> Option<Caller> {
        let is_connected = self.hear().unwrap_or_else(|reason| {
            self.note(&format!("{reason}: connection closed"));
            false
        });
        if !is_connected {
            return None;
        }
        if Instant::now() < self.deadline {
            return Some(self);
        }
        match self.stage {
            Stage::Asked(..) => self.refuse_busy(),
            Stage::Refused(_) | Stage::Gone => None,
            Stage::Calls(_) | Stage::Greeted(_) => {
                let timeout = TIMEOUT.as_secs();
                self.note(&format!("no request within {timeout} s: connection closed"));
                None
            }
        }
    }

    /// Reads what has arrived; returns whether it is still connected.
    fn hear(&mut self) -> Result<bool, String> {
        if let Stage::Calls(wire) = &mut self.stage {
            let greeting = match wire.receive() {
                Ok(Some(greeting)) => greeting,
                Ok(None) => return Ok(true),
                Err(WireError::TooLong { .. }) => {
                    return Err("it does not speak Adverb's protocol".to_owned());
                }
                Err(e) => return Err(e.to_string()),
            };
            Greeting::read(&greeting, "it", self.catalog)?;
            if let Stage::Calls(wire) = std::mem::replace(&mut self.stage, Stage::Gone) {
                self.stage = Stage::Greeted(Connection::new(wire));
            }
        }
        let frame = match &mut self.stage {
            Stage::Greeted(connection) | Stage::Asked(connection, _) => {
                connection.hear().map_err(|e| e.to_string())?
            }
            // Anything else that it sends is ignored.
            Stage::Refused(connection) => return Ok(connection.hear().is_ok()),
            Stage::Calls(_) | Stage::Gone => return Ok(false),
        };
        match (frame, std::mem::replace(&mut self.stage, Stage::Gone)) {
            (None, stage) => self.stage = stage,
            (Some(Frame::Word(ToAgent::Visit(visit))), Stage::Greeted(connection)) => {
                self.deadline = Instant::now() + SESSION_TIMEOUT;
                self.stage = Stage::Asked(connection, visit);
            }
            (Some(_), _) => return Err("it sent something else than a request".to_owned()),
        }
        Ok(true)
    }

    /// Admits the caller; `None` if it is gone.
    pub(super) fn welcome(self, place: Place) -> Option<Session> {
        let Stage::Asked(mut connection, visit) = self.stage else {
            return None;
        };
        connection.take_at_most(MAX_FRAME);
        let name = format!("{} ({})", self.from, printable(&visit.host));
        let welcome = ToCaller::Welcome(Box::new(place.welcome.clone()));
        connection.say(&welcome).ok()?;
        let with = (self.catalog, self.log);
        Some(Session::new(connection, (self.from, name), place, with))
    }

    /// Refuses the caller because all sessions are taken.
    pub(super) fn refuse_busy(self) -> Option<Caller> {
        self.refuse(&format!(
            "busy with {MAX_SESSIONS} sessions: try again when one of them has ended"
        ))
    }

    /// Sends the reason of a refusal, and gives the caller time to read it; `None` if it is gone.
    pub(super) fn refuse(self, reason: &str) -> Option<Caller> {
        self.note(&format!("refused: {}", printable(reason)));
        let Stage::Asked(mut connection, _) = self.stage else {
            return None;
        };
        let reason = reason.to_owned();
        connection.say(&ToCaller::Refused { reason }).ok()?;
        let with = (self.catalog, self.log);
        Some(Caller::refused(connection, self.from, with))
    }
}
