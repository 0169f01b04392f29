//! RC, rule by rule: the packets on the wire, and how requests complete.

use crate::lab::memory::{LOCAL_KEY, REMOTE, REMOTE_KEY, piece, pieces};
use crate::lab::steps::{
    MTU, inject, inject_at, post, post_receive, sent_by, statuses, syndromes, work,
};
use crate::lab::{Delivery, FLIGHT, Lab, Sent, Side, config, connected, quiet};
use adverb_transport::{
    DropReason, PACKET_SPACE, Payload, PostError, Queue, RcQp, ReceiveWork, ResponderFault,
    SendWork, Solicited, Work,
};
use adverb_units::{Span, Time};
use adverb_verbs::{
    AccessFlags, AckTimeout, Comparison, Imm, PathMtu, Psn, QpAttr, QpState, RetryCount, RnrTimer,
    SendFlags, WcOpcode, WcStatus, WrId,
};
use adverb_wire::bth::BthFlags;
use adverb_wire::{
    Bth, Credits, Extension, NakCode, Opcode, Packet, PacketHeaders, Reth, Syndrome, Verb,
};

#[test]
fn a_message_is_cut_by_the_path_mtu() {
    let mut lab = quiet();
    let bytes: Vec<u8> = (0..3 * MTU + 5).map(|n| n as u8).collect();
    let payload = lab.a.memory.put(0, &bytes);
    post(
        &mut lab,
        work(1, Work::WriteWithImm(REMOTE, Imm(9)), payload),
    );
    post_receive(&mut lab, 5, 0);
    lab.run();
    let opcodes: Vec<_> = lab.sent.iter().map(|s| s.headers.bth.opcode).collect();
    assert_eq!(
        opcodes,
        [
            Opcode::RcWriteFirst,
            Opcode::RcWriteMiddle,
            Opcode::RcWriteMiddle,
            Opcode::RcWriteLastImm,
            Opcode::RcAck
        ]
    );
    assert_eq!(lab.b.memory.shared[..bytes.len()], bytes);
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::Success)]);
    let received = &lab.b.completions[0];
    assert_eq!(received.work.opcode, WcOpcode::RecvRdmaWithImm);
    assert_eq!(received.work.imm, Some(Imm(9)));
    assert_eq!(received.work.byte_len as usize, bytes.len());
}

#[test]
fn one_acknowledgement_serves_many_messages() {
    let mut lab = quiet();
    for id in 0..12 {
        let payload = lab.a.memory.put(0, b"x");
        post(&mut lab, work(id, Work::Write(REMOTE), payload));
    }
    lab.run();
    assert_eq!(sent_by(&lab, Side::B, Opcode::RcAck).len(), 1);
    let asked = |s: &&Sent| s.headers.bth.flags.contains(BthFlags::ACK_REQ);
    assert_eq!(lab.sent.iter().filter(asked).count(), 1);
    assert_eq!(lab.a.completions.len(), 12);
}

/// The opcode of what B sends next.
fn next_of_b(lab: &mut Lab<RcQp>) -> Option<Opcode> {
    let (b, mut out) = (&mut lab.b, [0; PACKET_SPACE]);
    let length = b.qp.poll_transmit(lab.now, &b.memory, &mut out)?;
    Some(Packet::parse(&out[..length]).unwrap().opcode())
}

#[test]
fn a_request_goes_before_an_acknowledgement_that_waited_for_it() {
    let mut lab = quiet();
    let mut out = [0; PACKET_SPACE];
    // An idle queue pair, asked an odd and an even number of times.
    for _ in 0..3 {
        assert_eq!(next_of_b(&mut lab), None);
        let payload = lab.a.memory.put(0, b"x");
        post(&mut lab, work(1, Work::Write(REMOTE), payload));
        let a = &mut lab.a;
        let length = a.qp.poll_transmit(lab.now, &a.memory, &mut out).unwrap();
        let packet = Packet::parse(&out[..length]).unwrap();
        let b = &mut lab.b;
        b.qp.handle_packet(lab.now, &packet, &mut b.memory).unwrap();
        assert!(b.qp.only_acknowledges());
        let answer = work(2, Work::Write(REMOTE), b.memory.put(0, b"y"));
        b.qp.post_send(answer, &b.memory).unwrap();
        assert!(!b.qp.only_acknowledges());
        assert_eq!(next_of_b(&mut lab), Some(Opcode::RcWriteOnly));
        assert!(lab.b.qp.only_acknowledges());
        assert_eq!(next_of_b(&mut lab), Some(Opcode::RcAck));
        assert!(!lab.b.qp.only_acknowledges());
    }
}

