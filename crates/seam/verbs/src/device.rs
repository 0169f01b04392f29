//! The traits of a device's objects, in the order in which a program creates them.
//!
//! An object keeps the objects that it uses (a queue pair its completion queues, protection domain
//! and context), so they may be dropped in any order; dropping destroys. Objects whose type is `Sync`
//! may be used from several threads.
//!
//! A program has one type parameter, the [`Context`], which names all object types. It compiles to
//! direct calls, so the abstraction costs nothing on the data path.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;

use adverb_units::{Bytes, Span};
use serde::{Deserialize, Serialize};

use crate::access::AccessFlags;
use crate::caps::{DeviceCaps, DeviceName, PortCaps, QpCaps};
use crate::completion::{NotifyOn, WorkCompletion};
use crate::connect::{ConnectError, Connection};
use crate::error::{
    CreateError, McastError, MemoryAccessError, ModifyQpError, OpenError, PollError, PostError,
    RegisterError, Unsupported,
};
use crate::ids::{CqId, Gid, Lid, Lkey, PortNum, Qpn, Rkey};
use crate::path::PostApi;
use crate::qp::{AddressVector, QpAttr, QpState, QpType};
use crate::srq::{AsyncEvent, SharedReceiveQueue, SrqCaps, no_srq};
use crate::work::{AhRef, RecvRequest, RemoteAddress, SendRequest, Sge};

/// A device that can be opened (`ibv_device`).
pub trait Device {
    /// The type of the opened device.
    type Context: Context;

    /// Returns the name.
    fn name(&self) -> DeviceName;

    /// Opens the device (`ibv_open_device`).
    ///
    /// # Errors
    /// There is no such device, or the system refuses to open it.
    fn open(&self) -> Result<Self::Context, OpenError>;
}

