//! The responder's resources for READs and atomics, one for each that the requester may have in flight. With them it
//! responds to a repeated request without carrying it out twice (IBTA vol. 1, 9.7.5.1).

use std::collections::VecDeque;

use adverb_verbs::{PathMtu, RemoteAddress};
use adverb_wire::Reth;

use crate::memory::AtomicOperation;
use crate::segment::{mtu_bytes, packets};
use crate::sequence::Seq;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replayable {
    /// A READ. Its data is read again.
    Read(Reth),
    /// An atomic operation, and its result.
    Atomic(RemoteAddress, AtomicOperation, u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    pub(super) first: Seq,
    pub(super) end: Seq,
    pub(super) result: Replayable,
    /// Number of packets that repeated requests have requested.
    repeated: u64,
}

impl Resource {
    pub(super) const fn new(first: Seq, end: Seq, result: Replayable) -> Self {
        Resource {
            first,
            end,
            result,
            repeated: 0,
        }
    }

    /// Whether `packets` packets may be read again. A requester that loses one packet in five requests seven times as
    /// many packets as there are. The limit bounds the cost of copies of its requests, which anybody may send.
    fn may_repeat(&mut self, packets: u64) -> bool {
        self.repeated += packets;
        self.repeated <= MOST_REPEATED * self.end.since(self.first)
    }
}

/// Maximum number of times that a READ is repeated.
const MOST_REPEATED: u64 = 32;

#[derive(Debug)]
pub(super) struct Replay {
    kept: VecDeque<Resource>,
    most: usize,
}

impl Replay {
    pub(super) fn new(most: u8) -> Self {
        Replay {
            kept: VecDeque::with_capacity(most.into()),
            most: most.into(),
        }
    }

    /// Whether READs and atomics are accepted at all.
    pub(super) fn is_open(&self) -> bool {
        self.most != 0
    }

    /// Returns the entry that the next one replaces.
    pub(super) fn next_replaced(&self) -> Option<&Resource> {
        self.kept.front().filter(|_| self.kept.len() == self.most)
    }

    /// Adds an entry; returns the one that it replaces.
    pub(super) fn keep(&mut self, resource: Resource) -> Option<Resource> {
        let gone = match self.next_replaced() {
            Some(_) => self.kept.pop_front(),
            None => None,
        };
        self.kept.push_back(resource);
        gone
    }

    /// Returns the first packet of the READ that a request at `seq` repeats, wholly or from `seq` on.
    pub(super) fn read(&mut self, seq: Seq, again: &Reth, mtu: PathMtu) -> Option<Seq> {
        let mut kept = self.kept.iter_mut();
        let found = kept.find(|r| r.first <= seq && seq < r.end)?;
        let Replayable::Read(reth) = found.result else {
            return None;
        };
        let offset = seq.since(found.first) * mtu_bytes(mtu);
        let same = again.remote == reth.remote.at(offset);
        let packets = packets(again.length.into(), mtu);
        let within = seq + packets <= found.end
            && offset + u64::from(again.length) <= u64::from(reth.length);
        (same && within && found.may_repeat(packets)).then_some(found.first)
    }

    /// Returns the result of the atomic operation that a request at `seq` repeats.
    pub(super) fn atomic(&self, seq: Seq, again: (RemoteAddress, AtomicOperation)) -> Option<u64> {
        let found = self.kept.iter().find(|r| r.first == seq)?;
        match found.result {
            Replayable::Atomic(remote, operation, value) if (remote, operation) == again => {
                Some(value)
            }
            _ => None,
        }
    }
}
