//! WQEs (work queue entries), and where the NIC finds them.

use adverb_units::Time;
use adverb_verbs::{Operation, SendFlags, WcStatus, WrId};

use crate::host::memory::SgList;
use crate::nic::port::Target;
use crate::params;
use crate::resource::xorshift;

/// An entry of the WQE cache, and the number of the WQE that took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    place: u32,
    number: u64,
}

/// The NIC's WQE cache.
///
/// A WQE that reaches the NIC takes a free entry, or a random one: which one real NICs evict is not known. It
/// keeps the entry until the request has been sent. The WQE of a READ or an atomic operation keeps it until the answer.
#[derive(Debug)]
pub(crate) struct Wqes {
    pub(crate) entries: u64,
    /// The number of the WQE in each entry that was ever taken; 0 if it is free.
    taken: Vec<u64>,
    free: Vec<u32>,
    /// Number of WQEs so far.
    numbers: u64,
    random: u64,
    /// Bytes of a send queue that one read fetches.
    pub(crate) read_bytes: u64,
}

impl Wqes {
    pub(crate) fn new(n: &params::NicParams, random: u64) -> Self {
        Wqes {
            entries: n.wqe_entries.into(),
            taken: Vec::new(),
            free: Vec::new(),
            numbers: 0,
            // xorshift maps 0 to 0.
            random: random | 1,
            read_bytes: n.wqe_read_bytes.into(),
        }
    }

    pub(crate) fn keep(&mut self) -> Entry {
        self.numbers += 1;
        let number = self.numbers;
        let place = self.free.pop().unwrap_or_else(|| {
            let used = self.taken.len();
            if (used as u64) < self.entries {
                self.taken.push(0);
                return used as u32;
            }
            xorshift(&mut self.random, used) as u32
        });
        self.taken[place as usize] = number;
        Entry { place, number }
    }

    /// Whether the NIC has a WQE.
    pub(crate) fn has(&self, location: WqeLocation) -> bool {
        match location {
            WqeLocation::Written(entry) | WqeLocation::Read(entry) => {
                self.taken[entry.place as usize] == entry.number
            }
            WqeLocation::Buffered | WqeLocation::Next => true,
            WqeLocation::Announced | WqeLocation::InMemory => false,
        }
    }

    /// The NIC no longer needs a WQE.
    pub(crate) fn release(&mut self, location: WqeLocation) {
        if let WqeLocation::Written(entry) | WqeLocation::Read(entry) = location
            && self.has(location)
        {
            self.taken[entry.place as usize] = 0;
            self.free.push(entry.place);
        }
    }

    /// A request was sent. Its WQE leaves the NIC, or is cached until the answer, which needs it again. Returns where it is.
    pub(crate) fn sent(&mut self, location: WqeLocation, is_needed: bool) -> WqeLocation {
        match location {
            WqeLocation::Buffered | WqeLocation::Next if is_needed => {
                WqeLocation::Read(self.keep())
            }
            _ if is_needed => location,
            _ => {
                self.release(location);
                location
            }
        }
    }
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
    Written(Entry),
    /// In a buffer of the BlueFlame register, where the CPU wrote it.
    Buffered,
    /// In the WQE cache: the NIC read it.
    Read(Entry),
    /// In the NIC, which read it to send it next, once another READ may be sent.
    Next,
    /// In the host's memory: the NIC will read it in its turn, because a doorbell has announced it.
    Announced,
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
    use crate::preset::Preset;

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

    /// A READ that was sent from a BlueFlame buffer, or whose WQE was read again to send it, never missed it at the answer.
    #[test]
    fn the_wqe_of_a_read_is_cached_until_the_answer_wherever_it_was() {
        let mut params = Preset::built_in("cx3").expect("a preset").params.nic;
        params.wqe_entries = 2;
        for location in [WqeLocation::Buffered, WqeLocation::Next] {
            let mut wqes = Wqes::new(&params, 1);
            assert_eq!(wqes.sent(location, false), location);
            let cached = wqes.sent(location, true);
            assert!(wqes.has(cached) && cached != location, "{cached:?}");
            for _ in 0..64 {
                wqes.keep();
            }
            assert!(!wqes.has(cached), "it is evicted like others");
        }
    }
}
