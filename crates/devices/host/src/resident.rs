//! Another process on a machine with several NUMA nodes: where its memory is, on which nodes its threads run, and moving
//! its pages.
//!
//! Files are read below a root folder, so that a copy of another machine's files can be examined.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::numa::list;

/// Move pages that only the process has mapped (`MPOL_MF_MOVE`).
const MOVE: libc::c_int = 1 << 1;
/// Pages that one call moves.
const BATCH: usize = 1024;
/// Field of the last CPU in `/proc/PID/stat`, counted from the state, which is field 3.
const PROCESSOR: usize = 39 - 3;

/// The NUMA nodes of a machine, with their CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology(pub BTreeMap<u32, Vec<u32>>);

impl Topology {
    /// Reads the nodes below `root`; node 0 without CPUs if the kernel has no NUMA support.
    pub fn below(root: &Path) -> Self {
        let folder = root.join("sys/devices/system/node");
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let mut nodes = list(&read("online"));
        if nodes.is_empty() {
            nodes.push(0);
        }
        let with_cpus = |node| (node, list(&read(&format!("node{node}/cpulist"))));
        Topology(nodes.into_iter().map(with_cpus).collect())
    }

    /// Returns the node of a CPU.
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        let mut nodes = self.0.iter();
        nodes
            .find(|(_, cpus)| cpus.contains(&cpu))
            .map(|(node, _)| *node)
    }
}

/// Pages of a process that it mapped together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses; empty if `/proc/PID/maps` has changed in between.
    pub addresses: Range<u64>,
    /// The file, `heap` or `stack`; empty for anonymous memory.
    pub name: String,
    /// Whether the process has written to it.
    pub is_written: bool,
    /// Size of a page in bytes.
    pub page: u64,
    /// Pages on each node.
    pub pages: BTreeMap<u32, u64>,
}

/// A process below a root folder.
#[derive(Clone, Debug)]
pub struct Resident {
    pid: u32,
    folder: PathBuf,
}

impl Resident {
    /// Returns process `pid`; `None` if there is none.
    pub fn below(root: &Path, pid: u32) -> Option<Self> {
        let folder = root.join(format!("proc/{pid}"));
        let process = Resident { pid, folder };
        process.is_running().then_some(process)
    }

    /// Whether it has not ended. A zombie has: only its parent has not taken notice.
    pub fn is_running(&self) -> bool {
        let stat = fs::read_to_string(self.folder.join("stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().next());
        self.folder.exists() && !matches!(state, Some("Z" | "X"))
    }

    /// Returns its name.
    pub fn name(&self) -> String {
        let name = fs::read_to_string(self.folder.join("comm")).unwrap_or_default();
        name.trim_end().to_owned()
    }

    /// Returns where its memory is (`/proc/PID/numa_maps`).
    ///
    /// # Errors
    /// The file cannot be read: permission, or a kernel without NUMA support.
    pub fn mappings(&self) -> io::Result<Vec<Mapping>> {
        let nodes = fs::read_to_string(self.folder.join("numa_maps"))?;
        let maps = fs::read_to_string(self.folder.join("maps"))?;
        let ends: BTreeMap<u64, u64> = maps.lines().filter_map(range).collect();
        let with_end = |mut mapping: Mapping| {
            let start = mapping.addresses.start;
            mapping.addresses.end = ends.get(&start).copied().unwrap_or(start);
            mapping
        };
        Ok(nodes.lines().filter_map(mapping).map(with_end).collect())
    }

    /// Returns how many threads ran last on each node.
    pub fn threads(&self, topology: &Topology) -> BTreeMap<u32, u32> {
        let tasks = fs::read_dir(self.folder.join("task")).into_iter().flatten();
        let mut threads = BTreeMap::new();
        for task in tasks.flatten() {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            if let Some(node) = last_cpu(&stat).and_then(|cpu| topology.node_of(cpu)) {
                *threads.entry(node).or_default() += 1;
            }
        }
        threads
    }

    /// Moves the pages of mappings to a node (move_pages(2)). Pages that a device has pinned, as registered memory of
    /// hardware is, stay where they are.
    ///
    /// # Errors
    /// The system refuses: the process is gone, is another user's, or a node of the process's cpuset is needed.
    pub fn move_to(&self, mappings: &[Mapping], node: u32) -> io::Result<Moved> {
        let addresses = mappings.iter().flat_map(|mapping| {
            let step = usize::try_from(mapping.page).unwrap_or(usize::MAX);
            mapping.addresses.clone().step_by(step)
        });
        let addresses: Vec<u64> = addresses.collect();
        let mut moved = Moved::default();
        for pages in addresses.chunks(BATCH) {
            for status in move_pages(self.pid, pages, node)? {
                match -status {
                    ..=0 => moved.there += 1,
                    // Never touched, or the page of zeros.
                    libc::ENOENT | libc::EFAULT => {}
                    libc::EBUSY => moved.busy += 1,
                    libc::EACCES => moved.shared += 1,
                    _ => moved.failed += 1,
                }
            }
        }
        Ok(moved)
    }
}

/// What became of pages that were to be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// They are on the node now.
    pub there: u64,
    /// They are pinned by a device, or in use by the kernel.
    pub busy: u64,
    /// Other processes have mapped them, too.
    pub shared: u64,
    /// There was no memory on the node, or another error.
    pub failed: u64,
}

/// Asks the kernel to move pages of a process; returns the node of each, or a negative error number.
#[allow(unsafe_code)]
fn move_pages(pid: u32, pages: &[u64], node: u32) -> io::Result<Vec<libc::c_int>> {
    let to = vec![node as libc::c_int; pages.len()];
    let mut status = vec![0 as libc::c_int; pages.len()];
    // SAFETY: the three arrays have one entry for each page and live during the call; the addresses are another
    // process's, and only name its pages.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::c_int,
            pages.len() as libc::c_ulong,
            pages.as_ptr(),
            to.as_ptr(),
            status.as_mut_ptr(),
            MOVE,
        )
    };
    match result {
        // A positive number counts pages that were not moved; `status` has the reasons.
        0.. => Ok(status),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Parses a line of `/proc/PID/maps`: `start-end …`.
fn range(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some((hex(start)?, hex(end)?))
}

/// Parses a line of `/proc/PID/numa_maps`: `start policy [file=NAME|heap|stack] name=count …`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let start = u64::from_str_radix(words.next()?, 16).ok()?;
    let _policy = words.next()?;
    let mut mapping = Mapping {
        addresses: start..start,
        name: String::new(),
        is_written: false,
        page: 4096,
        pages: BTreeMap::new(),
    };
    for word in words {
        match word.split_once('=') {
            None if matches!(word, "heap" | "stack") => word.clone_into(&mut mapping.name),
            None => {}
            Some(("file", name)) => name.clone_into(&mut mapping.name),
            Some(("anon" | "dirty", _)) => mapping.is_written = true,
            Some(("kernelpagesize_kB", size)) => mapping.page = size.parse::<u64>().ok()? << 10,
            Some((name, count)) => {
                if let Some(node) = name.strip_prefix('N').and_then(|node| node.parse().ok()) {
                    mapping.pages.insert(node, count.parse().ok()?);
                }
            }
        }
    }
    Some(mapping)
}

