//! RC between the user-space NIC and another device, at sizes around the bounds of packets, for each path
//! MTU and on a network that loses packets: every operation, in both directions, every byte compared.
//!
//! What arrives at the user-space NIC is lost as a rule says: so requests of the other device's and
//! answers to it in one direction, and in the other likewise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_conformance::Fixture;
use adverb_conformance::pair::{
    BLANK, End, Pair, SIGNALED, Setup, address_of, pattern, to_init, to_rts,
};
use adverb_conformance::threads::Subject;
use adverb_host::HostStation;
use adverb_softnic::{Fault, SoftContext};
use adverb_verbs::{
    AccessFlags, Comparison, Imm, MemoryRegion, Operation, PathMtu, Psn, QpAttr, QueuePair,
    WcStatus,
};

use crate::either::Either;
use crate::mixed::MixedContext;

/// Packets lost of a hundred that arrive at the user-space NIC.
const LOST: [u64; 3] = [0, 1, 10];
/// Offset of messages in the target's memory.
const AT: u64 = 64;
/// Offset of messages in the source's memory.
const FROM: u64 = 3;

/// A path MTU and a share of lost packets.
#[derive(Clone, Copy)]
struct Line {
    mtu: PathMtu,
    lost: u64,
}

impl Line {
    fn all() -> impl Iterator<Item = Self> {
        let of_mtu = |mtu| LOST.into_iter().map(move |lost| Line { mtu, lost });
        PathMtu::ALL.into_iter().flat_map(of_mtu)
    }

    fn name(self) -> String {
        format!(
            "boundaries::mtu_{}_lost_{}_percent",
            self.mtu.bytes().get(),
            self.lost
        )
    }
}

/// The names of the cases.
pub(crate) fn names() -> Vec<String> {
    Line::all().map(Line::name).collect()
}

/// Runs the case of that name; false where there is none.
pub(crate) fn run(opened: &Subject<'_, MixedContext>, name: &str) -> bool {
    let line = Line::all().find(|line| line.name() == name);
    if let Some(line) = line {
        let verdict = opened.run_with(0, |fixture| {
            check(fixture, line);
            Ok(())
        });
        assert_eq!(verdict, Ok(()));
    }
    line.is_some()
}

type Of = HostStation<MixedContext>;

fn check(fixture: Fixture<'_, Of>, line: Line) {
    let access = AccessFlags::all();
    let setup = Setup {
        memory_access: access,
        access,
        timeout: 16,
        psn: (Psn::new(0xff_ff80), Psn::new(0xff_fffe)),
        ..Setup::default()
    };
    let pair = Pair::unconnected(fixture, setup);
    connect(&pair, line.mtu);
    let lost = lose(&pair, line.lost);
    for (from, to) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        for length in lengths(line.mtu) {
            check_operations(from, to, length);
        }
        check_atomics(from, to);
    }
    let is_lossy = lost.load(Ordering::Relaxed) > 0;
    assert_eq!(is_lossy, line.lost > 0, "packets were lost");
}

/// Connects both ends with a path MTU.
fn connect(pair: &Pair<'_, Of>, mtu: PathMtu) {
    let (a, b, (psn_a, psn_b)) = (&pair.a, &pair.b, pair.setup.psn);
    for (end, peer, psn) in [(a, b, psn_b), (b, a, psn_a)] {
        to_init(&end.context, &end.qp, &pair.setup);
        let mut rtr = QpAttr::to_rtr(address_of(&peer.context), peer.qp.qpn(), psn, mtu);
        rtr.min_rnr_timer = adverb_verbs::RnrTimer::new(pair.setup.rnr_timer);
        end.qp.modify(&rtr).expect("to RTR");
    }
    to_rts(&a.qp, psn_a, &pair.setup);
    to_rts(&b.qp, psn_b, &pair.setup);
}

/// Drops a number of each hundred packets that arrive at the user-space NIC, evenly spread, and counts them.
fn lose(pair: &Pair<'_, Of>, percent: u64) -> Arc<AtomicU64> {
    let lost = Arc::new(AtomicU64::new(0));
    for end in [&pair.a, &pair.b] {
        if let Either::One(soft) = &end.context {
            drop_percent(soft, percent, lost.clone());
        }
    }
    lost
}

