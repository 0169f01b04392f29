//! REQ, REP and RTU: the three messages that connect two queue pairs (IBTA vol. 1, 12.6.5, 12.6.8, 12.6.9).

use adverb_verbs::{AckTimeout, Gid, PathMtu, Psn, Qpn};

use super::ServiceId;
use crate::WireError;
use crate::fields::{be16, be24, be32, be64, octets, put, put24, qpn};
use crate::mad::DATA_LEN;

/// Transport service of a connection (12.7.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Defined by the "extended transport type".
    Extended(u8),
}

impl ServiceType {
    /// Extended reliable connection.
    pub const XRC: ServiceType = ServiceType::Extended(1);
}

/// A path in a REQ: the addresses are the requester's (local) and the responder's (remote).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// LID of the requester's port; 0xffff on Ethernet.
    pub local_lid: u16,
    /// LID of the responder's port; 0xffff on Ethernet.
    pub remote_lid: u16,
    /// GID of the requester's port.
    pub local_gid: Gid,
    /// GID of the responder's port.
    pub remote_gid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Static rate, 6 bits, as coded by `ibv_rate`.
    pub rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// The path does not leave the subnet.
    pub is_subnet_local: bool,
    /// Timeout of acknowledgements on this path.
    pub ack_timeout: AckTimeout,
}

impl Path {
    const LEN: usize = 44;

    fn parse(b: &[u8; Self::LEN]) -> Self {
        Path {
            local_lid: be16(b, 0),
            remote_lid: be16(b, 2),
            local_gid: Gid(octets(b, 4)),
            remote_gid: Gid(octets(b, 20)),
            flow_label: be24(b, 36) >> 4,
            rate: b[39] & 0x3f,
            traffic_class: b[40],
            hop_limit: b[41],
            sl: b[42] >> 4,
            is_subnet_local: b[42] & 8 != 0,
            ack_timeout: timeout(b[43] >> 3),
        }
    }

    fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, 0, self.local_lid.to_be_bytes());
        put(&mut out, 2, self.remote_lid.to_be_bytes());
        put(&mut out, 4, self.local_gid.0);
        put(&mut out, 20, self.remote_gid.0);
        put24(&mut out, 36, self.flow_label << 4);
        out[39] = self.rate & 0x3f;
        out[40] = self.traffic_class;
        out[41] = self.hop_limit;
        out[42] = self.sl << 4 | u8::from(self.is_subnet_local) << 3;
        out[43] = self.ack_timeout.code() << 3;
        out
    }
}

/// Returns the timeout with a code of 5 bits.
pub(super) fn timeout(code: u8) -> AckTimeout {
    AckTimeout::new(code & 0x1f).expect("5 bits make a timeout")
}

/// Request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Req {
    /// The requester's name of the connection.
    pub local_id: u32,
    /// The requested service.
    pub service: ServiceId,
    /// GUID of the requester's adapter.
    pub ca_guid: u64,
    /// Q_Key of the requester's queue pair (only reliable datagram).
    pub qkey: u32,
    /// The requester's queue pair.
    pub qpn: Qpn,
    /// READs and atomics that the requester serves at a time.
    pub responder_resources: u8,
    /// READs and atomics that the requester has outstanding.
    pub initiator_depth: u8,
    /// Time within which the requester expects the reply, in addition to the packets' lifetime.
    pub remote_response_timeout: AckTimeout,
    /// Transport service.
    pub service_type: ServiceType,
    /// The requester's receive queue gives credits.
    pub has_flow_control: bool,
    /// First PSN of the responder's packets.
    pub starting_psn: Psn,
    /// Time within which the requester answers.
    pub local_response_timeout: AckTimeout,
    /// Retransmissions after a timeout, 3 bits.
    pub retry_count: u8,
    /// Partition key.
    pub pkey: u16,
    /// Path MTU.
    pub path_mtu: PathMtu,
    /// Retransmissions after a receiver-not-ready NAK, 3 bits.
    pub rnr_retry_count: u8,
    /// Retransmissions of a message of the communication manager, 4 bits.
    pub max_cm_retries: u8,
    /// The requester's queue pair has a shared receive queue.
    pub has_srq: bool,
    /// The path.
    pub primary: Path,
    /// Private data; the IP CM service uses the first 36 B.
    pub private_data: [u8; Req::PRIVATE],
}

/// Offset of the primary path in a REQ.
const PRIMARY: usize = 52;

impl Req {
    /// Length of the private data in bytes.
    pub const PRIVATE: usize = 92;

    pub(super) fn from_data(b: &[u8; DATA_LEN]) -> Result<Self, WireError> {
        let service_type = match b[43] >> 1 & 3 {
            0 => ServiceType::Rc,
            1 => ServiceType::Uc,
            2 => ServiceType::Rd,
            _ => ServiceType::Extended(b[51] & 7),
        };
        let mtu = b[50] >> 4;
        let path_mtu = usize::from(mtu).checked_sub(1);
        let path_mtu = path_mtu.and_then(|index| PathMtu::ALL.get(index).copied());
        Ok(Req {
            local_id: be32(b, 0),
            service: ServiceId(be64(b, 8)),
            ca_guid: be64(b, 16),
            qkey: be32(b, 28),
            qpn: qpn(b, 32),
            responder_resources: b[35],
            initiator_depth: b[39],
            remote_response_timeout: timeout(b[43] >> 3),
            service_type,
            has_flow_control: b[43] & 1 != 0,
            starting_psn: Psn::new(be24(b, 44)),
            local_response_timeout: timeout(b[47] >> 3),
            retry_count: b[47] & 7,
            pkey: be16(b, 48),
            path_mtu: path_mtu.ok_or(WireError::CmPathMtu(mtu))?,
            rnr_retry_count: b[50] & 7,
            max_cm_retries: b[51] >> 4,
            has_srq: b[51] & 8 != 0,
            primary: Path::parse(&octets(b, PRIMARY)),
            private_data: octets(b, DATA_LEN - Req::PRIVATE),
        })
    }

