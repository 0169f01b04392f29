//! Running a world and its roles.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Instant;

use adverb_units::{Span, Time};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};

use crate::outcome::{Budget, Outcome, Resource, Waiting};
use crate::role::{Role, Shared};
use crate::scheduler::{Item, World};
use crate::stack;
use crate::wait::{RoleNumber, Wait, Wake};

/// Queue entries handled between two checks of the budget of real time.
const ENTRIES_PER_CHECK: u64 = 4096;

/// Whether a run waits for a role to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleKind {
    /// The run ends when all roles of this kind have ended.
    Work,
    /// The role serves others; the run does not wait for it.
    Daemon,
}

/// The value that a role returns.
pub struct Returned<T>(Rc<RefCell<Option<T>>>);

impl<T> Returned<T> {
    /// Takes the value; `None` if the role has not ended, or if the value was taken before.
    pub fn take(&self) -> Option<T> {
        self.0.borrow_mut().take()
    }
}

type Body = Coroutine<Wake, Wait, (), DefaultStack>;

struct Actor {
    name: String,
    kind: RoleKind,
    body: Option<Body>,
}

/// Why no more events are handled for now.
enum Stop {
    /// A role resumes.
    Role(RoleNumber, Wake),
    /// The queue is empty.
    Empty,
    /// The next entry is after this time.
    Time(Time),
    /// The number of entries is reached.
    Count,
}

/// A world and its roles.
pub struct Simulation<W: World> {
    shared: Rc<Shared<W>>,
    actors: Vec<Actor>,
    working: usize,
}

