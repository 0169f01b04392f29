//! RC against chapter 9 of the specification where it is finer than what a usual run shows: numbers at
//! the wrap, repeated requests, refusals told once, both retry counters, connections made again.

use crate::lab::memory::{REMOTE, piece};
use crate::lab::steps::{MTU, inject_at, post, post_receive, sent_by, statuses, syndromes, work};
use crate::lab::{Delivery, FLIGHT, Lab, Side, config, connected, quiet};
use adverb_transport::{DropReason, PostError, RcConfig, RcQp, ReceiveQueue, Work};
use adverb_units::Span;
use adverb_verbs::{Comparison, Psn, QpState, RemoteAddress, RetryCount, SendFlags, WcStatus};
use adverb_wire::bth::BthFlags;
use adverb_wire::{
    AtomicEth, Bth, Credits, Extension, NakCode, Opcode, Packet, PacketHeaders, Reth, Syndrome,
    UnknownOpcode,
};

fn read(offset: u64, length: u32) -> Extension {
    let remote = REMOTE.at(offset);
    Extension::Rdma(Reth { remote, length })
}

fn inject_read(lab: &mut Lab<RcQp>, at: u32, offset: u64, length: u32) -> Result<(), DropReason> {
    inject_at(lab, Opcode::RcReadRequest, read(offset, length), &[], at)
}

fn inject_add(lab: &mut Lab<RcQp>, at: u32, add: u64) -> Result<(), DropReason> {
    let atomic = Extension::Atomic(AtomicEth {
        remote: REMOTE,
        swap_or_add: add,
        compare: 0,
    });
    inject_at(lab, Opcode::RcFetchAdd, atomic, &[], at)
}

fn inject_send(lab: &mut Lab<RcQp>, at: u32) -> Result<(), DropReason> {
    inject_at(lab, Opcode::RcSendOnly, Extension::None, &[], at)
}

/// What B answered: opcode, how far its number is from A's first, bytes.
fn answers(lab: &Lab<RcQp>) -> Vec<(Opcode, u32, usize)> {
    let first: Psn = config(Side::A).requester.first_psn;
    let from_b = lab.sent.iter().filter(|s| s.from == Side::B);
    let answer = from_b.map(|s| {
        let bth = &s.headers.bth;
        (bth.opcode, bth.psn.distance_from(first), s.payload)
    });
    answer.collect()
}

// --- packet sequence numbers (9.7.2)

#[test]
fn half_the_circle_ahead_is_missing_and_half_behind_is_a_duplicate() {
    let mut lab = quiet();
    post_receive(&mut lab, 1, 8);
    assert_eq!(inject_send(&mut lab, 0), Ok(()));
    // Expected is 1 now.
    let out = Err(DropReason::OutOfSequence);
    assert_eq!(inject_send(&mut lab, 2), out);
    assert_eq!(inject_send(&mut lab, 1 << 23), out);
    assert_eq!(inject_send(&mut lab, (1 << 23) + 1), Ok(()));
    assert_eq!(inject_send(&mut lab, (1 << 24) - 1), Ok(()));
    assert_eq!(lab.b.qp.counters().duplicates, 2);
    lab.flush();
    assert_eq!(lab.b.completions.len(), 1, "a duplicate was carried out");
}

#[test]
fn a_refusal_is_told_once_until_what_was_missing_comes() {
    let mut lab = quiet();
    for id in 0..3 {
        post_receive(&mut lab, id, 8);
    }
    for at in [1, 2, 3] {
        assert_eq!(inject_send(&mut lab, at), Err(DropReason::OutOfSequence));
        lab.flush();
    }
    let told = Syndrome::Nak(NakCode::PsnSequenceError);
    assert_eq!(syndromes(&lab), [told]);
    assert_eq!(answers(&lab), [(Opcode::RcAck, 0, 0)]);
    assert_eq!(inject_send(&mut lab, 0), Ok(()));
    assert_eq!(inject_send(&mut lab, 2), Err(DropReason::OutOfSequence));
    lab.flush();
    assert_eq!(syndromes(&lab), [told, told]);
    assert_eq!(answers(&lab)[1], (Opcode::RcAck, 1, 0));
}

