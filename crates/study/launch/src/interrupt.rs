//! Ctrl-C, SIGTERM and SIGHUP: noticed at the next wait. A second signal ends the process at once, and its
//! children with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::SIGXFSZ;

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail with an error. Without a handler of SIGXFSZ it ends
/// the process.
///
/// # Errors
/// The handler cannot be installed.
pub fn report_file_size_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// The last signal that has arrived since the start of the process; 0: none.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Signals that ask the program to end.
const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Whether a signal asked the program to end.
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    /// Readable once a signal has arrived; never drained.
    wake: UnixStream,
}

impl Interrupt {
    /// Installs the signal handlers.
    pub fn listen() -> anyhow::Result<Self> {
        // A signal that arrived before its last handler is registered would be lost: block it until then.
        let before = SigSet::from_iter(SIGNALS).thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let registered = Self::register();
        before.thread_set_mask()?;
        registered.context("cannot listen for signals")
    }

    fn register() -> io::Result<Self> {
        let raised = Arc::new(AtomicBool::new(false));
        let (wake, ring) = UnixStream::pair()?;
        for signal in SIGNALS.map(|signal| signal as i32) {
            // In this order: the first signal finds `raised` false, and sets it.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                exit_status(signal),
                raised.clone(),
            )?;
            signal_hook::flag::register_usize(signal, SIGNAL.clone(), signal as usize)?;
            signal_hook::flag::register(signal, raised.clone())?;
            signal_hook::low_level::pipe::register(signal, ring.try_clone()?)?;
        }
        Ok(Interrupt { raised, wake })
    }

    /// Returns the exit status of a process that a signal ended; `None` if none has arrived.
    pub fn exit_status() -> Option<u8> {
        match SIGNAL.load(Ordering::Relaxed) {
            0 => None,
            signal => u8::try_from(exit_status(signal as i32)).ok(),
        }
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

/// The exit status of a process that `signal` ended, as shells report it.
const fn exit_status(signal: i32) -> i32 {
    128 + signal
}
