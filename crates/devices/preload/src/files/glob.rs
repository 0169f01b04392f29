//! `glob`, which the C library carries out with functions of its own unless the caller passes others: ours are passed.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{DIR, dirent64, stat as Status};

use super::listing::{closedir, opendir, readdir64};
use super::{Next, lstat64, stat64};

/// The caller's functions are used (`GLOB_ALTDIRFUNC`).
const OTHER_FUNCTIONS: c_int = 1 << 9;

/// `glob_t`; on 64-bit machines `glob64_t` has the same layout.
#[repr(C)]
struct Found {
    paths: usize,
    path: *mut *mut c_char,
    offset: usize,
    flags: c_int,
    closedir: unsafe extern "C" fn(*mut DIR) -> c_int,
    readdir: unsafe extern "C" fn(*mut DIR) -> *mut dirent64,
    opendir: unsafe extern "C" fn(*const c_char) -> *mut DIR,
    lstat: unsafe extern "C-unwind" fn(*const c_char, *mut Status) -> c_int,
    stat: unsafe extern "C-unwind" fn(*const c_char, *mut Status) -> c_int,
}

macro_rules! glob {
    ($($name:ident),*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            pattern: *const c_char,
            mut flags: c_int,
            on_error: *const c_void,
            found: *mut Found,
        ) -> c_int {
            static NEXT: Next = Next::new(c_name!($name));
            // SAFETY: the type of the function; the program passes a pattern and a place for what is found.
            unsafe {
                let next: unsafe extern "C" fn(
                    *const c_char,
                    c_int,
                    *const c_void,
                    *mut Found,
                ) -> c_int = NEXT.get();
                if flags & OTHER_FUNCTIONS == 0 && is_of_sysfs(pattern) {
                    flags |= OTHER_FUNCTIONS;
                    (&raw mut (*found).closedir).write(closedir);
                    (&raw mut (*found).readdir).write(readdir64);
                    (&raw mut (*found).opendir).write(opendir);
                    (&raw mut (*found).lstat).write(lstat64);
                    (&raw mut (*found).stat).write(stat64);
                }
                next(pattern, flags, on_error, found)
            }
        }
    )*};
}

glob!(glob, glob64);

/// # Safety
/// `pattern` is a C string.
unsafe fn is_of_sysfs(pattern: *const c_char) -> bool {
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(pattern) }
        .to_bytes()
        .starts_with(b"/sys/")
}