/// A forged packet that overtakes those on their way is refused only if they do not follow at once.
#[test]
fn a_sequence_error_is_not_sent_if_what_was_missing_has_come() {
    let mut lab = quiet();
    (0..3).for_each(|id| post_receive(&mut lab, id, 8));
    assert_eq!(inject_send(&mut lab, 0), Ok(()));
    assert_eq!(inject_send(&mut lab, 1000), Err(DropReason::OutOfSequence));
    assert_eq!(inject_send(&mut lab, 1), Ok(()));
    lab.flush();
    assert_eq!(answers(&lab), []);
}

/// The NAK is for a packet that the requester may not have sent, so that it drops the NAK. Once the acknowledgement was
/// gone, and cost a timeout.
#[test]
fn a_nak_leaves_the_acknowledgement_before_it() {
    let forged: [(u32, DropReason); 2] = [
        (1000, DropReason::OutOfSequence),
        (1, DropReason::ReceiverNotReady),
    ];
    for (at, reason) in forged {
        let mut lab = quiet();
        post_receive(&mut lab, 0, 8);
        let first = config(Side::A).requester.first_psn;
        let bth = Bth::new(Opcode::RcSendOnly, config(Side::B).qpn, first).with(BthFlags::ACK_REQ);
        let headers = PacketHeaders::new(bth, Extension::None);
        let packet = Packet {
            headers,
            payload: &[],
        };
        let taken = (lab.b.qp).handle_packet(lab.now, &packet, &mut lab.b.memory);
        assert_eq!(taken, Ok(()));
        assert_eq!(inject_send(&mut lab, at), Err(reason));
        lab.flush();
        let expected = [(Opcode::RcAck, 0, 0), (Opcode::RcAck, 1, 0)];
        assert_eq!(answers(&lab), expected);
    }
}

// --- opcodes (9.7.4.1)

/// A packet for B whose opcode nobody knows.
fn unknown(code: u8, ahead: u32) -> UnknownOpcode {
    UnknownOpcode {
        code,
        pkey: adverb_wire::DEFAULT_PKEY,
        dest_qp: config(Side::B).qpn,
        psn: lab_first().advance(ahead),
    }
}

#[test]
fn a_request_of_an_unknown_opcode_is_invalid_in_its_turn() {
    let mut lab = quiet();
    post_receive(&mut lab, 1, 8);
    assert_eq!(inject_send(&mut lab, 0), Ok(()));
    // One that was carried out before, and one behind a gap.
    let before = lab.b.qp.handle_unknown(&unknown(0x15, 0));
    assert_eq!(before, DropReason::UnknownOpcode);
    let ahead = lab.b.qp.handle_unknown(&unknown(0x1f, 2));
    assert_eq!(ahead, DropReason::OutOfSequence);
    lab.flush();
    let told = Syndrome::Nak(NakCode::PsnSequenceError);
    assert_eq!(syndromes(&lab), [told]);
    assert_eq!(lab.b.qp.state(), QpState::Rts);

    let in_turn = lab.b.qp.handle_unknown(&unknown(0x18, 1));
    assert_eq!(in_turn, DropReason::UnknownOpcode);
    lab.flush();
    assert_eq!(
        syndromes(&lab),
        [told, Syndrome::Nak(NakCode::InvalidRequest)]
    );
    assert_eq!(answers(&lab)[1], (Opcode::RcAck, 1, 0));
    assert_eq!(lab.b.qp.state(), QpState::Err);
    let after = lab.b.qp.handle_unknown(&unknown(0x18, 2));
    assert_eq!(after, DropReason::QueuePairInError);
    let counters = lab.b.qp.counters();
    assert_eq!(counters.dropped(DropReason::UnknownOpcode), 2);
    assert_eq!(counters.dropped_in_all(), 4);
}

