//! Base transport header (IBTA vol. 1, 9.2), 12 B. RoCEv2 does not use its congestion bits (annex A17.4.8), but
//! congestion notification packets (A17.9.3).

use adverb_verbs::{Psn, Qpn};

use crate::fields::{be16, be24, put, put24, qpn, split};
use crate::{DEFAULT_PKEY, Opcode, Service, WireError};

/// Length of the header in bytes.
pub const LEN: usize = 12;

bitflags::bitflags! {
    /// One-bit fields of the header.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BthFlags: u8 {
        /// The responder raises a solicited event for this message.
        const SOLICITED = 1;
        /// The path has migrated; always set if there is only one path.
        const MIGRATED = 1 << 1;
        /// Forward explicit congestion notification: the network was congested on the way here.
        const FECN = 1 << 2;
        /// Backward explicit congestion notification: the network was congested on the way back.
        const BECN = 1 << 3;
        /// The responder acknowledges this packet.
        const ACK_REQ = 1 << 4;
    }
}

/// The header. Reserved bits are sent as zero and ignored on receipt (9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// The opcode.
    pub opcode: Opcode,
    /// One-bit fields.
    pub flags: BthFlags,
    /// Bytes of padding after the payload, 0 to 3.
    pub pad: u8,
    /// Partition key.
    pub pkey: u16,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Makes a header in the default partition, with one path, for a packet without payload.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Bth {
            opcode,
            flags: BthFlags::MIGRATED,
            pad: 0,
            pkey: DEFAULT_PKEY,
            dest_qp,
            psn,
        }
    }

    /// Returns the header with the pad count for a payload of `bytes`.
    #[inline]
    #[must_use]
    pub const fn padded_for(self, bytes: usize) -> Self {
        Bth {
            pad: pad_for(bytes),
            ..self
        }
    }

    /// Returns the header with additional flags.
    #[inline]
    #[must_use]
    pub const fn with(self, flags: BthFlags) -> Self {
        Bth {
            flags: self.flags.union(flags),
            ..self
        }
    }

    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes, or an unknown opcode or version.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split::<LEN>("BTH", bytes)?;
        let version = header[1] & 0xf;
        if version != 0 {
            return Err(WireError::TransportVersion(version));
        }
        let opcode = Opcode::from_code(header[0])
            .ok_or_else(|| WireError::Opcode(UnknownOpcode::of(header)))?;
        let mut flags = BthFlags::empty();
        flags.set(BthFlags::SOLICITED, header[1] & 0x80 != 0);
        flags.set(BthFlags::MIGRATED, header[1] & 0x40 != 0);
        flags.set(BthFlags::FECN, header[4] & 0x80 != 0);
        flags.set(BthFlags::BECN, header[4] & 0x40 != 0);
        flags.set(BthFlags::ACK_REQ, header[8] & 0x80 != 0);
        let bth = Bth {
            opcode,
            flags,
            pad: header[1] >> 4 & 3,
            pkey: be16(header, 2),
            dest_qp: qpn(header, 5),
            psn: Psn::new(be24(header, 9)),
        };
        Ok((bth, rest))
    }

    /// Returns the header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let bit = |flag, bit: u8| if self.flags.contains(flag) { bit } else { 0 };
        let mut out = [0; LEN];
        out[0] = self.opcode.code();
        out[1] =
            bit(BthFlags::SOLICITED, 0x80) | bit(BthFlags::MIGRATED, 0x40) | (self.pad & 3) << 4;
        put(&mut out, 2, self.pkey.to_be_bytes());
        out[4] = bit(BthFlags::FECN, 0x80) | bit(BthFlags::BECN, 0x40);
        put24(&mut out, 5, self.dest_qp.get());
        out[8] = bit(BthFlags::ACK_REQ, 0x80);
        put24(&mut out, 9, self.psn.get());
        out
    }
}

/// The header of a packet with an unknown opcode, which an RC responder answers with a NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOpcode {
    /// The opcode.
    pub code: u8,
    /// Partition key.
    pub pkey: u16,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// Packet sequence number.
    pub psn: Psn,
}

impl UnknownOpcode {
    #[cold]
    fn of(header: &[u8; LEN]) -> Self {
        UnknownOpcode {
            code: header[0],
            pkey: be16(header, 2),
            dest_qp: qpn(header, 5),
            psn: Psn::new(be24(header, 9)),
        }
    }

    /// Returns the transport service that its upper three bits name. `None` if this crate does not know it.
    pub const fn service(&self) -> Option<Service> {
        match self.code >> 5 {
            0 => Some(Service::Rc),
            1 => Some(Service::Uc),
            3 => Some(Service::Ud),
            4 => Some(Service::Cnp),
            5 => Some(Service::Xrc),
            _ => None,
        }
    }
}

/// Returns the number of bytes that pad a payload of `bytes` to a multiple of 4.
#[inline]
pub const fn pad_for(bytes: usize) -> u8 {
    (bytes.wrapping_neg() & 3) as u8
}
