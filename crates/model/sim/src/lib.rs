//! A discrete-event simulation kernel.
//!
//! The kernel knows nothing about what is simulated. The user's [`World`] handles typed events in the
//! order of (time, sequence). Roles are stackful coroutines, so straight-line code runs unchanged: a
//! [`Role`] waits for an instant or a [`Condition`] and resumes at the virtual time at which that occurs.
//!
//! * Time is integer picoseconds. Only the budget of real time reads a clock.
//! * The same world, roles and seed give the same events at the same times, bit for bit.
//! * A run that cannot continue is a result ([`Outcome`]): it names the roles that wait, what each waits
//!   for, and since when.
//! * Handling an event allocates nothing once the queues have grown to their size.
//!
//! **A role's own clock.** Computing takes time that no other role can observe, so [`Clock::busy`] only
//! advances the role's clock. [`Role::sync`] lets the world catch up, and switches coroutines only if an
//! event is due before. Every wait syncs first.

mod outcome;
mod queue;
mod random;
mod role;
mod scheduler;
mod simulation;
mod stack;
mod wait;

pub use outcome::{Budget, Outcome, Resource, Waiting, WaitsFor};
pub use random::{Random, Seed};
pub use role::{Role, Shared};
pub use scheduler::{Clock, Pace, Scheduler, World};
pub use simulation::{Returned, RoleKind, Simulation};
pub use wait::{Condition, RoleNumber, Wake};