/// The upper three bits of an opcode are the service. A queue pair of another service does not respond.
#[test]
fn an_unknown_opcode_of_another_service_is_dropped_in_silence() {
    let mut lab = quiet();
    for code in [0x2c, 0x40, 0x66, 0x80, 0xa4, 0xff] {
        let dropped = lab.b.qp.handle_unknown(&unknown(code, 0));
        assert_eq!(dropped, DropReason::WrongService, "{code:#x}");
    }
    let elsewhere = UnknownOpcode {
        dest_qp: config(Side::A).qpn,
        ..unknown(0x15, 0)
    };
    let dropped = lab.b.qp.handle_unknown(&elsewhere);
    assert_eq!(dropped, DropReason::WrongQueuePair);
    lab.flush();
    assert_eq!(answers(&lab), []);
    assert_eq!(lab.b.qp.state(), QpState::Rts);
}

/// The requester hears of it as of any request that is refused.
#[test]
fn an_invalid_request_ends_the_peers_too() {
    let mut lab = quiet();
    post(&mut lab, work(1, Work::Write(REMOTE), piece(0, 8)));
    let refused = lab.b.qp.handle_unknown(&unknown(0x15, 0));
    assert_eq!(refused, DropReason::UnknownOpcode);
    lab.run();
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::RemInvReqErr)]);
}

// --- lengths (9.7.4.1)

/// The header of a packet for B whose opcode does not fit its length.
fn header(opcode: Opcode, ahead: u32) -> Bth {
    Bth::new(opcode, config(Side::B).qpn, lab_first().advance(ahead))
}

#[test]
fn a_request_whose_length_is_not_that_of_its_headers_is_invalid_in_its_turn() {
    let mut lab = quiet();
    post_receive(&mut lab, 1, 8);
    assert_eq!(inject_send(&mut lab, 0), Ok(()));
    let read = Opcode::RcReadRequest;
    let before = lab.b.qp.handle_malformed(&header(read, 0));
    assert_eq!(before, DropReason::InvalidRequest);
    let ahead = lab.b.qp.handle_malformed(&header(read, 2));
    assert_eq!(ahead, DropReason::OutOfSequence);
    lab.flush();
    let response = lab.b.qp.handle_malformed(&header(Opcode::RcAck, 1));
    assert_eq!(response, DropReason::BadResponse);
    let other = lab.b.qp.handle_malformed(&header(Opcode::UcSendOnly, 1));
    assert_eq!(other, DropReason::WrongService);
    assert_eq!(lab.b.qp.state(), QpState::Rts);
    let in_turn = lab.b.qp.handle_malformed(&header(read, 1));
    assert_eq!(in_turn, DropReason::InvalidRequest);
    lab.flush();
    let told = [NakCode::PsnSequenceError, NakCode::InvalidRequest].map(Syndrome::Nak);
    assert_eq!(syndromes(&lab), told);
    assert_eq!(lab.b.qp.state(), QpState::Err);
}

#[test]
fn parts_of_a_message_that_are_not_a_path_mtu_long_are_invalid() {
    let parts = [
        Opcode::RcSendFirst,
        Opcode::RcSendMiddle,
        Opcode::RcSendLast,
    ];
    for (wrong, lengths) in [
        (0, vec![MTU - 4]),
        (0, vec![MTU + 4]),
        (1, vec![MTU, MTU - 4]),
        (1, vec![MTU, 0]),
        (2, vec![MTU, MTU, 0]),
        (2, vec![MTU, MTU, MTU + 4]),
    ] {
        let mut lab = quiet();
        post_receive(&mut lab, 1, 4 * MTU);
        for (at, length) in lengths.iter().enumerate() {
            let payload = vec![1; *length];
            let taken = inject_at(&mut lab, parts[at], Extension::None, &payload, at as u32);
            let expected = match at == wrong {
                true => Err(DropReason::InvalidRequest),
                false => Ok(()),
            };
            assert_eq!(taken, expected, "{lengths:?}");
        }
        lab.flush();
        assert_eq!(
            syndromes(&lab),
            [Syndrome::Nak(NakCode::InvalidRequest)],
            "{lengths:?}"
        );
        assert_eq!(lab.b.qp.state(), QpState::Err);
    }
}