#[test]
fn a_long_message_asks_for_acknowledgements_on_its_way() {
    let mut lab = quiet();
    post(&mut lab, work(0, Work::Write(REMOTE), piece(0, 200 * MTU)));
    lab.run();
    // A quarter of the window of 64 packets.
    let asked = |s: &&Sent| s.headers.bth.flags.contains(BthFlags::ACK_REQ);
    assert_eq!(lab.sent.iter().filter(asked).count(), 200 / 16 + 1);
    let mut under_way = 0i64;
    for sent in &lab.sent {
        under_way = match sent.from {
            Side::A => under_way + 1,
            Side::B => 0,
        };
        assert!(under_way <= 64, "more than the window");
    }
}

#[test]
fn a_missing_packet_is_asked_for_and_all_after_it_come_again() {
    let mut lab = quiet();
    let lost = config(Side::A).requester.first_psn.advance(2);
    lab.lose_first(move |s| s.headers.bth.psn == lost);
    let bytes: Vec<u8> = (0..6 * MTU).map(|n| (n / 7) as u8).collect();
    let payload = lab.a.memory.put(0, &bytes);
    post(&mut lab, work(1, Work::Write(REMOTE), payload));
    lab.run();
    assert_eq!(lab.b.memory.shared[..bytes.len()], bytes);
    assert_eq!(
        syndromes(&lab),
        [
            Syndrome::Nak(NakCode::PsnSequenceError),
            Syndrome::Ack(Credits::NONE)
        ]
    );
    assert_eq!(lab.a.qp.counters().resent, 4);
    assert_eq!(lab.a.qp.counters().timeouts, 0);
    assert_eq!(lab.b.qp.counters().dropped(DropReason::OutOfSequence), 3);
}

#[test]
fn a_lost_acknowledgement_costs_a_timeout_and_no_second_execution() {
    let mut lab = quiet();
    lab.lose_first(move |s| s.from == Side::B);
    post_receive(&mut lab, 1, 64);
    post_receive(&mut lab, 2, 64);
    let payload = lab.a.memory.put(0, b"once");
    post(&mut lab, work(1, Work::Send, payload));
    lab.run();
    assert_eq!(lab.b.completions.len(), 1);
    assert_eq!(lab.b.qp.counters().duplicates, 1);
    let again = AckTimeout::new(6).unwrap().span().unwrap();
    assert_eq!(again, Span::from_ps(4_096_000 * 64));
    assert_eq!(lab.now, Time::ZERO + again + FLIGHT + FLIGHT);
}

#[test]
fn timeouts_end_after_the_retries() {
    let mut lab = quiet();
    let mut config = config(Side::A);
    config.requester.retry.retry_cnt = RetryCount::new(3).unwrap();
    lab.a.qp = RcQp::new(&config, adverb_transport::ReceiveQueue::new(4));
    lab.rule(|_| Delivery::Drop);
    let receive = ReceiveWork {
        wr_id: WrId(9),
        pieces: pieces(0, 8),
    };
    lab.a.qp.post_receive(receive).unwrap();
    for id in 1..=2 {
        post(&mut lab, work(id, Work::Write(REMOTE), piece(0, 8)));
    }
    lab.run();
    let span = AckTimeout::new(6).unwrap().span().unwrap();
    assert_eq!(lab.now, Time::ZERO + span * 4);
    assert_eq!(
        statuses(&lab.a.completions),
        [
            (1, WcStatus::RetryExcErr),
            (2, WcStatus::WrFlushErr),
            (9, WcStatus::WrFlushErr)
        ]
    );
    assert_eq!(lab.a.qp.state(), QpState::Err);
    post(&mut lab, work(3, Work::Write(REMOTE), piece(0, 8)));
    lab.flush();
    assert_eq!(
        lab.a.completions.last().unwrap().work.status,
        WcStatus::WrFlushErr
    );
}

#[test]
fn without_a_timeout_it_waits_for_ever() {
    let mut lab = quiet();
    let mut config = config(Side::A);
    config.requester.retry.timeout = AckTimeout::new(0).unwrap();
    lab.a.qp = RcQp::new(&config, adverb_transport::ReceiveQueue::new(4));
    lab.rule(|_| Delivery::Drop);
    post(&mut lab, work(1, Work::Write(REMOTE), piece(0, 8)));
    lab.run();
    assert_eq!(lab.sent.len(), 1);
    assert!(lab.a.completions.is_empty());
}

