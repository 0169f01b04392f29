//! Work requests: what a program asks a queue pair to do.

use std::marker::PhantomData;

use crate::ids::{Imm, Lkey, Qpn, Rkey, WrId};

/// One piece of a registered memory region (`ibv_sge`).
///
/// The lifetime is that of the region the piece was taken from: inline data is read from the
/// address without a key, while the request is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sge<'mr> {
    addr: u64,
    length: u32,
    lkey: Lkey,
    region: PhantomData<&'mr ()>,
}

impl Sge<'_> {
    /// A piece of `length` bytes at `addr`, under `lkey`.
    ///
    /// # Safety
    /// Used with [`SendFlags::INLINE`], `addr..addr + length` must be readable memory for as long
    /// as the piece lives. Without it any value is safe: the device checks the key.
    #[allow(unsafe_code)]
    pub const unsafe fn from_raw(addr: u64, length: u32, lkey: Lkey) -> Self {
        Sge {
            addr,
            length,
            lkey,
            region: PhantomData,
        }
    }

    /// The same piece under another key: for programs (and tests) that name a wrong one.
    #[must_use]
    pub const fn with_lkey(self, lkey: Lkey) -> Self {
        Sge { lkey, ..self }
    }

    /// First byte, in the program's address space.
    pub const fn addr(&self) -> u64 {
        self.addr
    }

    /// Bytes.
    pub const fn length(&self) -> u32 {
        self.length
    }

    /// Key of the region.
    pub const fn lkey(&self) -> Lkey {
        self.lkey
    }
}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Address in the peer's address space.
    pub addr: u64,
    /// Key of the peer's memory region.
    pub rkey: Rkey,
}

impl RemoteAddress {
    /// The place `offset` bytes further.
    #[must_use]
    pub const fn at(self, offset: u64) -> Self {
        RemoteAddress {
            addr: self.addr.wrapping_add(offset),
            rkey: self.rkey,
        }
    }
}

/// What a send request does (`ibv_wr_opcode` with the operands that belong to it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// SEND: into the buffer of the peer's next receive request.
    Send,
    /// SEND with immediate data.
    SendWithImm(Imm),
    /// RDMA WRITE.
    RdmaWrite(RemoteAddress),
    /// RDMA WRITE with immediate data: also consumes a receive request of the peer.
    RdmaWriteWithImm(RemoteAddress, Imm),
    /// RDMA READ.
    RdmaRead(RemoteAddress),
    /// Adds a number to 8 bytes of the peer's, aligned to 8, and gives back what was there.
    FetchAdd(RemoteAddress, u64),
    /// Replaces 8 bytes of the peer's, aligned to 8, if they are as expected, and gives back what
    /// was there.
    CompareSwap(RemoteAddress, Comparison),
}

/// The operands of a compare-and-swap, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// What must be there.
    pub expected: u64,
    /// What then takes its place.
    pub new: u64,
}

impl Operation {
    /// Whether it writes this side's memory (READ, atomics): such a request cannot be inline, and
    /// its pieces need LOCAL_WRITE.
    pub const fn writes_local_memory(&self) -> bool {
        matches!(
            self,
            Operation::RdmaRead(_) | Operation::FetchAdd(..) | Operation::CompareSwap(..)
        )
    }

    /// Whether it is an atomic operation.
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Operation::FetchAdd(..) | Operation::CompareSwap(..))
    }
}

/// The device's own name of an address handle; the lifetime is that of the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AhRef<'ah> {
    name: u64,
    handle: PhantomData<&'ah ()>,
}

impl AhRef<'_> {
    /// The handle that the device calls `name`.
    ///
    /// # Safety
    /// `name` is what the device of the queue pair, to which requests with it are posted, gave the
    /// handle, for as long as the reference lives.
    #[allow(unsafe_code)]
    pub const unsafe fn from_raw(name: u64) -> Self {
        AhRef {
            name,
            handle: PhantomData,
        }
    }

    /// The device's name for it.
    pub const fn name(&self) -> u64 {
        self.name
    }
}

/// Where a datagram (UD) or a request of a DC initiator goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination<'ah> {
    /// The way to the peer's port.
    pub ah: AhRef<'ah>,
    /// The queue pair, or DC target, there.
    pub qpn: Qpn,
    /// Its queue key (UD) or access key (DC).
    pub qkey: u32,
}

bitflags::bitflags! {
    /// Flags of a send request (`ibv_send_flags`, same bits).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SendFlags: u32 {
        /// Start only after all earlier READs and atomics of the queue pair have completed.
        const FENCE = 1;
        /// Generate a completion.
        const SIGNALED = 1 << 1;
        /// Raise a solicited event at the peer.
        const SOLICITED = 1 << 2;
        /// Copy the payload into the request: its buffer is free when the post returns.
        const INLINE = 1 << 3;
    }
}

/// A request to the send queue (`ibv_send_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendRequest<'a> {
    /// The program's name for it; returned in the completion.
    pub wr_id: WrId,
    /// What to do.
    pub operation: Operation,
    /// Local memory: gathered from, or (READ) scattered to.
    pub sges: &'a [Sge<'a>],
    /// How.
    pub flags: SendFlags,
    /// Where to; only, and always, on a UD queue pair or a DC initiator.
    pub to: Option<Destination<'a>>,
}

impl<'a> SendRequest<'a> {
    /// A request without flags.
    pub const fn new(wr_id: WrId, operation: Operation, sges: &'a [Sge<'a>]) -> Self {
        SendRequest {
            wr_id,
            operation,
            sges,
            flags: SendFlags::empty(),
            to: None,
        }
    }

    /// The same request, to `to`.
    #[must_use]
    pub const fn to(self, to: Destination<'a>) -> Self {
        SendRequest {
            to: Some(to),
            ..self
        }
    }

    /// The same request with these flags.
    #[must_use]
    pub const fn with_flags(self, flags: SendFlags) -> Self {
        SendRequest { flags, ..self }
    }

    /// Total payload in bytes.
    pub fn length(&self) -> u64 {
        self.sges.iter().map(|sge| u64::from(sge.length)).sum()
    }
}

/// A request to the receive queue (`ibv_recv_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecvRequest<'a> {
    /// The program's name for it; returned in the completion.
    pub wr_id: WrId,
    /// Where the message goes.
    pub sges: &'a [Sge<'a>],
}

impl<'a> RecvRequest<'a> {
    /// A request for one message into `sges`.
    pub const fn new(wr_id: WrId, sges: &'a [Sge<'a>]) -> Self {
        RecvRequest { wr_id, sges }
    }
}