// --- repeated requests (9.7.5.1)

#[test]
fn a_read_may_be_asked_for_again_from_anywhere_within_it() {
    let mut lab = quiet();
    let length = 3 * MTU as u32 + 10;
    assert_eq!(inject_read(&mut lab, 0, 0, length), Ok(()));
    lab.flush();
    lab.sent.clear();
    let mtu = MTU as u64;
    // The rest of it; a part of the rest.
    assert_eq!(inject_read(&mut lab, 1, mtu, length - MTU as u32), Ok(()));
    lab.flush();
    assert_eq!(inject_read(&mut lab, 2, 2 * mtu, 16), Ok(()));
    lab.flush();
    let (first, middle) = (Opcode::RcReadResponseFirst, Opcode::RcReadResponseMiddle);
    let (last, only) = (Opcode::RcReadResponseLast, Opcode::RcReadResponseOnly);
    let rest = [(first, 1, MTU), (middle, 2, MTU), (last, 3, 10)];
    assert_eq!(answers(&lab), [&rest[..], &[(only, 2, 16)]].concat());
    lab.sent.clear();
    // Another place; beyond its end in bytes, in packets.
    let stale = Err(DropReason::StaleDuplicate);
    assert_eq!(inject_read(&mut lab, 1, 0, 16), stale);
    assert_eq!(inject_read(&mut lab, 3, 3 * mtu, 11), stale);
    assert_eq!(inject_read(&mut lab, 0, 0, length + MTU as u32), stale);
    lab.flush();
    assert_eq!(answers(&lab), []);
    assert_eq!(lab.b.qp.state(), QpState::Rts);
}

/// Copies of its request cost no more than a few times what the READ did.
#[test]
fn a_read_is_not_read_again_without_end() {
    let mut lab = quiet();
    for _ in 0..1000 {
        let _ = inject_read(&mut lab, 0, 0, 3 * MTU as u32);
        lab.flush();
    }
    assert_eq!(answers(&lab).len(), 3 * (1 + 32));
    let stale = DropReason::StaleDuplicate;
    assert_eq!(lab.b.qp.counters().dropped(stale), 1000 - 1 - 32);
}

#[test]
fn as_many_atomics_are_kept_as_may_be_under_way() {
    let mut lab = quiet();
    let kept = u32::from(config(Side::B).responder.max_reads);
    for at in 0..kept + 1 {
        assert_eq!(inject_add(&mut lab, at, 1), Ok(()));
        lab.flush();
    }
    lab.sent.clear();
    let stale = Err(DropReason::StaleDuplicate);
    assert_eq!(inject_add(&mut lab, 0, 1), stale, "no longer kept");
    assert_eq!(inject_add(&mut lab, 1, 2), stale, "another operand");
    for at in 1..=kept {
        assert_eq!(inject_add(&mut lab, at, 1), Ok(()));
        lab.flush();
    }
    assert_eq!(lab.b.memory.atomics, u64::from(kept) + 1);
    let found = |s: &&crate::lab::Sent| match s.headers.extension {
        Extension::AtomicAck(_, found) => found.original,
        other => panic!("{other:?}"),
    };
    let found: Vec<_> = lab.sent.iter().map(|s| found(&s)).collect();
    assert_eq!(found, [1, 2, 3, 4]);
}

