//! Directories that can be listed: the ones of our devices' files, and the kernel's directories that lead to them.
//!
//! A stream (`DIR`) is one of the C library, so that functions which are not replaced here do no harm. The replaced ones
//! know it by its address and return the entries that were collected when it was opened.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{DIR, dirent64};

use super::tree::{Entry, Follow, resolve};
use super::{Next, resolved};
use crate::fork::ForkLock;

/// The entries of a stream, and the next one to return.
pub(crate) struct Listing {
    entries: Vec<dirent64>,
    next: usize,
}

impl Listing {
    /// Returns the next entry, which is valid until the stream is closed; NULL after the last.
    fn next(&mut self) -> *mut dirent64 {
        let entry = self.entries.get_mut(self.next);
        self.next += usize::from(entry.is_some());
        entry.map_or(std::ptr::null_mut(), std::ptr::from_mut)
    }
}

/// The open streams by address.
pub(crate) static OPEN: ForkLock<BTreeMap<usize, Listing>> = ForkLock::new(BTreeMap::new());
/// Their number, so that other streams need no lock. It is stored before the program knows the stream.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Does something with the listing of a stream; `None` if it has none.
fn with<T>(stream: *mut DIR, what: impl FnOnce(&mut Listing) -> T) -> Option<T> {
    match COUNT.load(Ordering::Relaxed) {
        0 => None,
        _ => OPEN.lock().get_mut(&stream.addr()).map(what),
    }
}

/// Opens a directory of the kernel, and returns the stream with its entries; `None` if there is none.
fn open_of_kernel(path: &CStr) -> Option<(*mut DIR, Vec<dirent64>)> {
    static OPENDIR: Next = Next::new(c"opendir");
    static READDIR: Next = Next::new(c"readdir64");
    // SAFETY: the types of the functions, and a C string.
    unsafe {
        let opendir: unsafe extern "C" fn(*const c_char) -> *mut DIR = OPENDIR.get();
        let readdir: unsafe extern "C" fn(*mut DIR) -> *mut dirent64 = READDIR.get();
        let stream = opendir(path.as_ptr());
        let next = || readdir(stream).as_ref().copied();
        (!stream.is_null()).then(|| (stream, std::iter::from_fn(next).collect()))
    }
}

/// Whether the kernel has this directory, with entries. Ours do not count.
pub(crate) fn kernel_has_entries(path: &CStr) -> bool {
    let Some((stream, entries)) = open_of_kernel(path) else {
        return false;
    };
    // SAFETY: the stream was just opened.
    unsafe { closedir(stream) };
    let own = [c".", c".."];
    entries.iter().any(|entry| !own.contains(&name_of(entry)))
}

fn name_of(entry: &dirent64) -> &CStr {
    // SAFETY: the names of entries are C strings.
    unsafe { CStr::from_ptr(entry.d_name.as_ptr()) }
}

/// Opens a directory with the given names of ours.
fn open(path: &str, names: &BTreeSet<String>) -> *mut DIR {
    let c_path = CString::new(path).unwrap_or_default();
    let own = || [entry(c".", libc::DT_DIR), entry(c"..", libc::DT_DIR)].to_vec();
    // Any stream serves whose own entries are not returned.
    let opened = open_of_kernel(&c_path);
    let opened = opened.or_else(|| open_of_kernel(c"/").map(|(root, _)| (root, own())));
    let Some((stream, mut entries)) = opened else {
        return std::ptr::null_mut();
    };
    for name in names {
        let file = resolve(&format!("{path}/{name}"), Follow::No);
        let kind = match file.and_then(|file| file.entry) {
            Some(Entry::Link(_)) => libc::DT_LNK,
            Some(Entry::Text(_)) => libc::DT_REG,
            Some(Entry::Device(_)) => libc::DT_CHR,
            Some(Entry::Directory(_)) | None => libc::DT_DIR,
        };
        let name = CString::new(name.as_str()).unwrap_or_default();
        if entries.iter().all(|there| name_of(there) != &*name) {
            entries.push(entry(&name, kind));
        }
    }
    let mut open = OPEN.lock();
    open.insert(stream.addr(), Listing { entries, next: 0 });
    COUNT.store(open.len(), Ordering::Relaxed);
    stream
}

fn entry(name: &CStr, kind: u8) -> dirent64 {
    // SAFETY: zeros are a valid value of each member.
    let mut entry: dirent64 = unsafe { std::mem::zeroed() };
    entry.d_ino = 1;
    entry.d_reclen = size_of::<dirent64>() as u16;
    entry.d_type = kind;
    let room = entry.d_name.len() - 1;
    for (to, from) in entry.d_name[..room].iter_mut().zip(name.to_bytes()) {
        *to = *from as c_char;
    }
    entry
}

/// The directory that the machine's own libibverbs lists to find devices: ours are none for it.
const NOT_LISTED: &str = "/sys/class/infiniband_verbs";

