//! Work requests.

use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

use crate::access::AccessFlags;
use crate::ids::{Imm, Lkey, Qpn, Rkey, Srqn, WrId};

/// A scatter/gather element: part of a registered memory region (`ibv_sge`).
///
/// It borrows the region, because posting inline data reads the memory at the address without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sge<'mr> {
    addr: u64,
    length: u32,
    lkey: Lkey,
    region: PhantomData<&'mr ()>,
}

impl Sge<'_> {
    /// Returns an SGE of `length` bytes at `addr` with key `lkey`.
    ///
    /// # Safety
    /// If used with [`SendFlags::INLINE`], `addr..addr + length` must be readable memory during the
    /// lifetime. Otherwise any value is safe: the device checks the key.
    #[allow(unsafe_code)]
    pub const unsafe fn from_raw(addr: u64, length: u32, lkey: Lkey) -> Self {
        Sge {
            addr,
            length,
            lkey,
            region: PhantomData,
        }
    }

    /// Returns the same SGE with another key, for tests of wrong keys.
    #[must_use]
    pub const fn with_lkey(self, lkey: Lkey) -> Self {
        Sge { lkey, ..self }
    }

    /// Returns the address of the first byte.
    pub const fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the number of bytes.
    pub const fn length(&self) -> u32 {
        self.length
    }

    /// Returns the key of the region.
    pub const fn lkey(&self) -> Lkey {
        self.lkey
    }
}

/// An address in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteAddress {
    /// Address in the peer's address space.
    pub addr: u64,
    /// Key of the peer's memory region.
    pub rkey: Rkey,
}

impl RemoteAddress {
    /// Returns the address `offset` bytes further.
    #[must_use]
    pub const fn at(self, offset: u64) -> Self {
        RemoteAddress {
            addr: self.addr.wrapping_add(offset),
            rkey: self.rkey,
        }
    }
}

/// Operation of a send request (`ibv_wr_opcode`) with its operands.
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
    /// Adds a number to 8 aligned bytes of the peer's memory and returns the previous value.
    FetchAdd(RemoteAddress, u64),
    /// Replaces 8 aligned bytes of the peer's memory if they have the expected value, and returns the
    /// previous value.
    CompareSwap(RemoteAddress, Comparison),
    /// SEND that also invalidates a key of the peer.
    SendWithInvalidate(Rkey),
    /// Binds a memory window of this side.
    BindWindow(WindowBinding),
    /// Invalidates a key of this side.
    LocalInvalidate(Rkey),
}

/// The operands of a bind of a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowBinding {
    /// The window, by any of its keys: they differ in the low 8 bits only.
    pub window: Rkey,
    /// Its new key.
    pub rkey: Rkey,
    /// The memory region.
    pub region: Lkey,
    /// Address of the first byte, as requests with the region's key name it.
    pub addr: u64,
    /// Length in bytes; 0: binds a type 1 window to nothing.
    pub length: u64,
    /// Rights of the peer, and [`AccessFlags::ZERO_BASED`].
    pub access: AccessFlags,
}

/// The operands of a compare-and-swap, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The expected value.
    pub expected: u64,
    /// The new value.
    pub new: u64,
}

impl Operation {
    /// Whether it writes local memory (READ, atomics). Such a request cannot be inline, and its SGEs need
    /// LOCAL_WRITE.
    pub const fn writes_local_memory(&self) -> bool {
        matches!(
            self,
            Operation::RdmaRead(_) | Operation::FetchAdd(..) | Operation::CompareSwap(..)
        )
    }

    /// Whether it concerns only keys of this side: nothing is sent.
    pub const fn is_local(&self) -> bool {
        matches!(
            self,
            Operation::BindWindow(_) | Operation::LocalInvalidate(_)
        )
    }

    /// Whether it is an atomic operation.
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Operation::FetchAdd(..) | Operation::CompareSwap(..))
    }
}

/// Reference to an address handle by the device's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AhRef<'ah> {
    name: u64,
    handle: PhantomData<&'ah ()>,
}

impl AhRef<'_> {
    /// Returns a reference to the handle that the device calls `name`.
    ///
    /// # Safety
    /// During the lifetime of the reference, `name` must identify a handle of the device to which requests
    /// with it are posted.
    #[allow(unsafe_code)]
    pub const unsafe fn from_raw(name: u64) -> Self {
        AhRef {
            name,
            handle: PhantomData,
        }
    }

    /// Returns the device's name for the handle.
    pub const fn name(&self) -> u64 {
        self.name
    }
}

/// Destination of a datagram (UD) or of a request of a DC initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination<'ah> {
    /// The peer's port.
    pub ah: AhRef<'ah>,
    /// The queue pair or DC target.
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
    /// The program's name of the request, returned in its completion.
    pub wr_id: WrId,
    /// The operation.
    pub operation: Operation,
    /// Local memory: gathered from, or (READ) scattered to.
    pub sges: &'a [Sge<'a>],
    /// Flags.
    pub flags: SendFlags,
    /// The destination: required on UD queue pairs and DC initiators, and not allowed on others.
    pub to: Option<Destination<'a>>,
    /// XRC: the peer's shared receive queue. Other queue pairs ignore it.
    pub remote_srqn: Srqn,
}

impl<'a> SendRequest<'a> {
    /// Returns a request without flags.
    pub const fn new(wr_id: WrId, operation: Operation, sges: &'a [Sge<'a>]) -> Self {
        SendRequest {
            wr_id,
            operation,
            sges,
            flags: SendFlags::empty(),
            to: None,
            remote_srqn: Srqn(0),
        }
    }

    /// Sets the destination.
    #[must_use]
    pub const fn to(self, to: Destination<'a>) -> Self {
        SendRequest {
            to: Some(to),
            ..self
        }
    }

    /// Replaces the local memory.
    #[must_use]
    pub const fn with_sges(self, sges: &'a [Sge<'a>]) -> Self {
        SendRequest { sges, ..self }
    }

    /// Sets the peer's shared receive queue (XRC).
    #[must_use]
    pub const fn to_srq(self, remote_srqn: Srqn) -> Self {
        SendRequest {
            remote_srqn,
            ..self
        }
    }

    /// Sets the flags.
    #[must_use]
    pub const fn with_flags(self, flags: SendFlags) -> Self {
        SendRequest { flags, ..self }
    }

    /// Returns the total payload in bytes.
    #[inline]
    pub fn length(&self) -> u64 {
        self.sges.iter().map(|sge| u64::from(sge.length)).sum()
    }
}

/// A request to the receive queue (`ibv_recv_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecvRequest<'a> {
    /// The program's name of the request, returned in its completion.
    pub wr_id: WrId,
    /// The buffer for the message.
    pub sges: &'a [Sge<'a>],
}

impl<'a> RecvRequest<'a> {
    /// Returns a request to receive a message into `sges`.
    pub const fn new(wr_id: WrId, sges: &'a [Sge<'a>]) -> Self {
        RecvRequest { wr_id, sges }
    }
}
