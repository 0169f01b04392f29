//! Peers that do not answer, and what becomes of the requests that they were to answer.

use adverb_verbs::{MemoryRegion, Operation, QpState, QueuePair, Station, WcStatus};

use crate::end::retries_exceeded;
use crate::pair::{
    BLANK, Objects, Pair, SIGNALED, Setup, UNSIGNALED, address_of, to_init, to_rtr, to_rts,
};
use crate::states::{exchange, to};
use crate::{Fixture, Verdict};

/// If only one side was reset and connected again, packets of the other have unexpected PSNs: its requests
/// end with RETRY_EXC, and neither side gets a stale completion (IBTA vol. 1, 9.7.1,
/// 9.7.6.1.3).
pub fn a_peer_of_a_queue_pair_that_was_reset_exceeds_its_retries<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    for connects_anew in [false, true] {
        let pair = Pair::with(fixture, Setup::losing());
        let (a, b) = (&pair.a, &pair.b);
        exchange(&pair, 0);
        a.recv(5, (0, 8));
        to(&a.qp, QpState::Reset);
        if connects_anew {
            pair.connect_a();
            a.recv(6, (0, 8));
        }
        a.fill(BLANK);
        b.post(1, Operation::Send, (0, 8), UNSIGNALED);
        b.post(2, Operation::RdmaWrite(a.mr.remote(0)), (0, 8), SIGNALED);
        retries_exceeded(&pair.b, &pair.setup, 1, &[2]);
        a.expect_quiet();
        assert_eq!(a.bytes(0, 8), [BLANK; 8]);
        if connects_anew {
            a.post(3, Operation::RdmaWrite(b.mr.remote(0)), (0, 8), SIGNALED);
            retries_exceeded(&pair.a, &pair.setup, 3, &[]);
        }
    }
    Ok(())
}

/// A side that expects other packet sequence numbers does not answer: RETRY_EXC (IBTA vol. 1,
/// 9.7.1, 9.7.6.1.3).
pub fn other_packet_sequence_numbers_exceed_the_retries<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::unconnected(fixture, Setup::losing());
    let (a, b) = (&pair.a, &pair.b);
    pair.connect_a();
    to_init(&b.context, &b.qp, &pair.setup);
    let expected = pair.setup.psn.0.advance(1 << 20);
    to_rtr(
        &b.qp,
        (address_of(&a.context), &a.qp, expected),
        &pair.setup,
        &b.context,
    );
    to_rts(&b.qp, pair.setup.psn.1, &pair.setup);
    b.recv(7, (0, 8));
    a.post(1, Operation::Send, (0, 8), SIGNALED);
    a.post(2, Operation::Send, (0, 8), UNSIGNALED);
    retries_exceeded(a, &pair.setup, 1, &[2]);
    b.expect_quiet();
    assert_eq!(b.qp.state(), QpState::Rts);
    Ok(())
}

/// Seven retries are seven: only of RNR retries is that without end (IBTA vol. 1, 9.7.6.1.3;
/// ibv_modify_qp(3), retry_cnt).
pub fn seven_retries_come_to_an_end<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup {
        retry_cnt: 7,
        ..Setup::losing()
    };
    let pair = Pair::with(fixture, setup);
    to(&pair.b.qp, QpState::Reset);
    pair.a.post(1, Operation::Send, (0, 8), SIGNALED);
    retries_exceeded(&pair.a, &pair.setup, 1, &[]);
    Ok(())
}

/// A peer whose queue pair is destroyed does not answer: RETRY_EXC within timeout × (retries + 1),
/// then flushes (IBTA vol. 1, 9.7.6.1.3).
pub fn a_destroyed_peer_exceeds_the_retries<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::with(fixture, Setup::losing());
    exchange(&pair, 0);
    let Pair { a, b, setup } = pair;
    let Objects { qp, mr, .. } = b.into_objects();
    drop(qp);
    a.recv(7, (0, 8));
    a.post(1, Operation::RdmaWrite(mr.remote(0)), (0, 8), UNSIGNALED);
    a.post(2, Operation::RdmaRead(mr.remote(0)), (0, 8), UNSIGNALED);
    retries_exceeded(&a, &setup, 1, &[2]);
    a.expect_received(&[(7, WcStatus::WrFlushErr)]);
    Ok(())
}

/// The same where the request was waiting for a receive, without end (IBTA vol. 1, 9.7.6.1.3).
pub fn a_destroyed_peer_ends_a_wait_for_a_receive<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::with(fixture, Setup::losing());
    let (a, b) = (&pair.a, &pair.b);
    a.post(1, Operation::Send, (0, 8), SIGNALED);
    a.post(2, Operation::Send, (0, 8), SIGNALED);
    a.expect_quiet();
    assert_eq!(b.qp.state(), QpState::Rts);
    let Pair { a, b, setup } = pair;
    drop(b);
    retries_exceeded(&a, &setup, 1, &[2]);
    Ok(())
}

/// A peer in ERR does not answer (IBTA vol. 1, 10.3.1.7, 9.7.6.1.3).
pub fn a_peer_in_error_exceeds_the_retries<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::with(fixture, Setup::losing());
    let (a, b) = (&pair.a, &pair.b);
    b.recv(7, (0, 8));
    to(&b.qp, QpState::Err);
    b.expect_received(&[(7, WcStatus::WrFlushErr)]);
    a.post(1, Operation::Send, (0, 8), SIGNALED);
    retries_exceeded(a, &pair.setup, 1, &[]);
    b.expect_quiet();
    Ok(())
}

/// Both sides are reset and reconnected one after the other, without waiting for each other: what
/// counts is that numbers and packet sequences match when packets flow (IBTA vol. 1, 12.9.7).
pub fn sides_may_reconnect_one_after_the_other<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    let write = Operation::RdmaWrite(b.mr.remote(0));
    for round in 0..3 {
        a.post(round, write, (0, 8), SIGNALED);
        a.expect_sent(&[(round, WcStatus::Success)]);
        to(&a.qp, QpState::Reset);
        pair.connect_a();
        to(&b.qp, QpState::Reset);
        to_init(&b.context, &b.qp, &pair.setup);
        let from = (address_of(&a.context), &a.qp, pair.setup.psn.0);
        to_rtr(&b.qp, from, &pair.setup, &b.context);
        to_rts(&b.qp, pair.setup.psn.1, &pair.setup);
        a.recv(8, (0, 8));
        b.post(9, Operation::Send, (0, 8), SIGNALED);
        a.expect_received(&[(8, WcStatus::Success)]);
        b.expect_sent(&[(9, WcStatus::Success)]);
    }
    Ok(())
}
