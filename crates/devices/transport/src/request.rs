//! Work requests, as the transport stores them until they complete.

use adverb_verbs::{
    Comparison, Imm, Lkey, Operation, RemoteAddress, Rkey, SendFlags, Sge, Srqn, WrId,
};
use smallvec::SmallVec;

use crate::memory::{Access, AccessError, AtomicOperation, Key, Memory, Place};

/// A scatter/gather element in local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalPiece {
    /// Address of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Key of its region.
    pub lkey: Lkey,
}

impl From<Sge<'_>> for LocalPiece {
    fn from(sge: Sge<'_>) -> Self {
        LocalPiece {
            addr: sge.addr(),
            length: sge.length(),
            lkey: sge.lkey(),
        }
    }
}

impl LocalPiece {
    const fn place(&self) -> Place {
        Place {
            key: Key::Local(self.lkey),
            addr: self.addr,
        }
    }
}

/// The scatter/gather list of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces(SmallVec<[LocalPiece; 2]>);

impl FromIterator<LocalPiece> for Pieces {
    fn from_iter<I: IntoIterator<Item = LocalPiece>>(pieces: I) -> Self {
        Pieces(pieces.into_iter().collect())
    }
}

impl Pieces {
    /// Returns the total length in bytes.
    pub fn length(&self) -> u64 {
        self.0.iter().map(|piece| u64::from(piece.length)).sum()
    }

    /// Checks access to all of it.
    pub(crate) fn check(&self, memory: &impl Memory, access: Access) -> Result<(), AccessError> {
        let mut used = self.0.iter().filter(|piece| piece.length != 0);
        used.try_for_each(|piece| memory.check(piece.place(), piece.length.into(), access))
    }

    /// Calls `each` for each part of the `length` bytes from `offset` on, with its place and its range within these bytes.
    /// Stops at the end of the list.
    #[inline]
    fn each<E>(
        &self,
        mut offset: u64,
        length: usize,
        mut each: impl FnMut(Place, std::ops::Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        for piece in &self.0 {
            if done == length {
                break;
            }
            let there = u64::from(piece.length);
            if offset >= there {
                offset -= there;
                continue;
            }
            let part = ((there - offset) as usize).min(length - done);
            each(piece.place().at(offset), done..done + part)?;
            done += part;
            offset = 0;
        }
        Ok(())
    }

    /// Copies bytes from `offset` on to `into`.
    #[inline]
    pub(crate) fn gather(
        &self,
        memory: &impl Memory,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), AccessError> {
        self.each(offset, into.len(), |place, part| {
            memory.read(place, &mut into[part])
        })
    }

    /// Copies `from` to the bytes from `offset` on.
    #[inline]
    pub(crate) fn scatter(
        &self,
        memory: &mut impl Memory,
        offset: u64,
        from: &[u8],
    ) -> Result<(), AccessError> {
        self.each(offset, from.len(), |place, part| {
            memory.write(place, &from[part])
        })
    }
}

/// The location of a request's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// In local memory.
    Memory(Pieces),
    /// In the request itself (inline).
    Inline(SmallVec<[u8; 64]>),
}

impl Payload {
    /// Returns the length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Payload::Memory(pieces) => pieces.length(),
            Payload::Inline(bytes) => bytes.len() as u64,
        }
    }

    #[inline]
    pub(crate) fn gather(
        &self,
        memory: &impl Memory,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), AccessError> {
        match self {
            Payload::Memory(pieces) => pieces.gather(memory, offset, into),
            Payload::Inline(bytes) => {
                let from = offset as usize;
                into.copy_from_slice(&bytes[from..from + into.len()]);
                Ok(())
            }
        }
    }
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendWithImm(Imm),
    /// SEND that invalidates a key of the peer.
    SendWithInvalidate(Rkey),
    /// RDMA WRITE.
    Write(RemoteAddress),
    /// RDMA WRITE with immediate data.
    WriteWithImm(RemoteAddress, Imm),
    /// RDMA READ.
    Read(RemoteAddress),
    /// Fetch-and-add.
    FetchAdd(RemoteAddress, u64),
    /// Compare-and-swap.
    CompareSwap(RemoteAddress, Comparison),
}

