//! RC responses that do not fit what was asked: which are dropped, and which end the connection (IBTA
//! vol. 1, 9.7.5.1, 9.9.2.4).

use crate::lab::memory::{REMOTE, piece};
use crate::lab::steps::{MTU, post, statuses, work};
use crate::lab::{Lab, Side, config, connected, quiet};
use adverb_transport::{DropReason, RcQp, Work};
use adverb_verbs::{QpState, RetryCount, RnrTimer, WcStatus};
use adverb_wire::bth::BthFlags;
use adverb_wire::{
    Aeth, AtomicAckEth, Bth, Credits, Extension, NakCode, Opcode, Packet, PacketHeaders, Syndrome,
};

const fn aeth(syndrome: Syndrome) -> Aeth {
    Aeth { syndrome, msn: 1 }
}

fn ack() -> Aeth {
    aeth(Syndrome::Ack(Credits::NONE))
}

const fn nak(code: NakCode) -> Extension {
    Extension::Ack(aeth(Syndrome::Nak(code)))
}

/// A response `ahead` packets behind A's first, straight to A.
fn answer(
    lab: &mut Lab<RcQp>,
    (opcode, extension): (Opcode, Extension),
    payload: &[u8],
    ahead: u32,
) -> Result<(), DropReason> {
    let psn = config(Side::A).requester.first_psn.advance(ahead);
    let bth = Bth::new(opcode, config(Side::A).qpn, psn).padded_for(payload.len());
    let headers = PacketHeaders::new(bth, extension);
    let packet = Packet { headers, payload };
    let taken = lab.a.qp.handle_packet(lab.now, &packet, &mut lab.a.memory);
    lab.flush();
    taken
}

/// A lab in which A has sent a request that nobody has answered.
fn asked(request: Work, length: usize) -> Lab<RcQp> {
    let mut lab = quiet();
    lab.rule(|_| crate::lab::Delivery::Drop);
    post(&mut lab, work(1, request, piece(0, length)));
    lab.flush();
    lab
}

#[test]
fn an_answer_of_another_kind_or_length_ends_the_connection() {
    let (first, last) = (Opcode::RcReadResponseFirst, Opcode::RcReadResponseLast);
    let (middle, only) = (Opcode::RcReadResponseMiddle, Opcode::RcReadResponseOnly);
    let ack = Extension::Ack(ack());
    let found = (
        Opcode::RcAtomicAck,
        Extension::AtomicAck(self::ack(), AtomicAckEth { original: 1 }),
    );
    let read = Work::Read(REMOTE);
    let wrong: [(Work, usize, (Opcode, Extension), usize); 7] = [
        (read, 8, found, 0),
        (Work::FetchAdd(REMOTE, 1), 8, (only, ack), 8),
        (read, 8, (only, ack), 4),
        (read, 8, (only, ack), 12),
        (read, 8, (first, ack), MTU),
        (read, 2 * MTU, (middle, Extension::None), MTU - 4),
        (read, 3 * MTU, (last, ack), 8),
    ];
    for (request, length, response, bytes) in wrong {
        let mut lab = asked(request, length);
        let taken = answer(&mut lab, response, &[1; MTU][..bytes], 0);
        assert_eq!(
            taken,
            Err(DropReason::BadResponse),
            "{request:?} {response:?}"
        );
        let ended = statuses(&lab.a.completions);
        assert_eq!(ended, [(1, WcStatus::Other(7))], "bad response");
        assert_eq!(lab.a.qp.state(), QpState::Err);
        assert_eq!(lab.a.memory.local[..MTU], [0; MTU]);
    }
    // Data that answers a WRITE, and a NAK that has no meaning.
    let mut lab = asked(Work::Write(REMOTE), 8);
    let taken = answer(&mut lab, (only, ack), &[1; 8], 0);
    assert_eq!(taken, Err(DropReason::BadResponse));
    let mut lab = asked(Work::Write(REMOTE), 8);
    let strange = (Opcode::RcAck, nak(NakCode::Reserved(9)));
    assert_eq!(
        answer(&mut lab, strange, &[], 0),
        Err(DropReason::BadResponse)
    );
}

#[test]
fn a_peer_that_reports_no_credits_is_sent_to_nevertheless() {
    let mut lab = asked(Work::Send, 8);
    let none = aeth(Syndrome::Ack(Credits::new(0).unwrap()));
    let taken = answer(&mut lab, (Opcode::RcAck, Extension::Ack(none)), &[], 0);
    assert_eq!(taken, Ok(()));
    let before = lab.sent.len();
    for id in 2..4 {
        post(&mut lab, work(id, Work::Send, piece(0, 8)));
    }
    lab.flush();
    assert_eq!(lab.sent.len() - before, 2);
}

