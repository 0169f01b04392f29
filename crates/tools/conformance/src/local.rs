//! Faults of local memory: of the requester's pieces, and of the responder's receives.

use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, Context, Lkey, MemoryRegion, Operation, QpState, QueuePair, RecvRequest,
    SendRequest, Sge, Station, WcStatus, WrId,
};

use crate::pair::{ALL, BLANK, Pair, SIGNALED, UNSIGNALED};
use crate::{Fixture, Verdict};

/// `operation` of A with the piece `sge` fails locally: LOC_PROT_ERR, ERR, the rest flushed, and
/// nothing reaches B (IBTA vol. 1, 9.9.2.1, 10.3.1.7).
fn fails_locally<S: Station>(pair: &Pair<'_, S>, operation: Operation, sge: Sge<'_>) {
    let (a, b) = (&pair.a, &pair.b);
    b.fill(BLANK);
    b.recv(50, (0, 64));
    let good = [a.mr.sge(0, 8).expect("within the region")];
    let bad = [good[0], sge];
    let list = [
        SendRequest::new(WrId(1), Operation::RdmaWrite(b.mr.remote(0)), &good[..0]),
        SendRequest::new(WrId(2), operation, &bad),
        SendRequest::new(WrId(3), Operation::Send, &good),
    ];
    a.qp.post_send(&list).expect("post");
    a.expect_sent(&[(2, WcStatus::LocProtErr), (3, WcStatus::WrFlushErr)]);
    a.expect_state(QpState::Err);
    a.post(4, Operation::Send, (0, 8), UNSIGNALED);
    a.expect_sent(&[(4, WcStatus::WrFlushErr)]);
    a.expect_quiet();
    b.expect_quiet();
    assert!(
        b.all_bytes().iter().all(|byte| *byte == BLANK),
        "B's memory changed"
    );
}

/// SEND, WRITE and READ of A with the piece that `choose` makes fail locally.
fn all_fail_locally<S: Station>(
    fixture: Fixture<'_, S>,
    choose: impl for<'a> Fn(&'a Pair<'_, S>) -> Sge<'a>,
) -> Verdict {
    for i in 0..3 {
        let pair = Pair::new(fixture);
        let at = pair.b.mr.remote(100);
        let operations = [
            Operation::Send,
            Operation::RdmaWrite(at),
            Operation::RdmaRead(at),
        ];
        fails_locally(&pair, operations[i], choose(&pair));
    }
    Ok(())
}

fn piece<'a, S: Station>(pair: &'a Pair<'_, S>) -> Sge<'a> {
    pair.a.mr.sge(64, 16).expect("within the region")
}

/// A local key that names no region (IBTA vol. 1, 10.6.3.3; ibv_post_send(3)).
pub fn a_wrong_lkey_is_a_local_protection_error<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    all_fail_locally(fixture, |pair| {
        piece(pair).with_lkey(Lkey(pair.a.mr.lkey().0 ^ 0x4000_0000))
    })
}

/// The local key of a region that was deregistered (ibv_dereg_mr(3)).
pub fn the_lkey_of_a_deregistered_region_is_a_local_protection_error<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    all_fail_locally(fixture, |pair| {
        let a = &pair.a;
        let mr = a.region(ALL);
        piece(pair).with_lkey(mr.lkey())
    })
}

/// A piece outside the region that its key names (IBTA vol. 1, 10.6.3).
pub fn a_piece_outside_its_region_is_a_local_protection_error<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    for i in 0..3 {
        let pair = Pair::new(fixture);
        let a = &pair.a;
        let other = a.region(ALL);
        let at = pair.b.mr.remote(100);
        let operations = [
            Operation::Send,
            Operation::RdmaWrite(at),
            Operation::RdmaRead(at),
        ];
        fails_locally(&pair, operations[i], piece(&pair).with_lkey(other.lkey()));
    }
    Ok(())
}

/// A region of another protection domain than the queue pair's (IBTA vol. 1, 10.2.3).
pub fn a_region_of_another_domain_is_a_local_protection_error<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let a = &pair.a;
    let pd = a.context.alloc_pd().expect("another domain");
    let mr = a
        .context
        .alloc_mr(&pd, Bytes::new(4096), ALL)
        .expect("a region");
    fails_locally(
        &pair,
        Operation::Send,
        mr.sge(0, 16).expect("within the region"),
    );
    Ok(())
}

