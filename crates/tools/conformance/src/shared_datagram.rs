//! Unreliable datagrams into a shared receive queue (IBTA vol. 1, 9.8.3, 10.2.9).

use adverb_verbs::{
    AsyncEvent, Context, Destination, Imm, MemoryRegion, Operation, QpAttr, QpInit, QpState,
    QpType, Qpn, QueuePair, RecvRequest, SendRequest, SharedReceiveQueue, Station, WcOpcode,
    WcStatus, WrId,
};

use crate::end::{Ah, Qp, Srq, supported};
use crate::node::{
    GRH, Node, QKEY, ROOM, ROUNDS, SENDERS, WINDOW, check_message, messages_of, next_window,
    send_windows, to, to_rts,
};
use crate::pair::{BLANK, End, SIGNALED, Setup, completions, connect, pattern};
use crate::srq_ends::{expect_event, expect_no_event, post_receive, sizes};
use crate::{Fixture, NotSupported, Verdict};

/// A sender of datagrams, and an end with a shared receive queue.
struct DatagramEnds<'s, S: Station> {
    srq: Srq<S>,
    ah: Ah<S>,
    a: Node<'s, S>,
    b: End<'s, S>,
}

impl<'s, S: Station> DatagramEnds<'s, S> {
    fn new(fixture: Fixture<'s, S>) -> Result<Self, NotSupported> {
        let a = Node::new(fixture)?;
        let b = End::new(fixture, &Setup::default());
        if b.context.caps().max_srq == 0 {
            return Err(NotSupported("shared receive queues"));
        }
        let srq = b.context.create_srq(&b.pd, &sizes(64));
        let srq = srq.expect("create a shared receive queue");
        let ah = a.ah_of(&b.context)?;
        Ok(DatagramEnds { srq, ah, a, b })
    }

    /// Another UD queue pair of B that takes shared receives, in RTS.
    fn qp(&self) -> Result<Qp<S>, NotSupported> {
        let qp = self.qp_of(QpType::Ud)?;
        to_rts(&self.b.context, &qp, QKEY);
        Ok(qp)
    }

    /// The same of any service, in RESET.
    fn qp_of(&self, qp_type: QpType) -> Result<Qp<S>, NotSupported> {
        let b = &self.b;
        let init = b.init(qp_type, Setup::default().caps);
        let qp = b.context.create_qp_with_srq(&b.pd, &init, &self.srq);
        supported(qp, "UD with a shared receive queue")
    }

    /// Posts a shared receive into one piece of B's memory.
    fn recv(&self, wr_id: u64, piece: (u64, u32)) {
        post_receive(&self.srq, &self.b.mr, wr_id, piece);
    }

    fn to(&self, qpn: Qpn) -> Destination<'_> {
        to(&self.ah, qpn, QKEY)
    }

    /// Sends one piece of A's memory, which leaves.
    fn send(&self, qp: &Qp<S>, piece: (u64, u32)) {
        (self.a).send(1, Operation::Send, piece, self.to(qp.qpn()));
        self.a.end.expect_sent(&[(1, WcStatus::Success)]);
    }

    /// Asserts that the next message arrives at `qp`, in receive `wr_id`.
    #[track_caller]
    fn expect(&self, qp: &Qp<S>, wr_id: u64) {
        let got = self.b.received(1)[0];
        let found = (got.wr_id, got.status, got.qp_num);
        assert_eq!(found, (WrId(wr_id), WcStatus::Success, qp.qpn()));
    }
}

/// Datagrams to several queue pairs take the receives in the order of posting, each behind 40 bytes;
/// the completion names who got it and who sent it (IBTA vol. 1, 9.8.3, 10.2.9, 11.4.2.1).
pub fn datagrams_take_shared_receives_in_posting_order<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = DatagramEnds::new(fixture)?;
    let qps = [ends.qp()?, ends.qp()?, ends.qp()?];
    let sent = ends.a.end.fill_pattern(1);
    for round in 0..20u64 {
        ends.b.fill(BLANK);
        (0..8).for_each(|i| ends.recv(100 * round + i, (256 * i, 256)));
        for i in 0..8 {
            let qp = &qps[(round + i * i) as usize % qps.len()];
            let (from, length) = (64 * i, 1 + (round * 10 + i) as u32);
            ends.send(qp, (from, length));
            let got = ends.b.received(1)[0];
            let found = (got.wr_id, got.status, got.opcode);
            let wr_id = WrId(100 * round + i);
            assert_eq!(found, (wr_id, WcStatus::Success, WcOpcode::Recv));
            assert_eq!(got.byte_len, GRH as u32 + length);
            let named = (got.qp_num, got.src_qp);
            assert_eq!(named, (qp.qpn(), Some(ends.a.end.qp.qpn())));
            let content = ends.b.bytes(256 * i + GRH, length as usize);
            assert_eq!(content, sent[from as usize..][..length as usize]);
        }
    }
    ends.b.expect_quiet();
    Ok(())
}

