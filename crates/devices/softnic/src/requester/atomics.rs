//! Atomic operations: one atomic instruction of the requester's CPU on the peer's memory, or of the owner's CPU if it is
//! memory of the peer's program.
//!
//! So they are atomic with respect to other requesters and to the owner's own atomic instructions
//! (`AtomicCap::System`). Values are in host order: both ends are on one host. Sources: IBTA vol. 1, 9.4.5 (the
//! operations), 9.7.4.1 (the responder's checks), 11.6.2 (statuses).

use std::sync::atomic::{AtomicU64, Ordering};

use adverb_verbs::{AccessFlags, Operation, RemoteAddress, SendRequest, WcStatus};

use super::{Attempt, Connection};
use crate::memory::local_address;
use crate::owner_requests;
use crate::shm::copy::place;
use crate::shm::peer::{NoAccess, Reached};

impl Connection {
    /// Carries out an atomic request on the peer's word at `at`. Its SGEs were checked.
    #[inline]
    pub(super) fn atomic(&mut self, request: &SendRequest<'_>, at: RemoteAddress) -> Attempt {
        if self.max_rd_atomic == 0 {
            return Attempt::Done(WcStatus::LocQpOpErr);
        }
        if request.length() != Operation::ATOMIC_SIZE {
            return Attempt::Done(WcStatus::LocLenErr);
        }
        let is_aligned = at.addr.is_multiple_of(Operation::ATOMIC_SIZE);
        if !is_aligned || !self.responder_has_resources() {
            return Attempt::Done(self.fail_responder(WcStatus::RemInvReqErr));
        }
        let target = self.target(at, Operation::ATOMIC_SIZE, AccessFlags::REMOTE_ATOMIC);
        let before = match target {
            Err(NoAccess::Refused) => {
                return Attempt::Done(self.fail_responder(WcStatus::RemAccessErr));
            }
            Err(NoAccess::NoResources) => return Attempt::Done(WcStatus::LocQpOpErr),
            Ok(Reached::Far(place)) => {
                owner_requests::atomic(&self.own.port, &self.peer, place, request.operation)
            }
            // The memory of a region may be at another address than the one by which requests name it.
            Ok(Reached::Here(target)) if !target.addr().is_multiple_of(align_of::<AtomicU64>()) => {
                return Attempt::Done(self.fail_responder(WcStatus::RemInvReqErr));
            }
            // SAFETY: `target` checked that the word is in the peer's region, and it is aligned.
            Ok(Reached::Here(target)) => Ok(operate(
                unsafe { &*target.cast::<AtomicU64>() },
                request.operation,
            )),
        };
        let given_back = before.map(|before| {
            let bytes = before.to_ne_bytes();
            let mut rest = &bytes[..];
            for sge in request.sges.iter().filter(|sge| sge.length() > 0) {
                let (part, behind) = rest.split_at(sge.length() as usize);
                let into = local_address(&self.own.port, sge);
                // SAFETY: `Source::check` checked the SGE's key, range and LOCAL_WRITE.
                unsafe { place(into, part.as_ptr(), part.len()) };
                rest = behind;
            }
        });
        self.ended(given_back)
    }

    /// Whether the peer accepts READs and atomics (IBTA vol. 1, 9.7.4.1.2).
    #[inline]
    pub(super) fn responder_has_resources(&self) -> bool {
        self.remote().max_dest_rd_atomic.load(Ordering::Relaxed) != 0
    }
}

/// Executes one atomic instruction; returns the old value.
#[inline]
fn operate(word: &AtomicU64, operation: Operation) -> u64 {
    match operation {
        Operation::FetchAdd(_, addend) => word.fetch_add(addend, Ordering::SeqCst),
        Operation::CompareSwap(_, comparison) => {
            let (expected, new) = (comparison.expected, comparison.new);
            word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|found| found)
        }
        other => unreachable!("{other:?} is not an atomic operation"),
    }
}
