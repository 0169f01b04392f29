//! The roles of a run at an agent, as seen by the caller.

use std::time::{Duration, Instant};

use adverb_verbs::RoleId;
use rustix::event::PollFd;

use crate::control::{
    Connection, ConnectionError, Frame, Peer, RunNumber, RunOrder, TIMEOUT, ToAgent, ToCaller,
};
use crate::local::{End, Output, RoleEnded};
use crate::text::printable;

/// Timeout for an agent to end its roles on request.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Roles that run at an agent.
pub(crate) struct RemoteRoles<'p> {
    peer: &'p mut Peer,
    run: RunNumber,
    /// The roles that have not ended.
    running: Vec<RoleId>,
    is_over: bool,
    aborted: Option<Instant>,
    /// Why the agent was lost, until that is reported.
    lost: Option<String>,
}

impl<'p> RemoteRoles<'p> {
    /// Orders the roles. If the agent is lost, they count as dead.
    pub(crate) fn order(peer: &'p mut Peer, order: RunOrder) -> Self {
        let running = order.roles.clone();
        let ordered = peer.order(order);
        let lost = ordered
            .as_ref()
            .err()
            .map(|error| format!("is gone: {error}"));
        RemoteRoles {
            peer,
            run: ordered.unwrap_or(0),
            running,
            is_over: false,
            aborted: None,
            lost,
        }
    }

    /// Whether the agent has ended its part, or was lost.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the agent was lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.peer.connected().is_none()
    }

    pub(crate) fn is_congested(&self) -> bool {
        self.connected().is_some_and(Connection::is_congested)
    }

    fn connected(&self) -> Option<&crate::control::ToAgentLink> {
        self.peer.connected().filter(|_| !self.is_over)
    }

    pub(crate) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.connected().map(Connection::poll_fd)
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        if self.lost.is_some() {
            return Some(Instant::now());
        }
        let connection = self.connected()?.wake_at(TIMEOUT);
        let abort = self.aborted.map(|at| at + ABORT_TIMEOUT);
        Some(abort.map_or(connection, |abort| abort.min(connection)))
    }

    /// Receives what the agent and its roles sent.
    pub(crate) fn turn(&mut self, into: &mut Vec<Output>) {
        if self.is_over {
            return;
        }
        if let Err(how) = self.exchange(into) {
            self.lose(&how, into);
        }
        let late = |at: Instant| at.elapsed() >= ABORT_TIMEOUT;
        if !self.is_over && self.aborted.is_some_and(late) {
            self.lose("did not end its roles on request", into);
        }
    }

    /// Exchanges messages with the agent. The error describes how it was lost.
    fn exchange(&mut self, into: &mut Vec<Output>) -> Result<(), String> {
        if let Some(how) = self.lost.take() {
            return Err(how);
        }
        let gone = |error: ConnectionError| format!("is gone: {error}");
        loop {
            let connection = self.peer.connection().map_err(gone)?;
            let Some(frame) = connection.hear().map_err(gone)? else {
                break;
            };
            match frame {
                Frame::Word(ToCaller::Stopped) => return Err("was stopped".to_owned()),
                Frame::Word(ToCaller::Evicted) => {
                    return Err("ended the idle session for another client: run again".to_owned());
                }
                Frame::Word(ToCaller::Alive) => {}
                Frame::Message {
                    run,
                    from,
                    to,
                    bytes,
                } if run == self.run && self.running.contains(&from) => {
                    into.push(Output::Message { from, to, bytes });
                }
                Frame::Word(ToCaller::RoleEnded { run, ended }) if run == self.run => {
                    self.end(*ended, into).map_err(gone)?;
                }
                Frame::Word(ToCaller::RunEnded { run })
                    if run == self.run && self.running.is_empty() =>
                {
                    self.is_over = true;
                    return Ok(());
                }
                Frame::Message { .. } | Frame::Word(_) => {
                    return Err(gone(ConnectionError::Protocol(
                        "an unexpected message".to_owned(),
                    )));
                }
            }
        }
        let connection = self.peer.connection().map_err(gone)?;
        connection.keep_up(&ToAgent::Alive, TIMEOUT).map_err(gone)
    }

    fn end(&mut self, ended: RoleEnded, into: &mut Vec<Output>) -> Result<(), ConnectionError> {
        let at = self.running.iter().position(|role| *role == ended.role);
        let at =
            at.ok_or_else(|| ConnectionError::Protocol("the end of an unknown role".to_owned()))?;
        self.running.swap_remove(at);
        into.push(Output::Ended(Box::new(tamed(ended))));
        Ok(())
    }

    fn lose(&mut self, how: &str, into: &mut Vec<Output>) {
        let reason = printable(&format!("{} {how}", self.peer.name()));
        self.peer.lose();
        self.is_over = true;
        for role in std::mem::take(&mut self.running) {
            let ended = RoleEnded::without_answer(role, End::Died(reason.clone()));
            into.push(Output::Ended(Box::new(ended)));
        }
    }

    /// Sends something to the agent. The loss of the agent is reported by the next turn.
    fn say(
        &mut self,
        say: impl FnOnce(&mut crate::control::ToAgentLink) -> Result<(), ConnectionError>,
    ) {
        if self.is_over || self.lost.is_some() {
            return;
        }
        if let Err(error) = self.peer.connection().and_then(say) {
            self.lost = Some(format!("is gone: {error}"));
        }
    }

    /// Forwards a message to one of the agent's roles.
    pub(crate) fn deliver(&mut self, from: RoleId, to: RoleId, bytes: &[u8]) {
        if self.running.contains(&to) {
            let run = self.run;
            self.say(|connection| connection.pass_on(run, (from, to), bytes));
        }
    }

    /// Notifies the agent's roles that one has ended elsewhere.
    pub(crate) fn announce_end(&mut self, role: RoleId) {
        let run = self.run;
        self.say(|connection| connection.say(&ToAgent::Ended { run, role }));
    }

    /// Asks the agent to end its roles.
    pub(crate) fn kill(&mut self) {
        if self.aborted.is_none() {
            self.aborted = Some(Instant::now());
            let run = self.run;
            self.say(|connection| connection.say(&ToAgent::Abort { run }));
        }
    }
}

/// Removes control characters from the texts of another host.
fn tamed(ended: RoleEnded) -> RoleEnded {
    let details = ended.details.iter();
    let details = details.map(|(name, value)| (printable(name), printable(value)));
    RoleEnded {
        details: details.collect(),
        end: match ended.end {
            End::Died(how) => End::Died(printable(&how)),
            End::Failed(mut error) => {
                error.reason = printable(&error.reason);
                End::Failed(error)
            }
            other => other,
        },
        ..ended
    }
}
