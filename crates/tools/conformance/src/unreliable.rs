//! The unreliable connection (UC): what it carries, and what its requester never learns.
//!
//! A success here means that the message has left, so cases wait for what is to arrive.

use adverb_verbs::{
    AccessFlags, Comparison, CompletionQueue, Context, Imm, Lkey, MemoryRegion, Operation, PathMtu,
    Psn, QpAttr, QpState, QpType, Qpn, QueuePair, RemoteAddress, RetryCount, Rkey, SendRequest,
    Station, WcFlags, WcOpcode, WcStatus, WorkCompletion, WrId,
};

use crate::end::{Qp, supported};
use crate::pair::{BLANK, End, SIGNALED, Setup, UNSIGNALED, address_of, pattern, port_of, to_init};
use crate::{Fixture, NotSupported, Verdict};

/// Two ends whose queue pairs are UC.
struct Pair<'s, S: Station> {
    a: End<'s, S>,
    b: End<'s, S>,
    setup: Setup,
}

impl<'s, S: Station> Pair<'s, S> {
    /// Two ends in RESET.
    fn unconnected(fixture: Fixture<'s, S>) -> Result<Self, NotSupported> {
        let setup = Setup::default();
        let (a, b) = (end(fixture, &setup)?, end(fixture, &setup)?);
        Ok(Pair { a, b, setup })
    }

    /// Two ends in RTS.
    fn new(fixture: Fixture<'s, S>) -> Result<Self, NotSupported> {
        let pair = Self::unconnected(fixture)?;
        let (psn_a, psn_b) = pair.setup.psn;
        connect(&pair.a, (&pair.b, pair.b.qp.qpn()), (psn_a, psn_b));
        connect(&pair.b, (&pair.a, pair.a.qp.qpn()), (psn_b, psn_a));
        Ok(pair)
    }
}

fn end<'s, S: Station>(fixture: Fixture<'s, S>, setup: &Setup) -> Result<End<'s, S>, NotSupported> {
    let end = End::new(fixture, setup);
    let qp = uc_qp(&end, setup)?;
    Ok(end.with_qp(qp))
}

/// A UC queue pair of an end.
pub(crate) fn uc_qp<S: Station>(end: &End<'_, S>, setup: &Setup) -> Result<Qp<S>, NotSupported> {
    let init = end.init(QpType::Uc, setup.caps);
    supported(end.context.create_qp(&end.pd, &init), "UC queue pairs")
}

/// The attributes that take a UC queue pair to RTR.
fn rtr<S: Station>(end: &End<'_, S>, (peer, dest): (&End<'_, S>, Qpn), rq_psn: Psn) -> QpAttr {
    let mtu: PathMtu = port_of(&end.context).active_mtu;
    let mut rtr = QpAttr::to_rtr(address_of(&peer.context), dest, rq_psn, mtu);
    rtr.max_dest_rd_atomic = None;
    rtr.min_rnr_timer = None;
    rtr
}

/// The attributes that take a UC queue pair to RTS.
fn rts(sq_psn: Psn) -> QpAttr {
    let mut rts = QpAttr::to(QpState::Rts);
    rts.sq_psn = Some(sq_psn);
    rts
}

/// Takes an end from RESET to RTS.
fn connect<S: Station>(end: &End<'_, S>, peer: (&End<'_, S>, Qpn), psns: (Psn, Psn)) {
    connect_qp((end, &end.qp), peer, psns);
}

