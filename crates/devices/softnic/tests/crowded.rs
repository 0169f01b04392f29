//! Completion queues with many queue pairs, where a poll looks only at marked queue pairs.

mod common;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use adverb_softnic::{SoftCq, SoftDevice, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    CompletionQueue, Context, MemoryRegion, Operation, PathMtu, PollError, QpCaps, QpInit, QpType,
    Qpn, QueuePair, RecvRequest, SendFlags, SendRequest, WcOpcode, WcStatus, WorkCompletion, WrId,
};
use common::network::{How, Network, connect_to};
use common::{End, Random, isolated};

const HOW: How = How {
    mtu: PathMtu::B1024,
    timeout: 12,
    retries: 7,
};
/// Most messages that a queue pair gets at once.
const BURST: u64 = 4;

/// Connected queue pairs of two ends, each end with one completion queue for all.
struct QueuePairs {
    here: End,
    there: End,
    pairs: Vec<(SoftQp, SoftQp)>,
}

impl QueuePairs {
    fn new(network: &Network, count: usize) -> Self {
        let (here, there) = (network.end(0, Bytes::kib(4)), network.end(1, Bytes::kib(4)));
        let pairs = (0..count).map(|_| {
            let (a, b) = (here.qp(), there.qp());
            connect_to(&a, network.address(1), b.qpn(), HOW);
            connect_to(&b, network.address(0), a.qpn(), HOW);
            (a, b)
        });
        QueuePairs {
            pairs: pairs.collect(),
            here,
            there,
        }
    }

    /// A message to pair `at` of this end, and one back, which complete here as `n`.
    fn exchange(&self, at: usize, n: u64) {
        let (a, b) = &self.pairs[at];
        for (end, qp) in [(&self.here, a), (&self.there, b)] {
            let sge = [end.mr.sge(0, 8).unwrap()];
            qp.post_recv(&[RecvRequest::new(WrId(n), &sge)]).unwrap();
        }
        send(&self.here, a, n);
        send(&self.there, b, n);
    }
}

fn send(end: &End, qp: &SoftQp, n: u64) {
    let sge = [end.mr.sge(0, 8).unwrap()];
    let request = SendRequest::new(WrId(n), Operation::Send, &sge);
    qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
        .unwrap();
}

/// What was taken of a queue, in the order of each queue pair and kind.
#[derive(Default)]
struct Tally(HashMap<(Qpn, WcOpcode), u64>);

impl Tally {
    /// Polls for `room` completions at a time until there are `wanted` in all.
    fn take(&mut self, cq: &SoftCq, (wanted, room): (u64, usize)) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.0.values().sum::<u64>() < wanted {
            assert!(Instant::now() < deadline, "of {wanted}: {:?}", self.0);
            self.poll(cq, room);
        }
        assert_eq!(self.poll(cq, 16), 0, "completions twice");
    }

    fn poll(&mut self, cq: &SoftCq, room: usize) -> usize {
        let mut all = [WorkCompletion::default(); 16];
        let count = cq.poll(&mut all[..room]).unwrap();
        for completion in &all[..count] {
            assert_eq!(completion.status, WcStatus::Success);
            let next = self.0.entry((completion.qp_num, completion.opcode));
            let next = next.or_default();
            assert_eq!(completion.wr_id, WrId(*next), "in order");
            *next += 1;
        }
        count
    }
}

fn every_completion_is_taken_once(test: &str, network: &Network, count: usize) {
    let mut random = Random::from_env(test);
    let qps = QueuePairs::new(network, count);
    let (mut here, mut there) = (Tally::default(), Tally::default());
    let mut done = vec![0; count];
    for _ in 0..20 {
        for (at, done) in done.iter_mut().enumerate() {
            // Most have nothing to do.
            for _ in 0..random.below(BURST * 4).saturating_sub(BURST * 3) {
                qps.exchange(at, *done);
                *done += 1;
            }
        }
        let wanted = 2 * done.iter().sum::<u64>();
        let room = random.within(1..17) as usize;
        here.take(&qps.here.cq, (wanted, room));
        there.take(&qps.there.cq, (wanted, room));
    }
}

#[test]
fn every_completion_of_many_queue_pairs_is_taken_once() {
    const TEST: &str = "every_completion_of_many_queue_pairs_is_taken_once";
    isolated(TEST, || {
        every_completion_is_taken_once(TEST, &Network::one_address(60), 300);
    });
}

#[test]
fn every_completion_of_many_queue_pairs_is_taken_once_over_udp() {
    const TEST: &str = "every_completion_of_many_queue_pairs_is_taken_once_over_udp";
    isolated(TEST, || {
        every_completion_is_taken_once(TEST, &Network::loopback(61), 20);
    });
}

