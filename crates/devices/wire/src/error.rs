//! Why bytes are no packet.

use crate::bth::UnknownOpcode;

/// The check that bytes failed, with the value that failed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end within a header.
    #[error("{header} has {need} B, but only {have} B are left")]
    Truncated {
        /// Its name.
        header: &'static str,
        /// Its length.
        need: usize,
        /// The actual value.
        have: usize,
    },
    /// A buffer to write to is too short.
    #[error("the packet has {need} B, the buffer only {have} B")]
    NoSpace {
        /// The packet's length.
        need: usize,
        /// The buffer's.
        have: usize,
    },
    /// An opcode that is none of RC, UC, UD and CNP.
    #[error("opcode {:#04x} is none of RC, UC, UD and CNP", .0.code)]
    Opcode(UnknownOpcode),
    /// A version of the base transport header other than 0.
    #[error("version {0} of the base transport header, not 0")]
    TransportVersion(u8),
    /// A pad count that does not fit the payload.
    #[error("pad count {pad} with {padded} B of payload and padding")]
    Pad {
        /// The pad count.
        pad: u8,
        /// Bytes of payload and padding.
        padded: usize,
    },
    /// A payload where the opcode has none.
    #[error("{bytes} B of payload with opcode {opcode:#04x}, which has none")]
    UnexpectedPayload {
        /// The opcode.
        opcode: u8,
        /// Bytes of payload.
        bytes: usize,
    },
    /// The headers do not match the opcode.
    #[error("extended headers {found:#x} with opcode {opcode:#04x}, which has {wanted:#x}")]
    ExtensionOfOther {
        /// The opcode.
        opcode: u8,
        /// The set of headers given, as bits of `Headers`.
        found: u8,
        /// The opcode's.
        wanted: u8,
    },
    /// A syndrome of a reserved kind.
    #[error("reserved AETH syndrome {0:#04x}")]
    Syndrome(u8),
    /// An EtherType other than IPv4 and IPv6.
    #[error("EtherType {0:#06x} is neither IPv4 nor IPv6")]
    EtherType(u16),
    /// An IP version other than 4 and 6.
    #[error("IP version {0}")]
    IpVersion(u8),
    /// An IPv4 header with options, which RoCEv2 does not have.
    #[error("IPv4 header of {0} words, not 5")]
    Ipv4HeaderLength(u8),
    /// A length field that does not fit the bytes.
    #[error("{header} says {says} B, there are {have} B")]
    Length {
        /// Whose.
        header: &'static str,
        /// The field.
        says: usize,
        /// The bytes.
        have: usize,
    },
    /// A part of a fragmented datagram.
    #[error("IPv4 fragment (flags and offset {0:#06x})")]
    Fragment(u16),
    /// A wrong checksum of the IPv4 header.
    #[error("IPv4 header checksum is off by {0:#06x}")]
    Ipv4Checksum(u16),
    /// Neither UDP nor, in a GRH, the base transport header.
    #[error("{header}: protocol {found}, not {wanted}")]
    Protocol {
        /// Whose field.
        header: &'static str,
        /// The field.
        found: u8,
        /// The expected value.
        wanted: u8,
    },
    /// A UDP port other than RoCEv2's.
    #[error("UDP port {0}, not 4791")]
    UdpPort(u16),
    /// A wrong invariant CRC.
    #[error("ICRC {found:#010x}, computed {computed:#010x}")]
    Icrc {
        /// The packet's.
        found: u32,
        /// That of its bytes.
        computed: u32,
    },
}
