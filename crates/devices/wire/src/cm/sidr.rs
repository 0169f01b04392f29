//! SIDR_REQ and SIDR_REP: resolve a service ID to the queue pair of a UD service (IBTA vol. 1, 12.11).

use adverb_verbs::Qpn;

use super::ServiceId;
use crate::fields::{be16, be32, be64, octets, put, put24, qpn};
use crate::mad::DATA_LEN;

/// Request for the queue pair of a UD service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrReq {
    /// The requester's name of the request.
    pub request_id: u32,
    /// Partition key.
    pub pkey: u16,
    /// The requested service.
    pub service: ServiceId,
    /// Private data; the IP CM service uses the first 36 B.
    pub private_data: [u8; SidrReq::PRIVATE],
}

impl SidrReq {
    /// Length of the private data in bytes.
    pub const PRIVATE: usize = 216;

    pub(super) fn from_data(b: &[u8; DATA_LEN]) -> Self {
        SidrReq {
            request_id: be32(b, 0),
            pkey: be16(b, 4),
            service: ServiceId(be64(b, 8)),
            private_data: octets(b, DATA_LEN - SidrReq::PRIVATE),
        }
    }

    pub(super) fn to_data(self) -> [u8; DATA_LEN] {
        let mut out = [0; DATA_LEN];
        put(&mut out, 0, self.request_id.to_be_bytes());
        put(&mut out, 4, self.pkey.to_be_bytes());
        put(&mut out, 8, self.service.0.to_be_bytes());
        put(&mut out, DATA_LEN - SidrReq::PRIVATE, self.private_data);
        out
    }
}

/// Status of a SIDR_REP (12.11.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The queue pair number and Q_Key are valid.
    pub const VALID: SidrStatus = SidrStatus(0);
    /// The service ID is not supported.
    pub const UNSUPPORTED: SidrStatus = SidrStatus(1);
    /// Rejected by the service provider.
    pub const REJECTED: SidrStatus = SidrStatus(2);
    /// No queue pair is available.
    pub const NO_QP: SidrStatus = SidrStatus(3);
    /// The request was redirected.
    pub const REDIRECTED: SidrStatus = SidrStatus(4);
    /// The version of the message is not supported.
    pub const UNSUPPORTED_VERSION: SidrStatus = SidrStatus(5);
}

/// Reply to a SIDR_REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrRep {
    /// The requester's name of the request.
    pub request_id: u32,
    /// Status.
    pub status: SidrStatus,
    /// Valid bytes of `additional`.
    pub additional_length: u8,
    /// The service's queue pair.
    pub qpn: Qpn,
    /// The service.
    pub service: ServiceId,
    /// Q_Key of the queue pair.
    pub qkey: u32,
    /// Additional information, defined by the status.
    pub additional: [u8; SidrRep::ADDITIONAL],
    /// Private data.
    pub private_data: [u8; SidrRep::PRIVATE],
}

impl SidrRep {
    /// Length of the additional information in bytes.
    pub const ADDITIONAL: usize = 72;
    /// Length of the private data in bytes.
    pub const PRIVATE: usize = 136;

    pub(super) fn from_data(b: &[u8; DATA_LEN]) -> Self {
        SidrRep {
            request_id: be32(b, 0),
            status: SidrStatus(b[4]),
            additional_length: b[5],
            qpn: qpn(b, 8),
            service: ServiceId(be64(b, 12)),
            qkey: be32(b, 20),
            additional: octets(b, 24),
            private_data: octets(b, DATA_LEN - SidrRep::PRIVATE),
        }
    }

    pub(super) fn to_data(self) -> [u8; DATA_LEN] {
        let mut out = [0; DATA_LEN];
        put(&mut out, 0, self.request_id.to_be_bytes());
        out[4] = self.status.0;
        out[5] = self.additional_length;
        put24(&mut out, 8, self.qpn.get());
        put(&mut out, 12, self.service.0.to_be_bytes());
        put(&mut out, 20, self.qkey.to_be_bytes());
        put(&mut out, 24, self.additional);
        put(&mut out, DATA_LEN - SidrRep::PRIVATE, self.private_data);
        out
    }
}
