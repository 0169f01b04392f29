//! The placement of a program's buffers.

use adverb_verbs::NodeChoice;

/// The node that a program's buffers are on, and whether they are cached.
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
    /// Returns the placement in the caches of a node.
    pub fn cached_on(node: NodeChoice) -> Self {
        match node {
            NodeChoice::Other => Placement::RemoteCached,
            NodeChoice::Any | NodeChoice::Nic | NodeChoice::Number(_) => Placement::Cached,
        }
    }

    pub(crate) fn is_remote(self) -> bool {
        matches!(self, Placement::RemoteCached | Placement::RemoteMemory)
    }

    pub(crate) fn is_memory(self) -> bool {
        matches!(self, Placement::Memory | Placement::RemoteMemory)
    }
}
