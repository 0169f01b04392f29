//! Unmodified programs, which get the user-space device by a preloaded library: `adverb run`.

mod library;
mod program;
mod variables;

pub use program::{CannotRun, UnmodifiedProgram};
pub use variables::Variables;
