//! Kinds of events.

use std::ffi::{CStr, c_char};

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
