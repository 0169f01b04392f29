//! Enumerations as text, in the words of rdma-core, which scripts compare.

use std::ffi::{CStr, c_char, c_int};

const UNKNOWN: &CStr = c"unknown";

/// `enum ibv_node_type`, from 1.
const NODE_TYPES: &[&CStr] = &[
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

/// `enum ibv_port_state`.
const PORT_STATES: &[&CStr] = &[
    c"no state change (NOP)",
    c"down",
    c"init",
    c"armed",
    c"active",
    c"active defer",
];

/// `enum ibv_event_type`.
const EVENT_TYPES: &[&CStr] = &[
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

/// `enum ibv_wc_status`.
const WC_STATUSES: &[&CStr] = &[
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

/// Returns the name of `code` in a table whose first entry has the code `first`.
fn name(table: &[&'static CStr], first: c_int, code: c_int) -> *const c_char {
    let index = code
        .checked_sub(first)
        .and_then(|index| usize::try_from(index).ok());
    index
        .and_then(|index| table.get(index))
        .unwrap_or(&UNKNOWN)
        .as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_node_type_str(code: c_int) -> *const c_char {
    name(NODE_TYPES, 1, code)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_port_state_str(code: c_int) -> *const c_char {
    name(PORT_STATES, 0, code)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_event_type_str(code: c_int) -> *const c_char {
    name(EVENT_TYPES, 0, code)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_wc_status_str(code: c_int) -> *const c_char {
    name(WC_STATUSES, 0, code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_to_their_codes() {
        // SAFETY: the functions return C strings that are never freed.
        let text = |name: *const c_char| unsafe { CStr::from_ptr(name) }.to_str().unwrap();
        assert_eq!(
            text(ibv_node_type_str(adverb_abi::IBV_NODE_CA)),
            "InfiniBand channel adapter"
        );
        assert_eq!(text(ibv_port_state_str(4)), "active");
        assert_eq!(
            text(ibv_event_type_str(
                adverb_abi::IBV_EVENT_QP_LAST_WQE_REACHED as c_int
            )),
            "last WQE reached"
        );
        assert_eq!(
            text(ibv_wc_status_str(12)),
            "transport retry counter exceeded"
        );
        for code in [-1, 0, 8, c_int::MIN] {
            assert_eq!(text(ibv_node_type_str(code)), "unknown");
        }
    }
}