#[test]
fn a_receiver_that_is_not_ready_says_for_how_long() {
    for code in [1, 5, 12] {
        let timer = RnrTimer::new(code).unwrap();
        let mut b = config(Side::B);
        b.responder.rnr_timer = timer;
        let mut lab = connected(&config(Side::A), &b, Box::new(|_| Delivery::Pass));
        let payload = lab.a.memory.put(0, b"hello");
        post(&mut lab, work(1, Work::Send, payload));
        let soon = ReceiveWork {
            wr_id: WrId(1),
            pieces: pieces(0, 64),
        };
        lab.receive_after(Side::B, Span::from_us(5), soon);
        lab.run();
        let sends = sent_by(&lab, Side::A, Opcode::RcSendOnly);
        assert_eq!(sends.len(), 2);
        assert_eq!(sends[1].at - sends[0].at, FLIGHT + FLIGHT + timer.span());
        assert_eq!(syndromes(&lab)[0], Syndrome::RnrNak(timer));
        assert_eq!(lab.b.completions.len(), 1);
    }
}

#[test]
fn rnr_retries_end_unless_they_are_seven() {
    let mut a = config(Side::A);
    a.requester.retry.rnr_retry = RetryCount::new(2).unwrap();
    let mut lab = connected(&a, &config(Side::B), Box::new(|_| Delivery::Pass));
    post(&mut lab, work(1, Work::Send, piece(0, 4)));
    lab.run();
    assert_eq!(
        statuses(&lab.a.completions),
        [(1, WcStatus::RnrRetryExcErr)]
    );
    assert_eq!(sent_by(&lab, Side::A, Opcode::RcSendOnly).len(), 3);

    let mut lab = quiet();
    post(&mut lab, work(1, Work::Send, piece(0, 4)));
    for _ in 0..500 {
        assert!(lab.step());
    }
    assert!(lab.a.completions.is_empty());
    assert!(lab.a.qp.counters().rnr_naks > 100);
}

#[test]
fn a_lost_part_of_a_read_is_asked_for_alone() {
    let mut lab = quiet();
    let first = config(Side::A).requester.first_psn;
    let mut once = true;
    lab.rule(move |s| {
        let lost = s.from == Side::B && s.headers.bth.psn == first.advance(3);
        match lost && std::mem::take(&mut once) {
            true => Delivery::Drop,
            false => Delivery::Pass,
        }
    });
    let bytes: Vec<u8> = (0..5 * MTU + 17).map(|n| (n * 3) as u8).collect();
    lab.b.memory.shared[100..100 + bytes.len()].copy_from_slice(&bytes);
    post(
        &mut lab,
        work(1, Work::Read(REMOTE.at(100)), piece(0, bytes.len())),
    );
    lab.run();
    assert_eq!(lab.a.memory.local[..bytes.len()], bytes);
    let asked: Vec<_> = sent_by(&lab, Side::A, Opcode::RcReadRequest)
        .iter()
        .map(|s| match s.headers.extension {
            Extension::Rdma(reth) => (s.headers.bth.psn, reth.remote, reth.length as usize),
            other => panic!("{other:?}"),
        })
        .collect();
    let resumed = (
        first.advance(3),
        REMOTE.at(100 + 3 * MTU as u64),
        2 * MTU + 17,
    );
    assert_eq!(asked, [(first, REMOTE.at(100), bytes.len()), resumed]);
    assert_eq!(lab.a.qp.counters().timeouts, 0);
}

/// Packets of `bytes`.
fn packets(bytes: u32) -> u32 {
    bytes.div_ceil(MTU as u32).max(1)
}

