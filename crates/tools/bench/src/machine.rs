//! Limits of the machine itself, which no transport can exceed.
#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use adverb_host::pin;
use anyhow::{Context as _, Result};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::child::on_core;

/// A counter that shares its cache line (and the next, which is fetched along) with nothing.
#[repr(align(128))]
struct Flag(AtomicU64);

/// One-way time in ns of a flag that two pinned threads bounce.
pub(crate) fn flag_ping_pong(cores: [u32; 2]) -> Result<f64> {
    const ROUNDS: u64 = 1_000_000;
    let (there, back) = (Flag(AtomicU64::new(0)), Flag(AtomicU64::new(0)));
    let wait = |flag: &Flag, value| while flag.0.load(Ordering::Acquire) != value {};
    std::thread::scope(|scope| {
        let passive = scope.spawn(|| {
            pin(cores[1])?;
            for round in 1..=ROUNDS {
                wait(&there, round);
                back.0.store(round, Ordering::Release);
            }
            std::io::Result::Ok(())
        });
        let active = scope.spawn(|| {
            pin(cores[0])?;
            let mut start = Instant::now();
            for round in 1..=ROUNDS {
                if round == ROUNDS / 10 {
                    start = Instant::now();
                }
                there.0.store(round, Ordering::Release);
                wait(&back, round);
            }
            std::io::Result::Ok(start.elapsed())
        });
        passive
            .join()
            .expect("the passive thread does not panic")
            .context("cannot pin")?;
        let elapsed = active
            .join()
            .expect("the active thread does not panic")
            .context("cannot pin")?;
        Ok(elapsed.as_nanos() as f64 / (ROUNDS - ROUNDS / 10 + 1) as f64 / 2.0)
    })
}

/// Cost of two threads waking each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WakeUps {
    pub(crate) one_way_ns: f64,
    pub(crate) active_cpu_percent: f64,
    pub(crate) passive_cpu_percent: f64,
}

/// Measures two pinned threads that pass a byte through two pipes and sleep in between.
pub(crate) fn pipe_ping_pong(cores: [u32; 2]) -> Result<WakeUps> {
    const ROUNDS: u32 = 5_000;
    let (mut to_passive, mut there) = std::io::pipe()?;
    let (mut to_active, mut back) = std::io::pipe()?;
    std::thread::scope(|scope| {
        let passive = scope.spawn(move || {
            pin(cores[1])?;
            timed(|| {
                for _ in 0..ROUNDS {
                    to_passive.read_exact(&mut [0])?;
                    back.write_all(&[0])?;
                }
                Ok(())
            })
        });
        let active = scope.spawn(move || {
            pin(cores[0])?;
            timed(|| {
                for _ in 0..ROUNDS {
                    there.write_all(&[0])?;
                    to_active.read_exact(&mut [0])?;
                }
                Ok(())
            })
        });
        let passive = passive.join().expect("the passive thread does not panic")?;
        let active = active.join().expect("the active thread does not panic")?;
        Ok(WakeUps {
            one_way_ns: active.0 * 1e9 / f64::from(ROUNDS) / 2.0,
            active_cpu_percent: 100.0 * active.1 / active.0,
            passive_cpu_percent: 100.0 * passive.1 / passive.0,
        })
    })
}

/// CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

/// Elapsed and CPU seconds of this thread in `work`.
fn timed(work: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<(f64, f64)> {
    let (start, before) = (Instant::now(), cpu_time());
    work()?;
    let spent = cpu_time() - before;
    Ok((start.elapsed().as_secs_f64(), spent.as_secs_f64()))
}

/// Bytes per second of memcpy from `count` buffers of `size` bytes of one shared mapping to those
/// of another, in turn.
pub(crate) fn memcpy_between_mappings(core: u32, size: usize, count: usize) -> Result<f64> {
    on_core(core, || {
        let (from, to) = (Shared::new(size * count)?, Shared::new(size * count)?);
        Ok(copy_rate(&from, &to, size, count))
    })
}

fn copy_rate(from: &Shared, to: &Shared, size: usize, count: usize) -> f64 {
    let rounds = (4 << 30) / (size * count);
    let mut start = Instant::now();
    for round in 0..rounds + rounds / 10 {
        if round == rounds / 10 {
            start = Instant::now();
        }
        for offset in (0..count).map(|i| i * size) {
            // SAFETY: both mappings have size * count bytes, and nobody else uses them.
            unsafe {
                std::ptr::copy_nonoverlapping(from.base.add(offset), to.base.add(offset), size);
            };
            std::hint::black_box(to.base);
        }
    }
    (rounds * size * count) as f64 / start.elapsed().as_secs_f64()
}

/// Shared memory, as a region of the user-space NIC is.
struct Shared {
    base: *mut u8,
    length: usize,
}

impl Shared {
    fn new(length: usize) -> Result<Self> {
        let file = memfd_create("adverb-bench", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, length as u64)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            mmap(
                std::ptr::null_mut(),
                length,
                prot,
                MapFlags::SHARED | MapFlags::POPULATE,
                &file,
                0,
            )?
        };
        // SAFETY: the mapping was just made, `length` bytes long and writable.
        unsafe { std::ptr::write_bytes(base.cast::<u8>(), 1, length) };
        Ok(Shared {
            base: base.cast(),
            length,
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and no pointer into it outlives self.
        let _ = unsafe { munmap(self.base.cast(), self.length) };
    }
}