/// Late answers and such to what was never asked are nobody's fault: a network may keep packets of a
/// connection before (ghosts).
#[test]
fn answers_to_what_is_done_or_was_not_sent_are_dropped() {
    let ack = (Opcode::RcAck, Extension::Ack(ack()));
    let fatal = (Opcode::RcAck, nak(NakCode::RemoteAccessError));
    let sequence = (Opcode::RcAck, nak(NakCode::PsnSequenceError));
    let read = (Opcode::RcReadResponseOnly, ack.1);
    let mut lab = asked(Work::Write(REMOTE), 3 * MTU);
    for response in [ack, fatal, sequence, read] {
        let payload: &[u8] = if response == read { &[1; 8] } else { &[] };
        // A NAK names the packet after what it acknowledges.
        let is_nak = response == fatal || response == sequence;
        let nearest = if is_nak { 4 } else { 3 };
        for ahead in [nearest, 1000, 1 << 22] {
            let taken = answer(&mut lab, response, payload, ahead);
            assert_eq!(taken, Err(DropReason::UnsentResponse), "{response:?}");
        }
    }
    assert_eq!(answer(&mut lab, ack, &[], 1), Ok(()));
    for response in [fatal, sequence, read] {
        let payload: &[u8] = if response == read { &[1; 8] } else { &[] };
        let taken = answer(&mut lab, response, payload, 1);
        assert_eq!(taken, Err(DropReason::StaleResponse), "{response:?}");
    }
    assert_eq!(lab.a.qp.state(), QpState::Rts);
    assert_eq!(answer(&mut lab, ack, &[], 2), Ok(()));
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::Success)]);
    assert_eq!(lab.a.qp.poll_timeout(), None);
}

const MISSING: (Opcode, Extension) = (Opcode::RcAck, nak(NakCode::PsnSequenceError));

/// A responder reports a packet once until it arrives, so that the same report again is a copy, or forged.
#[test]
fn a_sequence_error_that_comes_again_sends_nothing_again() {
    let mut a = config(Side::A);
    a.requester.retry.retry_cnt = RetryCount::new(3).unwrap();
    let mut lab = connected(
        &a,
        &config(Side::B),
        Box::new(|_| crate::lab::Delivery::Drop),
    );
    post(&mut lab, work(1, Work::Write(REMOTE), piece(0, 8 * MTU)));
    lab.flush();
    assert_eq!(answer(&mut lab, MISSING, &[], 0), Ok(()));
    for _ in 0..100 {
        let again = answer(&mut lab, MISSING, &[], 0);
        assert_eq!(again, Err(DropReason::StaleResponse));
    }
    assert_eq!(lab.a.qp.counters().resent, 8);
    // After a timeout it is a new round.
    assert!(lab.step());
    assert_eq!(lab.a.qp.counters().timeouts, 1);
    assert_eq!(answer(&mut lab, MISSING, &[], 0), Ok(()));
    assert_eq!(lab.a.qp.counters().resent, 3 * 8);
    assert!(lab.a.completions.is_empty());
    lab.run();
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::RetryExcErr)]);
}

/// Soft-RoCE refuses a SEND without a receive, and reports the packet behind it as out of sequence, which may
/// arrive after the retransmission of the SEND. Each such NAK used to consume a retry.
#[test]
fn sequence_errors_of_a_receiver_that_is_not_ready_take_no_retry_in_the_end() {
    let timer = RnrTimer::new(1).unwrap();
    let not_ready = Extension::Ack(aeth(Syndrome::RnrNak(timer)));
    let (a, b) = (config(Side::A), config(Side::B));
    let mut lab = connected(&a, &b, Box::new(|_| crate::lab::Delivery::Drop));
    post(&mut lab, work(1, Work::Send, piece(0, 8)));
    lab.flush();
    for _ in 0..100 {
        let taken = answer(&mut lab, (Opcode::RcAck, not_ready), &[], 0);
        assert_eq!(taken, Ok(()));
        assert!(lab.step(), "it is sent again after the timer");
        assert_eq!(answer(&mut lab, MISSING, &[], 0), Ok(()));
    }
    assert_eq!(lab.a.qp.counters().timeouts, 0);
    assert!(lab.a.completions.is_empty());
}

