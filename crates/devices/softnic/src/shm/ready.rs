//! Which queue pairs of a completion queue may have completions. A poll looks only at these, so its cost does not
//! depend on the number of queue pairs.
//!
//! ```text
//!   producer                                   poller
//!   publish completion            (store)      take the groups' bits, leaving 0     (swap)
//!   set the queue pair's bit      (OR)         take a group's bits, leaving 0       (swap)
//!   set its group's bit           (OR)         look at these queue pairs' rings     (load)
//! ```
//! A queue pair's bit is set after the completion is published, and cleared before the poller looks at the
//! ring. So either the poller finds the completion, or the bit is set again. The group's bit is set after the
//! queue pair's bit and cleared before it, for the same reason. A producer that finds both bits set does not
//! write them: while the poller is busy, further producers only read the line.
//!
//! Each producer ensures that both bits are set, so a producer that is stopped between the two ORs delays no
//! other. A producer that dies between them leaves a completion that no poll finds; the process that notices
//! its death marks the queue pairs that were connected to it.

use crate::shm::sync::{AtomicU64, Ordering, fence, fence_after_rmw};

/// Number of queue pairs in a group.
const GROUP: u32 = u64::BITS;

/// The bits of up to 64 groups of 64 queue pairs.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Ready<const GROUPS: usize> {
    groups: AtomicU64,
    bits: [AtomicU64; GROUPS],
}

impl<const GROUPS: usize> Default for Ready<GROUPS> {
    fn default() -> Self {
        Ready {
            groups: AtomicU64::new(0),
            bits: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl<const GROUPS: usize> Ready<GROUPS> {
    /// Owner: forgets all marks, before the queue's first use.
    pub fn clear(&self) {
        self.take(|_| {});
    }

    /// Producer, after it published a completion of queue pair `index`.
    pub fn mark(&self, index: u32) {
        let group = index / GROUP;
        let (group_bit, bit) = (1 << group, 1 << (index % GROUP));
        let bits = &self.bits[group as usize];
        if bits.load(Ordering::Relaxed) & bit != 0 {
            // Orders the store of the completion before the second load of the bit. If that still finds the bit
            // set, the poller that clears it later sees the completion.
            fence(Ordering::SeqCst);
            let is_set = bits.load(Ordering::Relaxed) & bit != 0;
            if is_set && self.groups.load(Ordering::Relaxed) & group_bit != 0 {
                return;
            }
        }
        bits.fetch_or(bit, Ordering::Release);
        self.groups.fetch_or(group_bit, Ordering::Release);
    }

    /// Poller: takes all marks. Look at the rings after this.
    #[inline]
    pub fn take(&self, mut found: impl FnMut(u32)) {
        if self.groups.load(Ordering::Relaxed) == 0 {
            return;
        }
        let groups = self.groups.swap(0, Ordering::AcqRel);
        for group in ones(groups) {
            let bits = self.bits[group as usize].swap(0, Ordering::AcqRel);
            fence_after_rmw();
            ones(bits).for_each(|bit| found(group * GROUP + bit));
        }
    }
}

/// Returns the positions of the bits of a word that are set.
#[inline]
fn ones(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(lowest)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_taken_once_whatever_its_group() {
        let ready = Ready::<64>::default();
        let marked = [0, 1, 63, 64, 700, 4095];
        marked.iter().for_each(|index| ready.mark(*index));
        ready.mark(700);
        let mut found = Vec::new();
        ready.take(|index| found.push(index));
        assert_eq!(found, marked);
        ready.take(|index| panic!("{index} was taken before"));
        ready.mark(64);
        ready.clear();
        ready.take(|index| panic!("{index} was cleared"));
    }
}