/// What A has asked for by READs of `length` B over a window of 8 packets, the parts in packets, and
/// how many packets of answers were in flight at most.
fn parts_of_a_read(max_reads: u8, length: usize) -> (Vec<u32>, u32) {
    let mut a = config(Side::A);
    (a.requester.window, a.requester.max_reads) = (8, max_reads);
    let mut lab = connected(&a, &config(Side::B), Box::new(|_| Delivery::Pass));
    let bytes: Vec<u8> = (0..length).map(|n| (n * 11) as u8).collect();
    lab.b.memory.shared[..length].copy_from_slice(&bytes);
    post(&mut lab, work(1, Work::Read(REMOTE), piece(0, length)));
    lab.run();
    assert_eq!(lab.a.memory.local[..length], bytes);
    assert_eq!(lab.a.qp.counters().go_backs, 0);
    let (mut parts, mut asked, mut most) = (vec![], 0, 0);
    for (index, sent) in lab.sent.iter().enumerate() {
        if let (Side::A, Extension::Rdma(reth)) = (sent.from, sent.headers.extension) {
            parts.push(packets(reth.length));
            asked += packets(reth.length);
            let came = |s: &&Sent| s.from == Side::B && s.at + FLIGHT <= sent.at;
            most = most.max(asked - lab.sent[..index].iter().filter(came).count() as u32);
        }
    }
    (parts, most)
}

