//! The number of system calls of a thread, counted by the kernel.
//!
//! The tracepoint `raw_syscalls:sys_enter` as a performance event (perf_event_open(2)) counts every system call at its
//! entry, without stopping the thread. Other ways slow the calls down (ptrace, a seccomp notifier) or do not see them
//! all (wrapping libc's functions). The kernel gives it to root and to processes with `CAP_PERFMON` only.

use std::cell::Cell;
use std::fs::read_to_string;
use std::io;
use std::path::Path;

use adverb_verbs::NotCounted;

use crate::perf::{Counter, Scope};

/// Where tracefs is mounted, and where older systems mount it.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// The number of the tracepoint, in tracefs.
const TRACEPOINT: &str = "events/raw_syscalls/sys_enter/id";
/// `PERF_TYPE_TRACEPOINT`.
const TYPE_TRACEPOINT: u32 = 2;

/// Counts the system calls of the thread that opened it.
#[derive(Debug)]
pub(crate) struct SystemCalls {
    counter: Counter,
    /// Reads of the counter, which are system calls, too.
    reads: Cell<u64>,
}

impl SystemCalls {
    /// Begins to count.
    pub(crate) fn of_this_thread() -> Result<Self, NotCounted> {
        let number = tracepoint(&TRACEFS.map(Path::new))?;
        let counter = Counter::open(TYPE_TRACEPOINT, number, Scope::Thread).map_err(|error| {
            NotCounted(format!(
                "the kernel refused the event raw_syscalls:sys_enter: {error}; run as root or with CAP_PERFMON"
            ))
        })?;
        Ok(SystemCalls {
            counter,
            reads: Cell::new(0),
        })
    }

    /// Returns the number of system calls except those that this function makes.
    pub(crate) fn count(&self) -> Result<u64, NotCounted> {
        self.reads.set(self.reads.get() + 1);
        let count = self.counter.count();
        let count =
            count.map_err(|error| NotCounted(format!("cannot read their counter: {error}")))?;
        // The event counts a read before the read returns the count.
        Ok(count.saturating_sub(self.reads.get()))
    }
}

/// Returns the number of the tracepoint.
fn tracepoint(mounts: &[&Path]) -> Result<u64, NotCounted> {
    let mut refused = None;
    for mount in mounts {
        match read_to_string(mount.join(TRACEPOINT)) {
            Ok(number) => {
                let number = number.trim().parse();
                return number.map_err(|_| NotCounted("invalid number of a tracepoint".to_owned()));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused = Some(error),
            Err(_) => {}
        }
    }
    Err(NotCounted(match refused {
        Some(error) => format!("tracefs cannot be read: {error}; run as root"),
        None => "tracefs is not mounted; run as root, after `mount -t tracefs tracefs /sys/kernel/tracing`".to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tracefs_is_named_with_its_remedy() {
        let nowhere = Path::new("/proc/self/nowhere");
        let error = tracepoint(&[nowhere]).unwrap_err().to_string();
        assert!(error.contains("mount -t tracefs"), "{error}");
    }

    /// Mounts tracefs for the calling thread alone, which needs root.
    #[allow(unsafe_code)]
    fn mount_tracefs() -> io::Result<()> {
        let check = |status| match status {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let (root, none) = (c"/".as_ptr(), std::ptr::null());
        let (what, at) = (c"tracefs".as_ptr(), c"/sys/kernel/tracing".as_ptr());
        // SAFETY: the texts end with 0, and no other thread shares this one's mounts from the first call on.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            check(libc::mount(none, root, none, private, none.cast()))?;
            check(libc::mount(what, at, what, 0, none.cast()))
        }
    }

    #[test]
    fn each_system_call_counts_once() {
        let counted = std::thread::spawn(|| {
            if let Err(error) = mount_tracefs() {
                #[allow(clippy::print_stderr, reason = "what did not run is listed")]
                {
                    eprintln!("NOT RUN: counting system calls: tracefs cannot be mounted: {error}");
                }
                return;
            }
            let calls = SystemCalls::of_this_thread().unwrap();
            let before = calls.count().unwrap();
            assert_eq!(calls.count(), Ok(before));
            for _ in 0..10 {
                std::hint::black_box(rustix::process::getppid());
            }
            assert_eq!(calls.count(), Ok(before + 10));
        });
        counted.join().unwrap();
    }
}
