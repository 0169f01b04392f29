//! An admitted caller: its runs, one after another, and their processes on this host.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use adverb_verbs::RoleId;
use adverb_workload::{Cause, Role, RoleError};
use rustix::event::PollFd;

use super::admission::Place;
use super::crowd::Holder;
use crate::catalog::Catalog;
use crate::control::{
    Connection, ConnectionError, Frame, RunNumber, RunOrder, TIMEOUT, ToAgent, ToCaller,
};
use crate::device::DeviceChoice;
use crate::event::{Event, Log};
use crate::local::{End, LocalRoles, Output, RoleEnded};
use crate::place::Cores;
use crate::process::Mode;
use crate::role::{Order, Seat};
use crate::run::MOST_ROLES;
use crate::text::one_line;

/// Maximum frames read from a caller in one turn, so that other sessions get theirs.
const FRAMES_PER_TURN: usize = 256;
/// A session keeps its place for at least this time after its beginning and after each run.
const GRACE: Duration = Duration::from_secs(2);

/// A connection to a caller.
pub(super) type Link = Connection<ToCaller, ToAgent>;

pub(super) struct Session {
    connection: Link,
    from: SocketAddr,
    name: String,
    place: Place,
    running: Option<Running>,
    /// When it began, or its last run ended.
    idle_since: Instant,
    /// Whether the last turn left frames for the next one.
    has_more: bool,
    /// Number of its runs.
    runs: u64,
    catalog: &'static Catalog,
    log: Log,
}

/// A run that has not ended.
struct Running {
    number: RunNumber,
    roles: LocalRoles,
    seats: Vec<Seat>,
    device: DeviceChoice,
}

/// Why a session ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum Leave {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("cannot read from a role: {0}")]
    System(#[from] std::io::Error),
}

impl Session {
    pub(super) fn new(
        connection: Link,
        (from, name): (SocketAddr, String),
        place: Place,
        (catalog, log): (&'static Catalog, Log),
    ) -> Self {
        let welcome = format!("{name}: welcome, on {}", place.device);
        log(Event::Note(welcome));
        Session {
            connection,
            from,
            name,
            place,
            running: None,
            idle_since: Instant::now(),
            // A run may have been read together with the request.
            has_more: true,
            runs: 0,
            catalog,
            log,
        }
    }

    pub(super) fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let mut fds = vec![self.connection.poll_fd()];
        if let Some(running) = self
            .running
            .as_ref()
            .filter(|_| !self.connection.is_congested())
        {
            fds.extend(running.roles.poll_fds());
        }
        fds
    }

    pub(super) fn wake_at(&self) -> Instant {
        match self.has_more {
            true => Instant::now(),
            false => self.connection.wake_at(self.timeout()),
        }
    }

    fn timeout(&self) -> Duration {
        match self.running {
            Some(_) => TIMEOUT,
            None => self.place.leisure,
        }
    }

    /// Whether a run has not ended.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the place that it takes. It gives way to a newcomer while nothing runs.
    pub(super) fn holder(&self) -> Holder {
        Holder {
            sender: self.from.into(),
            yields_at: (!self.is_running()).then(|| self.idle_since + GRACE),
        }
    }

    /// The cores that its roles are pinned to.
    pub(super) fn cores(&self) -> Vec<u32> {
        let seats = self.running.iter().flat_map(|running| &running.seats);
        seats.filter_map(|seat| seat.core).collect()
    }

    /// Handles the caller's frames, forwards messages, and reports how roles ended. `taken` are the cores of
    /// other sessions.
    pub(super) fn turn(&mut self, taken: impl Fn() -> Vec<u32>) -> Result<(), Leave> {
        self.has_more = true;
        for _ in 0..FRAMES_PER_TURN {
            let Some(frame) = self.connection.hear()? else {
                self.has_more = false;
                break;
            };
            self.handle(frame, &taken)?;
        }
        if !self.connection.is_congested() {
            self.attend()?;
        }
        Ok(self.connection.keep_up(&ToCaller::Alive, self.timeout())?)
    }

    fn handle(
        &mut self,
        frame: Frame<ToAgent>,
        taken: &impl Fn() -> Vec<u32>,
    ) -> Result<(), ConnectionError> {
        match frame {
            Frame::Word(ToAgent::Alive) => {}
            Frame::Word(ToAgent::Run(order)) if self.running.is_none() => {
                return self.begin(&order, taken());
            }
            // Frames of a run that has ended may still arrive, and are ignored.
            Frame::Word(ToAgent::Abort { run }) => {
                if let Some(running) = self.current(run) {
                    running.roles.kill();
                }
            }
            Frame::Word(ToAgent::Ended { run, role }) => {
                if let Some(running) = self.current(run) {
                    running.roles.announce_end(role);
                }
            }
            Frame::Message {
                run,
                from,
                to,
                bytes,
            } => {
                if let Some(running) = self.current(run) {
                    let _not_here = running.roles.deliver(from, to, bytes);
                }
            }
            Frame::Word(ToAgent::Visit(_) | ToAgent::Run(_)) => {
                return Err(ConnectionError::Protocol(
                    "an unexpected message".to_owned(),
                ));
            }
        }
        Ok(())
    }

    fn current(&mut self, run: RunNumber) -> Option<&mut Running> {
        self.running
            .as_mut()
            .filter(|running| running.number == run)
    }

