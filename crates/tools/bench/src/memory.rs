//! What the kernel and the user-space NIC take to reach and to register memory that a program already has.
#![allow(unsafe_code)]

use std::time::Instant;

use adverb_softnic::SoftDevice;
use adverb_units::Bytes;
use adverb_verbs::{AccessFlags, Context as _, Device as _};
use anyhow::{Context as _, Result, ensure};

use crate::child::on_core;
use crate::row::Pair;

/// Time in ns of `process_vm_writev` with `length` bytes into a process that does nothing, as the passive side of WRITEs.
pub(crate) fn process_vm_writev(core: u32, length: usize) -> Result<f64> {
    const CALLS: u32 = 200_000;
    on_core(core, || {
        // They begin with a page, as the buffers of perftest do.
        let (from, to) = (Mapping::new(length)?, Mapping::new(length)?);
        let other = Idle::fork()?;
        let [from, to] = [&from, &to].map(|buffer| libc::iovec {
            iov_base: buffer.start,
            iov_len: length,
        });
        let start = Instant::now();
        for _ in 0..CALLS {
            // SAFETY: both buffers have `length` bytes, and nothing else uses them: the other process has `to` at the
            // same address.
            let done = unsafe {
                libc::process_vm_writev(other.0, &raw const from, 1, &raw const to, 1, 0)
            };
            ensure!(
                done == length.cast_signed(),
                "process_vm_writev: {}",
                std::io::Error::last_os_error()
            );
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(CALLS))
    })
}

/// A copy of this process that sleeps until it is dropped.
struct Idle(libc::pid_t);

impl Idle {
    fn fork() -> Result<Self> {
        // SAFETY: the child makes only system calls.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()).context("cannot start a process"),
            0 => loop {
                // SAFETY: they have no conditions. The kernel ends the child with the thread that started it.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::pause();
                }
            },
            child => Ok(Idle(child)),
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // SAFETY: it is a child of this process that nobody else waits for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Seconds in which the user-space NIC registers 1 GiB, and in which the kernel locks as much; `None` if it may not.
pub(crate) fn registration(core: u32) -> Result<Option<Pair>> {
    const LENGTH: usize = 1 << 30;
    on_core(core, || {
        let context = SoftDevice::new().open()?;
        let pd = context.alloc_pd()?;
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let (memory, other) = (Mapping::new(LENGTH)?, Mapping::new(LENGTH)?);
        let start = Instant::now();
        // SAFETY: the mapping outlives the region, and no request uses the memory.
        let region = unsafe {
            context.register(&pd, memory.start.cast(), Bytes::new(LENGTH as u64), access)
        }?;
        let ours = start.elapsed().as_secs_f64();
        drop(region);
        let start = Instant::now();
        // SAFETY: the mapping has `LENGTH` bytes.
        let locked = unsafe { libc::mlock(other.start, LENGTH) } == 0;
        Ok(locked.then(|| (ours, start.elapsed().as_secs_f64())))
    })
}

/// Private memory, of which no page is present yet.
struct Mapping {
    start: *mut libc::c_void,
    length: usize,
}

impl Mapping {
    fn new(length: usize) -> Result<Self> {
        let (protection, how) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, how, -1, 0) };
        ensure!(start != libc::MAP_FAILED, "no memory for {length} bytes");
        Ok(Mapping { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and no pointer into it outlives self.
        unsafe { libc::munmap(self.start, self.length) };
    }
}
