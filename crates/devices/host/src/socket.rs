//! The socket of this machine's first CPU: cores and last-level cache, as the kernel reports them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use adverb_units::Bytes;

/// A socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Socket {
    /// Its cores; `None` if the kernel does not report them.
    pub cores: Option<u32>,
    /// Hyper-threads of a core.
    pub threads_per_core: Option<u32>,
    /// The last-level cache.
    pub cache: Option<Bytes>,
    /// Its ways.
    pub cache_ways: Option<u32>,
}

impl Socket {
    /// Returns the socket of this machine's first CPU.
    pub fn first() -> Self {
        Self::of(Path::new("/sys/devices/system/cpu"))
    }

    fn of(cpus: &Path) -> Self {
        let package = |cpu: &Path| read::<u32>(&cpu.join("topology/physical_package_id"));
        let folders = fs::read_dir(cpus).into_iter().flatten().flatten();
        let first = package(&cpus.join("cpu0"));
        let cores: Vec<u32> = folders
            .map(|folder| folder.path())
            .filter(|cpu| first.is_some() && package(cpu) == first)
            .filter_map(|cpu| read(&cpu.join("topology/core_id")))
            .collect();
        let threads = cores.len();
        let cores = cores.into_iter().collect::<BTreeSet<u32>>().len();
        let cache = cpus.join("cpu0/cache/index3");
        Socket {
            cores: (cores > 0).then_some(cores as u32),
            threads_per_core: (cores > 0).then(|| (threads / cores) as u32),
            cache: read(&cache.join("size")),
            cache_ways: read(&cache.join("ways_of_associativity")).filter(|ways| *ways > 0),
        }
    }
}

fn read<T: FromStr>(file: &Path) -> Option<T> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_of_the_first_socket_are_counted_without_their_threads() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(Socket::of(root.path()), Socket::default());
        for (cpu, package, core) in [(0, 0, 0), (1, 1, 0), (2, 0, 4), (3, 0, 0), (4, 0, 4)] {
            write(
                &format!("cpu{cpu}/topology/physical_package_id"),
                &format!("{package}\n"),
            );
            write(&format!("cpu{cpu}/topology/core_id"), &format!("{core}\n"));
        }
        write("cpu0/cache/index3/size", "36608K\n");
        write("cpu0/cache/index3/ways_of_associativity", "11\n");
        let expected = Socket {
            cores: Some(2),
            threads_per_core: Some(2),
            cache: Some(Bytes::kib(36608)),
            cache_ways: Some(11),
        };
        assert_eq!(Socket::of(root.path()), expected);
    }
}
