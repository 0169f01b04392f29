//! The rules of verbs on the model, between two queue pairs of a role's own.

mod common;

use adverb_hwmodel::{Cluster, ModelContext, Placement, Preset};
use adverb_sim::Budget;
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, AddressHandle, AddressVector, Comparison, CompletionQueue, Context, CreateError,
    Destination, Imm, Lkey, MemoryRegion, NotifyOn, Operation, PostErrorCause, QpAttr, QpInit,
    QpState, QpType, Qpn, QueuePair, RecvRequest, RetryCount, Rkey, SendFlags, SendRequest,
    Station, WaitError, WcFlags, WcOpcode, WcStatus, WorkCompletion, WrId,
};
use common::two::{Loop, QKEY, SIGNALED, SIZE, SOON, Two, alone, caps};

#[test]
fn send_goes_into_receives_in_order_and_says_how_long_it_is() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        two.receive(1, 100);
        two.receive(2, 100);
        two.mrs[0].write(0, b"first").unwrap();
        two.post(Operation::Send, 5, SIGNALED);
        assert_eq!(two.wait(0).opcode, WcOpcode::Send);
        let wc = two.wait(1);
        assert_eq!((wc.wr_id, wc.byte_len, wc.imm), (WrId(1), 5, None));
        assert_eq!(wc.opcode, WcOpcode::Recv);
        assert_eq!(two.bytes(1, 0, 5), b"first");
        two.post(Operation::SendWithImm(Imm(9)), 3, SIGNALED);
        let wc = two.wait(1);
        assert_eq!((wc.wr_id, wc.byte_len, wc.imm), (WrId(2), 3, Some(Imm(9))));
        assert!(wc.flags.contains(WcFlags::WITH_IMM));
    });
}

#[test]
fn write_read_and_immediate_data_move_payload() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        two.mrs[0].write(0, &[1, 2, 3, 4]).unwrap();
        two.post(Operation::RdmaWrite(two.mrs[1].remote(50)), 4, SIGNALED);
        assert_eq!(two.wait(0).opcode, WcOpcode::RdmaWrite);
        assert_eq!(two.bytes(1, 50, 4), [1, 2, 3, 4]);
        two.receive(3, 10);
        let there = two.mrs[1].remote(60);
        two.post(Operation::RdmaWriteWithImm(there, Imm(4)), 4, SIGNALED);
        let wc = two.wait(1);
        assert_eq!(
            (wc.opcode, wc.imm),
            (WcOpcode::RecvRdmaWithImm, Some(Imm(4)))
        );
        assert_eq!(wc.byte_len, 4);
        assert_eq!(two.bytes(1, 60, 4), [1, 2, 3, 4]);
        two.wait(0);
        two.mrs[1].write(100, &[8; 300]).unwrap();
        two.post(Operation::RdmaRead(two.mrs[1].remote(100)), 300, SIGNALED);
        assert_eq!(two.wait(0).opcode, WcOpcode::RdmaRead);
        assert_eq!(two.bytes(0, 0, 300), [8; 300]);
    });
}

#[test]
fn atomics_change_the_word_and_give_back_what_was_there() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        two.mrs[1].write(8, &40u64.to_ne_bytes()).unwrap();
        let there = two.mrs[1].remote(8);
        two.post(Operation::FetchAdd(there, 2), 8, SIGNALED);
        assert_eq!(two.wait(0).opcode, WcOpcode::FetchAdd);
        assert_eq!(two.bytes(0, 0, 8), 40u64.to_ne_bytes());
        for (expected, after) in [(0, 42), (42, 7)] {
            let swap = Comparison { expected, new: 7 };
            two.post(Operation::CompareSwap(there, swap), 8, SIGNALED);
            assert_eq!(two.wait(0).opcode, WcOpcode::CompareSwap);
            assert_eq!(two.bytes(0, 0, 8), 42u64.to_ne_bytes());
            assert_eq!(two.bytes(1, 8, 8), u64::to_ne_bytes(after));
        }
        two.post(Operation::FetchAdd(two.mrs[1].remote(12), 1), 8, SIGNALED);
        assert_eq!(two.wait(0).status, WcStatus::RemInvReqErr, "not aligned");
    });
}

