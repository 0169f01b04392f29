//! WQEs (work queue entries), and where the NIC finds them.

use adverb_units::Time;
use adverb_verbs::{Operation, QpType, SendFlags, WcStatus, WrId};

use crate::host::memory::SgList;
use crate::host::pcie::LINE;
use crate::nic::port::Target;
use crate::params;

/// Number of WQEs that had reached the NIC before a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// The NIC's WQE cache: holds the last `entries` WQEs that reached it.
#[derive(Debug)]
pub(crate) struct Wqes {
    pub(crate) entries: u64,
    arrived: u64,
    /// Bytes of a send queue that one read fetches.
    pub(crate) read_bytes: u64,
}

impl Wqes {
    pub(crate) fn new(n: &params::NicParams) -> Self {
        Wqes {
            entries: n.wqe_entries.into(),
            arrived: 0,
            read_bytes: n.wqe_read_bytes.into(),
        }
    }

    pub(crate) fn keep(&mut self) -> Stamp {
        self.arrived += 1;
        Stamp(self.arrived)
    }

    /// Whether a WQE is still cached.
    ///
    /// Requests of unreliable transports end when they are sent, independently of the peer. The NIC keeps their WQEs
    /// until then: it withholds PCIe credits, and the CPU waits.
    pub(crate) fn has(&self, location: WqeLocation, qp_type: QpType) -> bool {
        match location {
            WqeLocation::Written(stamp) | WqeLocation::Read(stamp) => {
                !qp_type.is_reliable() || self.arrived - stamp.0 < self.entries
            }
            WqeLocation::Buffered | WqeLocation::Next => true,
            WqeLocation::InMemory => false,
        }
    }

    pub(crate) fn prefetches(&self) -> bool {
        self.read_bytes > LINE
    }
}

/// The progress of reading a queue pair's next WQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// No read is scheduled.
    #[default]
    None,
    /// The read is scheduled, and has stalled the transmit side.
    Scheduled,
    /// The scheduled time is now.
    Due,
}

/// The two buffers of a BlueFlame register, to which the driver writes in turn (`bf_offset` of providers/mlx4
/// and `bf->offset` of providers/mlx5 in rdma-core): the numbers of the WQEs in them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlueFlame {
    buffers: [Option<u64>; 2],
    next: usize,
}

impl BlueFlame {
    /// The CPU writes WQE `seq`, while the NIC has processed those before `next`. It stays in its buffer until it is
    /// processed, unless the buffer still contains an earlier one.
    pub(super) fn write(&mut self, seq: u64, next: u64) -> WqeLocation {
        let buffer = &mut self.buffers[self.next];
        self.next ^= 1;
        if buffer.is_some_and(|seq| seq >= next) {
            return WqeLocation::InMemory;
        }
        *buffer = Some(seq);
        WqeLocation::Buffered
    }
}

/// Where the NIC finds a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WqeLocation {
    /// In the WQE cache: the CPU wrote it by MMIO.
    Written(Stamp),
    /// In a buffer of the BlueFlame register, where the CPU wrote it.
    Buffered,
    /// In the WQE cache: the NIC read it.
    Read(Stamp),
    /// In the NIC, which read it to send it next, once another READ may be sent.
    Next,
    /// In the host's memory only.
    InMemory,
}

/// A request in the send queue, until it is completed.
#[derive(Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: WrId,
    pub(crate) operation: Operation,
    pub(crate) flags: SendFlags,
    pub(crate) sg_list: SgList,
    pub(crate) length: u64,
    pub(crate) inline: Option<Vec<u8>>,
    pub(crate) target: Option<Target>,
    /// Its size in lines of 64 B.
    pub(crate) lines: u64,
    /// When the NIC can process it.
    pub(crate) ready: Time,
    pub(crate) location: WqeLocation,
    /// Number of the queue pair's doorbell that announced it.
    pub(crate) doorbell: u64,
    /// Bytes of its data that have crossed a bad path, and are not sent again.
    pub(crate) arrived: u64,
    pub(crate) status: Option<WcStatus>,
    /// When its completion is visible.
    pub(crate) completed: Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wqe_keeps_its_blueflame_buffer_until_it_is_processed() {
        let mut register = BlueFlame::default();
        assert_eq!(register.write(5, 0), WqeLocation::Buffered);
        assert_eq!(register.write(6, 0), WqeLocation::Buffered);
        assert_eq!(
            register.write(7, 5),
            WqeLocation::InMemory,
            "5 is still there"
        );
        assert_eq!(
            register.write(8, 6),
            WqeLocation::InMemory,
            "6 is still there"
        );
        assert_eq!(
            register.write(9, 6),
            WqeLocation::Buffered,
            "5 was processed"
        );
        assert_eq!(
            register.write(10, 6),
            WqeLocation::InMemory,
            "6 is still there"
        );
    }
}
