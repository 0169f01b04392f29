//! Memory with two regions: a local one, and one that the peer may use.

use std::collections::BTreeSet;

use adverb_transport::{
    Access, AccessError, AtomicOperation, Key, LocalPiece, Memory, Payload, Pieces, Place,
};
use adverb_verbs::{AccessFlags, Lkey, RemoteAddress, Rkey};

pub const SIZE: usize = 1 << 21;
pub const LOCAL_KEY: Lkey = Lkey(1);
pub const REMOTE_KEY: Rkey = Rkey(2);
pub const LOCAL: u64 = 0x1000_0000;
/// Where the peer's region begins.
pub const REMOTE: RemoteAddress = RemoteAddress {
    addr: 0x2000_0000,
    rkey: REMOTE_KEY,
};

pub struct TestMemory {
    pub local: Vec<u8>,
    pub shared: Vec<u8>,
    pub rights: AccessFlags,
    pub valid: bool,
    /// Keys that the peer may end, each once.
    pub spare: BTreeSet<u32>,
    /// Atomic operations carried out.
    pub atomics: u64,
}

impl TestMemory {
    pub fn new() -> Self {
        TestMemory::sized(SIZE, SIZE)
    }

    /// Makes regions of these sizes.
    pub fn sized(local: usize, shared: usize) -> Self {
        TestMemory {
            local: vec![0; local],
            shared: vec![0; shared],
            rights: AccessFlags::all(),
            valid: true,
            spare: BTreeSet::new(),
            atomics: 0,
        }
    }

    /// Fills local memory and gives the piece.
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> Payload {
        self.local[at..at + bytes.len()].copy_from_slice(bytes);
        piece(at, bytes.len())
    }

    fn find(&self, place: Place, length: u64, access: Access) -> Result<usize, AccessError> {
        let (base, size, need) = match place.key {
            Key::Local(LOCAL_KEY) => (LOCAL, self.local.len(), AccessFlags::empty()),
            Key::Remote(REMOTE_KEY) if self.valid => (
                REMOTE.addr,
                self.shared.len(),
                match access {
                    Access::Read => AccessFlags::REMOTE_READ,
                    Access::Write => AccessFlags::REMOTE_WRITE,
                    Access::Atomic => AccessFlags::REMOTE_ATOMIC,
                },
            ),
            _ => return Err(AccessError::UnknownKey),
        };
        if !self.rights.contains(need) {
            return Err(AccessError::NotAllowed);
        }
        let from = place
            .addr
            .checked_sub(base)
            .ok_or(AccessError::OutOfRange)?;
        match from.checked_add(length) {
            Some(end) if end <= size as u64 => Ok(from as usize),
            _ => Err(AccessError::OutOfRange),
        }
    }
}

/// A piece of local memory.
pub fn piece(at: usize, length: usize) -> Payload {
    Payload::Memory(pieces(at, length))
}

pub fn pieces(at: usize, length: usize) -> Pieces {
    [LocalPiece {
        addr: LOCAL + at as u64,
        length: length as u32,
        lkey: LOCAL_KEY,
    }]
    .into_iter()
    .collect()
}

impl Memory for TestMemory {
    fn check(&self, place: Place, length: u64, access: Access) -> Result<(), AccessError> {
        self.find(place, length, access).map(|_| ())
    }

    fn read(&self, place: Place, into: &mut [u8]) -> Result<(), AccessError> {
        let from = self.find(place, into.len() as u64, Access::Read)?;
        let memory = match place.key {
            Key::Local(_) => &self.local,
            Key::Remote(_) => &self.shared,
        };
        into.copy_from_slice(&memory[from..from + into.len()]);
        Ok(())
    }

    fn write(&mut self, place: Place, from: &[u8]) -> Result<(), AccessError> {
        let to = self.find(place, from.len() as u64, Access::Write)?;
        let memory = match place.key {
            Key::Local(_) => &mut self.local,
            Key::Remote(_) => &mut self.shared,
        };
        memory[to..to + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn atomic(
        &mut self,
        place: RemoteAddress,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError> {
        let at = self.find(place.into(), 8, Access::Atomic)?;
        self.atomics += 1;
        let word = (&mut self.shared[at..at + 8]).try_into().unwrap();
        Ok(operation.carry_out(word))
    }

    fn invalidate(&mut self, rkey: Rkey) -> Result<(), AccessError> {
        if self.spare.remove(&rkey.0) {
            return Ok(());
        }
        if rkey != REMOTE_KEY || !self.valid {
            return Err(AccessError::UnknownKey);
        }
        self.valid = false;
        Ok(())
    }
}
