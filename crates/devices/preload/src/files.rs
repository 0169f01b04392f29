//! What programs look at in addition to the C interface: files of the devices in sysfs and `/dev/infiniband`.
//!
//! Communication libraries check a device's files before they use it. The calls that open a file or ask for its status
//! are passed on to the C library. Only if it finds no file, and the path is one of a device of ours, they are answered
//! here: files of sysfs have their text in anonymous memory. Directories exist, but have no entries to list, and the
//! files in `/dev/infiniband` cannot be opened.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

use adverb_softnic::interface_index;
use libc::{FILE, mode_t, stat as Status};

use crate::call::{self, Refusal};
use crate::device::{Device, devices, uverbs};
use crate::port::GIDS;

/// Major number and first minor number of `/dev/infiniband/uverbs0`.
const UVERBS: (u32, u32) = (231, 192);
/// Versions of the kernel's interface (`IB_USER_VERBS_ABI_VERSION`), and of the driver's.
const ABI_VERSION: &str = "6";
const DRIVER_ABI_VERSION: &str = "1";

/// A file of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    /// A file of sysfs with this text.
    Text(String),
    /// A character device with this minor number.
    Device(u32),
}

impl Entry {
    /// Returns the file at a path; `None` if it is not ours.
    fn at(path: &str) -> Option<Self> {
        let below = |folder: &str| path.strip_prefix(folder).filter(|rest| !rest.is_empty());
        if let Some(file) = below("/dev/infiniband/") {
            let device = devices().find(|device| uverbs(device.name) == file)?;
            return Some(Entry::Device(UVERBS.1 + u32::from(device.index)));
        }
        let path = path.trim_end_matches('/');
        match path {
            "/sys/class/infiniband" | "/sys/class/infiniband_verbs" => {
                return Some(Entry::Directory);
            }
            "/sys/class/infiniband_verbs/abi_version" => {
                return Some(Entry::Text(ABI_VERSION.to_owned()));
            }
            _ => {}
        }
        let (class, rest) = below("/sys/class/infiniband")?.split_once('/')?;
        let (name, file) = rest.split_once('/').unwrap_or((rest, ""));
        match class {
            "" => of_device(devices().find(|device| device.name == name)?, file),
            "_verbs" => of_uverbs(devices().find(|device| uverbs(device.name) == name)?, file),
            _ => None,
        }
    }

    fn mode(&self) -> mode_t {
        match self {
            Entry::Directory => libc::S_IFDIR | 0o555,
            Entry::Text(_) => libc::S_IFREG | 0o444,
            Entry::Device(_) => libc::S_IFCHR | 0o666,
        }
    }

    fn status(&self) -> Status {
        // SAFETY: zeros are a valid value of each member.
        let mut status: Status = unsafe { std::mem::zeroed() };
        status.st_mode = self.mode();
        status.st_nlink = 1;
        if let Entry::Device(minor) = self {
            status.st_rdev = libc::makedev(UVERBS.0, *minor);
        }
        status
    }
}

/// Returns a file in a device's directory of `/sys/class/infiniband_verbs`.
fn of_uverbs(device: &Device, path: &str) -> Option<Entry> {
    let text = match path {
        "" => return Some(Entry::Directory),
        "ibdev" => device.name.to_owned(),
        "abi_version" => DRIVER_ABI_VERSION.to_owned(),
        "dev" => format!("{}:{}", UVERBS.0, UVERBS.1 + u32::from(device.index)),
        _ => return of_device(device, path).filter(|_| path.starts_with("device")),
    };
    Some(Entry::Text(text))
}

/// Returns a file in a device's directory of `/sys/class/infiniband`.
fn of_device(device: &Device, path: &str) -> Option<Entry> {
    let text = match path.strip_prefix("ports/1/") {
        Some(file) => of_port(device, file)?,
        None => match path {
            "" | "device" | "ports" | "ports/1" => return Some(Entry::Directory),
            "fw_ver" => env!("CARGO_PKG_VERSION").to_owned(),
            "hca_type" | "board_id" => "adverb".to_owned(),
            "hw_rev" => "0x1".to_owned(),
            "node_type" => "1: CA".to_owned(),
            "node_desc" => device.name.to_owned(),
            "node_guid" | "sys_image_guid" => in_words(&device.guid().to_ne_bytes()),
            "device/numa_node" => "-1".to_owned(),
            "device/local_cpus" => all_cpus(),
            _ => return None,
        },
    };
    Some(Entry::Text(text))
}