/// The pages of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageKind {
    /// The CPU's smallest pages, 4 KiB on x86.
    Small,
    /// Huge pages of 2 MiB, which the administrator has reserved (`vm.nr_hugepages`).
    Huge,
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

    /// Returns the name of the device.
    fn name(&self) -> DeviceName;

    /// Returns the limits (`ibv_query_device`).
    fn caps(&self) -> &DeviceCaps;

    /// Returns the port that programs use, which is part of the device's name.
    fn port_num(&self) -> PortNum;

    /// Returns the number of ports over which the device spreads queue pairs: more than one only where it chooses the port of
    /// each queue pair itself, in the order in which they are created.
    fn ports(&self) -> u32 {
        1
    }

    /// Queries the state of a port (`ibv_query_port`, `ibv_query_gid`).
    ///
    /// # Errors
    /// There is no such port, or the query failed.
    fn port(&self, port: PortNum) -> Result<PortCaps, CreateError>;

    /// Whether its queue pairs are connected through a connection manager ([`QueuePair::listen`]) instead of
    /// by the program.
    fn connects_by_manager(&self) -> bool {
        false
    }

    /// Returns the hardware counters of the device and the port in use (retransmissions, RNR NAKs,
    /// bytes …) by the driver's names; empty if there are none.
    fn counters(&self) -> Counters;

    /// Returns the description of the device for records: driver, firmware, placement …, by name.
    fn provenance(&self) -> Vec<(String, String)>;

    /// Returns the NUMA node that the device is attached to; `None` if it is on none, or the firmware does not report it.
    fn numa_node(&self) -> Option<u32> {
        None
    }

    /// Allocates a protection domain (`ibv_alloc_pd`).
    ///
    /// # Errors
    /// The device has no more of them.
    fn alloc_pd(&self) -> Result<Self::Pd, CreateError>;

    /// Creates a completion channel (`ibv_create_comp_channel`).
    ///
    /// # Errors
    /// The device, or this process, has no more of them.
    fn create_channel(&self) -> Result<Self::Channel, CreateError>;

    /// Creates a completion queue of at least `entries` entries, with events on `channel`
    /// (`ibv_create_cq`).
    ///
    /// # Errors
    /// `entries` is out of the range of [`Context::caps`], `channel` belongs to another context, or the device has
    /// no more of them.
    fn create_cq(
        &self,
        entries: u32,
        channel: Option<&Self::Channel>,
    ) -> Result<Self::Cq, CreateError>;

    /// Allocates and registers `length` zeroed bytes, in the kind of memory that suits the device best.
    ///
    /// # Errors
    /// The length or the access rights are invalid, `pd` belongs to another context, or memory of the
    /// device or memory that may be locked is exhausted.
    fn alloc_mr(
        &self,
        pd: &Self::Pd,
        length: Bytes,
        access: AccessFlags,
    ) -> Result<Self::Mr, RegisterError>;

    /// Allocates and registers memory as [`Context::alloc_mr`] does, on pages of the given kind.
    ///
    /// # Errors
    /// As for [`Context::alloc_mr`]; the device does not choose its pages, or too few huge pages are reserved.
    fn alloc_mr_on(
        &self,
        pages: PageKind,
        pd: &Self::Pd,
        (length, access): (Bytes, AccessFlags),
    ) -> Result<Self::Mr, RegisterError> {
        let _ = (pages, pd, length, access);
        Err(RegisterError::Unsupported(Unsupported {
            feature: "choice of the pages of memory regions (verbs:NAME has one)",
            device: self.name().to_string(),
        }))
    }

    /// Creates a queue pair in RESET (`ibv_create_qp`).
    ///
    /// # Errors
    /// A size is out of the range of [`Context::caps`], an object belongs to another context, the device lacks the
    /// service, or has no more of them.
    fn create_qp(
        &self,
        pd: &Self::Pd,
        init: &QpInit<'_, Self::Cq>,
    ) -> Result<Self::Qp, CreateError>;

    /// Creates a queue pair that receives payloads of at most `max_inl_recv` bytes within the completion:
    /// the device writes once, and polling copies into the buffer. Verbs of vendors have it as an
    /// attribute (`max_inl_recv` of `ibv_exp_create_qp`).
    ///
    /// # Errors
    /// As for [`Context::create_qp`]; most devices do not support inline receives.
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

    /// Creates a queue pair whose requests are posted through `api` (`ibv_create_qp`, `ibv_create_qp_ex`).
    ///
    /// # Errors
    /// As for [`Context::create_qp`]; only devices behind libibverbs have two posting interfaces.
    fn create_qp_with_api(
        &self,
        pd: &Self::Pd,
        init: &QpInit<'_, Self::Cq>,
        api: PostApi,
    ) -> Result<Self::Qp, CreateError> {
        let _ = (pd, init, api);
        Err(CreateError::Unsupported(Unsupported {
            feature: "choice of posting interfaces (--api)",
            device: self.name().to_string(),
        }))
    }

    /// Creates a shared receive queue of at least these sizes (`ibv_create_srq`).
    ///
    /// # Errors
    /// The sizes are out of range, or the device has no shared receive queues.
    fn create_srq(&self, pd: &Self::Pd, caps: &SrqCaps) -> Result<Self::Srq, CreateError> {
        let _ = (pd, caps);
        Err(no_srq(&self.name().0).into())
    }

    /// Creates a queue pair that takes its receives from `srq` (`ibv_create_qp` with an SRQ). Receives
    /// are posted only there, and the receive sizes in `init` are ignored.
    ///
    /// # Errors
    /// As for [`Context::create_qp`].
    fn create_qp_with_srq(
        &self,
        pd: &Self::Pd,
        init: &QpInit<'_, Self::Cq>,
        srq: &Self::Srq,
    ) -> Result<Self::Qp, CreateError> {
        let _ = (pd, init, srq);
        Err(no_srq(&self.name().0).into())
    }

    /// Takes the oldest asynchronous event, or returns `None` without waiting (`ibv_get_async_event`,
    /// `ibv_ack_async_event`).
    ///
    /// # Errors
    /// The device failed.
    fn async_event(&self) -> Result<Option<AsyncEvent>, PollError> {
        Ok(None)
    }

    /// Creates an address handle for sending datagrams to a port (`ibv_create_ah`).
    ///
    /// # Errors
    /// The address cannot be reached from this port, `pd` belongs to another context, or the device lacks address
    /// handles.
    fn create_ah(&self, pd: &Self::Pd, address: &AddressVector) -> Result<Self::Ah, CreateError>;
}

