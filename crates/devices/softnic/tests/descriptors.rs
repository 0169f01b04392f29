//! The descriptors of a process: those that the device opens, closes, or cannot open, and the one of asynchronous events.

mod common;

use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::Duration;

use adverb_softnic::{SoftAh, SoftQp};
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AddressHandle as _, AsyncEvent, CompletionChannel, CompletionQueue, Context, Destination,
    MemoryRegion, NotifyOn, Operation, QpAttr, QpCaps, QpInit, QpState, QpType, QueuePair,
    RecvRequest, SendFlags, SendRequest, SrqCaps, WcStatus, WrId,
};
use common::{End, QKEY, connect, isolated, to_init, wait_until};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Runs `body` while the process can open no further descriptor.
fn without_descriptors<T>(body: impl FnOnce() -> T) -> T {
    let usual = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        ..usual
    };
    setrlimit(Resource::Nofile, none).unwrap();
    let result = body();
    setrlimit(Resource::Nofile, usual).unwrap();
    result
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_region_that_cannot_be_mapped_is_not_the_peers_fault() {
    isolated(
        "a_region_that_cannot_be_mapped_is_not_the_peers_fault",
        || {
            let (here, there) = (End::new(Bytes::kib(4)), End::new(Bytes::kib(4)));
            let to = there.mr.remote(0);
            for operation in [
                Operation::RdmaWrite(to),
                Operation::RdmaRead(to),
                Operation::FetchAdd(to, 1),
                Operation::Send,
            ] {
                let (near, far) = (here.qp(), there.qp());
                connect(&here, &near, far.qpn());
                connect(&there, &far, near.qpn());
                let sge = [there.mr.sge(0, 8).unwrap()];
                far.post_recv(&[RecvRequest::new(WrId(2), &sge)]).unwrap();
                let sge = [here.mr.sge(0, 8).unwrap()];
                let request = SendRequest::new(WrId(1), operation, &sge);
                without_descriptors(|| near.post_send(&[request])).unwrap();
                let wc = here.poll_one("the request");
                assert_eq!(wc.status, WcStatus::LocQpOpErr, "{operation:?}");
                assert_eq!(far.state(), QpState::Rts, "{operation:?}");
                assert_eq!(there.poll(), [], "{operation:?}");
            }
        },
    );
}

fn send_datagram(end: &End, qp: &SoftQp, ah: &SoftAh, to: &SoftQp) {
    let sge = [end.mr.sge(0, 8).unwrap()];
    let request = SendRequest::new(WrId(1), Operation::Send, &sge)
        .with_flags(SendFlags::SIGNALED)
        .to(Destination {
            ah: ah.handle(),
            qpn: to.qpn(),
            qkey: QKEY,
        });
    qp.post_send(&[request]).unwrap();
    assert_eq!(end.poll_one("a datagram").status, WcStatus::Success);
}

fn receive_datagram(end: &End, qp: &SoftQp) {
    let sge = [end.mr.sge(0, 64).unwrap()];
    qp.post_recv(&[RecvRequest::new(WrId(2), &sge)]).unwrap();
}

/// A peer kept each channel open to which it had written.
#[test]
fn peers_close_the_channels_that_are_destroyed() {
    isolated("peers_close_the_channels_that_are_destroyed", || {
        let (here, mut there) = (End::new(Bytes::kib(4)), End::new(Bytes::kib(4)));
        let near = here.datagram_qp(&here.cq, QpCaps::default());
        let ah = here.ah();
        let mut round = || {
            there.channel = there.context.create_channel().unwrap();
            there.cq = (there.context.create_cq(16, Some(&there.channel))).unwrap();
            let far = there.datagram_qp(&there.cq, QpCaps::default());
            receive_datagram(&there, &far);
            there.cq.req_notify(NotifyOn::Any).unwrap();
            send_datagram(&here, &near, &ah, &far);
            let event = there.channel.get_event(Span::from_secs(5)).unwrap();
            assert!(event.is_some());
            there.cq.ack_events(1);
        };
        round();
        round();
        // The receiver's engine opens the sender's port when it handles the sender's announcement.
        sleep(Duration::from_millis(200));
        let before = open_descriptors();
        (0..20).for_each(|_| round());
        assert_eq!(open_descriptors(), before);
    });
}

/// The queue was disarmed then, and nobody raised its event.
#[test]
fn the_owner_raises_an_event_that_a_peer_has_no_descriptor_for() {
    isolated(
        "the_owner_raises_an_event_that_a_peer_has_no_descriptor_for",
        || {
            let (here, there) = (End::new(Bytes::kib(4)), End::new(Bytes::kib(4)));
            let near = here.datagram_qp(&here.cq, QpCaps::default());
            let far = there.datagram_qp(&there.cq, QpCaps::default());
            let ah = here.ah();
            for _ in 0..2 {
                receive_datagram(&there, &far);
            }
            // This opens the peer's port, but not its channel.
            send_datagram(&here, &near, &ah, &far);
            there.cq.req_notify(NotifyOn::Any).unwrap();
            assert_eq!(there.poll().len(), 1);
            without_descriptors(|| send_datagram(&here, &near, &ah, &far));
            let event = there.channel.get_event(Span::from_secs(5)).unwrap();
            assert!(event.is_some(), "nobody has raised the event");
            assert_eq!(there.poll().len(), 1);
        },
    );
}

/// Takes an event from the descriptor, which does not block. Returns false if there is none.
fn take(events: &OwnedFd) -> bool {
    match rustix::io::read(events, &mut [0; 8]) {
        Err(Errno::AGAIN) => false,
        read => read.unwrap() == 8,
    }
}

/// A socket, with a byte for each event, was full after 278.
#[test]
fn each_of_many_asynchronous_events_can_be_waited_for() {
    isolated("each_of_many_asynchronous_events_can_be_waited_for", || {
        let end = End::new(Bytes::kib(4));
        let events = end.context.open_async_events().unwrap();
        rustix::fs::fcntl_setfl(&events, rustix::fs::OFlags::NONBLOCK).unwrap();
        let srq = (end.context.create_srq(
            &end.pd,
            &SrqCaps {
                max_wr: 1,
                max_sge: 1,
            },
        ))
        .unwrap();
        let init = QpInit::new(QpType::Rc, &end.cq, QpCaps::default());
        let make = || {
            end.context
                .create_qp_with_srq(&end.pd, &init, &srq)
                .unwrap()
        };
        let fail = |qp: &SoftQp| {
            to_init(qp);
            qp.modify(&QpAttr::to(QpState::Err)).unwrap();
            qp.modify(&QpAttr::to(QpState::Reset)).unwrap();
        };
        let (kept, destroyed) = (make(), make());
        for _ in 0..1000 {
            fail(&kept);
            fail(&destroyed);
        }
        // The events of what is destroyed are gone, and no longer counted.
        drop(destroyed);
        for n in 0..1000 {
            assert!(wait_until(|| take(&events)), "event {n} is not announced");
            let event = end.context.async_event().unwrap();
            assert_eq!(event, Some(AsyncEvent::LastWqeReached(kept.qpn())));
        }
        assert!(!take(&events));
        assert_eq!(end.context.async_event().unwrap(), None);
    });
}
