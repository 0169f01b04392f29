//! What the responder refuses: keys, ranges and rights of its memory.

use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, Context, Imm, MemoryRegion, Operation, QpAttr, QpState, QueuePair, RecvRequest,
    RemoteAddress, Rkey, SendRequest, Station, WcStatus, WrId,
};

use crate::pair::{ALL, BLANK, Pair, SIGNALED, Setup, UNSIGNALED, outcomes};
use crate::{Fixture, Verdict};

const LENGTH: u32 = 64;
/// Destination of the first, legal WRITE.
const LEGAL: u64 = 60_000;

/// All operations that name remote memory.
fn operations(at: RemoteAddress) -> [Operation; 3] {
    [
        Operation::RdmaWrite(at),
        Operation::RdmaRead(at),
        Operation::RdmaWriteWithImm(at, Imm(1)),
    ]
}

/// `operation` of A is refused as it has to be (IBTA vol. 1, 9.9.2, 9.9.3): the requests before it
/// are done, it fails, and all later ones, whether posted before or after the failure, are flushed in
/// order. Both queue pairs enter ERR. Receives of B are flushed, except that the first may report the
/// error instead. No memory changes.
fn refused<S: Station>(pair: &Pair<'_, S>, operation: Operation, statuses: &[WcStatus]) {
    let (a, b) = (&pair.a, &pair.b);
    a.fill(1);
    b.fill(BLANK);
    b.recv(50, (0, 8));
    b.recv(51, (0, 8));
    let sges = [a.mr.sge(0, LENGTH).expect("within the region")];
    let request = |i, operation| SendRequest::new(WrId(i), operation, &sges);
    let legal = Operation::RdmaWrite(b.mr.remote(LEGAL));
    let later = Operation::RdmaWrite(b.mr.remote(0));
    let is_legal_allowed = pair.setup.access.contains(AccessFlags::REMOTE_WRITE)
        && pair.setup.memory_access.contains(AccessFlags::REMOTE_WRITE);
    let first = if is_legal_allowed {
        legal
    } else {
        Operation::RdmaRead(b.mr.remote(0))
    };
    let first = SendRequest::new(WrId(1), first, if is_legal_allowed { &sges } else { &[] });
    let list = [
        first.with_flags(SIGNALED),
        request(2, operation).with_flags(SIGNALED),
        request(3, later),
        request(4, Operation::Send).with_flags(SIGNALED),
    ];
    a.qp.post_send(&list).expect("post");
    a.expect_sent(&[(1, WcStatus::Success)]);
    let failed = a.sent(1)[0];
    assert!(
        failed.wr_id == WrId(2) && statuses.contains(&failed.status),
        "{failed:?}, {statuses:?} expected"
    );
    a.expect_state(QpState::Err);
    a.post(5, later, (0, LENGTH), UNSIGNALED);
    a.expect_sent(&[3, 4, 5].map(|i| (i, WcStatus::WrFlushErr)));
    let received = outcomes(&b.received(2));
    let (first, second) = (received[0], received[1]);
    assert!(first.0 == 50 && !first.1.is_success(), "{first:?}");
    assert_eq!(second, (51, WcStatus::WrFlushErr));
    b.expect_state(QpState::Err);
    a.expect_quiet();
    b.expect_quiet();

    let mut expected = vec![BLANK; b.mr.length().as_usize()];
    if is_legal_allowed {
        expected[LEGAL as usize..][..LENGTH as usize].fill(1);
    }
    assert!(
        b.all_bytes() == expected,
        "{operation:?} changed B's memory"
    );
    assert!(
        a.all_bytes().iter().all(|byte| *byte == 1),
        "{operation:?} changed A's memory"
    );
}

/// A key, range or right of a region is refused as access.
pub(crate) const BY_KEY: &[WcStatus] = &[WcStatus::RemAccessErr];
/// What the queue pair is not set up for is an invalid request (IBTA vol. 1, 9.9.3, unsupported
/// operation); devices also call it a refused access.
pub(crate) const BY_QUEUE_PAIR: &[WcStatus] = &[WcStatus::RemInvReqErr, WcStatus::RemAccessErr];

