//! Facts about this machine, for a record's provenance.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

use crate::process::usable_cores;

/// The machine that a process runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU model; `unknown` if `/proc/cpuinfo` has none.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: u32,
}

impl Machine {
    /// Returns this machine.
    pub fn this() -> Self {
        let uname = rustix::system::uname();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Machine {
            host: uname.nodename().to_string_lossy().into_owned(),
            kernel: uname.release().to_string_lossy().into_owned(),
            cpu: cpu_model(&cpuinfo).unwrap_or("unknown").to_owned(),
            cores: u32::try_from(usable_cores().len()).unwrap_or(u32::MAX),
        }
    }
}

/// Identifies the running kernel and the PID namespace: equal in two processes that can find each other by
/// process id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Random id of the machine's boot (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// The PID namespace, by its inode.
    pub pid_namespace: u64,
}

impl Kernel {
    /// Returns this process's kernel; `None` if `/proc` does not have it.
    pub fn this() -> Option<Self> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(Kernel {
            boot_id: boot_id.trim().to_owned(),
            pid_namespace: fs::metadata("/proc/self/ns/pid").ok()?.ino(),
        })
    }
}

/// Returns the NUMA node of a core; `None` if unknown.
pub fn numa_node(core: u32) -> Option<u32> {
    let folder = fs::read_dir(format!("/sys/devices/system/cpu/cpu{core}")).ok()?;
    folder.flatten().find_map(|entry| {
        entry
            .file_name()
            .to_str()?
            .strip_prefix("node")?
            .parse()
            .ok()
    })
}

/// The first model that `/proc/cpuinfo` names (x86: `model name`; others: `Model`, `cpu model`).
fn cpu_model(cpuinfo: &str) -> Option<&str> {
    cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        let names_model = matches!(key.trim(), "model name" | "Model" | "cpu model");
        (names_model && !value.trim().is_empty()).then(|| value.trim())
    })
}

/// The date and time, RFC 3339, UTC, to the second: `2026-01-02T03:04:05Z`.
pub fn now_rfc3339() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name_a_kernel_and_a_core() {
        let machine = Machine::this();
        assert!(!machine.host.is_empty() && !machine.kernel.is_empty() && !machine.cpu.is_empty());
        assert!(machine.cores >= 1);
    }

    #[test]
    fn the_cpu_model_is_the_first_one_named() {
        let text = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: Some CPU @ 2 GHz\nmodel name : B\n";
        assert_eq!(cpu_model(text), Some("Some CPU @ 2 GHz"));
        assert_eq!(cpu_model("processor : 0\n"), None);
    }

    #[test]
    fn a_kernel_knows_itself() {
        let kernel = Kernel::this().expect("/proc is there");
        assert_eq!(Kernel::this(), Some(kernel.clone()));
        assert_eq!(kernel.boot_id.len(), 36);
    }

    #[test]
    fn the_timestamp_is_rfc_3339() {
        let text = now_rfc3339();
        assert_eq!(text.len(), "2026-01-02T03:04:05Z".len());
        assert!(text.parse::<jiff::Timestamp>().is_ok(), "{text}");
    }
}
