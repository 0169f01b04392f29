//! Facts about a process.

use std::env;
use std::path::{Path, PathBuf};

use adverb_units::Bytes;
use rustix::process::{PidfdFlags, Resource, geteuid, getpid, getrlimit, pidfd_open};
use rustix::thread::{
    CapabilitySet, MembarrierQuery, capabilities, membarrier_query, sched_getaffinity,
};

use super::CpuSet;

/// Facts about a process that matter for RDMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Effective user.
    pub uid: u32,
    /// Limit on locked memory (`RLIMIT_MEMLOCK`).
    pub memory_lock: Limit,
    /// Whether the process is exempt from the limit (`CAP_IPC_LOCK`).
    pub may_lock_all: bool,
    /// CPUs that it may run on.
    pub affinity: CpuSet,
    /// Whether the kernel has the `membarrier` commands of the user-space device.
    pub has_membarrier: bool,
    /// Whether the kernel has `pidfd_open`.
    pub has_pidfd: bool,
    /// `LD_LIBRARY_PATH`.
    pub library_path: Vec<PathBuf>,
    /// `ADVERB_SHM`: where the user-space device keeps its files instead of `/dev/shm`.
    pub shared_memory: Option<PathBuf>,
}

/// A limit; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// The current limit.
    pub soft: Option<Bytes>,
    /// The maximum to which the process may raise it.
    pub hard: Option<Bytes>,
}

impl Process {
    /// Returns the facts about this process.
    pub fn this() -> Self {
        let limit = getrlimit(Resource::Memlock);
        let capable = capabilities(None).is_ok_and(|sets| {
            let effective = sets.effective;
            effective.contains(CapabilitySet::IPC_LOCK)
        });
        let paths = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        Process {
            uid: geteuid().as_raw(),
            memory_lock: Limit {
                soft: limit.current.map(Bytes::new),
                hard: limit.maximum.map(Bytes::new),
            },
            may_lock_all: capable,
            affinity: affinity(),
            has_membarrier: membarrier_query().contains(
                MembarrierQuery::GLOBAL_EXPEDITED | MembarrierQuery::REGISTER_GLOBAL_EXPEDITED,
            ),
            has_pidfd: pidfd_open(getpid(), PidfdFlags::empty()).is_ok(),
            library_path: env::split_paths(&paths)
                .filter(|path| !path.as_os_str().is_empty())
                .collect(),
            shared_memory: env::var_os("ADVERB_SHM").map(PathBuf::from),
        }
    }

    /// Prefix of a command that needs root.
    pub(crate) fn sudo(&self) -> &'static str {
        if self.uid == 0 { "" } else { "sudo " }
    }

    /// Where the user-space device of this process keeps its files.
    pub(super) fn shared_memory(&self, root: &Path) -> PathBuf {
        let default = || root.join("dev/shm");
        self.shared_memory.clone().unwrap_or_else(default)
    }
}

fn affinity() -> CpuSet {
    let Ok(set) = sched_getaffinity(None) else {
        return CpuSet::default();
    };
    let all = 0..rustix::thread::CpuSet::MAX_CPU;
    all.filter(|cpu| set.is_set(*cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect()
}
