//! The server's side of a cell, as the client sees it; and the relay to it.

use std::time::{Duration, Instant};

use adverb_studies::CellSpec;
use rustix::event::PollFd;

use super::{End, Ended, SideDevice};
use crate::remote::{
    CellNumber, Connection, Frame, More, PATIENCE, Peer, Relay, SideEnded, ToClient, ToServer,
    Trouble, printable,
};

/// How long the server may take to end its side when told to.
const ABORT_PATIENCE: Duration = Duration::from_secs(2);

/// A side that runs at the server.
pub(super) struct There<'p> {
    peer: &'p mut Peer,
    cell: CellNumber,
    /// None only until this host's side was started.
    relay: Option<Relay>,
    end: Option<(End, SideDevice)>,
    aborted: Option<Instant>,
}

/// What the server's words come to.
enum News {
    Nothing,
    Ended(SideEnded),
    Stopped,
}

impl<'p> There<'p> {
    /// Orders the side; a server that is lost meanwhile is a side that died.
    pub(super) fn order(peer: &'p mut Peer, spec: &CellSpec, shares_core: bool) -> Self {
        let ordered = peer.order(spec, shares_core);
        let mut there = There {
            peer,
            cell: *ordered.as_ref().unwrap_or(&0),
            relay: None,
            end: None,
            aborted: None,
        };
        if let Err(trouble) = ordered {
            there.lose(&format!("is gone: {trouble}"));
        }
        there
    }

    pub(super) fn cell(&self) -> CellNumber {
        self.cell
    }

    /// Relays between the side and this host's.
    pub(super) fn with(self, relay: Relay) -> Self {
        let relay = Some(relay);
        There { relay, ..self }
    }

    pub(super) fn is_running(&self) -> bool {
        self.end.is_none()
    }

    pub(super) fn has_failed(&self) -> bool {
        let end = self.end.as_ref().map(|(end, _)| end);
        end.is_some_and(|end| !matches!(end, End::Answered(Ended::Served)))
    }

    /// Whether the server was lost.
    pub(super) fn is_lost(&self) -> bool {
        self.peer.connected().is_none()
    }

    pub(super) fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let connection = self.peer.connected().filter(|_| self.is_running());
        let room = connection.map_or(More::Now, Connection::room);
        let relay = self.relay.as_ref().and_then(|relay| relay.poll_fd(room));
        let connection = connection.map(|connection| connection.poll_fd());
        connection.into_iter().chain(relay).collect()
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let connection = self.peer.connected().filter(|_| self.is_running())?;
        let connection = connection.wake_at(PATIENCE);
        let abort = self.aborted.map(|at| at + ABORT_PATIENCE);
        Some(abort.map_or(connection, |abort| abort.min(connection)))
    }

    /// Relays, and hears how the side ended.
    pub(super) fn turn(&mut self) {
        if self.end.is_some() {
            self.let_talk();
            return;
        }
        match self.exchange() {
            Ok(News::Nothing) => {}
            Ok(News::Ended(SideEnded {
                end,
                counters,
                details,
                ..
            })) => {
                let details = details
                    .iter()
                    .map(|(name, value)| (printable(name), printable(value)));
                let details = details.collect();
                self.end = Some((tamed(end), SideDevice { counters, details }));
                self.let_talk();
            }
            Ok(News::Stopped) => self.lose("was stopped"),
            Err(trouble) => self.lose(&format!("is gone: {trouble}")),
        }
        let late = |at: Instant| at.elapsed() >= ABORT_PATIENCE;
        if self.end.is_none() && self.aborted.is_some_and(late) {
            self.lose("did not end its side when told to");
        }
    }

    fn exchange(&mut self) -> Result<News, Trouble> {
        let connection = self.peer.connection()?;
        if let Some(relay) = &mut self.relay {
            relay.pump(|cell, piece| connection.pass_on(cell, piece))?;
        }
        while let Some(frame) = connection.hear()? {
            match frame {
                Frame::Piece(cell, piece) if cell == self.cell => {
                    if let Some(relay) = &mut self.relay {
                        relay.give(&piece)?;
                    }
                }
                Frame::Word(ToClient::SideEnded(ended)) if ended.cell == self.cell => {
                    return Ok(News::Ended(*ended));
                }
                Frame::Word(ToClient::Stopped) => return Ok(News::Stopped),
                Frame::Word(ToClient::Alive) => {}
                Frame::Piece(..) | Frame::Word(_) => {
                    return Err(Trouble::Strange("a word at the wrong time".to_owned()));
                }
            }
        }
        connection.keep_up(&ToServer::Alive, PATIENCE)?;
        Ok(News::Nothing)
    }

    /// Nobody listens to this host's side any more, but it may still say what it wants to.
    fn let_talk(&mut self) {
        if let Some(relay) = &mut self.relay {
            // It does not fail: nothing is passed on.
            let _ = relay.pump(|_, _| Ok(More::Now));
        }
    }

    fn lose(&mut self, how: &str) {
        let reason = format!("the server at {} {how}", self.peer.address());
        self.peer.lose();
        self.end = Some((End::Died(printable(&reason)), SideDevice::default()));
        if let Some(relay) = &mut self.relay {
            // The end of the other role, for this host's. An empty piece is never too much.
            let _ = relay.give(&[]);
        }
        self.let_talk();
    }

    /// Has the server end it, if it has not ended.
    pub(super) fn abort(&mut self) {
        if self.end.is_some() {
            return;
        }
        self.aborted = Some(Instant::now());
        let cell = self.cell;
        let said = self
            .peer
            .connection()
            .and_then(|connection| connection.say(&ToServer::Abort { cell }));
        if let Err(trouble) = said {
            self.lose(&format!("is gone: {trouble}"));
        }
    }

    pub(super) fn end(self) -> (End, SideDevice) {
        self.end.unwrap_or((End::Stopped, SideDevice::default()))
    }
}

/// Its words, fit to be shown and kept.
fn tamed(end: End) -> End {
    match end {
        End::Died(how) => End::Died(printable(&how)),
        End::Answered(Ended::Failed { reason, peer_gone }) => End::Answered(Ended::Failed {
            reason: printable(&reason),
            peer_gone,
        }),
        other => other,
    }
}
