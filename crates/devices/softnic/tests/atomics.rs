//! Atomic operations beyond the conformance suite: together with the owner's own atomic instructions, and with
//! `max_rd_atomic` or `max_dest_rd_atomic` 0.
#![allow(unsafe_code)]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use adverb_softnic::SoftQp;
use adverb_units::Bytes;
use adverb_verbs::{
    Comparison, MemoryRegion, Operation, PathMtu, Psn, QpAttr, QpState, QueuePair, SendFlags,
    SendRequest, WcStatus, WrId,
};
use common::{End, connect, isolated, to_init};

const ADDITIONS: u64 = 50_000;

fn add(end: &End, qp: &SoftQp, operation: Operation) -> WcStatus {
    let sges = [end.mr.sge(0, 8).unwrap()];
    let request = SendRequest::new(WrId(1), operation, &sges);
    qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
        .unwrap();
    end.poll_one("an atomic").status
}

/// `AtomicCap::System`: the owner of the word uses its CPU's atomics at the same time.
#[test]
fn additions_of_a_requester_and_of_the_owners_cpu_all_count() {
    isolated(
        "additions_of_a_requester_and_of_the_owners_cpu_all_count",
        || {
            let (near, far) = (End::new(Bytes::new(4096)), End::new(Bytes::new(4096)));
            let (a, b) = (near.qp(), far.qp());
            connect(&near, &a, b.qpn());
            connect(&far, &b, a.qpn());
            let place = std::ptr::with_exposed_provenance::<AtomicU64>(far.mr.addr() as usize);
            // SAFETY: the region begins at a page and outlives this test's use of the word.
            let word = unsafe { &*place };
            let at = far.mr.remote(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..ADDITIONS {
                        word.fetch_add(1, Ordering::Relaxed);
                    }
                });
                for _ in 0..ADDITIONS {
                    let status = add(&near, &a, Operation::FetchAdd(at, 1));
                    assert_eq!(status, WcStatus::Success);
                }
            });
            assert_eq!(word.load(Ordering::Relaxed), 2 * ADDITIONS);
        },
    );
}

/// Moves `qp` to RTS, with at most `out` READs and atomics in flight to the peer and `into` from it.
fn connect_with_depths(end: &End, qp: &SoftQp, dest: &SoftQp, (out, into): (u8, u8)) {
    to_init(qp);
    let psn = Psn::new(0);
    let mut rtr = QpAttr::to_rtr(end.local_address(), dest.qpn(), psn, PathMtu::B4096);
    rtr.max_dest_rd_atomic = Some(into);
    qp.modify(&rtr).unwrap();
    let mut rts = QpAttr::to_rts(psn);
    rts.max_rd_atomic = Some(out);
    qp.modify(&rts).unwrap();
}

#[test]
fn a_side_with_no_reads_and_atomics_under_way_has_none() {
    isolated(
        "a_side_with_no_reads_and_atomics_under_way_has_none",
        || {
            let (near, far) = (End::new(Bytes::new(4096)), End::new(Bytes::new(4096)));
            let at = far.mr.remote(64);
            let swap = Comparison {
                expected: 0,
                new: 9,
            };
            let operations = [
                Operation::RdmaRead(at),
                Operation::FetchAdd(at, 9),
                Operation::CompareSwap(at, swap),
            ];
            // (what the requester may have in flight, what the responder takes) → how it ends
            let cases = [
                ((1, 1), WcStatus::Success),
                ((0, 1), WcStatus::LocQpOpErr),
                ((1, 0), WcStatus::RemInvReqErr),
            ];
            for ((out, into), expected) in cases {
                for operation in operations {
                    let (a, b) = (near.qp(), far.qp());
                    connect_with_depths(&near, &a, &b, (out, 0));
                    connect_with_depths(&far, &b, &a, (0, into));
                    far.mr.write(64, &[0; 8]).unwrap();
                    assert_eq!(add(&near, &a, operation), expected, "{operation:?}");
                    let is_live = expected.is_success();
                    let state = if is_live { QpState::Rts } else { QpState::Err };
                    assert_eq!(a.state(), state);
                }
            }
        },
    );
}
