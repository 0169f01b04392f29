//! Memory that a program registers, reached from another process through shared memory: by system calls, and by owner requests
//! of its owner where the kernel refuses those.
#![allow(unsafe_code)]

mod common;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use adverb_softnic::{PrivateReach, SoftDevice, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    CompletionQueue, MemoryRegion, Operation, QpCaps, QueuePair, RecvRequest, RemoteAddress,
    SendFlags, SendRequest, Sge, WcStatus, WorkCompletion, WrId,
};
use common::victim::{Traced, Victim, hear, mark, tell};
use common::{Address, End, connect, isolated_with, not_run};

const PAGE: u64 = 4096;
/// SGEs of a request.
const PIECES: u64 = 16;

/// Whether the kernel lets the processes access each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    Permits,
    Refuses,
}

fn private_end(memory: u64) -> End {
    let device = SoftDevice::new().with_private_memory(PrivateReach::Directly);
    End::of(device, Bytes::new(memory))
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn pattern(seed: u64, length: u64) -> Vec<u8> {
    (0..length)
        .map(|i| (i.wrapping_mul(31).wrapping_add(seed) ^ i >> 9) as u8)
        .collect()
}

/// The owner of the memory: does what the test's process tells it.
fn own(role: &str) {
    let end = private_end(role.parse().unwrap());
    let qp = end.qp();
    tell(&end.address(&qp).to_line());
    let peer = Address::from_line(&hear());
    connect(&end, &qp, peer.qpn);
    tell("connected");
    let start = std::ptr::with_exposed_provenance_mut::<u8>(end.mr.addr() as usize);
    loop {
        let line = hear();
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |n: usize| words[n].parse::<u64>().unwrap();
        let reply = match words[0] {
            "checksum" => {
                let mut bytes = vec![0; number(2) as usize];
                end.mr.read(number(1), &mut bytes).unwrap();
                checksum(&bytes)
            }
            "unmap" => {
                // SAFETY: a page of the region, which the test does not access directly.
                unsafe { libc::munmap(start.add(number(1) as usize).cast(), PAGE as usize) as u64 }
            }
            "protect" => {
                let page = start.wrapping_add(number(1) as usize).cast();
                // SAFETY: as above.
                unsafe { libc::mprotect(page, PAGE as usize, libc::PROT_READ) as u64 }
            }
            "hide" => {
                // SAFETY: changes only who may trace this process.
                unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) as u64 }
            }
            "receive" => {
                let sges = [1, 2].map(|n| end.mr.sge(number(n), PAGE as u32).unwrap());
                let request = RecvRequest::new(WrId(1), &sges);
                qp.post_recv(&[request]).unwrap();
                0
            }
            "received" => {
                let completion = end.poll_one("a receive");
                assert!(completion.status.is_success(), "{completion:?}");
                completion.byte_len.into()
            }
            "add" => {
                // SAFETY: the region begins at a page, and outlives this.
                let word = unsafe { &*start.cast::<AtomicU64>() };
                for _ in 0..number(1) {
                    word.fetch_add(1, Ordering::Relaxed);
                }
                word.load(Ordering::Relaxed)
            }
            "exec" => panic!("{}", Command::new("sleep").arg("1000").exec()),
            other => panic!("no order {other}"),
        };
        tell(&reply.to_string());
    }
}

/// This process, connected to an owner.
struct Scene {
    owner: Victim,
    end: End,
    qp: SoftQp,
    there: RemoteAddress,
}

impl Scene {
    fn new(kernel: Kernel, (here, there): (u64, u64)) -> Self {
        let mut owner = Victim::start(&there.to_string());
        let address = Address::from_line(&owner.hear());
        let end = private_end(here);
        let qp = end.qp_of(QpCaps {
            max_send_sge: PIECES as u32,
            ..QpCaps::default()
        });
        connect(&end, &qp, address.qpn);
        owner.tell(&end.address(&qp).to_line());
        assert_eq!(owner.hear(), "connected");
        let mut scene = Scene {
            owner,
            end,
            qp,
            there: address.memory,
        };
        if kernel == Kernel::Refuses {
            scene.order("hide");
            drop_capabilities();
            assert!(scene.call().is_some(), "the kernel permits it");
        }
        scene
    }

