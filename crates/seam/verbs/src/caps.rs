//! Limits and properties of devices, ports and queue pairs.

use std::fmt;
use std::str::FromStr;

use adverb_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{Gid, Lid};

/// Maximum message size, except on UD: 2 GiB (IBTA vol. 1, chapter 9).
pub const MAX_MESSAGE: Bytes = Bytes::new(1 << 31);

/// A device's name as the user writes it after `--device`: `soft`, `verbs:mlx5_0`, `model:cx3`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceName(pub String);

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Limits of a device (`ibv_device_attr`) that programs need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCaps {
    /// Queue pairs.
    pub max_qp: u32,
    /// Requests outstanding on a send or receive queue.
    pub max_qp_wr: u32,
    /// SGEs of a request.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Length of one memory region.
    pub max_mr_size: Bytes,
    /// READs and atomics that a queue pair may have outstanding as the responder.
    pub max_qp_rd_atom: u8,
    /// Inline payload of a send request.
    pub max_inline_data: u32,
    /// Shared receive queues; 0 if the device has none.
    pub max_srq: u32,
    /// Requests outstanding on a shared receive queue.
    pub max_srq_wr: u32,
    /// SGEs of a request on a shared receive queue.
    pub max_srq_sge: u32,
    /// Scope of its atomic operations.
    pub atomics: AtomicCap,
}

impl DeviceCaps {
    /// Modest limits, for plans and tests without a device.
    pub const MODEST: DeviceCaps = DeviceCaps {
        max_qp: 1024,
        max_qp_wr: 1024,
        max_sge: 1,
        max_cq: 1024,
        max_cqe: 4096,
        max_mr: 1024,
        max_mr_size: Bytes::mib(4096),
        max_qp_rd_atom: 16,
        max_inline_data: 256,
        max_srq: 0,
        max_srq_wr: 0,
        max_srq_sge: 0,
        atomics: AtomicCap::None,
    };
}

/// Scope within which a device's atomic operations are atomic (`ibv_atomic_cap`, same numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicCap {
    /// The device has no atomic operations.
    None,
    /// Atomic with respect to operations of the same device.
    Device,
    /// Atomic with respect to the whole system, including the CPU.
    System,
}

impl fmt::Display for AtomicCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            AtomicCap::None => "none",
            AtomicCap::Device => "within the device",
            AtomicCap::System => "within the system",
        })
    }
}

/// Path MTU (`ibv_mtu`): the largest payload of one packet. Written as its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u64", try_from = "u64")]
pub enum PathMtu {
    /// 256 B.
    B256,
    /// 512 B.
    B512,
    /// 1024 B.
    B1024,
    /// 2048 B.
    B2048,
    /// 4096 B.
    B4096,
}

impl PathMtu {
    /// All values, smallest first.
    pub const ALL: [PathMtu; 5] = [
        PathMtu::B256,
        PathMtu::B512,
        PathMtu::B1024,
        PathMtu::B2048,
        PathMtu::B4096,
    ];

    /// Returns the largest path MTU of at most `payload`; `None` if that is below 256 B.
    pub fn up_to(payload: Bytes) -> Option<Self> {
        let mut largest_first = PathMtu::ALL.into_iter().rev();
        largest_first.find(|mtu| mtu.bytes() <= payload)
    }

    /// Returns the payload.
    pub const fn bytes(self) -> Bytes {
        Bytes::new(match self {
            PathMtu::B256 => 256,
            PathMtu::B512 => 512,
            PathMtu::B1024 => 1024,
            PathMtu::B2048 => 2048,
            PathMtu::B4096 => 4096,
        })
    }
}

/// The text or number is not a path MTU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid path MTU '{0}': expected 256, 512, 1024, 2048 or 4096")]
pub struct ParsePathMtuError(String);

impl From<PathMtu> for u64 {
    fn from(mtu: PathMtu) -> u64 {
        mtu.bytes().get()
    }
}

impl TryFrom<u64> for PathMtu {
    type Error = ParsePathMtuError;

    fn try_from(bytes: u64) -> Result<Self, ParsePathMtuError> {
        let found = PathMtu::ALL.into_iter().find(|m| m.bytes().get() == bytes);
        found.ok_or_else(|| ParsePathMtuError(bytes.to_string()))
    }
}

impl FromStr for PathMtu {
    type Err = ParsePathMtuError;

