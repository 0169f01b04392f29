//! Costs of this machine's CPU: clock, atomics, system calls, wake-ups and copies.

use std::hint::black_box;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use adverb_units::Span;

use crate::{clock, pin, usable_cores};

/// Number of averages. Their median counts, because an interrupt disturbs few of them.
const AVERAGES: usize = 15;
/// Repetitions of an average.
const TIMES: u32 = 1000;
/// Bytes of a copy: more than a core's own caches hold, less than the last-level cache.
const COPY: usize = 4 << 20;

/// Costs of this machine's CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuTimes {
    /// Reading the clock.
    pub clock: Span,
    /// An atomic addition to a line in the core's cache.
    pub atomic: Span,
    /// A system call that need not wait: writing or reading a byte of a pipe.
    pub syscall: Span,
    /// From a write to a pipe until a thread that sleeps on another core has read it, without the two system calls;
    /// `None` if this process may use only one core.
    pub wake: Option<Span>,
    /// Copying a byte of a buffer that the last-level cache holds, in ns.
    pub copy_byte_ns: f64,
}

/// Measures them, in less than a second.
///
/// # Errors
/// The kernel refuses a pipe, or to pin a thread.
pub fn cpu_times() -> io::Result<CpuTimes> {
    let clock = clock::measure_cost();
    let word = AtomicU64::new(0);
    let atomic = median(TIMES, || {
        black_box(word.fetch_add(1, Ordering::Relaxed));
        Ok(())
    })?;
    let (mut read, mut write) = pipe()?;
    let both = median(TIMES, || {
        write.write_all(&[1])?;
        read.read_exact(&mut [0])
    })?;
    let syscall = both / 2;
    let (from, mut to) = (vec![1u8; COPY], vec![0u8; COPY]);
    let copy = median(1, || {
        to.copy_from_slice(black_box(&from));
        black_box(&to);
        Ok(())
    })?;
    let wake = match usable_cores()[..] {
        [one, other, ..] => Some(wake(one, other)?.saturating_sub(both)),
        _ => None,
    };
    Ok(CpuTimes {
        clock,
        atomic,
        syscall,
        wake,
        copy_byte_ns: copy.as_ns_f64() / COPY as f64,
    })
}

/// Returns the median of averages of `times` calls.
fn median(times: u32, mut call: impl FnMut() -> io::Result<()>) -> io::Result<Span> {
    let mut averages = [Span::ZERO; AVERAGES];
    for average in &mut averages {
        let start = clock::now();
        for _ in 0..times {
            call()?;
        }
        *average = (clock::now() - start) / u64::from(times);
    }
    averages.sort_unstable();
    Ok(averages[AVERAGES / 2])
}

/// Returns half of a round trip between two threads that sleep in turn.
fn wake(one: u32, other: u32) -> io::Result<Span> {
    let ((mut here, to_here), (mut there, to_there)) = (pipe()?, pipe()?);
    let pass = |from: &mut PipeReader, mut to: &PipeWriter| {
        from.read_exact(&mut [0])?;
        to.write_all(&[1])
    };
    thread::scope(|scope| {
        // Each thread owns its ends, so that the other one ends, too, if it fails.
        let answering = scope.spawn(move || {
            pin(other)?;
            while pass(&mut there, &to_here).is_ok() {}
            Ok(())
        });
        let asking = scope.spawn(move || {
            pin(one)?;
            median(TIMES, || {
                (&to_there).write_all(&[1])?;
                here.read_exact(&mut [0])
            })
        });
        let round_trip = asking.join().expect("the thread does not panic");
        let answered: io::Result<()> = answering.join().expect("the thread does not panic");
        answered.and(round_trip).map(|round_trip| round_trip / 2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_is_measured() {
        let times = cpu_times().unwrap();
        assert!(
            times.clock > Span::ZERO && times.atomic > Span::ZERO,
            "{times:?}"
        );
        assert!(times.syscall > times.atomic, "{times:?}");
        assert_eq!(times.wake.is_some(), usable_cores().len() > 1);
        assert!((0.001..100.0).contains(&times.copy_byte_ns), "{times:?}");
    }
}
