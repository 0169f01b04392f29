//! The receiver is not ready: no receive is posted.

use adverb_verbs::{
    CompletionQueue, Imm, MemoryRegion, NotifyOn, Operation, QpState, QueuePair, SendRequest,
    Station, WcStatus, WrId,
};

use crate::end::Qp;
use crate::pair::{BLANK, Pair, QUIET, SIGNALED, Setup, connect};
use crate::{Fixture, Verdict};
use adverb_units::Span;

/// A SEND without receive waits and is done once there is one, while its sender polls (IBTA
/// vol. 1, 9.7.5.2.8).
pub fn a_send_waits_for_its_receive_while_polled<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    for i in 0..20 {
        let sent = a.fill_pattern(i);
        a.post(i, Operation::Send, (0, 500), SIGNALED);
        if i % 10 == 0 {
            a.expect_quiet();
        }
        b.recv(i + 50, (64, 500));
        a.expect_sent(&[(i, WcStatus::Success)]);
        b.expect_received(&[(i + 50, WcStatus::Success)]);
        assert_eq!(b.bytes(64, 500), sent[..500]);
    }
    Ok(())
}

/// The same while its sender sleeps on a channel (IBTA vol. 1, 9.7.5.2.8; ibv_get_cq_event(3)).
pub fn a_send_waits_for_its_receive_while_the_sender_sleeps<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    if fixture.is_helper() {
        let [b] = fixture.given()?;
        for round in 0..10 {
            fixture.hear_main()?;
            fixture.station().sleep(Span::from_ms(3 * round));
            b.recv(7, (0, 64));
        }
        return fixture.done();
    }
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    fixture.start(0, &[b]);
    for i in 0..10 {
        a.send_cq.req_notify(NotifyOn::Any).expect("arm");
        a.post(i, Operation::Send, (0, 8), SIGNALED);
        fixture.tell(0, &[]);
        a.expect_event(&a.send_cq);
        a.expect_sent(&[(i, WcStatus::Success)]);
        b.expect_received(&[(7, WcStatus::Success)]);
    }
    fixture.hear(0);
    Ok(())
}

/// The same while its sender does not look at all: posting is enough (IBTA vol. 1, 10.8.2: the
/// device carries posted requests out).
pub fn a_send_waits_for_its_receive_while_nobody_polls<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    for i in 0..10u8 {
        b.fill(BLANK);
        a.fill(i);
        a.post(i.into(), Operation::Send, (0, 64), SIGNALED);
        // Long enough, in some rounds, for a device that stops looking when idle.
        let pause = if i % 4 == 0 { 60 } else { 1 };
        fixture.station().sleep(Span::from_ms(pause));
        b.recv(7, (0, 64));
        b.wait_for("the last byte", || b.mr.load(63) == Ok(i));
        b.expect_received(&[(7, WcStatus::Success)]);
        a.expect_sent(&[(i.into(), WcStatus::Success)]);
    }
    Ok(())
}

/// A WRITE with immediate needs a receive too, and waits for it (IBTA vol. 1, 9.4.3, 9.7.5.2.8).
pub fn a_write_with_imm_waits_for_its_receive<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    a.fill(1);
    a.post(
        1,
        Operation::RdmaWriteWithImm(b.mr.remote(9), Imm(5)),
        (0, 77),
        SIGNALED,
    );
    a.expect_quiet();
    b.recv(2, (0, 0));
    a.expect_sent(&[(1, WcStatus::Success)]);
    let received = b.received(1)[0];
    assert_eq!((received.imm, received.byte_len), (Some(Imm(5)), 77));
    assert_eq!(b.bytes(9, 77), [1; 77]);
    Ok(())
}

/// Requests behind one that waits are not carried out before it (IBTA vol. 1, 9.5, 10.8.3.1).
pub fn requests_behind_a_waiting_one_wait<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    a.fill(1);
    b.fill(BLANK);
    a.post(1, Operation::Send, (0, 8), SIGNALED);
    a.post(2, Operation::RdmaWrite(b.mr.remote(100)), (0, 8), SIGNALED);
    a.post(3, Operation::RdmaRead(b.mr.remote(100)), (64, 8), SIGNALED);
    a.expect_quiet();
    assert_eq!(b.bytes(100, 8), [BLANK; 8]);
    b.mr.write(200, &[9; 8]).expect("within the region");
    b.recv(7, (0, 8));
    a.expect_sent(&[1, 2, 3].map(|i| (i, WcStatus::Success)));
    assert_eq!(b.bytes(100, 8), [1; 8]);
    Ok(())
}

