//! What programs look at in addition to the C interface: files of the devices in sysfs and `/dev/infiniband`.
//!
//! Communication libraries check a device's files before they use it. The calls that open a file, ask for its status or
//! resolve its path are passed on to the C library. Only if it finds no file, and the path is one of a device of ours,
//! they are answered here, from the `tree`: files of sysfs have their text in anonymous memory. The files in
//! `/dev/infiniband` cannot be opened. Directories can be listed (`listing`, `glob`), but not opened by `open`.

/// Returns the name of a function as a C string.
macro_rules! c_name {
    ($name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    };
}

mod glob;
pub(crate) mod listing;
mod tree;

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{AT_SYMLINK_NOFOLLOW, FILE, mode_t, stat as Status, statx as StatusX};

use crate::call::{self, NotCancelled, Refusal};

use tree::{Entry, Follow, Resolved, UVERBS, resolve};

impl Entry {
    fn mode(&self) -> mode_t {
        match self {
            Entry::Directory(_) => libc::S_IFDIR | 0o555,
            Entry::Link(_) => libc::S_IFLNK | 0o777,
            Entry::Text(_) => libc::S_IFREG | 0o444,
            Entry::Device(_) => libc::S_IFCHR | 0o666,
        }
    }

    /// Returns a number that no other of our files has.
    fn inode(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    /// Returns the size in bytes: sysfs reports a page for each file.
    fn size(&self) -> u32 {
        match self {
            Entry::Text(_) => 4096,
            _ => 0,
        }
    }

    /// Returns the major and the minor number of a device, zeros of other files.
    fn device(&self) -> (u32, u32) {
        match self {
            Entry::Device(minor) => (UVERBS.0, *minor),
            _ => (0, 0),
        }
    }
}

impl From<&Entry> for Status {
    fn from(entry: &Entry) -> Self {
        // SAFETY: zeros are a valid value of each member.
        let mut status: Status = unsafe { std::mem::zeroed() };
        status.st_ino = entry.inode();
        status.st_size = entry.size().into();
        status.st_mode = entry.mode();
        status.st_nlink = 1;
        let (major, minor) = entry.device();
        status.st_rdev = libc::makedev(major, minor);
        status
    }
}

impl From<&Entry> for StatusX {
    fn from(entry: &Entry) -> Self {
        // SAFETY: zeros are a valid value of each member.
        let mut status: StatusX = unsafe { std::mem::zeroed() };
        status.stx_mask = libc::STATX_TYPE
            | libc::STATX_MODE
            | libc::STATX_NLINK
            | libc::STATX_INO
            | libc::STATX_SIZE;
        status.stx_ino = entry.inode();
        status.stx_size = entry.size().into();
        // The types and permissions of files have 16 bits.
        status.stx_mode = entry.mode() as u16;
        status.stx_nlink = 1;
        (status.stx_rdev_major, status.stx_rdev_minor) = entry.device();
        status
    }
}

/// Returns where the path of a call leads; `None` if it is neither below `/sys` nor below `/dev/infiniband`. No memory is
/// allocated for paths that are not ours: the call may be the allocator's, or in a signal handler.
unsafe fn resolved(path: *const c_char, follow: Follow) -> Option<Resolved> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the program passes NULL or a C string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let ours = [&b"/sys/"[..], b"/dev/infiniband"];
    if !ours.iter().any(|start| path.starts_with(start)) {
        return None;
    }
    let path = std::str::from_utf8(path).ok()?;
    let error = errno();
    let found = catch_unwind(AssertUnwindSafe(|| resolve(path, follow)));
    set_errno(error);
    found.ok().flatten()
}

/// Returns what is ours at the path of a call that has found no file. `errno` is as the call left it.
unsafe fn instead(path: *const c_char, follow: Follow) -> Option<&'static Entry> {
    if errno() != libc::ENOENT {
        return None;
    }
    // SAFETY: the caller's path.
    unsafe { resolved(path, follow) }?.entry
}

fn errno() -> c_int {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() }
}

fn set_errno(error: c_int) {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = error };
}

/// Opens a descriptor from which a text can be read.
fn opened(text: &str, flags: c_int) -> c_int {
    let cloexec = match flags & libc::O_CLOEXEC {
        0 => 0,
        _ => libc::MFD_CLOEXEC,
    };
    // SAFETY: a name, and the bytes of the line.
    unsafe {
        let fd = libc::memfd_create(c"adverb-sysfs".as_ptr(), cloexec);
        if fd >= 0 {
            for part in [text, "\n"] {
                // Memory takes it all at once.
                libc::write(fd, part.as_ptr().cast(), part.len());
            }
            libc::lseek(fd, 0, libc::SEEK_SET);
        }
        fd
    }
}

