//! Unreliable datagrams (UD): their destinations and what is received.
//!
//! A success only means that the message was sent, so cases wait until it arrives.

use adverb_verbs::{
    CompletionQueue, Context, Imm, LinkLayer, Lkey, MemoryRegion, NotifyOn, Operation,
    PostErrorCause, QpAttr, QpState, QueuePair, RecvRequest, SendFlags, SendRequest, Station,
    WcFlags, WcOpcode, WcStatus, WorkCompletion, WrId,
};

use crate::end::Ah;
use crate::node::{
    GRH, Node, QKEY, ROOM, ROUNDS, SENDERS, WINDOW, check_message, datagram_qp, messages_of,
    named_ports, next_window, send_windows, to, to_rts,
};
use crate::pair::{
    BLANK, Pair as Connected, SIGNALED, Setup, UNSIGNALED, address_of, pattern, port_of,
};
use crate::{Fixture, NotSupported, Verdict};

/// A datagram arrives whole behind 40 bytes, which the length includes; the completion names its source (IBTA
/// vol. 1, 9.8.3, 11.4.2.1; ibv_poll_cq(3)).
pub fn datagrams_arrive_behind_forty_bytes_and_tell_their_source<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let ah = a.ah(&b)?;
    let operations = [
        (Operation::Send, None),
        (
            Operation::SendWithImm(Imm(0x0102_0304)),
            Some(Imm(0x0102_0304)),
        ),
    ];
    // Over InfiniBand within a subnet packets may lack the header; its room is left all the same.
    let has_header = port_of(&b.end.context).link_layer != LinkLayer::InfiniBand;
    for length in [0, 1, 7, 16, 40, 41, 64, 255, a.mtu - 1, a.mtu] {
        for (operation, imm) in operations {
            let sent = a.end.fill_pattern(u64::from(length));
            b.end.fill(BLANK);
            b.end.recv(7, (512, 5000));
            a.send(1, operation, (3, length), to(&ah, b.qpn(), QKEY));
            let done = a.end.sent(1)[0];
            assert_eq!((done.wr_id, done.status), (WrId(1), WcStatus::Success));
            assert_eq!(done.opcode, WcOpcode::Send);
            let got = b.end.received(1)[0];
            assert_eq!((got.wr_id, got.status), (WrId(7), WcStatus::Success));
            assert_eq!(got.opcode, WcOpcode::Recv);
            assert_eq!((got.byte_len, got.imm), (length + GRH as u32, imm));
            assert_eq!((got.qp_num, got.src_qp), (b.qpn(), Some(a.qpn())));
            assert!(!has_header || got.flags.contains(WcFlags::GRH), "{got:?}");
            assert_eq!(got.flags.contains(WcFlags::WITH_IMM), imm.is_some());
            let content = b.end.bytes(512 + GRH, length as usize);
            assert!(content == sent[3..][..length as usize]);
            let beyond = b.end.bytes(512 + GRH + u64::from(length), 64);
            assert_eq!(beyond, [BLANK; 64]);
            assert_eq!(b.end.bytes(0, 512), [BLANK; 512]);
        }
    }
    Ok(())
}

/// The header before a datagram names its source and destination ports: as a global routing header,
/// or (RoCE v2 over IPv4) as an IPv4 header in its last 20 bytes (IBTA vol. 1, 8.3; annex A17.4.5.2).
pub fn the_header_before_a_datagram_names_both_ports<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let ah = a.ah(&b)?;
    b.end.recv(7, (0, 256));
    a.send(1, Operation::Send, (0, 64), to(&ah, b.qpn(), QKEY));
    let got = b.end.received(1)[0];
    if !got.flags.contains(WcFlags::GRH) {
        return Err(NotSupported("headers within an InfiniBand subnet"));
    }
    let header = b.end.bytes(0, GRH as usize);
    let (from, to) = (port_of(&a.end.context).gid, port_of(&b.end.context).gid);
    assert_eq!(named_ports(&header), (from, to), "{header:x?}");
    Ok(())
}

