//! ACK extended transport header (IBTA vol. 1, 9.3.5; table 44 syndromes, 45 timers, 46 credits,
//! 47 NAK codes), 4 B.

use adverb_verbs::RnrTimer;

use crate::WireError;
use crate::view::{be24, put24};

view!(
    /// The header's fields as they are.
    AethView, "AETH", 4);

impl AethView<'_> {
    /// Syndrome.
    #[inline]
    pub fn syndrome(&self) -> u8 {
        self.0[0]
    }

    /// Message sequence number: requests completed so far, modulo 2^24.
    #[inline]
    pub fn msn(&self) -> u32 {
        be24(self.0, 1)
    }
}

/// End-to-end credits, as the code on the wire (table 46): the number of receive requests that the
/// responder reports as posted. Adverb sends [`Credits::NONE`] and ignores a peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credits(u8);

impl Credits {
    /// "Invalid": the responder gives no credits, the requester needs none.
    pub const NONE: Credits = Credits(31);

    /// Code `n`, 0 to 31.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 32 { Some(Credits(n)) } else { None }
    }

    /// The code.
    pub const fn code(self) -> u8 {
        self.0
    }
}

/// Why the responder refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// A packet is missing.
    PsnSequenceError,
    /// An opcode, order or length that may not be.
    InvalidRequest,
    /// Key, range or right.
    RemoteAccessError,
    /// The responder could not do it.
    RemoteOperationalError,
    /// An RD request; not used here.
    InvalidRdRequest,
    /// A reserved code, 5 to 31.
    Reserved(u8),
}

impl NakCode {
    /// The refusal numbered so.
    pub const fn from_code(code: u8) -> Self {
        match code & 0x1f {
            0 => NakCode::PsnSequenceError,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccessError,
            3 => NakCode::RemoteOperationalError,
            4 => NakCode::InvalidRdRequest,
            other => NakCode::Reserved(other),
        }
    }

    /// Its number, 0 to 31.
    pub const fn code(self) -> u8 {
        match self {
            NakCode::PsnSequenceError => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccessError => 2,
            NakCode::RemoteOperationalError => 3,
            NakCode::InvalidRdRequest => 4,
            NakCode::Reserved(code) => code & 0x1f,
        }
    }
}

/// The responder's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// It was carried out.
    Ack(Credits),
    /// No receive request was posted: try again after this time.
    RnrNak(RnrTimer),
    /// It was not.
    Nak(NakCode),
}

impl Syndrome {
    const VALUE: u8 = 0x1f;
    const RNR: u8 = 0x20;
    const NAK: u8 = 0x60;

    /// Decodes a syndrome byte.
    ///
    /// # Errors
    /// Of a reserved kind (bit 7 set, or bits 6 and 5 being 10).
    #[inline]
    pub fn from_byte(byte: u8) -> Result<Self, WireError> {
        let value = byte & Self::VALUE;
        let said = match byte & !Self::VALUE {
            0 => Credits::new(value).map(Syndrome::Ack),
            Self::RNR => RnrTimer::new(value).map(Syndrome::RnrNak),
            Self::NAK => Some(Syndrome::Nak(NakCode::from_code(value))),
            _ => None,
        };
        said.ok_or(WireError::Syndrome(byte))
    }

    /// Its byte.
    #[inline]
    pub const fn to_byte(self) -> u8 {
        match self {
            Syndrome::Ack(credits) => credits.code(),
            Syndrome::RnrNak(timer) => Self::RNR | timer.code(),
            Syndrome::Nak(code) => Self::NAK | code.code(),
        }
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// The responder's answer.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

impl Aeth {
    /// The values of a header.
    ///
    /// # Errors
    /// A reserved syndrome.
    #[inline]
    pub fn parse(view: &AethView<'_>) -> Result<Self, WireError> {
        Ok(Aeth {
            syndrome: Syndrome::from_byte(view.syndrome())?,
            msn: view.msn(),
        })
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        put24(&mut out, 1, self.msn);
        out[0] = self.syndrome.to_byte();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_a_syndrome_that_comes_back_or_a_reserved_one() {
        for byte in 0..=255 {
            match Syndrome::from_byte(byte) {
                Ok(syndrome) => assert_eq!(syndrome.to_byte(), byte),
                Err(error) => {
                    assert!(byte & 0x80 != 0 || byte & 0x60 == 0x40, "{byte:#x}");
                    assert_eq!(error, WireError::Syndrome(byte));
                }
            }
        }
    }
}
