//! Options and port numbers of ids.

use std::ffi::{c_int, c_void};

use adverb_abi::rdma_cm_id;

use super::address;
use super::id::Shared;
use crate::call::{self, Refusal};
use crate::object::lock;

/// Returns the port of an address in C's form, in network order.
fn port_of(address: &libc::sockaddr_storage) -> u16 {
    // SAFETY: a storage is an address of the family that it names.
    let address = unsafe { address::read(std::ptr::from_ref(address).cast()) };
    address.map_or(0, |address| address.port().to_be())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the program passes an id.
    port_of(unsafe { &(*id).route.addr.src_storage })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the program passes an id.
    port_of(unsafe { &(*id).route.addr.dst_storage })
}

/// `RDMA_OPTION_ID` and its options.
const OPTION_ID: c_int = 0;
const OPTION_TOS: c_int = 0;
const OPTION_REUSEADDR: c_int = 1;
const OPTION_AFONLY: c_int = 2;
const OPTION_ACK_TIMEOUT: c_int = 3;

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: usize,
) -> c_int {
    call::number("rdma_set_option", || {
        let shared = Shared::of(id)?;
        let mut state = lock(&shared.state);
        // SAFETY: the program passes a value of `length` bytes.
        let first = || unsafe { value.cast::<u8>().read() };
        match (level, name, length) {
            (OPTION_ID, OPTION_TOS, 1) => state.peer.traffic_class = first(),
            (OPTION_ID, OPTION_ACK_TIMEOUT, 1) if first() < 32 => {
                state.peer.ack_timeout = first();
            }
            (OPTION_ID, OPTION_REUSEADDR, 4) => {
                // SAFETY: as above.
                state.sharing.reuses_address =
                    unsafe { value.cast::<c_int>().read_unaligned() } != 0;
            }
            (OPTION_ID, OPTION_AFONLY, 4) => {
                // SAFETY: as above.
                let only = unsafe { value.cast::<c_int>().read_unaligned() } != 0;
                state.sharing.only_own_version = Some(only);
            }
            (OPTION_ID, OPTION_ACK_TIMEOUT, 1) => {
                return Err(Refusal::invalid(format!(
                    "invalid ACK timeout {}: expected 0 to 31",
                    first()
                )));
            }
            (OPTION_ID, OPTION_TOS..=OPTION_ACK_TIMEOUT, _) => {
                return Err(Refusal::invalid(format!(
                    "a value of {length} B does not fit option {name}"
                )));
            }
            _ => {
                return Err(Refusal::new(
                    libc::ENOSYS,
                    format!("option {name} of level {level} is not supported"),
                ));
            }
        }
        Ok(0)
    })
}