/// An operation that this crate does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported operation {0:?}")]
pub struct UnknownOperation(pub Operation);

impl TryFrom<Operation> for Work {
    type Error = UnknownOperation;

    fn try_from(operation: Operation) -> Result<Self, UnknownOperation> {
        Ok(match operation {
            Operation::Send => Work::Send,
            Operation::SendWithImm(imm) => Work::SendWithImm(imm),
            Operation::RdmaWrite(remote) => Work::Write(remote),
            Operation::RdmaWriteWithImm(remote, imm) => Work::WriteWithImm(remote, imm),
            Operation::RdmaRead(remote) => Work::Read(remote),
            Operation::FetchAdd(remote, add) => Work::FetchAdd(remote, add),
            Operation::CompareSwap(remote, c) => Work::CompareSwap(remote, c),
            Operation::SendWithInvalidate(rkey) => Work::SendWithInvalidate(rkey),
            other => return Err(UnknownOperation(other)),
        })
    }
}

impl Work {
    /// Whether the response carries data: READs and atomics.
    #[inline]
    pub const fn is_answered(&self) -> bool {
        matches!(self, Work::Read(_)) || self.atomic().is_some()
    }

    /// Whether it consumes a receive request of the peer.
    #[inline]
    pub const fn consumes_receive(&self) -> bool {
        matches!(
            self,
            Work::Send
                | Work::SendWithImm(_)
                | Work::SendWithInvalidate(_)
                | Work::WriteWithImm(..)
        )
    }

    /// Returns the atomic operation and its address, if it is one.
    #[inline]
    pub const fn atomic(&self) -> Option<(RemoteAddress, AtomicOperation)> {
        match *self {
            Work::FetchAdd(remote, add) => Some((remote, AtomicOperation::FetchAdd(add))),
            Work::CompareSwap(remote, c) => Some((remote, AtomicOperation::CompareSwap(c))),
            _ => None,
        }
    }
}

/// A request to the send queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWork {
    /// The program's identifier.
    pub wr_id: WrId,
    /// The operation.
    pub work: Work,
    /// Local memory: gathered from or, for READs and atomics, scattered to.
    pub payload: Payload,
    /// Send flags. `INLINE` is ignored: the payload determines it.
    pub flags: SendFlags,
    /// XRC: the peer's shared receive queue. Other services ignore it.
    pub remote_srqn: Srqn,
}

/// A request to the receive queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveWork {
    /// The program's identifier.
    pub wr_id: WrId,
    /// Where the message is stored.
    pub pieces: Pieces,
}

/// Why a request cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full.
    #[error("the queue is full: it holds {0} requests")]
    Full(usize),
    /// Receive requests are posted to the shared queue.
    #[error("the queue pair uses a shared receive queue: post receives there")]
    SharedReceives,
    /// The message is too long.
    #[error("message of {length} B exceeds the maximum of {most} B")]
    TooLong {
        /// Its length.
        length: u64,
        /// The limit.
        most: u64,
    },
    /// An operation that the transport service does not have.
    #[error("this transport service has no operation {0:?}")]
    NotOfService(Work),
    /// `max_rd_atomic` is 0: no READ or atomic operation may be in flight.
    #[error("max_rd_atomic is 0: the queue pair may not post READs and atomics")]
    ReadsNotAllowed,
    /// An atomic operation has 8 bytes of local memory, not inline.
    #[error("atomic operation with {0} B of local memory: expected 8 B")]
    AtomicLength(u64),
    /// A READ or an atomic operation writes local memory, so it cannot be inline.
    #[error("READs and atomics cannot be inline")]
    InlineAnswer,
}
