//! The scheduler: events and roles in order of time.

use adverb_units::{Span, Time};

use crate::condition::{Condition, Conditions};
use crate::outcome::WaitsFor;
use crate::queue::Queue;
use crate::role::{RoleNumber, Wait, Wake};

/// What an entry of the queue does.
#[derive(Debug)]
pub(crate) enum Item<E> {
    Event(E),
    /// A role that is ready goes on.
    Resume(RoleNumber),
    /// A role's patience may have ended.
    Timer(RoleNumber),
}

/// What a role is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// It runs, or its entry is in the queue.
    Ready(Wake),
    Waits {
        condition: Condition,
        since: Time,
        deadline: Option<Time>,
    },
    Ended,
}

#[derive(Debug)]
struct RoleState {
    doing: Doing,
    pace: Pace,
    /// The earliest timer of this role in the queue. A role that waits often, each time with the
    /// same long patience, has one entry there and not one for each wait.
    timer: Option<Time>,
}

/// How long a role takes for what it computes, compared with one that has its core for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pace {
    /// In 1024ths.
    factor: u64,
}

impl Pace {
    /// Of a role that has its core for itself.
    pub const ALONE: Pace = Pace { factor: 1 << 10 };

    /// Everything takes `factor` times as long: at least 1.
    pub fn slower(factor: f64) -> Self {
        let factor = (factor * 1024.0).round() as u64;
        Pace {
            factor: factor.max(Self::ALONE.factor),
        }
    }

    #[inline]
    fn of(self, span: Span) -> Span {
        if self == Self::ALONE {
            return span;
        }
        let scaled = u128::from(span.as_ps()) * u128::from(self.factor);
        Span::from_ps((scaled >> 10) as u64)
    }
}

/// The time on the clock of the role that runs.
///
/// It is at or ahead of the world's time. While an event is handled it is the world's time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    now: Time,
    pace: Pace,
}

impl Clock {
    /// The time.
    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// The role is busy with what takes `span` on a core of its own, without letting the world catch up.
    #[inline]
    pub fn busy(&mut self, span: Span) {
        self.now = self.now + self.pace.of(span);
    }

    /// The role is busy until `time`; not at all if that is past.
    #[inline]
    pub fn busy_until(&mut self, time: Time) {
        self.now = self.now.max(time);
    }
}

/// The event queue, the conditions that roles wait for, and the world's time.
#[derive(Debug)]
pub struct Scheduler<E> {
    now: Time,
    handled: u64,
    queue: Queue<Item<E>>,
    conditions: Conditions,
    roles: Vec<RoleState>,
    /// The clock of the role that runs.
    pub clock: Clock,
}

impl<E> Scheduler<E> {
    pub(crate) fn new() -> Self {
        Scheduler {
            now: Time::ZERO,
            handled: 0,
            queue: Queue::new(),
            conditions: Conditions::default(),
            roles: Vec::new(),
            clock: Clock {
                now: Time::ZERO,
                pace: Pace::ALONE,
            },
        }
    }

    /// The world's time.
    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Number of entries handled so far.
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// Schedules `event` at `at`, after what was scheduled for that time before; now, if `at` is past.
    #[inline]
    pub fn schedule(&mut self, at: Time, event: E) {
        self.push(at, Item::Event(event));
    }

    #[inline]
    fn push(&mut self, at: Time, item: Item<E>) {
        self.queue.push(at.max(self.now), item);
    }

    /// Makes a condition that roles can wait for. `name` says what it is, for the report of a
    /// deadlock.
    pub fn condition(&mut self, name: impl Into<String>) -> Condition {
        self.conditions.make(name.into())
    }

    /// Ends a condition: its number may be given to another. Nobody may wait for it.
    pub fn end_condition(&mut self, condition: Condition) {
        self.conditions.end(condition);
    }

    /// Whether a role waits for `condition`.
    #[inline]
    pub fn is_awaited(&self, condition: Condition) -> bool {
        !self.conditions.waiters(condition).is_empty()
    }

    /// Wakes all roles that wait for `condition`, now, in the order in which they began to wait.
    #[inline]
    pub fn signal(&mut self, condition: Condition) {
        if self.is_awaited(condition) {
            self.wake_all(condition, self.now);
        }
    }