/// Returns the CPU of `/proc/PID/task/TID/stat`. The name in it is in parentheses and may contain any character.
fn last_cpu(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(PROCESSOR)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a machine with two nodes of four CPUs, and of its process 7 with a thread on each node.
    const TWO_NODES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/two-nodes");
    const NUMA_MAPS: &str = include_str!("../testdata/two-nodes/proc/7/numa_maps");

    #[test]
    fn numa_maps_are_parsed() {
        let all: Vec<Mapping> = NUMA_MAPS.lines().filter_map(mapping).collect();
        assert_eq!(all.len(), 6);
        let names: Vec<&str> = all.iter().map(|mapping| &*mapping.name).collect();
        assert_eq!(names[..3], ["/usr/bin/memcached", "heap", "/dev/shm/store"]);
        assert_eq!(names[4..], ["stack", ""]);
        let written: Vec<bool> = all.iter().map(|mapping| mapping.is_written).collect();
        assert_eq!(written, [false, true, true, true, true, false]);
        assert_eq!(all[1].pages, BTreeMap::from([(0, 30), (1, 10)]));
        assert_eq!(all[3].page, 2 << 20);
        assert_eq!(mapping("not a mapping"), None);
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let mut stat = "12 (a) b) S".to_owned();
        (4..=38).for_each(|field| stat += &format!(" {field}"));
        assert_eq!(last_cpu(&(stat + " 7 0 0")), Some(7));
        assert_eq!(last_cpu("12 (short) S 1"), None);
    }

    #[test]
    fn a_machine_with_two_nodes_is_read_from_its_files() {
        let root = Path::new(TWO_NODES);
        let topology = Topology::below(root);
        assert_eq!(topology.node_of(6), Some(1));
        assert!(Resident::below(root, 8).is_none());
        let process = Resident::below(root, 7).unwrap();
        assert_eq!(process.threads(&topology), BTreeMap::from([(0, 1), (1, 1)]));
        let mappings = process.mappings().unwrap();
        assert_eq!(mappings[2].addresses, 0x7f00_0000_0000..0x7f00_0400_0000);
        assert!(mappings[1].addresses.is_empty(), "maps has no line for it");
    }

    #[test]
    fn without_numa_support_a_machine_has_node_0() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Topology::below(root.path()).0.len(), 1);
    }

    #[test]
    fn pages_move_to_the_node_where_they_are() {
        let memory = vec![1u8; 1 << 16];
        let begin = memory.as_ptr().addr() as u64;
        let node = crate::nodes()[0];
        let process = Resident::below(Path::new("/"), std::process::id()).unwrap();
        let first = begin.next_multiple_of(4096);
        let mapping = Mapping {
            addresses: first..first + 8 * 4096,
            name: String::new(),
            is_written: true,
            page: 4096,
            pages: BTreeMap::new(),
        };
        match process.move_to(&[mapping], node) {
            Ok(moved) => assert_eq!((moved.there, moved.failed), (8, 0), "{moved:?}"),
            Err(error) => eprintln!("NOT RUN: moving pages to a NUMA node: {error}"),
        }
        drop(memory);
    }
}
