//! The queue pair's states: what each takes, holds back and flushes, and the ways between them.

use adverb_verbs::{
    AckTimeout, CompletionQueue, MemoryRegion, ModifyQpError, Operation, PathMtu, PortNum,
    PostErrorCause, Psn, QpAttr, QpCaps, QpState, QueuePair, RetryCount, RnrTimer, Station,
    WcStatus, WorkCompletion,
};

use crate::end::{End, retries_exceeded};
use crate::pair::{
    ALL, BLANK, Pair, SIGNALED, Setup, UNSIGNALED, address_of, expect_both, to_init, to_rtr, to_rts,
};
use crate::{Fixture, Verdict};
use adverb_units::Span;

/// Takes a queue pair to a state that needs no attributes.
pub(crate) fn to<Q: QueuePair>(qp: &Q, state: QpState) {
    qp.modify(&QpAttr::to(state))
        .unwrap_or_else(|error| panic!("to {state}: {error}"));
}

/// Takes a queue pair from SQD to RTS. A device that still drains the send queue refuses that (IBTA vol. 1,
/// 10.3.1.5; rxe_qp.c: sq_draining), and verbs cannot ask whether it does.
fn leave_drained<S: Station>(end: &End<'_, S>) {
    end.wait_for("SQD to RTS", || {
        end.qp.modify(&QpAttr::to(QpState::Rts)).is_ok()
    });
}

/// Requests in a state that does not take them are refused, and the state is named: receives in
/// RESET, sends before RTS (IBTA vol. 1, 10.8.2: C10-96, C10-97.2.1; ibv_post_send(3),
/// ibv_post_recv(3)).
pub fn posting_in_the_wrong_state_is_refused_by_name<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::unconnected(fixture, Setup::default());
    let a = &pair.a;
    let send_refused = |state| {
        assert_eq!(a.qp.state(), state);
        let refused = a
            .try_post(1, Operation::Send, (0, 8), SIGNALED)
            .unwrap_err();
        let needed = QpState::Rts;
        assert_eq!(
            (refused.index, refused.cause),
            (0, PostErrorCause::State { state, needed })
        );
    };
    send_refused(QpState::Reset);
    let refused = a.try_recv(1, (0, 8)).unwrap_err();
    let (state, needed) = (QpState::Reset, QpState::Init);
    assert_eq!(
        (refused.index, refused.cause),
        (0, PostErrorCause::State { state, needed })
    );
    to_init(&a.context, &a.qp, &pair.setup);
    send_refused(QpState::Init);
    a.recv(1, (0, 8));
    pair.a_to_rtr();
    send_refused(QpState::Rtr);
    a.recv(2, (0, 8));
    to_rts(&a.qp, pair.setup.psn.0, &pair.setup);
    a.expect_quiet();
    Ok(())
}

/// Receives posted in INIT serve the first messages (IBTA vol. 1, 10.3.1.2).
pub fn receives_posted_in_init_count<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::unconnected(fixture, Setup::default());
    let (a, b) = (&pair.a, &pair.b);
    to_init(&b.context, &b.qp, &pair.setup);
    (0..3).for_each(|i| b.recv(i, (0, 8)));
    pair.connect_a();
    to_rtr(
        &b.qp,
        (address_of(&a.context), &a.qp, pair.setup.psn.0),
        &pair.setup,
        &b.context,
    );
    // B receives in RTR; it need not be able to send.
    (0..3).for_each(|i| a.post(i, Operation::Send, (0, 8), SIGNALED));
    a.expect_sent(&[0, 1, 2].map(|i| (i, WcStatus::Success)));
    b.expect_received(&[0, 1, 2].map(|i| (i, WcStatus::Success)));
    to_rts(&b.qp, pair.setup.psn.1, &pair.setup);
    a.recv(5, (0, 8));
    b.post(6, Operation::Send, (0, 8), SIGNALED);
    b.expect_sent(&[(6, WcStatus::Success)]);
    Ok(())
}

