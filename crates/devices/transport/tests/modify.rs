//! What a driver may change of a connection that is there: RTR to RTS, SQD, other timers and retries.

mod lab;

use adverb_transport::{
    Completion, Payload, RcConfig, RcQp, ReceiveWork, RequesterConfig, SendWork, Work,
};
use adverb_units::{Span, Time};
use adverb_verbs::{
    AckTimeout, Psn, QpAttr, QpState, RetryCount, RnrTimer, SendFlags, WcStatus, WrId,
};
use adverb_wire::{Extension, Opcode, Syndrome};
use lab::memory::{REMOTE, pieces};
use lab::{Fate, Lab, Side, config, connected, quiet};

fn post(lab: &mut Lab<RcQp>, id: u64, work: Work) {
    let payload = Payload::Memory(pieces(0, 8));
    let request = SendWork {
        wr_id: WrId(id),
        work,
        payload,
        flags: SendFlags::SIGNALED,
    };
    lab.a.qp.post_send(request, &lab.a.memory).unwrap();
}

fn receive(id: u64) -> ReceiveWork {
    ReceiveWork {
        wr_id: WrId(id),
        pieces: pieces(4096, 8),
    }
}

fn statuses(completions: &[Completion]) -> Vec<(u64, WcStatus)> {
    let pair = |c: &Completion| (c.work.wr_id.0, c.work.status);
    completions.iter().map(pair).collect()
}

#[test]
fn a_connection_that_only_listened_can_be_made_to_send() {
    let listening = |side| RcConfig {
        requester: RequesterConfig {
            first_psn: Psn::new(0),
            max_reads: 0,
            ..config(side).requester
        },
        ..config(side)
    };
    let mut lab = connected(
        &listening(Side::A),
        &config(Side::B),
        Box::new(|_| Fate::Pass),
    );
    // What it takes from the peer stays.
    lab.a.qp.post_receive(receive(3)).unwrap();
    let send = SendWork {
        wr_id: WrId(2),
        work: Work::Send,
        payload: Payload::Memory(pieces(0, 8)),
        flags: SendFlags::SIGNALED,
    };
    lab.b.qp.post_send(send, &lab.b.memory).unwrap();
    lab.run();
    lab.a
        .qp
        .modify(&QpAttr::to_rts(config(Side::A).requester.first_psn));
    post(&mut lab, 1, Work::Read(REMOTE));
    lab.run();
    let expected = [(3, WcStatus::Success), (1, WcStatus::Success)];
    assert_eq!(statuses(&lab.a.completions), expected);
    assert_eq!(statuses(&lab.b.completions), [(2, WcStatus::Success)]);
}

#[test]
fn while_held_no_request_begins() {
    let mut lab = quiet();
    lab.a.qp.modify(&QpAttr::to(QpState::Sqd));
    post(&mut lab, 1, Work::Write(REMOTE));
    lab.run();
    assert!(lab.sent.is_empty());
    lab.a.qp.modify(&QpAttr::to(QpState::Rts));
    lab.run();
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::Success)]);
}

#[test]
fn while_held_the_request_that_has_begun_is_finished_and_those_behind_it_wait() {
    let mut lab = quiet();
    post(&mut lab, 1, Work::Send);
    post(&mut lab, 2, Work::Write(REMOTE));
    while lab.a.qp.counters().rnr_naks == 0 {
        assert!(lab.step());
    }
    lab.a.qp.modify(&QpAttr::to(QpState::Sqd));
    lab.receive_after(Side::B, Span::from_us(1), receive(5));
    lab.run();
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::Success)]);
    lab.a.qp.modify(&QpAttr::to(QpState::Rts));
    lab.run();
    let expected = [(1, WcStatus::Success), (2, WcStatus::Success)];
    assert_eq!(statuses(&lab.a.completions), expected);
}

#[test]
fn new_retries_and_timeouts_count_from_the_next_wait_on() {
    let mut lab = connected(&config(Side::A), &config(Side::B), Box::new(|_| Fate::Drop));
    let timeout = AckTimeout::new(2);
    let mut attr = QpAttr::default();
    (attr.timeout, attr.retry_cnt) = (timeout, RetryCount::new(1));
    lab.a.qp.modify(&attr);
    post(&mut lab, 1, Work::Write(REMOTE));
    lab.run();
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::RetryExcErr)]);
    assert_eq!(lab.sent.len(), 2);
    let once = timeout.and_then(AckTimeout::span).unwrap();
    assert_eq!(lab.now, Time::ZERO + once * 2);
}

#[test]
fn the_peer_is_told_the_new_rnr_timer() {
    let mut lab = quiet();
    let timer = RnrTimer::new(9).unwrap();
    let mut attr = QpAttr::default();
    attr.min_rnr_timer = Some(timer);
    lab.b.qp.modify(&attr);
    lab.receive_after(Side::B, Span::from_us(20), receive(5));
    post(&mut lab, 1, Work::Send);
    lab.run();
    let told = lab.sent.iter().find_map(|s| match s.headers.extension {
        Extension::Ack(aeth) if s.headers.bth.opcode == Opcode::RcAck => Some(aeth.syndrome),
        _ => None,
    });
    assert_eq!(told, Some(Syndrome::RnrNak(timer)));
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::Success)]);
}

#[test]
fn a_drained_connection_takes_another_limit_of_reads() {
    let mut config_a = config(Side::A);
    config_a.requester.max_reads = 0;
    let mut lab = connected(&config_a, &config(Side::B), Box::new(|_| Fate::Pass));
    let mut attr = QpAttr::to(QpState::Sqd);
    attr.max_rd_atomic = Some(1);
    lab.a.qp.modify(&attr);
    post(&mut lab, 1, Work::Read(REMOTE));
    post(&mut lab, 2, Work::Read(REMOTE));
    lab.a.qp.modify(&QpAttr::to(QpState::Rts));
    lab.run();
    let expected = [(1, WcStatus::Success), (2, WcStatus::Success)];
    assert_eq!(statuses(&lab.a.completions), expected);
}
