//! Atomic operations: what they do, what they need, and that none is lost.

use adverb_verbs::{
    AccessFlags, AtomicCap, Comparison, Context, MemoryRegion, Operation, QpState, QueuePair,
    RemoteAddress, Rkey, SendRequest, Station, WcOpcode, WcStatus, WrId,
};

use crate::access::{BY_KEY, BY_QUEUE_PAIR};
use crate::pair::{ALL, End, Pair, SIGNALED, Setup, UNSIGNALED, connect, outcomes};
use crate::{Fixture, NotSupported, Verdict};

/// The word of B that operations work on.
const WORD: u64 = 512;
/// Where A wants what was there.
const RESULT: (u64, u32) = (64, 8);
const ATOMIC: AccessFlags = ALL.union(AccessFlags::REMOTE_ATOMIC);
/// Values whose bytes all differ, so that a swapped order shows.
const BEFORE: u64 = 0x0102_0304_0506_0708;
const OTHER: u64 = 0xf1e2_d3c4_b5a6_9788;

fn setup() -> Setup {
    Setup {
        memory_access: ATOMIC,
        access: ATOMIC,
        ..Setup::default()
    }
}

fn has_atomics<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let context = fixture.open();
    if context.caps().atomics == AtomicCap::None {
        return Err(NotSupported("atomic operations"));
    }
    Ok(())
}

fn pair<S: Station>(fixture: Fixture<'_, S>, setup: Setup) -> Result<Pair<'_, S>, NotSupported> {
    has_atomics(fixture)?;
    let pair = Pair::with(fixture, setup);
    set_word(&pair.b, WORD, BEFORE);
    Ok(pair)
}

fn set_word<S: Station>(end: &End<'_, S>, offset: u64, value: u64) {
    let bytes = value.to_ne_bytes();
    end.mr.write(offset, &bytes).expect("within the region");
}

fn word<S: Station>(end: &End<'_, S>, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    end.mr.read(offset, &mut bytes).expect("within the region");
    u64::from_ne_bytes(bytes)
}

fn swap(at: RemoteAddress, expected: u64, new: u64) -> Operation {
    Operation::CompareSwap(at, Comparison { expected, new })
}

/// Both operations at a place.
fn operations(at: RemoteAddress) -> [Operation; 2] {
    [Operation::FetchAdd(at, 5), swap(at, BEFORE, OTHER)]
}

/// A carries `operation` out on B; returns what A was given back.
fn carry_out<S: Station>(pair: &Pair<'_, S>, operation: Operation, opcode: WcOpcode) -> u64 {
    let a = &pair.a;
    set_word(a, RESULT.0, !0);
    a.post(1, operation, RESULT, SIGNALED);
    let done = a.sent(1)[0];
    assert_eq!((done.wr_id, done.status), (WrId(1), WcStatus::Success));
    assert_eq!(done.opcode, opcode);
    word(a, RESULT.0)
}

/// The word grows by the number given, modulo 2^64, and the old value is returned (IBTA vol. 1,
/// 9.4.5.1).
pub fn fetch_add_adds_and_gives_back_what_was_there<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = pair(fixture, setup())?;
    let at = pair.b.mr.remote(WORD);
    let mut expected = BEFORE;
    for addend in [0, 1, 7, 1 << 40, u64::MAX, BEFORE.wrapping_neg(), u64::MAX] {
        let operation = Operation::FetchAdd(at, addend);
        let before = carry_out(&pair, operation, WcOpcode::FetchAdd);
        assert_eq!(before, expected, "adding {addend:#x}");
        expected = expected.wrapping_add(addend);
        assert_eq!(word(&pair.b, WORD), expected, "adding {addend:#x}");
    }
    Ok(())
}

/// The word is replaced exactly if it is as expected; the old value is returned either way (IBTA
/// vol. 1, 9.4.5.2).
pub fn compare_swap_replaces_what_is_as_expected<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = pair(fixture, setup())?;
    let at = pair.b.mr.remote(WORD);
    for (expected, new, there, then) in [
        (BEFORE, OTHER, BEFORE, OTHER),
        (BEFORE, 1, OTHER, OTHER),
        (OTHER ^ 1 << 63, 1, OTHER, OTHER),
        (OTHER, 0, OTHER, 0),
        (0, u64::MAX, 0, u64::MAX),
    ] {
        let before = carry_out(&pair, swap(at, expected, new), WcOpcode::CompareSwap);
        assert_eq!(before, there);
        assert_eq!(word(&pair.b, WORD), then);
    }
    Ok(())
}

