//! UC: whole messages or none.

use crate::lab::memory::{REMOTE, piece, pieces};
use crate::lab::{Delivery, Endpoint, Lab, Random, Rule, Side, TestMemory};
use adverb_transport::{
    Completion, DropReason, PacketBuffer, Payload, PostError, Queue, ReceiveQueue, ReceiveWork,
    SendWork, UcConfig, UcQp, Work,
};
use adverb_units::{Span, Time};
use adverb_verbs::{
    AccessFlags, Imm, PathMtu, Psn, QpAttr, QpState, SendFlags, Srqn, WcOpcode, WcStatus, WrId,
};
use adverb_wire::{Bth, Extension, Opcode, Packet, PacketHeaders, UnknownOpcode};

const MTU: usize = 256;

impl Endpoint for UcQp {
    fn packet(
        &mut self,
        _: Time,
        packet: &Packet<'_>,
        memory: &mut TestMemory,
    ) -> Result<(), DropReason> {
        self.handle_packet(packet, memory)
    }
    fn timeout(&mut self, _: Time) {}
    fn deadline(&self) -> Option<Time> {
        None
    }
    fn transmit(&mut self, _: Time, memory: &TestMemory, out: &mut PacketBuffer) -> Option<usize> {
        self.poll_transmit(memory, out)
    }
    fn completion(&mut self) -> Option<Completion> {
        self.poll_completion()
    }
    fn receive(&mut self, work: ReceiveWork) {
        self.post_receive(work).unwrap();
    }
}

fn qp(side: Side, access: AccessFlags) -> UcQp {
    let rc = crate::lab::config(side);
    let config = UcConfig {
        qpn: rc.qpn,
        peer: rc.peer,
        path_mtu: PathMtu::B256,
        first_psn: rc.requester.first_psn,
        peer_first_psn: rc.responder.first_psn,
        access,
        max_work: 512,
    };
    UcQp::new(&config, ReceiveQueue::new(512))
}

fn connected(rule: Rule) -> Lab<UcQp> {
    let all = AccessFlags::all();
    Lab::new(qp(Side::A, all), qp(Side::B, all), rule)
}

fn quiet() -> Lab<UcQp> {
    connected(Box::new(|_| Delivery::Pass))
}

fn post(lab: &mut Lab<UcQp>, id: u64, work: Work, payload: Payload) {
    let request = SendWork {
        wr_id: WrId(id),
        work,
        payload,
        flags: SendFlags::SIGNALED,
        remote_srqn: Srqn(0),
    };
    lab.a.qp.post_send(request).unwrap();
}

fn post_receive(lab: &mut Lab<UcQp>, id: u64, length: usize) {
    let work = ReceiveWork {
        wr_id: WrId(id),
        pieces: pieces(id as usize * 1024, length),
    };
    lab.b.qp.post_receive(work).unwrap();
}

/// Drops the packets whose places on the wire are these.
fn losing(lost: &'static [u32]) -> Rule {
    let first: Psn = crate::lab::config(Side::A).requester.first_psn;
    Box::new(move |s| {
        let place = s.headers.bth.psn.distance_from(first);
        match lost.contains(&place) {
            true => Delivery::Drop,
            false => Delivery::Pass,
        }
    })
}

#[test]
fn messages_arrive_and_complete_as_they_are_sent() {
    let mut lab = quiet();
    let bytes: Vec<u8> = (0..700).map(|n| n as u8).collect();
    post_receive(&mut lab, 1, 700);
    post_receive(&mut lab, 2, 0);
    let payload = lab.a.memory.put(0, &bytes);
    post(&mut lab, 1, Work::Send, payload.clone());
    post(&mut lab, 2, Work::WriteWithImm(REMOTE, Imm(4)), payload);
    lab.run();
    assert_eq!(lab.a.completions.len(), 2);
    assert_eq!(lab.b.memory.local[1024..1724], bytes);
    assert_eq!(lab.b.memory.shared[..700], bytes);
    assert_eq!(lab.b.completions[1].work.opcode, WcOpcode::RecvRdmaWithImm);
    assert_eq!(lab.b.completions[1].work.imm, Some(Imm(4)));
}