#[test]
fn a_long_read_goes_in_parts_of_which_the_window_holds_four() {
    let (parts, most) = parts_of_a_read(4, 20 * MTU + 1);
    assert_eq!(parts, [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
    assert_eq!(most, 8);
    // As many parts at a time as READs may be in flight.
    assert_eq!(parts_of_a_read(2, 20 * MTU), (vec![4; 5], 8));
    assert_eq!(parts_of_a_read(1, 20 * MTU), (vec![8, 8, 4], 8));
    assert_eq!(parts_of_a_read(1, 0), (vec![1], 1));
}

#[test]
fn reads_and_writes_share_the_window() {
    let mut a = config(Side::A);
    a.requester.window = 8;
    let mut lab = connected(&a, &config(Side::B), Box::new(|_| Delivery::Pass));
    for id in 0..4 {
        post(
            &mut lab,
            work(2 * id, Work::Write(REMOTE), piece(0, 3 * MTU)),
        );
        let read = Work::Read(REMOTE.at(4096));
        post(&mut lab, work(2 * id + 1, read, piece(8192, 5 * MTU)));
    }
    lab.flush();
    // 3 packets, and two parts of 2 packets and one of 1 of the answers.
    let opcodes: Vec<_> = lab.sent.iter().map(|s| s.headers.bth.opcode).collect();
    let (write, read) = (Opcode::RcWriteFirst, Opcode::RcReadRequest);
    let (middle, last) = (Opcode::RcWriteMiddle, Opcode::RcWriteLast);
    assert_eq!(opcodes, [write, middle, last, read, read, read]);
    lab.run();
    let done: Vec<_> = (0..8).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(statuses(&lab.a.completions), done);
    assert_eq!(lab.a.qp.counters().timeouts, 0);
}

#[test]
fn an_atomic_operation_happens_once_however_often_it_is_asked_for() {
    let mut lab = quiet();
    let mut answers = 0;
    lab.rule(move |s| match s.headers.bth.opcode {
        Opcode::RcAtomicAck => {
            answers += 1;
            if answers <= 3 {
                Delivery::Drop
            } else {
                Delivery::Pass
            }
        }
        _ => Delivery::Duplicate(Span::from_us(1)),
    });
    lab.b.memory.shared[..8].copy_from_slice(&40u64.to_ne_bytes());
    let compare = Comparison {
        expected: 42,
        new: 7,
    };
    post(&mut lab, work(1, Work::FetchAdd(REMOTE, 2), piece(0, 8)));
    post(
        &mut lab,
        work(2, Work::CompareSwap(REMOTE, compare), piece(8, 8)),
    );
    lab.run();
    assert_eq!(lab.b.memory.atomics, 2);
    assert_eq!(lab.b.memory.shared[..8], 7u64.to_ne_bytes());
    assert_eq!(lab.a.memory.local[..8], 40u64.to_ne_bytes());
    assert_eq!(lab.a.memory.local[8..16], 42u64.to_ne_bytes());
    assert_eq!(
        statuses(&lab.a.completions),
        [(1, WcStatus::Success), (2, WcStatus::Success)]
    );
}

#[test]
fn reads_under_way_keep_to_the_limit_and_a_fence_waits_for_them() {
    let mut a = config(Side::A);
    a.requester.max_reads = 2;
    let mut lab = connected(&a, &config(Side::B), Box::new(|_| Delivery::Pass));
    for id in 0..3 {
        post(&mut lab, work(id, Work::Read(REMOTE), piece(0, 8)));
    }
    let mut fenced = work(3, Work::Write(REMOTE), piece(64, 8));
    fenced.flags |= SendFlags::FENCE;
    post(&mut lab, fenced);
    lab.flush();
    assert_eq!(lab.sent.len(), 2);
    lab.run();
    let write = sent_by(&lab, Side::A, Opcode::RcWriteOnly)[0].at;
    let answers = sent_by(&lab, Side::B, Opcode::RcReadResponseOnly);
    assert!(write >= answers[2].at + FLIGHT);
    assert_eq!(lab.a.completions.len(), 4);
}

/// A request that the responder refuses: its status, and what both sides count.
fn refused(request: Work, payload: Payload, prepare: impl FnOnce(&mut Lab<RcQp>)) -> WcStatus {
    let mut lab = quiet();
    prepare(&mut lab);
    post(&mut lab, work(1, Work::Write(REMOTE.at(4096)), piece(0, 8)));
    post(&mut lab, work(2, request, payload));
    post(&mut lab, work(3, Work::Write(REMOTE), piece(0, 8)));
    lab.run();
    let seen = statuses(&lab.a.completions);
    assert_eq!(seen[0], (1, WcStatus::Success), "what came before was done");
    assert_eq!(seen[2], (3, WcStatus::WrFlushErr));
    assert_eq!(lab.a.qp.state(), QpState::Err);
    assert_eq!(lab.b.qp.state(), QpState::Err);
    assert_eq!(seen.len(), 3);
    seen[1].1
}

#[test]
fn refusals_have_their_statuses() {
    let nothing = |_: &mut Lab<RcQp>| {};
    let wrong_key = adverb_verbs::RemoteAddress {
        rkey: adverb_verbs::Rkey(77),
        ..REMOTE
    };
    let beyond = REMOTE.at(crate::lab::memory::SIZE as u64 - 4);
    let eight = || piece(0, 8);
    let access = WcStatus::RemAccessErr;
    assert_eq!(refused(Work::Write(wrong_key), eight(), nothing), access);
    assert_eq!(refused(Work::Write(beyond), eight(), nothing), access);
    assert_eq!(refused(Work::Read(wrong_key), eight(), nothing), access);
    assert_eq!(refused(Work::Read(beyond), eight(), nothing), access);
    assert_eq!(
        refused(Work::FetchAdd(wrong_key, 1), eight(), nothing),
        access
    );
    let no_reads = |lab: &mut Lab<RcQp>| lab.b.memory.rights = AccessFlags::REMOTE_WRITE;
    assert_eq!(refused(Work::Read(REMOTE), eight(), no_reads), access);
    let unaligned = Work::FetchAdd(REMOTE.at(4), 1);
    assert_eq!(refused(unaligned, eight(), nothing), WcStatus::RemInvReqErr);
    let short = |lab: &mut Lab<RcQp>| post_receive(lab, 1, 4);
    assert_eq!(refused(Work::Send, eight(), short), WcStatus::RemInvReqErr);
    let bad = |lab: &mut Lab<RcQp>| {
        let mut receive = pieces(0, 64);
        receive = std::iter::once(adverb_transport::LocalPiece {
            addr: 1,
            length: receive.length() as u32,
            lkey: LOCAL_KEY,
        })
        .collect();
        let work = ReceiveWork {
            wr_id: WrId(1),
            pieces: receive,
        };
        lab.b.qp.post_receive(work).unwrap();
    };
    assert_eq!(refused(Work::Send, eight(), bad), WcStatus::RemOpErr);
}

#[test]
fn wrong_local_memory_ends_the_request_in_its_turn() {
    let mut lab = quiet();
    post(&mut lab, work(1, Work::Read(REMOTE), piece(0, 2000)));
    post(
        &mut lab,
        work(
            2,
            Work::Write(REMOTE),
            piece(crate::lab::memory::SIZE - 4, 8),
        ),
    );
    post(&mut lab, work(3, Work::Write(REMOTE), piece(0, 8)));
    lab.run();
    assert_eq!(
        statuses(&lab.a.completions),
        [
            (1, WcStatus::Success),
            (2, WcStatus::LocProtErr),
            (3, WcStatus::WrFlushErr)
        ]
    );
}

#[test]
fn requests_that_rc_does_not_have_are_refused_at_the_post() {
    let mut lab = quiet();
    let mut refusal = |request: SendWork| lab.a.qp.post_send(request, &lab.a.memory).unwrap_err();
    let atomic = work(1, Work::FetchAdd(REMOTE, 1), piece(0, 4));
    assert_eq!(refusal(atomic), PostError::AtomicLength(4));
    let inline = work(
        1,
        Work::Read(REMOTE),
        Payload::Inline([0; 4].into_iter().collect()),
    );
    assert_eq!(refusal(inline), PostError::InlineAnswer);
    let long = work(1, Work::Write(REMOTE), piece(0, (1 << 31) + 1));
    let refused = refusal(long).to_string();
    assert_eq!(
        refused,
        "message of 2147483649 B exceeds the maximum of 2147483648 B"
    );
    for id in 0..64 {
        post(&mut lab, work(id, Work::Write(REMOTE), piece(0, 1)));
    }
    let more = work(64, Work::Write(REMOTE), piece(0, 1));
    let full = lab.a.qp.post_send(more, &lab.a.memory);
    assert_eq!(full, Err(PostError::Full(64)));
}

#[test]
fn a_send_can_end_a_key() {
    let mut lab = quiet();
    post_receive(&mut lab, 1, 64);
    let mut send = work(1, Work::SendWithInvalidate(REMOTE_KEY), piece(0, 8));
    send.flags |= SendFlags::SOLICITED;
    post(&mut lab, send);
    lab.run();
    assert!(!lab.b.memory.valid);
    assert_eq!(lab.b.completions[0].work.invalidated, Some(REMOTE_KEY));
    assert_eq!(lab.b.completions[0].solicited, Solicited::Yes);
    post(&mut lab, work(2, Work::Write(REMOTE), piece(0, 8)));
    lab.run();
    assert_eq!(lab.a.completions[1].work.status, WcStatus::RemAccessErr);
}

#[test]
fn unsignaled_requests_end_in_silence_but_for_errors() {
    let mut lab = quiet();
    let mut quiet_one = work(1, Work::Write(REMOTE), piece(0, 8));
    quiet_one.flags = SendFlags::empty();
    post(&mut lab, quiet_one.clone());
    lab.run();
    assert!(lab.a.completions.is_empty());
    lab.rule(|_| Delivery::Drop);
    post(&mut lab, quiet_one);
    lab.run();
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::RetryExcErr)]);
}

