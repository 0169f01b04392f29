//! Memory that a program already had and registers: both ends in one process.
#![allow(unsafe_code)]

mod common;

use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use adverb_softnic::{SoftDevice, SoftMr, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, Comparison, MemoryRegion, Operation, PathMtu, QueuePair, RecvRequest,
    RegisterError, RemoteAddress, SendFlags, SendRequest, WcStatus, WrId,
};
use common::network::{How, Network, connect_to};
use common::{End, all_access, connect, isolated};

const PAGE: usize = 4096;
const HOW: How = How {
    mtu: PathMtu::B4096,
    timeout: 14,
    retries: 7,
};

/// Registers `memory`, which outlives the region.
fn register(end: &End, memory: &mut [u8]) -> SoftMr {
    let length = Bytes::new(memory.len() as u64);
    // SAFETY: the tests access the memory only while no request does.
    unsafe { (end.context).register(&end.pd, memory.as_mut_ptr(), length, all_access()) }.unwrap()
}

/// Executes one request, with `sge` (offset and length) of `mr`.
fn execute(end: &End, qp: &SoftQp, operation: Operation, mr: &SoftMr, sge: (u64, u32)) -> WcStatus {
    let sges = [mr.sge(sge.0, sge.1).unwrap()];
    let request = SendRequest::new(WrId(1), operation, &sges);
    qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
        .unwrap();
    end.poll_one("a request").status
}

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed) ^ (i >> 8) as u8)
        .collect()
}

/// Two ends, connected over shared memory or over UDP.
fn pair(over: Option<u8>) -> (End, End, SoftQp, SoftQp) {
    let Some(net) = over else {
        let (near, far) = (End::new(Bytes::new(64)), End::new(Bytes::new(64)));
        let (a, b) = (near.qp(), far.qp());
        connect(&near, &a, b.qpn());
        connect(&far, &b, a.qpn());
        return (near, far, a, b);
    };
    let network = Network::loopback(net);
    let end = |host| End::of(SoftDevice::at(network.ip(host)), Bytes::new(64));
    let (near, far) = (end(0), end(1));
    let (a, b) = (near.qp(), far.qp());
    connect_to(&a, network.address(1), b.qpn(), HOW);
    connect_to(&b, network.address(0), a.qpn(), HOW);
    (near, far, a, b)
}

