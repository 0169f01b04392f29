//! Access rights of memory regions and queue pairs.

bitflags::bitflags! {
    /// Access rights of a memory region or a queue pair (`ibv_access_flags`, same bits).
    ///
    /// Local reads are always allowed.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AccessFlags: u32 {
        /// The local device may write (receive buffers, READ targets).
        const LOCAL_WRITE = 1;
        /// The peer may RDMA WRITE.
        const REMOTE_WRITE = 1 << 1;
        /// The peer may RDMA READ.
        const REMOTE_READ = 1 << 2;
        /// The peer may use atomic operations.
        const REMOTE_ATOMIC = 1 << 3;
    }
}

impl AccessFlags {
    /// Memory windows may be bound to the region (`IBV_ACCESS_MW_BIND`). No right of a peer, so not in
    /// [`AccessFlags::all`].
    pub const WINDOW_BIND: AccessFlags = AccessFlags::from_bits_retain(1 << 4);
    /// A window's first byte has the address 0 (`IBV_ACCESS_ZERO_BASED`). Not in [`AccessFlags::all`].
    pub const ZERO_BASED: AccessFlags = AccessFlags::from_bits_retain(1 << 5);

    /// Whether the combination is valid: remote write and atomic access need local write access (IBTA
    /// vol. 1, 10.6.3; `ibv_reg_mr` refuses other combinations).
    pub fn is_consistent(self) -> bool {
        self.contains(AccessFlags::LOCAL_WRITE)
            || !self.intersects(AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_writing_needs_local_writing() {
        assert!(AccessFlags::REMOTE_READ.is_consistent());
        assert!(!AccessFlags::REMOTE_WRITE.is_consistent());
        assert!((AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE).is_consistent());
    }
}