/// Returns the descriptor of our file at the path of an `open` that has found none, or -1.
unsafe fn open_instead(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's path.
    match unsafe { instead(path, Follow::Yes) } {
        Some(Entry::Text(text)) if flags & libc::O_ACCMODE == libc::O_RDONLY => opened(text, flags),
        Some(Entry::Text(_)) => {
            set_errno(libc::EACCES);
            -1
        }
        _ => -1,
    }
}

/// The next definition of a function of the C library, which is looked up at the first call.
struct Next(&'static CStr, AtomicPtr<c_void>);

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Next(name, AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Returns it as a function pointer. The C library has all functions of this file.
    ///
    /// # Safety
    /// `F` is the type of the function.
    unsafe fn get<F: Copy>(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut found = self.1.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: the name is a C string.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.0.as_ptr()) };
            assert!(!found.is_null(), "the C library has no {:?}", self.0);
            self.1.store(found, Ordering::Relaxed);
        }
        // SAFETY: both are pointers; the caller names the type.
        unsafe { std::mem::transmute_copy(&found) }
    }
}

/// Returns the stream of our file at the path of an `fopen` that has found none, or NULL.
unsafe fn fopen_instead(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's path and mode.
    unsafe {
        let how = CStr::from_ptr(mode).to_bytes();
        if how.first() != Some(&b'r') || how.contains(&b'+') {
            return std::ptr::null_mut();
        }
        let close = if how.contains(&b'e') {
            libc::O_CLOEXEC
        } else {
            0
        };
        match open_instead(path, libc::O_RDONLY | close) {
            -1 => std::ptr::null_mut(),
            fd => libc::fdopen(fd, mode),
        }
    }
}

/// Writes the status of our file at the path of a call that has found none.
unsafe fn status_instead<T>(path: *const c_char, follow: Follow, status: *mut T) -> c_int
where
    T: for<'e> From<&'e Entry>,
{
    // SAFETY: the caller's path, and the place for the status.
    match unsafe { instead(path, follow) } {
        None => -1,
        Some(entry) => {
            // SAFETY: the place for the status.
            unsafe { status.write(entry.into()) };
            0
        }
    }
}

const fn follow(flags: c_int) -> Follow {
    match flags & AT_SYMLINK_NOFOLLOW {
        0 => Follow::Yes,
        _ => Follow::No,
    }
}

/// Returns whether our file at the path of a call that has found none may be accessed.
unsafe fn access_instead(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's path.
    match unsafe { instead(path, Follow::Yes) } {
        None => -1,
        // `mode` has the bits of a permission.
        Some(entry) if mode & !(entry.mode() as c_int & 0o7) == 0 => 0,
        Some(_) => {
            set_errno(libc::EACCES);
            -1
        }
    }
}

/// Writes where our file is, at whose path a call has found none, or returns a copy that the program frees.
unsafe fn real_path_instead(path: *const c_char, out: *mut c_char) -> *mut c_char {
    let failed = std::ptr::null_mut();
    if errno() != libc::ENOENT {
        return failed;
    }
    // SAFETY: the caller's path.
    let found = unsafe { resolved(path, Follow::Yes) };
    let Some(found) = found.filter(|found| found.entry.is_some()) else {
        return failed;
    };
    let path = CString::new(found.path()).unwrap_or_default();
    // SAFETY: the program passes NULL or `PATH_MAX` bytes, and our paths are shorter.
    unsafe {
        match out.is_null() {
            true => libc::strdup(path.as_ptr()),
            false => libc::strcpy(out, path.as_ptr()),
        }
    }
}

/// Copies the target of our link at the path of a call that has found none. Returns its length.
unsafe fn read_link_instead(path: *const c_char, out: *mut c_char, size: usize) -> isize {
    // SAFETY: the caller's path.
    match unsafe { instead(path, Follow::No) } {
        None => -1,
        Some(Entry::Link(target)) => {
            let length = target.len().min(size);
            // SAFETY: the program's buffer has `size` bytes.
            unsafe { out.copy_from_nonoverlapping(target.as_ptr().cast(), length) };
            length as isize
        }
        Some(_) => {
            set_errno(libc::EINVAL);
            -1
        }
    }
}

/// The result of a function of the C library.
trait Outcome {
    fn is_failure(&self) -> bool;
}

impl Outcome for c_int {
    fn is_failure(&self) -> bool {
        *self == -1
    }
}

impl Outcome for isize {
    fn is_failure(&self) -> bool {
        *self == -1
    }
}

impl<T> Outcome for *mut T {
    fn is_failure(&self) -> bool {
        self.is_null()
    }
}

