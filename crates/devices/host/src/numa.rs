//! NUMA nodes: which there are, and binding threads and memory to them by the kernel's interfaces.
//!
//! Threads are bound by their CPU affinity, memory by the thread's memory policy (set_mempolicy(2)), so that pages are
//! allocated on the node when they are touched first. move_pages(2) without destinations reports where they are.

use std::fs;
use std::io;

use adverb_verbs::{NodeChoice, PlacementError};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// `MPOL_BIND`: allocate on these nodes only.
const BIND: libc::c_int = 2;
/// Nodes that a mask can name: more than Linux supports on any architecture.
const MAX_NODES: usize = 1024;
/// Pages that one call of move_pages(2) asks about.
const PAGES: usize = 1024;

/// Returns the NUMA nodes that are online; node 0 if the kernel has no NUMA support.
pub fn nodes() -> Vec<u32> {
    let online = fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
    match list(&online) {
        nodes if nodes.is_empty() => vec![0],
        nodes => nodes,
    }
}

/// Parses a list of the kernel: `0-3,8`.
pub(crate) fn list(text: &str) -> Vec<u32> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

/// Returns the number of the chosen node, for a device on node `nic`; `None` for any node.
///
/// # Errors
/// The node does not exist, or is not known.
pub fn resolve(choice: NodeChoice, nic: Option<u32>) -> Result<Option<u32>, PlacementError> {
    resolve_among(choice, nic, &nodes())
}

fn resolve_among(
    choice: NodeChoice,
    nic: Option<u32>,
    nodes: &[u32],
) -> Result<Option<u32>, PlacementError> {
    let own = match nodes {
        [only] => Some(*only),
        _ => nic,
    };
    let known = |node: Option<u32>| {
        node.ok_or_else(|| {
            PlacementError(format!(
                "NUMA node {choice}: the node of this device is not known; choose a number: {}",
                names(nodes)
            ))
        })
    };
    let found = match choice {
        NodeChoice::Any => return Ok(None),
        NodeChoice::Nic => Some(known(own)?),
        NodeChoice::Other => {
            let own = known(own)?;
            nodes.iter().copied().find(|node| *node != own)
        }
        NodeChoice::Number(number) => nodes.iter().copied().find(|node| *node == number),
    };
    match found {
        Some(node) => Ok(Some(node)),
        None => Err(PlacementError(format!(
            "NUMA node {choice} does not exist: this machine has {}",
            names(nodes)
        ))),
    }
}

/// `node 0`, `nodes 0, 1`.
fn names(nodes: &[u32]) -> String {
    let numbers: Vec<String> = nodes.iter().map(u32::to_string).collect();
    let plural = if nodes.len() == 1 { "" } else { "s" };
    format!("node{plural} {}", numbers.join(", "))
}

/// Returns the CPUs of a node.
pub(crate) fn cpus(node: u32) -> Vec<u32> {
    let path = format!("/sys/devices/system/node/node{node}/cpulist");
    list(&fs::read_to_string(path).unwrap_or_default())
}

/// Lets the calling thread run on the CPUs of a node only: on those that it may run on already, if there are any, else
/// on those of `usable`, the CPUs that its process may use.
///
/// # Errors
/// The process may use no CPU of the node, or the system refuses.
pub(crate) fn bind_thread(node: u32, usable: &[u32]) -> Result<(), PlacementError> {
    let cpus = cpus(node);
    let now = sched_getaffinity(None).map_err(|e| refused("query the thread's CPUs", &e.into()))?;
    let mut set = CpuSet::new();
    let own = cpus.iter().filter(|cpu| now.is_set(**cpu as usize));
    own.for_each(|cpu| set.set(*cpu as usize));
    if set.count() == 0 {
        let usable = cpus.iter().filter(|cpu| usable.contains(cpu));
        usable.for_each(|cpu| set.set(*cpu as usize));
    }
    if set.count() == 0 {
        return Err(PlacementError(format!(
            "NUMA node {node} has no CPU that this process may use; allow one with taskset or the cpuset of its control group"
        )));
    }
    sched_setaffinity(None, &set)
        .map_err(|e| refused(&format!("run on NUMA node {node}"), &e.into()))
}

/// Lets the calling thread run on all of these CPUs.
pub(crate) fn unbind_thread(usable: &[u32]) {
    let mut set = CpuSet::new();
    usable.iter().for_each(|cpu| set.set(*cpu as usize));
    // Without it the thread stays where its parent was pinned, which only costs speed.
    let _ = sched_setaffinity(None, &set);
}

fn refused(what: &str, error: &io::Error) -> PlacementError {
    PlacementError(format!("cannot {what}: {error}"))
}