/// RC, UC and UD queue pairs take from one queue, in turn (IBTA vol. 1, 10.2.9).
pub fn all_services_take_from_one_queue<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let ends = DatagramEnds::new(fixture)?;
    let (a, b, setup) = (&ends.a.end, &ends.b, Setup::default());
    let (from, rc) = (a.another_qp(&setup), ends.qp_of(QpType::Rc)?);
    connect((&a.context, &from), (&b.context, &rc), &setup);
    let (sender, uc) = (
        crate::unreliable::uc_qp(a, &setup)?,
        ends.qp_of(QpType::Uc)?,
    );
    let (psn_a, psn_b) = setup.psn;
    crate::unreliable::connect_qp((a, &sender), (b, uc.qpn()), (psn_a, psn_b));
    crate::unreliable::connect_qp((b, &uc), (a, sender.qpn()), (psn_b, psn_a));
    let ud = ends.qp()?;
    let sent = a.fill_pattern(2);
    let sges = [a.mr.sge(8, 100).expect("within the region")];
    for round in 0..20 {
        b.fill(BLANK);
        (0..3).for_each(|i| ends.recv(3 * round + i, (512 * i, 512)));
        for i in 0..3 {
            let imm = Imm((round * 3 + i) as u32);
            let request = SendRequest::new(WrId(1), Operation::SendWithImm(imm), &sges);
            let request = request.with_flags(SIGNALED);
            let (of, to, request, front) = match (round + i) % 3 {
                0 => (&from, &rc, request, 0),
                1 => (&sender, &uc, request, 0),
                _ => (&a.qp, &ud, request.to(ends.to(ud.qpn())), GRH),
            };
            of.post_send(&[request]).expect("post a SEND");
            a.expect_sent(&[(1, WcStatus::Success)]);
            let got = b.received(1)[0];
            let found = (got.wr_id, got.status, got.qp_num, got.imm);
            let wr_id = WrId(3 * round + i);
            assert_eq!(found, (wr_id, WcStatus::Success, to.qpn(), Some(imm)));
            assert_eq!(u64::from(got.byte_len), front + 100);
            assert_eq!(b.bytes(512 * i + front, 100), sent[8..108]);
        }
    }
    b.expect_quiet();
    Ok(())
}

/// A datagram that finds the shared queue empty is lost, and the next one arrives (IBTA vol. 1,
/// 9.8.3.1).
pub fn a_datagram_without_a_shared_receive_is_dropped<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = DatagramEnds::new(fixture)?;
    let qp = ends.qp()?;
    for i in 0..3 {
        ends.send(&qp, (0, 64));
        ends.b.expect_quiet();
        ends.recv(i, (0, 256));
        ends.b.expect_quiet();
        ends.send(&qp, (0, 64));
        ends.expect(&qp, i);
    }
    Ok(())
}

/// The second of two datagrams for one receive is lost, even if another receive is posted before the first
/// poll. A third datagram, to a queue pair with its own receive, shows that both have arrived (IBTA vol. 1,
/// 9.8.3.1).
pub fn a_datagram_takes_no_receive_that_was_posted_after_it<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = DatagramEnds::new(fixture)?;
    let (qp, b) = (ends.qp()?, &ends.b);
    let marks = b.context.create_cq(4, None);
    let marks = marks.expect("create a completion queue");
    let init = QpInit {
        recv_cq: &marks,
        ..b.init(QpType::Ud, Setup::default().caps)
    };
    let marker = b.context.create_qp(&b.pd, &init).expect("create another");
    to_rts(&b.context, &marker, QKEY);
    let sges = [b.mr.sge(4096, 256).expect("within the region")];
    for i in 0..3 {
        let receive = RecvRequest::new(WrId(9), &sges);
        marker.post_recv(&[receive]).expect("post a receive");
        ends.recv(i, (0, 256));
        ends.send(&qp, (0, 64));
        ends.send(&qp, (0, 65));
        ends.send(&marker, (0, 66));
        completions(fixture.station(), &marks, 1);
        ends.recv(10 + i, (0, 256));
        ends.expect(&qp, i);
        b.expect_quiet();
        ends.send(&qp, (0, 67));
        ends.expect(&qp, 10 + i);
    }
    Ok(())
}

/// Receives that datagrams take count against an armed limit (IBTA vol. 1, 10.2.9;
/// ibv_modify_srq(3)).
pub fn the_limit_counts_what_datagrams_take<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let ends = DatagramEnds::new(fixture)?;
    let qp = ends.qp()?;
    let event = AsyncEvent::SrqLimitReached(ends.srq.id());
    for _ in 0..2 {
        (0..4).for_each(|i| ends.recv(i, (0, 256)));
        ends.srq.arm(3).expect("arm the limit");
        ends.send(&qp, (0, 8));
        ends.expect(&qp, 0);
        expect_no_event(&ends.b);
        // Nobody polls for what it took.
        ends.send(&qp, (0, 8));
        expect_event(&ends.b, event);
        assert_eq!(ends.srq.query().expect("query").srq_limit, 0);
        (2..4).for_each(|_| ends.send(&qp, (0, 8)));
        (1..4).for_each(|i| ends.expect(&qp, i));
        expect_no_event(&ends.b);
    }
    Ok(())
}