#[test]
fn packets_out_of_order_in_their_message_end_the_connection() {
    let reth = |length| {
        Extension::Rdma(Reth {
            remote: REMOTE,
            length,
        })
    };
    let invalid = Err(DropReason::InvalidRequest);
    let mut lab = quiet();
    assert_eq!(
        inject(&mut lab, Opcode::RcSendMiddle, Extension::None, &[0; MTU]),
        invalid
    );
    lab.flush();
    assert_eq!(syndromes(&lab), [Syndrome::Nak(NakCode::InvalidRequest)]);
    let dead = inject(&mut lab, Opcode::RcSendOnly, Extension::None, &[]);
    assert_eq!(dead, Err(DropReason::QueuePairInError));

    let mut lab = quiet();
    let begun = inject(&mut lab, Opcode::RcWriteFirst, reth(600), &[1; MTU]);
    assert_eq!(begun, Ok(()));
    let other = inject_at(&mut lab, Opcode::RcSendLast, Extension::None, &[1; 8], 1);
    assert_eq!(other, invalid);

    for (length, bytes) in [(600, MTU - 4), (MTU as u32, MTU), (600, 2 * MTU)] {
        let mut lab = quiet();
        let wrong = inject(
            &mut lab,
            Opcode::RcWriteFirst,
            reth(length),
            &vec![0; bytes],
        );
        assert_eq!(wrong, invalid, "{bytes} B of {length} B");
    }
    for (length, bytes) in [(8, 4), (4, 8), (300, 300)] {
        let mut lab = quiet();
        let wrong = inject(&mut lab, Opcode::RcWriteOnly, reth(length), &vec![0; bytes]);
        assert_eq!(wrong, invalid, "{bytes} B of {length} B");
        assert!(lab.b.memory.shared.iter().all(|&b| b == 0));
    }
}

