//! Shared receive queues on the model: the rules that `adverb-conformance` has for devices in real
//! time, between queue pairs of one role.

mod common;

use adverb_hwmodel::{ModelCq, ModelMr, ModelPd, ModelQp, ModelSrq, ModelStation};
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, AddressHandle, AsyncEvent, Context, CreateError, Destination, Imm, MemoryRegion,
    Operation, PostErrorCause, QpAttr, QpInit, QpState, QpType, QueuePair, RecvRequest, RetryCount,
    SendRequest, SharedReceiveQueue, SrqCaps, Station, WaitError, WcStatus, WorkCompletion, WrId,
};
use common::two::{Loop, QKEY, SIGNALED, SIZE, SOON, Two, alone, caps};

/// A role with a shared receive queue, and memory to send from and to.
struct Bed<'s, 'y> {
    station: &'s ModelStation<'y>,
    way: Loop,
    pd: ModelPd,
    srq: ModelSrq,
    sent: ModelCq,
    received: ModelCq,
    from: ModelMr,
    into: ModelMr,
}

/// A queue pair, and one that takes shared receives, connected.
struct Lane {
    from: ModelQp,
    to: ModelQp,
}

fn sizes(max_wr: u32) -> SrqCaps {
    SrqCaps { max_wr, max_sge: 2 }
}

impl<'s, 'y> Bed<'s, 'y> {
    fn new(station: &'s ModelStation<'y>) -> Self {
        let context = station.context();
        let pd = context.alloc_pd().unwrap();
        let cq = || context.create_cq(64, None).unwrap();
        let mr = || context.alloc_mr(&pd, Bytes::new(SIZE), AccessFlags::all());
        Bed {
            srq: context.create_srq(&pd, &sizes(32)).unwrap(),
            sent: cq(),
            received: cq(),
            from: mr().unwrap(),
            into: mr().unwrap(),
            pd,
            way: Loop::of(context),
            station,
        }
    }

    fn qp(&self, qp_type: QpType, cq: &ModelCq) -> ModelQp {
        let init = QpInit {
            qp_type,
            send_cq: &self.sent,
            recv_cq: cq,
            caps: caps(),
        };
        let made = (self.station.context()).create_qp_with_srq(&self.pd, &init, &self.srq);
        made.unwrap()
    }

    fn lane(&self, qp_type: QpType) -> Lane {
        self.lane_to(qp_type, &self.received)
    }

    fn lane_to(&self, qp_type: QpType, cq: &ModelCq) -> Lane {
        let init = QpInit {
            qp_type,
            send_cq: &self.sent,
            recv_cq: &self.sent,
            caps: caps(),
        };
        let from = self.station.context().create_qp(&self.pd, &init).unwrap();
        let lane = Lane {
            from,
            to: self.qp(qp_type, cq),
        };
        self.connect(&lane, qp_type);
        lane
    }

    fn connect(&self, lane: &Lane, qp_type: QpType) {
        for (qp, peer) in [(&lane.from, &lane.to), (&lane.to, &lane.from)] {
            self.way.join(qp, peer, qp_type, RetryCount::MAX);
        }
    }

    fn recv(&self, name: u64, length: u32) {
        let sges = [self.into.sge(0, length).unwrap()];
        (self.srq)
            .post_recv(&[RecvRequest::new(WrId(name), &sges)])
            .unwrap();
    }

    fn send(&self, lane: &Lane, length: u32) {
        let sges = [self.from.sge(0, length).unwrap()];
        let request = SendRequest::new(WrId(7), Operation::Send, &sges).with_flags(SIGNALED);
        lane.from.post_send(&[request]).unwrap();
    }

    fn wait(&self, cq: &ModelCq) -> WorkCompletion {
        let mut wc = [WorkCompletion::default()];
        let n = self.station.spin(cq, &mut wc, Span::from_secs(2));
        assert_eq!(n.unwrap(), 1);
        wc[0]
    }

