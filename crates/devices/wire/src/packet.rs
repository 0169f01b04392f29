//! A packet from the base transport header to the padding.

use crate::bth::pad_for;
use crate::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Headers, Ieth, ImmDt, Opcode, Reth, WireError, XrcEth,
};

/// Length of the longest packet without its ICRC: BTH, XRCETH, RETH, immediate data and a path MTU of 4096 B.
pub const MAX_PACKET: usize =
    crate::bth::LEN + crate::xrc_eth::LEN + crate::reth::LEN + crate::imm_dt::LEN + 4096;

/// The extended headers of a packet except XRCETH: one of the combinations of table 38.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// No extended header.
    None,
    /// Immediate data.
    Imm(ImmDt),
    /// A key to invalidate.
    Invalidate(Ieth),
    /// Remote address of a WRITE or READ.
    Rdma(Reth),
    /// Remote address of a WRITE, and immediate data.
    RdmaImm(Reth, ImmDt),
    /// An atomic operation.
    Atomic(AtomicEth),
    /// An acknowledgement.
    Ack(Aeth),
    /// An acknowledgement with the result of an atomic operation.
    AtomicAck(Aeth, AtomicAckEth),
    /// Q_Key and sender of a datagram.
    Datagram(Deth),
    /// Q_Key and sender of a datagram, and immediate data.
    DatagramImm(Deth, ImmDt),
}

impl Extension {
    /// Returns the set of headers.
    pub const fn headers(&self) -> Headers {
        match self {
            Extension::None => Headers::empty(),
            Extension::Imm(_) => Headers::IMM_DT,
            Extension::Invalidate(_) => Headers::IETH,
            Extension::Rdma(_) => Headers::RETH,
            Extension::RdmaImm(..) => Headers::RETH.union(Headers::IMM_DT),
            Extension::Atomic(_) => Headers::ATOMIC_ETH,
            Extension::Ack(_) => Headers::AETH,
            Extension::AtomicAck(..) => Headers::AETH.union(Headers::ATOMIC_ACK_ETH),
            Extension::Datagram(_) => Headers::DETH,
            Extension::DatagramImm(..) => Headers::DETH.union(Headers::IMM_DT),
        }
    }

    /// Returns the length of the headers in bytes.
    #[inline]
    pub const fn length(&self) -> usize {
        match self {
            Extension::None => 0,
            Extension::Imm(_) => crate::imm_dt::LEN,
            Extension::Invalidate(_) => crate::ieth::LEN,
            Extension::Rdma(_) => crate::reth::LEN,
            Extension::RdmaImm(..) => crate::reth::LEN + crate::imm_dt::LEN,
            Extension::Atomic(_) => crate::atomic_eth::LEN,
            Extension::Ack(_) => crate::aeth::LEN,
            Extension::AtomicAck(..) => crate::aeth::LEN + crate::atomic_ack_eth::LEN,
            Extension::Datagram(_) => crate::deth::LEN,
            Extension::DatagramImm(..) => crate::deth::LEN + crate::imm_dt::LEN,
        }
    }

    /// Parses the extended headers of an opcode at the beginning of `bytes`; returns them and what follows.
    #[inline]
    fn parse(opcode: Opcode, bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let headers = opcode.headers() - Headers::XRC_ETH;
        let with_imm = headers.contains(Headers::IMM_DT);
        if headers.is_empty() {
            Ok((Extension::None, bytes))
        } else if headers.contains(Headers::RETH) {
            let (reth, rest) = Reth::parse(bytes)?;
            if !with_imm {
                return Ok((Extension::Rdma(reth), rest));
            }
            let (imm, rest) = ImmDt::parse(rest)?;
            Ok((Extension::RdmaImm(reth, imm), rest))
        } else if headers.contains(Headers::AETH) {
            let (aeth, rest) = Aeth::parse(bytes)?;
            if !headers.contains(Headers::ATOMIC_ACK_ETH) {
                return Ok((Extension::Ack(aeth), rest));
            }
            let (result, rest) = AtomicAckEth::parse(rest)?;
            Ok((Extension::AtomicAck(aeth, result), rest))
        } else if headers.contains(Headers::DETH) {
            let (deth, rest) = Deth::parse(bytes)?;
            if !with_imm {
                return Ok((Extension::Datagram(deth), rest));
            }
            let (imm, rest) = ImmDt::parse(rest)?;
            Ok((Extension::DatagramImm(deth, imm), rest))
        } else if headers.contains(Headers::ATOMIC_ETH) {
            let (atomic, rest) = AtomicEth::parse(bytes)?;
            Ok((Extension::Atomic(atomic), rest))
        } else if headers.contains(Headers::IETH) {
            let (ieth, rest) = Ieth::parse(bytes)?;
            Ok((Extension::Invalidate(ieth), rest))
        } else {
            let (imm, rest) = ImmDt::parse(bytes)?;
            Ok((Extension::Imm(imm), rest))
        }
    }