/// A datagram longer than the shared receive that it takes fails the queue pair that it is for, or is
/// dropped, and writes nothing beyond; the other queue pairs keep working (IBTA vol. 1, 10.2.9, 11.6.2).
pub fn a_shared_receive_too_small_for_its_datagram_fails_its_queue_pair_alone<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    for room in [39, 40, 103] {
        let ends = DatagramEnds::new(fixture)?;
        let (one, other) = (ends.qp()?, ends.qp()?);
        ends.a.end.fill(1);
        ends.b.fill(BLANK);
        ends.recv(1, (0, room));
        ends.send(&one, (0, 64));
        let got = ends.b.received(1)[0];
        let found = (got.wr_id, got.status, got.qp_num);
        assert_eq!(found, (WrId(1), WcStatus::LocLenErr, one.qpn()));
        expect_event(&ends.b, AsyncEvent::LastWqeReached(one.qpn()));
        assert_eq!(one.state(), QpState::Err);
        let beyond = ends.b.all_bytes();
        assert!(beyond[room as usize..].iter().all(|byte| *byte == BLANK));
        ends.recv(2, (1024, 256));
        ends.send(&other, (0, 64));
        ends.expect(&other, 2);
        ends.a.end.expect_state(QpState::Rts);
    }
    Ok(())
}

/// A queue pair that fails or is reset flushes no shared receive: earlier datagrams complete successfully,
/// later ones are dropped, the other queue pairs keep receiving, and so does this one after it has been
/// brought back to RTS (IBTA vol. 1, 10.2.9, 10.3.1).
pub fn a_failing_datagram_queue_pair_leaves_the_receives<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let ends = DatagramEnds::new(fixture)?;
    let (one, other) = (ends.qp()?, ends.qp()?);
    (0..8).for_each(|i| ends.recv(i, (256 * i, 256)));
    let content = pattern(3, 64);
    (ends.a.end.mr)
        .write(0, &content)
        .expect("within the region");
    ends.send(&one, (0, 64));
    ends.expect(&one, 0);
    for (i, state) in [(1, QpState::Err), (4, QpState::Reset)] {
        one.modify(&QpAttr::to(state)).expect("to ERR or RESET");
        ends.send(&one, (0, 64));
        ends.send(&other, (0, 64));
        ends.expect(&other, i);
        if state == QpState::Err {
            one.modify(&QpAttr::to(QpState::Reset)).expect("to RESET");
        }
        to_rts(&ends.b.context, &one, QKEY);
        ends.send(&one, (0, 64));
        ends.expect(&one, i + 1);
        ends.send(&other, (0, 64));
        ends.expect(&other, i + 2);
        assert_eq!(ends.b.bytes(256 * (i + 2) + GRH, 64), content);
    }
    ends.b.expect_quiet();
    Ok(())
}

/// Datagrams of many senders at the same time, to several queue pairs, take each receive once, in the
/// order of posting (IBTA vol. 1, 10.2.9).
pub fn datagram_senders_at_a_time_take_each_receive_once<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    if fixture.is_helper() {
        return send_windows(fixture);
    }
    let ends = DatagramEnds::new(fixture)?;
    let qps = [ends.qp()?, ends.qp()?];
    for number in 0..SENDERS {
        let client = Node::new(fixture)?;
        fixture.start(number, &[&client.end, &ends.b]);
    }
    let slots = u64::from(SENDERS) * WINDOW;
    assert!(slots <= 64, "the queue takes them all");
    let recv = |i: u64| ends.recv(i, (i % slots * ROOM, ROOM as u32));
    (0..slots).for_each(recv);
    for round in 0..ROUNDS {
        let qpn = |number: u64| qps[((number + round) % 2) as usize].qpn();
        for number in 0..SENDERS {
            next_window(fixture, number, (qpn(number.into()), round));
        }
        let mut got = ends.b.received(slots as usize);
        let mut arrived = Vec::new();
        got.sort_by_key(|completion| completion.wr_id.0);
        for (i, completion) in (round * slots..).zip(&got) {
            assert_eq!(completion.wr_id.0, i);
            let message = check_message(&ends.b, completion, i % slots * ROOM);
            assert_eq!(completion.qp_num, qpn(message.0));
            arrived.push(message);
            recv(i + slots);
        }
        arrived.sort_unstable();
        assert_eq!(arrived, messages_of(round));
    }
    (0..SENDERS).for_each(|number| drop(fixture.hear(number)));
    ends.b.expect_quiet();
    Ok(())
}