    /// The next message comes to `to`, in receive `name`.
    fn expect(&self, name: u64, to: &ModelQp) {
        let wc = self.wait(&self.received);
        let found = (wc.wr_id, wc.status, wc.qp_num);
        assert_eq!(found, (WrId(name), WcStatus::Success, to.qpn()));
    }

    fn nothing(&self, cq: &ModelCq) {
        let mut wc = [WorkCompletion::default()];
        let waited = self.station.spin(cq, &mut wc, SOON);
        assert!(matches!(waited, Err(WaitError::TimedOut { .. })), "{wc:?}");
    }

    fn event(&self) -> Option<AsyncEvent> {
        self.station.context().async_event().unwrap()
    }
}

#[test]
fn queue_pairs_of_all_services_take_in_posting_order() {
    alone(|station| {
        let bed = Bed::new(station);
        let lanes = [QpType::Rc, QpType::Uc, QpType::Ud].map(|service| bed.lane(service));
        let ah = (station.context().create_ah(&bed.pd, &bed.way.address)).unwrap();
        for round in 0..30u64 {
            bed.recv(round, 400);
            let at = (round * round % 3) as usize;
            let sent: Vec<u8> = (0..100).map(|i| (round as u8).wrapping_mul(i)).collect();
            bed.from.write(0, &sent).unwrap();
            let sges = [bed.from.sge(0, 100).unwrap()];
            let imm = Imm(round as u32);
            let request = SendRequest::new(WrId(7), Operation::SendWithImm(imm), &sges);
            let request = match at {
                2 => request.to(Destination {
                    ah: ah.handle(),
                    qpn: lanes[2].to.qpn(),
                    qkey: QKEY,
                }),
                _ => request,
            };
            lanes[at].from.post_send(&[request]).unwrap();
            let wc = bed.wait(&bed.received);
            assert_eq!((wc.wr_id, wc.imm), (WrId(round), Some(imm)));
            assert_eq!(wc.qp_num, lanes[at].to.qpn());
            let front = if at == 2 { 40 } else { 0 };
            assert_eq!(wc.byte_len, front + 100);
            let mut got = vec![0; 100];
            bed.into.read(front.into(), &mut got).unwrap();
            assert_eq!(got, sent);
        }
        bed.nothing(&bed.received);
    });
}

#[test]
fn receives_complete_where_their_queue_pair_does() {
    alone(|station| {
        let bed = Bed::new(station);
        let other_cq = station.context().create_cq(16, None).unwrap();
        let (one, other) = (bed.lane(QpType::Rc), bed.lane_to(QpType::Rc, &other_cq));
        (0..4).for_each(|name| bed.recv(name, 64));
        for (name, lane, cq) in [
            (0, &one, &bed.received),
            (1, &other, &other_cq),
            (2, &other, &other_cq),
            (3, &one, &bed.received),
        ] {
            bed.send(lane, 8);
            assert_eq!(bed.wait(cq).wr_id, WrId(name));
            assert!(bed.wait(&bed.sent).status.is_success());
        }
    });
}

#[test]
fn a_message_waits_for_a_shared_receive_and_datagrams_do_not() {
    alone(|station| {
        let bed = Bed::new(station);
        let (one, uc) = (bed.lane(QpType::Rc), bed.lane(QpType::Uc));
        bed.send(&uc, 8);
        assert!(bed.wait(&bed.sent).status.is_success());
        bed.send(&one, 8);
        bed.nothing(&bed.sent);
        bed.recv(1, 64);
        bed.recv(2, 64);
        bed.expect(1, &one.to);
        assert!(bed.wait(&bed.sent).status.is_success());
        bed.nothing(&bed.received);
    });
}

#[test]
fn rnr_retries_that_are_exceeded_fail_the_sender_alone() {
    alone(|station| {
        let bed = Bed::new(station);
        let (one, other) = (bed.lane(QpType::Rc), bed.lane(QpType::Rc));
        one.from.modify(&QpAttr::to(QpState::Reset)).unwrap();
        let few = RetryCount::new(2).unwrap();
        bed.way.join(&one.from, &one.to, QpType::Rc, few);
        bed.send(&one, 8);
        assert_eq!(bed.wait(&bed.sent).status, WcStatus::RnrRetryExcErr);
        bed.recv(3, 64);
        bed.send(&other, 8);
        bed.expect(3, &other.to);
    });
}