    /// Reads the owner's memory by a system call of the test; returns its error.
    fn call(&self) -> Option<i32> {
        let mut byte = 0u8;
        let into = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let from = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(self.there.addr as usize),
            iov_len: 1,
        };
        let owner = self.owner.id() as i32;
        // SAFETY: the kernel writes at most one byte to `byte`.
        match unsafe { libc::process_vm_readv(owner, &raw const into, 1, &raw const from, 1, 0) } {
            1 => None,
            _ => std::io::Error::last_os_error().raw_os_error(),
        }
    }

    fn order(&mut self, order: &str) -> u64 {
        tell_owner(&mut self.owner, order)
    }

    fn at(&self, offset: u64) -> RemoteAddress {
        RemoteAddress {
            addr: self.there.addr + offset,
            ..self.there
        }
    }

    /// Executes one request.
    fn execute(&self, operation: Operation, (offset, length): (u64, u64)) -> WcStatus {
        self.execute_with(
            operation,
            &[self.end.mr.sge(offset, length as u32).unwrap()],
        )
    }

    fn execute_with(&self, operation: Operation, sges: &[Sge<'_>]) -> WcStatus {
        let request = SendRequest::new(WrId(1), operation, sges);
        (self
            .qp
            .post_send(&[request.with_flags(SendFlags::SIGNALED)]))
        .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut one = [WorkCompletion::default()];
            if self.end.cq.poll(&mut one).unwrap() == 1 {
                return one[0].status;
            }
            assert!(Instant::now() < deadline, "no completion of {operation:?}");
        }
    }

    fn write(&self, from: u64, to: u64, length: u64) -> WcStatus {
        self.execute(Operation::RdmaWrite(self.at(to)), (from, length))
    }

    fn read(&self, into: u64, from: u64, length: u64) -> WcStatus {
        self.execute(Operation::RdmaRead(self.at(from)), (into, length))
    }
}

/// Gives the owner an order; returns its reply.
fn tell_owner(owner: &mut Victim, order: &str) -> u64 {
    owner.tell(order);
    owner.hear().parse().unwrap()
}

