//! Random programs on two queue pairs: completions arrive once and in order.

use crate::common::two::{SIGNALED, Two, alone};
use adverb_units::Span;
use adverb_verbs::{
    CompletionQueue, MemoryRegion, Operation, QpAttr, QpState, QpType, QueuePair, RecvRequest,
    RetryCount, Rkey, SendFlags, SendRequest, Station, WcOpcode, WcStatus, WorkCompletion, WrId,
};
use proptest::prelude::*;

/// One step of a program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Post {
        kind: u8,
        length: u32,
        signaled: bool,
    },
    PostWithWrongKey,
    Receive {
        length: u32,
    },
    Wait {
        nanos: u64,
    },
    Poll,
    Fail,
    Reconnect,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..5, 0u32..600, any::<bool>())
            .prop_map(|(kind, length, signaled)| Step::Post { kind, length, signaled }),
        1 => Just(Step::PostWithWrongKey),
        5 => (0u32..600).prop_map(|length| Step::Receive { length }),
        3 => (0u64..50_000).prop_map(|nanos| Step::Wait { nanos }),
        3 => Just(Step::Poll),
        1 => Just(Step::Fail),
        1 => Just(Step::Reconnect),
    ]
}

/// Checks the completions of a queue.
#[derive(Default)]
struct Order {
    posted: u64,
    seen: u64,
    failed: bool,
}

impl Order {
    fn begin(&mut self) {
        (self.seen, self.failed) = (self.posted, false);
    }

    fn check(&mut self, wc: &WorkCompletion) {
        let number = wc.wr_id.0 >> 1;
        assert!(number > self.seen && number <= self.posted, "{wc:?}");
        self.seen = number;
        assert!(
            !(self.failed && wc.status.is_success()),
            "{wc:?} after an error"
        );
        self.failed |= wc.status != WcStatus::Success;
    }
}

fn drain(two: &Two<'_, '_>, sends: &mut Order, receives: &mut Order) {
    for cq in &two.cqs {
        let mut wc = [WorkCompletion::default(); 8];
        while let Ok(n @ 1..) = cq.poll(&mut wc) {
            for wc in &wc[..n] {
                let is_receive = wc.wr_id.0 & 1 == 1;
                assert!(
                    !wc.status.is_success() || (wc.opcode == WcOpcode::Recv) == is_receive,
                    "{wc:?}"
                );
                if is_receive {
                    &mut *receives
                } else {
                    &mut *sends
                }
                .check(wc);
            }
        }
    }
}

fn post(two: &Two<'_, '_>, sends: &mut Order, kind: u8, length: u32, flags: SendFlags, key: u32) {
    let mut there = two.mrs[1].remote(64);
    there.rkey = Rkey(there.rkey.0 ^ key);
    let (operation, length) = match kind {
        0 => (Operation::Send, length),
        1 => (Operation::RdmaWrite(there), length),
        2 => (Operation::RdmaRead(there), length),
        3 => (Operation::FetchAdd(there, 1), 8),
        _ => (Operation::RdmaWrite(there), 0),
    };
    let sges = [two.mrs[0].sge(0, length).unwrap()];
    let name = WrId((sends.posted + 1) << 1);
    let request = SendRequest::new(name, operation, &sges).with_flags(flags);
    sends.posted += u64::from(two.qps[0].post_send(&[request]).is_ok());
}

fn play(two: &Two<'_, '_>, steps: &[Step]) {
    let (mut sends, mut receives) = (Order::default(), Order::default());
    for step in steps {
        match *step {
            Step::Post {
                kind,
                length,
                signaled,
            } => {
                let flags = if signaled {
                    SIGNALED
                } else {
                    SendFlags::empty()
                };
                post(two, &mut sends, kind, length, flags, 0);
            }
            Step::PostWithWrongKey => post(two, &mut sends, 1, 8, SIGNALED, 1 << 20),
            Step::Receive { length } => {
                let sges = [two.mrs[1].sge(0, length).unwrap()];
                let request = RecvRequest::new(WrId(((receives.posted + 1) << 1) | 1), &sges);
                receives.posted += u64::from(two.qps[1].post_recv(&[request]).is_ok());
            }
            Step::Wait { nanos } => two.station.sleep(Span::from_ns(nanos)),
            Step::Poll => drain(two, &mut sends, &mut receives),
            Step::Fail => two.qps[1].modify(&QpAttr::to(QpState::Err)).unwrap(),
            Step::Reconnect => {
                drain(two, &mut sends, &mut receives);
                for qp in &two.qps {
                    qp.modify(&QpAttr::to(QpState::Reset)).unwrap();
                }
                sends.begin();
                receives.begin();
                two.join(0, QpType::Rc, RetryCount::MAX);
                two.join(1, QpType::Rc, RetryCount::MAX);
            }
        }
    }
    two.qps[0].modify(&QpAttr::to(QpState::Err)).unwrap();
    two.qps[1].modify(&QpAttr::to(QpState::Err)).unwrap();
    two.station.sleep(Span::from_ms(1));
    drain(two, &mut sends, &mut receives);
    // In the error state every posted receive has completed.
    assert_eq!(receives.seen, receives.posted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn completions_arrive_once_and_in_order(steps in prop::collection::vec(step(), 1..60)) {
        alone(move |station| play(&Two::new(station, QpType::Rc), &steps));
    }
}

/// A WRITE that was acknowledged before the FETCH_ADD in front of it succeeded after that was flushed.
#[test]
fn nothing_succeeds_after_a_request_that_was_flushed() {
    for nanos in (0..5_000).step_by(50) {
        alone(move |station| {
            let two = Two::new(station, QpType::Rc);
            let post = |kind, signaled| Step::Post {
                kind,
                length: 0,
                signaled,
            };
            let steps = [post(3, false), post(4, true), Step::Wait { nanos }];
            play(&two, &steps);
        });
    }
}
