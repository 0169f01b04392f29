//! Queue pairs: types, states and attributes.

mod attr;
mod retry;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use attr::{AddressVector, QpAttr, QpAttrMask, RnrTimer};
pub use retry::{AckTimeout, ParseAckTimeoutError, ParseRetryCountError, RetryCount, RetryParams};

/// Transport service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Initiator of the dynamically connected transport: each request names its target, and the device
    /// connects to it (`MLX5DV_DCTYPE_DCI`).
    Dci,
    /// Target of the dynamically connected transport (`MLX5DV_DCTYPE_DCT`): its last state is RTR.
    Dct,
    /// Sending end of an extended reliable connection: each request names a shared receive queue of the peer
    /// (`IBV_QPT_XRC_SEND`; IBTA vol. 1, annex A14).
    XrcSend,
    /// Receiving end of one, which belongs to an XRC domain (`IBV_QPT_XRC_RECV`).
    XrcRecv,
}

impl QpType {
    /// Whether requests are acknowledged, and retransmitted until they are.
    pub const fn is_reliable(self) -> bool {
        !matches!(self, QpType::Uc | QpType::Ud)
    }

    /// Returns the type of the peer of a queue pair of this type.
    #[must_use]
    pub const fn of_peer(self) -> Self {
        match self {
            QpType::Dci => QpType::Dct,
            QpType::Dct => QpType::Dci,
            QpType::XrcSend => QpType::XrcRecv,
            QpType::XrcRecv => QpType::XrcSend,
            same => same,
        }
    }

    /// Whether receives can be posted to such queue pairs.
    pub const fn has_receive_queue(self) -> bool {
        !matches!(self, QpType::Dci | QpType::XrcSend | QpType::XrcRecv)
    }

    /// Whether each request names its destination.
    pub const fn is_addressed(self) -> bool {
        matches!(self, QpType::Ud | QpType::Dci)
    }
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            QpType::Rc => "RC",
            QpType::Uc => "UC",
            QpType::Ud => "UD",
            QpType::Dci => "DC initiator",
            QpType::Dct => "DC target",
            QpType::XrcSend => "XRC send",
            QpType::XrcRecv => "XRC receive",
        })
    }
}

/// State of a queue pair (`ibv_qp_state`, same numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum QpState {
    /// Created or reset: both queues are empty.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue drained.
    Sqd = 4,
    /// Send queue error (UC, UD).
    Sqe = 5,
    /// Error: everything is flushed.
    Err = 6,
}

impl QpState {
    /// All states, by number.
    pub const ALL: [QpState; 7] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Sqe,
        QpState::Err,
    ];

    /// Converts a number of `ibv_qp_state`.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// Whether requests of the peer are executed in this state.
    pub fn receives(self) -> bool {
        matches!(
            self,
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        )
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Err => "ERR",
        })
    }
}
