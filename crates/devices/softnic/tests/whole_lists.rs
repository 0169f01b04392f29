//! Lists that are posted completely or not at all, and completion queues that change their size.
#![allow(unsafe_code)]

mod common;

use adverb_softnic::SoftQp;
use adverb_units::Bytes;
use adverb_verbs::{
    CompletionQueue, CreateError, MemoryRegion, Operation, PollError, PostErrorCause, QpCaps,
    QueuePair, SendFlags, SendRequest, Sge, WorkCompletion, WrId,
};
use common::{End, connect, isolated};

const DEPTH: u32 = 4;

/// Two connected queue pairs, each with [`DEPTH`] send requests, and their ends.
fn pair() -> (End, SoftQp, End, SoftQp) {
    let (near, far) = (End::new(Bytes::new(4096)), End::new(Bytes::new(4096)));
    let caps = QpCaps {
        max_send_wr: DEPTH,
        max_send_sge: 1,
        ..QpCaps::default()
    };
    let (a, b) = (near.qp_of(caps), far.qp_of(caps));
    connect(&near, &a, b.qpn());
    connect(&far, &b, a.qpn());
    (near, a, far, b)
}

/// Requests to write the first byte of `far`, each with its SGEs.
fn writes<'a>(far: &End, sges: &'a [&'a [Sge<'a>]]) -> Vec<SendRequest<'a>> {
    let request = |sges: &&'a [Sge<'a>]| {
        let write = Operation::RdmaWrite(far.mr.remote(0));
        SendRequest::new(WrId(7), write, sges).with_flags(SendFlags::SIGNALED)
    };
    sges.iter().map(request).collect()
}

#[test]
fn a_list_with_an_invalid_request_is_not_posted_at_all() {
    isolated(
        "a_list_with_an_invalid_request_is_not_posted_at_all",
        || {
            let (near, a, far, _b) = pair();
            let (one, two) = (
                [near.mr.sge(0, 1).unwrap()],
                [near.mr.sge(0, 1).unwrap(); 2],
            );
            let refused = a
                .post_send_all(&writes(&far, &[&one, &two, &one]))
                .unwrap_err();
            assert_eq!(refused.index, 1);
            assert_eq!(
                refused.cause,
                PostErrorCause::TooManySges { given: 2, max: 1 }
            );
            assert_eq!(near.poll(), []);
            a.post_send_all(&writes(&far, &[&one, &one])).unwrap();
            assert_eq!(near.poll().len(), 2);
        },
    );
}

#[test]
fn a_list_that_exceeds_the_free_entries_is_not_posted_at_all() {
    isolated(
        "a_list_that_exceeds_the_free_entries_is_not_posted_at_all",
        || {
            let (near, a, far, _b) = pair();
            let one = [near.mr.sge(0, 1).unwrap()];
            let list: [&[Sge<'_>]; DEPTH as usize + 1] = [&one; DEPTH as usize + 1];
            let refused = a.post_send_all(&writes(&far, &list)).unwrap_err();
            assert_eq!(refused.index, DEPTH as usize);
            let queue = "send";
            assert_eq!(
                refused.cause,
                PostErrorCause::QueueFull {
                    queue,
                    depth: DEPTH
                }
            );
            assert_eq!(near.poll(), []);
            a.post_send_all(&writes(&far, &list[1..])).unwrap();
            assert_eq!(near.poll().len(), DEPTH as usize);
        },
    );
}

#[test]
fn a_list_is_refused_before_the_queue_pair_is_connected() {
    isolated(
        "a_list_is_refused_before_the_queue_pair_is_connected",
        || {
            let end = End::new(Bytes::new(4096));
            let qp = end.qp();
            let one = [end.mr.sge(0, 1).unwrap()];
            for list in [&[&one[..]][..], &[&one[..], &one[..]]] {
                let refused = qp.post_send_all(&writes(&end, list)).unwrap_err();
                let cause = refused.cause.to_string();
                assert_eq!(cause, "the queue pair is in RESET: bring it to RTS first");
            }
        },
    );
}

#[test]
fn a_completion_queue_shrinks_to_the_completions_that_wait_but_not_below() {
    isolated(
        "a_completion_queue_shrinks_to_the_completions_that_wait_but_not_below",
        || {
            let (near, a, far, _b) = pair();
            let one = [near.mr.sge(0, 1).unwrap()];
            near.cq.resize(1).unwrap();
            assert_eq!(near.cq.entries(), 1);
            near.cq.resize(3).unwrap();
            a.post_send_all(&writes(&far, &[&one, &one])).unwrap();
            let refused = near.cq.resize(1).unwrap_err();
            assert!(
                matches!(refused, CreateError::OutOfRange { min: 2, .. }),
                "{refused}"
            );
            near.cq.resize(2).unwrap();
            assert_eq!(near.poll().len(), 2);
            a.post_send_all(&writes(&far, &[&one, &one, &one])).unwrap();
            let mut completions = [WorkCompletion::default(); 4];
            let overrun = near.cq.poll(&mut completions).unwrap_err();
            assert_eq!(overrun, PollError::Overrun { entries: 2 });
        },
    );
}