/// Opens the directory at a path of the program, if it has entries of ours.
unsafe fn open_ours(path: *const c_char) -> Option<*mut DIR> {
    // SAFETY: the caller's path.
    let resolved = unsafe { resolved(path, Follow::Yes) }?;
    match resolved.entry? {
        Entry::Directory(names) if resolved.path() != NOT_LISTED => {
            Some(open(resolved.path(), names))
        }
        _ => None,
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    static NEXT: Next = Next::new(c"opendir");
    // SAFETY: the type of the function, and the program's path.
    unsafe {
        let next: unsafe extern "C" fn(*const c_char) -> *mut DIR = NEXT.get();
        open_ours(path).unwrap_or_else(|| next(path))
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn closedir(stream: *mut DIR) -> c_int {
    static NEXT: Next = Next::new(c"closedir");
    if COUNT.load(Ordering::Relaxed) > 0 {
        let mut open = OPEN.lock();
        open.remove(&stream.addr());
        COUNT.store(open.len(), Ordering::Relaxed);
    }
    // SAFETY: the type of the function, and the program's stream.
    unsafe {
        let next: unsafe extern "C" fn(*mut DIR) -> c_int = NEXT.get();
        next(stream)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rewinddir(stream: *mut DIR) {
    static NEXT: Next = Next::new(c"rewinddir");
    with(stream, |listing| listing.next = 0);
    // SAFETY: the type of the function, and the program's stream.
    unsafe {
        let next: unsafe extern "C" fn(*mut DIR) = NEXT.get();
        next(stream);
    }
}

// On 64-bit machines `dirent` and `dirent64` are one type.
macro_rules! readdir {
    ($($name:ident $reentrant:ident),*) => {$(
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(stream: *mut DIR) -> *mut dirent64 {
            static NEXT: Next = Next::new(c_name!($name));
            // SAFETY: the type of the function, and the program's stream.
            unsafe {
                let next: unsafe extern "C" fn(*mut DIR) -> *mut dirent64 = NEXT.get();
                with(stream, Listing::next).unwrap_or_else(|| next(stream))
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $reentrant(
            stream: *mut DIR,
            entry: *mut dirent64,
            result: *mut *mut dirent64,
        ) -> c_int {
            static NEXT: Next = Next::new(c_name!($reentrant));
            // SAFETY: the type of the function, and the program's stream and places for the results.
            unsafe {
                let next: unsafe extern "C" fn(*mut DIR, *mut dirent64, *mut *mut dirent64) -> c_int = NEXT.get();
                match with(stream, Listing::next) {
                    None => return next(stream, entry, result),
                    Some(found) if found.is_null() => result.write(found),
                    Some(found) => {
                        entry.copy_from_nonoverlapping(found, 1);
                        result.write(entry);
                    }
                }
                0
            }
        }
    )*};
}

readdir!(readdir readdir_r, readdir64 readdir64_r);

type Filter = unsafe extern "C" fn(*const dirent64) -> c_int;
type Compare = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

macro_rules! scandir {
    ($($name:ident),*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            path: *const c_char,
            list: *mut *mut *mut dirent64,
            filter: Option<Filter>,
            compare: Option<Compare>,
        ) -> c_int {
            static NEXT: Next = Next::new(c_name!($name));
            // SAFETY: the type of the function, and the program's arguments.
            unsafe {
                let next: unsafe extern "C" fn(
                    *const c_char,
                    *mut *mut *mut dirent64,
                    Option<Filter>,
                    Option<Compare>,
                ) -> c_int = NEXT.get();
                match open_ours(path) {
                    None => next(path, list, filter, compare),
                    Some(stream) if stream.is_null() => -1,
                    Some(stream) => scan(stream, list, filter, compare),
                }
            }
        }
    )*};
}

scandir!(scandir, scandir64);

/// Writes the entries of a stream that pass a filter to a list, in order, and closes the stream. Returns their number. The
/// program frees the list and each entry.
unsafe fn scan(
    stream: *mut DIR,
    list: *mut *mut *mut dirent64,
    filter: Option<Filter>,
    compare: Option<Compare>,
) -> c_int {
    let entries = with(stream, |listing| std::mem::take(&mut listing.entries)).unwrap_or_default();
    // SAFETY: the stream was just opened; the filter takes an entry, and the comparison the addresses of two elements of
    // the list, which has room for all entries.
    unsafe {
        closedir(stream);
        let found: *mut *mut dirent64 =
            libc::malloc(size_of::<usize>() * entries.len().max(1)).cast();
        if found.is_null() {
            return -1;
        }
        let mut count = 0;
        for entry in entries {
            if filter.is_some_and(|filter| filter(&raw const entry) == 0) {
                continue;
            }
            let copy: *mut dirent64 = libc::malloc(size_of::<dirent64>()).cast();
            if copy.is_null() {
                (0..count).for_each(|at| libc::free((*found.add(at)).cast()));
                libc::free(found.cast());
                return -1;
            }
            copy.write(entry);
            found.add(count).write(copy);
            count += 1;
        }
        if compare.is_some() {
            libc::qsort(found.cast(), count, size_of::<usize>(), compare);
        }
        list.write(found);
        count as c_int
    }
}
