//! Regions whose access rights or protection domain change while a peer has them mapped.
#![allow(unsafe_code)]

mod common;

use adverb_softnic::SoftQp;
use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, Context, MemoryRegion, Operation, QueuePair, RecvRequest, RegisterError,
    SendFlags, SendRequest, WcStatus, WrId,
};
use common::{End, all_access, connect, isolated};

fn write(near: &End, qp: &SoftQp, far: &End) -> WcStatus {
    let sges = [near.mr.sge(0, 8).unwrap()];
    let request = SendRequest::new(WrId(1), Operation::RdmaWrite(far.mr.remote(0)), &sges);
    qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
        .unwrap();
    near.poll_one("a WRITE").status
}

/// Connects new queue pairs of `near` and `far`.
fn pair(near: &End, far: &End) -> (SoftQp, SoftQp) {
    let (a, b) = (near.qp(), far.qp());
    connect(near, &a, b.qpn());
    connect(far, &b, a.qpn());
    (a, b)
}

#[test]
fn a_peer_has_the_rights_that_the_region_has_now() {
    isolated("a_peer_has_the_rights_that_the_region_has_now", || {
        let (near, far) = (End::new(Bytes::new(4096)), End::new(Bytes::new(4096)));
        let (a, _b) = pair(&near, &far);
        assert_eq!(write(&near, &a, &far), WcStatus::Success);
        let keys = (far.mr.lkey(), far.mr.rkey());
        far.mr.change(None, Some(AccessFlags::LOCAL_WRITE)).unwrap();
        assert_eq!(write(&near, &a, &far), WcStatus::RemAccessErr);
        let other = far.context.alloc_pd().unwrap();
        far.mr.change(Some(&other), Some(all_access())).unwrap();
        let (a, _b) = pair(&near, &far);
        assert_eq!(write(&near, &a, &far), WcStatus::RemAccessErr);
        far.mr.change(Some(&far.pd), None).unwrap();
        let (a, _b) = pair(&near, &far);
        assert_eq!(write(&near, &a, &far), WcStatus::Success);
        assert_eq!((far.mr.lkey(), far.mr.rkey()), keys);
    });
}

#[test]
fn a_refused_change_leaves_the_region_as_it_was() {
    isolated("a_refused_change_leaves_the_region_as_it_was", || {
        let (near, far) = (End::new(Bytes::new(4096)), End::new(Bytes::new(4096)));
        let (a, _b) = pair(&near, &far);
        let refused = far.mr.change(Some(&near.pd), None).unwrap_err();
        assert!(matches!(refused, RegisterError::Foreign), "{refused}");
        let access = AccessFlags::REMOTE_WRITE;
        let refused = far.mr.change(None, Some(access)).unwrap_err();
        assert!(matches!(refused, RegisterError::Access { .. }), "{refused}");
        assert_eq!(write(&near, &a, &far), WcStatus::Success);
    });
}

#[test]
fn memory_that_the_program_may_only_read_does_not_become_writable() {
    isolated(
        "memory_that_the_program_may_only_read_does_not_become_writable",
        || {
            let end = End::new(Bytes::new(4096));
            let text = "read-only memory of this program".as_bytes();
            let (addr, length) = (text.as_ptr().cast_mut(), Bytes::new(text.len() as u64));
            let read = AccessFlags::REMOTE_READ;
            // SAFETY: it is only read.
            let mr = unsafe { end.context.register(&end.pd, addr, length, read) }.unwrap();
            let refused = mr.change(None, Some(all_access())).unwrap_err();
            assert!(matches!(refused, RegisterError::Fault { .. }), "{refused}");
        },
    );
}

#[test]
fn the_request_that_failed_is_polled_before_the_receives_that_it_flushed() {
    isolated(
        "the_request_that_failed_is_polled_before_the_receives_that_it_flushed",
        || {
            let (near, far) = (End::new(Bytes::new(4096)), End::new(Bytes::new(4096)));
            let (a, _b) = pair(&near, &far);
            a.post_recv(&[RecvRequest::new(WrId(2), &[])]).unwrap();
            far.mr.change(None, Some(AccessFlags::LOCAL_WRITE)).unwrap();
            let sges = [near.mr.sge(0, 8).unwrap()];
            let write = SendRequest::new(WrId(1), Operation::RdmaWrite(far.mr.remote(0)), &sges);
            a.post_send(&[write]).unwrap();
            let polled: Vec<_> = (near.poll().iter())
                .map(|wc| (wc.wr_id, wc.status))
                .collect();
            let expected = [
                (WrId(1), WcStatus::RemAccessErr),
                (WrId(2), WcStatus::WrFlushErr),
            ];
            assert_eq!(polled, expected);
        },
    );
}