#[test]
fn inline_payload_is_that_of_the_post_and_pieces_are_gathered_and_scattered() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        two.mrs[0].write(0, &[1; 10]).unwrap();
        let there = two.mrs[1].remote(0);
        two.post(
            Operation::RdmaWrite(there),
            10,
            SIGNALED | SendFlags::INLINE,
        );
        two.mrs[0].write(0, &[2; 10]).unwrap();
        two.wait(0);
        assert_eq!(two.bytes(1, 0, 10), [1; 10]);
        two.mrs[0].write(0, &[1, 2, 3, 4, 5, 6]).unwrap();
        let from = [two.mrs[0].sge(4, 2).unwrap(), two.mrs[0].sge(0, 3).unwrap()];
        let into = [
            two.mrs[1].sge(100, 1).unwrap(),
            two.mrs[1].sge(200, 9).unwrap(),
        ];
        two.qps[1]
            .post_recv(&[RecvRequest::new(WrId(1), &into)])
            .unwrap();
        two.qps[0]
            .post_send(&[SendRequest::new(WrId(2), Operation::Send, &from)])
            .unwrap();
        assert_eq!(two.wait(1).byte_len, 5);
        assert_eq!(two.bytes(1, 100, 2), [5, 0]);
        assert_eq!(two.bytes(1, 200, 5), [6, 1, 2, 3, 0]);
    });
}

#[test]
fn unsignaled_requests_leave_their_room_with_the_next_signaled_one() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        let there = two.mrs[1].remote(0);
        for _ in 0..31 {
            two.post(Operation::RdmaWrite(there), 8, SendFlags::empty());
        }
        two.post(Operation::RdmaWrite(there), 8, SIGNALED);
        let request = SendRequest::new(WrId(0), Operation::RdmaWrite(there), &[]);
        let full = two.qps[0].post_send(&[request]).unwrap_err();
        assert!(matches!(
            full.cause,
            PostErrorCause::QueueFull { depth: 32, .. }
        ));
        assert_eq!(two.wait(0).wr_id, WrId(7));
        two.nothing(0);
        two.post(Operation::RdmaWrite(there), 8, SIGNALED);
        two.wait(0);
    });
}

#[test]
fn an_unsignaled_write_before_a_read_does_not_hold_it_up() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        let there = two.mrs[1].remote(0);
        for round in 0..100 {
            let start = station.now();
            two.mrs[0].write(0, &[round]).unwrap();
            two.post(Operation::RdmaWrite(there), 512, SendFlags::empty());
            two.post(Operation::RdmaRead(there), 512, SIGNALED);
            assert_eq!(two.wait(0).opcode, WcOpcode::RdmaRead);
            let took = station.now() - start;
            assert!(took < Span::from_us(10), "round {round}: {took}");
            assert_eq!(two.bytes(1, 0, 1), [round]);
        }
        assert_eq!(station.context().counters()["retransmissions"], 0);
        two.nothing(0);
    });
}

#[test]
fn keys_ranges_and_lengths_are_refused_and_the_rest_is_flushed() {
    let cases: [(u64, u32, WcStatus); 3] = [
        (1, 8, WcStatus::RemAccessErr),
        (0, SIZE as u32 + 1, WcStatus::LocProtErr),
        (SIZE - 4, 8, WcStatus::RemAccessErr),
    ];
    for (case, (offset, length, expected)) in cases.into_iter().enumerate() {
        alone(move |station| {
            let two = Two::new(station, QpType::Rc);
            let mut there = two.mrs[1].remote(offset);
            if case == 0 {
                there.rkey = Rkey(there.rkey.0 + (1 << 20));
            }
            let mut sge = two.mrs[0].sge(0, length.min(SIZE as u32)).unwrap();
            if case == 1 {
                sge = sge.with_lkey(Lkey(12345));
            }
            let sges = [sge];
            let write = Operation::RdmaWrite(there);
            let request = SendRequest::new(WrId(1), write, &sges).with_flags(SIGNALED);
            let later = SendRequest::new(WrId(2), write, &sges).with_flags(SIGNALED);
            two.qps[0].post_send(&[request, later]).unwrap();
            assert_eq!(two.wait(0).status, expected);
            let flushed = two.wait(0);
            assert_eq!(
                (flushed.wr_id, flushed.status),
                (WrId(2), WcStatus::WrFlushErr)
            );
            assert_eq!(two.qps[0].state(), QpState::Err);
        });
    }
}

