//! A thread that polls without success yields its core.

#![allow(unsafe_code)] // in what tests share

mod common;

use std::net::{IpAddr, Ipv4Addr};

use adverb_softnic::{SoftDevice, yields};
use adverb_units::Bytes;
use adverb_verbs::{
    CompletionQueue, Context, MemoryRegion, Operation, QueuePair, SendFlags, SendRequest, WcStatus,
    WorkCompletion, WrId,
};
use common::{End, connect, isolated};

const MEMORY: Bytes = Bytes::new(4096);
/// Polls without success after which a thread yields.
const POLLS: u64 = 1024;
/// The same of a port whose polls make system calls.
const UDP_POLLS: u64 = 32;

/// Polls `count` times; returns how many completions it found.
fn poll(cq: &impl CompletionQueue, count: u64) -> usize {
    let mut into = [WorkCompletion::default(); 4];
    (0..count).map(|_| cq.poll(&mut into).unwrap()).sum()
}

#[test]
fn polls_of_an_empty_queue_yield_the_core() {
    isolated("polls_of_an_empty_queue_yield_the_core", || {
        let end = End::new(MEMORY);
        for number in 1..=100 {
            assert_eq!(poll(&end.cq, POLLS - 1), 0);
            assert_eq!(yields(), number - 1);
            assert_eq!(poll(&end.cq, 1), 0);
            assert_eq!(yields(), number);
        }
    });
}

#[test]
fn polls_of_memory_yield_the_core() {
    isolated("polls_of_memory_yield_the_core", || {
        let end = End::new(MEMORY);
        for _ in 0..3 * POLLS - 1 {
            end.mr.load(7).unwrap();
        }
        assert_eq!(yields(), 2);
        end.mr.load(7).unwrap();
        assert_eq!(yields(), 3);
    });
}

/// Whether the thread finds a completion or posts a request: the peer answers, or is about to be asked.
#[test]
fn progress_begins_a_new_count() {
    isolated("progress_begins_a_new_count", || {
        let (near, far) = (End::new(MEMORY), End::new(MEMORY));
        let (a, b) = (near.qp(), far.qp());
        connect(&near, &a, b.qpn());
        connect(&far, &b, a.qpn());
        let empty = near.context.create_cq(1, None).unwrap();
        let sges = [near.mr.sge(0, 8).unwrap()];
        let write = Operation::RdmaWrite(far.mr.remote(0));
        let request = SendRequest::new(WrId(1), write, &sges).with_flags(SendFlags::SIGNALED);
        for _ in 0..100 {
            assert_eq!(poll(&empty, POLLS - 1), 0);
            a.post_send(&[request]).unwrap();
            assert_eq!(poll(&empty, POLLS - 1), 0);
            assert_eq!(near.poll_one("the WRITE").status, WcStatus::Success);
        }
        assert_eq!(yields(), 0);
        assert_eq!(poll(&empty, POLLS), 0);
        assert_eq!(yields(), 1);
    });
}

#[test]
fn polls_of_the_udp_port_yield_sooner() {
    isolated("polls_of_the_udp_port_yield_sooner", || {
        let end = |host| {
            let ip = IpAddr::V4(Ipv4Addr::new(127, 7, 77, host));
            End::of(SoftDevice::at(ip), MEMORY)
        };
        let (near, far) = (end(1), end(2));
        let (a, b) = (near.qp(), far.qp());
        connect(&far, &a, b.qpn());
        connect(&near, &b, a.qpn());
        assert_eq!(poll(&near.cq, 10 * UDP_POLLS), 0);
        assert_eq!(yields(), 10);
        for _ in 0..10 * UDP_POLLS {
            near.mr.load(7).unwrap();
        }
        assert_eq!(yields(), 20);
    });
}
