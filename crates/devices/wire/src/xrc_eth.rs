//! XRC extended transport header (IBTA vol. 1, annex A14), 4 B: it precedes all other extended headers of a request.

use adverb_verbs::Srqn;

use crate::WireError;
use crate::fields::{be24, put24, split};

/// Length of the header in bytes.
pub const LEN: usize = 4;

/// The header. Its upper byte is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcEth {
    /// The responder's shared receive queue.
    pub srqn: Srqn,
}

impl XrcEth {
    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split::<LEN>("XRCETH", bytes)?;
        let srqn = Srqn(be24(header, 1));
        Ok((XrcEth { srqn }, rest))
    }

    /// Returns the header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        put24(&mut out, 1, self.srqn.0);
        out
    }
}