/// Nothing but the word and the result changes.
pub fn an_atomic_touches_eight_bytes_on_each_side<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = pair(fixture, setup())?;
    for operation in operations(pair.b.mr.remote(WORD)) {
        let mut a = pair.a.fill_pattern(1);
        let mut b = pair.b.fill_pattern(2);
        set_word(&pair.b, WORD, BEFORE);
        pair.a.post(1, operation, RESULT, SIGNALED);
        pair.a.expect_sent(&[(1, WcStatus::Success)]);
        let new = match operation {
            Operation::FetchAdd(_, addend) => BEFORE.wrapping_add(addend),
            _ => OTHER,
        };
        a[RESULT.0 as usize..][..8].copy_from_slice(&BEFORE.to_ne_bytes());
        b[WORD as usize..][..8].copy_from_slice(&new.to_ne_bytes());
        assert!(
            pair.a.all_bytes() == a,
            "{operation:?} changed more of A's memory"
        );
        assert!(
            pair.b.all_bytes() == b,
            "{operation:?} changed more of B's memory"
        );
    }
    Ok(())
}

/// An atomic of a connection sees what its earlier WRITEs wrote (IBTA vol. 1, 9.5, table of
/// ordering rules).
pub fn an_atomic_sees_the_earlier_write<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = pair(fixture, setup())?;
    let (a, b) = (&pair.a, &pair.b);
    for i in 0..100 {
        set_word(a, 0, OTHER + i);
        let at = b.mr.remote(WORD);
        a.post(1, Operation::RdmaWrite(at), (0, 8), UNSIGNALED);
        a.post(2, Operation::FetchAdd(at, 3), RESULT, SIGNALED);
        a.expect_sent(&[(2, WcStatus::Success)]);
        assert_eq!(word(a, RESULT.0), OTHER + i);
        assert_eq!(word(b, WORD), OTHER + i + 3);
    }
    Ok(())
}

/// An atomic behind a SEND that finds no receive waits with it (IBTA vol. 1, 9.5: requests are
/// carried out in order).
pub fn an_atomic_waits_behind_a_waiting_send<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = pair(fixture, setup())?;
    let (a, b) = (&pair.a, &pair.b);
    a.post(1, Operation::Send, (0, 8), UNSIGNALED);
    let [add, swap] = operations(b.mr.remote(WORD));
    a.post(2, swap, RESULT, SIGNALED);
    a.post(3, add, (RESULT.0 + 8, 8), SIGNALED);
    a.expect_quiet();
    assert_eq!(word(b, WORD), BEFORE);
    b.recv(9, (0, 8));
    a.expect_sent(&[2, 3].map(|i| (i, WcStatus::Success)));
    assert_eq!(word(a, RESULT.0), BEFORE);
    assert_eq!(word(a, RESULT.0 + 8), OTHER);
    assert_eq!(word(b, WORD), OTHER + 5);
    Ok(())
}

/// Checks that `operation` of A fails with one of `statuses`, both queue pairs change to ERR, and the word is
/// unchanged.
fn refused<S: Station>(pair: &Pair<'_, S>, operation: Operation, statuses: &[WcStatus]) {
    let (a, b) = (&pair.a, &pair.b);
    b.fill(0x33);
    b.recv(50, (0, 8));
    a.post(1, operation, RESULT, UNSIGNALED);
    a.post(2, Operation::Send, (0, 8), UNSIGNALED);
    let ended = outcomes(&a.sent(2));
    assert!(statuses.contains(&ended[0].1), "{ended:?}");
    assert_eq!(ended, [(1, ended[0].1), (2, WcStatus::WrFlushErr)]);
    b.expect_received(&[(50, WcStatus::WrFlushErr)]);
    a.expect_state(QpState::Err);
    b.expect_state(QpState::Err);
    let is_untouched = b.all_bytes().iter().all(|byte| *byte == 0x33);
    assert!(is_untouched, "{operation:?} changed B's memory");
}

fn both_refused<S: Station>(
    fixture: Fixture<'_, S>,
    setup: Setup,
    statuses: &[WcStatus],
    choose: impl Fn(&End<'_, S>) -> RemoteAddress,
) -> Verdict {
    for i in 0..2 {
        let pair = pair(fixture, setup)?;
        let at = choose(&pair.b);
        refused(&pair, operations(at)[i], statuses);
    }
    Ok(())
}

/// An address that is not a multiple of 8 makes the request invalid (IBTA vol. 1, 9.4.5).
pub fn an_unaligned_atomic_is_an_invalid_request<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    for neighbour in [1, 4, 7] {
        both_refused(fixture, setup(), &[WcStatus::RemInvReqErr], |b| {
            b.mr.remote(WORD + neighbour)
        })?;
    }
    Ok(())
}