#[test]
fn a_queue_pair_that_is_gone_leaves_nothing_for_its_successor() {
    const TEST: &str = "a_queue_pair_that_is_gone_leaves_nothing_for_its_successor";
    isolated(TEST, || {
        let network = Network::one_address(62);
        let mut qps = QueuePairs::new(&network, 8);
        (0..8).for_each(|at| qps.exchange(at, 0));
        // Marked, and listed by a poll that has room for one.
        let mut one = [WorkCompletion::default()];
        assert_eq!(qps.here.cq.poll(&mut one), Ok(1));
        qps.pairs.retain(|(a, _)| a.qpn() == one[0].qp_num);
        let mut all = [WorkCompletion::default(); 16];
        assert_eq!(qps.here.cq.poll(&mut all), Ok(1), "its other completion");
        let next = QueuePairs::new(&network, 8);
        (0..8).for_each(|at| next.exchange(at, 0));
        Tally::default().take(&next.here.cq, (16, 3));
        assert_eq!(qps.here.cq.poll(&mut all), Ok(0));
    });
}

#[test]
fn a_poll_takes_from_each_queue_pair_in_turn() {
    isolated("a_poll_takes_from_each_queue_pair_in_turn", || {
        let qps = QueuePairs::new(&Network::one_address(63), 8);
        (0..BURST).for_each(|n| (0..8).for_each(|at| qps.exchange(at, n)));
        let mut seen = Vec::new();
        for _ in 0..8 {
            let mut one = [WorkCompletion::default()];
            assert_eq!(qps.here.cq.poll(&mut one), Ok(1));
            seen.push(one[0].qp_num.get());
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 8, "{seen:?}");
    });
}

#[test]
fn an_overrun_by_many_queue_pairs_is_reported() {
    isolated("an_overrun_by_many_queue_pairs_is_reported", || {
        let end = End::new(Bytes::kib(4));
        let cq = end.context.create_cq(12, None).unwrap();
        let qps: Vec<_> = (0..12).map(|_| idle(&end, &cq)).collect();
        for (qp, to) in qps.iter().zip(qps.iter().rev()) {
            common::connect(&end, qp, to.qpn());
        }
        let write = |qp: &SoftQp| {
            let sge = [end.mr.sge(0, 8).unwrap()];
            let to = Operation::RdmaWrite(end.mr.remote(64));
            let request = SendRequest::new(WrId(0), to, &sge);
            qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
        };
        let mut all = [WorkCompletion::default(); 16];
        // As many as fit, twice: what was taken does not count.
        for _ in 0..2 {
            qps.iter().for_each(|qp| write(qp).unwrap());
            assert_eq!(cq.poll(&mut all[..5]), Ok(5));
            assert_eq!(cq.poll(&mut all), Ok(7));
        }
        qps.iter().for_each(|qp| write(qp).unwrap());
        write(&qps[3]).unwrap();
        let overrun = PollError::Overrun { entries: 12 };
        assert_eq!(cq.poll(&mut all), Err(overrun));
    });
}

#[test]
fn a_sleeper_is_woken_by_any_of_many_queue_pairs() {
    isolated("a_sleeper_is_woken_by_any_of_many_queue_pairs", || {
        let qps = QueuePairs::new(&Network::one_address(64), 70);
        for (at, (a, b)) in qps.pairs.iter().enumerate() {
            let sge = [qps.here.mr.sge(0, 8).unwrap()];
            a.post_recv(&[RecvRequest::new(WrId(0), &sge)]).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| send(&qps.there, b, 0));
                let what = format!("a message to queue pair {at}");
                qps.here.sleep_until(&what, |all| all.len() == 1);
            });
        }
    });
}

/// A queue pair of a connection that is never used.
fn idle(end: &End, cq: &SoftCq) -> SoftQp {
    let init = QpInit::new(QpType::Rc, cq, QpCaps::default());
    end.context.create_qp(&end.pd, &init).unwrap()
}

/// The shortest time of a few thousand polls that find nothing.
fn time_of_polls(cq: &SoftCq) -> Duration {
    let times = (0..20).map(|_| {
        let begin = Instant::now();
        let mut one = [WorkCompletion::default()];
        (0..2000).for_each(|_| assert_eq!(cq.poll(&mut one), Ok(0)));
        begin.elapsed()
    });
    times.min().unwrap()
}

/// A thousand times as dear before producers marked queue pairs; about as dear as one since.
#[test]
fn a_poll_of_a_thousand_queue_pairs_is_not_much_dearer_than_of_one() {
    const TEST: &str = "a_poll_of_a_thousand_queue_pairs_is_not_much_dearer_than_of_one";
    isolated(TEST, || {
        let end = End::of(SoftDevice::new(), Bytes::kib(4));
        let [few, many] = [(); 2].map(|()| end.context.create_cq(16, None).unwrap());
        let _one = idle(&end, &few);
        let _crowd: Vec<_> = (0..1000).map(|_| idle(&end, &many)).collect();
        let (one, thousand) = (time_of_polls(&few), time_of_polls(&many));
        assert!(thousand < 20 * one, "{thousand:?} after {one:?}");
    });
}