/// Gives up the calling thread's capabilities: without them the kernel protects a process that has more, and one that
/// is not dumpable.
fn drop_capabilities() {
    // The header of version 3 with the number of this thread, and three empty sets in two halves.
    let header = [0x2008_0522u32, 0];
    let sets = [0u32; 6];
    // SAFETY: the kernel reads both arrays.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Runs `body` in a process that reaches its owner by system calls, and in one that does not.
fn both_ways(test: &str, body: impl Fn(Kernel)) {
    isolated_with(test, own, || {
        body(Kernel::Permits);
        body(Kernel::Refuses);
    });
}

#[test]
fn every_operation_reaches_the_memory_of_another_process() {
    let test = "every_operation_reaches_the_memory_of_another_process";
    both_ways(test, |kernel| {
        let mut scene = Scene::new(kernel, (5 * PAGE, 5 * PAGE));
        for (round, (from, to, length)) in [
            (3, 5, 1),
            (0, 64, 8),
            (8, 16, 16),
            (7, PAGE - 6, 13),
            (1, 2, 3 * PAGE),
        ]
        .into_iter()
        .enumerate()
        {
            let sent = pattern(round as u64, length);
            scene.end.mr.write(from, &sent).unwrap();
            assert_eq!(scene.write(from, to, length), WcStatus::Success);
            let arrived = scene.order(&format!("checksum {to} {length}"));
            assert_eq!(arrived, checksum(&sent), "{kernel:?}: {length} to {to}");
            scene.end.mr.write(0, &vec![0; 5 * PAGE as usize]).unwrap();
            assert_eq!(scene.read(from + 1, to, length), WcStatus::Success);
            let mut back = vec![0; length as usize];
            scene.end.mr.read(from + 1, &mut back).unwrap();
            assert_eq!(back, sent, "{kernel:?}: {length} from {to}");

            scene.order(&format!("receive 5 {}", 2 * PAGE + 1));
            let status = scene.execute(Operation::Send, (from + 1, length.min(PAGE + 9)));
            assert_eq!(status, WcStatus::Success);
            assert_eq!(scene.order("received"), length.min(PAGE + 9));
            let first = length.min(PAGE);
            let arrived = scene.order(&format!("checksum 5 {first}"));
            assert_eq!(arrived, checksum(&sent[..first as usize]));
        }
        let outside = scene.write(0, 5 * PAGE - 7, 8);
        assert_eq!(outside, WcStatus::RemAccessErr);
    });
}

/// A request with as many SGEs as it may have, one of them empty.
#[test]
fn all_pieces_of_a_request_reach_the_memory_of_another_process() {
    let test = "all_pieces_of_a_request_reach_the_memory_of_another_process";
    both_ways(test, |kernel| {
        let mut scene = Scene::new(kernel, (2 * PAGE, PAGE));
        scene.end.mr.write(0, &pattern(3, 2 * PAGE)).unwrap();
        let place = |n: u64| (n * 300 + n % 3, if n == 4 { 0 } else { 5 + 7 * n });
        let sges: Vec<_> = (0..PIECES)
            .map(place)
            .map(|(offset, length)| scene.end.mr.sge(offset, length as u32).unwrap())
            .collect();
        let all = || {
            let mut bytes = Vec::new();
            for (offset, length) in (0..PIECES).map(place) {
                let mut piece = vec![0; length as usize];
                scene.end.mr.read(offset, &mut piece).unwrap();
                bytes.extend(piece);
            }
            bytes
        };
        let sent = all();
        let write = Operation::RdmaWrite(scene.at(9));
        assert_eq!(scene.execute_with(write, &sges), WcStatus::Success);
        let order = format!("checksum 9 {}", sent.len());
        assert_eq!(
            tell_owner(&mut scene.owner, &order),
            checksum(&sent),
            "{kernel:?}"
        );
        scene.end.mr.write(0, &vec![0; 2 * PAGE as usize]).unwrap();
        let read = Operation::RdmaRead(scene.at(9));
        assert_eq!(scene.execute_with(read, &sges), WcStatus::Success);
        assert_eq!(all(), sent, "{kernel:?}");
    });
}

#[test]
fn atomics_and_the_owners_own_instructions_all_count() {
    let test = "atomics_and_the_owners_own_instructions_all_count";
    both_ways(test, |kernel| {
        let mut scene = Scene::new(kernel, (PAGE, PAGE));
        scene.owner.tell("add 3000000");
        for _ in 0..200 {
            let add = Operation::FetchAdd(scene.at(0), 1);
            assert_eq!(scene.execute(add, (8, 8)), WcStatus::Success);
        }
        scene.owner.hear();
        assert_eq!(scene.order("add 0"), 3_000_200, "{kernel:?}");
        let mut before = [0; 8];
        scene.end.mr.read(8, &mut before).unwrap();
        assert!(u64::from_ne_bytes(before) >= 199);
    });
}

#[test]
fn messages_of_64_mib_are_copied_whole() {
    const LENGTH: u64 = 64 << 20;
    let test = "messages_of_64_mib_are_copied_whole";
    both_ways(test, |kernel| {
        let mut scene = Scene::new(kernel, (LENGTH + 1, LENGTH + PAGE));
        let sent = pattern(7, LENGTH);
        scene.end.mr.write(1, &sent).unwrap();
        assert_eq!(scene.write(1, 77, LENGTH), WcStatus::Success);
        let arrived = scene.order(&format!("checksum 77 {LENGTH}"));
        assert_eq!(arrived, checksum(&sent), "{kernel:?}");
    });
}

/// The request fails, and nothing happens to the owner.
#[test]
fn requests_to_memory_that_the_owner_unmapped_or_protected_fail() {
    let test = "requests_to_memory_that_the_owner_unmapped_or_protected_fail";
    both_ways(test, |kernel| {
        for (order, operation) in [("unmap", "write"), ("unmap", "read"), ("protect", "write")] {
            let mut scene = Scene::new(kernel, (4 * PAGE, 4 * PAGE));
            let before = scene.order(&format!("checksum {} {PAGE}", 2 * PAGE));
            assert_eq!(scene.order(&format!("{order} {PAGE}")), 0);
            scene.end.mr.write(0, &pattern(5, 3 * PAGE)).unwrap();
            let status = match operation {
                "write" => scene.write(0, 100, 2 * PAGE),
                _ => scene.read(0, 100, 2 * PAGE),
            };
            assert_eq!(status, WcStatus::RemAccessErr, "{kernel:?}: {order}");
            let after = scene.order(&format!("checksum {} {PAGE}", 2 * PAGE));
            assert_eq!(before, after, "nothing after the missing page is written");
        }
    });
}

#[test]
fn atomics_on_memory_that_the_owner_unmapped_fail() {
    let test = "atomics_on_memory_that_the_owner_unmapped_fail";
    both_ways(test, |kernel| {
        let mut scene = Scene::new(kernel, (PAGE, 2 * PAGE));
        assert_eq!(scene.order(&format!("unmap {PAGE}")), 0);
        let add = Operation::FetchAdd(scene.at(PAGE), 1);
        let status = scene.execute(add, (0, 8));
        assert_eq!(status, WcStatus::RemAccessErr, "{kernel:?}");
        scene.order("checksum 0 8");
    });
}

#[test]
fn requests_to_an_owner_that_is_killed_fail() {
    const LENGTH: u64 = 16 << 20;
    let test = "requests_to_an_owner_that_is_killed_fail";
    both_ways(test, |kernel| {
        let mut scene = Scene::new(kernel, (LENGTH, LENGTH));
        assert_eq!(scene.write(0, 0, LENGTH), WcStatus::Success);
        let id = rustix::process::Pid::from_raw(scene.owner.id() as i32).unwrap();
        let kill = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(3));
            rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
        });
        let failed = loop {
            let status = scene.write(0, 0, LENGTH);
            if status != WcStatus::Success {
                break status;
            }
        };
        // Flushed, if it died between two requests.
        let expected = [WcStatus::RetryExcErr, WcStatus::WrFlushErr];
        assert!(expected.contains(&failed), "{kernel:?}: {failed:?}");
        kill.join().unwrap();
        scene.owner.kill();
    });
}