    /// Writes the headers to `out`, which has room for them.
    #[inline]
    fn write(&self, out: &mut [u8]) {
        match self {
            Extension::None => {}
            Extension::Imm(imm) => out.copy_from_slice(&imm.to_bytes()),
            Extension::Invalidate(ieth) => out.copy_from_slice(&ieth.to_bytes()),
            Extension::Rdma(reth) => out.copy_from_slice(&reth.to_bytes()),
            Extension::RdmaImm(reth, imm) => write_two(out, &reth.to_bytes(), &imm.to_bytes()),
            Extension::Atomic(atomic) => out.copy_from_slice(&atomic.to_bytes()),
            Extension::Ack(aeth) => out.copy_from_slice(&aeth.to_bytes()),
            Extension::AtomicAck(aeth, result) => {
                write_two(out, &aeth.to_bytes(), &result.to_bytes());
            }
            Extension::Datagram(deth) => out.copy_from_slice(&deth.to_bytes()),
            Extension::DatagramImm(deth, imm) => write_two(out, &deth.to_bytes(), &imm.to_bytes()),
        }
    }
}

#[inline]
fn write_two(out: &mut [u8], one: &[u8], two: &[u8]) {
    let (front, back) = out.split_at_mut(one.len());
    front.copy_from_slice(one);
    back.copy_from_slice(two);
}

/// The headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeaders {
    /// Base transport header.
    pub bth: Bth,
    /// XRC extended transport header.
    pub xrc: Option<XrcEth>,
    /// The other extended headers.
    pub extension: Extension,
}

impl PacketHeaders {
    /// Makes headers without XRCETH.
    #[inline]
    pub const fn new(bth: Bth, extension: Extension) -> Self {
        PacketHeaders {
            bth,
            xrc: None,
            extension,
        }
    }

    /// Returns the length of all headers in bytes.
    #[inline]
    pub const fn length(&self) -> usize {
        crate::bth::LEN + self.xrc_length() + self.extension.length()
    }

    #[inline]
    const fn xrc_length(&self) -> usize {
        if self.xrc.is_some() {
            crate::xrc_eth::LEN
        } else {
            0
        }
    }

    /// Returns the set of extended headers.
    #[inline]
    const fn extended(&self) -> Headers {
        match self.xrc {
            Some(_) => self.extension.headers().union(Headers::XRC_ETH),
            None => self.extension.headers(),
        }
    }

    /// Writes headers and padding of a packet with `payload` bytes of payload to `out`, and sets the pad count. Returns
    /// the length of the packet and the place of its payload, which the caller fills.
    ///
    /// # Errors
    /// The headers do not match the opcode; the buffer is too short.
    #[inline]
    pub fn lay_out<'b>(
        &self,
        payload: usize,
        out: &'b mut [u8],
    ) -> Result<(usize, &'b mut [u8]), WireError> {
        let opcode = self.bth.opcode;
        if self.extended() != opcode.headers() {
            return Err(WireError::ExtensionOfOther {
                opcode: opcode.code(),
                found: self.extended().bits(),
                wanted: opcode.headers().bits(),
            });
        }
        if payload != 0 && !opcode.may_have_payload() {
            return Err(WireError::UnexpectedPayload {
                opcode: opcode.code(),
                bytes: payload,
            });
        }
        let pad = usize::from(pad_for(payload));
        let have = out.len();
        let need = self.length() + payload + pad;
        let Some(out) = out.get_mut(..need) else {
            return Err(WireError::NoSpace { need, have });
        };
        let (bth, rest) = out.split_at_mut(crate::bth::LEN);
        bth.copy_from_slice(&self.bth.padded_for(payload).to_bytes());
        let (xrc, rest) = rest.split_at_mut(self.xrc_length());
        if let Some(header) = &self.xrc {
            xrc.copy_from_slice(&header.to_bytes());
        }
        let (extension, rest) = rest.split_at_mut(self.extension.length());
        self.extension.write(extension);
        let (place, padding) = rest.split_at_mut(payload);
        padding.fill(0);
        Ok((need, place))
    }
}

/// A packet: headers and payload. Its ICRC is computed and checked by [`crate::icrc`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its headers.
    pub headers: PacketHeaders,
    /// Its payload, without padding.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a packet from the base transport header to the padding.
    ///
    /// # Errors
    /// The headers are invalid.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (bth, rest) = Bth::parse(bytes)?;
        let (xrc, rest) = match bth.opcode.headers().contains(Headers::XRC_ETH) {
            false => (None, rest),
            true => XrcEth::parse(rest).map(|(header, rest)| (Some(header), rest))?,
        };
        let (extension, rest) = Extension::parse(bth.opcode, rest)?;
        let padded = rest.len();
        let payload = padded.checked_sub(usize::from(bth.pad));
        let wrong = WireError::Pad {
            pad: bth.pad,
            padded,
        };
        let payload = payload.filter(|_| padded % 4 == 0).ok_or(wrong)?;
        if payload != 0 && !bth.opcode.may_have_payload() {
            return Err(WireError::UnexpectedPayload {
                opcode: bth.opcode.code(),
                bytes: payload,
            });
        }
        Ok(Packet {
            headers: PacketHeaders {
                bth,
                xrc,
                extension,
            },
            payload: &rest[..payload],
        })
    }

    /// Writes the packet to the beginning of `out`, with the pad count that its payload needs; returns its length.
    ///
    /// # Errors
    /// As [`PacketHeaders::lay_out`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let (length, place) = self.headers.lay_out(self.payload.len(), out)?;
        place.copy_from_slice(self.payload);
        Ok(length)
    }

    /// Returns its opcode.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        self.headers.bth.opcode
    }
}
