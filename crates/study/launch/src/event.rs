//! What happens while something runs, for whoever shows it to people.

/// Something that people may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// One line of a log.
    Note(String),
    /// Something that may make results misleading, or the host unsafe.
    Warning(String),
}

/// Shows events.
pub type Log = fn(Event);