    /// Wakes all roles that wait for `condition` at `at`: what is signaled by then for others does
    /// not reach them.
    #[inline]
    pub fn signal_at(&mut self, condition: Condition, at: Time) {
        if self.is_awaited(condition) {
            self.wake_all(condition, at);
        }
    }

    fn wake_all(&mut self, condition: Condition, at: Time) {
        let mut waiters = self.conditions.take_waiters(condition);
        for role in waiters.drain(..) {
            self.roles[role.index()].doing = Doing::Ready(Wake::Signal);
            self.push(at, Item::Resume(role));
        }
        self.conditions.give_waiters(condition, waiters);
    }

    /// Time of the next entry.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.queue.next()
    }

    /// Takes the next entry and goes to its time.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Item<E>> {
        let (time, item) = self.queue.pop()?;
        self.now = time;
        self.clock.now = time;
        self.handled += 1;
        Some(item)
    }

    /// Goes to the running role's time, if no entry is due until then.
    #[inline]
    pub(crate) fn catch_up(&mut self) -> bool {
        let to = self.clock.now;
        let free = to == self.now || self.next().is_none_or(|next| next > to);
        if free {
            self.now = to;
        }
        free
    }

    pub(crate) fn add_role(&mut self, role: RoleNumber) {
        debug_assert_eq!(role.index(), self.roles.len());
        self.roles.push(RoleState {
            doing: Doing::Ready(Wake::Time),
            pace: Pace::ALONE,
            timer: None,
        });
        self.push(self.now, Item::Resume(role));
    }

    /// The role that runs, `role`, computes at `pace` from now on.
    pub(crate) fn set_pace(&mut self, role: RoleNumber, pace: Pace) {
        self.roles[role.index()].pace = pace;
        self.clock.pace = pace;
    }

    /// `role` runs.
    #[inline]
    pub(crate) fn enter(&mut self, role: RoleNumber) {
        self.clock.pace = self.roles[role.index()].pace;
    }

    pub(crate) fn end_role(&mut self, role: RoleNumber) {
        self.roles[role.index()].doing = Doing::Ended;
    }

    /// Notes what a role waits for.
    #[inline]
    pub(crate) fn wait(&mut self, role: RoleNumber, wait: Wait) {
        match wait {
            Wait::Until(time) => {
                self.roles[role.index()].doing = Doing::Ready(Wake::Time);
                self.push(time, Item::Resume(role));
            }
            Wait::For {
                condition,
                deadline,
            } => {
                self.conditions.add_waiter(condition, role);
                let state = &mut self.roles[role.index()];
                state.doing = Doing::Waits {
                    condition,
                    since: self.now,
                    deadline,
                };
                if let Some(deadline) = deadline
                    && state.timer.is_none_or(|timer| timer > deadline)
                {
                    state.timer = Some(deadline);
                    self.push(deadline, Item::Timer(role));
                }
            }
        }
    }

    /// Why a ready role goes on.
    #[inline]
    pub(crate) fn why(&self, role: RoleNumber) -> Wake {
        match self.roles[role.index()].doing {
            Doing::Ready(why) => why,
            _ => Wake::Time,
        }
    }

    /// A timer of `role` has come: whether its patience has ended.
    pub(crate) fn timer(&mut self, role: RoleNumber) -> bool {
        let state = &mut self.roles[role.index()];
        if state.timer.is_some_and(|timer| timer <= self.now) {
            state.timer = None;
        }
        let Doing::Waits {
            condition,
            deadline: Some(deadline),
            ..
        } = state.doing
        else {
            return false;
        };
        if deadline <= self.now {
            state.doing = Doing::Ready(Wake::Deadline);
            self.conditions.remove_waiter(condition, role);
            return true;
        }
        if state.timer.is_none() {
            state.timer = Some(deadline);
            self.push(deadline, Item::Timer(role));
        }
        false
    }

    /// What `role` waits for, and since when; `None` if it does not wait.
    pub(crate) fn waits_for(&self, role: RoleNumber) -> Option<(WaitsFor, Time)> {
        match self.roles[role.index()].doing {
            Doing::Waits {
                condition, since, ..
            } => Some((
                WaitsFor::Condition(self.conditions.name(condition).to_owned()),
                since,
            )),
            Doing::Ready(_) => Some((WaitsFor::Time, self.now)),
            Doing::Ended => None,
        }
    }
}