fn of_port(device: &Device, path: &str) -> Option<String> {
    let in_table = |folder: &str| {
        let index: u32 = path.strip_prefix(folder)?.parse().ok()?;
        (index < GIDS).then_some(())
    };
    if in_table("gids/").is_some() {
        let address = match device.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        return Some(in_words(&address.octets()));
    }
    if in_table("gid_attrs/types/").is_some() {
        return Some("RoCE v2".to_owned());
    }
    if in_table("gid_attrs/ndevs/").is_some() {
        return interface(device.address);
    }
    let text = match path {
        "link_layer" => "Ethernet",
        "state" => "4: ACTIVE",
        "phys_state" => "5: LinkUp",
        "rate" => "100 Gb/sec (4X EDR)",
        "lid" | "sm_lid" => "0x0",
        "pkeys/0" => "0xffff",
        _ => return None,
    };
    Some(text.to_owned())
}

/// Returns bytes as sysfs writes GUIDs and GIDs: `fe80:0000:…`.
fn in_words(bytes: &[u8]) -> String {
    let word = |word: &[u8]| format!("{:02x}{:02x}", word[0], word[1]);
    bytes.chunks(2).map(word).collect::<Vec<_>>().join(":")
}

/// Returns a mask of all CPUs, as sysfs writes it: `0000000f` or `00000001,ffffffff`.
fn all_cpus() -> String {
    // SAFETY: returns a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as usize;
    let words = count.div_ceil(32);
    let word = |n: usize| match count - 32 * n {
        32.. => u32::MAX,
        rest => (1 << rest) - 1,
    };
    let all: Vec<_> = (0..words)
        .rev()
        .map(|n| format!("{:08x}", word(n)))
        .collect();
    all.join(",")
}

/// Returns the name of the interface that has an address.
fn interface(address: IpAddr) -> Option<String> {
    let index = interface_index(address).ok()?;
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the name has the size that the function needs.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the function has returned a C string.
    let name = unsafe { CStr::from_ptr(found) };
    Some(name.to_string_lossy().into_owned())
}

/// Returns our file at the path of a call that has found none. `errno` is as the call left it.
unsafe fn instead(path: *const c_char) -> Option<Entry> {
    let error = std::io::Error::last_os_error().raw_os_error()?;
    if error != libc::ENOENT || path.is_null() {
        return None;
    }
    // SAFETY: the program passes NULL or a C string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let ours = [&b"/sys/class/infiniband"[..], b"/dev/infiniband/uverbs_"];
    if !ours.iter().any(|start| path.starts_with(start)) {
        return None;
    }
    let path = std::str::from_utf8(path).ok()?;
    let found = catch_unwind(AssertUnwindSafe(|| Entry::at(path)));
    set_errno(error);
    found.ok().flatten()
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
    let line = format!("{text}\n");
    // SAFETY: a name, and the bytes of the line.
    unsafe {
        let fd = libc::memfd_create(c"adverb-sysfs".as_ptr(), cloexec);
        if fd >= 0 {
            // Memory takes it all at once.
            libc::write(fd, line.as_ptr().cast(), line.len());
            libc::lseek(fd, 0, libc::SEEK_SET);
        }
        fd
    }
}

/// Returns the descriptor of our file at the path of an `open` that has found none, or -1.
unsafe fn open_instead(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's path.
    match unsafe { instead(path) } {
        Some(Entry::Text(text)) if flags & libc::O_ACCMODE == libc::O_RDONLY => {
            opened(&text, flags)
        }
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

/// Defines functions that open a file. The C functions are variadic, but pass these arguments in the same registers.
macro_rules! open {
    ($($name:ident $text:literal),*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            static NEXT: Next = Next::new($text);
            // SAFETY: the type of the function, and the program's arguments.
            unsafe {
                let next: unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int = NEXT.get();
                match next(path, flags, mode) {
                    -1 => open_instead(path, flags),
                    fd => fd,
                }
            }
        }
    )*};
}

open!(open c"open", open64 c"open64");