/// Takes a UC queue pair of an end from RESET to RTS.
pub(crate) fn connect_qp<S: Station>(
    (end, qp): (&End<'_, S>, &Qp<S>),
    peer: (&End<'_, S>, Qpn),
    (sq_psn, rq_psn): (Psn, Psn),
) {
    to_init(&end.context, qp, &Setup::default());
    qp.modify(&rtr(end, peer, rq_psn)).expect("to RTR");
    qp.modify(&rts(sq_psn)).expect("to RTS");
}

/// All operations of UC, with their completions at both sides, arrive whole (IBTA vol. 1, 9.8.2;
/// table of services and operations, 10.8).
pub fn every_operation_of_uc_arrives<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    let to = b.mr.remote(32_768);
    let operations = [
        (Operation::Send, None),
        (
            Operation::SendWithImm(Imm(0x0102_0304)),
            Some(Imm(0x0102_0304)),
        ),
        (Operation::RdmaWrite(to), None),
        (
            Operation::RdmaWriteWithImm(to, Imm(u32::MAX)),
            Some(Imm(u32::MAX)),
        ),
    ];
    for length in [1, 8, 63, 256, 4096, 16_000] {
        for (operation, imm) in operations {
            let sent = a.fill_pattern(u64::from(length));
            b.fill(BLANK);
            let is_write = matches!(
                operation,
                Operation::RdmaWrite(_) | Operation::RdmaWriteWithImm(..)
            );
            let is_silent = matches!(operation, Operation::RdmaWrite(_));
            if !is_silent {
                b.recv(7, (0, 16_384));
            }
            a.post(1, operation, (0, length), SIGNALED);
            let done = a.sent(1)[0];
            assert_eq!((done.wr_id, done.status), (WrId(1), WcStatus::Success));
            let opcode = if is_write {
                WcOpcode::RdmaWrite
            } else {
                WcOpcode::Send
            };
            assert_eq!(done.opcode, opcode);
            let place = if is_write { 32_768 } else { 0 };
            if is_silent {
                let there = || b.bytes(place, length as usize) == sent[..length as usize];
                b.wait_for("a WRITE to arrive", there);
            } else {
                let got = b.received(1)[0];
                assert_eq!((got.wr_id, got.status), (WrId(7), WcStatus::Success));
                assert_eq!((got.byte_len, got.imm), (length, imm));
                assert_eq!(got.flags.contains(WcFlags::WITH_IMM), imm.is_some());
                let opcode = if is_write {
                    WcOpcode::RecvRdmaWithImm
                } else {
                    WcOpcode::Recv
                };
                assert_eq!(got.opcode, opcode);
                assert!(b.bytes(place, length as usize) == sent[..length as usize]);
            }
            assert_eq!(b.bytes(place + u64::from(length), 64), [BLANK; 64]);
        }
    }
    Ok(())
}

/// Messages that arrive do so in the order in which they were sent (IBTA vol. 1, 9.8.2.1).
pub fn messages_of_uc_arrive_in_order<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    for round in 0..20 {
        for i in 0..16 {
            b.recv(i, (i * 64, 64));
        }
        for i in 0..16_u64 {
            a.mr.write(i * 64, &pattern(round * 16 + i, 64))
                .expect("within the region");
            a.post(i, Operation::Send, (i * 64, 64), SIGNALED);
        }
        a.expect_sent(&(0..16).map(|i| (i, WcStatus::Success)).collect::<Vec<_>>());
        b.expect_received(&(0..16).map(|i| (i, WcStatus::Success)).collect::<Vec<_>>());
        for i in 0..16 {
            assert_eq!(b.bytes(i * 64, 64), pattern(round * 16 + i, 64));
        }
    }
    Ok(())
}

/// A message that finds no receive is lost, its requester succeeds, and the next message arrives
/// (IBTA vol. 1, 9.8.2: no acknowledgement; 9.9.3, class D).
pub fn a_message_of_uc_without_a_receive_is_dropped<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    a.fill(1);
    let lost = [
        Operation::Send,
        Operation::RdmaWriteWithImm(b.mr.remote(512), Imm(1)),
    ];
    for operation in lost {
        a.post(1, operation, (0, 64), SIGNALED);
        a.expect_sent(&[(1, WcStatus::Success)]);
        b.expect_quiet();
        b.recv(2, (0, 64));
        b.expect_quiet();
        a.fill(2);
        a.post(3, Operation::Send, (0, 64), SIGNALED);
        a.expect_sent(&[(3, WcStatus::Success)]);
        b.expect_received(&[(2, WcStatus::Success)]);
        assert_eq!(b.bytes(0, 64), [2; 64]);
    }
    a.expect_state(QpState::Rts);
    b.expect_state(QpState::Rts);
    Ok(())
}

/// READ and atomic operations need an answer: UC refuses them when they are posted, or completes
/// them with a local QP operation error (IBTA vol. 1, 11.4.1.1, 11.6.2).
pub fn uc_refuses_what_needs_an_answer<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let at = |b: &End<'_, S>| b.mr.remote(0);
    let swap = Comparison {
        expected: 0,
        new: 1,
    };
    for i in 0..3 {
        let pair = Pair::new(fixture)?;
        let (a, b) = (&pair.a, &pair.b);
        let operation = [
            Operation::RdmaRead(at(b)),
            Operation::FetchAdd(at(b), 1),
            Operation::CompareSwap(at(b), swap),
        ][i];
        a.fill(BLANK);
        b.fill(0);
        if a.try_post(1, operation, (0, 8), SIGNALED).is_ok() {
            a.expect_sent(&[(1, WcStatus::LocQpOpErr)]);
        }
        assert_eq!(a.bytes(0, 8), [BLANK; 8]);
        assert_eq!(b.bytes(0, 8), [0; 8]);
    }
    Ok(())
}