/// Another program with the same process ID may have memory at the same address.
#[test]
fn requests_to_an_owner_that_runs_another_program_fail() {
    let test = "requests_to_an_owner_that_runs_another_program_fail";
    isolated_with(test, own, || {
        let mut scene = Scene::new(Kernel::Permits, (PAGE, PAGE));
        assert_eq!(scene.write(0, 0, 8), WcStatus::Success);
        scene.owner.tell("exec");
        let comm = format!("/proc/{}/comm", scene.owner.id());
        let is_other = || std::fs::read_to_string(&comm).unwrap().trim() == "sleep";
        assert!(common::wait_until(is_other), "the owner did not exec");
        assert_eq!(scene.write(0, 0, 8), WcStatus::RetryExcErr);
        scene.owner.kill();
    });
}

/// The requester: writes once to the memory of the test's process.
fn request(_: &str) {
    let end = private_end(PAGE);
    let qp = end.qp();
    // SAFETY: gettid has no preconditions.
    let thread = unsafe { libc::gettid() };
    tell(&format!("{} {thread}", end.address(&qp).to_line()));
    let owner = Address::from_line(&hear());
    connect(&end, &qp, owner.qpn);
    tell("connected");
    hear();
    let sges = [end.mr.sge(0, 64).unwrap()];
    let request = SendRequest::new(WrId(1), Operation::RdmaWrite(owner.memory), &sges);
    mark();
    qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
        .unwrap();
    hear();
}

/// Starts a requester and stops it where it begins to copy; the error is the reason if that is not possible.
#[cfg(target_arch = "x86_64")]
fn stopped_requester(end: &End, qp: &SoftQp) -> Result<(Victim, Traced), String> {
    let mut requester = Victim::start("requester");
    let hello = requester.hear();
    let traced = requester.trace(&hello)?;
    connect(end, qp, Address::from_line(&hello).qpn);
    requester.tell(&end.address(qp).to_line());
    assert_eq!(requester.hear(), "connected");
    requester.tell("go");
    traced.wait();
    assert!(traced.is_at_mark());
    while traced.system_call() != libc::SYS_process_vm_writev {
        traced.go_on(libc::PTRACE_SYSCALL);
        traced.wait();
    }
    Ok((requester, traced))
}

/// How a stopped requester goes on.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Continues,
    Dies,
}

/// More than a queue pair waits for its peer.
#[cfg(target_arch = "x86_64")]
const LONG: Duration = Duration::from_millis(2500);

#[cfg(target_arch = "x86_64")]
fn deregister_under(after: After) -> Result<(), String> {
    let end = private_end(PAGE);
    let qp = end.qp();
    let (mut requester, traced) = stopped_requester(&end, &qp)?;
    if after == After::Dies {
        // The operation outlives its queue pair.
        drop(qp);
    }
    let End { mr, .. } = end;
    std::thread::scope(|scope| {
        let deregistered = scope.spawn(move || drop(mr));
        std::thread::sleep(LONG);
        assert!(
            !deregistered.is_finished(),
            "{after:?}: the requester may still write"
        );
        match after {
            After::Continues => traced.go_on(libc::PTRACE_CONT),
            After::Dies => requester.kill(),
        }
        deregistered.join().unwrap();
    });
    Ok(())
}

/// The program uses its memory for something else when it is deregistered. A requester that was stopped for longer than
/// two seconds wrote to it when it continued.
#[cfg(target_arch = "x86_64")]
#[test]
fn memory_is_not_deregistered_while_a_stopped_requester_may_write_to_it() {
    let test = "memory_is_not_deregistered_while_a_stopped_requester_may_write_to_it";
    isolated_with(test, request, || {
        for after in [After::Continues, After::Dies] {
            if let Err(why) = deregister_under(after) {
                return not_run(&format!("a requester stopped in an operation: {why}"));
            }
        }
    });
}
