//! The send queue: requests from posting to completion, with their sequence numbers.

use std::collections::VecDeque;

use adverb_verbs::{Operation, PathMtu, SendFlags, WcStatus};

use crate::memory::{Access, Memory};
use crate::request::{Payload, PostError, SendWork, Work};
use crate::segment::{MAX_MESSAGE, packets};
use crate::sequence::Seq;

/// A request that is not complete.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) request: SendWork,
    pub(super) length: u64,
    /// Sequence number of its first packet; for READs and atomics, of the response's first packet.
    pub(super) first: Seq,
    /// The number after its last packet.
    pub(super) end: Seq,
    /// A READ is requested in parts of this number of packets.
    pub(super) part: u64,
    /// A local error: the request is not sent, and completes with this status when it is the oldest.
    pub(super) failure: Option<WcStatus>,
}

impl Entry {
    #[inline]
    pub(super) fn is_answered(&self) -> bool {
        self.request.work.is_answered()
    }

    #[inline]
    pub(super) fn is_fenced(&self) -> bool {
        self.request.flags.contains(SendFlags::FENCE)
    }
}

#[derive(Debug)]
pub(super) struct SendQueue {
    entries: VecDeque<Entry>,
    most: usize,
}

impl SendQueue {
    pub(super) fn new(most: usize) -> Self {
        SendQueue {
            entries: VecDeque::with_capacity(most),
            most,
        }
    }

    /// Adds a valid request. Calls `first` with the number of its packets to get its first sequence number.
    ///
    /// # Errors
    /// The queue is full, or RC has no such request.
    pub(super) fn post(
        &mut self,
        request: SendWork,
        memory: &impl Memory,
        (mtu, part): (PathMtu, u64),
        first: impl FnOnce(u64) -> Seq,
    ) -> Result<(), PostError> {
        if self.entries.len() == self.most {
            return Err(PostError::Full(self.most));
        }
        let length = checked_length(&request)?;
        let access = if request.work.is_answered() {
            Access::Write
        } else {
            Access::Read
        };
        let refused = match &request.payload {
            Payload::Memory(pieces) => pieces.check(memory, access).is_err(),
            Payload::Inline(_) => false,
        };
        let count = packets(length, mtu);
        let first = first(count);
        self.entries.push_back(Entry {
            request,
            length,
            first,
            end: first + count,
            part,
            failure: refused.then_some(WcStatus::LocProtErr),
        });
        Ok(())
    }

    /// Adds a request that is not sent, as sequence number `first`. It completes with `status` when it is the oldest.
    ///
    /// # Errors
    /// The queue is full.
    pub(super) fn post_failed(
        &mut self,
        request: SendWork,
        status: WcStatus,
        first: impl FnOnce(u64) -> Seq,
    ) -> Result<(), PostError> {
        if self.entries.len() == self.most {
            return Err(PostError::Full(self.most));
        }
        let first = first(1);
        self.entries.push_back(Entry {
            request,
            length: 0,
            first,
            end: first + 1,
            part: 1,
            failure: Some(status),
        });
        Ok(())
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index)
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Entry> {
        self.entries.front()
    }

    /// Records a local error of a request.
    pub(super) fn fail(&mut self, index: usize, status: WcStatus) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.failure = Some(status);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }
}

/// Returns the length of a request, if RC has such requests.
fn checked_length(request: &SendWork) -> Result<u64, PostError> {
    let length = request.payload.length();
    if length > MAX_MESSAGE {
        return Err(PostError::TooLong {
            length,
            most: MAX_MESSAGE,
        });
    }
    if request.work.is_answered() && matches!(request.payload, Payload::Inline(_)) {
        return Err(PostError::InlineAnswer);
    }
    match request.work {
        Work::FetchAdd(..) | Work::CompareSwap(..) if length != Operation::ATOMIC_SIZE => {
            Err(PostError::AtomicLength(length))
        }
        _ => Ok(length),
    }
}