/// More READs and atomics at a time than were agreed on (9.7.4: an invalid request).
#[test]
fn a_peer_with_too_many_reads_under_way_is_refused() {
    let mut lab = quiet();
    let most = u32::from(config(Side::B).responder.max_reads);
    for at in 0..most {
        assert_eq!(inject_read(&mut lab, at, 0, 8), Ok(()));
    }
    let invalid = Err(DropReason::InvalidRequest);
    assert_eq!(inject_add(&mut lab, most, 1), invalid);
    assert_eq!(lab.b.memory.atomics, 0);
    lab.flush();
    assert_eq!(syndromes(&lab), [Syndrome::Nak(NakCode::InvalidRequest)]);
    let only = Opcode::RcReadResponseOnly;
    let reads: Vec<_> = (0..most).map(|at| (only, at, 8)).collect();
    let refusal = [(Opcode::RcAck, most, 0)];
    assert_eq!(answers(&lab), [&reads[..], &refusal].concat());
}

/// An answer that waits only because its request was repeated is the requester's already, if it asks
/// for more.
#[test]
fn a_repeated_read_is_given_up_for_a_new_one() {
    let mut lab = quiet();
    let most = u32::from(config(Side::B).responder.max_reads);
    for at in 0..most {
        assert_eq!(inject_read(&mut lab, at, 0, 8), Ok(()));
    }
    lab.flush();
    lab.sent.clear();
    assert_eq!(inject_read(&mut lab, 0, 0, 8), Ok(()));
    assert_eq!(inject_read(&mut lab, most, 0, 8), Ok(()));
    lab.flush();
    assert_eq!(answers(&lab), [(Opcode::RcReadResponseOnly, most, 8)]);
}

// --- acknowledgements

#[test]
fn a_repeated_write_is_acknowledged_up_to_the_last_that_came() {
    let mut lab = quiet();
    for id in 0..3 {
        post(&mut lab, work(id, Work::Write(REMOTE), piece(0, 8)));
    }
    lab.flush();
    let asked = lab.sent[2].headers;
    assert!(asked.bth.flags.contains(BthFlags::ACK_REQ));
    lab.run();
    lab.sent.clear();
    // The first again, asking; and one that does not ask.
    let bth = adverb_wire::Bth {
        psn: lab_first(),
        ..asked.bth
    };
    let silent = adverb_wire::Bth {
        flags: BthFlags::empty(),
        ..bth
    };
    for bth in [bth, silent] {
        let headers = adverb_wire::PacketHeaders { bth, ..asked };
        let payload = &[9; 8];
        let packet = adverb_wire::Packet { headers, payload };
        let taken = lab.b.qp.handle_packet(lab.now, &packet, &mut lab.b.memory);
        assert_eq!(taken, Ok(()));
        lab.flush();
    }
    assert_eq!(answers(&lab), [(Opcode::RcAck, 2, 0)]);
    assert_eq!(lab.b.memory.shared[..8], [0; 8], "it was carried out again");
}

fn lab_first() -> Psn {
    config(Side::A).requester.first_psn
}

#[test]
fn acknowledgements_count_messages_and_carry_no_credits() {
    let mut lab = quiet();
    for id in 0..8 {
        post_receive(&mut lab, id, 8);
    }
    let mut seen = vec![];
    for id in 0..3 {
        post(&mut lab, work(id, Work::Send, piece(0, 8)));
        post(&mut lab, work(id, Work::Write(REMOTE), piece(0, 8)));
        lab.run();
        let acks = sent_by(&lab, Side::B, Opcode::RcAck);
        let Extension::Ack(aeth) = acks.last().unwrap().headers.extension else {
            panic!("an acknowledgement has an AETH");
        };
        seen.push((aeth.msn, aeth.syndrome));
    }
    let ack = Syndrome::Ack(Credits::NONE);
    assert_eq!(seen, [(2, ack), (4, ack), (6, ack)]);
}

// --- retries (9.9.2)

