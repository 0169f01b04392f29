//! The traits of a device's objects, in the order in which a program makes them.
//!
//! Objects keep alive what they stand on (a queue pair its completion queues, protection domain
//! and context), so they may be dropped in any order; dropping destroys. All of them may be used
//! from several threads where the implementation is `Sync`.
//!
//! One type parameter, the [`Context`], carries all object types, so that a program over the seam
//! compiles to direct calls: the seam costs nothing on the data path.

use std::net::SocketAddr;

use adverb_units::{Bytes, Span};

use crate::access::AccessFlags;
use crate::caps::{DeviceCaps, DeviceName, PortCaps, QpCaps};
use crate::completion::{NotifyOn, WorkCompletion};
use crate::connect::{ConnectError, Connection};
use crate::error::{
    CreateError, McastError, MemoryAccessError, ModifyQpError, OpenError, PollError, PostError,
    RegisterError, Unsupported,
};
use crate::ids::{CqId, Gid, Lid, Lkey, PortNum, Qpn, Rkey};
use crate::qp::{AddressVector, QpAttr, QpState, QpType};
use crate::srq::{AsyncEvent, SharedReceiveQueue, SrqCaps, no_srq};
use crate::work::{AhRef, RecvRequest, RemoteAddress, SendRequest, Sge};

/// A device that can be opened (`ibv_device`).
pub trait Device {
    /// What opening gives.
    type Context: Context;

    /// Its name.
    fn name(&self) -> DeviceName;

    /// Opens it (`ibv_open_device`).
    ///
    /// # Errors
    /// It is not there, or the system refuses it.
    fn open(&self) -> Result<Self::Context, OpenError>;
}

/// An opened device (`ibv_context`).
pub trait Context: Sized {
    /// Its protection domains.
    type Pd: ProtectionDomain;
    /// Its memory regions.
    type Mr: MemoryRegion;
    /// Its completion channels.
    type Channel: CompletionChannel;
    /// Its completion queues.
    type Cq: CompletionQueue;
    /// Its queue pairs.
    type Qp: QueuePair;
    /// Its shared receive queues.
    type Srq: SharedReceiveQueue;
    /// Its address handles.
    type Ah: AddressHandle;

    /// The device's name.
    fn name(&self) -> DeviceName;

    /// Its limits (`ibv_query_device`).
    fn caps(&self) -> &DeviceCaps;

    /// The port that programs use: the one that was chosen when the device was named.
    fn port_num(&self) -> PortNum;

    /// State of a port (`ibv_query_port`, `ibv_query_gid`).
    ///
    /// # Errors
    /// It has no such port, or the system cannot tell.
    fn port(&self, port: PortNum) -> Result<PortCaps, CreateError>;

    /// What the device and the port in use have counted since they began (retransmissions, RNR
    /// NAKs, bytes …), by the driver's names; empty where nothing is counted.
    fn counters(&self) -> Counters;

    /// What else belongs into a record's provenance: driver, firmware, placement …, by name.
    fn provenance(&self) -> Vec<(String, String)>;

    /// Makes a protection domain (`ibv_alloc_pd`).
    ///
    /// # Errors
    /// The device has no more of them.
    fn alloc_pd(&self) -> Result<Self::Pd, CreateError>;

    /// Makes a completion channel (`ibv_create_comp_channel`).
    ///
    /// # Errors
    /// The device, or this process, has no more of them.
    fn create_channel(&self) -> Result<Self::Channel, CreateError>;

    /// Makes a completion queue of at least `entries` entries, whose events go to `channel`
    /// (`ibv_create_cq`).
    ///
    /// # Errors
    /// `entries` is out of the range of [`Context::caps`], `channel` is another context's, or the device has
    /// no more of them.
    fn create_cq(
        &self,
        entries: u32,
        channel: Option<&Self::Channel>,
    ) -> Result<Self::Cq, CreateError>;

    /// Allocates `length` zeroed bytes where the device likes them best and registers them.
    ///
    /// # Errors
    /// The length or the rights are none that can be, `pd` is another context's, or there is no memory: of
    /// the device's, or that may be locked.
    fn alloc_mr(
        &self,
        pd: &Self::Pd,
        length: Bytes,
        access: AccessFlags,
    ) -> Result<Self::Mr, RegisterError>;

    /// Makes a queue pair in RESET (`ibv_create_qp`).
    ///
    /// # Errors
    /// A size is out of the range of [`Context::caps`], an object is another context's, the device lacks the
    /// service, or has no more of them.
    fn create_qp(
        &self,
        pd: &Self::Pd,
        init: &QpInit<'_, Self::Cq>,
    ) -> Result<Self::Qp, CreateError>;