/// A WRITE that the responder refuses vanishes: its requester succeeds, nothing is written, both
/// sides keep working (IBTA vol. 1, 9.9.3, class D).
pub fn a_refused_write_of_uc_vanishes<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    a.fill(1);
    b.fill(BLANK);
    let beyond = b.mr.remote(b.mr.length().get() - 8);
    let wrong = RemoteAddress {
        rkey: Rkey(b.mr.rkey().0 ^ 0x4000_0000),
        ..b.mr.remote(0)
    };
    for at in [beyond, wrong] {
        a.post(1, Operation::RdmaWrite(at), (0, 64), SIGNALED);
        a.expect_sent(&[(1, WcStatus::Success)]);
        b.expect_quiet();
    }
    assert!(b.all_bytes().iter().all(|byte| *byte == BLANK));
    a.post(2, Operation::RdmaWrite(b.mr.remote(64)), (0, 64), SIGNALED);
    a.expect_sent(&[(2, WcStatus::Success)]);
    b.wait_for("the next WRITE", || b.bytes(64, 64) == [1; 64]);
    a.expect_state(QpState::Rts);
    b.expect_state(QpState::Rts);
    Ok(())
}

/// Without REMOTE_WRITE on the queue pair a WRITE vanishes likewise.
pub fn a_write_of_uc_without_the_right_vanishes<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    let mut attr = QpAttr::default();
    attr.access = Some(AccessFlags::LOCAL_WRITE);
    b.qp.modify(&attr).expect("take the right away");
    a.fill(1);
    b.fill(BLANK);
    a.post(1, Operation::RdmaWrite(b.mr.remote(0)), (0, 64), SIGNALED);
    a.expect_sent(&[(1, WcStatus::Success)]);
    b.expect_quiet();
    assert!(b.all_bytes().iter().all(|byte| *byte == BLANK));
    Ok(())
}

/// A message longer than its receive: the requester succeeds. The responder drops it or completes
/// the receive in error, and writes nothing beyond it (IBTA vol. 1, 9.9.3; 11.6.2, local length
/// error).
pub fn a_message_of_uc_longer_than_its_receive_fails_the_receiver_alone<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    a.fill(1);
    b.fill(BLANK);
    b.recv(7, (0, 32));
    a.post(1, Operation::Send, (0, 64), SIGNALED);
    a.expect_sent(&[(1, WcStatus::Success)]);
    a.expect_quiet();
    let mut got = [WorkCompletion::default()];
    let count = b.recv_cq.poll(&mut got).expect("poll");
    assert!(
        count == 0 || got[0].status == WcStatus::LocLenErr,
        "{got:?}"
    );
    assert!(b.all_bytes()[32..].iter().all(|byte| *byte == BLANK));
    a.expect_state(QpState::Rts);
    Ok(())
}

/// A peer that is gone is not missed (IBTA vol. 1, 9.8.2).
pub fn uc_does_not_miss_a_peer_that_is_gone<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let Pair { a, b, .. } = Pair::new(fixture)?;
    let there = b.mr.remote(0);
    drop(b);
    for operation in [Operation::Send, Operation::RdmaWrite(there)] {
        a.post(1, operation, (0, 64), SIGNALED);
        a.expect_sent(&[(1, WcStatus::Success)]);
    }
    a.expect_quiet();
    a.expect_state(QpState::Rts);
    Ok(())
}