/// Each message needs both of its two retries.
#[test]
fn both_retry_counters_begin_anew_with_each_message_that_is_done() {
    let mut a = config(Side::A);
    a.requester.retry.retry_cnt = RetryCount::new(2).unwrap();
    a.requester.retry.rnr_retry = RetryCount::new(1).unwrap();
    let mut sends = 0;
    let rule = move |s: &crate::lab::Sent| {
        sends += u32::from(s.from == Side::A);
        match s.from == Side::A && sends % 3 != 0 {
            true => Delivery::Drop,
            false => Delivery::Pass,
        }
    };
    let mut lab = connected(&a, &config(Side::B), Box::new(rule));
    for id in 0..4 {
        post(&mut lab, work(id, Work::Write(REMOTE), piece(0, 8)));
        lab.run();
    }
    assert_eq!(lab.a.qp.counters().timeouts, 8);
    lab.rule(|_| Delivery::Pass);
    for id in 4..8 {
        post(&mut lab, work(id, Work::Send, piece(0, 8)));
        lab.step();
        lab.step();
        post_receive(&mut lab, id, 8);
        lab.run();
    }
    assert_eq!(lab.a.qp.counters().rnr_naks, 4);
    let success: Vec<_> = (0..8).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(statuses(&lab.a.completions), success);
}

#[test]
fn each_retry_counter_is_for_its_own_cause() {
    let mut a = config(Side::A);
    a.requester.retry.retry_cnt = RetryCount::new(0).unwrap();
    a.requester.retry.rnr_retry = RetryCount::new(3).unwrap();
    let mut lab = connected(&a, &config(Side::B), Box::new(|_| Delivery::Pass));
    post(&mut lab, work(1, Work::Send, piece(0, 8)));
    lab.run();
    let ended = [(1, WcStatus::RnrRetryExcErr)];
    assert_eq!(statuses(&lab.a.completions), ended);
    assert_eq!(lab.a.qp.counters().rnr_naks, 4);

    a.requester.retry.rnr_retry = RetryCount::new(0).unwrap();
    a.requester.retry.retry_cnt = RetryCount::new(3).unwrap();
    let mut lab = connected(&a, &config(Side::B), Box::new(|_| Delivery::Drop));
    post(&mut lab, work(1, Work::Send, piece(0, 8)));
    lab.run();
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::RetryExcErr)]);
    assert_eq!(lab.a.qp.counters().timeouts, 4);
}

/// The number of A's READ requests while the answer `at` packets behind the first is lost `losses` times,
/// and how it ended.
fn reads_while_losing(at: u32, losses: u32, retries: u8) -> (usize, Lab<RcQp>) {
    let mut a = config(Side::A);
    a.requester.retry.retry_cnt = RetryCount::new(retries).unwrap();
    let lost = lab_first().advance(at);
    let mut left = losses;
    let rule = move |s: &crate::lab::Sent| {
        let drops = s.from == Side::B && s.headers.bth.psn == lost && left > 0;
        left -= u32::from(drops);
        if drops {
            Delivery::Drop
        } else {
            Delivery::Pass
        }
    };
    let mut lab = connected(&a, &config(Side::B), Box::new(rule));
    post(&mut lab, work(1, Work::Read(REMOTE), piece(0, 12 * MTU)));
    lab.run();
    let asked = sent_by(&lab, Side::A, Opcode::RcReadRequest).len();
    (asked, lab)
}

/// A gap in the answers is an implied NAK. Answers of the repeated request that leave the same gap are
/// another.
#[test]
fn an_answer_that_is_lost_again_is_asked_for_again_without_waiting() {
    for losses in 0..=5 {
        let (asked, lab) = reads_while_losing(3, losses, 7);
        assert_eq!(asked, 1 + losses as usize);
        assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::Success)]);
        assert_eq!(lab.a.qp.counters().timeouts, 0);
        assert_eq!(lab.a.qp.counters().go_backs, u64::from(losses));
    }
    // No packet follows the last one, so nothing shows its loss.
    let (asked, lab) = reads_while_losing(11, 2, 7);
    assert_eq!((asked, lab.a.qp.counters().timeouts), (3, 2));
}

