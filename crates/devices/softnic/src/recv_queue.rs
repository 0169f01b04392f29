//! The receive queue of a queue pair, as its owner sees it: posted requests and arrived messages.

use std::sync::atomic::{AtomicU64, Ordering};

use adverb_verbs::{
    Imm, Qpn, RecvRequest, Rkey, WcFlags, WcOpcode, WcStatus, WorkCompletion, WrId,
};

use crate::datagrams::Datagrams;
use crate::shm::ring::{Arrival, Extra, Piece, RecvRing};

/// A receive queue as its owner sees it. The queue pair posts to it, and the completion queue takes from it.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    /// Its requests. For a connected queue pair also their completions.
    pub(crate) ring: RecvRing<'static>,
    /// UD: the arrived messages.
    pub(crate) datagrams: Option<Datagrams>,
    wr_ids: Box<[AtomicU64]>,
    /// Number of receives taken since RESET.
    taken: AtomicU64,
    pub(crate) qpn: Qpn,
}

impl RecvQueue {
    /// Makes an empty queue with as many slots as `ring`.
    pub(crate) fn new(qpn: Qpn, ring: RecvRing<'static>, datagrams: Option<Datagrams>) -> Self {
        RecvQueue {
            wr_ids: (0..ring.slots()).map(|_| AtomicU64::new(0)).collect(),
            ring,
            datagrams,
            taken: AtomicU64::new(0),
            qpn,
        }
    }

    /// Resets the queue.
    pub(crate) fn begin_generation(&self) {
        self.taken.store(0, Ordering::Relaxed);
    }

    /// Returns the number of receives taken since RESET.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    /// Posts a request at `position`, whose slot is free.
    #[inline]
    pub(crate) fn post(&self, position: u64, request: &RecvRequest<'_>) {
        self.wr_ids[self.slot(position)].store(request.wr_id.0, Ordering::Relaxed);
        self.ring
            .post(position, request.sges.iter().map(Piece::from));
        if let Some(datagrams) = &self.datagrams {
            datagrams.post(position);
        }
    }

    #[inline]
    fn slot(&self, position: u64) -> usize {
        (position & (self.wr_ids.len() as u64 - 1)) as usize
    }

    fn wr_id(&self, position: u64) -> WrId {
        WrId(self.wr_ids[self.slot(position)].load(Ordering::Relaxed))
    }

    /// Takes the completion at `position`, if it is complete.
    #[inline]
    pub(crate) fn take(&self, position: u64) -> Option<WorkCompletion> {
        let completion = match &self.datagrams {
            None => self.completion(position, self.ring.arrival(position)?),
            Some(datagrams) => self.named(position, datagrams.take(self.ring, position)?),
        };
        self.count_taken();
        Some(completion)
    }

    /// Connected queue pairs: whether the receive at `position` is complete.
    pub(crate) fn has_arrived(&self, position: u64) -> bool {
        self.datagrams.is_none() && self.ring.arrival(position).is_some()
    }

    /// Flushes the receive at `position`, which no requester can complete any more. A message that has arrived
    /// stays a success.
    pub(crate) fn flush(&self, position: u64) -> WorkCompletion {
        let arrived = match &self.datagrams {
            None => {
                let arrival = self.ring.arrival(position);
                arrival.map(|arrival| self.completion(position, arrival))
            }
            Some(datagrams) => {
                let completion = datagrams.close(self.ring, position);
                completion.map(|completion| self.named(position, completion))
            }
        };
        self.count_taken();
        arrived.unwrap_or_else(|| self.completion(position, Arrival::failed(WcStatus::WrFlushErr)))
    }

    /// Returns the completion with its `wr_id` and queue pair.
    fn named(&self, position: u64, completion: WorkCompletion) -> WorkCompletion {
        WorkCompletion {
            wr_id: self.wr_id(position),
            qp_num: self.qpn,
            ..completion
        }
    }

    /// Counts one more taken receive.
    pub(crate) fn count_taken(&self) {
        self.taken
            .store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    #[inline]
    fn completion(&self, position: u64, arrival: Arrival) -> WorkCompletion {
        received(self.wr_id(position), self.qpn, arrival)
    }
}

/// Whether a completion is of a message to a queue pair.
pub(crate) fn is_message_to(qpn: Qpn, completion: &WorkCompletion) -> bool {
    let is_receive = matches!(
        completion.opcode,
        WcOpcode::Recv | WcOpcode::RecvRdmaWithImm
    );
    completion.qp_num == qpn && completion.status == WcStatus::Success && is_receive
}

/// Returns the completion of a connection's receive.
#[inline]
pub(crate) fn received(wr_id: WrId, qp_num: Qpn, arrival: Arrival) -> WorkCompletion {
    let (imm, invalidated, flags) = match arrival.extra {
        Extra::None => (None, None, WcFlags::empty()),
        Extra::Imm(imm) => (Some(Imm(imm)), None, WcFlags::WITH_IMM),
        Extra::Invalidated(key) => (None, Some(Rkey(key)), WcFlags::WITH_INV),
    };
    WorkCompletion {
        wr_id,
        status: match arrival.status {
            0 => WcStatus::Success,
            code => WcStatus::from_code(code.into()),
        },
        opcode: if arrival.is_write {
            WcOpcode::RecvRdmaWithImm
        } else {
            WcOpcode::Recv
        },
        byte_len: arrival.byte_len,
        imm,
        invalidated,
        qp_num,
        src_qp: None,
        flags,
    }
}
