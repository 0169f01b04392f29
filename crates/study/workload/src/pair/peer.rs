//! The out-of-band channel to the other side.

use std::cell::RefCell;
use std::collections::VecDeque;

use adverb_units::Span;
use adverb_verbs::{OutOfBandError, RoleId, Station};

use crate::attend::{Attend, Awaited};
use crate::error::{Fault, Side};
use crate::limit::Limit;
use crate::pair::layout;
use crate::pair::message::Message;
use crate::pair::spec::CellSpec;

/// The role that starts transfers.
pub const ACTIVE: RoleId = RoleId(0);
/// The other role.
pub const PASSIVE: RoleId = RoleId(1);

/// How long a failing side waits for the peer's reason.
const LAST_WORDS: Span = Span::from_ms(200);

/// The out-of-band channel to the other side.
pub(crate) struct Peer<'s, S> {
    pub(crate) station: &'s S,
    role: RoleId,
    /// How long one wait may last.
    timeout: Span,
    /// When the present run ends.
    pub(crate) limit: Limit,
    /// What it said while this side listened only for its failure.
    early: RefCell<VecDeque<Message>>,
}

impl<'s, S: Station> Peer<'s, S> {
    /// The peer of `side` of a cell.
    pub(crate) fn of(side: Side, station: &'s S, spec: &CellSpec) -> Self {
        Peer {
            station,
            role: match side {
                Side::Active => PASSIVE,
                Side::Passive => ACTIVE,
            },
            timeout: layout::timeout(spec),
            limit: Limit::default(),
            early: RefCell::default(),
        }
    }

    pub(crate) fn tell(&self, message: Message) -> Result<(), Fault> {
        Ok(self.station.send(self.role, &message.encode())?)
    }

    pub(crate) fn hear(&self, expected: &'static str, timeout: Span) -> Result<Message, Fault> {
        let early = self.early.borrow_mut().pop_front();
        early.map_or_else(|| self.receive(expected, timeout), Ok)
    }

    /// Waits for the message `expected`.
    pub(crate) fn hear_that(
        &self,
        expected: &Message,
        what: &'static str,
        timeout: Span,
    ) -> Result<(), Fault> {
        match self.hear(what, timeout)? {
            heard if heard == *expected => Ok(()),
            other => Err(other.unexpected(what)),
        }
    }

    /// Returns an error if the other side has failed.
    fn check(&self) -> Result<(), Fault> {
        match self.receive("nothing", Span::ZERO) {
            Ok(message) => {
                self.early.borrow_mut().push_back(message);
                Ok(())
            }
            Err(Fault::OutOfBand(OutOfBandError::TimedOut { .. })) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Whether the end of a run has been heard, and nobody has asked for it yet.
    fn has_stopped(&self) -> bool {
        let early = self.early.borrow();
        matches!(early.front(), Some(Message::Stop { .. }))
    }

    /// Returns the fault that came first: this side's, or the other side's if that may be its cause.
    pub(crate) fn root_cause(&self, fault: Fault) -> Fault {
        if !fault.may_be_the_others() {
            return fault;
        }
        loop {
            match self.receive("a reason", LAST_WORDS) {
                Ok(_) => {}
                Err(Fault::OutOfBand(OutOfBandError::PeerGone(_))) => {
                    return Fault::PeerEnded(Box::new(fault));
                }
                Err(reason @ Fault::Peer(_)) => return reason,
                Err(_) => return fault,
            }
        }
    }

    fn receive(&self, expected: &'static str, timeout: Span) -> Result<Message, Fault> {
        let bytes = self.station.receive(self.role, timeout)?;
        match Message::decode(&bytes, expected)? {
            Message::Abort { reason } => Err(Fault::Peer(reason)),
            message => Ok(message),
        }
    }
}

impl<S: Station> Attend for Peer<'_, S> {
    fn timeout(&self) -> Span {
        self.timeout
    }

    fn look(&self, awaited: Awaited) -> Result<(), Fault> {
        self.limit.look(self.station.now());
        self.check()?;
        if awaited == Awaited::Message && self.has_stopped() {
            return Err(Fault::Stopped);
        }
        Ok(())
    }
}