/// Has memory that the calling thread touches first allocated on this node only.
///
/// # Errors
/// The system refuses: no NUMA support, or a container without `CAP_SYS_NICE`.
#[allow(unsafe_code)]
pub(crate) fn bind_memory(node: u32) -> Result<(), PlacementError> {
    const BITS: usize = libc::c_ulong::BITS as usize;
    let mut mask: [libc::c_ulong; MAX_NODES / BITS] = [0; MAX_NODES / BITS];
    mask[node as usize / BITS] |= 1 << (node as usize % BITS);
    // SAFETY: the mask has the given number of bits, and lives during the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            BIND,
            mask.as_ptr(),
            MAX_NODES as libc::c_ulong,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(memory_refused(node, &io::Error::last_os_error())),
    }
}

fn memory_refused(node: u32, error: &io::Error) -> PlacementError {
    let remedy = match error.raw_os_error() {
        // The node is online, so it is the cpuset that lacks it.
        Some(libc::EINVAL) => {
            "allow this process the node in its cpuset (Mems_allowed_list of /proc/self/status)"
        }
        Some(libc::ENOSYS) => "use a kernel with NUMA support",
        _ => "allow set_mempolicy (CAP_SYS_NICE in a container)",
    };
    let what = format!("allocate memory on NUMA node {node}");
    PlacementError(format!(
        "cannot {what}: {error}; leave the node out, or {remedy}"
    ))
}

/// Returns the nodes of the pages of a range, each once, in ascending order; pages that were never touched are on none.
///
/// # Errors
/// The system refuses.
#[allow(unsafe_code)]
pub(crate) fn nodes_of_range(begin: u64, length: u64) -> io::Result<Vec<u32>> {
    let page = rustix::param::page_size() as u64;
    let first = begin / page * page;
    let addresses: Vec<u64> = (first..begin + length.max(1))
        .step_by(page as usize)
        .collect();
    let mut found = Vec::new();
    for pages in addresses.chunks(PAGES) {
        let mut status = vec![0 as libc::c_int; pages.len()];
        // SAFETY: both arrays have one entry for each page. Without destinations nothing is moved: the addresses
        // are only looked up.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0 as libc::c_int,
                pages.len() as libc::c_ulong,
                pages.as_ptr(),
                std::ptr::null::<libc::c_int>(),
                status.as_mut_ptr(),
                0 as libc::c_int,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // Negative numbers are errors, such as a page that is not there yet.
        found.extend(
            status
                .into_iter()
                .filter_map(|node| u32::try_from(node).ok()),
        );
        found.sort_unstable();
        found.dedup();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(choice: NodeChoice, nic: Option<u32>, nodes: &[u32]) -> String {
        match resolve_among(choice, nic, nodes) {
            Ok(node) => format!("{node:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn nodes_are_relative_to_the_nic() {
        use NodeChoice::{Any, Nic, Number, Other};
        let two = |choice| said(choice, Some(1), &[0, 1]);
        assert_eq!(two(Any), "None");
        assert_eq!(two(Nic), "Some(1)");
        assert_eq!(two(Other), "Some(0)");
        assert_eq!(two(Number(1)), "Some(1)");
        assert_eq!(
            two(Number(2)),
            "NUMA node 2 does not exist: this machine has nodes 0, 1"
        );
    }

    #[test]
    fn a_machine_with_one_node_has_no_other_one() {
        assert_eq!(said(NodeChoice::Nic, None, &[0]), "Some(0)");
        assert_eq!(
            said(NodeChoice::Other, None, &[0]),
            "NUMA node other does not exist: this machine has node 0"
        );
    }

    #[test]
    fn the_node_of_a_software_device_has_to_be_named() {
        assert_eq!(
            said(NodeChoice::Nic, None, &[0, 1]),
            "NUMA node nic: the node of this device is not known; choose a number: nodes 0, 1"
        );
    }

    #[test]
    fn a_refusal_names_its_remedy() {
        let said = |code| memory_refused(1, &io::Error::from_raw_os_error(code)).to_string();
        assert!(said(libc::EINVAL).contains("in its cpuset"));
        assert!(said(libc::EPERM).contains("CAP_SYS_NICE"));
    }

    #[test]
    fn the_kernels_lists_are_parsed() {
        assert_eq!(list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(list("0\n"), [0]);
        assert!(list("\n").is_empty());
    }

    #[test]
    fn bound_memory_is_where_the_kernel_says() {
        let node = nodes()[0];
        let usable = crate::usable_cores();
        let bound = std::thread::spawn(move || {
            bind_thread(node, &usable)?;
            bind_memory(node)?;
            let memory = vec![1u8; 1 << 20];
            let found = nodes_of_range(memory.as_ptr().addr() as u64, 1 << 20);
            found.map_err(|error| refused("query pages", &error))
        });
        match bound.join().unwrap() {
            Ok(found) => assert_eq!(found, [node]),
            Err(error) => eprintln!("NOT RUN: memory bound to a NUMA node: {error}"),
        }
    }
}
