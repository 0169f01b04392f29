//! Whether the send queue of a queue pair in SQD is drained (IBTA vol. 1, 10.3.1.5).

mod common;

use std::net::{IpAddr, Ipv4Addr};

use adverb_softnic::{SoftDevice, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    MemoryRegion, Operation, PathMtu, QpAttr, QpState, QueuePair, RecvRequest, SendFlags,
    SendRequest, WcStatus, WrId,
};
use common::network::{How, connect_to};
use common::{End, isolated, wait_until};

fn check((here, near): (&End, &SoftQp), (there, far): (&End, &SoftQp)) {
    let sge = [here.mr.sge(0, 8).unwrap()];
    let request = SendRequest::new(WrId(1), Operation::Send, &sge);
    let request = request.with_flags(SendFlags::SIGNALED);
    near.post_send(&[request]).unwrap();
    assert!(!near.is_draining(), "in RTS");
    near.modify(&QpAttr::to(QpState::Sqd)).unwrap();
    near.post_send(&[request]).unwrap();
    // The first request waits for a receive; the second one has not begun.
    assert!(near.is_draining());
    let sge = [there.mr.sge(0, 8).unwrap()];
    far.post_recv(&[RecvRequest::new(WrId(2), &sge)]).unwrap();
    assert_eq!(here.poll_one("the SEND").status, WcStatus::Success);
    assert!(wait_until(|| !near.is_draining()));
    near.modify(&QpAttr::to(QpState::Rts)).unwrap();
    assert!(!near.is_draining());
}

/// It was always reported as drained.
#[test]
fn a_queue_pair_in_sqd_is_draining_until_its_request_is_complete() {
    isolated(
        "a_queue_pair_in_sqd_is_draining_until_its_request_is_complete",
        || {
            let at = |host| SoftDevice::at(IpAddr::V4(Ipv4Addr::new(127, 9, 46, host)));
            let how = How {
                mtu: PathMtu::B1024,
                timeout: 14,
                retries: 7,
            };
            for devices in [[SoftDevice::new(); 2], [at(1), at(2)]] {
                let [here, there] = devices.map(|device| End::of(device, Bytes::kib(4)));
                let (near, far) = (here.qp(), there.qp());
                connect_to(&near, there.local_address(), far.qpn(), how);
                connect_to(&far, here.local_address(), near.qpn(), how);
                check((&here, &near), (&there, &far));
            }
        },
    );
}
