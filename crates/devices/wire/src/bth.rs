//! Base transport header (IBTA vol. 1, 9.2), 12 B. Its congestion bits mean nothing to
//! RoCEv2 (annex A17.4.8), which has a packet for that (A17.9.3).

use adverb_verbs::{Psn, Qpn};

use crate::view::{be16, be24, put, put24};
use crate::{DEFAULT_PKEY, Opcode, Service, WireError};

view!(
    /// The header's fields as they are.
    BthView, "BTH", 12);

impl BthView<'_> {
    /// Opcode, any number.
    #[inline]
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// Solicited event bit.
    #[inline]
    pub fn solicited(&self) -> bool {
        self.0[1] & 0x80 != 0
    }

    /// Migration state bit.
    #[inline]
    pub fn migrated(&self) -> bool {
        self.0[1] & 0x40 != 0
    }

    /// Bytes of padding after the payload.
    #[inline]
    pub fn pad(&self) -> u8 {
        self.0[1] >> 4 & 3
    }

    /// Version of the header.
    #[inline]
    pub fn version(&self) -> u8 {
        self.0[1] & 0xf
    }

    /// Partition key.
    #[inline]
    pub fn pkey(&self) -> u16 {
        be16(self.0, 2)
    }

    /// Forward explicit congestion notification.
    #[inline]
    pub fn fecn(&self) -> bool {
        self.0[4] & 0x80 != 0
    }

    /// Backward explicit congestion notification.
    #[inline]
    pub fn becn(&self) -> bool {
        self.0[4] & 0x40 != 0
    }

    /// Destination queue pair.
    #[inline]
    pub fn dest_qp(&self) -> u32 {
        be24(self.0, 5)
    }

    /// Acknowledge request bit.
    #[inline]
    pub fn ack_req(&self) -> bool {
        self.0[8] & 0x80 != 0
    }

    /// Packet sequence number.
    #[inline]
    pub fn psn(&self) -> u32 {
        be24(self.0, 9)
    }
}

bitflags::bitflags! {
    /// One-bit fields of the header.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BthFlags: u8 {
        /// The responder raises a solicited event for this message.
        const SOLICITED = 1;
        /// The path has migrated: set where there is one path.
        const MIGRATED = 1 << 1;
        /// The network was congested on the way.
        const FECN = 1 << 2;
        /// Said of the way back.
        const BECN = 1 << 3;
        /// The responder is to acknowledge.
        const ACK_REQ = 1 << 4;
    }
}

/// The header as values. Reserved bits are sent as zero and ignored on receipt, as 9.2 has it.
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
    /// A header in the default partition, with one path, for a packet without payload.
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

    /// The same header for a payload of `bytes`.
    #[inline]
    #[must_use]
    pub const fn padded_for(self, bytes: usize) -> Self {
        Bth {
            pad: pad_for(bytes),
            ..self
        }
    }

    /// The same header with these flags too.
    #[inline]
    #[must_use]
    pub const fn with(self, flags: BthFlags) -> Self {
        Bth {
            flags: self.flags.union(flags),
            ..self
        }
    }

    /// The values of a header.
    ///
    /// # Errors
    /// An opcode or a version that this crate does not know.
    #[inline]
    pub fn parse(view: &BthView<'_>) -> Result<Self, WireError> {
        if view.version() != 0 {
            return Err(WireError::TransportVersion(view.version()));
        }
        let opcode = Opcode::from_code(view.opcode())
            .ok_or_else(|| WireError::Opcode(UnknownOpcode::of(view)))?;
        let mut flags = BthFlags::empty();
        flags.set(BthFlags::SOLICITED, view.solicited());
        flags.set(BthFlags::MIGRATED, view.migrated());
        flags.set(BthFlags::FECN, view.fecn());
        flags.set(BthFlags::BECN, view.becn());
        flags.set(BthFlags::ACK_REQ, view.ack_req());
        Ok(Bth {
            opcode,
            flags,
            pad: view.pad(),
            pkey: view.pkey(),
            dest_qp: dest_qp(view),
            psn: Psn::new(view.psn()),
        })
    }

    /// The header's bytes.
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

fn dest_qp(view: &BthView<'_>) -> Qpn {
    Qpn::new(view.dest_qp()).expect("24 bits make a QPN")
}

/// Of a packet whose opcode is none of [`Opcode::ALL`], what takes it to its queue pair: a responder of
/// RC refuses it in its turn.
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
    fn of(view: &BthView<'_>) -> Self {
        UnknownOpcode {
            code: view.opcode(),
            pkey: view.pkey(),
            dest_qp: dest_qp(view),
            psn: Psn::new(view.psn()),
        }
    }

    /// The service that its upper three bits name; none for one that is not spoken here.
    pub const fn service(&self) -> Option<Service> {
        match self.code >> 5 {
            0 => Some(Service::Rc),
            1 => Some(Service::Uc),
            3 => Some(Service::Ud),
            4 => Some(Service::Cnp),
            _ => None,
        }
    }
}

/// Bytes that make a payload of `bytes` a multiple of 4.
#[inline]
pub const fn pad_for(bytes: usize) -> u8 {
    (bytes.wrapping_neg() & 3) as u8
}
