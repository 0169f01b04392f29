//! Waits that also watch the other roles.
//!
//! A wait is split into short ones. Between them the role checks whether another role has failed, so that it
//! ends at once instead of after its timeout.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use adverb_units::Span;
use adverb_verbs::{OutOfBandError, RoleId, Station, WaitError, WorkCompletion};

use crate::error::{Fault, succeeded};

/// Duration of a wait between two checks of the other roles.
pub(crate) const ATTENTION: Span = Span::from_ms(5);
/// Timeout for a completion, or for another member's request.
const TIMEOUT: Span = Span::from_secs(10);

/// The member that counts the others.
const FIRST: RoleId = RoleId(0);
const READY: &[u8] = b"ready";
const GO: &[u8] = b"go";
/// Message of a member that sends no more requests.
pub(crate) const DONE: &[u8] = b"done";

/// The awaited event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The end of a request of this role, which arrives in any case.
    OwnRequest,
    /// Another role's next message; none arrives after that role has ended the run.
    Message,
}

/// Access to the other roles during a wait.
pub trait Attend {
    /// Returns the timeout of a wait.
    fn timeout(&self) -> Span;

    /// Checks the other roles.
    ///
    /// # Errors
    /// A role has failed, or has ended the run whose next message is awaited.
    fn look(&self, awaited: Awaited) -> Result<(), Fault>;

    /// Returns why a request failed.
    fn failed(&self, wc: &WorkCompletion) -> Fault {
        succeeded(wc).err().unwrap_or(Fault::Stopped)
    }
}

/// Access to the other roles with another timeout.
pub(crate) struct Within<'a, A>(pub(crate) &'a A, pub(crate) Span);

impl<A: Attend> Attend for Within<'_, A> {
    fn timeout(&self) -> Span {
        self.1
    }

    fn look(&self, awaited: Awaited) -> Result<(), Fault> {
        self.0.look(awaited)
    }

    fn failed(&self, wc: &WorkCompletion) -> Fault {
        self.0.failed(wc)
    }
}

/// Calls `wait` with short timeouts until it succeeds, the timeout ends, or another role has failed.
///
/// # Errors
/// Errors of `wait`, or another role has failed.
#[inline]
pub fn attentively<A: Attend, R, E: Into<Fault>>(
    attend: &A,
    awaited: Awaited,
    mut wait: impl FnMut(Span) -> Result<R, E>,
) -> Result<R, Fault> {
    wait(ATTENTION).or_else(|error| insist(attend, error.into(), awaited, &mut wait))
}

/// The timeout is the sum of the waits, not the elapsed time: on a busy machine the role may not have run
/// for most of that, and could not see what had arrived.
#[cold]
#[inline(never)]
fn insist<A: Attend, R, E: Into<Fault>>(
    attend: &A,
    mut error: Fault,
    awaited: Awaited,
    wait: &mut impl FnMut(Span) -> Result<R, E>,
) -> Result<R, Fault> {
    let mut waited = ATTENTION;
    loop {
        let Fault::Wait(WaitError::TimedOut { what, .. }) = error else {
            return Err(error);
        };
        attend.look(awaited)?;
        let timeout = attend.timeout();
        if waited >= timeout {
            return Err(WaitError::TimedOut { what, timeout }.into());
        }
        match wait(ATTENTION) {
            Ok(found) => return Ok(found),
            Err(e) => error = e.into(),
        }
        waited += ATTENTION;
    }
}

/// The out-of-band channel from one member of a program to the others.
pub struct Members<'s, S> {
    station: &'s S,
    me: RoleId,
    count: u32,
    /// Members whose failures this one notices.
    noticed: Vec<RoleId>,
    /// Messages that arrived while this member only watched for failures.
    early: RefCell<HashMap<RoleId, VecDeque<Vec<u8>>>>,
}

impl<'s, S: Station> Members<'s, S> {
    /// Returns the channel of member `me` of `count`, to `peers` and to member 0, which reaches all.
    pub fn new(
        station: &'s S,
        (me, count): (RoleId, u32),
        peers: impl IntoIterator<Item = RoleId>,
    ) -> Self {
        let mut noticed: Vec<RoleId> = match me {
            FIRST => (1..count).map(RoleId).collect(),
            _ => peers.into_iter().chain([FIRST]).collect(),
        };
        noticed.sort_unstable();
        noticed.dedup();
        noticed.retain(|role| *role != me);
        Members {
            station,
            me,
            count,
            noticed,
            early: RefCell::default(),
        }
    }

    /// The member's station.
    pub fn station(&self) -> &'s S {
        self.station
    }

    /// Sends a message to another member.
    ///
    /// # Errors
    /// It is gone.
    pub fn send(&self, to: RoleId, message: &[u8]) -> Result<(), Fault> {
        Ok(self.station.send(to, message)?)
    }

    /// Waits for the next message of another member. There is no timeout: some members only wait for it while others
    /// measure, however long that takes.
    ///
    /// # Errors
    /// A member is gone.
    pub fn receive(&self, from: RoleId) -> Result<Vec<u8>, Fault> {
        // Members other than 0, which watches all, may have ended with success.
        let noticed = match self.me {
            FIRST => &self.noticed[..],
            _ => &[FIRST],
        };
        loop {
            if let Some(message) = self.receive_within(from, ATTENTION)? {
                return Ok(message);
            }
            self.look_at(noticed)?;
        }
    }

    /// Returns the next message of another member, if it arrives within `timeout`.
    ///
    /// # Errors
    /// The member is gone.
    pub fn receive_within(&self, from: RoleId, timeout: Span) -> Result<Option<Vec<u8>>, Fault> {
        let pop = |early: &mut HashMap<_, VecDeque<_>>| early.get_mut(&from)?.pop_front();
        let early = pop(&mut self.early.borrow_mut());
        if early.is_some() {
            return Ok(early);
        }
        match self.station.receive(from, timeout) {
            Ok(message) => Ok(Some(message)),
            Err(OutOfBandError::TimedOut { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until all members have reached this call; member 0 counts them.
    ///
    /// # Errors
    /// A member is gone.
    pub fn meet(&self) -> Result<(), Fault> {
        if self.me == FIRST {
            let others = || (1..self.count).map(RoleId);
            others().try_for_each(|other| self.expect(other, READY))?;
            return others().try_for_each(|other| self.send(other, GO));
        }
        self.send(FIRST, READY)?;
        self.expect(FIRST, GO)
    }

    fn expect(&self, from: RoleId, word: &'static [u8]) -> Result<(), Fault> {
        let heard = self.receive(from)?;
        if heard == word {
            return Ok(());
        }
        Err(Fault::Protocol {
            expected: "readiness",
            found: String::from_utf8_lossy(&heard).into_owned(),
        })
    }

    fn look_at(&self, roles: &[RoleId]) -> Result<(), Fault> {
        for role in roles {
            match self.station.receive(*role, Span::ZERO) {
                Ok(message) => {
                    let mut early = self.early.borrow_mut();
                    early.entry(*role).or_default().push_back(message);
                }
                Err(OutOfBandError::TimedOut { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl<S: Station> Attend for Members<'_, S> {
    fn timeout(&self) -> Span {
        TIMEOUT
    }

    fn look(&self, _awaited: Awaited) -> Result<(), Fault> {
        self.look_at(&self.noticed)
    }
}
