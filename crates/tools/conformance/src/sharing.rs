//! Queues shared by several queue pairs and several threads.

use std::collections::HashMap;

use adverb_verbs::{
    CompletionQueue, MemoryRegion, Operation, PollError, PostErrorCause, QueuePair, RecvRequest,
    SendRequest, Station, WcOpcode, WcStatus, WorkCompletion, WrId,
};

use crate::end::{SLICE, expect_nothing, poll};
use crate::pair::{End, Pair, SIGNALED, Setup, TIMEOUT, completions, connect};
use crate::{Fixture, Verdict};

/// One queue takes the completions of sends and receives; each queue keeps its order (IBTA
/// vol. 1, 11.2.5: both may be the same completion queue).
pub fn sends_and_receives_share_a_completion_queue<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup {
        one_cq: true,
        ..Setup::default()
    };
    let pair = Pair::with(fixture, setup);
    let (a, b) = (&pair.a, &pair.b);
    for end in [a, b] {
        (0..20).for_each(|i| end.recv(100 + i, (0, 8)));
    }
    for i in 0..20 {
        a.post(i, Operation::Send, (0, 8), SIGNALED);
        b.post(i, Operation::Send, (0, 8), SIGNALED);
    }
    for end in [a, b] {
        let found = end.sent(40);
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

/// Completions of many queue pairs share one queue; none is lost, each names its queue pair,
/// and each queue pair's are in order (IBTA vol. 1, 10.8.3.1).
pub fn many_queue_pairs_complete_into_one_queue<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    const QPS: usize = 100;
    const EACH: u64 = 30;
    let setup = Setup {
        entries: QPS as u32 * EACH as u32 * 2,
        ..Setup::default()
    };
    let pair = Pair::with(fixture, setup);
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
        for completion in completions(fixture.station(), cq, QPS * EACH as usize) {
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

const POSTERS: u32 = 3;
const RECEIVERS: u32 = 2;
/// Requests of each poster, and receives of each receiver.
const EACH: [u64; 2] = [2000, 3000];

/// Queues may be used from several threads: each request and each completion counts once (IBTA
/// vol. 1, 10.2.1: verbs are thread-safe).
pub fn threads_share_a_queue_pair<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    if fixture.is_helper() {
        let [end] = fixture.given()?;
        return match fixture.helper_number() {
            number @ 0..POSTERS => post_and_reap(fixture, &end, number.into()),
            _ => receive_and_reap(fixture, &end),
        };
    }
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    for number in 0..POSTERS + RECEIVERS {
        fixture.start(number, &[if number < POSTERS { a } else { b }]);
    }
    let seen = (0..POSTERS + RECEIVERS).flat_map(|number| fixture.hear(number));
    let seen: Vec<u8> = seen.collect();
    let name = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
    let mut seen: Vec<u64> = seen.chunks_exact(8).map(name).collect();
    seen.sort_unstable();
    let all: Vec<u64> = (0..u64::from(POSTERS) * EACH[0]).collect();
    assert!(seen == all, "a request has completed twice or never");
    a.expect_quiet();
    b.expect_quiet();
    Ok(())
}

/// Posts requests, takes as many completions of any role, and reports them to the main role.
fn post_and_reap<S: Station>(fixture: Fixture<'_, S>, a: &End<'_, S>, number: u64) -> Verdict {
    let mut seen = Vec::new();
    for i in number * EACH[0]..(number + 1) * EACH[0] {
        while let Err(error) = a.try_post(i, Operation::Send, (0, 16), SIGNALED) {
            let full = matches!(error.cause, PostErrorCause::QueueFull { .. });
            assert!(full, "{error}");
            reap(a, &mut seen);
        }
    }
    let deadline = fixture.station().now() + TIMEOUT * 4;
    while seen.len() < EACH[0] as usize {
        let late = fixture.station().now() > deadline;
        assert!(!late, "a completion is lost");
        reap(a, &mut seen);
    }
    let seen = seen.into_iter().flat_map(u64::to_ne_bytes);
    fixture.tell_main(&seen.collect::<Vec<_>>());
    Ok(())
}

/// Takes completions, if this role has not taken its share; the others take what is left.
fn reap<S: Station>(a: &End<'_, S>, seen: &mut Vec<u64>) {
    let mut into = [WorkCompletion::default(); 16];
    let room = (EACH[0] as usize - seen.len()).min(into.len());
    if room == 0 {
        return a.station().sleep(SLICE);
    }
    let n = poll(a.station(), &a.send_cq, &mut into[..room], SLICE);
    for completion in &into[..n] {
        assert_eq!(completion.status, WcStatus::Success);
        seen.push(completion.wr_id.0);
    }
}

/// Posts receives and takes as many arrivals.
fn receive_and_reap<S: Station>(fixture: Fixture<'_, S>, b: &End<'_, S>) -> Verdict {
    let (mut posted, mut taken) = (0, 0);
    let deadline = fixture.station().now() + TIMEOUT * 4;
    while posted < EACH[1] || taken < EACH[1] {
        let late = fixture.station().now() > deadline;
        assert!(!late, "an arrival is lost");
        while posted < EACH[1] && b.try_recv(0, (0, 16)).is_ok() {
            posted += 1;
        }
        let mut into = [WorkCompletion::default(); 16];
        let room = (EACH[1] - taken).min(16) as usize;
        let n = match room {
            0 => 0,
            _ => poll(fixture.station(), &b.recv_cq, &mut into[..room], SLICE),
        };
        let is_whole = |c: &WorkCompletion| c.status.is_success() && c.byte_len == 16;
        assert!(into[..n].iter().all(is_whole), "{into:?}");
        taken += n as u64;
    }
    fixture.done()
}

/// More completions than entries: some are lost, which polling reports, at once or after what is
/// there (IBTA vol. 1, 11.6.3.1).
pub fn an_overrun_is_reported<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup {
        entries: 8,
        ..Setup::default()
    };
    let pair = Pair::with(fixture, setup);
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
    // Over a network this takes time. No completions are taken in the meantime, but both sides are polled, so
    // that they process what has arrived.
    expect_nothing(fixture.station(), &[&b.recv_cq, &a.recv_cq]);
    let deadline = fixture.station().now() + TIMEOUT;
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
            fixture.station().now() < deadline,
            "no overrun reported after {found} completions"
        );
    }
    Ok(())
}