#[test]
fn a_lost_packet_drops_its_message_and_no_other() {
    // Three messages of three packets; the second loses one at each place in turn.
    for (lost, dropped) in [(&[3u32] as &'static [u32], 2), (&[4], 1), (&[5], 0)] {
        let mut lab = connected(losing(lost));
        for id in 0..3 {
            post_receive(&mut lab, id, 700);
            let payload = lab.a.memory.put(id as usize * 1024, &[id as u8 + 1; 700]);
            post(&mut lab, id, Work::Send, payload);
        }
        lab.run();
        assert_eq!(lab.a.completions.len(), 3);
        let received: Vec<_> = lab.b.completions.iter().map(|c| c.work.wr_id.0).collect();
        assert_eq!(
            received,
            [0, 1],
            "the receive of the lost message takes the next"
        );
        assert_eq!(lab.b.memory.local[1024..1724], [3; 700]);
        let counters = lab.b.qp.counters();
        assert_eq!(counters.dropped(DropReason::BrokenMessage), dropped);
    }
}

/// What B received: request, and the first byte of the message.
fn received(lab: &Lab<UcQp>) -> Vec<(u64, u8)> {
    let first = |c: &Completion| {
        let at = c.work.wr_id.0 as usize * 1024;
        (c.work.wr_id.0, lab.b.memory.local[at])
    };
    lab.b.completions.iter().map(first).collect()
}

/// Duplicates matter only in a network that makes them (9.8.2.2: the number only tells whether a
/// packet is missing within its message).
#[test]
fn a_packet_that_comes_twice_begins_a_message_twice() {
    let mut lab = connected(Box::new(|_| Delivery::Duplicate(Span::from_us(1))));
    for id in 0..4 {
        post_receive(&mut lab, id, 700);
    }
    for id in 0..2 {
        let payload = lab.a.memory.put(id as usize * 1024, &[id as u8 + 1; 8]);
        post(&mut lab, id, Work::Send, payload);
    }
    lab.run();
    assert_eq!(received(&lab), [(0, 1), (1, 2), (2, 1), (3, 2)]);

    // One of several packets, behind its message.
    for place in 0..3 {
        let twice = crate::lab::config(Side::A)
            .requester
            .first_psn
            .advance(place);
        let mut lab = connected(Box::new(move |s| match s.headers.bth.psn == twice {
            true => Delivery::Duplicate(Span::from_us(1)),
            false => Delivery::Pass,
        }));
        for id in 0..2 {
            post_receive(&mut lab, id, 700);
            let payload = lab.a.memory.put(id as usize * 1024, &[id as u8 + 1; 700]);
            post(&mut lab, id, Work::Send, payload);
            lab.run();
        }
        assert_eq!(received(&lab), [(0, 1), (1, 2)], "packet {place}");
        let broken = lab.b.qp.counters().dropped(DropReason::BrokenMessage);
        assert_eq!(broken, u64::from(place != 0));
    }
}

/// Once, a forged part of a message ended the message in progress, whatever its number.
#[test]
fn a_forged_part_of_a_message_leaves_the_message_in_progress() {
    let first: Psn = crate::lab::config(Side::A).requester.first_psn;
    for ahead in [0, 1000, 1 << 23, (1 << 24) - 1] {
        // Three packets, which arrive one by one.
        let mut lab = connected(Box::new(move |s| {
            let place = s.headers.bth.psn.distance_from(first);
            Delivery::Delay(Span::from_us(place.into()))
        }));
        post_receive(&mut lab, 0, 700);
        let payload = lab.a.memory.put(0, &[9; 700]);
        post(&mut lab, 0, Work::Send, payload);
        let forge = |lab: &mut Lab<UcQp>| {
            let bth = Bth::new(
                Opcode::UcSendMiddle,
                crate::lab::config(Side::B).qpn,
                first.advance(ahead),
            );
            let headers = PacketHeaders::new(bth, Extension::None);
            let payload = &[1; MTU];
            let packet = Packet { headers, payload };
            let taken = lab.b.qp.handle_packet(&packet, &mut lab.b.memory);
            assert_eq!(taken, Err(DropReason::BrokenMessage), "{ahead} ahead");
        };
        forge(&mut lab);
        while lab.step() {
            if lab.b.completions.is_empty() {
                forge(&mut lab);
            }
        }
        assert_eq!(received(&lab), [(0, 9)], "{ahead} ahead");
        assert_eq!(lab.b.memory.local[..700], [9; 700]);
    }
}

#[test]
fn a_message_may_begin_with_any_number() {
    let first = crate::lab::config(Side::A).requester.first_psn;
    for ahead in [1, 1 << 22, (1 << 23) - 1, 1 << 23, (1 << 24) - 1] {
        let mut lab = quiet();
        post_receive(&mut lab, 0, 700);
        lab.a.qp.modify(&QpAttr::to_rts(first.advance(ahead)));
        let payload = lab.a.memory.put(0, &[9; 700]);
        post(&mut lab, 0, Work::Send, payload);
        lab.run();
        assert_eq!(received(&lab), [(0, 9)], "{ahead} ahead");
    }
}

#[test]
fn packets_that_cannot_be_received_are_dropped() {
    let mut lab = quiet();
    post(&mut lab, 1, Work::Send, piece(0, 8));
    post(
        &mut lab,
        2,
        Work::Write(REMOTE.at(crate::lab::memory::SIZE as u64)),
        piece(0, 3 * MTU),
    );
    post(&mut lab, 3, Work::Write(REMOTE), piece(0, 8));
    lab.run();
    let counters = lab.b.qp.counters();
    assert_eq!(counters.dropped(DropReason::ReceiverNotReady), 1);
    assert_eq!(counters.dropped(DropReason::RemoteAccess), 1);
    assert_eq!(counters.dropped(DropReason::BrokenMessage), 2);
    assert_eq!(counters.taken, 1);
    assert_eq!(lab.b.qp.state(), QpState::Rts);

    let mut attr = QpAttr::default();
    attr.access = Some(AccessFlags::LOCAL_WRITE);
    lab.b.qp.modify(&attr);
    post(&mut lab, 4, Work::Write(REMOTE), piece(0, 8));
    lab.run();
    assert_eq!(lab.b.qp.counters().dropped(DropReason::RemoteAccess), 2);
}

#[test]
fn a_message_that_is_too_long_fails_the_receiver_alone() {
    let mut lab = quiet();
    post_receive(&mut lab, 1, 300);
    post_receive(&mut lab, 2, 300);
    post(&mut lab, 1, Work::Send, piece(0, 400));
    lab.run();
    let ended: Vec<_> = lab
        .b
        .completions
        .iter()
        .map(|c| (c.work.wr_id.0, c.work.status))
        .collect();
    assert_eq!(ended, [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(lab.b.qp.state(), QpState::Err);
    assert_eq!(lab.a.completions[0].work.status, WcStatus::Success);
    assert_eq!(lab.a.qp.state(), QpState::Rts);
}

#[test]
fn wrong_memory_stops_the_send_queue_until_it_is_resumed() {
    let mut lab = quiet();
    post(
        &mut lab,
        1,
        Work::Write(REMOTE),
        piece(crate::lab::memory::SIZE - 300, 600),
    );
    post(&mut lab, 2, Work::Write(REMOTE), piece(0, 8));
    lab.run();
    let ended: Vec<_> = lab.a.completions.iter().map(|c| c.work.status).collect();
    assert_eq!(ended, [WcStatus::LocProtErr, WcStatus::WrFlushErr]);
    assert_eq!(lab.a.qp.state(), QpState::Sqe);
    // Requests posted now are flushed; the queue pair continues to receive.
    post(&mut lab, 3, Work::Write(REMOTE), piece(0, 8));
    let receive = ReceiveWork {
        wr_id: WrId(4),
        pieces: pieces(0, 8),
    };
    lab.a.qp.post_receive(receive).unwrap();
    let answer = SendWork {
        wr_id: WrId(5),
        work: Work::Send,
        payload: piece(0, 8),
        flags: SendFlags::empty(),
        remote_srqn: Srqn(0),
    };
    lab.b.qp.post_send(answer).unwrap();
    lab.run();
    let ended = lab.a.completions[2..].iter();
    let ended: Vec<_> = ended.map(|c| (c.work.wr_id.0, c.work.status)).collect();
    assert_eq!(ended, [(3, WcStatus::WrFlushErr), (4, WcStatus::Success)]);
    assert_eq!(lab.a.qp.state(), QpState::Sqe);
    lab.a.qp.modify(&QpAttr::to(QpState::Rts));
    let payload = lab.a.memory.put(0, b"again");
    post(&mut lab, 6, Work::Write(REMOTE), payload);
    lab.run();
    assert_eq!(lab.b.memory.shared[..5], *b"again");
}

#[test]
fn operations_that_uc_lacks_are_refused_at_the_post() {
    let mut lab = quiet();
    for work in [
        Work::Read(REMOTE),
        Work::FetchAdd(REMOTE, 1),
        Work::SendWithInvalidate(REMOTE.rkey),
    ] {
        let request = SendWork {
            wr_id: WrId(1),
            work,
            payload: piece(0, 8),
            flags: SendFlags::empty(),
            remote_srqn: Srqn(0),
        };
        let refused = lab.a.qp.post_send(request);
        assert_eq!(refused, Err(PostError::NotOfService(work)));
    }
}

/// Under any faults every message that is received is one that was sent, whole; in order, unless the
/// network repeats or reorders, which UC does not notice between messages.
#[test]
fn random_faults_lose_messages_but_never_mix_them() {
    const MESSAGES: usize = 200;
    let (mut received, mut lost) = (0, 0);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let reorders = seed % 2 == 0;
        let mut faults = Random::new(seed + 1000);
        let mut lab = connected(Box::new(move |_| match faults.below(40) {
            0 | 1 => Delivery::Drop,
            2 => Delivery::Corrupt(faults.number() as usize),
            3 if reorders => Delivery::Duplicate(Span::from_us(3)),
            4 if reorders => Delivery::Delay(Span::from_us(3)),
            _ => Delivery::Pass,
        }));
        // Every byte of a message is its number, and each message has a different length.
        let lengths: Vec<_> = (0..MESSAGES).map(|_| random.below(1000) as usize).collect();
        for (id, &length) in lengths.iter().enumerate() {
            post_receive(&mut lab, id as u64, 1024);
            let payload = lab.a.memory.put(id * 1024, &vec![id as u8; length]);
            post(&mut lab, id as u64, Work::Send, payload);
            lab.step();
        }
        lab.run();
        assert_eq!(lab.a.completions.len(), MESSAGES);
        let mut last = None;
        for c in &lab.b.completions {
            assert_eq!(
                (c.queue, c.work.status),
                (Queue::Receive, WcStatus::Success)
            );
            let at = c.work.wr_id.0 as usize * 1024;
            let there = &lab.b.memory.local[at..at + c.work.byte_len as usize];
            let Some(&id) = there.first() else { continue };
            assert!(there.iter().all(|&byte| byte == id), "seed {seed}: mixed");
            assert_eq!(
                there.len(),
                lengths[usize::from(id)],
                "seed {seed}: not whole"
            );
            assert!(reorders || last < Some(id), "seed {seed}: out of order");
            last = Some(id);
        }
        received += lab.b.completions.len();
        lost += MESSAGES.saturating_sub(lab.b.completions.len());
    }
    assert!(
        received > 5000 && lost > 500,
        "{received} received, {lost} lost"
    );
}

#[test]
fn no_packet_makes_a_queue_pair_panic() {
    let mut random = Random::new(5);
    let mut taken = 0;
    for _ in 0..40 {
        let mut lab = quiet();
        for id in 0..16 {
            post_receive(&mut lab, id, 300);
        }
        for _ in 0..400 {
            let code = 0x20 + random.below(12) as u8;
            let length = [0, MTU as u64, random.below(600)][random.below(3) as usize];
            let mut bytes = random.bytes(12 + 20 + length as usize / 4 * 4);
            bytes[0] = code;
            bytes[1] = 0;
            bytes[5..8].copy_from_slice(&crate::lab::config(Side::B).qpn.get().to_be_bytes()[1..]);
            let psn = crate::lab::config(Side::A)
                .requester
                .first_psn
                .advance(random.below(3) as u32);
            bytes[9..12].copy_from_slice(&psn.get().to_be_bytes()[1..]);
            let packet = Packet::parse(&bytes).unwrap();
            let end = &mut lab.b;
            taken += u32::from(end.qp.handle_packet(&packet, &mut end.memory).is_ok());
        }
    }
    assert!(taken > 100, "{taken} were taken");
}

#[test]
fn a_packet_of_an_unknown_opcode_is_missing_to_its_message() {
    let mut lab = quiet();
    post_receive(&mut lab, 0, 3 * MTU);
    let payload = lab.a.memory.put(0, &[1; 3 * MTU]);
    post(&mut lab, 0, Work::Send, payload);
    let first = crate::lab::config(Side::A).requester.first_psn;
    let unknown = |code, ahead| UnknownOpcode {
        code,
        pkey: adverb_wire::DEFAULT_PKEY,
        dest_qp: crate::lab::config(Side::B).qpn,
        psn: first.advance(ahead),
    };
    // The second packet is replaced by another one.
    lab.rule(move |s| match s.headers.bth.psn == first.advance(1) {
        true => Delivery::Drop,
        false => Delivery::Pass,
    });
    let dropped = lab.b.qp.handle_unknown(&unknown(0x2c, 1));
    assert_eq!(dropped, DropReason::UnknownOpcode);
    let other = lab.b.qp.handle_unknown(&unknown(0x15, 1));
    assert_eq!(other, DropReason::WrongService);
    lab.run();
    assert!(lab.b.completions.is_empty());
    let counters = lab.b.qp.counters();
    assert_eq!(counters.dropped(DropReason::UnknownOpcode), 1);
    assert_eq!(counters.dropped(DropReason::BrokenMessage), 1);
    let payload = lab.a.memory.put(0, &[2; 8]);
    post(&mut lab, 1, Work::Send, payload);
    lab.run();
    assert_eq!(lab.b.completions[0].work.byte_len, 8);
}

#[test]
fn sqd_finishes_started_requests_and_holds_back_others() {
    let mut lab = quiet();
    for id in 0..2 {
        post_receive(&mut lab, id, 700);
        let payload = lab.a.memory.put(id as usize * 1024, &[id as u8 + 1; 700]);
        post(&mut lab, id, Work::Send, payload);
    }
    let mut out: PacketBuffer = [0; adverb_transport::PACKET_SPACE];
    let memory = &lab.a.memory;
    assert!(lab.a.qp.poll_transmit(memory, &mut out).is_some());
    lab.a.qp.modify(&QpAttr::to(QpState::Sqd));
    let rest = std::iter::from_fn(|| lab.a.qp.poll_transmit(memory, &mut out));
    assert_eq!(rest.count(), 2, "the rest of the first message");
    assert_eq!(lab.a.qp.poll_completion().unwrap().work.wr_id, WrId(0));
    lab.a.qp.modify(&QpAttr::to(QpState::Rts));
    assert!(lab.a.qp.poll_transmit(memory, &mut out).is_some());
}

#[test]
fn a_queue_pair_made_in_rtr_begins_with_the_packet_that_rts_names() {
    let mut lab = quiet();
    lab.a.qp.modify(&QpAttr::to_rts(Psn::new(77)));
    let payload = lab.a.memory.put(0, &[1; 8]);
    post(&mut lab, 0, Work::Send, payload);
    let mut out: PacketBuffer = [0; adverb_transport::PACKET_SPACE];
    let length = lab.a.qp.poll_transmit(&lab.a.memory, &mut out).unwrap();
    let packet = Packet::parse(&out[..length]).unwrap();
    assert_eq!(packet.headers.bth.psn, Psn::new(77));
}

#[test]
fn requests_posted_in_the_error_state_are_flushed() {
    let mut lab = quiet();
    post_receive(&mut lab, 1, 8);
    post(&mut lab, 1, Work::Send, piece(0, 8));
    lab.a.qp.enter_error();
    lab.b.qp.enter_error();
    post_receive(&mut lab, 2, 8);
    post(&mut lab, 2, Work::Send, piece(0, 8));
    lab.run();
    let flushed = [1, 2].map(|id| (id, WcStatus::WrFlushErr));
    assert_eq!(crate::lab::steps::statuses(&lab.a.completions), flushed);
    assert_eq!(crate::lab::steps::statuses(&lab.b.completions), flushed);
    assert!(lab.sent.is_empty());
}
