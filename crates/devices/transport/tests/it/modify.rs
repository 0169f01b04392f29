//! Modify QP of a connection: RTR to RTS, SQD, other timers and retry counts.

use crate::lab::memory::{REMOTE, piece};
use crate::lab::steps::{receive, statuses, syndromes, work};
use crate::lab::{Delivery, Lab, Side, config, connected, quiet};
use adverb_transport::{RcConfig, RcQp, RequesterConfig, Work};
use adverb_units::{Span, Time};
use adverb_verbs::{AckTimeout, Psn, QpAttr, QpState, RetryCount, RnrTimer, WcStatus};
use adverb_wire::Syndrome;

fn post(lab: &mut Lab<RcQp>, id: u64, operation: Work) {
    crate::lab::steps::post(lab, work(id, operation, piece(0, 8)));
}

#[test]
fn a_connection_in_rtr_receives_and_sends_after_rts() {
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
        Box::new(|_| Delivery::Pass),
    );
    // It already receives from the peer.
    lab.a.qp.post_receive(receive(3, 8)).unwrap();
    let send = work(2, Work::Send, piece(0, 8));
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
fn no_request_begins_in_sqd() {
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
fn a_request_that_has_begun_is_finished_in_sqd() {
    let mut lab = quiet();
    post(&mut lab, 1, Work::Send);
    post(&mut lab, 2, Work::Write(REMOTE));
    while lab.a.qp.counters().rnr_naks == 0 {
        assert!(lab.step());
    }
    assert!(!lab.a.qp.is_draining());
    lab.a.qp.modify(&QpAttr::to(QpState::Sqd));
    assert!(lab.a.qp.is_draining());
    lab.receive_after(Side::B, Span::from_us(1), receive(5, 8));
    lab.run();
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::Success)]);
    assert!(!lab.a.qp.is_draining());
    lab.a.qp.modify(&QpAttr::to(QpState::Rts));
    lab.run();
    let expected = [(1, WcStatus::Success), (2, WcStatus::Success)];
    assert_eq!(statuses(&lab.a.completions), expected);
}

#[test]
fn new_retry_counts_and_timeouts_apply_to_the_next_request() {
    let mut lab = connected(
        &config(Side::A),
        &config(Side::B),
        Box::new(|_| Delivery::Drop),
    );
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
fn rnr_naks_have_the_new_timer() {
    let mut lab = quiet();
    let timer = RnrTimer::new(9).unwrap();
    let mut attr = QpAttr::default();
    attr.min_rnr_timer = Some(timer);
    lab.b.qp.modify(&attr);
    lab.receive_after(Side::B, Span::from_us(20), receive(5, 8));
    post(&mut lab, 1, Work::Send);
    lab.run();
    assert_eq!(syndromes(&lab)[0], Syndrome::RnrNak(timer));
    assert_eq!(statuses(&lab.a.completions), [(1, WcStatus::Success)]);
}

#[test]
fn max_rd_atomic_can_be_changed_in_sqd() {
    let mut config_a = config(Side::A);
    config_a.requester.max_reads = 0;
    let mut lab = connected(&config_a, &config(Side::B), Box::new(|_| Delivery::Pass));
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
