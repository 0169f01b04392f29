//! What a role says out of band and what is said to it, on its way to and from the connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use adverb_host::{Link, MAX_MESSAGE};
use anyhow::Context;
use rustix::event::{PollFd, PollFlags};

use super::connection::More;
use super::{CellNumber, Trouble};
use crate::pair::{Order, Running, Side};

/// Most that waits for a role to take it. Roles say less than a kilobyte at a time, and listen.
const MOST_WAITING: usize = 2 * MAX_MESSAGE.get() as usize;

/// The parent's end of a role's socket.
pub(crate) struct Relay {
    cell: CellNumber,
    /// None once the role has ended.
    role: Option<UnixStream>,
    to_role: Vec<u8>,
    /// The other role has ended: so will what is said to this one.
    ends: bool,
}

impl Relay {
    /// Starts a side whose peer is on the other host.
    ///
    /// # Errors
    /// Of the system: the process cannot be started.
    pub(crate) fn start(
        cell: CellNumber,
        side: Side,
        order: &Order,
    ) -> anyhow::Result<(Running, Relay)> {
        let (ours, theirs) = Link::pair().context("cannot make a socket pair")?;
        ours.send(side.peer().role(), &serde_json::to_vec(order)?)?;
        let running = Running::spawn(side, OwnedFd::from(theirs.into_stream()))
            .with_context(|| format!("cannot start the {} side", side.name()))?;
        let role = ours.into_stream();
        role.set_nonblocking(true)?;
        let relay = Relay {
            cell,
            role: Some(role),
            to_role: Vec::new(),
            ends: false,
        };
        Ok((running, relay))
    }

    /// The cell that it belongs to.
    pub(crate) fn cell(&self) -> CellNumber {
        self.cell
    }

    /// What to wait for: the role says something, or takes what waits for it.
    pub(crate) fn poll_fd(&self, room: More) -> Option<PollFd<'_>> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, room == More::Now);
        flags.set(PollFlags::OUT, !self.to_role.is_empty());
        Some(PollFd::new(self.role.as_ref()?, flags))
    }

    /// Whether the role has ended, and all that it said was passed on.
    pub(crate) fn is_done(&self) -> bool {
        self.role.is_none()
    }

    /// Passes on what the role said, and its end as an empty piece, for as long as `pass_on` takes
    /// more; and to the role what waits for it.
    pub(crate) fn pump(
        &mut self,
        mut pass_on: impl FnMut(CellNumber, &[u8]) -> Result<More, Trouble>,
    ) -> Result<(), Trouble> {
        let mut piece = [0; 16 * 1024];
        while let Some(role) = &self.role {
            let said = match Read::read(&mut &*role, &mut piece) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                // Of a role that left unread what was said to it, the end is a reset.
                Err(_) => 0,
                Ok(n) => n,
            };
            if said == 0 {
                self.role = None;
            }
            if pass_on(self.cell, &piece[..said])? == More::Later {
                break;
            }
        }
        self.flush();
        Ok(())
    }

    /// Takes what the other role said; an empty piece is its end.
    pub(crate) fn give(&mut self, piece: &[u8]) -> Result<(), Trouble> {
        if self.to_role.len() + piece.len() > MOST_WAITING {
            let what = format!("more than {MOST_WAITING} B that the role does not take");
            return Err(Trouble::Strange(what));
        }
        self.to_role.extend_from_slice(piece);
        self.ends |= piece.is_empty();
        self.flush();
        Ok(())
    }

    fn flush(&mut self) {
        let Some(role) = &self.role else {
            self.to_role.clear();
            return;
        };
        let written = write_some(role, &mut self.to_role);
        if written.is_err() {
            // The role has ended; what it said last is still to be read.
            self.to_role.clear();
        }
        if self.ends && self.to_role.is_empty() {
            let _ = role.shutdown(Shutdown::Write);
        }
    }
}

/// Writes as much as there is room for.
fn write_some(mut to: &UnixStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(n) => drop(bytes.drain(..n)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
