//! The tables of functions of libibverbs and librdmacm, loaded at run time.
//!
//! Why calling through these tables is safe:
//! - Each library is loaded once and never unloaded (it is in a `static`), so no pointer dangles, and
//!   neither do the tables of drivers, which libibverbs loads and keeps.
//! - The soname (`.so.1`) fixes the binary interface: rdma-core changes a function only by adding a
//!   new symbol version. `crates/devices/abi` has the layouts, and its tests compare them with the C headers.
//! - A function that older versions lack is optional or refused by name when the library is loaded;
//!   there is no lazy binding that could fail later.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

use adverb_abi as abi;

/// The verbs library.
const IBVERBS: &str = "libibverbs.so.1";
/// The connection manager.
const RDMACM: &str = "librdmacm.so.1";

/// A library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LibraryError {
    /// It is not installed or cannot be loaded.
    #[error("{library} cannot be loaded: {error}")]
    Missing {
        library: &'static str,
        error: String,
    },
    /// It lacks a required function.
    #[error("{library} has no {function}: it is older than rdma-core")]
    Symbol {
        library: &'static str,
        function: &'static str,
    },
}

impl LibraryError {
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            LibraryError::Missing { .. } if cfg!(target_feature = "crt-static") => {
                "this program is linked statically and cannot load libraries: \
                 use one built for a glibc target, such as x86_64-unknown-linux-gnu"
            }
            LibraryError::Missing { library, .. } if *library == RDMACM => {
                "install it: package librdmacm1 (Debian, Ubuntu, SUSE) or librdmacm (Fedora, RHEL)"
            }
            LibraryError::Missing { .. } => {
                "install it: packages libibverbs1 and ibverbs-providers (Debian, Ubuntu), \
                 libibverbs (Fedora, RHEL) or libibverbs1 (SUSE)"
            }
            // rdma_establish was added in 23.
            LibraryError::Symbol { library, .. } if *library == RDMACM => {
                "install rdma-core 23 or later"
            }
            LibraryError::Symbol { .. } => "install rdma-core 17 or later",
        }
    }
}

macro_rules! library {
    (
        $(#[$doc:meta])* $struct:ident = $soname:expr;
        required { $($name:ident($($arg:ty),*) $(-> $ret:ty)?;)* }
        optional { $($option:ident = $symbol:literal: $type:ty;)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $struct {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub(crate) $option: Option<$type>,)*
            _library: libloading::Library,
        }

        impl $struct {
            /// Returns the library; the first call loads it.
            pub(crate) fn get() -> Result<&'static Self, LibraryError> {
                static LIBRARY: OnceLock<Result<$struct, LibraryError>> = OnceLock::new();
                let loaded = LIBRARY.get_or_init(|| {
                    // SAFETY: the initializers of rdma-core's libraries only set up their own state.
                    let library = unsafe { libloading::Library::new($soname) };
                    Self::resolve(library.map_err(|e| LibraryError::Missing {
                        library: $soname,
                        error: e.to_string(),
                    })?)
                });
                loaded.as_ref().map_err(Clone::clone)
            }

            fn resolve(library: libloading::Library) -> Result<Self, LibraryError> {
                Ok($struct {
                    // SAFETY: the library's headers declare the functions with these types, and the
                    // library stays loaded as long as the pointers exist.
                    $($name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                        .map_err(|_| LibraryError::Symbol {
                            library: $soname,
                            function: stringify!($name),
                        })?,)*
                    // SAFETY: as for the required functions: type and lifetime are the same.
                    $($option: unsafe { library.get(concat!($symbol, "\0").as_bytes()) }
                        .ok().map(|f| *f),)*
                    _library: library,
                })
            }
        }
    };
}

type QueryGidTable = unsafe extern "C" fn(
    *mut abi::ibv_context,
    *mut abi::ibv_gid_entry,
    usize,
    u32,
    usize,
) -> isize;

