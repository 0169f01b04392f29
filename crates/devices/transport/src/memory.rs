//! Memory as the transport sees it: a trait that the device implements.

use adverb_verbs::{Comparison, Lkey, RemoteAddress, Rkey};

/// The key that a piece of memory is reached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// This side's own request names it.
    Local(Lkey),
    /// The peer names it.
    Remote(Rkey),
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Key of its region.
    pub key: Key,
    /// Its address.
    pub addr: u64,
}

impl Place {
    /// The place `offset` bytes further.
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

/// The kind of access to a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It is read. A remote key needs REMOTE_READ, a local one nothing.
    Read,
    /// It is written. A remote key needs REMOTE_WRITE, a local one LOCAL_WRITE.
    Write,
    /// 8 bytes of it are changed in one step: REMOTE_ATOMIC.
    Atomic,
}

/// Why memory is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AccessError {
    /// No region has the key.
    #[error("no region has this key")]
    UnknownKey,
    /// The piece is not wholly in the region.
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
    /// Replaces, if what is there is as expected.
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
/// Every method checks key, range and right itself: a region may end between a check and a use.
pub trait Memory {
    /// Checks access to `length` bytes.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, place: Place, length: u64, access: Access) -> Result<(), AccessError>;

    /// Copies from memory.
    ///
    /// # Errors
    /// Why not; `into` may be partly written.
    fn read(&self, place: Place, into: &mut [u8]) -> Result<(), AccessError>;

    /// Copies to memory.
    ///
    /// # Errors
    /// Why not; then nothing was written.
    fn write(&mut self, place: Place, from: &[u8]) -> Result<(), AccessError>;

    /// Changes 8 bytes, aligned to 8, in host order, in one step, and gives what was there.
    ///
    /// # Errors
    /// Why not; then nothing was changed.
    fn atomic(
        &mut self,
        place: RemoteAddress,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError>;

    /// Ends a remote key (SEND with invalidate).
    ///
    /// # Errors
    /// A key that cannot be ended so.
    fn invalidate(&mut self, rkey: Rkey) -> Result<(), AccessError>;
}