    /// Makes a queue pair whose receives get payloads of at most `max_inl_recv` bytes within their
    /// completions: the device writes once, and whoever polls copies into the buffer. Vendors' verbs
    /// have it as an attribute of creation (`max_inl_recv` of `ibv_exp_create_qp`).
    ///
    /// # Errors
    /// As of [`Context::create_qp`]; most devices have no inline receive, and say so.
    fn create_qp_with_inline_recv(
        &self,
        pd: &Self::Pd,
        init: &QpInit<'_, Self::Cq>,
        max_inl_recv: u32,
    ) -> Result<Self::Qp, CreateError> {
        if max_inl_recv == 0 {
            return self.create_qp(pd, init);
        }
        Err(CreateError::Unsupported(Unsupported {
            feature: "inline receive",
            device: self.name().to_string(),
        }))
    }

    /// Makes a shared receive queue of at least these sizes (`ibv_create_srq`).
    ///
    /// # Errors
    /// A device without any refuses by name.
    fn create_srq(&self, pd: &Self::Pd, caps: &SrqCaps) -> Result<Self::Srq, CreateError> {
        let _ = (pd, caps);
        Err(no_srq(&self.name().0).into())
    }

    /// Makes a queue pair that takes its receives from `srq` (`ibv_create_qp` with an SRQ): receives
    /// are posted there and nowhere else, and the receive sizes of `init` do not count.
    ///
    /// # Errors
    /// As of [`Context::create_qp`].
    fn create_qp_with_srq(
        &self,
        pd: &Self::Pd,
        init: &QpInit<'_, Self::Cq>,
        srq: &Self::Srq,
    ) -> Result<Self::Qp, CreateError> {
        let _ = (pd, init, srq);
        Err(no_srq(&self.name().0).into())
    }

    /// The oldest asynchronous event that was not taken yet, without waiting
    /// (`ibv_get_async_event`, `ibv_ack_async_event`); none where there is none.
    ///
    /// # Errors
    /// The device failed.
    fn async_event(&self) -> Result<Option<AsyncEvent>, PollError> {
        Ok(None)
    }

    /// Makes an address handle, by which datagrams reach a port (`ibv_create_ah`).
    ///
    /// # Errors
    /// The address cannot be reached from this port, `pd` is another context's, or the device lacks address
    /// handles.
    fn create_ah(&self, pd: &Self::Pd, address: &AddressVector) -> Result<Self::Ah, CreateError>;
}

/// Events counted by a device, by the driver's names. They only grow, but for an overflow or a reset
/// by an administrator.
pub type Counters = std::collections::BTreeMap<String, u64>;

/// What a queue pair is made of (`ibv_qp_init_attr`).
#[derive(Clone, Copy, Debug)]
pub struct QpInit<'a, Cq> {
    /// Transport service.
    pub qp_type: QpType,
    /// Where send completions go.
    pub send_cq: &'a Cq,
    /// Where receive completions go.
    pub recv_cq: &'a Cq,
    /// Sizes.
    pub caps: QpCaps,
}

/// A protection domain (`ibv_pd`).
pub trait ProtectionDomain {}

/// An address handle (`ibv_ah`): the way of datagrams to a port.
pub trait AddressHandle {
    /// To name it in a request.
    fn handle(&self) -> AhRef<'_>;
}

/// A registered memory region (`ibv_mr`) and its memory.
///
/// The peer may change the memory at any time, so it is never lent as a slice.
pub trait MemoryRegion {
    /// Address of the first byte.
    fn addr(&self) -> u64;

    /// Length.
    fn length(&self) -> Bytes;

    /// Key for local use.
    fn lkey(&self) -> Lkey;

    /// Key for the peer.
    fn rkey(&self) -> Rkey;

    /// Copies bytes from `offset` on into `into`.
    ///
    /// # Errors
    /// The range is not within the region.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MemoryAccessError>;

    /// Copies `from` to `offset`.
    ///
    /// # Errors
    /// The range is not within the region.
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MemoryAccessError>;

    /// One byte, with acquire order: what the peer placed before it is visible after it.
    ///
    /// # Errors
    /// The byte is not within the region.
    fn load(&self, offset: u64) -> Result<u8, MemoryAccessError>;

    /// The piece of `length` bytes at `offset`, for a work request.
    ///
    /// # Errors
    /// The piece is not within the region.
    fn sge(&self, offset: u64, length: u32) -> Result<Sge<'_>, MemoryAccessError>;

