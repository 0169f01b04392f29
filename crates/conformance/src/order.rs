//! Order within a queue pair, and of bytes and completions.

use std::sync::atomic::{AtomicU32, Ordering};

use adverb_verbs::{
    Imm, MemoryRegion, Operation, QueuePair, SendFlags, SendRequest, WcStatus, WrId,
};

use crate::pair::{BLANK, Pair, SIGNALED, UNSIGNALED, completions, wait_for};
use crate::{Subject, Verdict};

/// Requests of a queue complete in the order of posting, on both sides, whatever their kind
/// (IBTA vol. 1, 10.8.3.1, 9.5).
pub fn completions_come_in_post_order<D: Subject>(device: &D) -> Verdict {
    let pair = Pair::new(device);
    let (a, b) = (&pair.a, &pair.b);
    let to = b.mr.remote(4096);
    for round in 0..20 {
        let base = round * 100;
        (0..20).for_each(|i| b.recv(base + i, (0, 64)));
        for i in 0..40 {
            let (operation, length) = match i % 5 {
                0 => (Operation::RdmaRead(to), 8192),
                1 => (Operation::Send, 64),
                2 => (Operation::RdmaWrite(to), 1),
                3 => (Operation::RdmaWriteWithImm(to, Imm(i)), 4096),
                _ => (Operation::RdmaWrite(to), 0),
            };
            a.post(base + u64::from(i), operation, (0, length), SIGNALED);
        }
        let sent: Vec<_> = (base..base + 40).map(|i| (i, WcStatus::Success)).collect();
        a.expect_sent(&sent);
        b.expect_received(
            &(base..base + 16)
                .map(|i| (i, WcStatus::Success))
                .collect::<Vec<_>>(),
        );
        // Four receives are left over: use them up.
        (0..4).for_each(|i| a.post(i, Operation::Send, (0, 0), SIGNALED));
        a.sent(4);
        b.received(4);
    }
    Ok(())
}

const ROUNDS: u32 = 300;
const PAYLOAD: u32 = 6000;

/// Runs `post` with each round's number on a thread, and `check` here; neither gets ahead.
fn alternate(post: impl Fn(u32) + Send, check: impl Fn(u32)) {
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            for round in 1..=ROUNDS {
                wait_for("the other side", || {
                    done.load(Ordering::Acquire) == round - 1
                });
                post(round);
            }
        });
        for round in 1..=ROUNDS {
            check(round);
            done.store(round, Ordering::Release);
        }
    });
}

/// WRITEs of a queue pair become visible in post order: when the later one is seen, so is the
/// earlier (IBTA vol. 1, 9.5).
pub fn a_write_that_is_visible_implies_the_earlier_ones<D: Subject>(device: &D) -> Verdict {
    let pair = Pair::new(device);
    let (a, b) = (&pair.a, &pair.b);
    let (qp, mr, cq) = (&a.qp, &a.mr, &*a.send_cq);
    let (payload, flag) = (b.mr.remote(1), b.mr.remote(16_000));
    let post = |round: u32| {
        mr.write(0, &[round as u8; PAYLOAD as usize])
            .expect("within the region");
        let whole = [mr.sge(0, PAYLOAD).expect("within the region")];
        let byte = [mr.sge(0, 1).expect("within the region")];
        let requests = [
            SendRequest::new(WrId(1), Operation::RdmaWrite(payload), &whole),
            SendRequest::new(WrId(2), Operation::RdmaWrite(flag), &byte).with_flags(SIGNALED),
        ];
        qp.post_send(&requests).expect("post");
        completions(cq, 1);
    };
    alternate(post, |round| {
        wait_for("the flag", || b.mr.load(16_000) == Ok(round as u8));
        assert!(
            b.bytes(1, PAYLOAD as usize)
                .iter()
                .all(|byte| *byte == round as u8)
        );
    });
    Ok(())
}

/// The completion of a receive implies that the WRITEs posted before its SEND are placed (IBTA
/// vol. 1, 9.5; 10.8.3.3).
pub fn a_receive_completion_implies_the_earlier_writes<D: Subject>(device: &D) -> Verdict {
    let pair = Pair::new(device);
    let (a, b) = (&pair.a, &pair.b);
    let (qp, mr, cq) = (&a.qp, &a.mr, &*a.send_cq);
    let payload = b.mr.remote(1);
    b.recv(0, (20_000, 64));
    let post = |round: u32| {
        mr.write(0, &[round as u8; PAYLOAD as usize])
            .expect("within the region");
        let whole = [mr.sge(0, PAYLOAD).expect("within the region")];
        let requests = [
            SendRequest::new(WrId(1), Operation::RdmaWrite(payload), &whole),
            SendRequest::new(WrId(2), Operation::Send, &whole[..0]).with_flags(SIGNALED),
        ];
        qp.post_send(&requests).expect("post");
        completions(cq, 1);
    };
    alternate(post, |round| {
        b.expect_received(&[(u64::from(round) - 1, WcStatus::Success)]);
        assert!(
            b.bytes(1, PAYLOAD as usize)
                .iter()
                .all(|byte| *byte == round as u8)
        );
        b.recv(round.into(), (20_000, 64));
    });
    Ok(())
}

/// A READ returns what an earlier WRITE of the same queue pair placed (IBTA vol. 1, 9.5: the
/// responder executes in order).
pub fn a_read_sees_the_earlier_write<D: Subject>(device: &D) -> Verdict {
    let pair = Pair::new(device);
    let (a, b) = (&pair.a, &pair.b);
    for round in 0..200u8 {
        a.mr.write(0, &[round; 3000]).expect("within the region");
        a.post(
            1,
            Operation::RdmaWrite(b.mr.remote(5)),
            (0, 3000),
            UNSIGNALED,
        );
        a.post(
            2,
            Operation::RdmaRead(b.mr.remote(5)),
            (8192, 3000),
            SIGNALED | SendFlags::FENCE,
        );
        a.expect_sent(&[(2, WcStatus::Success)]);
        assert!(a.bytes(8192, 3000).iter().all(|byte| *byte == round));
    }
    Ok(())
}

/// A completion comes only after the bytes are placed: those of a READ are there when it is
/// polled, by whichever thread (IBTA vol. 1, 10.8.3.3).
pub fn a_completed_read_has_been_placed<D: Subject>(device: &D) -> Verdict {
    let pair = Pair::new(device);
    let (a, b) = (&pair.a, &pair.b);
    let (qp, mr, peer) = (&a.qp, &a.mr, &b.mr);
    let from = peer.remote(3);
    a.fill(BLANK);
    let post = |round: u32| {
        peer.write(3, &[round as u8; PAYLOAD as usize])
            .expect("within the region");
        let whole = [mr.sge(0, PAYLOAD).expect("within the region")];
        let request = SendRequest::new(WrId(1), Operation::RdmaRead(from), &whole);
        qp.post_send(&[request.with_flags(SIGNALED)]).expect("post");
    };
    alternate(post, |round| {
        completions(&*a.send_cq, 1);
        assert!(
            a.bytes(0, PAYLOAD as usize)
                .iter()
                .all(|byte| *byte == round as u8)
        );
    });
    Ok(())
}
