//! Shared receive queues: receives that several queue pairs take from (IBTA vol. 1, 10.2.9).

use adverb_units::Bytes;
use adverb_verbs::{
    AsyncEvent, Context, CreateError, Imm, MemoryRegion, Operation, PostErrorCause, QpAttr,
    QpState, QpType, QueuePair, RecvRequest, SendRequest, SharedReceiveQueue, SrqCaps, Station,
    WcOpcode, WcStatus, WorkCompletion, WrId,
};

use crate::pair::{BLANK, End, SIGNALED, Setup, UNSIGNALED, completions, connect, outcomes};
use crate::srq_ends::{Lane, SrqEnds, post_receive, sizes};
use crate::{Fixture, Verdict};

/// Messages of several connections take the receives in the order in which they were posted; each
/// completion names the queue pair that took it (IBTA vol. 1, 10.2.9, 11.4.2.1).
pub fn several_queue_pairs_take_in_posting_order<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let lanes: Vec<_> = (0..4).map(|_| ends.lane()).collect();
    let sent = ends.a.fill_pattern(1);
    for round in 0..40u64 {
        ends.b.fill(BLANK);
        (0..8).for_each(|i| ends.recv(100 * round + i, (64 * i, 64)));
        for i in 0..8 {
            let lane = &lanes[(round + i * i) as usize % lanes.len()];
            ends.send(lane, i, (64 * i, 60));
            ends.a.expect_sent(&[(i, WcStatus::Success)]);
            let received = ends.b.received(1)[0];
            assert_eq!(received.wr_id, WrId(100 * round + i));
            assert_eq!(received.qp_num, lane.to.qpn());
            let found = (received.status, received.opcode, received.byte_len);
            assert_eq!(found, (WcStatus::Success, WcOpcode::Recv, 60));
            assert_eq!(ends.b.bytes(64 * i, 60), sent[64 * i as usize..][..60]);
        }
    }
    ends.b.expect_quiet();
    Ok(())
}

/// Each receive completes where the queue pair that took it completes (IBTA vol. 1, 10.2.9).
pub fn receives_complete_where_their_queue_pair_does<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let one = ends.lane();
    let cq = ends.b.context.create_cq(16, None);
    let other_cq = cq.expect("create a completion queue");
    let other = Lane::<S> {
        from: ends.a.another_qp(&ends.setup),
        to: ends.shared_qp(QpType::Rc, &other_cq),
    };
    let (a, b) = (&ends.a.context, &ends.b.context);
    connect((a, &other.from), (b, &other.to), &ends.setup);
    (0..6).for_each(|i| ends.recv(i, (64 * i, 64)));
    for i in 0..6 {
        ends.send(if i % 3 == 0 { &one } else { &other }, i, (0, 8));
        ends.a.expect_sent(&[(i, WcStatus::Success)]);
    }
    ends.b
        .expect_received(&[0, 3].map(|i| (i, WcStatus::Success)));
    let others = outcomes(&completions(fixture.station(), &other_cq, 4));
    assert_eq!(others, [1, 2, 4, 5].map(|i| (i, WcStatus::Success)));
    ends.b.expect_quiet();
    Ok(())
}

/// A SEND, and a WRITE with immediate, that find the shared queue empty wait for a receive (IBTA
/// vol. 1, 9.7.5.2.8).
pub fn a_message_waits_for_a_shared_receive<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let (one, other) = (ends.lane(), ends.lane());
    ends.a.fill(3);
    for i in 0..10 {
        ends.send(&one, i, (0, 100));
        let sges = [ends.a.mr.sge(0, 30).expect("within the region")];
        let to = Operation::RdmaWriteWithImm(ends.b.mr.remote(900), Imm(i as u32));
        let write = SendRequest::new(WrId(50), to, &sges).with_flags(SIGNALED);
        other.from.post_send(&[write]).expect("post a WRITE");
        if i == 0 {
            ends.a.expect_quiet();
        }
        ends.recv(10 + i, (0, 100));
        ends.recv(10 + i, (0, 100));
        let mut received = ends.b.received(2);
        received.sort_by_key(|c| c.byte_len);
        assert!(received.iter().all(|c| c.status.is_success()));
        let of = |c: &WorkCompletion| (c.wr_id.0, c.qp_num, c.byte_len, c.imm);
        let write = (10 + i, other.to.qpn(), 30, Some(Imm(i as u32)));
        assert_eq!(of(&received[0]), write);
        assert_eq!(of(&received[1]), (10 + i, one.to.qpn(), 100, None));
        let mut sent = outcomes(&ends.a.sent(2));
        sent.sort_by_key(|(wr_id, _)| *wr_id);
        assert_eq!(sent, [i, 50].map(|i| (i, WcStatus::Success)));
        assert_eq!(ends.b.bytes(900, 30), [3; 30]);
    }
    ends.b.expect_quiet();
    Ok(())
}