/// A forged request has the responder report the packet after the last one. Once that took the place of the
/// acknowledgement, was dropped, and cost a timeout.
#[test]
fn a_nak_behind_the_last_packet_acknowledges_it_and_has_no_other_effect() {
    let not_ready = Extension::Ack(aeth(Syndrome::RnrNak(RnrTimer::new(1).unwrap())));
    let fatal = nak(NakCode::InvalidRequest);
    for response in [MISSING, (Opcode::RcAck, not_ready), (Opcode::RcAck, fatal)] {
        let mut lab = asked(Work::Write(REMOTE), 3 * MTU);
        let taken = answer(&mut lab, response, &[], 3);
        assert_eq!(taken, Err(DropReason::UnsentResponse));
        assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::Success)]);
        // It sends on at once.
        post(&mut lab, work(2, Work::Write(REMOTE), piece(0, MTU)));
        lab.flush();
        assert_eq!(lab.sent.len(), 4);
        assert_eq!(lab.a.qp.counters().resent, 0);
    }
}

/// A NAK behind a READ whose response is missing shows the loss, whoever caused it.
#[test]
fn a_nak_behind_a_missing_answer_has_it_asked_for_again() {
    for code in [NakCode::PsnSequenceError, NakCode::InvalidRequest] {
        let mut lab = asked(Work::Read(REMOTE), MTU);
        let taken = answer(&mut lab, (Opcode::RcAck, nak(code)), &[], 1);
        assert_eq!(taken, Err(DropReason::ResponseGap));
        assert_eq!(lab.sent.len(), 2);
    }
}

/// Forged requests make the responder report packets that are on their way. The first such report sends
/// everything again; the others send the packet that they name, until one turns out to be true.
#[test]
fn sequence_errors_after_a_false_one_cost_a_packet_each() {
    let mut lab = asked(Work::Write(REMOTE), 40 * MTU);
    let acknowledge = |lab: &mut Lab<RcQp>, at| {
        let ack = (Opcode::RcAck, Extension::Ack(ack()));
        assert_eq!(answer(lab, ack, &[], at), Ok(()));
        lab.a.qp.counters().resent
    };
    let missing = |lab: &mut Lab<RcQp>, at| {
        assert_eq!(answer(lab, MISSING, &[], at), Ok(()));
        lab.a.qp.counters().resent
    };
    assert_eq!(missing(&mut lab, 4), 36);
    // Of the packets that were sent again the one at 19 was the first to ask for an acknowledgement.
    assert_eq!(acknowledge(&mut lab, 9), 36);
    for (count, at) in [12, 16, 20].into_iter().enumerate() {
        assert_eq!(missing(&mut lab, at), 36 + 1 + count as u64);
        let probe = lab.sent.last().unwrap().headers.bth;
        assert_eq!(probe.psn, config(Side::A).requester.first_psn.advance(at));
        assert!(probe.flags.contains(BthFlags::ACK_REQ));
        acknowledge(&mut lab, at + 2);
    }
    // The responder has nothing but the probe.
    assert_eq!(missing(&mut lab, 30), 40);
    assert_eq!(acknowledge(&mut lab, 30), 40 + 9);
    let again = answer(&mut lab, MISSING, &[], 31);
    assert_eq!(again, Err(DropReason::StaleResponse));
    assert_eq!(missing(&mut lab, 35), 49 + 5);
    acknowledge(&mut lab, 39);
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::Success)]);
}

/// A refusal acknowledges all before what it refuses (9.7.5.1.2), and each has its status (table 58).
#[test]
fn each_refusal_has_its_status_and_acknowledges_what_was_before() {
    let refusals = [
        (NakCode::InvalidRequest, WcStatus::RemInvReqErr),
        (NakCode::RemoteAccessError, WcStatus::RemAccessErr),
        (NakCode::RemoteOperationalError, WcStatus::RemOpErr),
    ];
    for (code, status) in refusals {
        let mut lab = asked(Work::Write(REMOTE), 8);
        for id in 2..4 {
            post(&mut lab, work(id, Work::Write(REMOTE), piece(0, 2 * MTU)));
        }
        lab.flush();
        // In the middle of the second message.
        assert_eq!(answer(&mut lab, (Opcode::RcAck, nak(code)), &[], 2), Ok(()));
        let ended = [
            (1, WcStatus::Success),
            (2, status),
            (3, WcStatus::WrFlushErr),
        ];
        assert_eq!(statuses(&lab.a.completions), ended);
    }
}
