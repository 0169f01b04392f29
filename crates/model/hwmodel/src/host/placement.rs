//! Where a program's buffers are.

/// Where a program's buffers lie, and in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// On the NIC's node, in its last-level cache.
    #[default]
    Cached,
    /// On the NIC's node, in memory.
    Memory,
    /// On the other node, in its last-level cache.
    RemoteCached,
    /// On the other node, in memory.
    RemoteMemory,
}

impl Placement {
    /// Whether it is on the other node.
    pub(crate) fn is_remote(self) -> bool {
        matches!(self, Placement::RemoteCached | Placement::RemoteMemory)
    }

    /// Whether it is in memory alone.
    pub(crate) fn is_memory(self) -> bool {
        matches!(self, Placement::Memory | Placement::RemoteMemory)
    }
}
