//! `dlopen` of the libraries that this one replaces.
//!
//! Some programs load `libibverbs.so.1` by name, so that they start on machines without it. For them this library is
//! first in `dlopen`'s search, too: a call with one of these names opens this library.
//!
//! The C library looks at its caller's return address, to search that object's own path. So the call is passed on by a
//! jump, with the return address that it came with.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

/// The libraries that this one replaces.
const REPLACED: [&str; 4] = [
    "libibverbs.so.1",
    "libibverbs.so",
    "librdmacm.so.1",
    "librdmacm.so",
];

/// Where a call is passed on to. The members are returned in the first two registers for results.
#[repr(C)]
struct Target {
    name: *const c_char,
    dlopen: *const c_void,
}

/// `dlopen`. Its body is a call of [`target`] with the first argument, and a jump to what that returns.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    // On entry the stack is 8 bytes off a multiple of 16, which it has to be at a call.
    std::arch::naked_asm!(
        "sub rsp, 24",
        "mov [rsp], rsi",
        "call {target}",
        "mov rsi, [rsp]",
        "add rsp, 24",
        "mov rdi, rax",
        "jmp rdx",
        target = sym target,
    )
}

/// Returns the name to open instead of `name`, and the next `dlopen`.
unsafe extern "C" fn target(name: *const c_char) -> Target {
    // SAFETY: the name is a string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    let dlopen = match next.is_null() {
        true => none as *const c_void,
        false => next.cast_const(),
    };
    // SAFETY: the program passes NULL or a string.
    let replaced = !name.is_null() && is_replaced(unsafe { CStr::from_ptr(name) });
    let name = own_path().filter(|_| replaced).unwrap_or(name);
    Target { name, dlopen }
}

/// Whether this library is opened instead of `name`.
fn is_replaced(name: &CStr) -> bool {
    let name = name.to_bytes();
    let file = name.rsplit(|byte| *byte == b'/').next();
    file.is_some_and(|file| REPLACED.iter().any(|replaced| replaced.as_bytes() == file))
}

/// Returns the path of this library; `None` in a program that is linked with this crate.
fn own_path() -> Option<*const c_char> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is writable.
    let found = unsafe { libc::dladdr(own_path as *const c_void, info.as_mut_ptr()) };
    // SAFETY: all members are pointers, and zero if they are unknown.
    let path = unsafe { info.assume_init() }.dli_fname;
    if found == 0 || path.is_null() {
        return None;
    }
    // SAFETY: the name is a string, which lives as long as this library.
    let is_library = unsafe { CStr::from_ptr(path) }.to_bytes().ends_with(b".so");
    is_library.then_some(path)
}

/// The next `dlopen` where there is none.
unsafe extern "C" fn none(_name: *const c_char, _flags: c_int) -> *mut c_void {
    ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_replaced_libraries_are() {
        for name in [
            c"libibverbs.so.1",
            c"/usr/lib/libibverbs.so.1",
            c"librdmacm.so",
        ] {
            assert!(is_replaced(name), "{name:?}");
        }
        for name in [
            c"libibverbs.so.10",
            c"liblibibverbs.so.1",
            c"",
            c"libc.so.6",
        ] {
            assert!(!is_replaced(name), "{name:?}");
        }
    }
}