#[test]
fn the_limit_raises_one_event() {
    alone(|station| {
        let bed = Bed::new(station);
        let lane = bed.lane(QpType::Rc);
        let take = || {
            bed.send(&lane, 8);
            bed.expect(4, &lane.to);
            bed.wait(&bed.sent);
        };
        for _ in 0..2 {
            (0..5).for_each(|_| bed.recv(4, 64));
            take();
            bed.srq.arm(3).unwrap();
            take();
            assert_eq!((bed.event(), bed.srq.query().unwrap().srq_limit), (None, 3));
            take();
            assert_eq!(bed.event(), Some(AsyncEvent::SrqLimitReached(bed.srq.id())));
            assert_eq!(bed.srq.query().unwrap().srq_limit, 0);
            take();
            take();
            assert_eq!(bed.event(), None);
        }
        bed.srq.arm(33).unwrap_err();
        assert_eq!(bed.srq.query().unwrap().srq_limit, 0);
    });
}

#[test]
fn a_failing_queue_pair_leaves_the_receives_and_tells_its_last() {
    alone(|station| {
        let bed = Bed::new(station);
        let (one, other) = (bed.lane(QpType::Rc), bed.lane(QpType::Rc));
        (0..3).for_each(|name| bed.recv(name, 64));
        bed.send(&one, 8);
        bed.expect(0, &one.to);
        assert_eq!(bed.event(), None);
        one.to.modify(&QpAttr::to(QpState::Err)).unwrap();
        assert_eq!(bed.event(), Some(AsyncEvent::LastWqeReached(one.to.qpn())));
        one.to.modify(&QpAttr::to(QpState::Err)).unwrap();
        assert_eq!(bed.event(), None);
        bed.send(&other, 8);
        bed.expect(1, &other.to);
        for qp in [&one.from, &one.to] {
            qp.modify(&QpAttr::to(QpState::Reset)).unwrap();
        }
        bed.connect(&one, QpType::Rc);
        bed.send(&one, 8);
        bed.expect(2, &one.to);
        bed.nothing(&bed.received);
    });
}

#[test]
fn a_message_too_long_and_a_receive_of_another_domain_fail_alone() {
    alone(|station| {
        let bed = Bed::new(station);
        let (long, foreign, other) = (
            bed.lane(QpType::Rc),
            bed.lane(QpType::Rc),
            bed.lane(QpType::Rc),
        );
        bed.recv(1, 8);
        bed.send(&long, 9);
        assert_eq!(bed.wait(&bed.sent).status, WcStatus::RemInvReqErr);
        let failed = bed.wait(&bed.received);
        assert_eq!(
            (failed.wr_id, failed.status),
            (WrId(1), WcStatus::LocLenErr)
        );
        let pd = station.context().alloc_pd().unwrap();
        let mr = (station.context()).alloc_mr(&pd, Bytes::new(64), AccessFlags::all());
        let mr = mr.unwrap();
        let sges = [mr.sge(0, 64).unwrap()];
        (bed.srq)
            .post_recv(&[RecvRequest::new(WrId(2), &sges)])
            .unwrap();
        bed.send(&foreign, 8);
        assert_eq!(bed.wait(&bed.sent).status, WcStatus::RemOpErr);
        let failed = bed.wait(&bed.received);
        assert_eq!(
            (failed.wr_id, failed.status),
            (WrId(2), WcStatus::LocProtErr)
        );
        bed.recv(3, 64);
        bed.send(&other, 8);
        bed.expect(3, &other.to);
        let told = [bed.event(), bed.event(), bed.event()];
        let last = |lane: &Lane| Some(AsyncEvent::LastWqeReached(lane.to.qpn()));
        assert_eq!(told, [last(&long), last(&foreign), None]);
    });
}