/// Counters of a device by the driver's names. They only grow, except after an overflow or a reset by an
/// administrator.
pub type Counters = std::collections::BTreeMap<String, u64>;

/// Attributes for creating a queue pair (`ibv_qp_init_attr`).
#[derive(Clone, Copy, Debug)]
pub struct QpInit<'a, Cq> {
    /// Transport service.
    pub qp_type: QpType,
    /// Completion queue for sends.
    pub send_cq: &'a Cq,
    /// Completion queue for receives.
    pub recv_cq: &'a Cq,
    /// Sizes.
    pub caps: QpCaps,
}

impl<'a, Cq> QpInit<'a, Cq> {
    /// Returns the attributes of a queue pair whose sends and receives complete in one queue.
    pub const fn new(qp_type: QpType, cq: &'a Cq, caps: QpCaps) -> Self {
        QpInit {
            qp_type,
            send_cq: cq,
            recv_cq: cq,
            caps,
        }
    }
}

/// A protection domain (`ibv_pd`).
pub trait ProtectionDomain {}

/// An address handle (`ibv_ah`): the destination port of datagrams.
pub trait AddressHandle {
    /// Returns a reference for use in requests.
    fn handle(&self) -> AhRef<'_>;
}

/// A registered memory region (`ibv_mr`) and its memory.
///
/// The peer may change the memory at any time, so there is no access to it as a slice.
pub trait MemoryRegion {
    /// Returns the address of the first byte.
    fn addr(&self) -> u64;

    /// Returns the length.
    fn length(&self) -> Bytes;

    /// Returns the key for local use.
    fn lkey(&self) -> Lkey;

    /// Returns the key for the peer.
    fn rkey(&self) -> Rkey;

    /// Copies bytes at `offset` to `into`.
    ///
    /// # Errors
    /// The range is not within the region.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MemoryAccessError>;

    /// Copies `from` to `offset`.
    ///
    /// # Errors
    /// The range is not within the region.
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MemoryAccessError>;

    /// Loads a byte with acquire ordering: data that the peer placed before it is visible afterwards.
    ///
    /// # Errors
    /// The byte is not within the region.
    fn load(&self, offset: u64) -> Result<u8, MemoryAccessError>;

    /// Returns the region as words of 8 B that the CPU shares with the device; `None` if it is not aligned, or not this
    /// process's memory (a model). Whole words are loaded and stored without locks.
    fn words(&self) -> Option<&[AtomicU64]> {
        None
    }

    /// Returns an SGE of `length` bytes at `offset`, for a work request.
    ///
    /// # Errors
    /// The range is not within the region.
    fn sge(&self, offset: u64, length: u32) -> Result<Sge<'_>, MemoryAccessError>;

    /// Returns the address at `offset`, for the peer's requests.
    fn remote(&self, offset: u64) -> RemoteAddress {
        RemoteAddress {
            addr: self.addr().wrapping_add(offset),
            rkey: self.rkey(),
        }
    }
}

/// A completion channel (`ibv_comp_channel`). Programs wait on it through their station.
pub trait CompletionChannel {
    /// Sleeps until an event arrives (`ibv_get_cq_event`), for at most `timeout`. Returns the queue of
    /// the event, or `None` on timeout.
    ///
    /// # Errors
    /// The channel failed.
    fn get_event(&self, timeout: Span) -> std::io::Result<Option<CqId>>;
}

/// A completion queue (`ibv_cq`).
pub trait CompletionQueue {
    /// Returns its id in completion events.
    fn id(&self) -> CqId;

    /// Returns the number of entries.
    fn entries(&self) -> u32;

    /// Takes up to `into.len()` completions without waiting (`ibv_poll_cq`); returns their number.
    ///
    /// # Errors
    /// The queue overran (more completions than entries), or the device failed.
    fn poll(&self, into: &mut [WorkCompletion]) -> Result<usize, PollError>;

    /// Arms the queue for one event (`ibv_req_notify_cq`). Completions that arrived earlier do not raise
    /// it: poll once more after arming and before waiting.
    ///
    /// # Errors
    /// As for [`CompletionQueue::poll`].
    fn req_notify(&self, on: NotifyOn) -> Result<(), PollError>;