/// Going to ERR flushes what is queued, on both queues, in order (IBTA vol. 1, 10.3.1.7).
pub fn the_error_state_flushes_both_queues<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    b.fill(BLANK);
    (10..14).for_each(|i| a.recv(i, (0, 8)));
    a.post(1, Operation::Send, (0, 8), SIGNALED);
    a.post(2, Operation::RdmaWrite(b.mr.remote(0)), (0, 8), UNSIGNALED);
    a.post(3, Operation::Send, (0, 8), SIGNALED);
    to(&a.qp, QpState::Err);
    assert_eq!(a.qp.state(), QpState::Err);
    a.expect_sent(&[1, 2, 3].map(|i| (i, WcStatus::WrFlushErr)));
    a.expect_received(&[10, 11, 12, 13].map(|i| (i, WcStatus::WrFlushErr)));
    // What has left already arrives before the receive is posted, and finds none.
    b.expect_quiet();
    b.recv(7, (0, 8));
    a.expect_quiet();
    b.expect_quiet();
    assert_eq!(b.bytes(0, 8), [BLANK; 8]);

    // Also from INIT, where only receives can be queued.
    let pair = Pair::unconnected(fixture, Setup::default());
    to_init(&pair.a.context, &pair.a.qp, &pair.setup);
    pair.a.recv(1, (0, 8));
    to(&pair.a.qp, QpState::Err);
    pair.a.expect_received(&[(1, WcStatus::WrFlushErr)]);
    Ok(())
}

/// Requests posted in ERR are taken and flushed, without end (IBTA vol. 1, 10.3.1.7).
pub fn posting_in_the_error_state_is_flushed<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let a = &pair.a;
    to(&a.qp, QpState::Err);
    for i in 0..200 {
        a.post(i, Operation::Send, (0, 8), UNSIGNALED);
        a.recv(i, (0, 8));
        a.expect_sent(&[(i, WcStatus::WrFlushErr)]);
        a.expect_received(&[(i, WcStatus::WrFlushErr)]);
    }
    a.expect_quiet();
    Ok(())
}

/// What arrived before the error is not flushed: its completion is a success (IBTA vol. 1,
/// 10.3.1.7).
pub fn arrivals_before_the_error_stay_successes<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    (10..14).for_each(|i| b.recv(i, (0, 8)));
    (0..2).for_each(|i| a.post(i, Operation::Send, (0, 8), SIGNALED));
    a.expect_sent(&[0, 1].map(|i| (i, WcStatus::Success)));
    to(&b.qp, QpState::Err);
    b.expect_received(&[
        (10, WcStatus::Success),
        (11, WcStatus::Success),
        (12, WcStatus::WrFlushErr),
        (13, WcStatus::WrFlushErr),
    ]);
    b.expect_quiet();
    Ok(())
}

const RECEIVES: u64 = 500;
const STRIKES: u64 = 60;

/// Receives that another role posts while the queue pair fails complete once each, in order (IBTA
/// vol. 1, 10.3.1.7, 10.8.3.1).
pub fn receives_posted_while_the_error_strikes_complete_once<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    if fixture.is_helper() {
        let [b] = fixture.given()?;
        for _ in 0..STRIKES {
            fixture.hear_main()?;
            (0..RECEIVES).for_each(|i| b.recv(i, (0, 8)));
            fixture.tell_main(&[]);
        }
        return Ok(());
    }
    let setup = Setup {
        caps: QpCaps {
            max_recv_wr: RECEIVES as u32,
            ..Setup::default().caps
        },
        entries: RECEIVES as u32 * 2,
        ..Setup::default()
    };
    let pair = Pair::with(fixture, setup);
    let b = &pair.b;
    fixture.start(0, &[b]);
    for round in 0..STRIKES {
        // However late the other role wakes up: the first time the error strikes before it posts.
        if round == 0 {
            to(&b.qp, QpState::Err);
        }
        fixture.tell(0, &[]);
        if round > 0 {
            fixture.station().compute(Span::from_ns(round * 500));
            to(&b.qp, QpState::Err);
        }
        fixture.hear(0);
        let expected: Vec<_> = (0..RECEIVES).map(|i| (i, WcStatus::WrFlushErr)).collect();
        b.expect_received(&expected);
        let mut one = [WorkCompletion::default()];
        assert_eq!(b.recv_cq.poll(&mut one), Ok(0), "once more: {one:?}");
        to(&pair.a.qp, QpState::Reset);
        to(&b.qp, QpState::Reset);
        pair.connect();
    }
    Ok(())
}