/// A timeout asks again: a gap that was asked for before it is asked for again, whatever shows it.
#[test]
fn after_a_timeout_a_missing_answer_is_asked_for_again_without_waiting() {
    let mut asked = 0;
    let mut lab = quiet();
    lab.rule(move |s| {
        let bth = &s.headers.bth;
        asked += u32::from(bth.opcode == Opcode::RcReadRequest);
        let at = bth.psn.distance_from(lab_first());
        let is_lost = match asked {
            1 => at == 3,
            // Every packet of it is lost.
            2 => true,
            3 => at == 3 || at == 4,
            _ => false,
        };
        match s.from == Side::B && is_lost {
            true => Delivery::Drop,
            false => Delivery::Pass,
        }
    });
    post(&mut lab, work(1, Work::Read(REMOTE), piece(0, 12 * MTU)));
    lab.run();
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::Success)]);
    assert_eq!(sent_by(&lab, Side::A, Opcode::RcReadRequest).len(), 4);
    assert_eq!(lab.a.qp.counters().timeouts, 1);
}

/// The driver asks until there is nothing to send: what ends the connection does not end its turn.
#[test]
fn a_read_whose_memory_ends_before_its_answer_is_refused_in_the_same_turn() {
    let mut lab = quiet();
    assert_eq!(inject_read(&mut lab, 0, 0, 8), Ok(()));
    lab.b.memory.valid = false;
    lab.flush();
    let refusal = Syndrome::Nak(NakCode::RemoteAccessError);
    assert_eq!(syndromes(&lab), [refusal]);
    assert_eq!(answers(&lab), [(Opcode::RcAck, 0, 0)]);
    assert_eq!(lab.b.qp.state(), QpState::Err);
}

/// If none is left, the timeout ends the request.
#[test]
fn an_implied_nak_takes_a_retry() {
    for retries in 0..3 {
        let (asked, lab) = reads_while_losing(3, u32::from(retries), retries);
        assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::Success)]);
        assert_eq!(asked, 1 + usize::from(retries));
        let (asked, lab) = reads_while_losing(3, u32::from(retries) + 1, retries);
        assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::RetryExcErr)]);
        assert_eq!(asked, 1 + usize::from(retries));
        assert_eq!(lab.a.qp.counters().timeouts, 1);
    }
}

/// An acknowledgement behind a missing response is repeated as often as the requester asks for one.
#[test]
fn repeated_acknowledgements_are_one_implied_nak() {
    let mut lab = quiet();
    let answer = lab_first();
    let mut left = 1;
    lab.rule(move |s| match (s.from, s.headers.bth.opcode) {
        (Side::B, Opcode::RcAck) => Delivery::Duplicate(Span::from_ns(500)),
        (Side::B, _) if s.headers.bth.psn == answer && left > 0 => {
            left -= 1;
            Delivery::Drop
        }
        _ => Delivery::Pass,
    });
    post(&mut lab, work(1, Work::Read(REMOTE), piece(0, 8)));
    post(&mut lab, work(2, Work::Write(REMOTE), piece(64, 8)));
    lab.run();
    let done = [(1, WcStatus::Success), (2, WcStatus::Success)];
    assert_eq!(statuses(&lab.a.completions), done);
    assert_eq!(lab.a.qp.counters().go_backs, 1);
    assert_eq!(sent_by(&lab, Side::A, Opcode::RcReadRequest).len(), 2);
}

// --- order

#[test]
fn a_fence_waits_for_atomics_and_for_every_part_of_a_read() {
    let mut a = config(Side::A);
    a.requester.window = 8;
    let mut lab = connected(&a, &config(Side::B), Box::new(|_| Delivery::Pass));
    let c = Comparison {
        expected: 0,
        new: 1,
    };
    post(&mut lab, work(0, Work::Read(REMOTE), piece(0, 30 * MTU)));
    post(&mut lab, work(1, Work::CompareSwap(REMOTE, c), piece(0, 8)));
    let mut fenced = work(2, Work::Send, piece(0, 8));
    fenced.flags |= SendFlags::FENCE;
    post(&mut lab, fenced);
    post_receive(&mut lab, 0, 8);
    lab.run();
    let send = sent_by(&lab, Side::A, Opcode::RcSendOnly)[0].at;
    let answer = sent_by(&lab, Side::B, Opcode::RcAtomicAck)[0].at;
    assert_eq!(send, answer + FLIGHT);
    assert_eq!(lab.a.completions.len(), 3);
}

