//! Queues shared by several queue pairs and several threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use adverb_verbs::{
    CompletionQueue, Device, MemoryRegion, Operation, PollError, PostErrorCause, QueuePair,
    RecvRequest, SendRequest, WcOpcode, WcStatus, WorkCompletion, WrId,
};

use crate::pair::{PATIENCE, Pair, QUIET, SIGNALED, Setup, completions, connect};
use crate::{Subject, Verdict};

/// One queue takes the completions of sends and receives; each queue keeps its order (IBTA
/// vol. 1, 11.2.5: both may be the same completion queue).
pub fn sends_and_receives_share_a_completion_queue<D: Device>(device: &D) -> Verdict {
    let setup = Setup {
        one_cq: true,
        ..Setup::default()
    };
    let pair = Pair::with(device, setup);
    let (a, b) = (&pair.a, &pair.b);
    for end in [a, b] {
        (0..20).for_each(|i| end.recv(100 + i, (0, 8)));
    }
    for i in 0..20 {
        a.post(i, Operation::Send, (0, 8), SIGNALED);
        b.post(i, Operation::Send, (0, 8), SIGNALED);
    }
    for end in [a, b] {
        let found = completions(&*end.send_cq, 40);
        assert!(found.iter().all(|c| c.status.is_success()));
        let of = |opcode| {
            let these = found.iter().filter(move |c| c.opcode == opcode);
            these.map(|c| c.wr_id.0).collect::<Vec<_>>()
        };
        assert_eq!(of(WcOpcode::Send), (0..20).collect::<Vec<_>>());
        assert_eq!(of(WcOpcode::Recv), (100..120).collect::<Vec<_>>());
        end.expect_quiet();
    }
    Ok(())
}

/// Completions of many queue pairs come into one queue; none is lost, each names its queue pair,
/// and each queue pair's are in order (IBTA vol. 1, 10.8.3.1).
pub fn many_queue_pairs_complete_into_one_queue<D: Device>(device: &D) -> Verdict {
    const QPS: usize = 100;
    const EACH: u64 = 30;
    let setup = Setup {
        entries: QPS as u32 * EACH as u32 * 2,
        ..Setup::default()
    };
    let pair = Pair::with(device, setup);
    let (a, b) = (&pair.a, &pair.b);
    let connected = |_| {
        let (from, to) = (a.another_qp(&setup), b.another_qp(&setup));
        connect((&a.context, &from), (&b.context, &to), &setup);
        (from, to)
    };
    let qps: Vec<_> = (0..QPS).map(connected).collect();
    for i in 0..EACH {
        for (n, (from, to)) in qps.iter().enumerate() {
            let at = [b.mr.sge(n as u64 * 8, 8).expect("within the region")];
            to.post_recv(&[RecvRequest::new(WrId(i), &at)])
                .expect("post");
            let at = [a.mr.sge(n as u64 * 8, 8).expect("within the region")];
            let request = SendRequest::new(WrId(i), Operation::Send, &at);
            from.post_send(&[request.with_flags(SIGNALED)])
                .expect("post");
        }
    }
    for cq in [&a.send_cq, &b.recv_cq] {
        let mut next = HashMap::new();
        for completion in completions(&**cq, QPS * EACH as usize) {
            assert_eq!(completion.status, WcStatus::Success);
            let next: &mut u64 = next.entry(completion.qp_num).or_default();
            assert_eq!(completion.wr_id.0, *next);
            *next += 1;
        }
        assert_eq!(next.len(), QPS);
        let known = |qpn| {
            qps.iter()
                .any(|(from, to)| from.qpn() == qpn || to.qpn() == qpn)
        };
        assert!(next.keys().all(|qpn| known(*qpn)));
    }
    a.expect_quiet();
    b.expect_quiet();
    Ok(())
}

