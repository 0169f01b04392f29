//! Waiting threads, and how others wake them.
//!
//! Several threads may wait for one rsocket: one to read, one to write, one in `rpoll`. Each event of a completion channel
//! is taken by one of them. Therefore a thread that has taken an event or a completion, or has changed an rsocket's state,
//! wakes all others, and each looks for itself whether its condition is true.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::object::lock;

/// A thread that can wait: the descriptor by which others wake it.
#[derive(Debug)]
pub(super) struct Sleeper(OwnedFd);

thread_local! {
    static SLEEPER: OnceCell<Arc<Sleeper>> = const { OnceCell::new() };
}

/// Creates a descriptor of an event counter.
pub(super) fn event_counter() -> io::Result<OwnedFd> {
    // SAFETY: creates a descriptor, which is owned here.
    unsafe {
        match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

impl Sleeper {
    /// Returns the calling thread's.
    pub(super) fn current() -> io::Result<Arc<Self>> {
        SLEEPER.with(|own| match own.get() {
            Some(sleeper) => Ok(sleeper.clone()),
            None => {
                let sleeper = Arc::new(Sleeper(event_counter()?));
                Ok(own.get_or_init(|| sleeper).clone())
            }
        })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: writes 8 bytes to an event counter, which is far from its maximum.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes back all calls of [`Sleeper::wake`]. A call that is not taken back ends the next sleep early.
    pub(super) fn reset(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: reads 8 bytes.
        unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// The threads that wait for an rsocket.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    list: Mutex<Vec<Arc<Sleeper>>>,
    count: AtomicUsize,
}

impl Sleepers {
    pub(super) fn add(&self, sleeper: &Arc<Sleeper>) {
        self.count.fetch_add(1, Ordering::SeqCst);
        lock(&self.list).push(sleeper.clone());
    }

    pub(super) fn remove(&self, sleeper: &Arc<Sleeper>) {
        let mut list = lock(&self.list);
        if let Some(at) = list.iter().position(|other| Arc::ptr_eq(other, sleeper)) {
            list.swap_remove(at);
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Wakes all but the calling thread, after a change that was made with the rsocket's state locked. A thread that is
    /// not yet in the list locks the state after that, and sees the change.
    pub(super) fn wake_others(&self) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let own = SLEEPER.with(|own| own.get().cloned());
        let is_own =
            |sleeper: &&Arc<Sleeper>| own.as_ref().is_some_and(|own| Arc::ptr_eq(own, sleeper));
        let list = lock(&self.list);
        list.iter().filter(|s| !is_own(s)).for_each(|s| s.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_wakes_the_others_and_not_itself() {
        let sleepers = Sleepers::default();
        let own = Sleeper::current().unwrap();
        sleepers.add(&own);
        let is_awake = |sleeper: &Sleeper| {
            let mut poll = libc::pollfd {
                fd: sleeper.fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one descriptor.
            unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
        };
        sleepers.wake_others();
        assert!(!is_awake(&own));
        std::thread::scope(|scope| {
            scope.spawn(|| sleepers.wake_others());
        });
        assert!(is_awake(&own));
        own.reset();
        assert!(!is_awake(&own));
        sleepers.remove(&own);
        assert_eq!(sleepers.count.load(Ordering::SeqCst), 0);
    }
}