/// Defines functions that do something else if the C library's function fails. `open` and its relatives are variadic there,
/// but take these arguments in the same registers.
macro_rules! on_failure {
    ($(
        $name:ident($($argument:ident: $type:ty),*) -> $result:ty, or $instead:expr;
    )*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            static NEXT: Next = Next::new(c_name!($name));
            // SAFETY: the type of the function, and the program's arguments. It may be cancelled when nothing is to be dropped.
            unsafe {
                let next: unsafe extern "C-unwind" fn($($type),*) -> $result = NEXT.get();
                let result = next($($argument),*);
                if !result.is_failure() {
                    return result;
                }
                let _kept = NotCancelled::begin();
                $instead
            }
        }
    )*};
}

type Str = *const c_char;

on_failure! {
    open(path: Str, flags: c_int, mode: mode_t) -> c_int, or open_instead(path, flags);
    open64(path: Str, flags: c_int, mode: mode_t) -> c_int, or open_instead(path, flags);
    openat(dir: c_int, path: Str, flags: c_int, mode: mode_t) -> c_int, or open_instead(path, flags);
    openat64(dir: c_int, path: Str, flags: c_int, mode: mode_t) -> c_int, or open_instead(path, flags);
    fopen(path: Str, mode: Str) -> *mut FILE, or fopen_instead(path, mode);
    fopen64(path: Str, mode: Str) -> *mut FILE, or fopen_instead(path, mode);

    stat(path: Str, out: *mut Status) -> c_int, or status_instead(path, Follow::Yes, out);
    stat64(path: Str, out: *mut Status) -> c_int, or status_instead(path, Follow::Yes, out);
    lstat(path: Str, out: *mut Status) -> c_int, or status_instead(path, Follow::No, out);
    lstat64(path: Str, out: *mut Status) -> c_int, or status_instead(path, Follow::No, out);
    fstatat(dir: c_int, path: Str, out: *mut Status, flags: c_int) -> c_int, or status_instead(path, follow(flags), out);
    fstatat64(dir: c_int, path: Str, out: *mut Status, flags: c_int) -> c_int, or status_instead(path, follow(flags), out);
    statx(dir: c_int, path: Str, flags: c_int, mask: c_uint, out: *mut StatusX) -> c_int, or status_instead(path, follow(flags), out);

    access(path: Str, mode: c_int) -> c_int, or access_instead(path, mode);
    eaccess(path: Str, mode: c_int) -> c_int, or access_instead(path, mode);
    euidaccess(path: Str, mode: c_int) -> c_int, or access_instead(path, mode);
    faccessat(dir: c_int, path: Str, mode: c_int, flags: c_int) -> c_int, or access_instead(path, mode);

    realpath(path: Str, out: *mut c_char) -> *mut c_char, or real_path_instead(path, out);
    canonicalize_file_name(path: Str) -> *mut c_char, or real_path_instead(path, std::ptr::null_mut());
    readlink(path: Str, out: *mut c_char, size: usize) -> isize, or read_link_instead(path, out, size);
    readlinkat(dir: c_int, path: Str, out: *mut c_char, size: usize) -> isize, or read_link_instead(path, out, size);
}

// What programs call that were built for glibc before 2.33, or with _FORTIFY_SOURCE.
on_failure! {
    __xstat(version: c_int, path: Str, out: *mut Status) -> c_int, or status_instead(path, Follow::Yes, out);
    __xstat64(version: c_int, path: Str, out: *mut Status) -> c_int, or status_instead(path, Follow::Yes, out);
    __lxstat(version: c_int, path: Str, out: *mut Status) -> c_int, or status_instead(path, Follow::No, out);
    __lxstat64(version: c_int, path: Str, out: *mut Status) -> c_int, or status_instead(path, Follow::No, out);
    __open_2(path: Str, flags: c_int) -> c_int, or open_instead(path, flags);
    __open64_2(path: Str, flags: c_int) -> c_int, or open_instead(path, flags);
    __realpath_chk(path: Str, out: *mut c_char, room: usize) -> *mut c_char, or real_path_instead(path, out);
    __readlink_chk(path: Str, out: *mut c_char, size: usize, room: usize) -> isize, or read_link_instead(path, out, size);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    call::number("ibv_read_sysfs_file", || {
        // SAFETY: the program passes two C strings.
        let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
        let path = format!("{}/{}", dir.to_string_lossy(), file.to_string_lossy());
        let content = match std::fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let reason = format!("no such file: {path}");
                return Err(Refusal::new(libc::ENOENT, reason));
            }
            content => content?,
        };
        let content = content.trim_end_matches('\n').as_bytes();
        let length = content.len().min(size.saturating_sub(1));
        // SAFETY: the program passes a buffer of `size` bytes; the zero that ends the string fits if any does.
        unsafe {
            buf.copy_from_nonoverlapping(content.as_ptr().cast(), length);
            if size > 0 {
                *buf.add(length) = 0;
            }
        }
        Ok(length as c_int)
    })
}
