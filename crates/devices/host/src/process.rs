//! The process and its cores.

use std::io;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Lets the calling thread (and threads it starts from now on) run on `core` only.
pub fn pin(core: u32) -> io::Result<()> {
    let core = core as usize;
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns the cores that the calling thread may run on, in ascending order; empty if the system does
/// not report them.
pub fn usable_cores() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .filter_map(|core| u32::try_from(core).ok())
        .collect()
}

/// Asks the kernel to kill this process when the thread that started it ends.
///
/// `parent` is the id of the process that started this one. It is an error if the parent has already ended.
/// The kernel watches the *thread* that started this process, so start it from a thread that lives long
/// enough.
pub fn die_with_parent(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let is_parent = |pid: Pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(parent);
    if getppid().is_some_and(is_parent) {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "process {parent}, which started this one, has ended"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_pinned_and_says_so() {
        let before = usable_cores();
        assert!(!before.is_empty());
        let core = before[before.len() - 1];
        let pinned = std::thread::spawn(move || pin(core).map(|()| usable_cores())).join();
        assert_eq!(pinned.unwrap().unwrap(), [core]);
        assert_eq!(usable_cores(), before);
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        assert!(pin(CpuSet::MAX_CPU as u32).is_err());
        assert!(pin(CpuSet::MAX_CPU as u32 - 1).is_err());
    }

    #[test]
    fn a_wrong_parent_is_noticed() {
        let error = std::thread::spawn(|| die_with_parent(u32::MAX))
            .join()
            .unwrap();
        assert!(error.unwrap_err().to_string().contains("has ended"));
        // Undo: the test process outlives whichever thread started it.
        set_parent_process_death_signal(None).unwrap();
    }
}