fn drop_percent(soft: &SoftContext, percent: u64, lost: Arc<AtomicU64>) {
    let mut count = 0u64;
    soft.inject_faults(move |_| {
        count += 1;
        // 37 and 100 have no common divisor: each remainder occurs once.
        if count * 37 % 100 >= percent {
            return None;
        }
        lost.fetch_add(1, Ordering::Relaxed);
        Some(Fault::Loss)
    });
}

/// Around none, one, two and four packets.
fn lengths(mtu: PathMtu) -> impl Iterator<Item = u32> {
    let mtu = mtu.bytes().get() as u32;
    let around = [1, 2, 4].map(|n| [n * mtu - 1, n * mtu, n * mtu + 1]);
    [0, 1].into_iter().chain(around.into_iter().flatten())
}

fn check_operations(from: &End<'_, Of>, to: &End<'_, Of>, length: u32) {
    let there = to.mr.remote(AT);
    let imm = Imm(0x0102_0304 ^ length);
    for operation in [
        Operation::Send,
        Operation::SendWithImm(imm),
        Operation::RdmaWrite(there),
        Operation::RdmaWriteWithImm(there, imm),
    ] {
        let sent = prepare((from, FROM), (to, AT), length);
        let receives = !matches!(operation, Operation::RdmaWrite(_));
        if receives {
            to.recv(7, (AT, length + 1));
        }
        from.post(1, operation, (FROM, length), SIGNALED);
        from.expect_sent(&[(1, WcStatus::Success)]);
        if receives {
            let got = to.received(1)[0];
            assert_eq!((got.status, got.byte_len), (WcStatus::Success, length));
            let has_imm = !matches!(operation, Operation::Send);
            assert_eq!(got.imm, has_imm.then_some(imm));
        }
        expect(to, AT, &sent);
    }
    let there = prepare((to, AT), (from, FROM), length);
    let read = Operation::RdmaRead(to.mr.remote(AT));
    from.post(1, read, (FROM, length), SIGNALED);
    from.expect_sent(&[(1, WcStatus::Success)]);
    expect(from, FROM, &there);
}

/// Puts a pattern of `length` bytes to one end's memory, and blanks the other's around its target.
fn prepare(
    (source, at): (&End<'_, Of>, u64),
    (target, around): (&End<'_, Of>, u64),
    length: u32,
) -> Vec<u8> {
    let content = pattern(u64::from(length) + 1, length as usize);
    source.mr.write(at, &content).expect("within the region");
    let blank = vec![BLANK; around as usize + length as usize + 64];
    target.mr.write(0, &blank).expect("within the region");
    content
}

/// Asserts that `content` is at `at`, and nothing was written around it.
#[track_caller]
fn expect(end: &End<'_, Of>, at: u64, content: &[u8]) {
    let all = end.bytes(0, at as usize + content.len() + 64);
    let (before, rest) = all.split_at(at as usize);
    let (found, behind) = rest.split_at(content.len());
    assert!(found == content, "{} bytes differ", content.len());
    let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == BLANK);
    assert!(is_blank(before) && is_blank(behind), "written around");
}

/// Each is carried out once, whatever is lost.
fn check_atomics(from: &End<'_, Of>, to: &End<'_, Of>) {
    let word =
        |end: &End<'_, Of>, at| u64::from_ne_bytes(end.bytes(at, 8).try_into().expect("8 bytes"));
    to.mr
        .write(AT, &0u64.to_ne_bytes())
        .expect("within the region");
    let there = to.mr.remote(AT);
    for n in 0..20u64 {
        from.post(1, Operation::FetchAdd(there, 3), (8, 8), SIGNALED);
        from.expect_sent(&[(1, WcStatus::Success)]);
        assert_eq!((word(from, 8), word(to, AT)), (4 * n, 4 * n + 3));
        let swap = Comparison {
            expected: 4 * n + 3,
            new: 4 * n + 4,
        };
        from.post(2, Operation::CompareSwap(there, swap), (8, 8), SIGNALED);
        from.expect_sent(&[(2, WcStatus::Success)]);
        assert_eq!((word(from, 8), word(to, AT)), (4 * n + 3, 4 * n + 4));
    }
}