/// RNR retries that are exceeded at an empty shared queue fail the sender alone; the others keep working
/// (IBTA vol. 1, 9.7.5.2.8, 9.9.2.1).
pub fn an_empty_shared_queue_exceeds_rnr_retries<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup {
        rnr_timer: 1,
        rnr_retry: 2,
        ..Setup::default()
    };
    let ends = SrqEnds::with(fixture, setup)?;
    let (one, other) = (ends.lane(), ends.lane());
    ends.send(&one, 1, (0, 8));
    ends.a.expect_sent(&[(1, WcStatus::RnrRetryExcErr)]);
    ends.recv(7, (0, 8));
    ends.send(&other, 2, (0, 8));
    ends.a.expect_sent(&[(2, WcStatus::Success)]);
    ends.b.expect_received(&[(7, WcStatus::Success)]);
    Ok(())
}

/// An armed limit raises one event, when a receive is taken and fewer are left; then it has to be
/// armed again (IBTA vol. 1, 10.2.9; ibv_modify_srq(3)).
pub fn the_limit_raises_one_event<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let lane = ends.lane();
    let event = AsyncEvent::SrqLimitReached(ends.srq.id());
    let take_one = || {
        ends.send(&lane, 1, (0, 8));
        ends.a.expect_sent(&[(1, WcStatus::Success)]);
        ends.b.expect_received(&[(7, WcStatus::Success)]);
    };
    for _ in 0..2 {
        (0..6).for_each(|_| ends.recv(7, (0, 8)));
        take_one(); // not armed: nothing is told
        ends.srq.arm(3).expect("arm the limit");
        assert_eq!(ends.srq.query().expect("query").srq_limit, 3);
        take_one();
        take_one();
        ends.expect_no_event();
        take_one();
        ends.expect_event(event);
        assert_eq!(ends.srq.query().expect("query").srq_limit, 0);
        take_one();
        take_one();
        ends.expect_no_event();
    }
    Ok(())
}

/// A limit beyond the queue is refused (ibv_modify_srq(3)).
pub fn a_limit_beyond_the_queue_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let attr = ends.srq.query().expect("query");
    assert!(attr.caps.max_wr >= 64 && attr.caps.max_sge >= 2, "{attr:?}");
    assert_eq!(attr.srq_limit, 0);
    ends.srq.arm(attr.caps.max_wr + 1).expect_err("too large");
    assert_eq!(ends.srq.query().expect("query").srq_limit, 0);
    Ok(())
}

/// Receives are posted to the shared queue, not to the queue pair (IBTA vol. 1, 11.4.1.2;
/// ibv_post_recv(3)).
pub fn a_queue_pair_with_a_shared_queue_refuses_receives<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let lane = ends.lane();
    let request = RecvRequest::new(WrId(1), &[]);
    let refused = lane.to.post_recv(&[request]).expect_err("has a shared one");
    assert_eq!(refused.index, 0);
    assert_eq!(refused.cause, PostErrorCause::HasSharedReceiveQueue);
    Ok(())
}

/// A queue pair that fails flushes only receives that it has taken: the other queue pairs use the
/// rest (IBTA vol. 1, 10.2.9).
pub fn a_failing_queue_pair_leaves_the_receives<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let (one, other) = (ends.lane(), ends.lane());
    (0..4).for_each(|i| ends.recv(i, (0, 8)));
    ends.send(&one, 1, (0, 8));
    ends.a.expect_sent(&[(1, WcStatus::Success)]);
    one.to.modify(&QpAttr::to(QpState::Err)).expect("to ERR");
    ends.b.expect_received(&[(0, WcStatus::Success)]);
    ends.b.expect_quiet();
    for i in 1..4 {
        ends.send(&other, i, (0, 8));
        ends.a.expect_sent(&[(i, WcStatus::Success)]);
        ends.b.expect_received(&[(i, WcStatus::Success)]);
    }
    Ok(())
}

