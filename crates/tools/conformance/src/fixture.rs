//! What a case runs on: the station of its role, the device to open, and helpers that run at the
//! same time.

use std::sync::{Arc, Mutex, PoisonError};

use adverb_units::Span;
use adverb_verbs::{OpenError, RoleId, Station};

use crate::end::{End, Objects};
use crate::{NotSupported, Verdict};

/// The role that decides the verdict.
const MAIN: RoleId = RoleId(0);

/// Opens the device once more. Contexts that are opened one after the other may be at different
/// addresses or machines.
pub type Open<'o, C> = dyn Fn() -> Result<C, OpenError> + 'o;

/// The station of one of a case's roles: the main role, or a helper that runs at the same time.
///
/// All roles run the case's function; a helper branches off where it asks for what the main role
/// gives it ([`Fixture::given`]). No lock or borrow is held across a wait.
pub struct Fixture<'s, S: Station> {
    station: &'s S,
    role: RoleId,
    open: &'s Open<'s, S::Context>,
    board: &'s Board<S::Context>,
}

impl<S: Station> Clone for Fixture<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Station> Copy for Fixture<'_, S> {}

/// The ends that the main role gives to its helpers.
pub struct Board<C: adverb_verbs::Context>(Mutex<Vec<(RoleId, Given<C>)>>);

type Given<C> = Vec<Arc<Objects<C>>>;

impl<C: adverb_verbs::Context> Board<C> {
    /// An empty one, which the roles of a case share.
    pub fn new() -> Arc<Self> {
        Arc::new(Board(Mutex::default()))
    }
}

impl<'s, S: Station> Fixture<'s, S> {
    /// What `role` runs on: 0 is the main role, the helpers follow.
    pub fn new(
        (station, role): (&'s S, RoleId),
        open: &'s Open<'s, S::Context>,
        board: &'s Board<S::Context>,
    ) -> Self {
        Fixture {
            station,
            role,
            open,
            board,
        }
    }

    /// The station, for waits.
    pub fn station(self) -> &'s S {
        self.station
    }

    /// Opens the device.
    pub fn open(self) -> S::Context {
        (self.open)().expect("open the device")
    }

    /// Starts helper `number` with ends that it shares with this role.
    pub(crate) fn start(self, number: u32, ends: &[&End<'_, S>]) {
        let ends = ends.iter().map(|end| end.objects()).collect();
        let role = helper(number);
        let mut board = self.board.0.lock().unwrap_or_else(PoisonError::into_inner);
        board.push((role, ends));
        drop(board);
        self.tell(number, &[]);
    }

    /// Sends a message to helper `number`.
    pub(crate) fn tell(self, number: u32, message: &[u8]) {
        let sent = self.station.send(helper(number), message);
        sent.unwrap_or_else(|error| panic!("helper {number}: {error}"));
    }

    /// The next message of helper `number`, such as that it is [`Fixture::done`].
    pub(crate) fn hear(self, number: u32) -> Vec<u8> {
        let heard = self.station.receive(helper(number), Span::from_secs(30));
        heard.unwrap_or_else(|error| panic!("helper {number}: {error}"))
    }

    /// Whether this role is a helper.
    pub(crate) fn is_helper(self) -> bool {
        self.role != MAIN
    }

    /// The number of this helper.
    pub(crate) fn helper_number(self) -> u32 {
        self.role.0 - 1
    }

    /// The ends that a helper was started with; an error if the main role has ended without it.
    pub(crate) fn given<const N: usize>(self) -> Result<[End<'s, S>; N], NotSupported> {
        self.hear_main()?;
        let mut board = self.board.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = board.iter().position(|(role, _)| *role == self.role);
        let (_, ends) = board.swap_remove(at.expect("what comes before the message"));
        drop(board);
        let ends = ends.into_iter().map(|end| End::shared(self.station, end));
        let ends: Vec<_> = ends.collect();
        Ok(ends.try_into().ok().expect("as many ends as it takes"))
    }

    /// The next message of the main role; an error if it has ended. (No one looks at the verdict of
    /// a helper.)
    pub(crate) fn hear_main(self) -> Result<Vec<u8>, NotSupported> {
        let heard = self.station.receive(MAIN, Span::MAX);
        heard.map_err(|_| NotSupported("the main role has ended"))
    }

    /// Sends a message to the main role, which may have ended.
    pub(crate) fn tell_main(self, message: &[u8]) {
        let _ = self.station.send(MAIN, message);
    }

    /// A helper's end, for which the main role waits.
    pub(crate) fn done(self) -> Verdict {
        self.tell_main(&[]);
        Ok(())
    }
}

fn helper(number: u32) -> RoleId {
    RoleId(number + 1)
}
