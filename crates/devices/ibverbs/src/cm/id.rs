//! Connection identifiers (`rdma_cm_id`): one end of a connection, or a listener.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Instant;

use adverb_abi as abi;
use adverb_verbs::{ConnectError, PortNum, QpState};

use super::address::{from_c, to_c};
use super::event::{Channel, Event};
use crate::library::CmLibrary;
use crate::raw::{check, text};

/// `rdma_cm_id`, disconnected and destroyed when dropped, without waiting for the peer.
#[derive(Debug)]
pub(crate) struct Id {
    raw: NonNull<abi::rdma_cm_id>,
    channel: Arc<Channel>,
}

// SAFETY: librdmacm locks its objects, so any thread may call it; the pointer is only passed to it.
unsafe impl Send for Id {}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: the id is destroyed once, and all its events are acknowledged. Disconnecting an id
        // that is not connected fails without effect.
        unsafe {
            (self.library().rdma_disconnect)(self.raw.as_ptr());
            (self.library().rdma_destroy_id)(self.raw.as_ptr());
        }
    }
}

impl Id {
    /// Creates an id with its own event channel, for connections.
    pub(super) fn new(library: &'static CmLibrary) -> Result<Self, ConnectError> {
        Id::of(library, abi::RDMA_PS_TCP)
    }

    /// Creates an id that is bound to `address`, and so to its device.
    pub(super) fn bound(
        library: &'static CmLibrary,
        space: u32,
        address: SocketAddr,
    ) -> Result<Self, ConnectError> {
        let id = Id::of(library, space)?;
        let mut c = to_c(address);
        id.call(&format!("bind to {}", address.ip()), |library, id| {
            // SAFETY: the id is not destroyed yet; the address has the layout of its family.
            unsafe { (library.rdma_bind_addr)(id, (&raw mut c).cast()) }
        })?;
        Ok(id)
    }

    fn of(library: &'static CmLibrary, space: u32) -> Result<Self, ConnectError> {
        let channel = Channel::new(library).map_err(system("open the connection manager"))?;
        let mut raw = ptr::null_mut();
        let (place, context) = (&raw mut raw, ptr::null_mut());
        // SAFETY: the channel is not destroyed yet; `place` is exclusive.
        check(unsafe { (library.rdma_create_id)(channel.raw.as_ptr(), place, context, space) })
            .map_err(system("make a connection identifier"))?;
        Ok(Id {
            raw: NonNull::new(raw).expect("an id was made"),
            channel: Arc::new(channel),
        })
    }

    fn library(&self) -> &'static CmLibrary {
        self.channel.library
    }

    /// Calls the library with this id; `action` describes the call in an error.
    pub(super) fn call(
        &self,
        action: &str,
        call: impl FnOnce(&CmLibrary, *mut abi::rdma_cm_id) -> c_int,
    ) -> Result<(), ConnectError> {
        check(call(self.library(), self.raw.as_ptr())).map_err(system(action))
    }

    /// Waits until `end` for the next event of this id or of a connection request to it; returns `late`
    /// on timeout.
    pub(super) fn next(
        &self,
        end: Instant,
        late: impl FnOnce() -> ConnectError,
    ) -> Result<Event, ConnectError> {
        let event = self.channel.next(end);
        let event = event.map_err(system("wait for the connection manager"))?;
        event.ok_or_else(late)
    }

    /// Returns the new id of a connection request.
    pub(super) fn requested(&self, event: &Event) -> Option<Id> {
        let is_request = event.kind == abi::RDMA_CM_EVENT_CONNECT_REQUEST;
        let raw = NonNull::new(event.id).filter(|_| is_request)?;
        let channel = self.channel.clone();
        Some(Id { raw, channel })
    }

    /// Returns the address of the peer.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: the id is not destroyed yet; the storage has room for an address of any family.
        unsafe {
            let address = &raw const (*self.raw.as_ptr()).route.addr.dst_storage;
            from_c(address.cast())
        }
    }

    /// Returns the device and port to which the connection manager bound the id.
    pub(super) fn device(&self) -> Option<(String, PortNum)> {
        // SAFETY: the id is not destroyed yet; librdmacm never closes a context that it opened.
        unsafe {
            let id = self.raw.as_ref();
            let context = id.verbs.as_ref()?;
            Some((text(&(*context.device).name), PortNum(id.port_num)))
        }
    }

    /// Returns attributes and mask of the transition to `state` (`rdma_init_qp_attr`).
    pub(super) fn attributes(
        &self,
        state: QpState,
    ) -> Result<(abi::ibv_qp_attr, u32), ConnectError> {
        let (mut attr, mut mask) = (abi::ibv_qp_attr::zeroed(), 0);
        attr.qp_state = state as u32;
        let action = format!("ask the connection manager for the attributes of {state}");
        self.call(&action, |library, id| {
            // SAFETY: the id is not destroyed yet, and the structures are exclusive.
            unsafe { (library.rdma_init_qp_attr)(id, &raw mut attr, &raw mut mask) }
        })?;
        // Some kernels set internal bits above the bits of verbs.
        Ok((attr, mask as u32 & ((abi::IBV_QP_DEST_QPN << 1) - 1)))
    }
}

/// An id that listens for connection requests.
#[derive(Debug)]
pub(crate) struct Listener {
    id: Id,
    /// The address it listens on.
    pub(crate) address: SocketAddr,
}

impl Listener {
    /// Listens on any port of `address`.
    pub(crate) fn new(
        library: &'static CmLibrary,
        address: SocketAddr,
    ) -> Result<Self, ConnectError> {
        /// Requests that may be pending: the peer's and some from other programs.
        const BACKLOG: c_int = 8;
        let id = Id::bound(library, abi::RDMA_PS_TCP, address)?;
        id.call(&format!("listen on {}", address.ip()), |library, id| {
            // SAFETY: the id is not destroyed yet.
            unsafe { (library.rdma_listen)(id, BACKLOG) }
        })?;
        // SAFETY: the id is not destroyed yet.
        let port = u16::from_be(unsafe { (library.rdma_get_src_port)(id.raw.as_ptr()) });
        let address = SocketAddr::new(address.ip(), port);
        Ok(Listener { id, address })
    }

    pub(super) fn id(&self) -> &Id {
        &self.id
    }
}

/// Returns the error that `action` failed.
fn system(action: &str) -> impl FnOnce(io::Error) -> ConnectError {
    let action = format!("cannot {action}");
    |source| ConnectError::System { action, source }
}