/// WRITE, READ, SEND and atomics between unaligned memory of two programs, within and across pages.
fn every_operation(over: Option<u8>) {
    let (near, far, a, b) = pair(over);
    let (mut here, mut there) = (pattern(1, 3 * PAGE), vec![0; 3 * PAGE]);
    let (near_mr, far_mr) = (register(&near, &mut here), register(&far, &mut there));
    let at = |offset: usize| RemoteAddress {
        addr: far_mr.addr() + offset as u64,
        rkey: far_mr.rkey(),
    };
    let get = |mr: &SoftMr, range: Range<usize>| {
        let mut bytes = vec![0; range.len()];
        mr.read(range.start as u64, &mut bytes).unwrap();
        bytes
    };
    for (from, to, length) in [(3, 5, 1), (7, 4090, 13), (1, 2, 2 * PAGE), (0, 8, 8)] {
        let sge = (from as u64, length as u32);
        let expected = get(&near_mr, from..from + length);
        far_mr.write(0, &vec![0; 3 * PAGE]).unwrap();
        let write = Operation::RdmaWrite(at(to));
        assert_eq!(execute(&near, &a, write, &near_mr, sge), WcStatus::Success);
        assert_eq!(get(&far_mr, to..to + length), expected);
        assert_eq!(get(&far_mr, 0..to), vec![0; to]);

        far_mr.write(0, &pattern(9, 3 * PAGE)).unwrap();
        let read = Operation::RdmaRead(at(to));
        assert_eq!(execute(&near, &a, read, &near_mr, sge), WcStatus::Success);
        let expected = get(&far_mr, to..to + length);
        assert_eq!(get(&near_mr, from..from + length), expected);

        let sges = [1, 2].map(|i| far_mr.sge(i * PAGE as u64 - 5, PAGE as u32).unwrap());
        b.post_recv(&[RecvRequest::new(WrId(2), &sges)]).unwrap();
        let expected = get(&near_mr, from..from + length);
        let status = execute(&near, &a, Operation::Send, &near_mr, sge);
        assert_eq!(status, WcStatus::Success);
        let received = far.poll_one("a receive");
        assert_eq!(
            (received.status, received.byte_len),
            (WcStatus::Success, sge.1)
        );
        assert_eq!(get(&far_mr, PAGE - 5..PAGE - 5 + length), expected);
    }
    far_mr.write(16, &5u64.to_ne_bytes()).unwrap();
    // The allocator aligns neither end's memory to pages, but to words.
    let add = Operation::FetchAdd(at(16), 7);
    assert_eq!(
        execute(&near, &a, add, &near_mr, (24, 8)),
        WcStatus::Success
    );
    assert_eq!(get(&near_mr, 24..32), 5u64.to_ne_bytes());
    let swap = Comparison {
        expected: 12,
        new: 99,
    };
    let swap = Operation::CompareSwap(at(16), swap);
    assert_eq!(
        execute(&near, &a, swap, &near_mr, (24, 8)),
        WcStatus::Success
    );
    assert_eq!(get(&far_mr, 16..24), 99u64.to_ne_bytes());
    let outside = Operation::RdmaWrite(at(3 * PAGE - 7));
    let status = execute(&near, &a, outside, &near_mr, (0, 8));
    assert_eq!(status, WcStatus::RemAccessErr);
}

#[test]
fn every_operation_reaches_memory_of_programs() {
    isolated("every_operation_reaches_memory_of_programs", || {
        every_operation(None);
    });
}

#[test]
fn every_operation_reaches_memory_of_programs_over_udp() {
    isolated(
        "every_operation_reaches_memory_of_programs_over_udp",
        || {
            every_operation(Some(30));
        },
    );
}

/// `ibv_reg_mr_iova`: both keys name the bytes by other addresses than the program does.
#[test]
fn a_region_has_the_addresses_that_it_was_registered_with() {
    isolated(
        "a_region_has_the_addresses_that_it_was_registered_with",
        || {
            for over in [None, Some(31)] {
                let (near, far, a, _b) = pair(over);
                let (mut here, mut there) = (pattern(3, PAGE), vec![0; PAGE]);
                let register = |end: &End, memory: &mut Vec<u8>, iova| {
                    let length = Bytes::new(memory.len() as u64);
                    let at = (memory.as_mut_ptr(), iova);
                    // SAFETY: the memory outlives the region, and is only accessed while no request does.
                    unsafe { (end.context).register_iova(&end.pd, at, length, all_access()) }
                        .unwrap()
                };
                let near_mr = register(&near, &mut here, 0x7000);
                let far_mr = register(&far, &mut there, 0);
                assert_eq!((near_mr.addr(), far_mr.addr()), (0x7000, 0));
                let write = Operation::RdmaWrite(far_mr.remote(100));
                let status = execute(&near, &a, write, &near_mr, (50, 1000));
                assert_eq!(status, WcStatus::Success);
                assert_eq!(there[100..1100], here[50..1050]);
                let beyond = Operation::RdmaWrite(RemoteAddress {
                    addr: there.as_ptr().addr() as u64,
                    rkey: far_mr.rkey(),
                });
                let status = execute(&near, &a, beyond, &near_mr, (0, 1));
                assert_eq!(status, WcStatus::RemAccessErr);
            }
        },
    );
}