/// Each side sends to, writes to and reads from the other, and all succeeds.
pub(crate) fn exchange<S: Station>(pair: &Pair<'_, S>, base: u64) {
    let (a, b) = (&pair.a, &pair.b);
    for (from, to) in [(a, b), (b, a)] {
        to.recv(base, (0, 8));
        from.post(base + 1, Operation::Send, (8, 8), SIGNALED);
        from.post(
            base + 2,
            Operation::RdmaWrite(to.mr.remote(16)),
            (8, 8),
            SIGNALED,
        );
        from.post(
            base + 3,
            Operation::RdmaRead(to.mr.remote(16)),
            (24, 8),
            SIGNALED,
        );
        // Each is polled, so that no answer waits for a thread of the device's: a side with few and
        // short retries would give the other up.
        let sent = [1, 2, 3].map(|i| (base + i, WcStatus::Success));
        expect_both((from, &sent), (to, &[(base, WcStatus::Success)]));
    }
}

/// After ERR, both sides through RESET to RTS again: the pair works as new, with all its slots
/// (IBTA vol. 1, 10.3.1).
pub fn a_failed_pair_works_again_after_reset_on_both_sides<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    for round in 0..4 {
        exchange(&pair, round * 100);
        (0..64).for_each(|i| b.recv(i, (0, 8)));
        (0..10).for_each(|i| a.post(i, Operation::Send, (0, 16), SIGNALED));
        a.expect_state(QpState::Err);
        b.expect_state(QpState::Err);
        if round % 2 == 0 {
            a.sent(10);
            b.received(64);
        }
        to(&a.qp, QpState::Reset);
        to(&b.qp, QpState::Reset);
        a.forget_completions();
        b.forget_completions();
        pair.connect();
    }
    (0..64).for_each(|i| b.recv(i, (0, 8)));
    (0..64).for_each(|i| a.post(i, Operation::Send, (0, 8), SIGNALED));
    a.expect_sent(&(0..64).map(|i| (i, WcStatus::Success)).collect::<Vec<_>>());
    b.expect_received(&(0..64).map(|i| (i, WcStatus::Success)).collect::<Vec<_>>());
    Ok(())
}

/// RESET drops what is queued and what completed, without completions (IBTA vol. 1, 10.3.1.1;
/// ibv_modify_qp(3)).
pub fn reset_forgets_completions<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    a.recv(1, (0, 8));
    (2..5).for_each(|i| b.recv(i, (0, 8)));
    a.post(5, Operation::RdmaWrite(b.mr.remote(0)), (0, 8), SIGNALED);
    (6..10).for_each(|i| a.post(i, Operation::Send, (0, 8), SIGNALED));
    to(&a.qp, QpState::Reset);
    to(&b.qp, QpState::Reset);
    a.expect_quiet();
    b.expect_quiet();
    pair.connect();
    exchange(&pair, 100);
    a.expect_quiet();
    b.expect_quiet();
    Ok(())
}

/// In SQD requests are queued but not executed; after RTS they are executed in order. The receive queue
/// keeps working (IBTA vol. 1, 10.3.1.5).
pub fn drained_holds_requests_back_until_ready_to_send<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    for round in 0..3 {
        a.fill(1);
        b.fill(BLANK);
        to(&a.qp, QpState::Sqd);
        a.post(1, Operation::RdmaWrite(b.mr.remote(0)), (0, 8), SIGNALED);
        a.post(2, Operation::Send, (0, 8), UNSIGNALED);
        a.post(3, Operation::RdmaWrite(b.mr.remote(8)), (0, 8), SIGNALED);
        b.recv(7, (100, 8));
        a.expect_quiet();
        assert_eq!(b.bytes(0, 200), [BLANK; 200]);
        a.recv(8, (0, 8));
        b.post(4, Operation::Send, (0, 8), SIGNALED);
        b.expect_sent(&[(4, WcStatus::Success)]);
        a.expect_received(&[(8, WcStatus::Success)]);
        leave_drained(a);
        if round == 1 {
            // A is not polled: the device executes them nevertheless.
            b.expect_received(&[(7, WcStatus::Success)]);
            a.expect_sent(&[1, 3].map(|i| (i, WcStatus::Success)));
        } else {
            a.expect_sent(&[1, 3].map(|i| (i, WcStatus::Success)));
            b.expect_received(&[(7, WcStatus::Success)]);
        }
    }
    to(&a.qp, QpState::Sqd);
    a.post(1, Operation::Send, (0, 8), SIGNALED);
    to(&a.qp, QpState::Err);
    a.expect_sent(&[(1, WcStatus::WrFlushErr)]);
    Ok(())
}

