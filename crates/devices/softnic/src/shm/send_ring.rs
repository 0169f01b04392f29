//! Completions of one queue pair's send requests, in private memory of its process.
//!
//! There is one producer at a time (the holder of the queue pair's send lock) and one consumer (the holder of
//! the completion queue's lock), so posting does not take the completion queue's lock. The ring cannot
//! overflow: it has a slot for each request of the send queue, and a slot of the send queue becomes free only
//! when the request's completion, or a later one, is taken from this ring.

use adverb_verbs::{Qpn, WcOpcode, WcStatus, WorkCompletion, WrId};

use crate::shm::sync::{AtomicU64, Ordering};

/// A completed send request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its identifier.
    pub wr_id: u64,
    /// Status of its completion.
    pub status: WcStatus,
    /// Its operation.
    pub opcode: WcOpcode,
    /// Its length in bytes.
    pub byte_len: u32,
    /// Number of requests accepted up to and including it.
    pub count: u64,
}

const OPCODES: [WcOpcode; 7] = [
    WcOpcode::Send,
    WcOpcode::RdmaWrite,
    WcOpcode::RdmaRead,
    WcOpcode::CompareSwap,
    WcOpcode::FetchAdd,
    WcOpcode::BindWindow,
    WcOpcode::LocalInvalidate,
];

impl Sent {
    fn pack(self) -> [u64; 3] {
        let opcode = OPCODES
            .iter()
            .position(|op| *op == self.opcode)
            .unwrap_or(0) as u64;
        let rest = u64::from(self.byte_len) | opcode << 32 | u64::from(self.status.code()) << 40;
        [self.wr_id, rest, self.count]
    }

    fn unpack([wr_id, rest, count]: [u64; 3]) -> Self {
        let status = match (rest >> 40) as u32 {
            0 => WcStatus::Success,
            code => WcStatus::from_code(code),
        };
        let opcode = OPCODES[(rest >> 32 & 0xff) as usize % OPCODES.len()];
        Sent {
            wr_id,
            status,
            opcode,
            byte_len: rest as u32,
            count,
        }
    }
}

/// The ring.
#[derive(Debug)]
pub struct SendRing {
    slots: Box<[[AtomicU64; 3]]>,
    /// Number of completions added.
    tail: AtomicU64,
    /// Number of completions taken.
    head: AtomicU64,
    /// Number of requests that the program knows to be complete: their slots of the send queue are free.
    retired: AtomicU64,
    qpn: Qpn,
}

impl SendRing {
    /// Makes a ring for a send queue of `depth` requests.
    pub fn new(qpn: Qpn, depth: u32) -> Self {
        let slots = depth.max(1).next_power_of_two();
        SendRing {
            slots: (0..slots).map(|_| [0; 3].map(AtomicU64::new)).collect(),
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            retired: AtomicU64::new(0),
            qpn,
        }
    }

    /// Returns the queue pair's number.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    #[inline]
    fn slot(&self, position: u64) -> &[AtomicU64; 3] {
        &self.slots[(position & (self.slots.len() as u64 - 1)) as usize]
    }

    /// Producer: adds a completion.
    #[inline]
    pub fn push(&self, sent: Sent) {
        let tail = self.tail.load(Ordering::Relaxed);
        for (word, value) in self.slot(tail).iter().zip(sent.pack()) {
            word.store(value, Ordering::Relaxed);
        }
        self.tail.store(tail + 1, Ordering::Release);
    }

    /// Producer: returns the number of requests that the program knows to be complete.
    #[inline]
    pub fn retired(&self) -> u64 {
        self.retired.load(Ordering::Acquire)
    }

    /// Consumer: returns the number of waiting completions.
    #[inline]
    pub fn waiting(&self) -> u64 {
        self.tail.load(Ordering::Acquire) - self.head.load(Ordering::Relaxed)
    }

    /// Consumer: takes the oldest of the completions that [`SendRing::waiting`] counted.
    #[inline]
    pub fn take(&self) -> WorkCompletion {
        let head = self.head.load(Ordering::Relaxed);
        let words = self
            .slot(head)
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        let sent = Sent::unpack(words);
        self.head.store(head + 1, Ordering::Relaxed);
        // Release: frees the slot. The producer reuses it only after it has seen this.
        self.retired.store(sent.count, Ordering::Release);
        WorkCompletion {
            wr_id: WrId(sent.wr_id),
            status: sent.status,
            opcode: sent.opcode,
            byte_len: sent.byte_len,
            qp_num: self.qpn,
            ..WorkCompletion::default()
        }
    }

    /// Empties the ring when the queue pair is reset. The caller holds both locks.
    pub fn clear(&self) {
        self.head
            .store(self.tail.load(Ordering::Relaxed), Ordering::Relaxed);
        self.retired.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn completions_round_trip_in_order_and_free_the_queue() {
        let ring = SendRing::new(Qpn::default(), 3);
        for count in 1..20 {
            let sent = Sent {
                wr_id: u64::MAX - count,
                status: if count % 3 == 0 {
                    WcStatus::RetryExcErr
                } else {
                    WcStatus::Success
                },
                opcode: OPCODES[count as usize % OPCODES.len()],
                byte_len: u32::MAX - count as u32,
                count,
            };
            ring.push(sent);
            assert_eq!(ring.waiting(), 1);
            let taken = ring.take();
            assert_eq!((taken.wr_id.0, taken.status), (sent.wr_id, sent.status));
            assert_eq!((taken.opcode, taken.byte_len), (sent.opcode, sent.byte_len));
            assert_eq!(ring.retired(), count);
        }
        assert_eq!(ring.waiting(), 0);
    }

    #[test]
    fn a_cleared_ring_is_empty_and_counts_from_zero() {
        let ring = SendRing::new(Qpn::default(), 2);
        let sent = Sent {
            wr_id: 1,
            status: WcStatus::Success,
            opcode: WcOpcode::Send,
            byte_len: 0,
            count: 1,
        };
        ring.push(sent);
        ring.take();
        ring.push(sent);
        ring.clear();
        assert_eq!((ring.waiting(), ring.retired()), (0, 0));
    }
}