/// When a queue pair with a shared queue has failed and takes nothing more, that is told once: until
/// then a receive that it took may still complete (IBTA vol. 1, 11.6.3; ibv_get_async_event(3)).
pub fn the_last_receive_of_a_failing_queue_pair_is_told<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let (one, other) = (ends.lane(), ends.lane());
    ends.recv(1, (0, 8));
    for qp in [&other.to, &one.to] {
        ends.expect_no_event();
        qp.modify(&QpAttr::to(QpState::Err)).expect("to ERR");
        ends.expect_event(AsyncEvent::LastWqeReached(qp.qpn()));
    }
    ends.expect_no_event();
    ends.b.expect_quiet();
    Ok(())
}

/// RESET takes no receives along either, and the queue pair takes them again afterwards (IBTA
/// vol. 1, 10.2.9, 10.3.1.1).
pub fn a_queue_pair_that_was_reset_takes_again<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let lane = ends.lane();
    (0..4).for_each(|i| ends.recv(i, (0, 8)));
    for i in 0..4 {
        ends.send(&lane, i, (0, 8));
        ends.a.expect_sent(&[(i, WcStatus::Success)]);
        ends.b.expect_received(&[(i, WcStatus::Success)]);
        for qp in [&lane.from, &lane.to] {
            qp.modify(&QpAttr::to(QpState::Reset)).expect("to RESET");
        }
        let (a, b) = (&ends.a.context, &ends.b.context);
        connect((a, &lane.from), (b, &lane.to), &ends.setup);
    }
    ends.b.expect_quiet();
    Ok(())
}

/// A message longer than the shared receive that it took fails its connection with that receive; the
/// other connections keep using the other receives (IBTA vol. 1, 9.7.4.1.6, 9.9.3).
pub fn a_message_too_long_for_its_shared_receive_fails_alone<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let (one, other) = (ends.lane(), ends.lane());
    ends.recv(1, (0, 8));
    ends.recv(2, (0, 8));
    ends.send(&one, 5, (0, 9));
    ends.a.expect_sent(&[(5, WcStatus::RemInvReqErr)]);
    ends.b.expect_received(&[(1, WcStatus::LocLenErr)]);
    ends.send(&other, 6, (0, 8));
    ends.a.expect_sent(&[(6, WcStatus::Success)]);
    ends.b.expect_received(&[(2, WcStatus::Success)]);
    Ok(())
}

/// A receive in memory of another protection domain is a fault of the receiver's (IBTA vol. 1,
/// 9.7.4.1.5, 10.2.3).
pub fn a_shared_receive_in_another_domain_is_a_fault<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let lane = ends.lane();
    let other = ends.b.context.alloc_pd().expect("allocate a domain");
    let size = Bytes::kib(4);
    let mr = ends.b.context.alloc_mr(&other, size, crate::pair::ALL);
    let mr = mr.expect("allocate a region");
    mr.write(0, &[BLANK; 8]).expect("within the region");
    post_receive(&ends.srq, &mr, 1, (0, 8));
    ends.send(&lane, 5, (0, 8));
    ends.a.expect_sent(&[(5, WcStatus::RemOpErr)]);
    ends.b.expect_received(&[(1, WcStatus::LocProtErr)]);
    let mut found = [0; 8];
    mr.read(0, &mut found).expect("within the region");
    assert_eq!(found, [BLANK; 8]);
    Ok(())
}