    /// Acknowledges `events` events taken from the channel (`ibv_ack_cq_events`).
    fn ack_events(&self, events: u32);
}

/// The member of a multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupMember {
    /// It sends to the group.
    Sender,
    /// It receives what is sent to the group.
    Receiver,
}

/// A queue pair (`ibv_qp`).
pub trait QueuePair: Sized {
    /// Returns the number.
    fn qpn(&self) -> Qpn;

    /// Returns the sizes, which are at least the requested ones.
    fn caps(&self) -> QpCaps;

    /// Queries the state (`ibv_query_qp`).
    fn state(&self) -> QpState;

    /// Changes state and attributes (`ibv_modify_qp`).
    ///
    /// # Errors
    /// The table of transitions ([`crate::transition`]) has no such edge, an attribute is missing, superfluous or out
    /// of range; or the driver refuses it. State and attributes are as before.
    fn modify(&self, attr: &QpAttr) -> Result<(), ModifyQpError>;

    /// Listens for the peer's connection manager, if the device uses one. Returns the address for the peer
    /// ([`Endpoint::cm`](crate::Endpoint::cm)), or `None` if programs connect queue pairs themselves.
    ///
    /// # Errors
    /// The connection manager cannot listen.
    fn listen(&self) -> Result<Option<SocketAddr>, ConnectError> {
        Ok(None)
    }

    /// Connects the queue pair to the peer's and moves it from INIT to RTS. Both sides call this at the same
    /// time; waits for the peer have a timeout.
    ///
    /// # Errors
    /// The peer refuses, does not answer in time, or cannot be reached; or the queue pair is not in INIT.
    fn connect(&self, connection: &Connection) -> Result<(), ConnectError> {
        connection.by_hand(self)
    }

    /// Attaches a UD queue pair to a multicast group (`ibv_attach_mcast`). Attaching twice has no further
    /// effect. `lid` is the group's LID on InfiniBand, 0 elsewhere.
    ///
    /// Datagrams are sent to a group by an address handle with its GID, and to [`Qpn::MULTICAST`].
    ///
    /// # Errors
    /// `gid` is not a multicast GID, the queue pair is not UD, or the device does not support multicast.
    fn attach_mcast(&self, gid: Gid, lid: Lid) -> Result<(), McastError>;

    /// Detaches the queue pair from a multicast group (`ibv_detach_mcast`), by the GID and LID with which it was
    /// attached. Destroying the queue pair detaches it, too.
    ///
    /// # Errors
    /// The queue pair is not attached to that group.
    fn detach_mcast(&self, gid: Gid, lid: Lid) -> Result<(), McastError>;

    /// Joins a multicast group. A receiver is attached to it ([`QueuePair::attach_mcast`]). Returns the GID and LID
    /// of the group, for address handles.
    ///
    /// A device that uses a connection manager joins through it (`rdma_join_multicast`): on InfiniBand the subnet
    /// manager creates the group, on RoCE the host reports its membership to the network's switches.
    ///
    /// # Errors
    /// As for [`QueuePair::attach_mcast`]; or the connection manager refuses.
    fn join_mcast(&self, gid: Gid, member: GroupMember) -> Result<(Gid, Lid), McastError> {
        if member == GroupMember::Receiver {
            self.attach_mcast(gid, Lid(0))?;
        }
        Ok((gid, Lid(0)))
    }

    /// Leaves a group that a receiver has joined by [`QueuePair::join_mcast`] with this GID.
    ///
    /// # Errors
    /// The queue pair is not in that group.
    fn leave_mcast(&self, gid: Gid) -> Result<(), McastError> {
        self.detach_mcast(gid, Lid(0))
    }

    /// Posts a list of send requests in one call (`ibv_post_send`). On an error the requests before
    /// [`PostError::index`] are posted.
    ///
    /// # Errors
    /// The queue is full, the queue pair's state does not allow posting, or a request is invalid. Errors of its
    /// memory or of the peer are reported by its completion.
    fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError>;

    /// Posts a list of receive requests in one call (`ibv_post_recv`). On an error the requests before
    /// [`PostError::index`] are posted.
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`]; or the queue pair uses a shared receive queue.
    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError>;
}