/// In SQD the request that has begun is finished, here one that waits for its receive; those
/// behind it wait (IBTA vol. 1, 10.3.1.5).
pub fn drained_finishes_the_request_that_has_begun<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    // 655 ms: long enough that the sender still waits when it is drained.
    let setup = Setup {
        rnr_timer: 0,
        ..Setup::default()
    };
    let pair = drained_while_it_waits(fixture, setup);
    let (a, b) = (&pair.a, &pair.b);
    b.recv(7, (100, 8));
    a.expect_sent(&[(1, WcStatus::Success)]);
    a.expect_quiet();
    assert_eq!(b.bytes(0, 8), [BLANK; 8]);
    leave_drained(a);
    a.expect_sent(&[(2, WcStatus::Success)]);
    Ok(())
}

/// Returns a pair with A in SQD: its SEND waits for a receive, and the WRITE after it was not sent.
fn drained_while_it_waits<S: Station>(fixture: Fixture<'_, S>, setup: Setup) -> Pair<'_, S> {
    let timer = RnrTimer::new(setup.rnr_timer).expect("a 5-bit code");
    for _ in 0..10 {
        let pair = Pair::with(fixture, setup);
        let (a, b) = (&pair.a, &pair.b);
        a.fill(1);
        b.fill(BLANK);
        let begin = fixture.station().now();
        a.post(1, Operation::Send, (0, 8), SIGNALED);
        a.post(2, Operation::RdmaWrite(b.mr.remote(0)), (0, 8), SIGNALED);
        // B has no receive and reports that to A.
        b.expect_quiet();
        a.expect_quiet();
        to(&a.qp, QpState::Sqd);
        if fixture.station().now() - begin < timer.span() {
            return pair;
        }
    }
    panic!(
        "this host is too slow to be in time within {}",
        timer.span()
    );
}

/// SQD is where timeouts and retries are changed (IBTA vol. 1, 11.2.5.2, SQD to SQD).
pub fn drained_takes_new_retries<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup {
        timeout: 19,
        retry_cnt: 7,
        ..Setup::default()
    };
    let mut pair = Pair::with(fixture, setup);
    to(&pair.a.qp, QpState::Sqd);
    let mut attr = QpAttr::default();
    attr.timeout = AckTimeout::new(10);
    attr.retry_cnt = RetryCount::new(1);
    pair.a.qp.modify(&attr).expect("change the retries");
    leave_drained(&pair.a);
    (pair.setup.timeout, pair.setup.retry_cnt) = (10, 1);
    to(&pair.b.qp, QpState::Reset);
    pair.a.post(1, Operation::Send, (0, 8), SIGNALED);
    retries_exceeded(&pair.a, &pair.setup, 1, &[]);
    Ok(())
}

/// Edges that the table does not have are refused and the state stays; the error names both ends
/// or the attributes that are missing (IBTA vol. 1, 10.3.1; ibv_modify_qp(3)).
pub fn an_illegal_transition_is_refused_by_name<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::unconnected(fixture, Setup::default());
    let a = &pair.a;
    let address = address_of(&pair.b.context);
    let rtr = QpAttr::to_rtr(address, pair.b.qp.qpn(), Psn::new(0), PathMtu::B256);
    for attr in [rtr, QpAttr::to_rts(Psn::new(0)), QpAttr::to(QpState::Sqd)] {
        let refused = a.qp.modify(&attr).unwrap_err();
        let is_named = matches!(
            &refused,
            ModifyQpError::IllegalTransition { from: QpState::Reset, to, .. }
                if Some(*to) == attr.state
        );
        assert!(is_named, "{refused}");
        assert_eq!(a.qp.state(), QpState::Reset);
    }
    let refused = a.qp.modify(&QpAttr::to(QpState::Init)).unwrap_err();
    assert!(
        matches!(refused, ModifyQpError::InvalidAttributeMask { .. }),
        "{refused}"
    );
    let refused = a.qp.modify(&QpAttr::to_init(PortNum(99), ALL)).unwrap_err();
    assert!(
        matches!(refused, ModifyQpError::AttributeRange { .. }),
        "{refused}"
    );
    assert_eq!(a.qp.state(), QpState::Reset);
    Ok(())
}