/// Header and payload are scattered over the pieces of a receive as one run of bytes, whose payload
/// was gathered from pieces.
pub fn datagrams_are_gathered_and_scattered<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let ah = a.ah(&b)?;
    let sent = a.end.fill_pattern(3);
    b.end.fill(BLANK);
    let pieces = [(1000, 16), (2000, 30), (3000, 54), (4000, 100)];
    let into = pieces.map(|(at, length)| b.end.mr.sge(at, length).expect("within the region"));
    let receive = RecvRequest::new(WrId(7), &into);
    b.end.qp.post_recv(&[receive]).expect("post a receive");
    let from = [(10, 33), (100, 20), (500, 47)];
    let from = from.map(|(at, length)| a.end.mr.sge(at, length).expect("within the region"));
    let request = SendRequest::new(WrId(1), Operation::Send, &from).with_flags(SIGNALED);
    let request = request.to(to(&ah, b.qpn(), QKEY));
    a.end.qp.post_send(&[request]).expect("post a datagram");
    a.end.expect_sent(&[(1, WcStatus::Success)]);
    assert_eq!(b.end.received(1)[0].byte_len, 140);
    let gathered = [&sent[10..43], &sent[100..120], &sent[500..547]].concat();
    let scattered = [
        b.end.bytes(2024, 6),
        b.end.bytes(3000, 54),
        b.end.bytes(4000, 40),
    ];
    assert_eq!(scattered.concat(), gathered);
    assert_eq!(b.end.bytes(4040, 60), [BLANK; 60]);
    Ok(())
}

/// A port that is opened again is reached again, by the first message.
pub fn a_port_opened_again_gets_the_first_datagram<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let a = Node::new(fixture)?;
    for _ in 0..3 {
        let b = Node::new(fixture)?;
        let ah = a.ah(&b)?;
        b.end.recv(7, (0, 256));
        a.reaches(to(&ah, b.qpn(), QKEY), &b, 7);
    }
    Ok(())
}

/// UD carries SENDs only: others are refused when they are posted, or complete with a local QP
/// operation error (IBTA vol. 1, 10.8, 11.4.1.1).
pub fn ud_refuses_all_but_sends<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    for i in 0..4 {
        let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
        let ah = a.ah(&b)?;
        let there = b.end.mr.remote(0);
        let operation = [
            Operation::RdmaWrite(there),
            Operation::RdmaWriteWithImm(there, Imm(1)),
            Operation::RdmaRead(there),
            Operation::FetchAdd(there, 1),
        ][i];
        b.end.fill(BLANK);
        let request = (1, operation, (0, 8), SIGNALED);
        if a.try_send(request, to(&ah, b.qpn(), QKEY)).is_ok() {
            a.end.expect_sent(&[(1, WcStatus::LocQpOpErr)]);
        }
        b.end.expect_quiet();
        assert!(b.end.all_bytes().iter().all(|byte| *byte == BLANK));
    }
    Ok(())
}

/// A request has a destination on UD, and only there.
pub fn a_destination_belongs_to_datagrams_alone<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let ah = a.ah(&b)?;
    let none = a.end.try_post(1, Operation::Send, (0, 8), SIGNALED);
    assert_eq!(none.unwrap_err().cause, PostErrorCause::Destination);
    let pair = Connected::new(fixture);
    let end = &pair.a;
    let ah_there = end.context.create_ah(&end.pd, &address_of(&b.end.context));
    let ah_there = ah_there.expect("an address handle");
    let sges = [end.mr.sge(0, 8).expect("within the region")];
    let request = SendRequest::new(WrId(1), Operation::Send, &sges);
    let request = request.to(to(&ah_there, b.qpn(), QKEY));
    let refused = end
        .qp
        .post_send(&[request])
        .expect_err("a destination on RC");
    assert_eq!(refused.cause, PostErrorCause::Destination);
    b.end.recv(7, (0, 256));
    a.reaches(to(&ah, b.qpn(), QKEY), &b, 7);
    Ok(())
}

/// A queue pair may send to itself.
pub fn a_queue_pair_reaches_itself<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let a = Node::new(fixture)?;
    let ah = a.ah(&a)?;
    for i in 0..10 {
        a.end.recv(i, (8192, 256));
        let content = pattern(i, 100);
        a.end.mr.write(0, &content).expect("within the region");
        a.send(1, Operation::Send, (0, 100), to(&ah, a.qpn(), QKEY));
        a.end.expect_sent(&[(1, WcStatus::Success)]);
        let got = a.end.received(1)[0];
        assert_eq!((got.wr_id, got.src_qp), (WrId(i), Some(a.qpn())));
        assert_eq!(a.end.bytes(8192 + GRH, 100), content);
    }
    Ok(())
}

