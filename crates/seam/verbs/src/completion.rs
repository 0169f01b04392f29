//! Work completions.

use std::fmt;

use crate::ids::{Imm, Qpn, Rkey, WrId};

/// Status of a completed request (`ibv_wc_status`, same numbers). Unknown numbers are preserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WcStatus {
    /// The request succeeded.
    Success,
    /// A local buffer is too short, or the message exceeds the maximum size.
    LocLenErr,
    /// The queue pair itself is inconsistent.
    LocQpOpErr,
    /// A local buffer is outside its region, or its key or access right is wrong.
    LocProtErr,
    /// The queue pair was in the error state, and the request was not executed.
    WrFlushErr,
    /// A memory window could not be bound.
    MwBindErr,
    /// The peer found the request invalid (such as a message longer than its receive buffer).
    RemInvReqErr,
    /// The peer refused the key, range or access right.
    RemAccessErr,
    /// The peer could not complete the operation.
    RemOpErr,
    /// The peer did not acknowledge within timeout × retries.
    RetryExcErr,
    /// The peer did not post a receive within RNR timer × RNR retries.
    RnrRetryExcErr,
    /// Another number of `ibv_wc_status`.
    Other(u32),
}

impl WcStatus {
    const NAMES: [(WcStatus, u32, &'static str); 11] = [
        (WcStatus::Success, 0, "success"),
        (WcStatus::LocLenErr, 1, "local length error"),
        (WcStatus::LocQpOpErr, 2, "local QP operation error"),
        (WcStatus::LocProtErr, 4, "local protection error"),
        (WcStatus::WrFlushErr, 5, "work request flushed"),
        (WcStatus::MwBindErr, 6, "memory window bind error"),
        (WcStatus::RemInvReqErr, 9, "remote invalid request error"),
        (WcStatus::RemAccessErr, 10, "remote access error"),
        (WcStatus::RemOpErr, 11, "remote operation error"),
        (
            WcStatus::RetryExcErr,
            12,
            "transport retry counter exceeded",
        ),
        (WcStatus::RnrRetryExcErr, 13, "RNR retry counter exceeded"),
    ];

    /// Converts a number of `ibv_wc_status`.
    pub fn from_code(code: u32) -> Self {
        let named = Self::NAMES.iter().find(|(_, n, _)| *n == code);
        named.map_or(WcStatus::Other(code), |(status, ..)| *status)
    }

    /// Returns the number in `ibv_wc_status`.
    pub fn code(self) -> u32 {
        match self {
            WcStatus::Other(code) => code,
            known => Self::NAMES
                .iter()
                .find(|(s, ..)| *s == known)
                .map_or(0, |(_, n, _)| *n),
        }
    }

    /// Whether the request succeeded.
    pub fn is_success(self) -> bool {
        self == WcStatus::Success
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(s, ..)| s == self) {
            Some((.., name)) => f.pad(name),
            None => write!(f, "status {}", self.code()),
        }
    }
}

/// Kind of the completed request (`ibv_wc_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WcOpcode {
    /// A SEND of this side.
    Send,
    /// An RDMA WRITE of this side.
    RdmaWrite,
    /// An RDMA READ of this side.
    RdmaRead,
    /// A compare-and-swap of this side.
    CompareSwap,
    /// A fetch-and-add of this side.
    FetchAdd,
    /// A bind of a memory window.
    BindWindow,
    /// A local invalidate.
    LocalInvalidate,
    /// A SEND of the peer arrived.
    Recv,
    /// An RDMA WRITE with immediate of the peer arrived.
    RecvRdmaWithImm,
}

bitflags::bitflags! {
    /// Flags of a completion (`ibv_wc_flags`, same bits).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WcFlags: u32 {
        /// The receive buffer begins with a global routing header (UD).
        const GRH = 1;
        /// There is immediate data.
        const WITH_IMM = 1 << 1;
        /// The message invalidated a key.
        const WITH_INV = 1 << 3;
    }
}

/// Completion of a request (`ibv_wc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The program's name of the request.
    pub wr_id: WrId,
    /// Status. Unless it is a success, only `wr_id`, `status` and `qp_num` are valid.
    pub status: WcStatus,
    /// Kind of the request.
    pub opcode: WcOpcode,
    /// Bytes transferred (receives and READs).
    pub byte_len: u32,
    /// Immediate data, if the message had any.
    pub imm: Option<Imm>,
    /// The local key that the message invalidated, if it did.
    pub invalidated: Option<Rkey>,
    /// The local queue pair.
    pub qp_num: Qpn,
    /// The queue pair that sent a datagram (UD receives).
    pub src_qp: Option<Qpn>,
    /// Flags.
    pub flags: WcFlags,
}

impl Default for WorkCompletion {
    /// Returns an entry for `poll` to overwrite.
    fn default() -> Self {
        WorkCompletion {
            wr_id: WrId(0),
            status: WcStatus::Success,
            opcode: WcOpcode::Send,
            byte_len: 0,
            imm: None,
            invalidated: None,
            qp_num: Qpn::default(),
            src_qp: None,
            flags: WcFlags::empty(),
        }
    }
}

/// Which completions raise the next event (`ibv_req_notify_cq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyOn {
    /// The next completion of any kind.
    Any,
    /// The next solicited completion, or an error.
    Solicited,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_numbers_are_those_of_libibverbs_and_unknown_ones_survive() {
        for code in 0..40 {
            assert_eq!(WcStatus::from_code(code).code(), code);
        }
        assert_eq!(WcStatus::from_code(12), WcStatus::RetryExcErr);
        assert_eq!(WcStatus::from_code(77).to_string(), "status 77");
    }
}