/// Every operation at the place that `choose` picks is refused.
fn all_refused<S: Station>(
    fixture: Fixture<'_, S>,
    choose: impl Fn(&Pair<'_, S>) -> RemoteAddress,
) -> Verdict {
    for i in 0..3 {
        let pair = Pair::new(fixture);
        let at = choose(&pair);
        refused(&pair, operations(at)[i], BY_KEY);
    }
    Ok(())
}

/// A key that names no region (IBTA vol. 1, 9.7.4.1.5).
pub fn a_wrong_rkey_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    all_refused(fixture, |pair| RemoteAddress {
        rkey: Rkey(pair.b.mr.rkey().0 ^ 0x4000_0000),
        ..pair.b.mr.remote(0)
    })?;
    all_refused(fixture, |pair| RemoteAddress {
        rkey: Rkey(0),
        ..pair.b.mr.remote(0)
    })
}

/// The key of a region that was deregistered, also after it was used (IBTA vol. 1, 10.6.7.2;
/// ibv_dereg_mr(3)).
pub fn the_key_of_a_deregistered_region_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    all_refused(fixture, |pair| {
        let (a, b) = (&pair.a, &pair.b);
        let mr = b.region(ALL);
        let at = mr.remote(0);
        a.post(1, Operation::RdmaWrite(at), (0, 8), SIGNALED);
        a.expect_sent(&[(1, WcStatus::Success)]);
        drop(mr);
        // Later regions do not get its key.
        let _others: Vec<_> = (0..4).map(|_| b.region(ALL)).collect();
        at
    })
}

/// A range that begins before the region (IBTA vol. 1, 9.7.4.1.5).
pub fn a_range_before_the_region_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    all_refused(fixture, |pair| pair.b.mr.remote(1_u64.wrapping_neg()))?;
    all_refused(fixture, |pair| RemoteAddress {
        addr: 0,
        ..pair.b.mr.remote(0)
    })
}

/// A range that ends beyond the region, by one byte or by far (IBTA vol. 1, 9.7.4.1.5).
pub fn a_range_beyond_the_region_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    for beyond in [1, u64::from(LENGTH), 1 << 40] {
        let end = |pair: &Pair<_>| {
            let region: &<S::Context as Context>::Mr = &pair.b.mr;
            region.remote(region.length().get() - u64::from(LENGTH) + beyond)
        };
        all_refused(fixture, end)?;
    }
    Ok(())
}

/// A range whose end wraps around the address space (IBTA vol. 1, 9.7.4.1.5).
pub fn a_range_that_wraps_around_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    for addr in [u64::MAX, u64::MAX - u64::from(LENGTH) + 1, u64::MAX - 7] {
        all_refused(fixture, |pair| RemoteAddress {
            addr,
            ..pair.b.mr.remote(0)
        })?;
    }
    Ok(())
}

/// For each operation, the right it needs.
const NEEDS: [AccessFlags; 3] = [
    AccessFlags::REMOTE_WRITE,
    AccessFlags::REMOTE_READ,
    AccessFlags::REMOTE_WRITE,
];

/// The region lacks the right (IBTA vol. 1, 10.6.3; ibv_reg_mr(3)).
pub fn access_missing_on_the_region_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    for (i, need) in NEEDS.into_iter().enumerate() {
        let setup = Setup {
            memory_access: ALL - need,
            ..Setup::default()
        };
        let pair = Pair::with(fixture, setup);
        refused(&pair, operations(pair.b.mr.remote(0))[i], BY_KEY);
    }
    Ok(())
}

/// The queue pair lacks the right, whatever the region allows (IBTA vol. 1, 11.2.5.2;
/// ibv_modify_qp(3), qp_access_flags).
pub fn access_missing_on_the_queue_pair_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    for (i, need) in NEEDS.into_iter().enumerate() {
        let setup = Setup {
            access: ALL - need,
            ..Setup::default()
        };
        let pair = Pair::with(fixture, setup);
        refused(&pair, operations(pair.b.mr.remote(0))[i], BY_QUEUE_PAIR);
    }
    Ok(())
}

/// A right that is taken from a connected queue pair is gone at once (IBTA vol. 1, 11.2.5.2, RTS
/// to RTS).
pub fn access_taken_from_the_queue_pair_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    for (i, need) in NEEDS.into_iter().enumerate() {
        let mut pair = Pair::new(fixture);
        let (a, b) = (&pair.a, &pair.b);
        b.recv(49, (0, 0));
        a.post(1, operations(b.mr.remote(0))[i], (0, 8), SIGNALED);
        a.expect_sent(&[(1, WcStatus::Success)]);
        set_access(&b.qp, ALL - need);
        if i == 2 {
            b.received(1);
        } else {
            a.post(1, Operation::Send, (0, 0), SIGNALED);
            a.sent(1);
            b.received(1);
        }
        pair.setup.access = ALL - need;
        refused(&pair, operations(pair.b.mr.remote(0))[i], BY_QUEUE_PAIR);
    }
    Ok(())
}

