//! WQEs (work queue entries), and where the NIC has each of them from.

use adverb_units::Time;
use adverb_verbs::{Operation, QpType, SendFlags, WcStatus, WrId};

use crate::host::memory::Pieces;
use crate::host::pcie::LINE;
use crate::nic::port::Target;
use crate::params;

/// How many WQEs had reached the NIC before a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// The NIC's WQE cache: it keeps the last `entries` WQEs that reached it.
#[derive(Debug)]
pub(crate) struct Wqes {
    pub(crate) entries: u64,
    came: u64,
    /// Bytes of a send queue that are read at a time.
    pub(crate) read_bytes: u64,
}

impl Wqes {
    pub(crate) fn new(n: &params::Nic) -> Self {
        Wqes {
            entries: n.wqe_entries.into(),
            came: 0,
            read_bytes: n.wqe_read_bytes.into(),
        }
    }

    pub(crate) fn keep(&mut self) -> Stamp {
        self.came += 1;
        Stamp(self.came)
    }

    /// Whether a request is still there.
    ///
    /// Requests of unreliable transports end when they are sent, whatever the peer does. The NIC keeps each of them
    /// until then: it withholds PCIe credits, and the CPU waits.
    pub(crate) fn has(&self, held: Held, qp_type: QpType) -> bool {
        match held {
            Held::Written(stamp) | Held::Read(stamp) => {
                !qp_type.is_reliable() || self.came - stamp.0 < self.entries
            }
            Held::Buffered | Held::Next => true,
            Held::InMemory => false,
        }
    }

    /// Whether it reads requests at the doorbell, before their turn.
    pub(crate) fn reads_ahead(&self) -> bool {
        self.read_bytes > LINE
    }
}

/// How far the NIC is with reading a queue pair's next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// It is not about to.
    #[default]
    No,
    /// The time of the read is known, and the sending side is stalled until then.
    Settled,
    /// It is time.
    Due,
}

/// The two buffers of a BlueFlame register, to which the driver writes in turn (`bf_offset` of providers/mlx4
/// and `bf->offset` of providers/mlx5 in rdma-core): the requests in them, by number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlueFlame {
    buffers: [Option<u64>; 2],
    turn: usize,
}

impl BlueFlame {
    /// The CPU writes request `seq`, while the NIC has taken up those before `next`. It stays there until its
    /// turn comes, unless one that was there before does.
    pub(super) fn write(&mut self, seq: u64, next: u64) -> Held {
        let buffer = &mut self.buffers[self.turn];
        self.turn ^= 1;
        if buffer.is_some_and(|seq| seq >= next) {
            return Held::InMemory;
        }
        *buffer = Some(seq);
        Held::Buffered
    }
}

/// Where the NIC has a request from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// The CPU wrote it by MMIO.
    Written(Stamp),
    /// The CPU wrote it by MMIO, and it is still in a buffer of the BlueFlame register.
    Buffered,
    /// The NIC read it.
    Read(Stamp),
    /// The NIC read it to send it next, when there is room for another READ.
    Next,
    /// It is in the host's memory only.
    InMemory,
}

/// A request in the send queue, until it is completed.
#[derive(Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: WrId,
    pub(crate) operation: Operation,
    pub(crate) flags: SendFlags,
    pub(crate) pieces: Pieces,
    pub(crate) length: u64,
    /// Payload that came with it.
    pub(crate) inline: Option<Vec<u8>>,
    pub(crate) target: Option<Target>,
    /// 64 B lines of it.
    pub(crate) lines: u64,
    /// When the NIC has it.
    pub(crate) ready: Time,
    /// Where the NIC has it from.
    pub(crate) held: Held,
    /// Which doorbell of the queue pair told of it.
    pub(crate) doorbell: u64,
    /// How it ended.
    pub(crate) status: Option<WcStatus>,
    /// When its completion can be seen.
    pub(crate) completed: Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_its_blueflame_buffer_until_it_is_taken_up() {
        let mut register = BlueFlame::default();
        assert_eq!(register.write(5, 0), Held::Buffered);
        assert_eq!(register.write(6, 0), Held::Buffered);
        assert_eq!(register.write(7, 5), Held::InMemory, "5 is still there");
        assert_eq!(register.write(8, 6), Held::InMemory, "6 is still there");
        assert_eq!(register.write(9, 6), Held::Buffered, "5 was taken up");
        assert_eq!(register.write(10, 6), Held::InMemory, "6 is still there");
    }
}
