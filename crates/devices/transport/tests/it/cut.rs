//! A link that is cut while requests are in flight: `retry_cnt` is the number of retransmissions of every operation,
//! wherever the cut is, and also if a packet that the link still passes shows the loss (NAK, implied NAK).

use crate::lab::memory::{REMOTE, piece};
use crate::lab::steps::{MTU, post, post_receive, work};
use crate::lab::{Delivery, Sent, Side, config, connected};
use adverb_transport::{Payload, RcConfig, Work};
use adverb_units::Time;
use adverb_verbs::{Comparison, Psn, RetryCount, WcStatus};
use adverb_wire::Extension;

/// Number of requests in flight, and their length.
const REQUESTS: u64 = 6;
const LENGTH: usize = 4 * MTU;

/// Where the link is cut: after this number of packets, counted in these directions.
#[derive(Clone, Copy, Debug)]
struct Cut {
    from: &'static [Side],
    after: usize,
    /// Before the first timeout, the link still passes the packet that is sent this number of packets later.
    straggler: Option<usize>,
}

impl Cut {
    fn rule(self) -> crate::lab::Rule {
        let mut count = 0;
        let timeout = config(Side::A).requester.retry.timeout.span().unwrap();
        let until = Time::ZERO + timeout;
        Box::new(move |sent| {
            count += usize::from(self.from.contains(&sent.from));
            let is_lost = self.from.contains(&sent.from) && count > self.after;
            let is_straggler = sent.at < until && self.straggler == count.checked_sub(self.after);
            match is_lost && !is_straggler {
                true => Delivery::Drop,
                false => Delivery::Pass,
            }
        })
    }

    fn all() -> impl Iterator<Item = Cut> {
        const DIRECTIONS: [&[Side]; 3] = [&[Side::A], &[Side::B], &[Side::A, Side::B]];
        let stragglers = [None, Some(2), Some(3), Some(5)];
        let places = DIRECTIONS
            .into_iter()
            .flat_map(|from| (0..26).map(move |after| (from, after)));
        places.flat_map(move |(from, after)| {
            stragglers.map(|straggler| Cut {
                from,
                after,
                straggler,
            })
        })
    }
}

/// Posts requests, cuts the link and returns how often A sent the first packet that was never acknowledged;
/// `None` if all requests were completed before the cut.
fn transmissions((request, payload): &(Work, Payload), a: &RcConfig, cut: Cut) -> Option<usize> {
    let mut lab = connected(a, &config(Side::B), cut.rule());
    for id in 0..REQUESTS {
        post_receive(&mut lab, id, LENGTH);
        post(&mut lab, work(id, *request, payload.clone()));
    }
    lab.run();
    let failed = lab
        .a
        .completions
        .iter()
        .find(|c| c.work.status != WcStatus::Success)?;
    assert_eq!(
        failed.work.status,
        WcStatus::RetryExcErr,
        "{request:?} {cut:?}"
    );
    let mut of_a = lab.sent.iter().filter(|s| s.from == Side::A);
    // The last retransmission begins with it.
    let last = of_a.clone().map(|s| s.at).max()?;
    let oldest = of_a.clone().find(|s| s.at == last)?.headers.bth.psn;
    Some(of_a.by_ref().filter(|s| covers(s, oldest)).count())
}

/// Whether a packet requests what has this number: a READ requests several packets.
fn covers(sent: &Sent, psn: Psn) -> bool {
    let numbers = match (sent.payload, sent.headers.extension) {
        (0, Extension::Rdma(reth)) => reth.length.div_ceil(MTU as u32),
        _ => 1,
    };
    (0..numbers).any(|n| sent.headers.bth.psn.advance(n) == psn)
}

#[test]
fn every_operation_has_the_same_number_of_retransmissions_after_a_cut() {
    let add = Work::FetchAdd(REMOTE, 1);
    let swap = Work::CompareSwap(
        REMOTE,
        Comparison {
            expected: 0,
            new: 1,
        },
    );
    let large =
        [Work::Write(REMOTE), Work::Send, Work::Read(REMOTE)].map(|w| (w, piece(0, LENGTH)));
    let small = [add, swap].map(|w| (w, piece(0, 8)));
    for retries in [0, 3] {
        for max_reads in [1, 4] {
            let mut a = config(Side::A);
            a.requester.retry.retry_cnt = RetryCount::new(retries).unwrap();
            a.requester.max_reads = max_reads;
            for cut in Cut::all() {
                for operation in large.iter().chain(&small) {
                    let Some(count) = transmissions(operation, &a, cut) else {
                        continue;
                    };
                    let given = (operation.0, max_reads, cut);
                    assert_eq!(count, 1 + usize::from(retries), "{given:?}");
                }
            }
        }
    }
}
