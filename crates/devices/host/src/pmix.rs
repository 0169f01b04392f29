//! The key-value store of a cluster's launcher, by libpmix, which is loaded when it is needed.
//!
//! Only what ranks need to find each other: one rank publishes a string, the others get it. Types and
//! constants follow the PMIx standard 4.1 (`pmix_common.h`).
#![allow(unsafe_code, reason = "this module calls libpmix")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::ptr;

use libloading::Library;

/// Names of the library, newest first.
const NAMES: [&str; 2] = ["libpmix.so.2", "libpmix.so"];
/// `PMIX_MAX_NSLEN` and `PMIX_MAX_KEYLEN`, with the end of the string.
const NAMESPACE: usize = 256;
const KEY: usize = 512;
/// `PMIX_GLOBAL`: for ranks of all nodes.
const GLOBAL: u8 = 3;
/// `PMIX_STRING`.
const STRING: u16 = 3;

/// `pmix_proc_t`.
#[repr(C)]
struct Proc {
    namespace: [u8; NAMESPACE],
    rank: u32,
}

/// `pmix_value_t` that holds a string. The union's other members are longer: the room behind it is theirs.
#[repr(C)]
struct Value {
    kind: u16,
    string: *const c_char,
    _room: [u64; 8],
}

type Init = unsafe extern "C" fn(*mut Proc, *const u8, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *const Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const u8, usize) -> c_int;
type Get =
    unsafe extern "C" fn(*const Proc, *const c_char, *const u8, usize, *mut *const Value) -> c_int;
type Finalize = unsafe extern "C" fn(*const u8, usize) -> c_int;

/// This process's connection to the launcher, until it is dropped.
pub(crate) struct Pmix {
    library: Library,
    me: Proc,
}

impl Pmix {
    /// Connects to the launcher that started this process.
    pub(crate) fn init() -> io::Result<Self> {
        // SAFETY: loading libpmix runs its constructors, which any MPI program runs, too.
        let loaded = NAMES
            .iter()
            .find_map(|name| unsafe { Library::new(name).ok() });
        let library = loaded.ok_or_else(|| {
            io::Error::other("libpmix.so.2 is not installed (Debian: package libpmix2)")
        })?;
        let mut pmix = Pmix {
            library,
            me: Proc {
                namespace: [0; NAMESPACE],
                rank: 0,
            },
        };
        let init: libloading::Symbol<'_, Init> = symbol(&pmix.library, c"PMIx_Init")?;
        // SAFETY: PMIx_Init fills the process structure that the pointer names; no directives are given.
        let status = unsafe { init(&raw mut pmix.me, ptr::null(), 0) };
        check("PMIx_Init", status)?;
        Ok(pmix)
    }

    /// Makes `value` available under `key` to all ranks; waits until all ask for it.
    pub(crate) fn publish(&self, key: &str, value: &str) -> io::Result<()> {
        let text = CString::new(value).map_err(io::Error::other)?;
        let value = Value {
            kind: STRING,
            string: text.as_ptr(),
            _room: [0; 8],
        };
        let key = padded(key)?;
        let put: libloading::Symbol<'_, Put> = symbol(&self.library, c"PMIx_Put")?;
        let commit: libloading::Symbol<'_, Commit> = symbol(&self.library, c"PMIx_Commit")?;
        // SAFETY: key and value live until PMIx_Put returns, which copies both.
        let status = unsafe { put(GLOBAL, key.as_ptr().cast(), &raw const value) };
        check("PMIx_Put", status)?;
        // SAFETY: PMIx_Commit takes nothing.
        check("PMIx_Commit", unsafe { commit() })?;
        self.fence()
    }

    /// Waits for all ranks: what is asked for before it was published is an error to PMIx, and no wait.
    fn fence(&self) -> io::Result<()> {
        let fence: libloading::Symbol<'_, Fence> = symbol(&self.library, c"PMIx_Fence")?;
        // SAFETY: no processes are named, which means all of the job, and no directives are given.
        check("PMIx_Fence", unsafe {
            fence(ptr::null(), 0, ptr::null(), 0)
        })
    }

    /// The value that rank 0 published under `key`; waits until it has.
    pub(crate) fn get_from_rank_0(&self, key: &str) -> io::Result<String> {
        self.fence()?;
        let key = padded(key)?;
        let first = Proc {
            namespace: self.me.namespace,
            rank: 0,
        };
        let mut value: *const Value = ptr::null();
        let get: libloading::Symbol<'_, Get> = symbol(&self.library, c"PMIx_Get")?;
        // SAFETY: all pointers are valid during the call; it sets `value` to memory that libpmix allocated.
        let status = unsafe {
            get(
                &raw const first,
                key.as_ptr().cast(),
                ptr::null(),
                0,
                &raw mut value,
            )
        };
        check("PMIx_Get", status)?;
        // SAFETY: after success the pointer names a value, which is never freed here: it is a few bytes, once.
        let value = unsafe { value.as_ref() };
        let value = value.filter(|value| value.kind == STRING && !value.string.is_null());
        let value = value.ok_or_else(|| io::Error::other("rank 0 published no text"))?;
        // SAFETY: a value of the kind PMIX_STRING holds a C string.
        let text = unsafe { CStr::from_ptr(value.string) };
        Ok(text.to_string_lossy().into_owned())
    }
}

impl Drop for Pmix {
    /// A launcher takes a process that ends without it for one that crashed.
    fn drop(&mut self) {
        if let Ok(finalize) = symbol::<Finalize>(&self.library, c"PMIx_Finalize") {
            // SAFETY: no directives are given. The process ends its connection once.
            let _ = unsafe { finalize(ptr::null(), 0) };
        }
    }
}

fn symbol<'l, T>(library: &'l Library, name: &CStr) -> io::Result<libloading::Symbol<'l, T>> {
    // SAFETY: the callers' types are those that pmix.h declares for these names.
    unsafe { library.get(name.to_bytes_with_nul()) }.map_err(io::Error::other)
}

/// `pmix_key_t`: libpmix may copy all of it.
fn padded(key: &str) -> io::Result<[u8; KEY]> {
    let mut bytes = [0; KEY];
    let room = bytes.get_mut(..key.len()).filter(|_| key.len() < KEY);
    let room = room.ok_or_else(|| io::Error::other(format!("key '{key}' is too long")))?;
    room.copy_from_slice(key.as_bytes());
    Ok(bytes)
}

fn check(call: &str, status: c_int) -> io::Result<()> {
    if status == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{call} failed with status {status}"
    )))
}
