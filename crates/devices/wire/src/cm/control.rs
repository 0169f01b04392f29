//! MRA, REJ, DREQ and DREP: delay, refusal and end of a connection (IBTA vol. 1, 12.6.6, 12.6.7, 12.6.10, 12.6.11).

use adverb_verbs::{AckTimeout, Qpn};

use super::RejectReason;
use super::connection::timeout;
use crate::WireError;
use crate::fields::{be16, be32, octets, put, put24, qpn};
use crate::mad::DATA_LEN;

/// The message that a MRA acknowledges or a REJ refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MsgType {
    /// A REQ.
    Req,
    /// A REP.
    Rep,
    /// MRA: a LAP. REJ: no message, such as after a timeout.
    Other,
}

impl MsgType {
    fn parse(bits: u8) -> Result<Self, WireError> {
        match bits & 3 {
            0 => Ok(MsgType::Req),
            1 => Ok(MsgType::Rep),
            2 => Ok(MsgType::Other),
            reserved => Err(WireError::CmMsgType(reserved)),
        }
    }

    const fn bits(self) -> u8 {
        match self {
            MsgType::Req => 0,
            MsgType::Rep => 1,
            MsgType::Other => 2,
        }
    }
}

/// Message receipt acknowledgement: the sender of the message waits longer for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mra {
    /// The sender's name of the connection.
    pub local_id: u32,
    /// The receiver's name.
    pub remote_id: u32,
    /// The received message.
    pub of: MsgType,
    /// Time that the answer takes.
    pub service_timeout: AckTimeout,
    /// Private data.
    pub private_data: [u8; Mra::PRIVATE],
}

impl Mra {
    /// Length of the private data in bytes.
    pub const PRIVATE: usize = 222;

    pub(super) fn from_data(b: &[u8; DATA_LEN]) -> Result<Self, WireError> {
        Ok(Mra {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            of: MsgType::parse(b[8] >> 6)?,
            service_timeout: timeout(b[9] >> 3),
            private_data: octets(b, DATA_LEN - Mra::PRIVATE),
        })
    }

    pub(super) fn to_data(self) -> [u8; DATA_LEN] {
        let mut out = [0; DATA_LEN];
        put(&mut out, 0, self.local_id.to_be_bytes());
        put(&mut out, 4, self.remote_id.to_be_bytes());
        out[8] = self.of.bits() << 6;
        out[9] = self.service_timeout.code() << 3;
        put(&mut out, DATA_LEN - Mra::PRIVATE, self.private_data);
        out
    }
}

/// Reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rej {
    /// The sender's name of the connection; 0 if it has none.
    pub local_id: u32,
    /// The receiver's name.
    pub remote_id: u32,
    /// The refused message.
    pub of: MsgType,
    /// Valid bytes of `additional`, 7 bits.
    pub additional_length: u8,
    /// The reason.
    pub reason: RejectReason,
    /// Additional information, defined by the reason.
    pub additional: [u8; Rej::ADDITIONAL],
    /// Private data.
    pub private_data: [u8; Rej::PRIVATE],
}

impl Rej {
    /// Length of the additional information in bytes.
    pub const ADDITIONAL: usize = 72;
    /// Length of the private data in bytes.
    pub const PRIVATE: usize = 148;

    pub(super) fn from_data(b: &[u8; DATA_LEN]) -> Result<Self, WireError> {
        Ok(Rej {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            of: MsgType::parse(b[8] >> 6)?,
            additional_length: b[9] >> 1,
            reason: RejectReason(be16(b, 10)),
            additional: octets(b, 12),
            private_data: octets(b, DATA_LEN - Rej::PRIVATE),
        })
    }

    pub(super) fn to_data(self) -> [u8; DATA_LEN] {
        let mut out = [0; DATA_LEN];
        put(&mut out, 0, self.local_id.to_be_bytes());
        put(&mut out, 4, self.remote_id.to_be_bytes());
        out[8] = self.of.bits() << 6;
        out[9] = self.additional_length << 1;
        put(&mut out, 10, self.reason.0.to_be_bytes());
        put(&mut out, 12, self.additional);
        put(&mut out, DATA_LEN - Rej::PRIVATE, self.private_data);
        out
    }
}

/// Request to disconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dreq {
    /// The sender's name of the connection.
    pub local_id: u32,
    /// The receiver's name.
    pub remote_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// Private data.
    pub private_data: [u8; Dreq::PRIVATE],
}

impl Dreq {
    /// Length of the private data in bytes.
    pub const PRIVATE: usize = 220;

    pub(super) fn from_data(b: &[u8; DATA_LEN]) -> Self {
        Dreq {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            remote_qpn: qpn(b, 8),
            private_data: octets(b, DATA_LEN - Dreq::PRIVATE),
        }
    }

    pub(super) fn to_data(self) -> [u8; DATA_LEN] {
        let mut out = [0; DATA_LEN];
        put(&mut out, 0, self.local_id.to_be_bytes());
        put(&mut out, 4, self.remote_id.to_be_bytes());
        put24(&mut out, 8, self.remote_qpn.get());
        put(&mut out, DATA_LEN - Dreq::PRIVATE, self.private_data);
        out
    }
}

/// Reply to a DREQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drep {
    /// The sender's name of the connection.
    pub local_id: u32,
    /// The receiver's name.
    pub remote_id: u32,
    /// Private data.
    pub private_data: [u8; Drep::PRIVATE],
}

impl Drep {
    /// Length of the private data in bytes.
    pub const PRIVATE: usize = 224;

    pub(super) fn from_data(b: &[u8; DATA_LEN]) -> Self {
        Drep {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            private_data: octets(b, DATA_LEN - Drep::PRIVATE),
        }
    }

    pub(super) fn to_data(self) -> [u8; DATA_LEN] {
        let mut out = [0; DATA_LEN];
        put(&mut out, 0, self.local_id.to_be_bytes());
        put(&mut out, 4, self.remote_id.to_be_bytes());
        put(&mut out, DATA_LEN - Drep::PRIVATE, self.private_data);
        out
    }
}
