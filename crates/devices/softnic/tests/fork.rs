//! A process that forks: its child inherits everything, and disturbs nothing.
#![allow(unsafe_code)]

mod common;

use std::time::Duration;

use adverb_softnic::{SoftDevice, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    Device, MemoryRegion, Operation, QueuePair, RecvRequest, SendFlags, SendRequest, WcStatus, WrId,
};
use common::network::Network;
use common::victim::{Victim, hear, tell};
use common::{Address, End, connect, device_files, is_gone, isolated, isolated_with, wait_until};

/// Runs `child` in a forked process, which ends after it. Returns its number.
fn fork(child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child has one thread; it only uses memory, and the allocator survives a fork.
    match unsafe { libc::fork() } {
        0 => {
            child();
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
        id => {
            assert!(id > 0, "{}", std::io::Error::last_os_error());
            id
        }
    }
}

/// Waits until the child has ended by itself.
fn wait_for(child: libc::pid_t) {
    let mut status = -1;
    // SAFETY: `status` is ours to write.
    let has_ended = || unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) == child };
    assert!(wait_until(has_ended), "the child does not end");
    assert_eq!(status, 0, "the child failed");
}

/// Sends from one end to the other.
fn send((near, a): (&End, &SoftQp), (far, b): (&End, &SoftQp)) {
    let sges = [far.mr.sge(0, 8).unwrap()];
    b.post_recv(&[RecvRequest::new(WrId(2), &sges)]).unwrap();
    let sges = [near.mr.sge(0, 8).unwrap()];
    let request = SendRequest::new(WrId(1), Operation::Send, &sges);
    (a.post_send(&[request.with_flags(SendFlags::SIGNALED)])).unwrap();
    assert_eq!(near.poll_one("a send").status, WcStatus::Success);
    assert_eq!(far.poll_one("a receive").status, WcStatus::Success);
}

#[test]
fn a_child_that_frees_what_it_inherits_does_not_disturb_its_parent() {
    let test = "a_child_that_frees_what_it_inherits_does_not_disturb_its_parent";
    isolated(test, || {
        let far = End::new(Bytes::new(64));
        let near = End::new(Bytes::new(64));
        let (a, b) = (near.qp(), far.qp());
        connect(&near, &a, b.qpn());
        connect(&far, &b, a.qpn());
        send((&near, &a), (&far, &b));
        let files = device_files().len();
        let child = fork(|| {
            // SAFETY: the child's copies, which it does not use again.
            unsafe {
                drop(std::ptr::read(&raw const a));
                drop(std::ptr::read(&raw const near));
            }
        });
        wait_for(child);
        assert_eq!(device_files().len(), files);
        send((&near, &a), (&far, &b));
        send((&far, &b), (&near, &a));
    });
}

/// A parent on the local port or at an address.
fn parent(role: &str) {
    let device = match role {
        "local" => SoftDevice::new(),
        _ => SoftDevice::at(Network::one_address(33).ip(0)),
    };
    let end = End::of(device, Bytes::new(64));
    let address = end.address(&end.qp()).to_line();
    fork(|| {
        tell(&format!("{} {address}", std::process::id()));
        std::thread::sleep(Duration::from_secs(600));
    });
    hear();
}

#[test]
fn a_port_is_released_when_its_process_dies_though_a_child_of_it_lives() {
    let test = "a_port_is_released_when_its_process_dies_though_a_child_of_it_lives";
    isolated_with(test, parent, || {
        let keeper = End::new(Bytes::new(64));
        let mut victim = Victim::start("local");
        let line = victim.hear();
        let (child, address) = line.split_once(' ').unwrap();
        let slot = Address::from_line(address).slot();
        assert!(!is_gone(slot));
        victim.kill();
        // Whoever opens the device removes what is left, and takes the slot for a while.
        drop(SoftDevice::new().open().unwrap());
        let is_released = is_gone(slot);
        end(child);
        assert!(is_released, "{:?}", device_files());
        drop(keeper);
    });
}

#[test]
fn an_address_is_free_when_its_process_dies_though_a_child_of_it_lives() {
    let test = "an_address_is_free_when_its_process_dies_though_a_child_of_it_lives";
    isolated_with(test, parent, || {
        let ip = Network::one_address(33).ip(0);
        let mut victim = Victim::start("udp");
        let line = victim.hear();
        let (child, _) = line.split_once(' ').unwrap();
        let at = std::net::SocketAddr::new(ip, 4791);
        assert!(std::net::UdpSocket::bind(at).is_err());
        victim.kill();
        let is_free = std::net::UdpSocket::bind(at).is_ok();
        end(child);
        assert!(is_free);
        drop(SoftDevice::at(ip).open().unwrap());
    });
}

/// Kills the child of a killed process.
fn end(child: &str) {
    let id = rustix::process::Pid::from_raw(child.parse().unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
}