/// Sizes out of range, more pieces than asked for, and more requests than fit are refused
/// (ibv_create_srq(3), ibv_post_srq_recv(3)).
pub fn shared_queue_sizes_are_checked<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let (b, limits) = (&ends.b, ends.b.context.caps());
    let (most, pieces) = (limits.max_srq_wr, limits.max_srq_sge);
    for (max_wr, max_sge) in [(0, 1), (most + 1, 1), (1, pieces + 1)] {
        match b.context.create_srq(&b.pd, &SrqCaps { max_wr, max_sge }) {
            Err(CreateError::OutOfRange { .. }) => {}
            Err(e) => panic!("another refusal: {e}"),
            Ok(_) => panic!("{max_wr} requests of {max_sge} pieces were taken"),
        }
    }
    let caps = ends.srq.query().expect("query").caps;
    let piece = b.mr.sge(0, 1).expect("within the region");
    let sges = vec![piece; caps.max_sge as usize + 1];
    let refused = ends.srq.post_recv(&[RecvRequest::new(WrId(0), &sges)]);
    let refused = refused.expect_err("one piece too many").cause;
    assert!(matches!(refused, PostErrorCause::TooManySges { .. }));
    let request = |i| RecvRequest::new(WrId(i), &[]);
    for i in 0..caps.max_wr {
        ends.srq
            .post_recv(&[request(i.into())])
            .expect("there is room");
    }
    // A driver may have rounded up: its queue is full within twice the size.
    let full = (0..=caps.max_wr).find_map(|_| ends.srq.post_recv(&[request(0)]).err());
    let full = full.expect("a queue without end").cause;
    assert!(matches!(full, PostErrorCause::QueueFull { .. }), "{full}");
    Ok(())
}

/// A list is posted up to the request that is wrong (ibv_post_srq_recv(3)).
pub fn a_shared_list_is_posted_up_to_the_wrong_request<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let lane = ends.lane();
    let caps = ends.srq.query().expect("query").caps;
    let piece = ends.b.mr.sge(0, 8).expect("within the region");
    let (good, wrong) = ([piece], vec![piece; caps.max_sge as usize + 1]);
    let request = |i, sges| RecvRequest::new(WrId(i), sges);
    let list = [request(1, &good), request(2, &wrong), request(3, &good)];
    let refused = ends.srq.post_recv(&list).expect_err("the second is wrong");
    assert_eq!(refused.index, 1);
    ends.send(&lane, 1, (0, 8));
    ends.send(&lane, 2, (0, 8));
    ends.b.expect_received(&[(1, WcStatus::Success)]);
    ends.a.expect_sent(&[(1, WcStatus::Success)]);
    ends.a.expect_quiet();
    ends.recv(4, (0, 8));
    ends.b.expect_received(&[(4, WcStatus::Success)]);
    ends.a.expect_sent(&[(2, WcStatus::Success)]);
    Ok(())
}

/// Queue pairs keep their shared queue: it ends with the last of them (ibv_destroy_srq(3): it fails
/// while a queue pair uses the queue).
pub fn a_shared_queue_lives_as_long_as_its_queue_pairs<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let lane = ends.lane();
    (0..3).for_each(|i| ends.recv(i, (0, 8)));
    let SrqEnds { srq, a, b, .. } = ends;
    drop(srq);
    let sges = [a.mr.sge(0, 8).expect("within the region")];
    for i in 0..3 {
        let request = SendRequest::new(WrId(i), Operation::Send, &sges);
        let posted = lane.from.post_send(&[request.with_flags(SIGNALED)]);
        posted.expect("post a SEND");
        a.expect_sent(&[(i, WcStatus::Success)]);
        b.expect_received(&[(i, WcStatus::Success)]);
    }
    drop(lane);
    let again = b.context.create_srq(&b.pd, &sizes(64));
    again.expect("create another one");
    Ok(())
}

/// Receives that were taken have room again, whether they completed, failed or were forgotten with
/// their queue pair (IBTA vol. 1, 10.2.9).
pub fn taken_receives_have_room_again_however_they_end<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let depth = u64::from(ends.srq.query().expect("query").caps.max_wr);
    for i in 0..depth + 8 {
        let lane = ends.lane();
        ends.recv(i, (0, 8));
        let length = if i % 3 == 1 { 9 } else { 8 };
        ends.send(&lane, i, (0, length));
        assert_eq!(ends.a.sent(1)[0].status.is_success(), length == 8);
        if i % 3 < 2 {
            ends.b.received(1);
        }
    }
    (0..depth).for_each(|i| ends.recv(i, (0, 8)));
    Ok(())
}