    /// The place at `offset`, to tell the peer.
    fn remote(&self, offset: u64) -> RemoteAddress {
        RemoteAddress {
            addr: self.addr().wrapping_add(offset),
            rkey: self.rkey(),
        }
    }
}

/// A completion channel (`ibv_comp_channel`). Programs wait on it through their station.
pub trait CompletionChannel {
    /// Sleeps until an event arrives (`ibv_get_cq_event`), for at most `patience`; returns the
    /// queue it names, or none where nothing came.
    ///
    /// # Errors
    /// The channel failed.
    fn get_event(&self, patience: Span) -> std::io::Result<Option<CqId>>;
}

/// A completion queue (`ibv_cq`).
pub trait CompletionQueue {
    /// Its name in completion events.
    fn id(&self) -> CqId;

    /// How many entries it has.
    fn entries(&self) -> u32;

    /// Takes up to `into.len()` completions, without waiting (`ibv_poll_cq`); returns how many.
    ///
    /// # Errors
    /// The queue was overrun: more came than it has entries; or the device failed.
    fn poll(&self, into: &mut [WorkCompletion]) -> Result<usize, PollError>;

    /// Arms the queue for one event (`ibv_req_notify_cq`). Completions that came before do not
    /// raise it: poll once more after arming, before waiting.
    ///
    /// # Errors
    /// As of [`CompletionQueue::poll`].
    fn req_notify(&self, on: NotifyOn) -> Result<(), PollError>;

    /// Acknowledges `events` events taken from the channel (`ibv_ack_cq_events`).
    fn ack_events(&self, events: u32);
}

/// A queue pair (`ibv_qp`).
pub trait QueuePair: Sized {
    /// Its number.
    fn qpn(&self) -> Qpn;

    /// Sizes, at least those that were asked for.
    fn caps(&self) -> QpCaps;

    /// State (`ibv_query_qp`).
    fn state(&self) -> QpState;

    /// Changes state and attributes (`ibv_modify_qp`).
    ///
    /// # Errors
    /// The table of transitions ([`crate::qp`]) has no such edge, an attribute is missing, superfluous or out
    /// of range; or the driver refuses it. State and attributes are as before.
    fn modify(&self, attr: &QpAttr) -> Result<(), ModifyQpError>;

    /// Lets the peer's connection manager connect to it, where that is how this device connects:
    /// the address to tell the peer ([`Endpoint::cm`](crate::Endpoint::cm)), before it connects.
    /// None where queue pairs are connected by hand.
    ///
    /// # Errors
    /// The connection manager cannot listen.
    fn listen(&self) -> Result<Option<SocketAddr>, ConnectError> {
        Ok(None)
    }

    /// Connects it to the peer's, from INIT; it is in RTS then. Both sides do so at a time; waits
    /// for the peer are bounded.
    ///
    /// # Errors
    /// The peer refuses, does not answer in time, or cannot be reached; or the queue pair was not in INIT.
    fn connect(&self, connection: &Connection) -> Result<(), ConnectError> {
        connection.by_hand(self)
    }

    /// Has the queue pair, a UD one, get what is sent to a multicast group (`ibv_attach_mcast`).
    /// Attached twice it is as attached once. `lid` is the group's on InfiniBand, 0 elsewhere.
    ///
    /// A datagram reaches a group by an address handle to its GID, and [`Qpn::MULTICAST`].
    ///
    /// # Errors
    /// `gid` is no group's, the queue pair is not UD, or the device lacks groups.
    fn attach_mcast(&self, gid: Gid, lid: Lid) -> Result<(), McastError>;

    /// Takes the queue pair out of a multicast group (`ibv_detach_mcast`), with the names that it was
    /// attached by. Destroying it does so, too.
    ///
    /// # Errors
    /// It is not in that group.
    fn detach_mcast(&self, gid: Gid, lid: Lid) -> Result<(), McastError>;

    /// Posts a list of send requests in one call (`ibv_post_send`). On an error those before
    /// [`PostError::index`] are posted.
    ///
    /// # Errors
    /// A request cannot be posted: the queue is full or in a state that takes none, or the request is wrong
    /// in itself. What its memory or the peer refuses is told by its completion.
    fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError>;

    /// Posts a list of receive requests in one call (`ibv_post_recv`). On an error those before
    /// [`PostError::index`] are posted.
    ///
    /// # Errors
    /// As of [`QueuePair::post_send`]; or the queue pair takes from a shared receive queue.
    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError>;
}