/// Maps three pages. The second has other permissions, or is unmapped.
fn pages(second: Option<i32>) -> *mut u8 {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, which nothing else uses.
    unsafe {
        let start = libc::mmap(null_mut(), 3 * PAGE, both, private, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        let middle = start.byte_add(PAGE);
        let changed = match second {
            Some(protection) => libc::mprotect(middle, PAGE, protection),
            None => libc::munmap(middle, PAGE),
        };
        assert_eq!(changed, 0);
        start.cast()
    }
}

#[test]
fn memory_that_the_program_does_not_have_is_refused() {
    isolated("memory_that_the_program_does_not_have_is_refused", || {
        let end = End::new(Bytes::new(64));
        let register = |addr: *mut u8, length: u64, access| {
            let length = Bytes::new(length);
            // SAFETY: no request uses the memory.
            let made = unsafe { end.context.register(&end.pd, addr, length, access) };
            made.map(drop)
        };
        let write = AccessFlags::LOCAL_WRITE;
        let read = AccessFlags::REMOTE_READ;
        let refused = |what: &str, made: Result<(), RegisterError>| match made {
            Err(RegisterError::Fault { source, .. }) => {
                assert_eq!(source.raw_os_error(), Some(libc::EFAULT), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        };
        let page = PAGE as u64;
        let gap = pages(None);
        refused("a gap", register(gap, 3 * page, read));
        refused("one byte in a gap", register(gap, page + 1, write));
        register(gap, page, write).unwrap();
        let constant = pages(Some(libc::PROT_READ));
        refused(
            "read-only memory, to write",
            register(constant, 2 * page, write),
        );
        register(constant, 3 * page, read).unwrap();
        let hidden = pages(Some(libc::PROT_NONE));
        refused(
            "memory without permissions",
            register(hidden, 2 * page, read),
        );
        refused("null", register(null_mut(), 8, write));
        let last = std::ptr::without_provenance_mut(usize::MAX - 7);
        refused("beyond the last address", register(last, 64, read));
        refused("the kernel's memory", register(last, 7, read));
        let made = register(gap, 0, write);
        assert!(
            matches!(made, Err(RegisterError::Length { .. })),
            "{made:?}"
        );
        let made = register(gap, page, AccessFlags::REMOTE_WRITE);
        assert!(
            matches!(made, Err(RegisterError::Access { .. })),
            "{made:?}"
        );
    });
}

/// Maps `length` bytes of a new file of one page.
fn mapped_file(length: usize, sharing: i32) -> *mut u8 {
    let file = tempfile::tempfile().unwrap();
    file.set_len(PAGE as u64).unwrap();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, which nothing else uses.
    let start = unsafe { libc::mmap(null_mut(), length, both, sharing, file.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start.cast()
}

#[test]
fn memory_on_the_stack_and_of_mapped_files_is_reached() {
    isolated("memory_on_the_stack_and_of_mapped_files_is_reached", || {
        let (near, far, a, _b) = pair(None);
        let mut stack = [0u8; 300];
        for (what, start) in [
            ("the stack", stack.as_mut_ptr()),
            ("a shared file", mapped_file(PAGE, libc::MAP_SHARED)),
            ("a private file", mapped_file(PAGE, libc::MAP_PRIVATE)),
        ] {
            let length = Bytes::new(300);
            // SAFETY: the memory outlives the region, and is only accessed while no request does.
            let region = unsafe { far.context.register(&far.pd, start, length, all_access()) };
            let region = region.unwrap();
            near.mr.write(0, &pattern(4, 60)).unwrap();
            let write = Operation::RdmaWrite(region.remote(7));
            assert_eq!(
                execute(&near, &a, write, &near.mr, (0, 60)),
                WcStatus::Success
            );
            let mut found = [0; 60];
            region.read(7, &mut found).unwrap();
            assert_eq!(found[..], pattern(4, 60), "{what}");
        }
        let short = mapped_file(2 * PAGE, libc::MAP_SHARED);
        let length = Bytes::new(PAGE as u64 + 1);
        // SAFETY: no request uses the memory.
        let beyond = unsafe { far.context.register(&far.pd, short, length, all_access()) };
        assert!(
            matches!(beyond, Err(RegisterError::Fault { .. })),
            "{beyond:?}"
        );
    });
}