/// One queue pair sends to many, each request to its own destination, in one list.
pub fn one_queue_pair_reaches_many<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    const NODES: u64 = 5;
    let a = Node::new(fixture)?;
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(Node::new(fixture)?);
    }
    let handles: Vec<Ah<S>> = nodes.iter().map(|b| a.ah(b)).collect::<Result<_, _>>()?;
    let sent = a.end.fill_pattern(1);
    for round in 0..20 {
        let pieces: Vec<_> = (0..NODES)
            .map(|i| [a.end.mr.sge(i * 64, 64).expect("within the region")])
            .collect();
        let requests: Vec<_> = (nodes.iter().zip(&handles).zip(&pieces))
            .map(|((b, ah), sges)| {
                b.end.recv(round, (0, 256));
                let request = SendRequest::new(WrId(round), Operation::Send, sges);
                let request = request.with_flags(SIGNALED);
                request.to(to(ah, b.qpn(), QKEY))
            })
            .collect();
        a.end.qp.post_send(&requests).expect("post a list");
        let done = vec![(round, WcStatus::Success); NODES as usize];
        a.end.expect_sent(&done);
        for (i, b) in nodes.iter().enumerate() {
            b.end.expect_received(&[(round, WcStatus::Success)]);
            assert_eq!(b.end.bytes(GRH, 64), sent[i * 64..][..64]);
        }
    }
    Ok(())
}

/// An inline datagram's buffer is free when the post returns; its key is not looked at
/// (ibv_post_send(3)).
pub fn an_inline_datagrams_buffer_is_free_at_once<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup::default();
    let inline = fixture.open().caps().max_inline_data;
    if inline < 16 {
        return Err(NotSupported("inline data"));
    }
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let mut caps = setup.caps;
    caps.max_inline_data = 16;
    let qp = datagram_qp(&a.end, &Setup { caps, ..setup })?;
    to_rts(&a.end.context, &qp, QKEY);
    let ah = a.ah(&b)?;
    for i in 0..50 {
        b.end.recv(i, (0, 256));
        a.end.fill(i as u8);
        let sge = a.end.mr.sge(0, 16).expect("within the region");
        let sges = [sge.with_lkey(Lkey(0))];
        let request = SendRequest::new(WrId(i), Operation::Send, &sges);
        let request = request.with_flags(SIGNALED | SendFlags::INLINE);
        qp.post_send(&[request.to(to(&ah, b.qpn(), QKEY))])
            .expect("post inline");
        a.end.fill(BLANK);
        a.end.expect_sent(&[(i, WcStatus::Success)]);
        b.end.expect_received(&[(i, WcStatus::Success)]);
        assert_eq!(b.end.bytes(GRH, 16), [i as u8; 16]);
    }
    Ok(())
}

/// Unsignaled datagrams take slots of the send queue, which are freed when a later completion is
/// polled (IBTA vol. 1, 10.8.6).
pub fn unsignaled_datagrams_take_slots<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let ah = a.ah(&b)?;
    let there = to(&ah, b.qpn(), QKEY);
    let depth = u64::from(a.end.qp.caps().max_send_wr);
    for round in 0..3 {
        for i in 0..depth - 1 {
            let request = (i, Operation::Send, (0, 8), UNSIGNALED);
            a.try_send(request, there).expect("a free slot");
        }
        a.send(round, Operation::Send, (0, 8), there);
        let request = (99, Operation::Send, (0, 8), SIGNALED);
        let full = a.try_send(request, there).expect_err("no free slot");
        assert!(
            matches!(full.cause, PostErrorCause::QueueFull { .. }),
            "{full}"
        );
        a.end.expect_sent(&[(round, WcStatus::Success)]);
    }
    a.end.expect_quiet();
    Ok(())
}

/// A datagram raises the event of an armed queue; where solicited ones are waited for, a solicited
/// one does (IBTA vol. 1, 11.4.2.2).
pub fn a_datagram_raises_an_event<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let ah = a.ah(&b)?;
    let there = to(&ah, b.qpn(), QKEY);
    (0..3).for_each(|i| b.end.recv(i, (0, 256)));
    let arm = |on| b.end.recv_cq.req_notify(on).expect("arm");
    arm(NotifyOn::Any);
    a.reaches(there, &b, 0);
    b.end.expect_event(&b.end.recv_cq);
    b.end.expect_no_event();
    arm(NotifyOn::Solicited);
    a.reaches(there, &b, 1);
    b.end.expect_no_event();
    let request = (1, Operation::Send, (0, 64), SIGNALED | SendFlags::SOLICITED);
    a.try_send(request, there).expect("post a datagram");
    b.end.expect_event(&b.end.recv_cq);
    b.end.expect_received(&[(2, WcStatus::Success)]);
    Ok(())
}

