//! Numbers of what there is in a simulation.

/// A machine's number within its cluster, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u32);

/// A queue pair in one of its lives. Resetting a queue pair begins another life: events and messages of an
/// earlier one no longer find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QpRef {
    pub(crate) index: u32,
    pub(crate) life: u32,
}

impl QpRef {
    /// No queue pair at all.
    pub(crate) const NOBODY: QpRef = QpRef {
        index: u32::MAX,
        life: 0,
    };
}
