//! Why bytes are not a valid packet.

use crate::bth::UnknownOpcode;

/// The check that bytes failed, with the value that failed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end within a header.
    #[error("{header} has {need} B, but only {have} B are left")]
    Truncated {
        /// The header's name.
        header: &'static str,
        /// The header's length.
        need: usize,
        /// The number of bytes that are left.
        have: usize,
    },
    /// A buffer to write to is too short.
    #[error("the packet has {need} B, the buffer only {have} B")]
    NoSpace {
        /// The packet's length.
        need: usize,
        /// The buffer's length.
        have: usize,
    },
    /// An opcode that belongs to none of RC, XRC, UC, UD and CNP.
    #[error("unknown opcode {:#04x}: expected one of RC, XRC, UC, UD or CNP", .0.code)]
    Opcode(UnknownOpcode),
    /// A version of the base transport header other than 0.
    #[error("invalid BTH version {0}: expected 0")]
    TransportVersion(u8),
    /// A pad count that does not fit the payload.
    #[error("pad count {pad} does not fit {padded} B of payload and padding")]
    Pad {
        /// The pad count.
        pad: u8,
        /// Bytes of payload and padding.
        padded: usize,
    },
    /// A payload with an opcode that has none.
    #[error("{bytes} B of payload with opcode {opcode:#04x}, which has none")]
    UnexpectedPayload {
        /// The opcode.
        opcode: u8,
        /// Bytes of payload.
        bytes: usize,
    },
    /// The headers do not match the opcode.
    #[error("extended headers {found:#x} with opcode {opcode:#04x}, which requires {wanted:#x}")]
    ExtensionOfOther {
        /// The opcode.
        opcode: u8,
        /// The set of headers given, as bits of `Headers`.
        found: u8,
        /// The set of headers that the opcode requires.
        wanted: u8,
    },
    /// A reserved syndrome.
    #[error("reserved AETH syndrome {0:#04x}")]
    Syndrome(u8),
    /// An EtherType other than IPv4 and IPv6.
    #[error("EtherType {0:#06x} is neither IPv4 nor IPv6")]
    EtherType(u16),
    /// An IP version other than 4 and 6.
    #[error("invalid IP version {0}: expected 4 or 6")]
    IpVersion(u8),
    /// An IPv4 header with options, which RoCEv2 does not have.
    #[error("IPv4 header of {0} words: expected 5, without options")]
    Ipv4HeaderLength(u8),
    /// A length field that does not fit the bytes.
    #[error("{header} length field is {says} B, but {have} B are present")]
    Length {
        /// The header with the field.
        header: &'static str,
        /// The field's value.
        says: usize,
        /// The number of bytes that are present.
        have: usize,
    },
    /// A fragment of a datagram.
    #[error("IPv4 fragment (flags and offset {0:#06x})")]
    Fragment(u16),
    /// A wrong checksum of the IPv4 header.
    #[error("IPv4 header checksum is off by {0:#06x}")]
    Ipv4Checksum(u16),
    /// A protocol other than UDP after an IP header.
    #[error("{header}: protocol {found}: expected {wanted}")]
    Protocol {
        /// The header with the field.
        header: &'static str,
        /// The field's value.
        found: u8,
        /// The expected value.
        wanted: u8,
    },
    /// A UDP port other than RoCEv2's.
    #[error("UDP port {0}: expected 4791")]
    UdpPort(u16),
    /// A wrong invariant CRC.
    #[error("wrong ICRC {found:#010x}: expected {computed:#010x}")]
    Icrc {
        /// The packet's ICRC.
        found: u32,
        /// The ICRC of its bytes.
        computed: u32,
    },
    /// A management datagram of another length than 256 B.
    #[error("management datagram of {have} B: expected 256 B")]
    MadLength {
        /// Its length.
        have: usize,
    },
    /// A base version of a management datagram other than 1.
    #[error("invalid MAD base version {0}: expected 1")]
    MadVersion(u8),
    /// A management datagram that is not the communication manager's.
    #[error(
        "management class {class:#04x}, version {version}, method {method:#04x}: expected class 0x07, version 2, method 0x03"
    )]
    MadClass {
        /// Management class.
        class: u8,
        /// Class version.
        version: u8,
        /// Method.
        method: u8,
    },
    /// An unknown or unsupported message of the communication manager.
    #[error("CM attribute {0:#06x} is not supported")]
    CmAttribute(u16),
    /// A reserved path MTU in a REQ.
    #[error("invalid path MTU code {0} in a REQ: expected 1 to 5")]
    CmPathMtu(u8),
    /// A reserved kind of message in a MRA or REJ.
    #[error("reserved message type {0} in a MRA or REJ")]
    CmMsgType(u8),
    /// An unknown version of the header in the private data.
    #[error("invalid IP CM version {0:#04x}: expected 0")]
    IpCmVersion(u8),
}
