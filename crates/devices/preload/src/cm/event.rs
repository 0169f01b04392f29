//! Events, as the program gets them.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use adverb_abi::{rdma_cm_event, rdma_cm_event_param, rdma_cm_id, rdma_conn_param, rdma_ud_param};

use super::connect;
use super::id::Shared;
use crate::call;
use crate::object::Object;

/// `enum rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    dead_code,
    reason = "the kernel reports some that this device has no cause for"
)]
#[repr(u32)]
pub(crate) enum Kind {
    AddrResolved,
    AddrError,
    RouteResolved,
    RouteError,
    ConnectRequest,
    ConnectResponse,
    ConnectError,
    Unreachable,
    Rejected,
    Established,
    Disconnected,
    DeviceRemoval,
    MulticastJoin,
    MulticastError,
    AddrChange,
    TimewaitExit,
}

const NAMES: [&CStr; 16] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
];

/// Parameters of an event; the private data are separate.
#[derive(Clone, Copy)]
pub(super) enum Param {
    Conn(rdma_conn_param),
    Ud(rdma_ud_param),
}

// SAFETY: the pointers to private data are null until the program gets the event.
unsafe impl Send for Param {}

impl std::fmt::Debug for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Param::Conn(_) => "Conn",
            Param::Ud(_) => "Ud",
        })
    }
}

/// An event that the program has not taken.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) kind: Kind,
    pub(super) status: c_int,
    pub(super) id: Arc<Shared>,
    /// Connection requests: the id that listens.
    pub(super) listener: Option<Arc<Shared>>,
    pub(super) param: Param,
    pub(super) private_data: Vec<u8>,
    /// The peer has accepted. The program's thread connects the queue pair when it takes the event.
    pub(super) is_reply: bool,
    /// Multicast: the program's context, which the event has instead of private data.
    pub(super) context: Option<usize>,
}

/// An event that the program has taken and not acknowledged.
struct Taken {
    id: Arc<Shared>,
    listener: Option<Arc<Shared>>,
    _private_data: Vec<u8>,
}

type EventObject = Object<rdma_cm_event, Taken>;

impl Event {
    pub(super) fn new(kind: Kind, status: c_int, id: &Arc<Shared>) -> Self {
        Event {
            kind,
            status,
            id: id.clone(),
            listener: None,
            param: Param::Conn(rdma_conn_param::zeroed()),
            private_data: Vec::new(),
            is_reply: false,
            context: None,
        }
    }

    /// Whether it is an event of `id`: its own, or a request to it.
    pub(super) fn is_of(&self, id: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.id, id) || self.listener.as_ref().is_some_and(|l| Arc::ptr_eq(l, id))
    }

    /// Makes C's event. An accepted connection is established now, if the id has a queue pair.
    pub(super) fn hand_out(mut self) -> *mut rdma_cm_event {
        if self.is_reply {
            (self.kind, self.status) = connect::finish(&self.id);
        }
        let Event {
            kind,
            status,
            id,
            listener,
            param,
            private_data,
            context,
            ..
        } = self;
        let data = match (context, private_data.is_empty()) {
            (Some(context), _) => std::ptr::with_exposed_provenance(context),
            (None, true) => std::ptr::null(),
            (None, false) => private_data.as_ptr().cast(),
        };
        let length = private_data.len() as u8;
        let param = match param {
            Param::Conn(conn) => rdma_cm_event_param {
                conn: rdma_conn_param {
                    private_data: data,
                    private_data_len: length,
                    ..conn
                },
            },
            Param::Ud(ud) => rdma_cm_event_param {
                ud: rdma_ud_param {
                    private_data: data,
                    private_data_len: length,
                    ..ud
                },
            },
        };
        let c_of = |shared: &Option<Arc<Shared>>| -> *mut rdma_cm_id {
            shared.as_ref().map_or(std::ptr::null_mut(), |l| l.c())
        };
        let c = rdma_cm_event {
            id: id.c(),
            listen_id: c_of(&listener),
            event: kind as u32,
            status,
            param,
        };
        id.event_taken();
        listener.iter().for_each(|listener| listener.event_taken());
        let own = Taken {
            id,
            listener,
            _private_data: private_data,
        };
        Object::create(c, own)
    }
}

/// Frees an event.
///
/// # Safety
/// `event` is from [`Event::hand_out`], and freed once.
pub(super) unsafe fn acknowledge(event: *mut rdma_cm_event) {
    // SAFETY: the caller's.
    let Taken { id, listener, .. } = &unsafe { EventObject::of(event) }.own;
    let (id, listener) = (id.clone(), listener.clone());
    // SAFETY: the caller's.
    unsafe { EventObject::destroy(event) };
    id.event_acknowledged();
    listener.iter().for_each(|l| l.event_acknowledged());
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    call::number("rdma_ack_cm_event", || {
        if event.is_null() {
            return Err(call::Refusal::invalid("the event is NULL"));
        }
        // SAFETY: the program acknowledges an event that it has taken, once.
        unsafe { acknowledge(event) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn rdma_event_str(event: u32) -> *const c_char {
    let name = NAMES.get(event as usize);
    name.unwrap_or(&c"UNKNOWN EVENT").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_to_their_codes() {
        let name = |kind: Kind| NAMES[kind as usize].to_str().unwrap();
        assert_eq!(name(Kind::AddrResolved), "RDMA_CM_EVENT_ADDR_RESOLVED");
        assert_eq!(name(Kind::Established), "RDMA_CM_EVENT_ESTABLISHED");
        assert_eq!(name(Kind::TimewaitExit), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
        assert_eq!(rdma_event_str(16), c"UNKNOWN EVENT".as_ptr());
    }
}