#[test]
fn a_message_too_long_for_its_receive_fails_on_both_sides() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        two.receive(1, 10);
        two.receive(2, 10);
        two.post(Operation::Send, 11, SIGNALED);
        assert_eq!(two.wait(0).status, WcStatus::RemInvReqErr);
        let (first, second) = (two.wait(1), two.wait(1));
        assert_eq!((first.wr_id, first.status), (WrId(1), WcStatus::LocLenErr));
        assert_eq!(
            (second.wr_id, second.status),
            (WrId(2), WcStatus::WrFlushErr)
        );
    });
}

#[test]
fn a_send_waits_for_a_receive_and_gives_up_after_its_retries() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        two.post(Operation::Send, 4, SIGNALED);
        two.post(Operation::RdmaWrite(two.mrs[1].remote(0)), 4, SIGNALED);
        two.nothing(0);
        two.receive(1, 10);
        assert_eq!(
            (two.wait(0).opcode, two.wait(0).opcode),
            (WcOpcode::Send, WcOpcode::RdmaWrite)
        );
        two.qps[0].modify(&QpAttr::to(QpState::Reset)).unwrap();
        two.qps[1].modify(&QpAttr::to(QpState::Reset)).unwrap();
        let twice = RetryCount::new(2).unwrap();
        two.join(0, QpType::Rc, twice);
        two.join(1, QpType::Rc, twice);
        let start = station.now();
        two.post(Operation::Send, 4, SIGNALED);
        assert_eq!(two.wait(0).status, WcStatus::RnrRetryExcErr);
        let took = station.now() - start;
        // Two pauses of the timer's 10 µs, and three journeys.
        assert!(
            took > Span::from_us(20) && took < Span::from_us(30),
            "{took}"
        );
    });
}

#[test]
fn a_peer_that_is_not_there_exhausts_the_retries() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        two.qps[1].modify(&QpAttr::to(QpState::Reset)).unwrap();
        let start = station.now();
        two.post(Operation::RdmaWrite(two.mrs[1].remote(0)), 4, SIGNALED);
        assert_eq!(two.wait(0).status, WcStatus::RetryExcErr);
        // The timeout is 67 ms, with one retry.
        let took = station.now() - start;
        assert!(
            took > Span::from_ms(130) && took < Span::from_ms(140),
            "{took}"
        );
    });
}

#[test]
fn unreliable_connections_lose_what_finds_no_receive() {
    alone(|station| {
        let two = Two::new(station, QpType::Uc);
        two.post(Operation::Send, 4, SIGNALED);
        assert_eq!(two.wait(0).status, WcStatus::Success);
        two.receive(1, 10);
        two.nothing(1);
        two.post(Operation::Send, 4, SIGNALED);
        assert_eq!(two.wait(1).status, WcStatus::Success);
        two.wait(0);
        two.mrs[0].write(0, &[3; 4]).unwrap();
        two.post(Operation::RdmaWrite(two.mrs[1].remote(9)), 4, SIGNALED);
        two.wait(0);
        station.sleep(SOON);
        assert_eq!(two.bytes(1, 9, 4), [3; 4]);
        let sges = [two.mrs[0].sge(0, 4).unwrap()];
        let read = Operation::RdmaRead(two.mrs[1].remote(0));
        let refused = two.qps[0].post_send(&[SendRequest::new(WrId(1), read, &sges)]);
        let cause = refused.unwrap_err().cause;
        assert!(matches!(cause, PostErrorCause::Unsupported(_)), "{cause}");
    });
}

