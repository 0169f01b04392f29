//! Completion events: arming, channels, solicited events.

use adverb_verbs::{
    CompletionQueue, Imm, MemoryRegion, NotifyOn, Operation, QpAttr, QpState, QueuePair,
    RecvRequest, SendFlags, SendRequest, Station, WaitError, WcStatus, WorkCompletion, WrId,
};

use crate::pair::{End, Pair, SIGNALED, Setup, UNSIGNALED, connect};
use crate::{Fixture, Verdict};
use adverb_units::Span;

const SOLICITED: SendFlags = SIGNALED.union(SendFlags::SOLICITED);

fn send<S: Station>(pair: &Pair<'_, S>, flags: SendFlags) {
    pair.b.recv(7, (0, 8));
    pair.a.post(1, Operation::Send, (0, 8), flags);
    pair.a.expect_sent(&[(1, WcStatus::Success)]);
}

/// An armed queue raises one event for the next completion, which names it; further completions
/// raise none until it is armed again (IBTA vol. 1, 11.4.2.2; ibv_req_notify_cq(3)).
pub fn an_armed_queue_raises_one_event_that_names_it<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let b = &pair.b;
    for _ in 0..5 {
        b.recv_cq.req_notify(NotifyOn::Any).expect("arm");
        send(&pair, SIGNALED);
        send(&pair, SIGNALED);
        b.expect_event(&b.recv_cq);
        b.expect_no_event();
        send(&pair, SIGNALED);
        b.expect_no_event();
        b.received(3);
    }
    Ok(())
}

/// A completion from before the arming raises no event; polling after arming finds it
/// (ibv_req_notify_cq(3), IBTA vol. 1, 11.4.2.2).
pub fn a_completion_before_arming_raises_nothing<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let b = &pair.b;
    send(&pair, SIGNALED);
    b.recv_cq.req_notify(NotifyOn::Any).expect("arm");
    b.expect_no_event();
    b.expect_received(&[(7, WcStatus::Success)]);
    b.expect_no_event();
    send(&pair, SIGNALED);
    b.expect_event(&b.recv_cq);
    Ok(())
}

/// A queue that was never armed raises no event (IBTA vol. 1, 11.4.2.2).
pub fn an_unarmed_queue_raises_nothing<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    send(&pair, SOLICITED);
    pair.a.expect_no_event();
    pair.b.expect_no_event();
    Ok(())
}

/// Completions of sends raise events too, unsignaled sends have no completions (IBTA vol. 1,
/// 11.4.2.2, 10.7.3.1).
pub fn send_completions_raise_events<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    a.send_cq.req_notify(NotifyOn::Any).expect("arm");
    let write = Operation::RdmaWrite(b.mr.remote(0));
    a.post(1, write, (0, 8), UNSIGNALED);
    a.expect_no_event();
    a.post(2, write, (0, 8), SIGNALED);
    a.expect_event(&a.send_cq);
    a.expect_sent(&[(2, WcStatus::Success)]);
    b.expect_no_event();
    Ok(())
}

/// Armed for solicited completions, a queue sleeps through others; SEND and WRITE with immediate
/// carry the mark (IBTA vol. 1, 9.2.3, 11.4.2.2; ibv_post_send(3), IBV_SEND_SOLICITED).
pub fn a_solicited_arming_waits_for_a_solicited_completion<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    b.recv_cq.req_notify(NotifyOn::Solicited).expect("arm");
    send(&pair, SIGNALED);
    b.expect_no_event();
    send(&pair, SOLICITED);
    b.expect_event(&b.recv_cq);
    b.received(2);

    b.recv_cq.req_notify(NotifyOn::Solicited).expect("arm");
    for flags in [SIGNALED, SOLICITED] {
        b.expect_no_event();
        b.recv(7, (0, 0));
        a.post(
            1,
            Operation::RdmaWriteWithImm(b.mr.remote(0), Imm(1)),
            (0, 8),
            flags,
        );
        a.expect_sent(&[(1, WcStatus::Success)]);
    }
    b.expect_event(&b.recv_cq);

    // An arming for any completion is not weakened by one for solicited ones.
    b.recv_cq.req_notify(NotifyOn::Any).expect("arm");
    b.recv_cq.req_notify(NotifyOn::Solicited).expect("arm");
    send(&pair, SIGNALED);
    b.expect_event(&b.recv_cq);
    Ok(())
}

/// A completion in error counts as solicited, at both sides (IBTA vol. 1, 11.4.2.2;
/// ibv_req_notify_cq(3)).
pub fn an_error_raises_a_solicited_event<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    a.send_cq.req_notify(NotifyOn::Solicited).expect("arm");
    b.recv_cq.req_notify(NotifyOn::Solicited).expect("arm");
    send(&pair, SIGNALED);
    a.expect_no_event();
    b.expect_no_event();
    b.recv(8, (0, 4));
    a.post(2, Operation::Send, (0, 8), UNSIGNALED);
    a.expect_event(&a.send_cq);
    b.expect_event(&b.recv_cq);
    a.expect_sent(&[(2, WcStatus::RemInvReqErr)]);
    b.expect_received(&[(7, WcStatus::Success), (8, WcStatus::LocLenErr)]);
    Ok(())
}

