//! A kernel of virtual time.
//!
//! It knows nothing of what is simulated. A [`World`] is what the simulation is about; its typed
//! events are handled in the order of (time, sequence). Roles are stackful coroutines, so straight-line
//! code runs unchanged: a [`Role`] says what it waits for, an instant or a [`Condition`], and goes on
//! at the virtual time at which it comes.
//!
//! * Time is integer picoseconds; nothing reads a clock but the budget of real time.
//! * The same world, roles and seed give the same events at the same times, bit for bit.
//! * A run that cannot go on is a result ([`Outcome`]), which names the roles that wait, for what, and since when.
//! * Nothing is allocated per event once the queues have grown to their size.
//!
//! **A role's own clock.** What a role computes takes time that nobody else need see:
//! [`Clock::busy`] only moves the role's clock ahead. [`Role::sync`] lets the world catch up, with
//! a switch only if something happens before; every wait does so first.

mod condition;
mod outcome;
mod queue;
mod random;
mod role;
mod scheduler;
mod simulation;
mod stack;

pub use condition::Condition;
pub use outcome::{Budget, Outcome, Resource, Waiting, WaitsFor};
pub use random::{Random, Seed};
pub use role::{Role, RoleNumber, Wake};
pub use scheduler::{Clock, Pace, Scheduler};
pub use simulation::{Returned, RoleKind, Shared, Simulation};

/// What a simulation is about.
pub trait World {
    /// An event. Keep it small: it is moved through the queue.
    type Event;

    /// Handles `event` at [`Scheduler::now`].
    fn handle(&mut self, event: Self::Event, scheduler: &mut Scheduler<Self::Event>);
}
