//! The model at the command line: cells and published experiments in virtual time.
//!
//! Both sides of a cell are roles of one simulation in this process: no child processes, no cores
//! to pin, nothing that other work on this machine could disturb.

mod agreement;
mod ahead;
mod cell;
mod command;
mod experiment;
mod published;
mod trace;
mod validate;

pub(crate) use ahead::{Stop, in_order};
pub(crate) use cell::{pace, run as run_cell};
pub(crate) use command::{run, write_nics};
pub(crate) use published::beside;
