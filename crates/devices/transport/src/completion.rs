//! Completions.

use adverb_verbs::{Imm, Qpn, Rkey, WcFlags, WcOpcode, WcStatus, WorkCompletion, WrId};

use crate::request::Work;

/// Whether the sender requested a solicited event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Solicited {
    /// It did not.
    No,
    /// It did.
    Yes,
}

/// The queue that a request was posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// The send queue.
    Send,
    /// The receive queue.
    Receive,
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The queue that it was posted to.
    pub queue: Queue,
    /// The work completion for the program.
    pub work: WorkCompletion,
    /// Whether it raises a solicited event.
    pub solicited: Solicited,
}

impl Completion {
    /// Makes the completion of a send request.
    pub(crate) fn of_send(qp_num: Qpn, wr_id: WrId, work: &Work, byte_len: u32) -> Self {
        let opcode = match work {
            Work::Send | Work::SendWithImm(_) | Work::SendWithInvalidate(_) => WcOpcode::Send,
            Work::Write(_) | Work::WriteWithImm(..) => WcOpcode::RdmaWrite,
            Work::Read(_) => WcOpcode::RdmaRead,
            Work::FetchAdd(..) => WcOpcode::FetchAdd,
            Work::CompareSwap(..) => WcOpcode::CompareSwap,
        };
        Completion {
            queue: Queue::Send,
            work: WorkCompletion {
                wr_id,
                opcode,
                byte_len,
                qp_num,
                ..WorkCompletion::default()
            },
            solicited: Solicited::No,
        }
    }

    /// Makes the completion of a receive request.
    pub(crate) fn of_receive(qp_num: Qpn, wr_id: WrId, byte_len: u32) -> Self {
        Completion {
            queue: Queue::Receive,
            work: WorkCompletion {
                wr_id,
                opcode: WcOpcode::Recv,
                byte_len,
                qp_num,
                ..WorkCompletion::default()
            },
            solicited: Solicited::No,
        }
    }

    /// Adds immediate data, if there is any.
    #[must_use]
    pub(crate) fn with_imm(mut self, imm: Option<Imm>) -> Self {
        self.work.imm = imm;
        self.work.flags.set(WcFlags::WITH_IMM, imm.is_some());
        self
    }

    /// Adds the key that the message invalidated.
    #[must_use]
    pub(crate) fn with_invalidated(mut self, rkey: Rkey) -> Self {
        self.work.invalidated = Some(rkey);
        self.work.flags.insert(WcFlags::WITH_INV);
        self
    }

    /// Sets the status. An error also raises a solicited event.
    #[must_use]
    pub(crate) fn with_status(mut self, status: WcStatus) -> Self {
        self.work.status = status;
        if !status.is_success() {
            self.solicited = Solicited::Yes;
        }
        self
    }
}