#[test]
fn datagrams_bring_a_header_and_say_who_sent_them() {
    alone(|station| {
        let two = Two::new(station, QpType::Ud);
        let context: &ModelContext = station.context();
        let pd = context.alloc_pd().unwrap();
        let ah = context.create_ah(&pd, &two.way.address).unwrap();
        let to = |qkey| Destination {
            ah: ah.handle(),
            qpn: two.qps[1].qpn(),
            qkey,
        };
        two.mrs[0].write(0, b"datagram").unwrap();
        two.receive(1, 100);
        let sges = [two.mrs[0].sge(0, 8).unwrap()];
        let send = SendRequest::new(WrId(1), Operation::Send, &sges).with_flags(SIGNALED);
        two.qps[0].post_send(&[send.to(to(QKEY + 1))]).unwrap();
        assert_eq!(two.wait(0).status, WcStatus::Success);
        two.nothing(1);
        two.qps[0].post_send(&[send.to(to(QKEY))]).unwrap();
        let wc = two.wait(1);
        assert_eq!((wc.byte_len, wc.src_qp), (48, Some(two.qps[0].qpn())));
        assert!(wc.flags.contains(WcFlags::GRH));
        assert_eq!(two.bytes(1, 40, 8), b"datagram");
        let lost = two.qps[0].post_send(&[send]).unwrap_err();
        assert_eq!(lost.cause, PostErrorCause::Destination);
        let nowhere = AddressVector {
            dgid: adverb_verbs::Gid([9; 16]),
            ..two.way.address
        };
        let refused = context.create_ah(&pd, &nowhere).unwrap_err();
        assert!(matches!(refused, CreateError::System { .. }), "{refused}");
        assert_ne!(two.qps[0].qpn(), Qpn::default());
    });
}

#[test]
fn events_come_for_what_completes_after_arming() {
    alone(|station| {
        let context = station.context();
        let channel = context.create_channel().unwrap();
        let cq = context.create_cq(8, Some(&channel)).unwrap();
        let pd = context.alloc_pd().unwrap();
        let mr = context
            .alloc_mr(&pd, Bytes::new(64), AccessFlags::all())
            .unwrap();
        let init = QpInit {
            qp_type: QpType::Rc,
            send_cq: &cq,
            recv_cq: &cq,
            caps: caps(),
        };
        // A queue pair that is connected with itself.
        let qp = context.create_qp(&pd, &init).unwrap();
        Loop::of(context).join(&qp, &qp, QpType::Rc, RetryCount::MAX);
        let write = Operation::RdmaWrite(mr.remote(0));
        let request = SendRequest::new(WrId(1), write, &[]).with_flags(SIGNALED);
        qp.post_send(&[request]).unwrap();
        let unarmed = station.wait_event(&channel, SOON);
        assert!(matches!(unarmed, Err(WaitError::TimedOut { .. })));
        cq.req_notify(NotifyOn::Any).unwrap();
        let still = station.wait_event(&channel, SOON);
        assert!(
            matches!(still, Err(WaitError::TimedOut { .. })),
            "it came before"
        );
        let before = station.cpu();
        qp.post_send(&[request]).unwrap();
        assert_eq!(station.wait_event(&channel, SOON).unwrap(), cq.id());
        let used = station.cpu().since(before);
        assert!(used.system > Span::from_us(1) && used.system < Span::from_us(3));
        let mut wc = [WorkCompletion::default(); 4];
        assert_eq!(cq.poll(&mut wc).unwrap(), 2);
    });
}

#[test]
fn an_overrun_completion_queue_says_so() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        let context = station.context();
        let pd = context.alloc_pd().unwrap();
        let small = context.create_cq(1, None).unwrap();
        let init = QpInit {
            qp_type: QpType::Rc,
            send_cq: &small,
            recv_cq: &small,
            caps: caps(),
        };
        let qp = context.create_qp(&pd, &init).unwrap();
        Loop::of(context).join(&qp, &qp, QpType::Rc, RetryCount::MAX);
        let write = Operation::RdmaWrite(two.mrs[1].remote(0));
        let request = SendRequest::new(WrId(1), write, &[]).with_flags(SIGNALED);
        qp.post_send(&[request; 2]).unwrap();
        station.sleep(SOON);
        let mut wc = [WorkCompletion::default(); 4];
        assert_eq!(small.poll(&mut wc).unwrap(), 1);
        assert!(small.poll(&mut wc).is_err());
    });
}

