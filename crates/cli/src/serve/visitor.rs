//! The client that is being served: its cells, one at a time.

use std::time::{Duration, Instant};

use adverb_verbs::Counters;
use rustix::event::PollFd;

use super::desk::Place;
use crate::failure::one_line;
use crate::pair::{Details, End, Ended, Order, Running, Side, SideDevice};
use crate::remote::{
    CellOrder, Connection, Frame, PATIENCE, Relay, SideEnded, ToClient, ToServer, Trouble,
};
use crate::terminal;

/// Between cells a client may take its time: its output may be waiting for a reader.
const LEISURE: Duration = Duration::from_secs(30);

pub(super) struct Visitor {
    connection: Connection<ToClient, ToServer>,
    name: String,
    place: Place,
    cell: Option<Cell>,
    /// How many cells it has had.
    cells: u64,
}

/// A cell under way.
struct Cell {
    side: Running,
    relay: Relay,
}

/// Why a client is served no more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Leave {
    #[error(transparent)]
    Trouble(#[from] Trouble),
    #[error("cannot read from the passive side: {0}")]
    System(#[from] std::io::Error),
}

impl Visitor {
    pub(super) fn new(
        connection: Connection<ToClient, ToServer>,
        name: String,
        place: Place,
    ) -> Self {
        Visitor {
            connection,
            name,
            place,
            cell: None,
            cells: 0,
        }
    }

    /// Address and host.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn announce(&self) {
        terminal::say(&format!("{}: welcome, on {}", self.name, self.place.device));
    }

    pub(super) fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let mut fds = vec![self.connection.poll_fd()];
        if let Some(cell) = &self.cell {
            fds.extend(cell.side.poll_fds());
            fds.extend(cell.relay.poll_fd(self.connection.room()));
        }
        fds
    }

    pub(super) fn wake_at(&self) -> Instant {
        self.connection.wake_at(self.patience())
    }

    fn patience(&self) -> Duration {
        if self.cell.is_some() {
            PATIENCE
        } else {
            LEISURE
        }
    }

    /// Hears the client, relays, and tells how a side ended.
    pub(super) fn turn(&mut self) -> Result<(), Leave> {
        while let Some(frame) = self.connection.hear()? {
            self.heed(frame)?;
        }
        if let Some(cell) = &mut self.cell {
            let connection = &mut self.connection;
            cell.side.read()?;
            cell.relay.pump(|n, piece| connection.pass_on(n, piece))?;
        }
        self.tell_end()?;
        Ok(self.connection.keep_up(&ToClient::Alive, self.patience())?)
    }

    fn heed(&mut self, frame: Frame<ToServer>) -> Result<(), Trouble> {
        match frame {
            Frame::Word(ToServer::Alive) => Ok(()),
            Frame::Word(ToServer::Order(order)) if self.cell.is_none() => self.begin(&order),
            Frame::Word(ToServer::Abort { cell }) => {
                if let Some(running) = self.cell.as_mut().filter(|c| c.relay.cell() == cell) {
                    running.side.kill();
                }
                Ok(())
            }
            // Of a cell that has ended, what was on its way.
            Frame::Piece(cell, piece) => match &mut self.cell {
                Some(running) if running.relay.cell() == cell => running.relay.give(&piece),
                _ => Ok(()),
            },
            Frame::Word(ToServer::Visit(_) | ToServer::Order(_)) => {
                Err(Trouble::Strange("a word at the wrong time".to_owned()))
            }
        }
    }

    fn begin(&mut self, order: &CellOrder) -> Result<(), Trouble> {
        self.cells += 1;
        match self.start(order) {
            Ok(cell) => {
                self.cell = Some(cell);
                Ok(())
            }
            Err(error) => {
                let reason = format!("{} side: {}", Side::Passive.name(), one_line(&error));
                let peer_gone = false;
                self.tell(SideEnded {
                    cell: order.cell,
                    end: End::Answered(Ended::Failed { reason, peer_gone }),
                    counters: Counters::new(),
                    details: Details::new(),
                })
            }
        }
    }

    fn start(&self, order: &CellOrder) -> anyhow::Result<Cell> {
        order.spec.validate(&self.place.caps)?;
        let role = Order {
            spec: order.spec.clone(),
            device: self.place.device.clone(),
            core: self.place.welcome.core,
            shares_core: order.shares_core,
            parent: std::process::id(),
            reached_at: self.connection.local_ip(),
        };
        let (side, relay) = Relay::start(order.cell, Side::Passive, &role)?;
        Ok(Cell { side, relay })
    }

    /// Once the side has ended and all that it said is passed on.
    fn tell_end(&mut self) -> Result<(), Trouble> {
        let ended = |cell: &mut Cell| !cell.side.is_running() && cell.relay.is_done();
        let Some(Cell { side, relay }) = self.cell.take_if(ended) else {
            return Ok(());
        };
        if side.was_killed() {
            self.place.device.tidy();
        }
        let (end, SideDevice { counters, details }) = side.end();
        self.tell(SideEnded {
            cell: relay.cell(),
            end,
            counters,
            details,
        })
    }

    fn tell(&mut self, ended: SideEnded) -> Result<(), Trouble> {
        self.connection.say(&ToClient::SideEnded(Box::new(ended)))
    }

    /// Says for the log that the client has left.
    pub(super) fn farewell(&self, why: &Leave) {
        let cells = match self.cells {
            1 => "1 cell".to_owned(),
            n => format!("{n} cells"),
        };
        let name = &self.name;
        terminal::say(&match (&self.cell, why) {
            (None, Leave::Trouble(trouble)) if trouble.is_end() => {
                format!("{name}: left after {cells}")
            }
            (None, _) => format!("{name}: lost after {cells}: {why}"),
            (Some(_), _) => format!("{name}: lost in cell {}: {why}", self.cells),
        });
    }

    /// Tells the client that this server ends.
    pub(super) fn stopped(&mut self) {
        // A client that cannot be told notices by itself.
        let _ = self.connection.say(&ToClient::Stopped);
        self.connection.finish();
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            // Its end ends the side.
            drop(cell);
            self.place.device.tidy();
        }
    }
}