/// Objects of different contexts cannot be combined (IBTA vol. 1, 10.2.1).
pub fn a_shared_queue_of_another_context_is_refused<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let (a, b) = (&ends.a, &ends.b);
    let init = a.init(QpType::Rc, ends.setup.caps);
    let refused = |made: Result<_, CreateError>| matches!(made, Err(CreateError::Foreign { .. }));
    let made = a.context.create_qp_with_srq(&a.pd, &init, &ends.srq);
    assert!(refused(made.map(drop)));
    let made = a.context.create_srq(&b.pd, &sizes(8));
    assert!(refused(made.map(drop)));
    Ok(())
}

/// UC takes shared receives, too; what finds none is dropped (IBTA vol. 1, 9.8.2.2, 10.2.9).
pub fn uc_takes_shared_receives<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let ends = SrqEnds::new(fixture)?;
    let (a, b) = (&ends.a, &ends.b);
    let from = crate::unreliable::uc_qp(a, &ends.setup)?;
    let to = ends.shared_qp(QpType::Uc, &b.recv_cq);
    let lane = Lane::<S> { from, to };
    let (psn_a, psn_b) = ends.setup.psn;
    crate::unreliable::connect_qp((a, &lane.from), (b, lane.to.qpn()), (psn_a, psn_b));
    crate::unreliable::connect_qp((b, &lane.to), (a, lane.from.qpn()), (psn_b, psn_a));
    ends.send(&lane, 1, (0, 8));
    a.expect_sent(&[(1, WcStatus::Success)]);
    b.expect_quiet();
    for i in 2..5 {
        ends.recv(10 + i, (0, 3000));
        ends.send(&lane, i, (0, 3000));
        a.expect_sent(&[(i, WcStatus::Success)]);
        b.expect_received(&[(10 + i, WcStatus::Success)]);
    }
    b.expect_quiet();
    Ok(())
}

const SENDERS: u32 = 4;
const EACH: u64 = 1000;

/// Messages of many senders at the same time take each receive once (IBTA vol. 1, 10.2.9).
pub fn senders_at_a_time_take_each_receive_once<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    if fixture.is_helper() {
        return send_each(fixture);
    }
    let ends = SrqEnds::new(fixture)?;
    let connected = (0..SENDERS).map(|number| {
        let own = End::new(fixture, &ends.setup);
        let to = ends.shared_qp(QpType::Rc, &ends.b.recv_cq);
        let context = &ends.b.context;
        connect((&own.context, &own.qp), (context, &to), &ends.setup);
        fixture.start(number, &[&own]);
        to
    });
    let qps: Vec<_> = connected.collect();
    let all = u64::from(SENDERS) * EACH;
    let (mut seen, mut of) = (vec![0; all as usize], vec![0; qps.len()]);
    let (mut posted, mut taken) = (0, 0);
    while taken < all {
        while posted < all && posted - taken < 64 {
            ends.recv(posted, (posted % 64 * 8, 8));
            posted += 1;
        }
        for completion in ends.b.received(1) {
            assert!(completion.status.is_success(), "{completion:?}");
            seen[completion.wr_id.0 as usize] += 1;
            let at = qps.iter().position(|qp| qp.qpn() == completion.qp_num);
            of[at.expect("a queue pair of the queue")] += 1;
            taken += 1;
        }
    }
    assert_eq!(of, [EACH; SENDERS as usize]);
    assert!(seen.iter().all(|n| *n == 1));
    (0..SENDERS).for_each(|number| drop(fixture.hear(number)));
    ends.b.expect_quiet();
    ends.b.wait_for("all receives to be taken", || {
        ends.srq
            .post_recv(&[RecvRequest::new(WrId(0), &[])])
            .is_ok()
    });
    Ok(())
}

/// A helper's part: sends [`EACH`] messages. They are signaled now and then: their completions free
/// the send queue.
fn send_each<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let [own] = fixture.given()?;
    for i in 0..EACH {
        let is_last = i % 16 == 15 || i + 1 == EACH;
        let flags = if is_last { SIGNALED } else { UNSIGNALED };
        own.post(i, Operation::Send, (0, 8), flags);
        // Two windows are in flight.
        if i % 16 == 15 && i > 16 {
            own.expect_sent(&[(i - 16, WcStatus::Success)]);
        }
    }
    own.sent(2);
    fixture.done()
}