/// Queues may be used from several threads: each request and each completion counts once (IBTA
/// vol. 1, 10.2.1: verbs are thread-safe).
pub fn threads_share_a_queue_pair<D: Subject>(device: &D) -> Verdict {
    const THREADS: u64 = 3;
    const EACH: u64 = 2000;
    let pair = Pair::new(device);
    let (a, b) = (&pair.a, &pair.b);
    let seen: Vec<_> = (0..THREADS * EACH).map(|_| AtomicU32::new(0)).collect();
    let arrived = AtomicU32::new(0);
    let all = (THREADS * EACH) as u32;
    let deadline = Instant::now() + PATIENCE * 4;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (qp, mr, cq, seen) = (&a.qp, &a.mr, &*a.send_cq, &seen);
            scope.spawn(move || {
                let sges = [mr.sge(0, 16).expect("within the region")];
                for i in thread * EACH..(thread + 1) * EACH {
                    let request = SendRequest::new(WrId(i), Operation::Send, &sges);
                    while let Err(error) = qp.post_send(&[request.with_flags(SIGNALED)]) {
                        let full = matches!(error.cause, PostErrorCause::QueueFull { .. });
                        assert!(full && Instant::now() < deadline, "{error}");
                        reap(cq, seen);
                    }
                    if i % 4 == 0 {
                        reap(cq, seen);
                    }
                }
                let is_seen = |n: &AtomicU32| n.load(Ordering::Relaxed) != 0;
                while !seen.iter().all(is_seen) {
                    assert!(Instant::now() < deadline, "a completion is lost");
                    reap(cq, seen);
                }
            });
        }
        for _ in 0..2 {
            let (qp, mr, cq, arrived) = (&b.qp, &b.mr, &*b.recv_cq, &arrived);
            scope.spawn(move || {
                let sges = [mr.sge(0, 16).expect("within the region")];
                while arrived.load(Ordering::Relaxed) < all {
                    assert!(Instant::now() < deadline, "an arrival is lost");
                    let _ = qp.post_recv(&[RecvRequest::new(WrId(0), &sges)]);
                    let mut into = [WorkCompletion::default(); 4];
                    let n = cq.poll(&mut into).expect("poll");
                    assert!(
                        into[..n]
                            .iter()
                            .all(|c| c.status.is_success() && c.byte_len == 16)
                    );
                    arrived.fetch_add(n as u32, Ordering::Relaxed);
                    std::thread::yield_now();
                }
            });
        }
    });
    assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    assert_eq!(arrived.load(Ordering::Relaxed), all);
    a.expect_quiet();
    b.expect_quiet();
    Ok(())
}

fn reap<Q: CompletionQueue>(cq: &Q, seen: &[AtomicU32]) {
    let mut into = [WorkCompletion::default(); 8];
    let n = cq.poll(&mut into).expect("poll");
    for completion in &into[..n] {
        assert_eq!(completion.status, WcStatus::Success);
        seen[completion.wr_id.0 as usize].fetch_add(1, Ordering::Relaxed);
    }
    if n == 0 {
        std::thread::yield_now();
    }
}

/// More completions than entries: some are lost, which polling reports, at once or after what is
/// there (IBTA vol. 1, 11.6.3.1).
pub fn an_overrun_is_reported<D: Device>(device: &D) -> Verdict {
    let setup = Setup {
        entries: 8,
        ..Setup::default()
    };
    let pair = Pair::with(device, setup);
    let (a, b) = (&pair.a, &pair.b);
    let entries = a.send_cq.entries();
    let qps: Vec<_> = (0..=entries / 64)
        .map(|_| {
            let (from, to) = (a.another_qp(&setup), b.another_qp(&setup));
            connect((&a.context, &from), (&b.context, &to), &setup);
            (from, to)
        })
        .collect();
    for i in 0..=entries {
        let request = SendRequest::new(WrId(i.into()), Operation::RdmaWrite(b.mr.remote(0)), &[]);
        let from = &qps[i as usize / 64].0;
        from.post_send(&[request.with_flags(SIGNALED)])
            .expect("post");
    }
    // A network takes a while to complete them all. Nobody takes completions meanwhile, but each side
    // is polled, and so takes what has come.
    let until = Instant::now() + QUIET;
    for round in 0.. {
        if round > 16 && Instant::now() > until {
            break;
        }
        for cq in [&b.recv_cq, &a.recv_cq] {
            let mut none = [WorkCompletion::default()];
            assert_eq!(cq.poll(&mut none), Ok(0));
        }
    }
    let deadline = Instant::now() + PATIENCE;
    let mut found = 0;
    loop {
        let mut into = [WorkCompletion::default(); 4];
        match a.send_cq.poll(&mut into) {
            Ok(n) => found += n,
            Err(error) => {
                assert_eq!(error, PollError::Overrun { entries });
                break;
            }
        }
        assert!(found <= entries as usize, "more completions than entries");
        assert!(
            Instant::now() < deadline,
            "no overrun reported after {found} completions"
        );
    }
    Ok(())
}
