//! The predictor: runs published experiments on the model and compares.
//!
//! * [`predict`]: an experiment of `adverb-validate` on modelled hardware; it is the model that
//!   [`validate`](adverb_validate::validate) asks;
//! * [`agreement()`]: a report of predictions, to be drawn;
//! * [`published_points`]: published values, to be drawn next to a study of the same hardware;
//! * [`Trace`]: the steps of one message.
//!
//! Nothing here reads a command line, opens a file or prints.

mod agreement;
mod experiment;
mod published;
mod trace;

pub use agreement::agreement;
pub use experiment::predict;
pub use published::published_points;
pub use trace::{Trace, TraceError, Traced};
