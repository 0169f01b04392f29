//! The monotonic clock and the CPU account.

use adverb_units::{CpuTime, Span, Time};
use rustix::time::{ClockId, clock_gettime};

/// The CPU time that counts as a role's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuScope {
    /// The whole process: the role has it for itself, with the threads of its device.
    #[default]
    Process,
    /// The calling thread: other roles run in the same process.
    Thread,
}

/// `CLOCK_MONOTONIC`: on Linux one clock for all processes of a host.
#[inline]
pub(crate) fn now() -> Time {
    let t = clock_gettime(ClockId::Monotonic);
    Time::ZERO + Span::from_secs(t.tv_sec as u64) + Span::from_ns(t.tv_nsec as u64)
}

/// Measures the cost of one call of [`now`]: the median of a few dozen averages, so that an interrupt during one
/// of them does not count.
pub(crate) fn measure_cost() -> Span {
    const AVERAGES: usize = 33;
    const CALLS: u64 = 64;
    let mut averages = [Span::ZERO; AVERAGES];
    for average in &mut averages {
        let start = now();
        for _ in 1..CALLS {
            std::hint::black_box(now());
        }
        *average = (now() - start) / CALLS;
    }
    averages.sort_unstable();
    averages[AVERAGES / 2]
}

/// CPU time of this process with all its threads, or of the calling thread.
#[allow(unsafe_code)]
pub(crate) fn cpu(scope: CpuScope) -> CpuTime {
    let who = match scope {
        CpuScope::Process => libc::RUSAGE_SELF,
        CpuScope::Thread => libc::RUSAGE_THREAD,
    };
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a writable `rusage`; either `who` and a valid pointer cannot fail, and all
    // zeroes are a valid `rusage` if it did.
    let usage = unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    };
    let span =
        |t: libc::timeval| Span::from_secs(t.tv_sec as u64) + Span::from_us(t.tv_usec as u64);
    CpuTime {
        user: span(usage.ru_utime),
        system: span(usage.ru_stime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_advances_and_its_cost_is_plausible() {
        let before = now();
        let cost = measure_cost();
        assert!(now() > before);
        assert!(cost > Span::ZERO && cost < Span::from_us(50), "{cost}");
    }

    #[test]
    fn busy_work_is_accounted() {
        let (start, before) = (now(), cpu(CpuScope::Thread));
        while now() - start < Span::from_ms(40) {}
        let used = cpu(CpuScope::Thread).since(before);
        assert!(used.user + used.system >= Span::from_ms(5), "{used:?}");
        let all = cpu(CpuScope::Process);
        assert!(all.user + all.system >= used.user + used.system);
    }
}
