//! `dlopen` and `dlvsym` of the libraries that this one replaces.
//!
//! Some programs load `libibverbs.so.1` by name, so that they start on machines without it. For them this library is
//! first in `dlopen`'s search, too: a call with one of these names opens this library. Its symbols have no versions, so
//! `dlvsym` finds them by name if the version is one of those libraries. A module that is linked with them and loaded
//! with `RTLD_DEEPBIND` would prefer them to this library, so it is loaded without.
//!
//! The C library looks at its caller's return address, to search that object's own path. So a call is passed on by a
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

/// How the versions of their symbols begin.
const VERSIONS: [&[u8]; 2] = [b"IBVERBS_", b"RDMACM_"];

type DlOpen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// How a call goes on. The members are returned in the first two registers for results.
#[repr(C)]
struct Target {
    /// The name to open instead, or the symbol that was found.
    value: *const c_void,
    /// The function of the C library.
    next: *const c_void,
}

/// `dlopen`. Its body is a call of [`opened`] with the first argument and the address of the second, and a jump to what
/// that returns.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    // On entry the stack is 8 bytes off a multiple of 16, which it has to be at a call.
    std::arch::naked_asm!(
        "sub rsp, 24",
        "mov [rsp], rsi",
        "mov rsi, rsp",
        "call {opened}",
        "mov rsi, [rsp]",
        "add rsp, 24",
        "mov rdi, rax",
        "jmp rdx",
        opened = sym opened,
    )
}

/// `dlvsym`. Its body is a call of [`found`] with the same arguments, and a return of the symbol that it found, or
/// else a jump to the C library's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    std::arch::naked_asm!(
        "sub rsp, 24",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "call {found}",
        "mov rcx, rdx",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "add rsp, 24",
        "test rax, rax",
        "jnz 2f",
        "jmp rcx",
        "2: ret",
        found = sym found,
    )
}

/// Returns the name to open instead of `name`, and the next `dlopen`. Changes the flags if that is necessary.
unsafe extern "C" fn opened(name: *const c_char, flags: &mut c_int) -> Target {
    let mut value = name;
    if !name.is_null() {
        // SAFETY: the program passes a string.
        let name = unsafe { CStr::from_ptr(name) };
        if is_replaced(name) {
            value = own_path().unwrap_or(value);
        } else if *flags & libc::RTLD_DEEPBIND != 0 && needs_replaced(name) {
            *flags &= !libc::RTLD_DEEPBIND;
        }
    }
    Target {
        value: value.cast(),
        next: next(c"dlopen", no_dlopen as *const c_void),
    }
}

/// Returns the function of this library for a versioned symbol, or `NULL`, and the next `dlvsym`.
unsafe extern "C" fn found(
    _handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> Target {
    // SAFETY: the program passes two strings.
    let version = unsafe { CStr::from_ptr(version) }.to_bytes();
    let is_ours = VERSIONS.iter().any(|start| version.starts_with(start));
    let mut value = ptr::null_mut();
    if let Some(path) = own_path().filter(|_| is_ours) {
        // SAFETY: both are strings; the handle of this library, which is loaded, stays open.
        value = unsafe {
            let own = next_dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            libc::dlsym(own, name)
        };
    }
    Target {
        value,
        next: next(c"dlvsym", no_dlvsym as *const c_void),
    }
}

/// Returns the next function called `name` after this library's, or `otherwise`.
fn next(name: &CStr, otherwise: *const c_void) -> *const c_void {
    // SAFETY: the name is a string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    match next.is_null() {
        true => otherwise,
        false => next.cast_const(),
    }
}

/// Calls the C library's `dlopen`, also for the libraries that this one replaces.
///
/// # Safety
/// As for `dlopen`.
pub(crate) unsafe fn next_dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    let next = next(c"dlopen", no_dlopen as *const c_void);
    // SAFETY: each `dlopen` has this type.
    let next = unsafe { std::mem::transmute::<*const c_void, DlOpen>(next) };
    // SAFETY: the caller's.
    unsafe { next(name, flags) }
}

/// Whether a file is linked with a library that this one replaces: whether it contains the library's name.
fn needs_replaced(file: &CStr) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(file.to_bytes()));
    let content = std::fs::read(path).unwrap_or_default();
    let mut strings = content.split(|byte| *byte == 0);
    strings.any(|string| REPLACED.iter().any(|name| name.as_bytes() == string))
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

/// The next `dlopen` if there is none.
unsafe extern "C" fn no_dlopen(_name: *const c_char, _flags: c_int) -> *mut c_void {
    ptr::null_mut()
}

/// The next `dlvsym` if there is none.
unsafe extern "C" fn no_dlvsym(
    _handle: *mut c_void,
    _name: *const c_char,
    _version: *const c_char,
) -> *mut c_void {
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