    fn begin(&mut self, order: &RunOrder, taken: Vec<u32>) -> Result<(), ConnectionError> {
        let given = order.roles.len();
        if !(1..=MOST_ROLES).contains(&given) {
            return Err(ConnectionError::Protocol(format!(
                "a run with {given} roles on this host"
            )));
        }
        self.runs += 1;
        match self.start(order, taken) {
            Ok(running) => {
                self.running = Some(running);
                Ok(())
            }
            Err(Refusal { reason, cause }) => {
                let run = order.run;
                let reason = format!("the server refused: {reason}");
                for role in &order.roles {
                    let error = RoleError {
                        reason: reason.clone(),
                        cause,
                    };
                    let ended = RoleEnded::without_answer(*role, End::Failed(error));
                    let ended = Box::new(ended);
                    self.connection.say(&ToCaller::RoleEnded { run, ended })?;
                }
                self.connection.say(&ToCaller::RunEnded { run })
            }
        }
    }

    fn start(&self, order: &RunOrder, mut taken: Vec<u32>) -> Result<Running, Refusal> {
        let cause = Cause::Refused;
        let refused = |reason: String| Refusal { reason, cause };
        let program = self.catalog.read(&order.program, &order.params);
        let program = program.map_err(refused)?;
        // Check before calling `roles`: invalid parameters may mean billions of roles.
        program.check(&self.place.caps).map_err(refused)?;
        if let (true, Some(why)) = (self.place.device.is_managed(), program.refuses_manager()) {
            return Err(refused(format!("{}: {why}", self.place.device)));
        }
        let roles = program.roles();
        check_roles(&order.roles, &roles).map_err(refused)?;
        let load = |role: &RoleId| (*role, roles[role.0 as usize].load);
        let loads: Vec<_> = order.roles.iter().map(load).collect();
        taken.extend_from_slice(&order.taken);
        let others = if order.shares_cores {
            usize::MAX / 2
        } else {
            0
        };
        let (seats, _) = Cores::new(&taken, others).seat(&loads, &self.place.pinning);
        let mut local = LocalRoles::default();
        let here = Order {
            program: order.program.clone(),
            params: order.params.clone(),
            roles: seats.clone(),
            device: self.place.device.clone(),
            parent: Some(std::process::id()),
            memory: Some(self.place.memory),
            reached_at: self.connection.local_ip(),
        };
        let started = local.start(self.catalog, Mode::Processes, &roles, &here);
        started.map_err(|e| Refusal {
            reason: one_line(&e),
            cause: Cause::Own,
        })?;
        Ok(Running {
            number: order.run,
            roles: local,
            seats,
            device: self.place.device.clone(),
        })
    }

    /// Handles what the roles sent.
    fn attend(&mut self) -> Result<(), Leave> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let mut out = Vec::new();
        running.roles.turn(&mut out)?;
        let run = running.number;
        for output in out {
            match output {
                Output::Message { from, to, bytes } => {
                    self.connection.pass_on(run, (from, to), &bytes)?;
                }
                Output::Ended(ended) => self.connection.say(&ToCaller::RoleEnded { run, ended })?,
            }
        }
        if running.roles.is_over() {
            self.running = None;
            self.idle_since = Instant::now();
            self.connection.say(&ToCaller::RunEnded { run })?;
        }
        Ok(())
    }

    /// Logs that the caller has left.
    pub(super) fn farewell(&self, why: &Leave) {
        let cells = match self.runs {
            1 => "1 cell".to_owned(),
            n => format!("{n} cells"),
        };
        let name = &self.name;
        (self.log)(Event::Note(match (&self.running, why) {
            (None, Leave::Connection(error)) if error.is_end() => {
                format!("{name}: left after {cells}")
            }
            (None, _) => format!("{name}: lost after {cells}: {why}"),
            (Some(_), _) => format!("{name}: lost in cell {}: {why}", self.runs),
        }));
    }

    /// Ends the session because another caller needs its place; returns its connection, `None` if its caller is gone.
    pub(super) fn evict(mut self) -> Option<(Link, SocketAddr)> {
        let idle = self.idle_since.elapsed().as_secs();
        let name = &self.name;
        (self.log)(Event::Note(format!(
            "{name}: idle for {idle} s: session ended, because another client needs its place"
        )));
        self.connection.say(&ToCaller::Evicted).ok()?;
        Some((self.connection, self.from))
    }

    /// Notifies the caller that this agent ends.
    pub(super) fn stopped(&mut self) {
        // A caller that cannot be notified sees the closed connection.
        let _ = self.connection.say(&ToCaller::Stopped);
        self.connection.finish();
    }
}

impl Drop for Running {
    /// Ends the roles, and removes the files that killed processes left behind.
    fn drop(&mut self) {
        self.roles.tidy();
        if !self.roles.is_over() {
            drop(std::mem::take(&mut self.roles));
            self.device.tidy();
        }
    }
}

/// Why a run is not started.
struct Refusal {
    reason: String,
    cause: Cause,
}

/// Refuses roles that the program does not have.
fn check_roles(asked: &[RoleId], roles: &[Role]) -> Result<(), String> {
    let is_bad = |(at, role): &(usize, &RoleId)| {
        role.0 as usize >= roles.len() || asked[..*at].contains(role)
    };
    match asked.iter().enumerate().find(is_bad) {
        Some((_, role)) => Err(format!("unknown or duplicate {role}")),
        None => Ok(()),
    }
}