/// A request with invalid local memory fails the send queue, and later requests are flushed. In SQE the
/// queue pair still receives, and a change to RTS restores it (IBTA vol. 1, 10.3.1.6). Devices that change
/// to ERR instead are not tested further.
pub fn a_local_error_of_ud_stops_sending_only<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let (ah, back) = (a.ah(&b)?, b.ah(&a)?);
    let sge = a.end.mr.sge(0, 64).expect("within the region");
    let wrong = [sge.with_lkey(Lkey(a.end.mr.lkey().0 ^ 0x4000_0000))];
    let faulty = SendRequest::new(WrId(1), Operation::Send, &wrong);
    let faulty = faulty.to(to(&ah, b.qpn(), QKEY));
    a.end.qp.post_send(&[faulty]).expect("post");
    a.end.expect_sent(&[(1, WcStatus::LocProtErr)]);
    let stopped = || matches!(a.end.qp.state(), QpState::Sqe | QpState::Err);
    a.end.wait_for("the send queue to stop", stopped);
    a.send(2, Operation::Send, (0, 64), to(&ah, b.qpn(), QKEY));
    a.end.expect_sent(&[(2, WcStatus::WrFlushErr)]);
    if a.end.qp.state() == QpState::Err {
        return Ok(());
    }
    a.end.recv(7, (0, 256));
    b.reaches(to(&back, a.qpn(), QKEY), &a, 7);
    let mended = a.end.qp.modify(&QpAttr::to(QpState::Rts));
    mended.expect("SQE to RTS");
    b.end.recv(8, (0, 256));
    a.reaches(to(&ah, b.qpn(), QKEY), &b, 8);
    Ok(())
}

/// ERR flushes receives, earlier messages stay successes, and after RESET the queue pair starts empty
/// (IBTA vol. 1, 10.3.1).
pub fn ud_is_flushed_and_begins_anew<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let ah = a.ah(&b)?;
    let there = to(&ah, b.qpn(), QKEY);
    for life in 0..4 {
        (0..4).for_each(|i| b.end.recv(i, (i * 256, 256)));
        a.reaches(there, &b, 0);
        a.send(1, Operation::Send, (0, 64), there);
        a.end.expect_sent(&[(1, WcStatus::Success)]);
        let arrived = || b.end.bytes(256 + GRH, 64) == a.end.bytes(0, 64);
        if life % 2 == 0 {
            // Arrived, or still on its way and then lost: at most one success.
            let failed = b.end.qp.modify(&QpAttr::to(QpState::Err));
            failed.expect("to ERR");
            let ended = b.end.received(3);
            let ids: Vec<_> = ended.iter().map(|c| c.wr_id.0).collect();
            assert_eq!(ids, [1, 2, 3]);
            let flushed = |c: &WorkCompletion| c.status == WcStatus::WrFlushErr;
            assert!(ended[1..].iter().all(flushed), "{ended:?}");
            assert!(flushed(&ended[0]) || arrived(), "{ended:?}");
            b.end.recv(9, (0, 256));
            b.end.expect_received(&[(9, WcStatus::WrFlushErr)]);
        }
        let reset = b.end.qp.modify(&QpAttr::to(QpState::Reset));
        reset.expect("to RESET");
        to_rts(&b.end.context, &b.end.qp, QKEY);
        b.end.expect_quiet();
        b.end.fill(BLANK);
        a.loses(there, &b);
    }
    Ok(())
}

/// Many senders, each with a context and a queue pair of its own, send to one queue pair at the same
/// time. While receives are posted, every message arrives once and complete, and receives complete in the order
/// in which they were posted.
pub fn many_senders_share_a_queue_pair<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    if fixture.is_helper() {
        return send_windows(fixture);
    }
    let server = Node::new(fixture)?;
    for number in 0..SENDERS {
        let client = Node::new(fixture)?;
        fixture.start(number, &[&client.end, &server.end]);
    }
    let slots = u64::from(SENDERS) * WINDOW;
    (0..slots).for_each(|i| server.end.recv(i, (i * ROOM, ROOM as u32)));
    let mut posted = slots;
    for round in 0..ROUNDS {
        (0..SENDERS).for_each(|number| next_window(fixture, number, (server.qpn(), round)));
        let got = server.end.received(slots as usize);
        let mut arrived = Vec::new();
        for (i, completion) in got.iter().enumerate() {
            assert_eq!(completion.wr_id.0, posted - slots + i as u64);
            let place = completion.wr_id.0 % slots * ROOM;
            arrived.push(check_message(&server.end, completion, place));
            server.end.recv(posted + i as u64, (place, ROOM as u32));
        }
        arrived.sort_unstable();
        assert_eq!(arrived, messages_of(round));
        posted += slots;
    }
    (0..SENDERS).for_each(|number| drop(fixture.hear(number)));
    server.end.expect_quiet();
    Ok(())
}
