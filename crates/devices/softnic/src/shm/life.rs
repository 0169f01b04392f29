//! Whether the process that opened a port still runs the program that did so.
//!
//! The engine's thread marks a word of the port file with its thread ID, and gives the kernel a list of this word
//! (`set_robust_list`). When the thread ends, for whatever reason, the kernel sets a bit of the word: before the
//! process's number can be used again, and before another program takes its place (`execve`). So a peer that finds the bit
//! clear after it has copied memory knows from whom.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::gettid;

/// The kernel's mark: the thread has ended (`FUTEX_OWNER_DIED`).
const ENDED: u32 = 1 << 30;

/// What the kernel reads when the thread ends (`robust_list_head`), with a list of one word.
#[derive(Debug)]
#[repr(C)]
struct List {
    first: *const Link,
    /// From a link to its word.
    offset: isize,
    pending: *const Link,
    link: Link,
}

#[derive(Debug)]
#[repr(C)]
struct Link(*const List);

/// The word, marked with this thread. Dropping it marks the word as ended.
#[derive(Debug)]
pub(crate) struct Mark<'a> {
    word: &'a AtomicU32,
    list: *mut List,
}

impl<'a> Mark<'a> {
    /// Marks `word` with the calling thread, which must use no robust mutex.
    pub(crate) fn new(word: &'a AtomicU32) -> Self {
        let list = Box::into_raw(Box::new(List {
            first: std::ptr::null(),
            offset: 0,
            pending: std::ptr::null(),
            link: Link(std::ptr::null()),
        }));
        // SAFETY: the list was just allocated, and nothing else refers to it.
        unsafe {
            let link = &raw mut (*list).link;
            (*list).first = link;
            (*list).offset = (word.as_ptr().addr() as isize).wrapping_sub(link.addr() as isize);
            (*list).link = Link(list);
        }
        word.store(gettid().as_raw_nonzero().get() as u32, Ordering::Release);
        set_list(list);
        Mark { word, list }
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        set_list(std::ptr::null_mut());
        self.word.store(ENDED, Ordering::Release);
        // SAFETY: `new` made it from a box, and the kernel does not refer to it any longer.
        drop(unsafe { Box::from_raw(self.list) });
    }
}

/// Names the list that the kernel reads when this thread ends.
fn set_list(list: *mut List) {
    let length = std::mem::offset_of!(List, link);
    // SAFETY: the kernel only reads the list, which stays until this is called with null. Where the call is refused, deaths
    // are noticed by the pidfd alone.
    unsafe { libc::syscall(libc::SYS_set_robust_list, list, length) };
}

/// Whether a thread has marked `word` and ended since.
#[inline]
pub(crate) fn has_ended(word: &AtomicU32) -> bool {
    word.load(Ordering::Acquire) & ENDED != 0
}

/// Whether a thread has marked `word` and has not ended.
#[inline]
pub(crate) fn runs(word: &AtomicU32) -> bool {
    let mark = word.load(Ordering::Acquire);
    mark != 0 && mark & ENDED == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_just_ends_is_noticed() {
        let word = AtomicU32::new(0);
        assert!(!runs(&word) && !has_ended(&word));
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| {
                let mark = Mark::new(&word);
                assert!(runs(&word));
                std::mem::forget(mark);
            });
            ended.join().unwrap();
        });
        // The thread may be joined before it has ended.
        while runs(&word) {
            std::thread::yield_now();
        }
        assert!(has_ended(&word));
        let mark = Mark::new(&word);
        assert!(runs(&word) && !has_ended(&word));
        drop(mark);
        assert!(!runs(&word));
    }
}