    pub(super) fn to_data(self) -> [u8; DATA_LEN] {
        let (service_type, extended) = match self.service_type {
            ServiceType::Rc => (0, 0),
            ServiceType::Uc => (1, 0),
            ServiceType::Rd => (2, 0),
            ServiceType::Extended(kind) => (3, kind & 7),
        };
        let mtu = PathMtu::ALL.iter().position(|mtu| *mtu == self.path_mtu);
        let mtu = mtu.expect("one of all") as u8 + 1;
        let mut out = [0; DATA_LEN];
        put(&mut out, 0, self.local_id.to_be_bytes());
        put(&mut out, 8, self.service.0.to_be_bytes());
        put(&mut out, 16, self.ca_guid.to_be_bytes());
        put(&mut out, 28, self.qkey.to_be_bytes());
        put24(&mut out, 32, self.qpn.get());
        out[35] = self.responder_resources;
        out[39] = self.initiator_depth;
        out[43] = self.remote_response_timeout.code() << 3
            | service_type << 1
            | u8::from(self.has_flow_control);
        put24(&mut out, 44, self.starting_psn.get());
        out[47] = self.local_response_timeout.code() << 3 | self.retry_count & 7;
        put(&mut out, 48, self.pkey.to_be_bytes());
        out[50] = mtu << 4 | self.rnr_retry_count & 7;
        out[51] = self.max_cm_retries << 4 | u8::from(self.has_srq) << 3 | extended;
        put(&mut out, PRIMARY, self.primary.to_bytes());
        put(&mut out, DATA_LEN - Req::PRIVATE, self.private_data);
        out
    }
}

/// Reply to a REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rep {
    /// The responder's name of the connection.
    pub local_id: u32,
    /// The requester's name.
    pub remote_id: u32,
    /// Q_Key of the responder's queue pair (only reliable datagram).
    pub qkey: u32,
    /// The responder's queue pair.
    pub qpn: Qpn,
    /// First PSN of the requester's packets.
    pub starting_psn: Psn,
    /// READs and atomics that the responder serves at a time.
    pub responder_resources: u8,
    /// READs and atomics that the responder has outstanding.
    pub initiator_depth: u8,
    /// Delay of the responder's acknowledgements.
    pub target_ack_delay: AckTimeout,
    /// Whether the alternate path was accepted, 2 bits.
    pub failover: u8,
    /// The responder's receive queue gives credits.
    pub has_flow_control: bool,
    /// Retransmissions after a receiver-not-ready NAK, 3 bits.
    pub rnr_retry_count: u8,
    /// The responder's queue pair has a shared receive queue.
    pub has_srq: bool,
    /// GUID of the responder's adapter.
    pub ca_guid: u64,
    /// Private data.
    pub private_data: [u8; Rep::PRIVATE],
}

impl Rep {
    /// Length of the private data in bytes.
    pub const PRIVATE: usize = 196;

    pub(super) fn from_data(b: &[u8; DATA_LEN]) -> Self {
        Rep {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            qkey: be32(b, 8),
            qpn: qpn(b, 12),
            starting_psn: Psn::new(be24(b, 20)),
            responder_resources: b[24],
            initiator_depth: b[25],
            target_ack_delay: timeout(b[26] >> 3),
            failover: b[26] >> 1 & 3,
            has_flow_control: b[26] & 1 != 0,
            rnr_retry_count: b[27] >> 5,
            has_srq: b[27] & 0x10 != 0,
            ca_guid: be64(b, 28),
            private_data: octets(b, DATA_LEN - Rep::PRIVATE),
        }
    }

    pub(super) fn to_data(self) -> [u8; DATA_LEN] {
        let mut out = [0; DATA_LEN];
        put(&mut out, 0, self.local_id.to_be_bytes());
        put(&mut out, 4, self.remote_id.to_be_bytes());
        put(&mut out, 8, self.qkey.to_be_bytes());
        put24(&mut out, 12, self.qpn.get());
        put24(&mut out, 20, self.starting_psn.get());
        out[24] = self.responder_resources;
        out[25] = self.initiator_depth;
        out[26] = self.target_ack_delay.code() << 3
            | (self.failover & 3) << 1
            | u8::from(self.has_flow_control);
        out[27] = self.rnr_retry_count << 5 | u8::from(self.has_srq) << 4;
        put(&mut out, 28, self.ca_guid.to_be_bytes());
        put(&mut out, DATA_LEN - Rep::PRIVATE, self.private_data);
        out
    }
}

/// Ready to use: the requester's answer to a REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtu {
    /// The requester's name of the connection.
    pub local_id: u32,
    /// The responder's name.
    pub remote_id: u32,
    /// Private data.
    pub private_data: [u8; Rtu::PRIVATE],
}

impl Rtu {
    /// Length of the private data in bytes.
    pub const PRIVATE: usize = 224;

    pub(super) fn from_data(b: &[u8; DATA_LEN]) -> Self {
        Rtu {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            private_data: octets(b, DATA_LEN - Rtu::PRIVATE),
        }
    }

    pub(super) fn to_data(self) -> [u8; DATA_LEN] {
        let mut out = [0; DATA_LEN];
        put(&mut out, 0, self.local_id.to_be_bytes());
        put(&mut out, 4, self.remote_id.to_be_bytes());
        put(&mut out, DATA_LEN - Rtu::PRIVATE, self.private_data);
        out
    }
}
