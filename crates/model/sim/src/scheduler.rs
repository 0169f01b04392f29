//! The scheduler: events and roles in order of time.

use adverb_units::{Span, Time};

use crate::outcome::WaitsFor;
use crate::queue::Queue;
use crate::wait::{Condition, RoleNumber, Wait, Wake};

/// What a simulation is about.
pub trait World {
    /// An event. Keep it small: it is moved through the queue.
    type Event;

    /// Handles `event` at [`Scheduler::now`].
    fn handle(&mut self, event: Self::Event, scheduler: &mut Scheduler<Self::Event>);
}

#[derive(Debug)]
pub(crate) enum Item<E> {
    Event(E),
    /// Resumes a ready role.
    Resume(RoleNumber),
    /// A role's deadline may have passed.
    Timer(RoleNumber),
}

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
    /// The role's earliest timer in the queue. A role that waits often, each time with a distant deadline,
    /// has one timer there instead of one per wait.
    timer: Option<Time>,
}

/// How much longer a role computes than one that does not share its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pace {
    /// In 1024ths.
    factor: u64,
}

impl Pace {
    /// The pace of a role that does not share its core.
    pub const ALONE: Pace = Pace { factor: 1 << 10 };

    /// The pace at which everything takes `factor` times as long. Factors below 1 count as 1.
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

/// The clock of the running role, at or ahead of the world's time.
///
/// While an event is handled, it shows the world's time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    now: Time,
    pace: Pace,
}

impl Clock {
    /// The time that it shows.
    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Advances the clock by `span`, scaled by the role's pace. The world does not catch up.
    #[inline]
    pub fn busy(&mut self, span: Span) {
        self.now = self.now + self.pace.of(span);
    }

    /// Advances the clock to `time`, unless that is past.
    #[inline]
    pub fn busy_until(&mut self, time: Time) {
        self.now = self.now.max(time);
    }
}

#[derive(Debug)]
struct ConditionState {
    name: String,
    waiters: Vec<RoleNumber>,
}

/// The event queue, the conditions that roles wait for, and the world's time.
#[derive(Debug)]
pub struct Scheduler<E> {
    now: Time,
    handled: u64,
    queue: Queue<Item<E>>,
    conditions: Vec<ConditionState>,
    roles: Vec<RoleState>,
    /// The running role's clock.
    pub clock: Clock,
}

impl<E> Scheduler<E> {
    pub(crate) fn new() -> Self {
        Scheduler {
            now: Time::ZERO,
            handled: 0,
            queue: Queue::new(),
            conditions: Vec::new(),
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

    /// Number of queue entries handled so far.
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// Schedules `event` at `at`, or now if `at` is past. Events of one time keep their order of scheduling.
    #[inline]
    pub fn schedule(&mut self, at: Time, event: E) {
        self.push(at, Item::Event(event));
    }

    #[inline]
    fn push(&mut self, at: Time, item: Item<E>) {
        self.queue.push(at.max(self.now), item);
    }

    /// Makes a condition that roles can wait for. `name` appears in the report of a deadlock.
    pub fn condition(&mut self, name: impl Into<String>) -> Condition {
        self.conditions.push(ConditionState {
            name: name.into(),
            waiters: Vec::new(),
        });
        let index = u32::try_from(self.conditions.len() - 1).expect("fewer than 2^32 conditions");
        Condition(index)
    }

    #[inline]
    fn waiters(&mut self, condition: Condition) -> &mut Vec<RoleNumber> {
        &mut self.conditions[condition.0 as usize].waiters
    }

    /// Wakes all roles that wait for `condition`, now, in the order in which they began to wait.
    #[inline]
    pub fn signal(&mut self, condition: Condition) {
        self.signal_at(condition, self.now);
    }

    /// Wakes all roles that wait for `condition` at time `at`. Until then they miss further signals.
    #[inline]
    pub fn signal_at(&mut self, condition: Condition, at: Time) {
        if self.waiters(condition).is_empty() {
            return;
        }
        let mut waiters = std::mem::take(self.waiters(condition));
        for role in waiters.drain(..) {
            self.roles[role.index()].doing = Doing::Ready(Wake::Signal);
            self.push(at, Item::Resume(role));
        }
        // Keeps the allocation for the next waiters.
        *self.waiters(condition) = waiters;
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.queue.next()
    }

    /// Takes the next entry and advances to its time.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Item<E>> {
        let (time, item) = self.queue.pop()?;
        self.now = time;
        self.clock.now = time;
        self.handled += 1;
        Some(item)
    }

    /// Advances to the running role's time if no entry is due until then; returns whether it did.
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

    /// Sets the pace of `role`, which is the running one.
    pub(crate) fn set_pace(&mut self, role: RoleNumber, pace: Pace) {
        self.roles[role.index()].pace = pace;
        self.clock.pace = pace;
    }

    /// Makes `role` the running one.
    #[inline]
    pub(crate) fn enter(&mut self, role: RoleNumber) {
        self.clock.pace = self.roles[role.index()].pace;
    }

    pub(crate) fn end_role(&mut self, role: RoleNumber) {
        self.roles[role.index()].doing = Doing::Ended;
    }

    /// Suspends `role` until what it waits for.
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
                self.waiters(condition).push(role);
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

    #[inline]
    pub(crate) fn why(&self, role: RoleNumber) -> Wake {
        match self.roles[role.index()].doing {
            Doing::Ready(why) => why,
            _ => Wake::Time,
        }
    }

    /// Handles a timer of `role`; returns whether its deadline has passed.
    ///
    /// The timer may be older than the present wait, so it may be too early, or find no wait at all.
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
            self.waiters(condition).retain(|waiter| *waiter != role);
            return true;
        }
        if state.timer.is_none() {
            state.timer = Some(deadline);
            self.push(deadline, Item::Timer(role));
        }
        false
    }

    /// Returns what `role` waits for, and since when; `None` if it has ended.
    pub(crate) fn waits_for(&self, role: RoleNumber) -> Option<(WaitsFor, Time)> {
        match self.roles[role.index()].doing {
            Doing::Waits {
                condition, since, ..
            } => Some((
                WaitsFor::Condition(self.conditions[condition.0 as usize].name.clone()),
                since,
            )),
            Doing::Ready(_) => Some((WaitsFor::Time, self.now)),
            Doing::Ended => None,
        }
    }
}