/// Each receive serves one of the waiting requests, oldest first (IBTA vol. 1, 9.5).
pub fn waiting_requests_are_served_one_receive_each<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    for i in 0..30 {
        a.mr.write(i, &[i as u8]).expect("within the region");
        a.post(i, Operation::Send, (i, 1), SIGNALED);
    }
    for i in 0..30 {
        b.recv(i, (100 + i, 1));
        a.expect_sent(&[(i, WcStatus::Success)]);
        b.expect_received(&[(i, WcStatus::Success)]);
        assert_eq!(b.bytes(100 + i, 1), [i as u8]);
    }
    a.expect_quiet();
    Ok(())
}

/// RNR retry 7 means without end (IBTA vol. 1, 9.7.5.2.8; ibv_modify_qp(3)).
pub fn rnr_retries_without_end_outlast_the_timer<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup {
        rnr_timer: 1,
        rnr_retry: 7,
        timeout: 11,
        ..Setup::default()
    };
    let pair = Pair::with(fixture, setup);
    pair.a.post(1, Operation::Send, (0, 8), SIGNALED);
    // 7 retries of 10 µs are long over, and so is the transport's own retry time.
    fixture.station().sleep(setup.retry_time() * 2 + QUIET);
    pair.a.expect_quiet();
    pair.b.recv(2, (0, 8));
    pair.a.expect_sent(&[(1, WcStatus::Success)]);
    Ok(())
}

/// A limited number of retries is made, each after the timer of the receiver. Then the request fails, its
/// queue pair changes to ERR, and later requests are flushed in order. The receiver's queue pair keeps
/// working (IBTA vol. 1, 9.7.5.2.8, 9.9.2.1, 10.3.1.7).
pub fn rnr_retries_exceeded_end_in_an_error<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup {
        rnr_timer: 20,
        rnr_retry: 3,
        ..Setup::default()
    };
    let pair = Pair::with(fixture, setup);
    let (a, b) = (&pair.a, &pair.b);
    b.fill(BLANK);
    let _patient = patient(&pair);
    let begin = fixture.station().now();
    a.post(1, Operation::Send, (0, 8), SIGNALED);
    a.post(2, Operation::RdmaWrite(b.mr.remote(0)), (0, 8), SIGNALED);
    a.post(3, Operation::Send, (0, 8), Default::default());
    a.expect_sent(&[(1, WcStatus::RnrRetryExcErr)]);
    let elapsed = fixture.station().now() - begin;
    let least = setup.rnr_time();
    assert!(elapsed >= least * 9 / 10, "{elapsed}, at least {least}");
    a.expect_state(QpState::Err);
    a.post(4, Operation::Send, (0, 8), Default::default());
    a.expect_sent(&[2, 3, 4].map(|i| (i, WcStatus::WrFlushErr)));
    b.recv(7, (0, 8));
    a.expect_quiet();
    b.expect_quiet();
    assert_eq!(adverb_verbs::QueuePair::state(&b.qp), QpState::Rts);
    assert_eq!(b.bytes(0, 8), [BLANK; 8]);
    Ok(())
}

/// Without RNR retries the first refusal is the last (IBTA vol. 1, 9.7.5.2.8).
pub fn no_rnr_retries_fail_at_once<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup {
        rnr_timer: 31,
        rnr_retry: 0,
        ..Setup::default()
    };
    let pair = Pair::with(fixture, setup);
    pair.b.recv(7, (0, 8));
    pair.a.post(1, Operation::Send, (0, 8), SIGNALED);
    pair.a.expect_sent(&[(1, WcStatus::Success)]);
    let _patient = patient(&pair);
    pair.a.post(2, Operation::Send, (0, 8), SIGNALED);
    pair.a.expect_sent(&[(2, WcStatus::RnrRetryExcErr)]);
    Ok(())
}

/// Posts a SEND that is retried for seconds on another connection of the pair: what fails in time
/// completes before it.
fn patient<S: Station>(pair: &Pair<'_, S>) -> [Qp<S>; 2] {
    // 6 pauses of 491 ms.
    let setup = Setup {
        rnr_timer: 31,
        rnr_retry: 6,
        ..pair.setup
    };
    let (a, b) = (&pair.a, &pair.b);
    let (from, to) = (a.another_qp(&setup), b.another_qp(&setup));
    connect((&a.context, &from), (&b.context, &to), &setup);
    let request = SendRequest::new(WrId(99), Operation::Send, &[]);
    from.post_send(&[request.with_flags(SIGNALED)])
        .expect("post");
    [from, to]
}
