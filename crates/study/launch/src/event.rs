//! Events during a run, for the user.

/// An event that users may want to know about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// One line of a log.
    Note(String),
    /// Something that may make results misleading, or the host unsafe.
    Warning(String),
}

/// Prints events.
pub type Log = fn(Event);