/// A key that names no region, and a word beyond the region (IBTA vol. 1, 9.7.4.1.5).
pub fn an_atomic_outside_a_region_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    both_refused(fixture, setup(), BY_KEY, |b| RemoteAddress {
        rkey: Rkey(b.mr.rkey().0 ^ 0x4000_0000),
        ..b.mr.remote(WORD)
    })?;
    both_refused(fixture, setup(), BY_KEY, |b| {
        b.mr.remote(b.mr.length().get())
    })
}

/// The region lacks REMOTE_ATOMIC, whatever else it allows (IBTA vol. 1, 10.6.3;
/// ibv_reg_mr(3)).
pub fn atomics_need_the_right_on_the_region<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup {
        memory_access: ALL,
        ..setup()
    };
    both_refused(fixture, setup, BY_KEY, |b| b.mr.remote(WORD))
}

/// The queue pair lacks REMOTE_ATOMIC, whatever the region allows (IBTA vol. 1, 11.2.5.2;
/// ibv_modify_qp(3), qp_access_flags).
pub fn atomics_need_the_right_on_the_queue_pair<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup {
        access: ALL,
        ..setup()
    };
    both_refused(fixture, setup, BY_QUEUE_PAIR, |b| b.mr.remote(WORD))
}

/// The result needs a region with LOCAL_WRITE (IBTA vol. 1, 10.6.3).
pub fn the_result_needs_local_write_access<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    for i in 0..2 {
        let pair = pair(fixture, setup())?;
        let (a, b) = (&pair.a, &pair.b);
        let readable = a
            .context
            .alloc_mr(&a.pd, a.mr.length(), AccessFlags::empty())
            .expect("a region that is only read");
        let sges = [readable.sge(0, 8).expect("within the region")];
        let request = SendRequest::new(WrId(1), operations(b.mr.remote(WORD))[i], &sges);
        a.qp.post_send(&[request]).expect("post");
        a.expect_sent(&[(1, WcStatus::LocProtErr)]);
        a.expect_state(QpState::Err);
        let mut bytes = [1; 8];
        readable.read(0, &mut bytes).expect("within the region");
        assert_eq!(bytes, [0; 8]);
    }
    Ok(())
}

/// A buffer of less than 8 bytes for the result is refused at once, or a local length error (IBTA vol. 1,
/// 11.6.2). Memory outside the buffer is unchanged.
pub fn a_result_needs_eight_bytes<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    for i in 0..2 {
        let pair = pair(fixture, setup())?;
        let (a, b) = (&pair.a, &pair.b);
        a.fill(0x44);
        let operation = operations(b.mr.remote(WORD))[i];
        if a.try_post(1, operation, (RESULT.0, 4), SIGNALED).is_ok() {
            let status = a.sent(1)[0].status;
            assert!(!status.is_success(), "8 bytes were written into 4");
        }
        let neighbour = a.bytes(RESULT.0 + 4, 4);
        assert_eq!(neighbour, [0x44; 4]);
    }
    Ok(())
}

const REQUESTERS: u32 = 4;
const ADDITIONS: usize = 2_000;

/// Of many additions by several requesters, each with a connection of its own, none is lost, and
/// all saw different numbers before theirs (IBTA vol. 1, 9.4.5: operations of the same device, at least, are atomic
/// with each other).
pub fn additions_of_many_requesters_all_count<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    if fixture.is_helper() {
        let [own, target] = fixture.given()?;
        fixture.tell_main(&add_many(&own, target.mr.remote(WORD)));
        return Ok(());
    }
    has_atomics(fixture)?;
    let setup = setup();
    let target = End::new(fixture, &setup);
    set_word(&target, WORD, 0);
    let connected = (0..REQUESTERS).map(|number| {
        let (own, far) = (End::new(fixture, &setup), target.another_qp(&setup));
        connect((&own.context, &own.qp), (&target.context, &far), &setup);
        fixture.start(number, &[&own, &target]);
        far
    });
    let _connected: Vec<_> = connected.collect();
    let seen = (0..REQUESTERS).flat_map(|number| fixture.hear(number));
    let seen: Vec<u8> = seen.collect();
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
    let mut seen: Vec<u64> = seen.chunks_exact(8).map(number).collect();
    let all: Vec<u64> = (0..word(&target, WORD)).collect();
    assert_eq!(all.len(), REQUESTERS as usize * ADDITIONS);
    seen.sort_unstable();
    assert!(seen == all, "a number was given back twice");
    Ok(())
}

/// Adds 1 [`ADDITIONS`] times, one request after another; returns the old values.
fn add_many<S: Station>(own: &End<'_, S>, at: RemoteAddress) -> Vec<u8> {
    let mut seen = Vec::new();
    for _ in 0..ADDITIONS {
        own.post(1, Operation::FetchAdd(at, 1), (0, 8), SIGNALED);
        own.expect_sent(&[(1, WcStatus::Success)]);
        seen.extend(own.bytes(0, 8));
    }
    seen
}
