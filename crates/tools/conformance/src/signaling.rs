//! Unsignaled requests, queue slots, and lists of requests.

use adverb_verbs::{
    MemoryRegion, Operation, PostErrorCause, QpCaps, QueuePair, RecvRequest, Rkey, SendRequest,
    Station, WcStatus, WrId,
};

use crate::pair::{BLANK, Pair, QUIET, SIGNALED, Setup, UNSIGNALED};
use crate::{Fixture, Verdict};

/// A pair with short queues, and how many send requests its queue takes.
fn short<S: Station>(fixture: Fixture<'_, S>) -> (Pair<'_, S>, u64) {
    let setup = Setup {
        caps: QpCaps {
            max_send_wr: 16,
            max_recv_wr: 16,
            ..Setup::default().caps
        },
        ..Setup::default()
    };
    let pair = Pair::with(fixture, setup);
    let depth = pair.a.qp.caps().max_send_wr.into();
    (pair, depth)
}

fn assert_send_queue_full<S: Station>(pair: &Pair<'_, S>) {
    let refused = pair
        .a
        .try_post(99, write(pair), (0, 1), SIGNALED)
        .unwrap_err();
    let depth = pair.a.qp.caps().max_send_wr;
    let cause = PostErrorCause::QueueFull {
        queue: "send",
        depth,
    };
    assert_eq!((refused.index, refused.cause), (0, cause));
}

fn write<S: Station>(pair: &Pair<'_, S>) -> Operation {
    Operation::RdmaWrite(pair.b.mr.remote(0))
}

/// A request without SIGNALED that succeeds gives no completion (IBTA vol. 1, 10.7.3.1).
pub fn an_unsignaled_success_gives_no_completion<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    b.recv(7, (0, 64));
    a.post(1, write(&pair), (0, 8), UNSIGNALED);
    a.post(2, Operation::RdmaRead(b.mr.remote(0)), (64, 8), UNSIGNALED);
    a.post(3, Operation::Send, (0, 8), UNSIGNALED);
    b.expect_received(&[(7, WcStatus::Success)]);
    a.expect_quiet();
    a.post(4, write(&pair), (0, 8), SIGNALED);
    a.expect_sent(&[(4, WcStatus::Success)]);
    a.expect_quiet();
    Ok(())
}

/// Unsignaled requests hold their slots although they are done: nobody has been told (IBTA
/// vol. 1, 10.8.6; ibv_post_send(3), ENOMEM).
pub fn unsignaled_requests_take_slots<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (pair, depth) = short(fixture);
    (0..depth).for_each(|i| pair.a.post(i, write(&pair), (0, 1), UNSIGNALED));
    assert_send_queue_full(&pair);
    pair.a.expect_quiet();
    assert_send_queue_full(&pair);
    Ok(())
}

/// Slots are freed when a completion of the same or a later request has been polled, not when the
/// request is done (IBTA vol. 1, 10.8.6).
pub fn slots_come_back_when_a_later_completion_is_polled<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let (pair, depth) = short(fixture);
    let a = &pair.a;
    let half = depth / 2;
    for round in 0..10 {
        (1..half).for_each(|i| a.post(i, write(&pair), (0, 1), UNSIGNALED));
        a.post(half, write(&pair), (0, 1), SIGNALED);
        (half..depth - 1).for_each(|i| a.post(i, write(&pair), (0, 1), UNSIGNALED));
        a.post(round, write(&pair), (0, 1), SIGNALED);
        let pause = if round == 0 { QUIET } else { QUIET / 20 };
        fixture.station().sleep(pause);
        assert_send_queue_full(&pair);
        a.expect_sent(&[(half, WcStatus::Success)]);
        (0..half).for_each(|i| a.post(i, write(&pair), (0, 1), UNSIGNALED));
        assert_send_queue_full(&pair);
        a.expect_sent(&[(round, WcStatus::Success)]);
        (half..depth - 1).for_each(|i| a.post(i, write(&pair), (0, 1), UNSIGNALED));
        a.post(77, write(&pair), (0, 1), SIGNALED);
        assert_send_queue_full(&pair);
        a.expect_sent(&[(77, WcStatus::Success)]);
    }
    Ok(())
}

/// A request that fails completes, signaled or not (IBTA vol. 1, 10.7.3.1; ibv_post_send(3)).
pub fn an_unsignaled_error_completes<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    let mut wrong = b.mr.remote(0);
    wrong.rkey = Rkey(wrong.rkey.0 ^ 0x5550_0000);
    a.post(1, write(&pair), (0, 8), UNSIGNALED);
    a.post(2, Operation::RdmaWrite(wrong), (0, 8), UNSIGNALED);
    a.post(3, write(&pair), (0, 8), UNSIGNALED);
    a.expect_sent(&[(2, WcStatus::RemAccessErr), (3, WcStatus::WrFlushErr)]);
    a.expect_quiet();
    Ok(())
}

