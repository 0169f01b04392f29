//! The end of objects, and of the contexts that they were made in.

use adverb_verbs::{
    CompletionQueue, MemoryRegion, NotifyOn, Operation, QueuePair, RecvRequest, SendRequest,
    Station, WcStatus, WrId,
};

use crate::end::{expect_nothing, retries_exceeded};
use crate::pair::{
    BLANK, End, Objects, Pair, SIGNALED, Setup, TIMEOUT, completions, connect, outcomes,
};
use crate::{Fixture, Verdict};
use adverb_units::Span;

/// Objects may be dropped in any order while requests wait; remaining ones keep working (the seam's
/// rule for objects, `adverb_verbs::device`).
pub fn objects_are_dropped_in_any_order_while_requests_wait<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    for order in 0..5 {
        let pair = Pair::with(fixture, Setup::losing());
        let (a, b) = (&pair.a, &pair.b);
        let other = a.another_qp(&pair.setup);
        let third = b.another_qp(&pair.setup);
        connect((&a.context, &other), (&b.context, &third), &pair.setup);
        (0..5).for_each(|i| a.post(i, Operation::Send, (0, 8), SIGNALED));
        (0..5).for_each(|i| b.post(i, Operation::Send, (0, 8), SIGNALED));
        let sges = [b.mr.sge(0, 8).expect("within the region")];
        third
            .post_recv(&[RecvRequest::new(WrId(9), &sges)])
            .expect("post a receive");
        let setup = pair.setup;
        let (station, Pair { a, b, .. }) = (fixture.station(), pair);
        let Objects {
            qp,
            send_cq,
            recv_cq,
            mr,
            channel,
            pd,
            context,
        } = a.into_objects();
        match order {
            0 => drop((mr, send_cq, recv_cq, channel, pd, qp, context)),
            1 => drop((qp, mr, recv_cq, send_cq, pd, channel, context)),
            2 => drop((context, pd, channel, send_cq, recv_cq, mr, qp)),
            3 => drop((channel, context, mr, qp, pd, send_cq, recv_cq)),
            _ => {
                // The memory of waiting requests is deregistered: they fail when they are executed.
                drop(mr);
                // What has left already arrives before the receive is posted, and finds none.
                expect_nothing(station, &[&b.recv_cq]);
                b.recv(7, (0, 8));
                let sent = completions(station, &send_cq, 5);
                assert_eq!(sent[0].status, WcStatus::LocProtErr);
                assert!(sent[1..].iter().all(|c| c.status == WcStatus::WrFlushErr));
            }
        }
        // The other pair still works.
        let request = SendRequest::new(WrId(1), Operation::Send, &[]);
        other.post_send(&[request]).expect("post");
        let mut came = b.received(1);
        if order == 4 && came[0].wr_id == WrId(7) {
            // By now B's requests have exceeded their retries, which flushes its receive.
            assert_eq!(came[0].status, WcStatus::WrFlushErr);
            came = b.received(1);
        }
        assert_eq!(outcomes(&came), [(9, WcStatus::Success)]);
        // B's waiting requests end when A's queue pair no longer exists.
        if order < 4 {
            retries_exceeded(&b, &setup, 0, &[1, 2, 3, 4]);
        }
    }
    Ok(())
}

/// A context may be dropped while its objects live; they keep working (a rule of `adverb_verbs`).
pub fn a_context_is_dropped_before_its_objects<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (station, Pair { a, b, .. }) = (fixture.station(), pair);
    let Objects {
        qp,
        send_cq,
        recv_cq,
        mr,
        channel,
        pd,
        context,
    } = a.into_objects();
    drop((context, pd));
    send_cq.req_notify(NotifyOn::Any).expect("arm");
    let sges = [mr.sge(0, 8).expect("within the region")];
    let request = SendRequest::new(WrId(1), Operation::Send, &sges);
    qp.post_send(&[request.with_flags(SIGNALED)]).expect("post");
    station.sleep(Span::from_ms(5));
    b.recv(2, (0, 8));
    b.expect_received(&[(2, WcStatus::Success)]);
    let event = station.wait_event(&channel, TIMEOUT);
    assert_eq!(event.expect("an event"), send_cq.id());
    assert_eq!(
        completions(station, &send_cq, 1)[0].status,
        WcStatus::Success
    );
    drop(qp);
    assert_eq!(recv_cq.poll(&mut [Default::default()]), Ok(0));
    Ok(())
}

/// A context closed and another opened in its place: a third that was connected to the first
/// reaches the second (ibv_close_device(3)).
pub fn a_device_opened_again_is_reached<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup::default();
    let a = End::new(fixture, &setup);
    for round in 0..4 {
        let b = End::new(fixture, &setup);
        let qp = a.another_qp(&setup);
        connect((&a.context, &qp), (&b.context, &b.qp), &setup);
        b.recv(round, (0, 8));
        b.fill(BLANK);
        let sges = [a.mr.sge(0, 8).expect("within the region")];
        let write = Operation::RdmaWrite(b.mr.remote(8));
        let requests = [write, Operation::Send]
            .map(|operation| SendRequest::new(WrId(1), operation, &sges).with_flags(SIGNALED));
        qp.post_send(&requests).expect("post");
        a.expect_sent(&[(1, WcStatus::Success); 2]);
        b.expect_received(&[(round, WcStatus::Success)]);
        assert_eq!(b.bytes(0, 17), [&[0; 16][..], &[BLANK]].concat());
    }
    Ok(())
}