/// Nor does it ask for its peer when it is connected (IBTA vol. 1, 11.2.5.2: Modify QP sends
/// nothing).
pub fn uc_may_be_connected_to_a_peer_that_is_gone<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let Pair { a, b, setup } = Pair::unconnected(fixture)?;
    let rtr = rtr(&a, (&b, b.qp.qpn()), Psn::new(0));
    drop(b);
    to_init(&a.context, &a.qp, &setup);
    a.qp.modify(&rtr).expect("to RTR");
    a.qp.modify(&rts(Psn::new(0))).expect("to RTS");
    a.post(1, Operation::Send, (0, 64), SIGNALED);
    a.expect_sent(&[(1, WcStatus::Success)]);
    let sge = a.mr.sge(0, 64).expect("within the region");
    let wrong = [sge.with_lkey(Lkey(a.mr.lkey().0 ^ 0x4000_0000))];
    let faulty = SendRequest::new(WrId(2), Operation::Send, &wrong);
    a.qp.post_send(&[faulty]).expect("post");
    a.expect_sent(&[(2, WcStatus::LocProtErr)]);
    Ok(())
}

/// One side may be reset without the other: UC accepts any PSN at the beginning of a message (IBTA vol. 1,
/// 9.8.2.2).
pub fn a_side_of_uc_may_begin_anew_alone<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    for i in 0..6 {
        b.recv(i, (i * 64, 64));
    }
    for life in 0..3_u64 {
        for i in [life * 2, life * 2 + 1] {
            a.fill(i as u8);
            a.post(i, Operation::Send, (0, 64), SIGNALED);
            a.expect_sent(&[(i, WcStatus::Success)]);
            b.expect_received(&[(i, WcStatus::Success)]);
            assert_eq!(b.bytes(i * 64, 64), [i as u8; 64]);
        }
        let reset = a.qp.modify(&QpAttr::to(QpState::Reset));
        reset.expect("to RESET");
        connect(
            a,
            (b, b.qp.qpn()),
            (Psn::new(99 * life as u32), Psn::new(0)),
        );
    }
    Ok(())
}

/// A request with invalid local memory fails the send queue, and later requests are flushed. In SQE the
/// queue pair still receives, and a change to RTS restores it (IBTA vol. 1, 10.3.1.6). Devices that change
/// to ERR instead are not tested further.
pub fn a_local_error_of_uc_stops_sending_only<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    let sge = a.mr.sge(0, 64).expect("within the region");
    let wrong = [sge.with_lkey(Lkey(a.mr.lkey().0 ^ 0x4000_0000))];
    let faulty = SendRequest::new(WrId(1), Operation::Send, &wrong);
    a.qp.post_send(&[faulty]).expect("post");
    a.expect_sent(&[(1, WcStatus::LocProtErr)]);
    let stopped = || matches!(a.qp.state(), QpState::Sqe | QpState::Err);
    a.wait_for("the send queue to stop", stopped);
    a.post(2, Operation::Send, (0, 64), UNSIGNALED);
    a.expect_sent(&[(2, WcStatus::WrFlushErr)]);
    if a.qp.state() == QpState::Err {
        return Ok(());
    }
    a.recv(7, (0, 64));
    b.post(3, Operation::Send, (0, 64), SIGNALED);
    b.expect_sent(&[(3, WcStatus::Success)]);
    a.expect_received(&[(7, WcStatus::Success)]);
    a.qp.modify(&QpAttr::to(QpState::Rts)).expect("SQE to RTS");
    b.recv(8, (0, 64));
    a.post(4, Operation::Send, (0, 64), SIGNALED);
    a.expect_sent(&[(4, WcStatus::Success)]);
    b.expect_received(&[(8, WcStatus::Success)]);
    Ok(())
}

/// UC takes its own attributes and none that belong to acknowledgements (IBTA vol. 1, 11.2.5.2).
pub fn uc_refuses_the_attributes_of_rc<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::unconnected(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    to_init(&a.context, &a.qp, &pair.setup);
    let good = rtr(a, (b, b.qp.qpn()), Psn::new(0));
    let mut burdened = good;
    burdened.max_dest_rd_atomic = Some(1);
    a.qp.modify(&burdened)
        .expect_err("READs to answer on a UC queue pair");
    let mut lacking = good;
    lacking.dest_qpn = None;
    a.qp.modify(&lacking).expect_err("no peer named");
    a.qp.modify(&good).expect("to RTR");
    let mut burdened = rts(Psn::new(0));
    burdened.retry_cnt = RetryCount::new(1);
    a.qp.modify(&burdened)
        .expect_err("retries on a UC queue pair");
    a.qp.modify(&rts(Psn::new(0))).expect("to RTS");
    a.qp.modify(&QpAttr::to_init(a.context.port_num(), AccessFlags::empty()))
        .expect_err("RTS to INIT");
    a.expect_state(QpState::Rts);
    Ok(())
}