/// A receive queue takes as many requests as its size; slots are freed when completions are
/// polled (IBTA vol. 1, 10.8.2; ibv_post_recv(3), ENOMEM).
pub fn a_full_receive_queue_refuses<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (pair, _) = short(fixture);
    let (a, b) = (&pair.a, &pair.b);
    let depth = b.qp.caps().max_recv_wr;
    let full = |wr_id| {
        let refused = b.try_recv(wr_id, (0, 8)).unwrap_err();
        let cause = PostErrorCause::QueueFull {
            queue: "receive",
            depth,
        };
        assert_eq!((refused.index, refused.cause), (0, cause));
    };
    (0..depth.into()).for_each(|i| b.recv(i, (0, 8)));
    full(99);
    for i in 0..100 {
        a.post(i, Operation::Send, (0, 8), SIGNALED);
        a.expect_sent(&[(i, WcStatus::Success)]);
        full(99);
        b.expect_received(&[(i, WcStatus::Success)]);
        b.recv(i + u64::from(depth), (0, 8));
        full(99);
    }
    Ok(())
}

/// Of a list that does not fit, those that do are posted, and the error names the first that does
/// not (ibv_post_send(3), bad_wr).
pub fn a_list_is_posted_up_to_the_request_that_does_not_fit<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let (pair, depth) = short(fixture);
    let (a, b) = (&pair.a, &pair.b);
    let sges = [a.mr.sge(0, 1).expect("within the region")];
    let list: Vec<_> = (0..depth + 3)
        .map(|i| SendRequest::new(WrId(i), write(&pair), &sges).with_flags(SIGNALED))
        .collect();
    let refused = a.qp.post_send(&list).unwrap_err();
    assert_eq!(refused.index as u64, depth);
    assert!(matches!(
        refused.cause,
        PostErrorCause::QueueFull { queue: "send", .. }
    ));
    a.expect_sent(
        &(0..depth)
            .map(|i| (i, WcStatus::Success))
            .collect::<Vec<_>>(),
    );
    a.expect_quiet();

    let depth = b.qp.caps().max_recv_wr as usize;
    let list: Vec<_> = (0..depth as u64 + 3)
        .map(|i| RecvRequest::new(WrId(i), &[]))
        .collect();
    let refused = b.qp.post_recv(&list).unwrap_err();
    assert_eq!(refused.index, depth);
    assert!(matches!(
        refused.cause,
        PostErrorCause::QueueFull {
            queue: "receive",
            ..
        }
    ));
    Ok(())
}

/// Of a list with a wrong request, those before it are posted and those behind it are not
/// (ibv_post_send(3), bad_wr).
pub fn a_list_is_posted_up_to_the_request_that_is_wrong<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    let max = a.qp.caps().max_send_sge;
    a.fill(1);
    b.fill(BLANK);
    let one = [a.mr.sge(0, 1).expect("within the region")];
    let many = vec![one[0]; max as usize + 1];
    let request = |i: u64, sges| {
        SendRequest::new(WrId(i), Operation::RdmaWrite(b.mr.remote(i)), sges).with_flags(SIGNALED)
    };
    let list = [
        request(0, &one),
        request(1, &one),
        request(2, &many),
        request(3, &one),
    ];
    let refused = a.qp.post_send(&list).unwrap_err();
    let given = many.len();
    assert_eq!(
        (refused.index, refused.cause),
        (2, PostErrorCause::TooManySges { given, max })
    );
    a.expect_sent(&[(0, WcStatus::Success), (1, WcStatus::Success)]);
    a.expect_quiet();
    assert_eq!(b.bytes(0, 4), [1, 1, BLANK, BLANK]);
    Ok(())
}

/// The same for receives (ibv_post_recv(3), bad_wr).
pub fn a_receive_list_is_posted_up_to_the_request_that_is_wrong<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    let max = b.qp.caps().max_recv_sge;
    let one = [b.mr.sge(0, 8).expect("within the region")];
    let many = vec![one[0]; max as usize + 1];
    let list = [&one[..], &one[..], &many[..], &one[..]];
    let list: Vec<_> = (0..4)
        .map(|i| RecvRequest::new(WrId(i), list[i as usize]))
        .collect();
    let refused = b.qp.post_recv(&list).unwrap_err();
    let given = many.len();
    assert_eq!(
        (refused.index, refused.cause),
        (2, PostErrorCause::TooManySges { given, max })
    );
    (0..3).for_each(|i| a.post(i, Operation::Send, (0, 8), SIGNALED));
    a.expect_sent(&[(0, WcStatus::Success), (1, WcStatus::Success)]);
    b.expect_received(&[(0, WcStatus::Success), (1, WcStatus::Success)]);
    a.expect_quiet();
    Ok(())
}
