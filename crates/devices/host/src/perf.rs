//! Counters of the kernel's performance events (perf_event_open(2)).

use std::fs::File;
use std::io::{self, Read as _};
use std::mem::size_of;
use std::os::fd::FromRawFd as _;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 8;

/// `struct perf_event_attr` in its first version (`PERF_ATTR_SIZE_VER0`), which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
}

/// Where an event is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scope {
    /// In the calling thread.
    Thread,
    /// In all threads on this CPU; an event of a whole package, in the package of this CPU.
    Cpu(u32),
}

/// A counter.
#[derive(Debug)]
pub(crate) struct Counter(File);

impl Counter {
    /// Begins to count an event, which the unit of type `kind` knows as `config`.
    #[allow(unsafe_code)]
    pub(crate) fn open(kind: u32, config: u64, scope: Scope) -> io::Result<Self> {
        let attr = PerfEventAttr {
            kind,
            size: size_of::<PerfEventAttr>() as u32,
            config,
            ..PerfEventAttr::default()
        };
        let (thread, cpu) = match scope {
            Scope::Thread => (0, -1),
            Scope::Cpu(cpu) => (-1, cpu as i32),
        };
        let no_group = -1;
        // SAFETY: the attributes have the layout and the size that they name; the kernel only reads them.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                thread,
                cpu,
                no_group,
                CLOEXEC,
            )
        };
        match i32::try_from(fd) {
            // SAFETY: the descriptor is new, and nothing else owns it.
            Ok(fd) if fd >= 0 => Ok(Counter(unsafe { File::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the count since the counter was opened.
    pub(crate) fn count(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        (&self.0).read_exact(&mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}