#[test]
fn a_role_that_waits_for_ever_is_a_deadlock_with_a_name() {
    let preset = Preset::built_in("cx3").unwrap();
    let mut cluster = Cluster::new(&preset, &[Placement::Cached]);
    let machine = cluster.machine(0);
    cluster.spawn(machine, "forlorn", |station| {
        let cq = station.context().create_cq(8, None).unwrap();
        let mut wc = [WorkCompletion::default()];
        let _ = station.spin(&cq, &mut wc, Span::MAX);
    });
    let outcome = cluster.run(&Budget::NONE).to_string();
    assert!(
        outcome.contains("forlorn waits for a completion in queue 0"),
        "{outcome}"
    );
}

#[test]
fn polling_without_waiting_ends_in_words() {
    let preset = Preset::built_in("cx3").unwrap();
    let mut cluster = Cluster::new(&preset, &[Placement::Cached]);
    let machine = cluster.machine(0);
    cluster.spawn(machine, "hasty", |station| {
        let cq = station.context().create_cq(8, None).unwrap();
        let mut wc = [WorkCompletion::default()];
        while cq.poll(&mut wc).unwrap() == 0 {}
    });
    let outcome = cluster.run(&Budget::NONE).to_string();
    assert!(outcome.starts_with("hasty panicked: polled"), "{outcome}");
}

/// Lines that the responder's NIC writes, and the time until they are seen, for a SEND of `length`.
fn received(two: &Two<'_, '_>, length: u32) -> (u64, Span) {
    let context = two.station.context();
    let lines = || context.counters()["pcie_write_lines"];
    let payload: Vec<u8> = (1..=length as u8).collect();
    two.mrs[0].write(0, &payload).unwrap();
    two.mrs[1].write(0, &[0; 64]).unwrap();
    two.receive(1, 64);
    let before = (lines(), two.station.now());
    let sges = [two.mrs[0].sge(0, length).unwrap()];
    let request = SendRequest::new(WrId(2), Operation::Send, &sges);
    two.qps[0].post_send(&[request]).unwrap();
    let wc = two.wait(1);
    assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, length));
    assert_eq!(two.bytes(1, 0, length as usize), payload);
    (lines() - before.0, two.station.now() - before.1)
}

#[test]
fn inline_receives_bring_the_payload_within_the_completion() {
    alone(|station| {
        let plain = Two::new(station, QpType::Rc);
        let inline = Two::with_inline_recv(station, QpType::Rc, 48);
        // The first ones load contexts.
        for two in [&plain, &inline, &plain, &inline] {
            received(two, 16);
        }
        // Beyond half a line the completion is a line longer; beyond the limit nothing changes.
        for (length, lines) in [(16, 1), (32, 1), (33, 2), (48, 2), (49, 2), (0, 1)] {
            let (ours, theirs) = (received(&inline, length), received(&plain, length));
            assert_eq!(ours.0, lines, "{length} B");
            assert_eq!(theirs.0, if length > 0 { 2 } else { 1 }, "{length} B");
            let is_faster = ours.1 < theirs.1;
            assert_eq!(
                is_faster,
                (1..=48).contains(&length),
                "{length} B: {ours:?}, {theirs:?}"
            );
        }
        let context = station.context();
        let pd = context.alloc_pd().unwrap();
        let init = QpInit {
            qp_type: QpType::Rc,
            send_cq: &plain.cqs[0],
            recv_cq: &plain.cqs[0],
            caps: caps(),
        };
        let refused = context.create_qp_with_inline_recv(&pd, &init, 65);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "max_inl_recv 65 is outside this device's range 0..=64"
        );
    });
}
