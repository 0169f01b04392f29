//! Operations that the user-space NIC does not have. Each has the errno of the manual pages, `EOPNOTSUPP`.

use std::ffi::{c_char, c_int, c_void};

use adverb_abi::{
    ibv_ah_attr, ibv_context, ibv_ece, ibv_mr, ibv_pd, ibv_qp, rdma_addrinfo, rdma_cm_id,
};

use crate::call::{self, Refusal};
use crate::real;

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

/// Makes exported functions that are not supported by our devices.
macro_rules! unsupported_exports {
    ($($kind:ident $name:ident($object:ident: $owner:ty $(, $argument:ident: $type:ty)*): $reason:literal,)*) => {
        $(unsupported_exports!(@$kind $name($object: $owner $(, $argument: $type)*) $reason);)*
    };
    (@status $name:ident($object:ident: $owner:ty $(, $argument:ident: $type:ty)*) $reason:literal) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($object: $owner $(, $argument: $type)*) -> c_int {
            forward!($object => $name($object $(, $argument)*));
            call::status(stringify!($name), || Err(Refusal::unsupported($reason)))
        }
    };
    (@object $name:ident($object:ident: $owner:ty $(, $argument:ident: $type:ty)*) $reason:literal) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($object: $owner $(, $argument: $type)*) -> *mut c_void {
            forward!($object => $name($object $(, $argument)*));
            call::pointer(stringify!($name), || Err(Refusal::unsupported($reason)))
        }
    };
    (@number $name:ident($object:ident: $owner:ty $(, $argument:ident: $type:ty)*) $reason:literal) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($object: $owner $(, $argument: $type)*) -> c_int {
            forward!($object => $name($object $(, $argument)*));
            call::number(stringify!($name), || Err(Refusal::unsupported($reason)))
        }
    };
    (@none $name:ident($object:ident: $owner:ty) $reason:literal) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($object: $owner) {
            forward!($object => $name($object));
            call::status(stringify!($name), || Err(Refusal::unsupported($reason)));
        }
    };
}

unsupported_exports! {
    object ibv_import_device(cmd_fd: c_int): "devices of other processes cannot be imported",
    object ibv_import_pd(context: *mut ibv_context, handle: u32): "protection domains of other processes cannot be imported",
    none ibv_unimport_pd(pd: *mut ibv_pd): "protection domains of other processes cannot be imported",
    object ibv_import_mr(pd: *mut ibv_pd, handle: u32): "memory regions of other processes cannot be imported",
    none ibv_unimport_mr(mr: *mut ibv_mr): "memory regions of other processes cannot be imported",
    object ibv_import_dm(context: *mut ibv_context, handle: u32): "device memory of other processes cannot be imported",
    none ibv_unimport_dm(dm: *mut c_void): "device memory of other processes cannot be imported",
    object ibv_reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int): "the device cannot access memory of other devices (dma-buf)",
    status ibv_resolve_eth_l2_from_gid(context: *mut ibv_context, attr: *mut ibv_ah_attr, mac: *mut u8, vid: *mut u16): "the kernel's IP stack resolves the addresses of peers",
    status ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece): "the device has no enhanced connection establishment",
    status ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece): "the device has no enhanced connection establishment",
    object ibv_alloc_dmah(context: *mut ibv_context, attr: *mut c_void): "the device has no DMA handles",
    status ibv_dealloc_dmah(dmah: *mut c_void): "the device has no DMA handles",
    object ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *mut c_void): "the device has no DMA handles; use ibv_reg_mr",
    number ibv_dm_export_dmabuf_fd(dm: *mut c_void): "device memory cannot be exported to other devices",
    status ibv_query_port_speed(context: *mut ibv_context, port: u32, speed: *mut u64): "use ibv_query_port",
    object ibv_alloc_buf(pd: *mut ibv_pd, size: usize, buf: *mut *mut c_void): "use ibv_reg_mr",
    none ibv_free_buf(buf: *mut c_void): "use ibv_reg_mr",
    object ibv_reg_buf_mr(pd: *mut ibv_pd, buf: *mut c_void, addr: *mut c_void, length: usize, access: c_int): "use ibv_reg_mr",
    number rdma_resolve_addrinfo(id: *mut rdma_cm_id, node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo): "use rdma_getaddrinfo",
    number rdma_query_addrinfo(id: *mut rdma_cm_id, info: *mut *mut rdma_addrinfo): "use rdma_getaddrinfo",
    number rdma_write_cm_event(id: *mut rdma_cm_id, event: u32, status: c_int, argument: u64): "programs cannot make events of librdmacm",
}

/// Returns whether data arrives in order: not guaranteed.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: u32, flags: u32) -> c_int {
    forward!(qp => ibv_query_qp_data_in_order(qp, op, flags));
    0
}

/// Registers a provider. libibverbs has ignored this old interface for long, too.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_register_driver(_name: *const c_char, _init: *const c_void) {}

/// Whether `ibv_fork_init` has been called has no effect on our devices: registered memory stays mapped in the parent,
/// and a child that writes to it gets its own copy.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_fork_init() -> c_int {
    forward!(real::Any => ibv_fork_init());
    0
}

/// `IBV_FORK_UNNEEDED`.
const FORK_UNNEEDED: c_int = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_is_fork_initialized() -> c_int {
    forward!(real::Any => ibv_is_fork_initialized());
    FORK_UNNEEDED
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dontfork_range(base: *mut c_void, size: usize) -> c_int {
    forward!(real::Any => ibv_dontfork_range(base, size));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dofork_range(base: *mut c_void, size: usize) -> c_int {
    forward!(real::Any => ibv_dofork_range(base, size));
    0
}
