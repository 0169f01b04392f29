//! ACK extended transport header (IBTA vol. 1, 9.3.5; tables 44 syndromes, 45 timers, 46 credits, 47 NAK codes),
//! 4 B.

use adverb_verbs::RnrTimer;

use crate::WireError;
use crate::fields::{be24, put24, split};

/// Length of the header in bytes.
pub const LEN: usize = 4;

/// End-to-end credits, as their code on the wire (table 46): the number of receive requests that the responder reports
/// as posted. Adverb sends [`Credits::NONE`] and ignores a peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credits(u8);

impl Credits {
    /// "Invalid": the responder does not report credits.
    pub const NONE: Credits = Credits(31);

    /// Returns the credits with code `n`. `None` if it exceeds 31.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 32 { Some(Credits(n)) } else { None }
    }

    /// Returns the code.
    pub const fn code(self) -> u8 {
        self.0
    }
}

/// Why a responder sends a NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// A packet is missing.
    PsnSequenceError,
    /// An invalid opcode, order or length.
    InvalidRequest,
    /// The key, the range or the access is not allowed.
    RemoteAccessError,
    /// The responder could not carry out the request.
    RemoteOperationalError,
    /// An invalid RD request; not used here.
    InvalidRdRequest,
    /// A reserved code, 5 to 31.
    Reserved(u8),
}

impl NakCode {
    /// Returns the NAK with this code, modulo 32.
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

    /// Returns the code, 0 to 31.
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

/// The responder's response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// The request was carried out.
    Ack(Credits),
    /// No receive request is posted; the requester waits for this time.
    RnrNak(RnrTimer),
    /// The request was refused.
    Nak(NakCode),
}

impl Syndrome {
    const VALUE: u8 = 0x1f;
    const RNR: u8 = 0x20;
    const NAK: u8 = 0x60;

    /// Decodes a syndrome byte.
    ///
    /// # Errors
    /// The syndrome is reserved (bit 7 is set, or bits 6 and 5 are 10).
    #[inline]
    pub fn from_byte(byte: u8) -> Result<Self, WireError> {
        let value = byte & Self::VALUE;
        let syndrome = match byte & !Self::VALUE {
            0 => Credits::new(value).map(Syndrome::Ack),
            Self::RNR => RnrTimer::new(value).map(Syndrome::RnrNak),
            Self::NAK => Some(Syndrome::Nak(NakCode::from_code(value))),
            _ => None,
        };
        syndrome.ok_or(WireError::Syndrome(byte))
    }

    /// Returns its byte.
    #[inline]
    pub const fn to_byte(self) -> u8 {
        match self {
            Syndrome::Ack(credits) => credits.code(),
            Syndrome::RnrNak(timer) => Self::RNR | timer.code(),
            Syndrome::Nak(code) => Self::NAK | code.code(),
        }
    }
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// The responder's response.
    pub syndrome: Syndrome,
    /// Message sequence number: the number of completed requests modulo 2^24.
    pub msn: u32,
}

impl Aeth {
    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes, or a reserved syndrome.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split::<LEN>("AETH", bytes)?;
        let aeth = Aeth {
            syndrome: Syndrome::from_byte(header[0])?,
            msn: be24(header, 1),
        };
        Ok((aeth, rest))
    }

    /// Returns the header's bytes.
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
    fn syndromes_round_trip_and_reserved_bytes_are_refused() {
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
