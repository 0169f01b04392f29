//! Whether two processes are on one machine and can share memory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use adverb_host::Kernel;
use adverb_results::{DeviceKind, Site};
use serde::{Deserialize, Serialize};

use crate::info::DeviceInfo;

/// Identifies the machine, user, container and shared memory of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    /// Random id of the machine's boot; `None` if unknown.
    boot_id: Option<String>,
    /// Inode of the PID namespace.
    pid_namespace: u64,
    /// Effective user.
    uid: u32,
    /// Device and inode of the folder of the user-space device's shared memory.
    memory: Option<(u64, u64)>,
}

impl Identity {
    /// Returns the identity of this process, with the shared memory that this device uses.
    pub(crate) fn of(info: &DeviceInfo) -> Self {
        let kernel = Kernel::this();
        Identity {
            pid_namespace: kernel.as_ref().map_or(0, |kernel| kernel.pid_namespace),
            boot_id: kernel.map(|kernel| kernel.boot_id),
            uid: rustix::process::geteuid().as_raw(),
            memory: shared_memory(info.reference.kind, &info.site),
        }
    }

    /// Whether both run on one kernel.
    pub(crate) fn same_machine(&self, other: &Identity) -> bool {
        self.boot_id.is_some() && self.boot_id == other.boot_id
    }

    /// Returns why the two cannot share memory; `None` if they can.
    pub(crate) fn parted_from(&self, other: &Identity) -> Option<String> {
        if !self.same_machine(other) {
            return Some("these are two machines".to_owned());
        }
        if self.uid != other.uid {
            return Some(format!("these are user {} and {}", self.uid, other.uid));
        }
        if self.pid_namespace != other.pid_namespace {
            return Some("these are two PID namespaces (containers)".to_owned());
        }
        (self.memory.is_none() || self.memory != other.memory)
            .then(|| "these are two shared memories (/dev/shm, ADVERB_SHM)".to_owned())
    }
}

/// Identifies the parent folder of the user's directory, which exists only while the user's processes do.
fn shared_memory(kind: DeviceKind, site: &Site) -> Option<(u64, u64)> {
    if kind != DeviceKind::Soft {
        return None;
    }
    let folder = Path::new(site.device.get("memory")?).parent()?;
    let meta = fs::metadata(folder).ok()?;
    Some((meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_cannot_share_memory_are_told_why() {
        let here = Identity {
            boot_id: Some("b".to_owned()),
            pid_namespace: 1,
            uid: 0,
            memory: Some((1, 2)),
        };
        let parted = |change: fn(&mut Identity)| {
            let mut other = here.clone();
            change(&mut other);
            here.parted_from(&other).unwrap_or_default()
        };
        assert_eq!(here.parted_from(&here), None);
        assert!(parted(|i| i.boot_id = None).contains("two machines"));
        assert!(parted(|i| i.uid = 7).contains("user 0 and 7"));
        assert!(parted(|i| i.pid_namespace = 7).contains("containers"));
        assert!(parted(|i| i.memory = None).contains("ADVERB_SHM"));
    }
}