#[test]
fn receives_that_were_taken_have_room_again_however_they_end() {
    alone(|station| {
        let bed = Bed::new(station);
        for round in 0..40 {
            let lane = bed.lane(QpType::Rc);
            bed.recv(round, 8);
            // Polled; completed and forgotten with the queue pair; failed; on its way.
            bed.send(&lane, if round % 4 == 2 { 9 } else { 8 });
            if round % 4 != 3 {
                bed.wait(&bed.sent);
            }
            if round % 4 == 0 {
                assert!(bed.wait(&bed.received).status.is_success());
            }
        }
        // Not all of those on their way were taken.
        let mut free = 0;
        let full = loop {
            let posted = bed.srq.post_recv(&[RecvRequest::new(WrId(0), &[])]);
            match posted {
                Ok(()) => free += 1,
                Err(full) => break full.cause,
            }
        };
        assert!(matches!(full, PostErrorCause::QueueFull { depth: 32, .. }));
        assert!(free >= 32 - 10, "{free} are free");
    });
}

#[test]
fn what_cannot_be_is_refused() {
    alone(|station| {
        let bed = Bed::new(station);
        let context = station.context();
        for (max_wr, max_sge) in [(0, 1), (context.caps().max_srq_wr + 1, 1), (1, 17)] {
            let refused = context.create_srq(&bed.pd, &SrqCaps { max_wr, max_sge });
            assert!(matches!(refused, Err(CreateError::OutOfRange { .. })));
        }
        let lane = bed.lane(QpType::Rc);
        let own = lane.to.post_recv(&[RecvRequest::new(WrId(0), &[])]);
        let cause = own.unwrap_err().cause;
        assert_eq!(cause, PostErrorCause::HasSharedReceiveQueue);
        let piece = bed.into.sge(0, 8).unwrap();
        let (good, wrong) = ([piece], [piece; 3]);
        let list = [
            RecvRequest::new(WrId(1), &good),
            RecvRequest::new(WrId(2), &wrong),
            RecvRequest::new(WrId(3), &good),
        ];
        let refused = bed.srq.post_recv(&list).unwrap_err();
        assert_eq!(refused.index, 1);
        bed.send(&lane, 8);
        bed.expect(1, &lane.to);
        bed.send(&lane, 8);
        bed.nothing(&bed.received);
    });
}

#[test]
fn a_queue_lives_as_long_as_its_queue_pairs() {
    alone(|station| {
        let bed = Bed::new(station);
        let lane = bed.lane(QpType::Rc);
        bed.recv(1, 64);
        let Bed { srq, .. } = &bed;
        let number = srq.id();
        let Bed {
            srq,
            from,
            sent,
            received,
            station,
            ..
        } = bed;
        drop(srq);
        let sges = [from.sge(0, 8).unwrap()];
        let request = SendRequest::new(WrId(7), Operation::Send, &sges).with_flags(SIGNALED);
        lane.from.post_send(&[request]).unwrap();
        for cq in [&sent, &received] {
            let mut wc = [WorkCompletion::default()];
            station.spin(cq, &mut wc, Span::from_secs(2)).unwrap();
            assert!(wc[0].status.is_success(), "{number}: {wc:?}");
        }
    });
}

/// Whence a receive is taken makes no difference in time: the NIC reads either's WQEs ahead.
#[test]
fn a_shared_receive_takes_as_long_as_one_of_its_own() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        two.receive(1, 64);
        let begin = station.now();
        two.post(Operation::Send, 8, SIGNALED);
        two.wait(1);
        let own = station.now() - begin;
        let bed = Bed::new(station);
        let lane = bed.lane(QpType::Rc);
        bed.recv(1, 64);
        let begin = station.now();
        bed.send(&lane, 8);
        bed.expect(1, &lane.to);
        let shared = station.now() - begin;
        let little = Span::from_ns(60);
        assert!(shared < own + little && own < shared + little);
    });
}
