//! Waiting with an eye on the other roles.
//!
//! A wait is cut into short ones; between them the role looks whether another one has failed, so that
//! it ends at once and not when its patience does.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use adverb_units::Span;
use adverb_verbs::{OutOfBandError, RoleId, Station, WaitError, WorkCompletion};

use crate::error::{Fault, succeeded};

/// How long a wait lasts until the role looks at the others.
const ATTENTION: Span = Span::from_ms(5);
/// How long a member waits for a completion, or for another member's request.
const PATIENCE: Span = Span::from_secs(10);
/// How long members wait for one another out of band.
const MEETING: Span = Span::from_secs(60);

/// The member that counts the others.
const FIRST: RoleId = RoleId(0);
const READY: &[u8] = b"ready";
const GO: &[u8] = b"go";
/// Says that a member sends no more messages.
pub(crate) const DONE: &[u8] = b"done";

/// What a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The end of a request of this role: it comes in any case.
    OwnRequest,
    /// Another role's next message: none comes once that role has ended the run.
    Message,
}

/// What a role knows of the others while it waits.
pub trait Attend {
    /// How long a wait may last.
    fn patience(&self) -> Span;

    /// Looks at the other roles.
    ///
    /// # Errors
    /// One has failed, or has ended the run whose next message is awaited.
    fn look(&self, awaited: Awaited) -> Result<(), Fault>;

    /// Why a request failed.
    fn failed(&self, wc: &WorkCompletion) -> Fault {
        succeeded(wc).err().unwrap_or(Fault::Stopped)
    }
}

/// Waits as `wait` does for the span it is given, until patience ends or another role has failed.
///
/// # Errors
/// Those of `wait`, or another role has failed.
#[inline]
pub fn attentively<A: Attend, R, E: Into<Fault>>(
    attend: &A,
    awaited: Awaited,
    mut wait: impl FnMut(Span) -> Result<R, E>,
) -> Result<R, Fault> {
    wait(ATTENTION).or_else(|error| insist(attend, error.into(), awaited, &mut wait))
}

/// What counts against patience is the span of each wait, and not the time that passed: on a busy
/// machine that may be time in which this role did not run, and could not see what had come.
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
        let patience = attend.patience();
        if waited >= patience {
            return Err(WaitError::TimedOut { what, patience }.into());
        }
        match wait(ATTENTION) {
            Ok(found) => return Ok(found),
            Err(e) => error = e.into(),
        }
        waited += ATTENTION;
    }
}

/// The other members of a program, as one of them talks to them out of band.
pub struct Members<'s, S> {
    station: &'s S,
    me: RoleId,
    count: u32,
    /// Those whose failure this one notices.
    noticed: Vec<RoleId>,
    /// What they said while this one listened only for their failure.
    early: RefCell<HashMap<RoleId, VecDeque<Vec<u8>>>>,
}

impl<'s, S: Station> Members<'s, S> {
    /// `me` of `count` members. It talks with `peers` and with member 0, which talks with all.
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

    /// The next message of another member.
    ///
    /// # Errors
    /// It said nothing for long, or a member is gone.
    pub fn receive(&self, from: RoleId) -> Result<Vec<u8>, Fault> {
        // Others than member 0, which hears of all, may have ended well.
        let noticed = match self.me {
            FIRST => &self.noticed[..],
            _ => &[FIRST],
        };
        let mut waited = Span::ZERO;
        while waited < MEETING {
            if let Some(message) = self.receive_within(from, ATTENTION)? {
                return Ok(message);
            }
            self.look_at(noticed)?;
            waited += ATTENTION;
        }
        let (role, patience) = (from, MEETING);
        Err(OutOfBandError::TimedOut { role, patience }.into())
    }

    /// The next message of another member, if it comes within `patience`.
    ///
    /// # Errors
    /// The member is gone.
    pub fn receive_within(&self, from: RoleId, patience: Span) -> Result<Option<Vec<u8>>, Fault> {
        let pop = |early: &mut HashMap<_, VecDeque<_>>| early.get_mut(&from)?.pop_front();
        let early = pop(&mut self.early.borrow_mut());
        if early.is_some() {
            return Ok(early);
        }
        match self.station.receive(from, patience) {
            Ok(message) => Ok(Some(message)),
            Err(OutOfBandError::TimedOut { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until all members are here; member 0 counts.
    ///
    /// # Errors
    /// A member is gone, or does not come.
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
    fn patience(&self) -> Span {
        PATIENCE
    }

    fn look(&self, _awaited: Awaited) -> Result<(), Fault> {
        self.look_at(&self.noticed)
    }
}
