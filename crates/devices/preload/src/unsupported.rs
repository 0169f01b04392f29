//! Operations that the user-space NIC does not have. Each has the errno of the manual pages, `EOPNOTSUPP`.

use std::ffi::{c_char, c_int, c_void};

use crate::call::{self, Refusal};

/// Makes functions that return an operation for a table, of the type `F` that the table needs. `status` operations
/// return the errno, `object` operations `NULL`.
macro_rules! unsupported {
    ($($kind:ident $name:ident: $reason:literal,)*) => {
        $(
            pub(crate) fn $name<F>() -> Option<F> {
                unsupported!(@$kind $name $reason);
                let operation = operation as *const ();
                assert_eq!(size_of::<F>(), size_of_val(&operation));
                // SAFETY: `F` is a function pointer of a table. With the calling conventions of C on Linux a
                // function may ignore arguments, and its result is where a caller of this operation expects it.
                Some(unsafe { std::mem::transmute_copy::<*const (), F>(&operation) })
            }
        )*
    };
    (@status $name:ident $reason:literal) => {
        extern "C" fn operation() -> c_int {
            call::status(stringify!($name), || Err(Refusal::unsupported($reason)))
        }
    };
    (@object $name:ident $reason:literal) => {
        extern "C" fn operation() -> *mut c_void {
            call::pointer(stringify!($name), || Err(Refusal::unsupported($reason)))
        }
    };
}

unsupported! {
    status read_counters: "the device has no flow counters",
    status attach_counters_point_flow: "the device has no flow counters",
    object create_counters: "the device has no flow counters",
    status destroy_counters: "the device has no flow counters",
    status modify_flow_action_esp: "the device does not steer flows",
    status destroy_flow_action: "the device does not steer flows",
    object create_flow_action_esp: "the device does not steer flows",
    status modify_qp_rate_limit: "the device does not pace queue pairs",
    status modify_cq: "the device does not moderate completion events",
    status post_srq_ops: "the device does not match tags",
    status destroy_rwq_ind_table: "the device has no work queues",
    object create_rwq_ind_table: "the device has no work queues",
    status destroy_wq: "the device has no work queues",
    status modify_wq: "the device has no work queues",
    object create_wq: "the device has no work queues",
    status destroy_flow: "the device does not steer flows",
    object create_flow: "the device does not steer flows",
}

/// Makes exported functions that are not supported.
macro_rules! unsupported_exports {
    ($($kind:ident $name:ident: $reason:literal,)*) => {
        $(unsupported_exports!(@$kind $name $reason);)*
    };
    (@status $name:ident $reason:literal) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            call::status(stringify!($name), || Err(Refusal::unsupported($reason)))
        }
    };
    (@object $name:ident $reason:literal) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> *mut c_void {
            call::pointer(stringify!($name), || Err(Refusal::unsupported($reason)))
        }
    };
    (@none $name:ident $reason:literal) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            call::status(stringify!($name), || Err(Refusal::unsupported($reason)));
        }
    };
}

unsupported_exports! {
    object ibv_import_device: "devices of other processes cannot be imported",
    object ibv_import_pd: "protection domains of other processes cannot be imported",
    none ibv_unimport_pd: "protection domains of other processes cannot be imported",
    object ibv_import_mr: "memory regions of other processes cannot be imported",
    none ibv_unimport_mr: "memory regions of other processes cannot be imported",
    object ibv_import_dm: "device memory of other processes cannot be imported",
    none ibv_unimport_dm: "device memory of other processes cannot be imported",
    object ibv_reg_dmabuf_mr: "the device cannot access memory of other devices (dma-buf)",
    status ibv_resolve_eth_l2_from_gid: "the kernel's IP stack resolves the addresses of peers",
    status ibv_query_ece: "the device has no enhanced connection establishment",
    status ibv_set_ece: "the device has no enhanced connection establishment",
}

/// Returns whether data arrives in order: not guaranteed.
#[unsafe(no_mangle)]
extern "C" fn ibv_query_qp_data_in_order() -> c_int {
    0
}

/// Registers a provider. Those of real devices are not loaded while this library replaces libibverbs.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_register_driver(_name: *const c_char, _init: *const c_void) {}

/// Whether `ibv_fork_init` has been called has no effect: registered memory stays mapped in the parent, and a child
/// that writes to it gets its own copy.
#[unsafe(no_mangle)]
extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `IBV_FORK_UNNEEDED`.
const FORK_UNNEEDED: c_int = 2;

#[unsafe(no_mangle)]
extern "C" fn ibv_is_fork_initialized() -> c_int {
    FORK_UNNEEDED
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
