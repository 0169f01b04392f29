//! Prints what a WRITE or an atomic operation into the memory of another program costs, compared with the bare system call and with a WRITE
//! into memory that the device allocated: the table of `docs/soft-nic.md`.
//!
//! `cargo run --release -p adverb-softnic --example process_memory`

#![allow(unsafe_code)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use adverb_softnic::{SoftMr, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    CompletionQueue, MemoryRegion, Operation, QueuePair, SendFlags, SendRequest, WorkCompletion,
    WrId,
};
use common::{Address, End, all_access, connect};

const SIZES: [(&str, usize); 5] = [
    ("8 B", 8),
    ("64 B", 64),
    ("4 KiB", 4 << 10),
    ("64 KiB", 64 << 10),
    ("1 MiB", 1 << 20),
];
const LARGEST: usize = 1 << 20;
/// Measurements of each figure, in turn with those that it is compared with. The median counts.
const ROUNDS: usize = 151;
/// Bytes of a measurement, with at most [`MOST`] messages: short, so that most are not interrupted.
const VOLUME: usize = 4 << 20;
const MOST: usize = 400;
/// Environment variable of the process whose memory is written.
const OWNER: &str = "ADVERB_EXAMPLE_OWNER";

fn main() {
    if std::env::var_os(OWNER).is_some() {
        return own();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut owner = (command.env(OWNER, "1"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    measure(&mut owner);
    drop(owner.stdin.take());
    owner.wait().unwrap();
}

/// Registers all of `memory`, which must outlive the region.
fn register(end: &End, memory: &mut Vec<u8>) -> SoftMr {
    let length = Bytes::new(memory.len() as u64);
    // SAFETY: the memory outlives the region, and nothing else accesses it.
    unsafe { (end.context).register(&end.pd, memory.as_mut_ptr(), length, all_access()) }.unwrap()
}

/// The process whose memory is written.
fn own() {
    let end = End::new(Bytes::new(LARGEST as u64));
    let mut memory = vec![1u8; LARGEST];
    let region = register(&end, &mut memory);
    let qp = end.qp();
    let registered = Address {
        memory: region.remote(0),
        ..end.address(&qp)
    };
    println!("{}", end.address(&qp).to_line());
    println!("{}", registered.to_line());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    connect(&end, &qp, Address::from_line(&line).qpn);
    println!("connected");
    line.clear();
    // Returns when the other process closes the pipe.
    std::io::stdin().read_line(&mut line).unwrap();
}

fn measure(owner: &mut Child) {
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    let (allocated, registered) = (Address::from_line(&next()), Address::from_line(&next()));
    let end = End::new(Bytes::new(64));
    let mut memory = vec![2u8; LARGEST];
    let source = register(&end, &mut memory);
    let qp = end.qp();
    connect(&end, &qp, allocated.qpn);
    let mut to = owner.stdin.as_ref().unwrap();
    writeln!(to, "{}", end.address(&qp).to_line()).unwrap();
    assert_eq!(next(), "connected");
    let pid = owner.id() as i32;
    println!("message   system call   WRITE, registered   of the system call   WRITE, allocated");
    for (name, length) in SIZES {
        let mut times: [Vec<f64>; 3] = Default::default();
        for _ in 0..ROUNDS {
            times[0].push(each(length, || {
                call(pid, (source.addr(), registered.memory.addr), length);
            }));
            for (times, at) in times[1..].iter_mut().zip([registered, allocated]) {
                let operation = Operation::RdmaWrite(at.memory);
                times.push(each(length, || {
                    execute((&end, &qp), &source, operation, length as u32);
                }));
            }
        }
        let [call, registered, allocated] = times.map(median);
        println!(
            "{name:>7} {call:>10.0} ns {registered:>16.0} ns {:>19.2}  {allocated:>15.0} ns",
            registered / call
        );
    }
    let [registered, allocated] = [registered, allocated].map(|at| {
        let operation = Operation::FetchAdd(at.memory, 1);
        let add = || execute((&end, &qp), &source, operation, 8);
        median((0..ROUNDS).map(|_| each(1 << 20, add)).collect())
    });
    println!("fetch and add {registered:>23.0} ns {allocated:>37.0} ns");
    measure_registration(&end);
}

/// Prints what registering costs, compared with what the kernel's part of `ibv_reg_mr` does at least: to lock the pages.
fn measure_registration(end: &End) {
    const LENGTH: usize = 1 << 30;
    let (mut first, mut again, mut locked) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        let start = map(LENGTH);
        let register = || {
            let length = Bytes::new(LENGTH as u64);
            // SAFETY: no request uses the memory.
            unsafe { (end.context).register(&end.pd, start, length, all_access()) }.unwrap()
        };
        first.push(milliseconds(|| drop(register())));
        again.push(milliseconds(|| drop(register())));
        let other = map(LENGTH);
        // SAFETY: both mappings are ours, and nothing uses them any longer.
        unsafe {
            locked.push(milliseconds(|| {
                assert_eq!(libc::mlock(other.cast(), LENGTH), 0, "raise ulimit -l");
            }));
            libc::munmap(start.cast(), LENGTH);
            libc::munmap(other.cast(), LENGTH);
        }
    }
    let [first, again, locked] = [first, again, locked].map(median);
    println!(
        "register 1 GiB: {first:.0} ms, or {again:.1} ms if its pages are present; mlock {locked:.0} ms"
    );
}

/// Maps memory without pages.
fn map(length: usize) -> *mut u8 {
    let (protection, how) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping, which nothing else uses.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, how, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start.cast()
}

fn milliseconds(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64() * 1e3
}

/// Returns the time of one of several messages of `length` bytes, in nanoseconds.
fn each(length: usize, mut message: impl FnMut()) -> f64 {
    let count = (VOLUME / length).min(MOST);
    let begin = Instant::now();
    (0..count).for_each(|_| message());
    begin.elapsed().as_nanos() as f64 / count as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn call(pid: i32, (from, to): (u64, u64), length: usize) {
    let [from, to] = [from, to].map(|addr| libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(addr as usize),
        iov_len: length,
    });
    // SAFETY: the kernel reads registered memory of this process, and writes that of the other.
    let done = unsafe { libc::process_vm_writev(pid, &raw const from, 1, &raw const to, 1, 0) };
    assert_eq!(black_box(done), length as isize);
}

fn execute((end, qp): (&End, &SoftQp), local: &SoftMr, operation: Operation, length: u32) {
    let sges = [local.sge(0, length).unwrap()];
    let request = SendRequest::new(WrId(1), operation, &sges);
    qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
        .unwrap();
    let mut one = [WorkCompletion::default()];
    while end.cq.poll(&mut one).unwrap() == 0 {}
    assert!(one[0].status.is_success(), "{:?}", one[0]);
}
