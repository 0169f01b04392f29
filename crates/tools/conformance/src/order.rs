//! Order within a queue pair, and of bytes and completions.

use adverb_verbs::{
    Imm, MemoryRegion, Operation, QueuePair, RemoteAddress, SendFlags, SendRequest, Station,
    WcStatus, WrId,
};

use crate::pair::{BLANK, End, Pair, SIGNALED, TIMEOUT, UNSIGNALED};
use crate::{Fixture, Verdict};

/// Requests of a queue complete in the order of posting, on both sides, whatever their kind
/// (IBTA vol. 1, 10.8.3.1, 9.5).
pub fn completions_come_in_post_order<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
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

/// Checks in each round what the helper has posted; neither gets ahead.
fn alternate<S: Station>(fixture: Fixture<'_, S>, ends: &[&End<'_, S>], check: impl Fn(u32)) {
    fixture.start(0, ends);
    for round in 1..=ROUNDS {
        check(round);
        fixture.tell(0, &[]);
    }
    fixture.hear(0);
}

/// The helper's part: posts in each round.
fn post_in_turn<S: Station>(fixture: Fixture<'_, S>, post: impl Fn(u32)) -> Verdict {
    for round in 1..=ROUNDS {
        post(round);
        fixture.hear_main()?;
    }
    fixture.done()
}

/// All bytes of a round's payload, at `offset`, have been placed.
#[track_caller]
fn assert_placed<S: Station>(end: &End<'_, S>, offset: u64, round: u32) {
    let placed = end.bytes(offset, PAYLOAD as usize);
    assert!(placed.iter().all(|byte| *byte == round as u8));
}

/// Posts a WRITE of a round's payload and a signaled request behind it, and takes the completion.
fn post_payload<S: Station>(a: &End<'_, S>, to: RemoteAddress, behind: Operation, round: u32) {
    let payload = [round as u8; PAYLOAD as usize];
    a.mr.write(0, &payload).expect("within the region");
    let whole = [a.mr.sge(0, PAYLOAD).expect("within the region")];
    let byte = [a.mr.sge(0, 1).expect("within the region")];
    let requests = [
        SendRequest::new(WrId(1), Operation::RdmaWrite(to), &whole),
        SendRequest::new(WrId(2), behind, &byte).with_flags(SIGNALED),
    ];
    a.qp.post_send(&requests).expect("post");
    a.expect_sent(&[(2, WcStatus::Success)]);
}

/// WRITEs of a queue pair become visible in post order: when the later one is seen, so is the
/// earlier (IBTA vol. 1, 9.5).
pub fn a_write_that_is_visible_implies_the_earlier_ones<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    const FLAG: u64 = 16_000;
    if fixture.is_helper() {
        let [a, b] = fixture.given()?;
        let flag = Operation::RdmaWrite(b.mr.remote(FLAG));
        return post_in_turn(fixture, |round| {
            post_payload(&a, b.mr.remote(1), flag, round);
        });
    }
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    alternate(fixture, &[a, b], |round| {
        let station = fixture.station();
        let seen = station.spin_memory(&b.mr, FLAG, round as u8, TIMEOUT);
        seen.expect("the flag");
        assert_placed(b, 1, round);
    });
    Ok(())
}

/// The completion of a receive implies that the WRITEs posted before its SEND are placed (IBTA
/// vol. 1, 9.5; 10.8.3.3).
pub fn a_receive_completion_implies_the_earlier_writes<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    if fixture.is_helper() {
        let [a, b] = fixture.given()?;
        return post_in_turn(fixture, |round| {
            post_payload(&a, b.mr.remote(1), Operation::Send, round);
        });
    }
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    b.recv(0, (20_000, 64));
    alternate(fixture, &[a, b], |round| {
        b.expect_received(&[(u64::from(round) - 1, WcStatus::Success)]);
        assert_placed(b, 1, round);
        b.recv(round.into(), (20_000, 64));
    });
    Ok(())
}

/// A READ returns what an earlier WRITE of the same queue pair placed (IBTA vol. 1, 9.5: the
/// responder executes in order).
pub fn a_read_sees_the_earlier_write<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
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

/// A completion follows the placement of the data: the data of a READ is visible to the thread that polls
/// its completion (IBTA vol. 1, 10.8.3.3).
pub fn a_completed_read_has_been_placed<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    if fixture.is_helper() {
        let [a, b] = fixture.given()?;
        let read = Operation::RdmaRead(b.mr.remote(3));
        return post_in_turn(fixture, |round| {
            let payload = [round as u8; PAYLOAD as usize];
            b.mr.write(3, &payload).expect("within the region");
            a.post(1, read, (0, PAYLOAD), SIGNALED);
        });
    }
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    a.fill(BLANK);
    alternate(fixture, &[a, b], |round| {
        a.expect_sent(&[(1, WcStatus::Success)]);
        assert_placed(a, 0, round);
    });
    Ok(())
}