library! {
    /// The functions of `libibverbs`. Those that its headers define inline are called through the
    /// table of the driver instead.
    Library = IBVERBS;
    required {
        ibv_get_device_list(*mut c_int) -> *mut *mut abi::ibv_device;
        ibv_free_device_list(*mut *mut abi::ibv_device);
        ibv_open_device(*mut abi::ibv_device) -> *mut abi::ibv_context;
        ibv_close_device(*mut abi::ibv_context) -> c_int;
        ibv_get_async_event(*mut abi::ibv_context, *mut abi::ibv_async_event) -> c_int;
        ibv_ack_async_event(*mut abi::ibv_async_event);
        ibv_query_device(*mut abi::ibv_context, *mut abi::ibv_device_attr) -> c_int;
        ibv_query_port(*mut abi::ibv_context, u8, *mut abi::ibv_port_attr) -> c_int;
        ibv_alloc_pd(*mut abi::ibv_context) -> *mut abi::ibv_pd;
        ibv_dealloc_pd(*mut abi::ibv_pd) -> c_int;
        ibv_reg_mr(*mut abi::ibv_pd, *mut c_void, usize, c_int) -> *mut abi::ibv_mr;
        ibv_dereg_mr(*mut abi::ibv_mr) -> c_int;
        ibv_create_comp_channel(*mut abi::ibv_context) -> *mut abi::ibv_comp_channel;
        ibv_destroy_comp_channel(*mut abi::ibv_comp_channel) -> c_int;
        ibv_create_cq(*mut abi::ibv_context, c_int, *mut c_void, *mut abi::ibv_comp_channel, c_int)
            -> *mut abi::ibv_cq;
        ibv_destroy_cq(*mut abi::ibv_cq) -> c_int;
        ibv_get_cq_event(*mut abi::ibv_comp_channel, *mut *mut abi::ibv_cq, *mut *mut c_void)
            -> c_int;
        ibv_ack_cq_events(*mut abi::ibv_cq, c_uint);
        ibv_create_srq(*mut abi::ibv_pd, *mut abi::ibv_srq_init_attr) -> *mut abi::ibv_srq;
        ibv_modify_srq(*mut abi::ibv_srq, *mut abi::ibv_srq_attr, c_int) -> c_int;
        ibv_query_srq(*mut abi::ibv_srq, *mut abi::ibv_srq_attr) -> c_int;
        ibv_destroy_srq(*mut abi::ibv_srq) -> c_int;
        ibv_create_qp(*mut abi::ibv_pd, *mut abi::ibv_qp_init_attr) -> *mut abi::ibv_qp;
        ibv_modify_qp(*mut abi::ibv_qp, *mut abi::ibv_qp_attr, c_int) -> c_int;
        ibv_query_qp(*mut abi::ibv_qp, *mut abi::ibv_qp_attr, c_int, *mut abi::ibv_qp_init_attr)
            -> c_int;
        ibv_destroy_qp(*mut abi::ibv_qp) -> c_int;
        ibv_attach_mcast(*mut abi::ibv_qp, *const abi::ibv_gid, u16) -> c_int;
        ibv_detach_mcast(*mut abi::ibv_qp, *const abi::ibv_gid, u16) -> c_int;
        ibv_create_ah(*mut abi::ibv_pd, *mut abi::ibv_ah_attr) -> *mut abi::ibv_ah;
        ibv_destroy_ah(*mut abi::ibv_ah) -> c_int;
    }
    optional {
        query_gid_table = "_ibv_query_gid_table": QueryGidTable;
        qp_to_qp_ex = "ibv_qp_to_qp_ex": abi::QpToQpEx;
    }
}

library! {
    /// The functions of `librdmacm` that a connection needs (`rdma/rdma_cma.h`).
    CmLibrary = RDMACM;
    required {
        rdma_create_event_channel() -> *mut abi::rdma_event_channel;
        rdma_destroy_event_channel(*mut abi::rdma_event_channel);
        rdma_create_id(*mut abi::rdma_event_channel, *mut *mut abi::rdma_cm_id, *mut c_void, c_uint)
            -> c_int;
        rdma_destroy_id(*mut abi::rdma_cm_id) -> c_int;
        rdma_bind_addr(*mut abi::rdma_cm_id, *mut libc::sockaddr) -> c_int;
        rdma_listen(*mut abi::rdma_cm_id, c_int) -> c_int;
        rdma_get_src_port(*mut abi::rdma_cm_id) -> u16;
        rdma_resolve_addr(*mut abi::rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int)
            -> c_int;
        rdma_resolve_route(*mut abi::rdma_cm_id, c_int) -> c_int;
        rdma_connect(*mut abi::rdma_cm_id, *mut abi::rdma_conn_param) -> c_int;
        rdma_accept(*mut abi::rdma_cm_id, *mut abi::rdma_conn_param) -> c_int;
        rdma_reject(*mut abi::rdma_cm_id, *const c_void, u8) -> c_int;
        rdma_establish(*mut abi::rdma_cm_id) -> c_int;
        rdma_disconnect(*mut abi::rdma_cm_id) -> c_int;
        rdma_join_multicast(*mut abi::rdma_cm_id, *mut libc::sockaddr, *mut c_void) -> c_int;
        rdma_leave_multicast(*mut abi::rdma_cm_id, *mut libc::sockaddr) -> c_int;
        rdma_init_qp_attr(*mut abi::rdma_cm_id, *mut abi::ibv_qp_attr, *mut c_int) -> c_int;
        rdma_get_cm_event(*mut abi::rdma_event_channel, *mut *mut abi::rdma_cm_event) -> c_int;
        rdma_ack_cm_event(*mut abi::rdma_cm_event) -> c_int;
    }
    optional {}
}