#[test]
fn packets_for_others_are_dropped_and_counted() {
    let mut lab = quiet();
    let uc = inject(&mut lab, Opcode::UcSendOnly, Extension::None, &[]);
    assert_eq!(uc, Err(DropReason::WrongService));
    let bth = Bth::new(Opcode::RcSendOnly, config(Side::A).qpn, Psn::new(0));
    let headers = PacketHeaders::new(bth, Extension::None);
    let payload = &[];
    let packet = Packet { headers, payload };
    let other = lab.b.qp.handle_packet(lab.now, &packet, &mut lab.b.memory);
    assert_eq!(other, Err(DropReason::WrongQueuePair));
    assert_eq!(lab.b.qp.counters().dropped(DropReason::WrongService), 1);
    assert_eq!(lab.b.qp.counters().dropped_in_all(), 2);
}

#[test]
fn no_packet_makes_a_queue_pair_panic() {
    let mut random = crate::lab::Random::new(11);
    for round in 0..150 {
        let mut lab = quiet();
        for id in 0..4 {
            post_receive(&mut lab, id, 300);
            post(&mut lab, work(id, Work::Read(REMOTE), piece(0, 700)));
            post(&mut lab, work(id, Work::Send, piece(0, 700)));
        }
        lab.flush();
        for _ in 0..60 {
            let bytes = strange(&mut random);
            let Ok(packet) = Packet::parse(&bytes) else {
                continue;
            };
            let end = lab.end([Side::A, Side::B][round % 2]);
            let _ = end.qp.handle_packet(Time::ZERO, &packet, &mut end.memory);
            lab.flush();
        }
    }
}

/// A packet of RC with values that lie near those in use, or anywhere.
fn strange(random: &mut crate::lab::Random) -> Vec<u8> {
    let opcodes: Vec<_> = Opcode::ALL
        .iter()
        .filter(|o| o.service() == adverb_wire::Service::Rc && o.verb() != Verb::Cnp)
        .collect();
    let opcode = *opcodes[random.below(opcodes.len() as u64) as usize];
    let length = [0, 4, 8, MTU as u64, random.below(600)][random.below(5) as usize];
    let mut bytes = random.bytes(12 + 28 + length as usize);
    bytes.truncate(bytes.len() / 4 * 4);
    bytes[0] = opcode.code();
    bytes[1] = 0;
    let side = config([Side::A, Side::B][random.below(2) as usize]);
    let to = side.qpn.get().to_be_bytes();
    bytes[5..8].copy_from_slice(&to[1..]);
    let psn = side.requester.first_psn.advance(random.below(24) as u32);
    bytes[9..12].copy_from_slice(&psn.get().to_be_bytes()[1..]);
    bytes
}

#[test]
fn queues_name_their_completions() {
    let mut lab = quiet();
    post_receive(&mut lab, 3, 8);
    post(&mut lab, work(1, Work::SendWithImm(Imm(5)), piece(0, 8)));
    lab.run();
    assert_eq!(lab.a.completions[0].queue, Queue::Send);
    assert_eq!(lab.b.completions[0].queue, Queue::Receive);
    assert_eq!(lab.b.completions[0].work.imm, Some(Imm(5)));
    assert_eq!(PathMtu::B256, config(Side::A).path_mtu);
}

#[test]
fn memory_that_ends_before_a_repeated_read_ends_the_connection() {
    let mut lab = quiet();
    lab.lose_first(move |s| s.from == Side::B);
    post(&mut lab, work(1, Work::Read(REMOTE), piece(0, 64)));
    lab.step();
    lab.b.memory.valid = false;
    lab.run();
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::RemAccessErr)]);
    assert_eq!(lab.b.qp.state(), QpState::Err);
}

#[test]
fn memory_that_ends_during_a_read_response_is_a_fault_of_the_responder() {
    let mut lab = quiet();
    post(&mut lab, work(1, Work::Read(REMOTE), piece(0, 64 << 10)));
    while lab.b.qp.counters().sent < 4 {
        lab.step();
    }
    lab.b.memory.valid = false;
    lab.run();
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::RemAccessErr)]);
    assert_eq!(lab.b.qp.take_fault(), Some(ResponderFault::Access));
}

#[test]
fn rights_can_be_taken_away_while_connected() {
    let mut lab = quiet();
    post(&mut lab, work(1, Work::Write(REMOTE), piece(0, 8)));
    lab.run();
    let mut attr = QpAttr::default();
    attr.access = Some(AccessFlags::LOCAL_WRITE);
    lab.b.qp.modify(&attr);
    post(&mut lab, work(2, Work::Write(REMOTE), piece(0, 8)));
    lab.run();
    let ended = [(1, WcStatus::Success), (2, WcStatus::RemInvReqErr)];
    assert_eq!(statuses(&lab.a.completions), ended);
}
