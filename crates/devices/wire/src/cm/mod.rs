//! Messages of the communication manager (IBTA vol. 1, chapter 12 and 13.6), management class 0x07.
//!
//! Loading of alternate paths (LAP, APR) is not supported: the message is recognized, so that it can be refused, but
//! not parsed. Private data has a fixed length per message; its unused bytes are zero.

mod connection;
mod control;
mod ip;
mod reason;
mod sidr;

pub use connection::{Path, Rep, Req, Rtu, ServiceType};
pub use control::{Drep, Dreq, Mra, MsgType, Rej};
pub use ip::{IpCmHeader, PortSpace, ServiceId};
pub use reason::RejectReason;
pub use sidr::{SidrRep, SidrReq, SidrStatus};

use crate::WireError;
use crate::mad::{self, MadHeader};

/// Management class of the communication manager (13.4.4).
pub const CLASS: u8 = 0x07;
/// Version of its messages (12.6).
pub const CLASS_VERSION: u8 = 2;
/// The only method of the class: Send (16.7.1).
const METHOD_SEND: u8 = 0x03;

/// A message of the communication manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "every message is built or read once, on the stack"
)]
pub enum CmMessage {
    /// Request for a connection.
    Req(Req),
    /// Message receipt acknowledgement: the reply takes longer.
    Mra(Mra),
    /// Reject.
    Rej(Rej),
    /// Reply to a REQ.
    Rep(Rep),
    /// Ready to use.
    Rtu(Rtu),
    /// Request to disconnect.
    Dreq(Dreq),
    /// Reply to a DREQ.
    Drep(Drep),
    /// Request for the queue pair of a UD service.
    SidrReq(SidrReq),
    /// Reply to a SIDR_REQ.
    SidrRep(SidrRep),
}

impl CmMessage {
    /// Parses a management datagram; returns the message with its transaction ID.
    ///
    /// # Errors
    /// The datagram is not of the communication manager, or its message is unknown or not supported.
    pub fn parse(bytes: &[u8]) -> Result<(u64, Self), WireError> {
        let (header, data) = MadHeader::parse(bytes)?;
        let class = (header.class, header.class_version, header.method);
        if class != (CLASS, CLASS_VERSION, METHOD_SEND) {
            return Err(WireError::MadClass {
                class: header.class,
                version: header.class_version,
                method: header.method,
            });
        }
        let message = match header.attribute {
            0x10 => CmMessage::Req(Req::from_data(data)?),
            0x11 => CmMessage::Mra(Mra::from_data(data)?),
            0x12 => CmMessage::Rej(Rej::from_data(data)?),
            0x13 => CmMessage::Rep(Rep::from_data(data)),
            0x14 => CmMessage::Rtu(Rtu::from_data(data)),
            0x15 => CmMessage::Dreq(Dreq::from_data(data)),
            0x16 => CmMessage::Drep(Drep::from_data(data)),
            0x17 => CmMessage::SidrReq(SidrReq::from_data(data)),
            0x18 => CmMessage::SidrRep(SidrRep::from_data(data)),
            other => return Err(WireError::CmAttribute(other)),
        };
        Ok((header.transaction, message))
    }

    /// Returns the datagram with this message.
    pub fn to_mad(&self, transaction: u64) -> [u8; mad::LEN] {
        let (attribute, data) = match self {
            CmMessage::Req(req) => (0x10, req.to_data()),
            CmMessage::Mra(mra) => (0x11, mra.to_data()),
            CmMessage::Rej(rej) => (0x12, rej.to_data()),
            CmMessage::Rep(rep) => (0x13, rep.to_data()),
            CmMessage::Rtu(rtu) => (0x14, rtu.to_data()),
            CmMessage::Dreq(dreq) => (0x15, dreq.to_data()),
            CmMessage::Drep(drep) => (0x16, drep.to_data()),
            CmMessage::SidrReq(req) => (0x17, req.to_data()),
            CmMessage::SidrRep(rep) => (0x18, rep.to_data()),
        };
        let header = MadHeader {
            class: CLASS,
            class_version: CLASS_VERSION,
            method: METHOD_SEND,
            status: 0,
            transaction,
            attribute,
            modifier: 0,
        };
        header.with_data(&data)
    }
}
