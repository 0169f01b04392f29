//! Ctrl-C, SIGTERM and SIGHUP: noticed at the next wait. A second signal ends the process at once, and its
//! children with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail with an error. Without a handler of SIGXFSZ it ends
/// the process.
///
/// # Errors
/// The handler cannot be installed.
pub fn report_file_size_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Exit status after a second signal, as shells report it: 128 + SIGINT.
const KILLED: i32 = 130;

/// Whether a signal asked the program to end.
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    /// Readable once a signal has arrived; never drained.
    wake: UnixStream,
}

impl Interrupt {
    /// Installs the signal handlers.
    pub fn listen() -> anyhow::Result<Self> {
        Self::register().context("cannot listen for signals")
    }

    fn register() -> io::Result<Self> {
        let raised = Arc::new(AtomicBool::new(false));
        let (wake, ring) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal finds `raised` false, and sets it.
            signal_hook::flag::register_conditional_shutdown(signal, KILLED, raised.clone())?;
            signal_hook::flag::register(signal, raised.clone())?;
            signal_hook::low_level::pipe::register(signal, ring.try_clone()?)?;
        }
        Ok(Interrupt { raised, wake })
    }

    /// Whether a signal has arrived.
    pub fn raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// Waits for `span` or a signal; returns whether a signal has arrived.
    pub fn within(&self, span: Duration) -> bool {
        if !span.is_zero()
            && let Ok(timeout) = Timespec::try_from(span)
        {
            let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
            // An error means EINTR: a signal has arrived.
            let _ = poll(&mut fds, Some(&timeout));
        }
        self.raised()
    }

    /// Readable once a signal has arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