/// A flushed receive raises an event, so that a sleeping side learns of the error (IBTA vol. 1,
/// 10.3.1.7, 11.4.2.2).
pub fn a_flushed_receive_raises_a_solicited_event<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let b = &pair.b;
    b.recv(7, (0, 8));
    b.recv_cq.req_notify(NotifyOn::Solicited).expect("arm");
    b.qp.modify(&QpAttr::to(QpState::Err)).expect("to ERR");
    b.expect_event(&b.recv_cq);
    b.expect_received(&[(7, WcStatus::WrFlushErr)]);
    Ok(())
}

/// A queue that serves several queue pairs raises one event for whichever completes first (IBTA
/// vol. 1, 11.4.2.2).
pub fn queue_pairs_of_one_queue_share_its_event<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup::default();
    let pair = Pair::with(fixture, setup);
    let (a, b) = (&pair.a, &pair.b);
    let (from, to) = (a.another_qp(&setup), b.another_qp(&setup));
    connect((&a.context, &from), (&b.context, &to), &setup);
    for round in 0..4 {
        b.recv_cq.req_notify(NotifyOn::Any).expect("arm");
        let sges = [b.mr.sge(0, 8).expect("within the region")];
        to.post_recv(&[RecvRequest::new(WrId(8), &sges)])
            .expect("post");
        let request = SendRequest::new(WrId(2), Operation::Send, &[]).with_flags(SIGNALED);
        if round % 2 == 0 {
            send(&pair, SIGNALED);
        }
        from.post_send(&[request]).expect("post");
        a.expect_sent(&[(2, WcStatus::Success)]);
        if round % 2 == 1 {
            send(&pair, SIGNALED);
        }
        b.expect_event(&b.recv_cq);
        b.expect_no_event();
        b.received(2);
    }
    Ok(())
}

/// A channel serves several queues; its events name the one that completed (IBTA vol. 1,
/// 11.2.8; ibv_create_comp_channel(3)).
pub fn a_channel_serves_several_queues<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    b.recv_cq.req_notify(NotifyOn::Any).expect("arm");
    b.send_cq.req_notify(NotifyOn::Any).expect("arm");
    send(&pair, SIGNALED);
    b.expect_event(&b.recv_cq);
    b.post(1, Operation::RdmaWrite(a.mr.remote(0)), (0, 8), SIGNALED);
    b.expect_event(&b.send_cq);
    b.expect_no_event();
    Ok(())
}

/// A wait without an event times out.
pub fn a_wait_without_event_ends<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (b, station) = (&pair.b, fixture.station());
    for ms in [0, 1, 50] {
        let timeout = Span::from_ms(ms);
        let begin = station.now();
        let event = station.wait_event(&b.channel, timeout);
        assert!(
            matches!(event, Err(WaitError::TimedOut { .. })),
            "{event:?}"
        );
        assert!(station.now() - begin >= timeout);
    }
    // It was not the event of what follows that ended them.
    b.recv_cq.req_notify(NotifyOn::Any).expect("arm");
    send(&pair, SIGNALED);
    b.expect_event(&b.recv_cq);
    Ok(())
}

/// A side that sleeps on its channel is woken by the completion (ibv_get_cq_event(3)).
pub fn a_sleeper_is_woken<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    if fixture.is_helper() {
        let [a] = fixture.given()?;
        for pause in [0, 1, 2, 3, 4].repeat(4) {
            fixture.hear_main()?;
            fixture.station().sleep(Span::from_ms(pause));
            a.post(1, Operation::Send, (0, 0), SIGNALED);
            a.expect_sent(&[(1, WcStatus::Success)]);
        }
        return fixture.done();
    }
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    fixture.start(0, &[a]);
    for round in 0..20 {
        b.recv(round, (0, 8));
        b.recv_cq.req_notify(NotifyOn::Any).expect("arm");
        fixture.tell(0, &[]);
        b.expect_event(&b.recv_cq);
        b.expect_received(&[(round, WcStatus::Success)]);
    }
    fixture.hear(0);
    Ok(())
}

/// Arm, poll once more, sleep: whenever the completion arrives, it is found or raises the event
/// (ibv_req_notify_cq(3); IBTA vol. 1, 11.4.2.2).
pub fn no_event_is_lost_between_arming_and_polling<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    const ROUNDS: u64 = 3000;
    if fixture.is_helper() {
        let [a] = fixture.given()?;
        for round in 0..ROUNDS {
            // Waiting times from nothing to some microseconds sweep over the race.
            fixture.station().compute(Span::from_ns(round % 64 * 100));
            a.post(round, Operation::Send, (0, 0), SIGNALED);
            a.sent(1);
            a.received(1);
            a.recv(round, (0, 0));
        }
        return fixture.done();
    }
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    b.recv(0, (0, 8));
    a.recv(0, (0, 8));
    fixture.start(0, &[a]);
    for round in 0..ROUNDS {
        arm_poll_sleep(b);
        b.recv(round, (0, 8));
        b.post(round, Operation::Send, (0, 0), SIGNALED);
        b.sent(1);
    }
    fixture.hear(0);
    Ok(())
}

fn arm_poll_sleep<S: Station>(end: &End<'_, S>) {
    loop {
        let mut one = [WorkCompletion::default()];
        end.recv_cq.req_notify(NotifyOn::Any).expect("arm");
        if end.recv_cq.poll(&mut one).expect("poll") == 1 {
            assert_eq!(one[0].status, WcStatus::Success);
            return;
        }
        // An event of a completion that an earlier poll found may wait, too: then once more.
        end.expect_event(&end.recv_cq);
    }
}
