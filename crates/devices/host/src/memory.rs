//! This machine's memory, and how much of it programs can still allocate.

use std::fs;
use std::path::{Path, PathBuf};

use adverb_units::Bytes;

/// Returns this machine's memory.
pub fn memory() -> Bytes {
    let info = rustix::system::sysinfo();
    Bytes::new(info.totalram.saturating_mul(info.mem_unit.into()))
}

/// Returns the memory that this process and its children can allocate without swapping: what the kernel
/// estimates, or less if a control group of the process has a lower limit. `None` if `/proc` has neither.
pub fn available_memory() -> Option<Bytes> {
    available_in(Path::new("/"))
}

/// Like [`available_memory`], of the file system at `root`.
fn available_in(root: &Path) -> Option<Bytes> {
    let of_machine = available_on_machine(root).into_iter();
    of_machine.chain(available_in_groups(root)).min()
}

/// Reads `MemAvailable` of `/proc/meminfo`.
fn available_on_machine(root: &Path) -> Option<Bytes> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(Bytes::kib(kib))
}

/// The files in which a version of control groups has limit, usage and cached file pages.
struct Version {
    /// The folder of the groups.
    folder: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` with pages that the kernel reclaims before it refuses memory.
    reclaimable: [&'static str; 2],
}

const V1: Version = Version {
    folder: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: ["total_active_file", "total_inactive_file"],
};

const V2: Version = Version {
    folder: "sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    reclaimable: ["active_file", "inactive_file"],
};

/// Returns what is left in each control group with a limit: the groups of this process and the groups around them.
/// In a container the path may be valid on the host only; the limit is then in the root.
fn available_in_groups(root: &Path) -> impl Iterator<Item = Bytes> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut folders: Vec<(PathBuf, &Version)> = Vec::new();
    for line in text.lines() {
        // hierarchy:controllers:path
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let version = match controllers {
            "" => &V2,
            some if some.split(',').any(|name| name == "memory") => &V1,
            _ => continue,
        };
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        let root = root.join(version.folder);
        folders.extend(groups.map(|group| (root.join(group), version)));
    }
    folders
        .into_iter()
        .filter_map(|(folder, version)| version.available(&folder))
}

impl Version {
    /// Returns what is left in the group of `folder`; `None` if it has no limit.
    fn available(&self, folder: &Path) -> Option<Bytes> {
        let number = |name| {
            fs::read_to_string(folder.join(name))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        let (limit, usage): (u64, u64) = (number(self.limit)?, number(self.usage)?);
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let pages = stat.lines().filter_map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            let is_reclaimable = self.reclaimable.contains(&name);
            is_reclaimable.then(|| bytes.parse().unwrap_or(0))
        });
        let used = usage.saturating_sub(pages.sum());
        Some(Bytes::new(limit.saturating_sub(used)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:  8000000 kB\nMemAvailable:    4000 kB\n",
    );

    #[test]
    fn this_machine_has_memory_and_not_more_of_it_is_available() {
        assert!(memory() > Bytes::mib(64));
        let available = available_memory().expect("/proc is there");
        assert!(
            (Bytes::new(1)..memory()).contains(&available),
            "{available}"
        );
    }

    #[test]
    fn without_limits_the_kernels_estimate_counts() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.current", "5000\n"),
        ];
        assert_eq!(available_in(root(&files).path()), Some(Bytes::kib(4000)));
        assert_eq!(available_in(root(&[]).path()), None);
    }

    #[test]
    fn the_lowest_limit_of_the_groups_around_a_process_counts() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "1000000\n"),
            ("sys/fs/cgroup/a/memory.current", "900000\n"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "anon 500000\nfile 400000\nactive_file 100000\ninactive_file 200000\n",
            ),
            ("sys/fs/cgroup/a/b/memory.max", "800000\n"),
            ("sys/fs/cgroup/a/b/memory.current", "1000\n"),
        ];
        assert_eq!(available_in(root(&files).path()), Some(Bytes::new(400_000)));
    }

    #[test]
    fn a_container_with_groups_of_version_1_has_its_limit_in_the_root() {
        let files = [
            MEMINFO,
            (
                "proc/self/cgroup",
                "4:cpu,cpuacct:/x\n3:hugetlb,memory:/docker/x\n0::/\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "300000\n"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "total_inactive_file 50000\n",
            ),
        ];
        assert_eq!(available_in(root(&files).path()), Some(Bytes::new(250_000)));
    }

    #[test]
    fn nothing_is_left_above_a_limit() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "5\n"),
            ("sys/fs/cgroup/memory.current", "6\n"),
        ];
        assert_eq!(available_in(root(&files).path()), Some(Bytes::new(0)));
    }
}
