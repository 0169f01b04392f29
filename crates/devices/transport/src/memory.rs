//! Registered memory: a trait that the device implements.

use adverb_verbs::{Comparison, Lkey, RemoteAddress, Rkey};

/// The key of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// From a local request.
    Local(Lkey),
    /// From the peer.
    Remote(Rkey),
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Key of the region.
    pub key: Key,
    /// Address.
    pub addr: u64,
}

impl Place {
    /// Returns the place at `offset` bytes from this one.
    #[must_use]
    pub const fn at(self, offset: u64) -> Self {
        Place {
            addr: self.addr.wrapping_add(offset),
            ..self
        }
    }
}

impl From<RemoteAddress> for Place {
    fn from(remote: RemoteAddress) -> Self {
        Place {
            key: Key::Remote(remote.rkey),
            addr: remote.addr,
        }
    }
}

/// The kind of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read. A remote key needs REMOTE_READ, a local key no right.
    Read,
    /// Write. A remote key needs REMOTE_WRITE, a local key LOCAL_WRITE.
    Write,
    /// Atomic change of 8 bytes; needs REMOTE_ATOMIC.
    Atomic,
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AccessError {
    /// No region has the key.
    #[error("no region has this key")]
    UnknownKey,
    /// The range is not within the region.
    #[error("outside the region")]
    OutOfRange,
    /// The region does not allow it.
    #[error("not allowed by the region")]
    NotAllowed,
}

/// An atomic operation on 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Adds.
    FetchAdd(u64),
    /// Replaces the value if it is the expected one.
    CompareSwap(Comparison),
}

impl AtomicOperation {
    /// Returns the new value.
    pub const fn apply(self, value: u64) -> u64 {
        match self {
            AtomicOperation::FetchAdd(add) => value.wrapping_add(add),
            AtomicOperation::CompareSwap(c) if c.expected == value => c.new,
            AtomicOperation::CompareSwap(_) => value,
        }
    }

    /// Applies the operation to a word in host byte order; returns the old value. Nobody else may change the word
    /// during the call.
    pub fn carry_out(self, word: &mut [u8; 8]) -> u64 {
        let found = u64::from_ne_bytes(*word);
        *word = self.apply(found).to_ne_bytes();
        found
    }
}

/// Registered memory of one protection domain.
///
/// Every method checks key, range and rights, because a region may be deregistered between a check and an access.
pub trait Memory {
    /// Checks access to `length` bytes.
    ///
    /// # Errors
    /// The access is refused.
    fn check(&self, place: Place, length: u64, access: Access) -> Result<(), AccessError>;

    /// Copies from memory.
    ///
    /// # Errors
    /// The access is refused; `into` may be partly written.
    fn read(&self, place: Place, into: &mut [u8]) -> Result<(), AccessError>;

    /// Copies to memory.
    ///
    /// # Errors
    /// The access is refused; nothing was written.
    fn write(&mut self, place: Place, from: &[u8]) -> Result<(), AccessError>;

    /// Changes an aligned word of 8 bytes in host order atomically; returns the old value.
    ///
    /// # Errors
    /// The access is refused; nothing was changed.
    fn atomic(
        &mut self,
        place: RemoteAddress,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError>;

    /// Invalidates a remote key (SEND with invalidate).
    ///
    /// # Errors
    /// The key cannot be invalidated.
    fn invalidate(&mut self, rkey: Rkey) -> Result<(), AccessError>;
}