    /// Reads bytes, as a number or with a binary multiple (`1K`).
    fn from_str(text: &str) -> Result<Self, ParsePathMtuError> {
        let bytes = text.parse::<Bytes>().ok();
        let mtu = bytes.and_then(|bytes| PathMtu::try_from(bytes.get()).ok());
        mtu.ok_or_else(|| ParsePathMtuError(text.to_owned()))
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

/// The link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkLayer {
    /// InfiniBand: addressed by LID.
    InfiniBand,
    /// Ethernet (RoCE): addressed by GID.
    Ethernet,
    /// TCP (iWARP): addressed by IP address, connected by the connection manager.
    Iwarp,
    /// Memory shared by processes of one host.
    SharedMemory,
    /// The kernel's TCP, without verbs.
    KernelTcp,
}

impl LinkLayer {
    /// Whether messages are split into packets of at most a path MTU.
    pub const fn has_path_mtu(self) -> bool {
        matches!(self, LinkLayer::InfiniBand | LinkLayer::Ethernet)
    }

    /// Whether there are other queue pairs than RC, atomic operations and address handles. The protocol of iWARP has none (RFC 5040).
    pub const fn has_all_transports(self) -> bool {
        !matches!(self, LinkLayer::Iwarp | LinkLayer::KernelTcp)
    }

    /// Whether queue pairs have an ACK timeout and retries.
    pub const fn has_ack_timeout(self) -> bool {
        !matches!(self, LinkLayer::Iwarp | LinkLayer::KernelTcp)
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
            LinkLayer::Iwarp => "iWARP",
            LinkLayer::SharedMemory => "shared memory",
            LinkLayer::KernelTcp => "kernel TCP",
        })
    }
}

/// The packet format that belongs to a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GidType {
    /// InfiniBand, with a global routing header if the peer is on another subnet.
    InfiniBand,
    /// RoCE v1: Ethernet frames, within one broadcast domain.
    RoceV1,
    /// RoCE v2: UDP over IPv4 or IPv6.
    RoceV2,
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GidType::InfiniBand => "InfiniBand",
            GidType::RoceV1 => "RoCE v1",
            GidType::RoceV2 => "RoCE v2",
        })
    }
}

/// Which priority fields of an address vector the packets of a port carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketMarking {
    /// Neither field.
    None,
    /// The traffic class only. In RoCE the service level is the priority in a VLAN tag, which the kernel
    /// takes from the `egress-qos-map` of the interface and a socket cannot set.
    TrafficClass,
    /// The traffic class and the service level.
    Full,
}

/// State of a port (`ibv_port_attr`) that programs need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCaps {
    /// The link layer.
    pub link_layer: LinkLayer,
    /// Largest path MTU in use.
    pub active_mtu: PathMtu,
    /// Maximum message size.
    pub max_msg_sz: Bytes,
    /// The LID; 0 if the link layer has none.
    pub lid: Lid,
    /// The GID by which peers reach the port.
    pub gid: Gid,
    /// Index in the GID table of the port.
    pub gid_index: u32,
    /// Packet format of the GID; `None` if the link layer has no packets.
    pub gid_type: Option<GidType>,
    /// Which priority fields its packets carry.
    pub marking: PacketMarking,
    /// Highest signalled rate, in Mb/s, that packets to a peer can be limited to; `None` if the link has no such
    /// rates. A model takes any rate.
    pub max_rate_mbps: Option<u32>,
}

/// Sizes of a queue pair (`ibv_qp_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCaps {
    /// Send requests outstanding.
    pub max_send_wr: u32,
    /// Receive requests outstanding.
    pub max_recv_wr: u32,
    /// SGEs of a send request.
    pub max_send_sge: u32,
    /// SGEs of a receive request.
    pub max_recv_sge: u32,
    /// Inline payload.
    pub max_inline_data: u32,
}

impl QpCaps {
    /// Returns the sizes for requests of one SGE each, without inline data.
    pub const fn new(max_send_wr: u32, max_recv_wr: u32) -> Self {
        QpCaps {
            max_send_wr,
            max_recv_wr,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        }
    }
}

impl Default for QpCaps {
    fn default() -> Self {
        QpCaps::new(128, 128)
    }
}

#[cfg(test)]
mod path_mtu_tests {
    use super::*;

    #[test]
    fn a_path_mtu_is_one_of_five() {
        for mtu in PathMtu::ALL {
            assert_eq!(mtu.bytes().get().to_string().parse(), Ok(mtu));
            assert_eq!(PathMtu::try_from(u64::from(mtu)), Ok(mtu));
        }
        assert_eq!("4K".parse(), Ok(PathMtu::B4096));
        for text in ["1500", "0", "", "-256", "jumbo"] {
            let refused = text.parse::<PathMtu>().unwrap_err();
            assert_eq!(refused, ParsePathMtuError(text.to_owned()));
        }
    }
}