/// READ writes local memory: its target needs LOCAL_WRITE; SEND from it does not (IBTA vol. 1,
/// 10.6.3; ibv_reg_mr(3)).
pub fn a_read_needs_local_write_access<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    let mr = a.region(AccessFlags::empty());
    let sge = mr.sge(0, 16).expect("within the region");
    b.recv(49, (0, 64));
    let request = SendRequest::new(WrId(1), Operation::Send, std::slice::from_ref(&sge));
    a.qp.post_send(&[request.with_flags(SIGNALED)])
        .expect("post");
    a.expect_sent(&[(1, WcStatus::Success)]);
    b.expect_received(&[(49, WcStatus::Success)]);
    fails_locally(&pair, Operation::RdmaRead(b.mr.remote(0)), sge);
    let mut bytes = [1; 16];
    mr.read(0, &mut bytes).expect("within the region");
    assert_eq!(bytes, [0; 16]);
    Ok(())
}

/// A SEND of A to the receive with `sges`, and what both sides report; all behind it is flushed.
fn fails_both_sides<S: Station>(
    pair: &Pair<'_, S>,
    sges: &[Sge<'_>],
    here: WcStatus,
    there: WcStatus,
) {
    let (a, b) = (&pair.a, &pair.b);
    b.recv(49, (0, 64));
    b.qp.post_recv(&[RecvRequest::new(WrId(50), sges)])
        .expect("post a receive");
    b.recv(51, (0, 64));
    for i in 1..=3 {
        a.post(
            i,
            Operation::Send,
            (0, 40),
            if i == 3 { UNSIGNALED } else { SIGNALED },
        );
    }
    a.expect_sent(&[(1, WcStatus::Success), (2, here), (3, WcStatus::WrFlushErr)]);
    b.expect_received(&[
        (49, WcStatus::Success),
        (50, there),
        (51, WcStatus::WrFlushErr),
    ]);
    a.expect_state(QpState::Err);
    b.expect_state(QpState::Err);
    a.expect_quiet();
    b.expect_quiet();
}

/// A receive whose local key is wrong: LOC_PROT_ERR there, REM_OP_ERR at the sender (IBTA vol. 1,
/// 9.9.3, 11.6.2).
pub fn a_receive_with_a_wrong_lkey_fails_both_sides<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let sge = pair.b.mr.sge(0, 64).expect("within the region");
    let sge = sge.with_lkey(Lkey(sge.lkey().0 ^ 0x4000_0000));
    fails_both_sides(&pair, &[sge], WcStatus::RemOpErr, WcStatus::LocProtErr);
    Ok(())
}

/// A receive needs LOCAL_WRITE: LOC_PROT_ERR there, REM_OP_ERR at the sender (IBTA vol. 1,
/// 10.6.3, 9.9.3).
pub fn a_receive_without_local_write_access_fails_both_sides<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let b = &pair.b;
    let mr = b.region(AccessFlags::REMOTE_READ);
    let sges = [mr.sge(0, 64).expect("within the region")];
    fails_both_sides(&pair, &sges, WcStatus::RemOpErr, WcStatus::LocProtErr);
    let mut bytes = [1; 64];
    mr.read(0, &mut bytes).expect("within the region");
    assert_eq!(bytes, [0; 64]);
    Ok(())
}

/// A message longer than its receive: LOC_LEN_ERR there, REM_INV_REQ_ERR at the sender (IBTA
/// vol. 1, 9.9.3, 11.6.2).
pub fn a_message_longer_than_its_receive_fails_both_sides<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let mr = &pair.b.mr;
    let sges = [(100, 20), (200, 19)].map(|(at, n)| mr.sge(at, n).expect("within the region"));
    pair.a.fill(1);
    pair.b.fill(BLANK);
    fails_both_sides(&pair, &sges, WcStatus::RemInvReqErr, WcStatus::LocLenErr);
    let bytes = pair.b.bytes(219, 60_000);
    assert!(
        bytes.iter().all(|byte| *byte == BLANK),
        "bytes beyond the receive changed"
    );
    Ok(())
}

/// A piece of length 0 touches no memory: its key is not checked, on either side (IBTA vol. 1,
/// 10.7.3.2).
pub fn an_empty_piece_needs_no_key<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    a.fill(1);
    let wrong = |key: Lkey| Lkey(key.0 ^ 0x4000_0000);
    let pieces = [(0, 0), (10, 4), (0, 0), (20, 4)];
    let mut from = pieces.map(|(at, n)| a.mr.sge(at, n).expect("within the region"));
    let mut to = pieces.map(|(at, n)| b.mr.sge(at, n).expect("within the region"));
    for i in [0, 2] {
        from[i] = from[i].with_lkey(wrong(a.mr.lkey()));
        to[i] = to[i].with_lkey(wrong(b.mr.lkey()));
    }
    b.qp.post_recv(&[RecvRequest::new(WrId(50), &to)])
        .expect("post a receive");
    let request = SendRequest::new(WrId(1), Operation::Send, &from).with_flags(SIGNALED);
    a.qp.post_send(&[request]).expect("post");
    a.expect_sent(&[(1, WcStatus::Success)]);
    b.expect_received(&[(50, WcStatus::Success)]);
    assert_eq!(b.bytes(10, 4), [1; 4]);
    Ok(())
}