impl<W: World + 'static> Simulation<W> {
    /// Creates a simulation of `world` at time zero, without roles.
    pub fn new(world: W) -> Self {
        Simulation {
            shared: Rc::new(Shared::new(world)),
            actors: Vec::new(),
            working: 0,
        }
    }

    /// Returns the world that the roles share.
    pub fn shared(&self) -> &Rc<Shared<W>> {
        &self.shared
    }

    /// Adds a role. It starts when the simulation runs, at the present virtual time, after all roles that
    /// were added before.
    pub fn spawn<T: 'static>(
        &mut self,
        name: impl Into<String>,
        kind: RoleKind,
        body: impl for<'y> FnOnce(&Role<'y, W>) -> T + 'static,
    ) -> Returned<T> {
        let number = u32::try_from(self.actors.len()).expect("fewer than 2^32 roles");
        let number = RoleNumber(number);
        let result = Rc::new(RefCell::new(None));
        let (shared, returned) = (self.shared.clone(), result.clone());
        let coroutine = Coroutine::with_stack(stack::take(), move |yielder, _: Wake| {
            let value = body(&Role::new(yielder, shared, number));
            *returned.borrow_mut() = Some(value);
        });
        self.actors.push(Actor {
            name: name.into(),
            kind,
            body: Some(coroutine),
        });
        self.working += usize::from(kind == RoleKind::Work);
        self.shared.with(|_, scheduler| scheduler.add_role(number));
        Returned(result)
    }

    /// Runs until all work is done, no event is left, a role panics, or `budget` is used up.
    pub fn run(&mut self, budget: &Budget) -> Outcome {
        let start = Instant::now();
        let first = self.handled();
        let last = first.saturating_add(budget.events.unwrap_or(u64::MAX));
        let mut check = first + ENTRIES_PER_CHECK;
        while self.working > 0 {
            match self.handle_events(budget.until, last.min(check)) {
                Stop::Role(role, why) => {
                    if let Err(outcome) = self.resume(role, why) {
                        return outcome;
                    }
                }
                Stop::Empty => return Outcome::Deadlock(self.waiting()),
                Stop::Time(until) => return self.exhausted(Resource::VirtualTime(until)),
                Stop::Count => {
                    let all = self.handled();
                    if all >= last {
                        return self.exhausted(Resource::Events(all - first));
                    }
                    check = all + ENTRIES_PER_CHECK;
                    let used = Span::from(start.elapsed());
                    if budget.real.is_some_and(|real| used > real) {
                        return self.exhausted(Resource::RealTime(used));
                    }
                }
            }
        }
        Outcome::Finished
    }

    /// Handles events until a role is due, or until one of the limits: a time, and a number of all entries so far.
    fn handle_events(&self, until: Option<Time>, last: u64) -> Stop {
        self.shared.with(|world, scheduler| {
            loop {
                let Some(next) = scheduler.next() else {
                    return Stop::Empty;
                };
                if let Some(until) = until.filter(|until| next > *until) {
                    return Stop::Time(until);
                }
                if scheduler.handled() >= last {
                    return Stop::Count;
                }
                let due = match scheduler.take() {
                    Some(Item::Event(event)) => {
                        world.handle(event, scheduler);
                        None
                    }
                    Some(Item::Resume(role)) => Some((role, scheduler.why(role))),
                    Some(Item::Timer(role)) => {
                        scheduler.timer(role).then_some((role, Wake::Deadline))
                    }
                    None => None,
                };
                if let Some((role, why)) = due {
                    scheduler.enter(role);
                    return Stop::Role(role, why);
                }
            }
        })
    }

    /// Switches to a role's coroutine until it waits, returns or panics.
    fn resume(&mut self, role: RoleNumber, why: Wake) -> Result<(), Outcome> {
        let actor = &mut self.actors[role.index()];
        let Some(body) = actor.body.as_mut() else {
            return Ok(());
        };
        // A panic in the coroutine unwinds its stack and continues here. `AssertUnwindSafe`: the role is not
        // resumed again, and what it left half done in the world is visible only to a caller that ignores
        // `Outcome::Panicked`.
        match catch_unwind(AssertUnwindSafe(|| body.resume(why))) {
            Ok(CoroutineResult::Yield(wait)) => {
                self.shared.with(|_, scheduler| scheduler.wait(role, wait));
                Ok(())
            }
            Ok(CoroutineResult::Return(())) => {
                self.end(role);
                Ok(())
            }
            Err(panic) => {
                let role_name = actor.name.clone();
                self.end(role);
                Err(Outcome::Panicked {
                    role: role_name,
                    message: message(panic.as_ref()),
                })
            }
        }
    }

    fn end(&mut self, role: RoleNumber) {
        let actor = &mut self.actors[role.index()];
        self.working -= usize::from(actor.kind == RoleKind::Work);
        if let Some(body) = actor.body.take() {
            stack::give(body.into_stack());
        }
        self.shared.with(|_, scheduler| scheduler.end_role(role));
    }

    fn exhausted(&self, budget: Resource) -> Outcome {
        Outcome::Exhausted {
            budget,
            waiting: self.waiting(),
        }
    }

    /// Returns the roles of kind [`RoleKind::Work`] that have not ended, and what each waits for.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.shared.with(|_, scheduler| {
            let working = self.actors.iter().enumerate();
            working
                .filter(|(_, actor)| actor.kind == RoleKind::Work)
                .filter_map(|(number, actor)| {
                    let number = RoleNumber(u32::try_from(number).ok()?);
                    let (what, since) = scheduler.waits_for(number)?;
                    Some(Waiting {
                        role: actor.name.clone(),
                        what,
                        since,
                    })
                })
                .collect()
        })
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Time {
        self.shared.with(|_, scheduler| scheduler.now())
    }

    /// Returns the number of queue entries handled so far.
    pub fn handled(&self) -> u64 {
        self.shared.with(|_, scheduler| scheduler.handled())
    }
}

impl<W: World> Drop for Simulation<W> {
    /// Unwinds the roles that have not ended, last first: what they own is dropped, and their stacks return
    /// to the pool.
    fn drop(&mut self) {
        for actor in self.actors.iter_mut().rev() {
            if let Some(mut body) = actor.body.take() {
                // A panic in one of the role's destructors cannot be reported from here. The stack of a role
                // that did not unwind to its end may still be referenced: it is unmapped with the body.
                let unwound = catch_unwind(AssertUnwindSafe(|| body.force_unwind()));
                if unwound.is_ok() && body.done() {
                    stack::give(body.into_stack());
                }
            }
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