macro_rules! fopen {
    ($($name:ident $text:literal),*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            static NEXT: Next = Next::new($text);
            // SAFETY: the type of the function, and the program's arguments.
            unsafe {
                let next: unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE = NEXT.get();
                let file = next(path, mode);
                let how = CStr::from_ptr(mode).to_bytes();
                if !file.is_null() || how.first() != Some(&b'r') || how.contains(&b'+') {
                    return file;
                }
                let close = if how.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
                match open_instead(path, libc::O_RDONLY | close) {
                    -1 => file,
                    fd => libc::fdopen(fd, mode),
                }
            }
        }
    )*};
}

fopen!(fopen c"fopen", fopen64 c"fopen64");

/// Writes the status of our file at the path of a call that has found none.
unsafe fn status_instead(path: *const c_char, status: *mut Status) -> c_int {
    // SAFETY: the caller's path, and the place for the status.
    match unsafe { instead(path) } {
        None => -1,
        Some(entry) => {
            // SAFETY: the place for the status.
            unsafe { status.write(entry.status()) };
            0
        }
    }
}

macro_rules! status {
    ($($name:ident $text:literal),*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, status: *mut Status) -> c_int {
            static NEXT: Next = Next::new($text);
            // SAFETY: the type of the function, and the program's arguments.
            unsafe {
                let next: unsafe extern "C" fn(*const c_char, *mut Status) -> c_int = NEXT.get();
                match next(path, status) {
                    -1 => status_instead(path, status),
                    done => done,
                }
            }
        }
    )*};
}

status!(stat c"stat", stat64 c"stat64", lstat c"lstat", lstat64 c"lstat64");

/// Defines the functions that programs built for glibc before 2.33 call for `stat`.
macro_rules! versioned_status {
    ($($name:ident $text:literal),*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(version: c_int, path: *const c_char, status: *mut Status) -> c_int {
            static NEXT: Next = Next::new($text);
            // SAFETY: the type of the function, and the program's arguments.
            unsafe {
                let next: unsafe extern "C" fn(c_int, *const c_char, *mut Status) -> c_int = NEXT.get();
                match next(version, path, status) {
                    -1 => status_instead(path, status),
                    done => done,
                }
            }
        }
    )*};
}

versioned_status!(__xstat c"__xstat", __xstat64 c"__xstat64", __lxstat c"__lxstat", __lxstat64 c"__lxstat64");

#[unsafe(no_mangle)]
unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    static NEXT: Next = Next::new(c"access");
    // SAFETY: the type of the function, and the program's arguments.
    unsafe {
        let next: unsafe extern "C" fn(*const c_char, c_int) -> c_int = NEXT.get();
        match next(path, mode) {
            -1 => match instead(path) {
                None => -1,
                // `mode` has the bits of a permission.
                Some(entry) if mode & !(entry.mode() as c_int & 0o7) == 0 => 0,
                Some(_) => {
                    set_errno(libc::EACCES);
                    -1
                }
            },
            done => done,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_devices_have_the_files_that_programs_look_for() {
        let text = |path: &str| match Entry::at(path) {
            Some(Entry::Text(text)) => text,
            other => panic!("{path}: {other:?}"),
        };
        let sysfs = |file: &str| text(&format!("/sys/class/infiniband/adverb0/{file}"));
        assert_eq!(sysfs("node_type"), "1: CA");
        assert_eq!(
            sysfs("ports/1/gids/0"),
            "0000:0000:0000:0000:0000:ffff:7f00:0001"
        );
        assert_eq!(sysfs("ports/1/gid_attrs/types/0"), "RoCE v2");
        assert_eq!(sysfs("ports/1/gid_attrs/ndevs/0"), "lo");
        assert!(sysfs("device/local_cpus").len() >= 8);
        let verbs = "/sys/class/infiniband_verbs/uverbs_adverb0";
        assert_eq!(text(&format!("{verbs}/ibdev")), "adverb0");
        assert_eq!(text(&format!("{verbs}/dev")), "231:192");
        assert_eq!(Entry::at(&format!("{verbs}/")), Some(Entry::Directory));
        let file = Entry::at("/dev/infiniband/uverbs_adverb0");
        assert_eq!(file, Some(Entry::Device(192)));
        for foreign in [
            "/sys/class/infiniband/mlx5_0/node_type",
            "/sys/class/infiniband/adverb0/ports/1/gids/1",
            "/sys/class/infiniband/adverb0/ports/2/state",
            "/sys/class/infiniband_mad/abi_version",
            "/dev/infiniband/rdma_cm",
            "/sys/class",
        ] {
            assert_eq!(Entry::at(foreign), None, "{foreign}");
        }
    }
}
