//! Roles: straight-line code that waits in virtual time.

use std::rc::Rc;

use adverb_units::{Span, Time};
use corosensei::Yielder;

use crate::World;
use crate::condition::Condition;
use crate::scheduler::{Pace, Scheduler};
use crate::simulation::Shared;

/// A role's number within its simulation, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleNumber(pub(crate) u32);

impl RoleNumber {
    /// The number, as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a role waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    Until(Time),
    For {
        condition: Condition,
        deadline: Option<Time>,
    },
}

/// Why a role goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The instant it waited for.
    Time,
    /// The condition was signaled.
    Signal,
    /// The condition was not signaled in time.
    Deadline,
}

/// What a role stands on.
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

    /// Its number.
    pub fn number(&self) -> RoleNumber {
        self.number
    }

    /// The world and its scheduler, for as long as `look` runs. Do not wait in it.
    #[inline]
    pub fn with<T>(&self, look: impl FnOnce(&mut W, &mut Scheduler<W::Event>) -> T) -> T {
        self.shared.with(look)
    }

    /// What roles and the objects they use share.
    pub fn shared(&self) -> &Rc<Shared<W>> {
        &self.shared
    }

    /// The time on this role's clock, at or ahead of the world's.
    #[inline]
    pub fn now(&self) -> Time {
        self.with(|_, scheduler| scheduler.clock.now())
    }

    /// Is busy for `span`; the world catches up at the next wait.
    #[inline]
    pub fn busy(&self, span: Span) {
        self.with(|_, scheduler| scheduler.clock.busy(span));
    }

    /// Computes at `pace` from now on.
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

    /// Waits until `condition` is signaled, indefinitely or until `deadline`. The world catches up with
    /// this role first: look at what you wait for after [`Role::sync`], then wait.
    #[inline]
    pub fn wait(&self, condition: Condition, deadline: Option<Time>) -> Wake {
        debug_assert!(
            self.with(|_, scheduler| scheduler.clock.now() == scheduler.now()),
            "a role syncs before it looks at what it waits for"
        );
        self.yielder.suspend(Wait::For {
            condition,
            deadline,
        })
    }
}
