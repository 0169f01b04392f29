//! A connection that has not yet shown what it wants: a client, somebody with the wrong port, or
//! worse. It has little time and little room.

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

/// Until a caller has said what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same of a caller that this agent connected to.
const CALLED_PATIENCE: Duration = Duration::from_secs(300);
/// Until one that was refused has hung up.
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
    /// It has not greeted.
    Calls(Wire),
    /// It has, and will say what it wants.
    Greeted(Link),
    /// It was refused; that it hangs up first makes sure that it has read why.
    Refused(Link),
    /// It wants nothing that there is.
    Gone,
}

/// What has come of a caller.
pub(super) enum Step {
    Waits,
    Asks(Visit),
    Left,
}

impl Caller {
    /// Greets who called.
    pub(super) fn new(
        mut wire: Wire,
        from: SocketAddr,
        (catalog, log): (&'static Catalog, Log),
    ) -> Self {
        wire.take_at_most(MAX_GREETING);
        // A caller that is gone already is noticed when it is heard.
        let _ = wire.send(&[&Greeting::ours(catalog, None)]);
        Caller {
            from,
            deadline: Instant::now() + PATIENCE,
            stage: Stage::Calls(wire),
            catalog,
            log,
        }
    }

    /// A caller that this agent connected to: it waits until the other agents have done so.
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
            Stage::Gone => unreachable!("who is gone was dropped"),
        }
    }

    /// The address of this host that it reached.
    pub(super) fn reached_at(&self) -> Option<IpAddr> {
        match &self.stage {
            Stage::Greeted(connection) | Stage::Refused(connection) => connection.local_ip(),
            Stage::Calls(_) | Stage::Gone => None,
        }
    }

    fn note(&self, line: &str) {
        (self.log)(Event::Note(format!("{}: {line}", self.from)));
    }

    /// Hears it.
    pub(super) fn turn(&mut self) -> Step {
        let step = self.hear().unwrap_or_else(|reason| {
            self.note(&format!("{reason}: connection closed"));
            Step::Left
        });
        if matches!(step, Step::Waits) && Instant::now() >= self.deadline {
            if !matches!(self.stage, Stage::Refused(_)) {
                let patience = PATIENCE.as_secs();
                self.note(&format!(
                    "it did not say within {patience} s what it wants: connection closed"
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
                Some(_) => Err("it did not say what it wants".to_owned()),
            },
            // What it still says is of no interest.
            Stage::Refused(connection) => Ok(match connection.hear() {
                Err(_) => Step::Left,
                Ok(_) => Step::Waits,
            }),
            Stage::Calls(_) | Stage::Gone => Ok(Step::Left),
        }
    }

    /// Lets it in; `None` if it is gone.
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

    /// Says why not, and gives it time to hear it; `None` if it is gone.
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
