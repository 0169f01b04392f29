//! Roles: straight-line code that waits in virtual time.

use std::cell::RefCell;
use std::rc::Rc;

use adverb_units::{Span, Time};
use corosensei::Yielder;

use crate::scheduler::{Pace, Scheduler, World};
use crate::wait::{Condition, RoleNumber, Wait, Wake};

/// The world with its scheduler, shared by the roles and the objects they use.
///
/// A `RefCell` suffices: roles are coroutines of one thread, and none is suspended while it borrows.
pub struct Shared<W: World> {
    state: RefCell<(W, Scheduler<W::Event>)>,
}

impl<W: World> Shared<W> {
    pub(crate) fn new(world: W) -> Self {
        Shared {
            state: RefCell::new((world, Scheduler::new())),
        }
    }

    /// Runs `look` on the world and its scheduler.
    ///
    /// # Panics
    /// If calls are nested, or if a role waits within `look`.
    #[inline]
    pub fn with<T>(&self, look: impl FnOnce(&mut W, &mut Scheduler<W::Event>) -> T) -> T {
        let (world, scheduler) = &mut *self.state.borrow_mut();
        look(world, scheduler)
    }
}

/// A role's handle to its simulation: the world, the clock, and the waits.
pub struct Role<'y, W: World> {
    yielder: &'y Yielder<Wake, Wait>,
    shared: Rc<Shared<W>>,
    number: RoleNumber,
}

impl<'y, W: World> Role<'y, W> {
    pub(crate) fn new(
        yielder: &'y Yielder<Wake, Wait>,
        shared: Rc<Shared<W>>,
        number: RoleNumber,
    ) -> Self {
        Role {
            yielder,
            shared,
            number,
        }
    }

    /// The role's number.
    pub fn number(&self) -> RoleNumber {
        self.number
    }

    /// As [`Shared::with`].
    #[inline]
    pub fn with<T>(&self, look: impl FnOnce(&mut W, &mut Scheduler<W::Event>) -> T) -> T {
        self.shared.with(look)
    }

    /// The world that this role shares with all others.
    pub fn shared(&self) -> &Rc<Shared<W>> {
        &self.shared
    }

    /// The time on this role's clock, at or ahead of the world's.
    #[inline]
    pub fn now(&self) -> Time {
        self.with(|_, scheduler| scheduler.clock.now())
    }

    /// Advances this role's clock by `span`. The world catches up at the next wait.
    #[inline]
    pub fn busy(&self, span: Span) {
        self.with(|_, scheduler| scheduler.clock.busy(span));
    }

    /// Sets the pace at which the role computes from now on.
    pub fn set_pace(&self, pace: Pace) {
        self.with(|_, scheduler| scheduler.set_pace(self.number, pace));
    }

    /// Lets the world catch up with this role's clock.
    #[inline]
    pub fn sync(&self) {
        let behind =
            self.with(|_, scheduler| (!scheduler.catch_up()).then(|| scheduler.clock.now()));
        if let Some(time) = behind {
            self.yielder.suspend(Wait::Until(time));
        }
    }

    /// Waits until `time`.
    pub fn wait_until(&self, time: Time) {
        self.with(|_, scheduler| scheduler.clock.busy_until(time));
        self.sync();
    }

    /// Waits until `condition` is signaled, or until `deadline` if there is one.
    ///
    /// Call [`Role::sync`] before you examine what you wait for: otherwise a signal between the role's
    /// time and the world's is missed.
    #[inline]
    pub fn wait(&self, condition: Condition, deadline: Option<Time>) -> Wake {
        debug_assert!(
            self.with(|_, scheduler| scheduler.clock.now() == scheduler.now()),
            "a role must sync before it waits"
        );
        self.yielder.suspend(Wait::For {
            condition,
            deadline,
        })
    }
}