fn set_access<Q: QueuePair>(qp: &Q, access: AccessFlags) {
    let mut attr = QpAttr::default();
    attr.access = Some(access);
    qp.modify(&attr).expect("change the access");
}

/// A right that is given later counts from then on (IBTA vol. 1, 11.2.5.2, RTS to RTS).
pub fn access_given_to_the_queue_pair_later_is_granted<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let setup = Setup {
        access: AccessFlags::empty(),
        ..Setup::default()
    };
    let pair = Pair::with(fixture, setup);
    let (a, b) = (&pair.a, &pair.b);
    b.recv(1, (0, 8));
    a.post(1, Operation::Send, (0, 8), SIGNALED);
    a.expect_sent(&[(1, WcStatus::Success)]);
    set_access(&b.qp, ALL);
    a.post(2, Operation::RdmaWrite(b.mr.remote(0)), (0, 8), SIGNALED);
    a.post(3, Operation::RdmaRead(b.mr.remote(0)), (0, 8), SIGNALED);
    a.expect_sent(&[2, 3].map(|i| (i, WcStatus::Success)));
    Ok(())
}

/// The region belongs to another protection domain than the queue pair (IBTA vol. 1, 10.2.3).
pub fn a_region_of_another_protection_domain_is_refused<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    for i in 0..3 {
        let pair = Pair::new(fixture);
        let b = &pair.b;
        let pd = b.context.alloc_pd().expect("another domain");
        let mr = b
            .context
            .alloc_mr(&pd, Bytes::new(4096), ALL)
            .expect("a region");
        refused(&pair, operations(mr.remote(0))[i], BY_KEY);
        let mut bytes = [0; 4096];
        mr.read(0, &mut bytes).expect("within the region");
        assert_eq!(bytes, [0; 4096]);
    }
    Ok(())
}

/// A WRITE or READ of no bytes touches no memory: its key is not checked (IBTA vol. 1, 9.4.3,
/// 9.4.4).
pub fn a_write_without_payload_needs_no_key<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let nowhere = RemoteAddress {
        addr: 8,
        rkey: Rkey(1),
    };
    pair.b.recv(1, (0, 0));
    for (i, operation) in operations(nowhere).into_iter().enumerate() {
        pair.a.post(i as u64, operation, (0, 0), SIGNALED);
    }
    pair.a
        .expect_sent(&[0, 1, 2].map(|i| (i, WcStatus::Success)));
    Ok(())
}

/// Receives that are posted after a refused request are flushed, too (IBTA vol. 1, 10.3.1.7).
pub fn receives_posted_after_a_refused_request_are_flushed<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    let nowhere = RemoteAddress {
        rkey: Rkey(0),
        ..b.mr.remote(0)
    };
    a.post(1, Operation::RdmaWrite(nowhere), (0, 8), SIGNALED);
    a.expect_sent(&[(1, WcStatus::RemAccessErr)]);
    b.expect_state(QpState::Err);
    b.recv(52, (0, 8));
    b.expect_received(&[(52, WcStatus::WrFlushErr)]);
    Ok(())
}

/// A request that waited behind another and is refused then takes those behind it along, in order
/// (IBTA vol. 1, 9.9.2.1, 10.3.1.7).
pub fn requests_behind_a_refused_one_that_waited_are_flushed<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    let nowhere = RemoteAddress {
        rkey: Rkey(0),
        ..b.mr.remote(0)
    };
    a.post(1, Operation::Send, (0, 8), SIGNALED);
    a.post(2, Operation::RdmaWrite(nowhere), (0, 8), UNSIGNALED);
    a.post(3, Operation::Send, (0, 8), UNSIGNALED);
    a.post(4, Operation::Send, (0, 8), SIGNALED);
    let sges = [b.mr.sge(0, 8).expect("within the region")];
    b.qp.post_recv(&[50, 51].map(|i| RecvRequest::new(WrId(i), &sges)))
        .expect("post receives");
    a.expect_sent(&[
        (1, WcStatus::Success),
        (2, WcStatus::RemAccessErr),
        (3, WcStatus::WrFlushErr),
        (4, WcStatus::WrFlushErr),
    ]);
    b.expect_received(&[(50, WcStatus::Success), (51, WcStatus::WrFlushErr)]);
    a.expect_state(QpState::Err);
    b.expect_state(QpState::Err);
    Ok(())
}
