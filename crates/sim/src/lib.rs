//! A kernel of virtual time.
//!
//! It knows nothing of what is simulated. A [`World`] is what the simulation is about; its typed
//! events happen in the order of (time, sequence). Roles are stackful coroutines, so straight-line
//! code runs unchanged: a [`Role`] says what it waits for, an instant or a [`Condition`], and goes on
//! at the virtual time at which it comes.
//!
//! * Time is integer picoseconds; nothing reads a clock but the budget of real time.
//! * The same world, roles and seed give the same events at the same times, bit for bit.
//! * A run that cannot go on is a result ([`Outcome`]), which names who waits for what since when.
//! * Nothing is allocated per event once the queues have grown to their size.
//!
//! **A role's own clock.** What a role computes takes time that nobody else need see:
//! [`Clock::busy`] only moves the role's clock ahead. [`Role::sync`] lets the world catch up, with
//! a switch only if something happens before; every wait does so first.

mod agenda;
mod condition;
mod outcome;
mod queue;
mod random;
mod role;
mod simulation;
mod stack;

pub use agenda::{Agenda, Clock, Pace};
pub use condition::Condition;
pub use outcome::{Budget, Outcome, Resource, Waiting, WaitsFor};
pub use random::{Random, Seed};
pub use role::{Role, RoleNumber, Wake};
pub use simulation::{Duty, Returned, Shared, Simulation};

/// What a simulation is about.
pub trait World {
    /// What happens in it. Keep it small: it is moved through the queue.
    type Event;

    /// `event` happens now ([`Agenda::now`]).
    fn happen(&mut self, event: Self::Event, agenda: &mut Agenda<Self::Event>);
}