#[test]
fn requests_are_flushed_in_the_order_of_posting() {
    let mut lab = quiet();
    for id in 0..3 {
        post_receive(&mut lab, id, 1000);
    }
    // One message is half there: its receive request is the oldest.
    let begun = inject_at(&mut lab, Opcode::RcSendFirst, Extension::None, &[1; MTU], 0);
    assert_eq!(begun, Ok(()));
    for id in 0..2 {
        let request = work(id, Work::Write(REMOTE), piece(0, 8));
        lab.b.qp.post_send(request, &lab.b.memory).unwrap();
    }
    lab.b.qp.enter_error();
    lab.flush();
    let flushed: Vec<_> = [0, 1, 0, 1, 2].map(|id| (id, WcStatus::WrFlushErr)).into();
    assert_eq!(statuses(&lab.b.completions), flushed);
    let refused = lab.b.qp.post_send(
        work(3, Work::FetchAdd(REMOTE, 1), piece(0, 4)),
        &lab.b.memory,
    );
    assert_eq!(refused, Err(PostError::AtomicLength(4)));
}

// --- connections made again (10.3.1)

/// Both sides are reset and connected again while packets of the old connection are on their way: they
/// change nothing and end nothing.
#[test]
fn old_packets_mean_nothing_to_a_new_connection() {
    let fresh = |side: Side| {
        let old = config(side);
        let mut new: RcConfig = old;
        new.requester.first_psn = old.requester.first_psn.advance(1 << 20);
        new.responder.first_psn = old.responder.first_psn.advance(1 << 20);
        RcQp::new(&new, ReceiveQueue::new(64))
    };
    let late = |_: &crate::lab::Sent| Delivery::Duplicate(Span::from_us(50));
    let mut lab = connected(&config(Side::A), &config(Side::B), Box::new(late));
    let elsewhere = |offset: u64| RemoteAddress {
        addr: REMOTE.addr + offset,
        ..REMOTE
    };
    let payload = lab.a.memory.put(0, &[7; 600]);
    post_receive(&mut lab, 0, 600);
    post(&mut lab, work(0, Work::Write(REMOTE), payload.clone()));
    post(
        &mut lab,
        work(1, Work::FetchAdd(elsewhere(1024), 1), piece(4096, 8)),
    );
    post(&mut lab, work(2, Work::Send, payload));
    post(&mut lab, work(3, Work::Read(REMOTE), piece(4096, 600)));
    while lab.a.completions.len() < 4 {
        assert!(lab.step());
    }
    lab.a.qp.enter_error();
    lab.b.qp.enter_error();
    lab.flush();
    lab.a.qp = fresh(Side::A);
    lab.b.qp = fresh(Side::B);
    lab.a.completions.clear();
    lab.b.completions.clear();
    lab.b.memory.shared.fill(0);
    lab.rule(|_| Delivery::Pass);
    post_receive(&mut lab, 5, 600);
    let payload = lab.a.memory.put(0, &[9; 300]);
    // Now, among the old packets, and after them.
    for id in 0..3 {
        post(
            &mut lab,
            work(id, Work::Write(elsewhere(2048)), payload.clone()),
        );
        lab.step();
    }
    lab.run();
    let done: Vec<_> = (0..3).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(statuses(&lab.a.completions), done);
    assert!(lab.b.completions.is_empty(), "an old SEND took a receive");
    assert_eq!(lab.b.memory.shared[..1032], [0; 1032]);
    assert_eq!(lab.b.memory.atomics, 1);
    assert_eq!(lab.b.memory.shared[2048..2348], [9; 300]);
    let counters = lab.b.qp.counters();
    assert!(counters.duplicates + counters.dropped(DropReason::StaleDuplicate) > 4);
}
