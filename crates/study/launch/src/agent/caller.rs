//! A connection before its request: a client, a program that uses the wrong port, or an attacker. Its time and
//! memory are limited.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use adverb_host::{MAX_FRAME, Wire, WireError};
use rustix::event::PollFd;

use super::desk::Place;
use super::session::Session;
use crate::catalog::Catalog;
use crate::control::{Connection, Frame, Greeting, MAX_GREETING, ToAgent, ToCaller, Visit};
use crate::event::{Event, Log};
use crate::text::printable;

/// Timeout for a caller's request.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for a caller that this agent connected to.
const CALLED_PATIENCE: Duration = Duration::from_secs(300);
/// Timeout for a refused caller to close the connection.
const FAREWELL: Duration = Duration::from_secs(1);

pub(super) type Link = Connection<ToCaller, ToAgent>;

pub(super) struct Caller {
    from: SocketAddr,
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
    /// It was refused, and closes the connection first, which shows that it has read the reason.
    Refused(Link),
    /// Placeholder while the stage changes.
    Gone,
}

/// Result of a caller's turn.
pub(super) enum Step {
    Waits,
    Asks(Visit),
    Left,
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
        Caller {
            from,
            deadline: Instant::now() + PATIENCE,
            stage: Stage::Calls(wire),
            catalog,
            log,
        }
    }

    /// Returns a caller that this agent connected to. It waits until all agents have connected.
    pub(super) fn greeted(
        connection: Link,
        from: SocketAddr,
        (catalog, log): (&'static Catalog, Log),
    ) -> Self {
        Caller {
            from,
            deadline: Instant::now() + CALLED_PATIENCE,
            stage: Stage::Greeted(connection),
            catalog,
            log,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        match &self.stage {
            Stage::Calls(wire) => wire.poll_fd(),
            Stage::Greeted(connection) | Stage::Refused(connection) => connection.poll_fd(),
            Stage::Gone => unreachable!("a caller that is gone was dropped"),
        }
    }

    /// Returns the address of this host that the caller connected to.
    pub(super) fn reached_at(&self) -> Option<IpAddr> {
        match &self.stage {
            Stage::Greeted(connection) | Stage::Refused(connection) => connection.local_ip(),
            Stage::Calls(_) | Stage::Gone => None,
        }
    }

    fn note(&self, line: &str) {
        (self.log)(Event::Note(format!("{}: {line}", self.from)));
    }

    /// Handles what the caller sent.
    pub(super) fn turn(&mut self) -> Step {
        let step = self.hear().unwrap_or_else(|reason| {
            self.note(&format!("{reason}: connection closed"));
            Step::Left
        });
        if matches!(step, Step::Waits) && Instant::now() >= self.deadline {
            if !matches!(self.stage, Stage::Refused(_)) {
                let patience = PATIENCE.as_secs();
                self.note(&format!(
                    "no request within {patience} s: connection closed"
                ));
            }
            return Step::Left;
        }
        step
    }

    fn hear(&mut self) -> Result<Step, String> {
        if let Stage::Calls(wire) = &mut self.stage {
            let greeting = match wire.receive() {
                Ok(Some(greeting)) => greeting,
                Ok(None) => return Ok(Step::Waits),
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
        match &mut self.stage {
            Stage::Greeted(connection) => match connection.hear().map_err(|e| e.to_string())? {
                None => Ok(Step::Waits),
                Some(Frame::Word(ToAgent::Visit(visit))) => Ok(Step::Asks(visit)),
                Some(_) => Err("it sent something else than a request".to_owned()),
            },
            // Anything else that it sends is ignored.
            Stage::Refused(connection) => Ok(match connection.hear() {
                Err(_) => Step::Left,
                Ok(_) => Step::Waits,
            }),
            Stage::Calls(_) | Stage::Gone => Ok(Step::Left),
        }
    }

    /// Admits the caller; `None` if it is gone.
    pub(super) fn welcome(self, place: Place, visit: &Visit) -> Option<Session> {
        let Stage::Greeted(mut connection) = self.stage else {
            return None;
        };
        connection.take_at_most(MAX_FRAME);
        let name = format!("{} ({})", self.from, printable(&visit.host));
        let welcome = ToCaller::Welcome(Box::new(place.welcome.clone()));
        connection.say(&welcome).ok()?;
        let with = (self.catalog, self.log);
        Some(Session::new(connection, name, place, with))
    }

    /// Sends the reason of a refusal, and gives the caller time to read it; `None` if it is gone.
    pub(super) fn refuse(self, reason: &str) -> Option<Caller> {
        self.note(&format!("refused: {}", printable(reason)));
        let Stage::Greeted(mut connection) = self.stage else {
            return None;
        };
        let reason = reason.to_owned();
        connection.say(&ToCaller::Refused { reason }).ok()?;
        connection.finish();
        Some(Caller {
            deadline: Instant::now() + FAREWELL,
            stage: Stage::Refused(connection),
            ..self
        })
    }
}
