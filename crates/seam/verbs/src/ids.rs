//! Identifiers: queue pair numbers, packet sequence numbers, keys, addresses.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

id!(
    /// Local key of a memory region (`lkey`).
    Lkey(u32), "{:#010x}");
id!(
    /// Remote key of a memory region (`rkey`).
    Rkey(u32), "{:#010x}");
id!(
    /// The program's name of a work request (`wr_id`).
    WrId(u64), "{}");
id!(
    /// Immediate data, in host order.
    Imm(u32), "{:#010x}");
id!(
    /// InfiniBand local identifier.
    Lid(u16), "{:#06x}");
id!(
    /// Port of a device, from 1.
    PortNum(u8), "{}");
id!(
    /// Identifies a completion queue of a context in completion events.
    CqId(u32), "{}");
id!(
    /// Identifies a shared receive queue of a context in asynchronous events.
    SrqId(u32), "{}");
id!(
    /// Number of an XRC shared receive queue, by which peers name it: 24 bits (`ibv_get_srq_num`).
    Srqn(u32), "{:#08x}");

impl PortNum {
    /// The first port.
    pub const ONE: PortNum = PortNum(1);
}

/// Queue pair number, 24 bits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Qpn(u32);

impl Qpn {
    /// The destination number in packets to a multicast group (IBTA vol. 1, 10.5.1).
    pub const MULTICAST: Qpn = Qpn(0xff_ffff);

    /// The number of bits of a queue pair number.
    pub const BITS: u32 = 24;

    /// Returns the queue pair number `n`; `None` if it needs more than 24 bits.
    pub const fn new(n: u32) -> Option<Self> {
        if n >> Self::BITS == 0 {
            Some(Qpn(n))
        } else {
            None
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// Packet sequence number: 24 bits, compared modulo 2^24 (IBTA vol. 1, 9.7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = (1 << 24) - 1;

    /// Returns `n` modulo 2^24.
    pub const fn new(n: u32) -> Self {
        Psn(n & Self::MASK)
    }

    /// Returns the number, below 2^24.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns this number plus `n`, modulo 2^24.
    #[must_use]
    pub const fn advance(self, n: u32) -> Self {
        Psn(self.0.wrapping_add(n) & Self::MASK)
    }

    /// Returns `self - other`, modulo 2^24.
    pub const fn distance_from(self, other: Psn) -> u32 {
        self.0.wrapping_sub(other.0) & Self::MASK
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// Global identifier: 128 bits, an IPv6 address or a mapped IPv4 address on RoCEv2.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Returns the RoCEv2 GID of an IPv4 address, `::ffff:a.b.c.d` (IBTA annex A17).
    pub const fn from_ipv4(address: Ipv4Addr) -> Self {
        Gid(address.to_ipv6_mapped().octets())
    }

    /// Whether this is a multicast GID: of IPv6, or (RoCEv2) a mapped IPv4 multicast address.
    pub fn is_multicast(self) -> bool {
        Ipv6Addr::from(self.0).to_canonical().is_multicast()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap_at_24_bits() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.advance(1), Psn::new(0));
        assert_eq!(Psn::new(3).distance_from(last), 4);
    }

    #[test]
    fn a_queue_pair_number_has_24_bits() {
        assert!(Qpn::new(0x100_0000).is_none());
        assert_eq!(Qpn::new(0xff_ffff).map(Qpn::get), Some(0xff_ffff));
    }

    #[test]
    fn groups_are_told_from_ports() {
        let is_group = |text: &str| Gid(text.parse::<Ipv6Addr>().unwrap().octets()).is_multicast();
        assert!(
            ["ff0e::1", "ff02::1", "::ffff:224.0.0.1", "::ffff:239.1.2.3"].map(is_group)
                == [true; 4]
        );
        assert!(["fe80::1", "::1", "::ffff:10.0.0.1", "::239.1.2.3"].map(is_group) == [false; 4]);
    }

    #[test]
    fn an_ipv4_gid_prints_as_a_mapped_address() {
        assert_eq!(
            Gid::from_ipv4(Ipv4Addr::LOCALHOST).to_string(),
            "::ffff:127.0.0.1"
        );
    }
}
