//! Every operation moves exactly the right bytes.

use adverb_units::Bytes;
use adverb_verbs::{
    Context, Imm, MemoryRegion, Operation, QpCaps, QueuePair, RecvRequest, SendRequest, Station,
    WcFlags, WcOpcode, WcStatus, WrId,
};

use crate::pair::{BLANK, End, Pair, SIGNALED, Setup, connect};
use crate::{Fixture, Verdict};

/// Lengths around what implementations treat apart: inline words, cache lines, pages, packets.
fn sizes() -> [Vec<u32>; 2] {
    let short = (0..=20).chain([63, 64, 65, 4095, 4096, 4097]);
    [short.collect(), vec![(64 << 10) + 1, 1 << 20]]
}

const IMM: Imm = Imm(0x1234_5678);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    SendWithImm,
    Write,
    WriteWithImm,
    Read,
}

/// Pieces of memory: offset and length.
type Pieces<'a> = &'a [(u64, u32)];

fn total(pieces: Pieces<'_>) -> usize {
    pieces.iter().map(|p| p.1 as usize).sum()
}

/// Returns the concatenated `pieces` of `bytes`.
fn gathered(bytes: &[u8], pieces: Pieces<'_>) -> Vec<u8> {
    let piece = |&(at, n): &(u64, u32)| &bytes[at as usize..at as usize + n as usize];
    pieces.iter().map(piece).collect::<Vec<_>>().concat()
}

/// A blank memory of `length` bytes with `payload` scattered to `pieces`.
fn scattered(length: usize, pieces: Pieces<'_>, mut payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![BLANK; length];
    for &(at, n) in pieces {
        let n = payload.len().min(n as usize);
        bytes[at as usize..at as usize + n].copy_from_slice(&payload[..n]);
        payload = &payload[n..];
    }
    bytes
}

/// Does one operation of A, from `source` to `target` pieces, and checks all memory and both
/// completions.
fn transfer<S: Station>(pair: &Pair<'_, S>, kind: Kind, source: Pieces<'_>, target: Pieces<'_>) {
    let (a, b) = (&pair.a, &pair.b);
    let (from, to) = if kind == Kind::Read { (b, a) } else { (a, b) };
    let original = from.fill_pattern(total(source) as u64 + 1);
    to.fill(BLANK);
    let local = sges(a, if kind == Kind::Read { target } else { source });
    let consumes = matches!(kind, Kind::Send | Kind::SendWithImm | Kind::WriteWithImm);
    if consumes {
        let pieces = if kind == Kind::WriteWithImm {
            &[]
        } else {
            target
        };
        let sges = sges(b, pieces);
        b.qp.post_recv(&[RecvRequest::new(WrId(9), &sges)])
            .expect("post a receive");
    }
    let operation = match kind {
        Kind::Send => Operation::Send,
        Kind::SendWithImm => Operation::SendWithImm(IMM),
        Kind::Write => Operation::RdmaWrite(b.mr.remote(target[0].0)),
        Kind::WriteWithImm => Operation::RdmaWriteWithImm(b.mr.remote(target[0].0), IMM),
        Kind::Read => Operation::RdmaRead(b.mr.remote(source[0].0)),
    };
    let request = SendRequest::new(WrId(4), operation, &local).with_flags(SIGNALED);
    a.qp.post_send(&[request]).expect("post a send request");

    let payload = gathered(&original, source);
    check_completions(pair, kind, payload.len());
    assert!(
        from.all_bytes() == original,
        "{kind:?} {source:?} changed its source"
    );
    let expected = scattered(to.mr.length().as_usize(), target, &payload);
    let found = to.all_bytes();
    if found != expected {
        let wrong = found.iter().zip(&expected).position(|(x, y)| x != y);
        panic!("first wrong byte of {kind:?} {source:?} to {target:?}: {wrong:?}");
    }
}

fn sges<'a, S: Station>(end: &'a End<'_, S>, pieces: Pieces<'_>) -> Vec<adverb_verbs::Sge<'a>> {
    let sge = |&(at, n): &(u64, u32)| end.mr.sge(at, n).expect("within the region");
    pieces.iter().map(sge).collect()
}

fn check_completions<S: Station>(pair: &Pair<'_, S>, kind: Kind, length: usize) {
    let (a, b) = (&pair.a, &pair.b);
    let sent = a.sent(1)[0];
    assert_eq!(
        (sent.wr_id, sent.status),
        (WrId(4), WcStatus::Success),
        "{kind:?} of {length} B"
    );
    assert_eq!(sent.qp_num, a.qp.qpn());
    let opcode = match kind {
        Kind::Send | Kind::SendWithImm => WcOpcode::Send,
        Kind::Write | Kind::WriteWithImm => WcOpcode::RdmaWrite,
        Kind::Read => WcOpcode::RdmaRead,
    };
    assert_eq!(sent.opcode, opcode);
    let (opcode, imm) = match kind {
        Kind::Send => (WcOpcode::Recv, None),
        Kind::SendWithImm => (WcOpcode::Recv, Some(IMM)),
        Kind::WriteWithImm => (WcOpcode::RecvRdmaWithImm, Some(IMM)),
        Kind::Write | Kind::Read => return,
    };
    let received = b.received(1)[0];
    assert_eq!(
        (received.wr_id, received.status),
        (WrId(9), WcStatus::Success)
    );
    assert_eq!((received.opcode, received.imm), (opcode, imm));
    assert_eq!(received.flags.contains(WcFlags::WITH_IMM), imm.is_some());
    assert_eq!(
        (received.byte_len as usize, received.qp_num),
        (length, b.qp.qpn())
    );
}

fn moves_all_sizes<S: Station>(fixture: Fixture<'_, S>, kind: Kind) -> Verdict {
    // All memory is compared after each transfer, so short messages have less of it.
    for sizes in sizes() {
        let longest = sizes.iter().copied().fold(0, u32::max);
        let setup = Setup {
            memory: Bytes::new(u64::from(longest) + 8192),
            ..Setup::default()
        };
        let pair = Pair::with(fixture, setup);
        for size in sizes {
            transfer(&pair, kind, &[(4096, size)], &[(4096, size)]);
            transfer(&pair, kind, &[(61, size)], &[(127, size)]);
        }
    }
    Ok(())
}

/// A SEND places its payload in the next receive and nothing elsewhere (IBTA vol. 1, 9.4.1).
pub fn send_moves_the_bytes<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    moves_all_sizes(fixture, Kind::Send)
}

/// A SEND with immediate also delivers the value in the completion (IBTA vol. 1, 9.4.1).
pub fn send_with_imm_moves_the_bytes_and_the_value<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    moves_all_sizes(fixture, Kind::SendWithImm)
}

/// A WRITE places its payload at the remote address; the peer sees no completion (IBTA vol. 1,
/// 9.4.3).
pub fn write_moves_the_bytes<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    moves_all_sizes(fixture, Kind::Write)
}

/// A WRITE with immediate also consumes a receive, without touching its buffer (IBTA vol. 1,
/// 9.4.3).
pub fn write_with_imm_moves_the_bytes_and_completes_a_receive<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    moves_all_sizes(fixture, Kind::WriteWithImm)
}

/// A READ places the remote bytes in local memory (IBTA vol. 1, 9.4.4).
pub fn read_moves_the_bytes<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    moves_all_sizes(fixture, Kind::Read)
}

/// Piece lengths with odd and empty ones, in turn.
const LENGTHS: [u32; 9] = [7, 0, 1, 129, 33, 0, 4097, 3, 64];

/// `n` pieces of odd lengths, the first at the highest address, with gaps; `phase` varies them.
fn pieces(n: usize, phase: usize) -> Vec<(u64, u32)> {
    let piece = |i: usize| ((n - i) as u64 * 5003, LENGTHS[(i + phase) % LENGTHS.len()]);
    (0..n).map(piece).collect()
}

/// `pieces` of other lengths that hold at least `length` bytes.
fn pieces_for(n: usize, length: usize, phase: usize) -> Vec<(u64, u32)> {
    let mut pieces = pieces(n, phase);
    let missing = length.saturating_sub(total(&pieces));
    if let Some(last) = pieces.last_mut() {
        *last = (last.0 + 100_000, last.1 + missing as u32 + 11);
    }
    pieces
}

fn pair_for_lists<S: Station>(fixture: Fixture<'_, S>) -> (Pair<'_, S>, usize) {
    let context = fixture.open();
    let max = context.caps().max_sge.min(16);
    drop(context);
    let setup = Setup {
        memory: Bytes::kib(256),
        caps: QpCaps {
            max_send_sge: max,
            max_recv_sge: max,
            ..Setup::default().caps
        },
        ..Setup::default()
    };
    (Pair::with(fixture, setup), max as usize)
}

/// SEND gathers and the receive scatters over as many pieces as the device takes, empty ones
/// among them (IBTA vol. 1, 10.7.3.2; ibv_post_send(3), ibv_post_recv(3)).
pub fn lists_are_gathered_and_scattered_by_sends<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (pair, max) = pair_for_lists(fixture);
    for n in 1..=max {
        for phase in 0..LENGTHS.len() {
            let source = pieces(n, phase);
            let target = pieces_for(max + 1 - n, total(&source), phase + 1);
            transfer(&pair, Kind::Send, &source, &target);
        }
    }
    Ok(())
}

/// WRITE gathers over as many pieces as the device takes (IBTA vol. 1, 10.7.3.2).
pub fn lists_are_gathered_by_writes<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (pair, max) = pair_for_lists(fixture);
    for n in 1..=max {
        for (phase, kind) in [(0, Kind::Write), (3, Kind::WriteWithImm), (6, Kind::Write)] {
            let source = pieces(n, phase);
            transfer(&pair, kind, &source, &[(777, total(&source) as u32)]);
        }
    }
    Ok(())
}

/// READ scatters over as many pieces as the device takes (IBTA vol. 1, 10.7.3.2).
pub fn lists_are_scattered_to_by_reads<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (pair, max) = pair_for_lists(fixture);
    for n in 1..=max {
        for phase in 0..LENGTHS.len() {
            let target = pieces(n, phase);
            transfer(&pair, Kind::Read, &[(779, total(&target) as u32)], &target);
        }
    }
    Ok(())
}

/// A message shorter than its receive leaves the rest of the buffer as it was, and the completion
/// says how long it was (IBTA vol. 1, 9.4.1; ibv_poll_cq(3)).
pub fn a_receive_longer_than_the_message_keeps_its_rest<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let pair = Pair::new(fixture);
    for length in [0, 1, 64, 99] {
        transfer(&pair, Kind::Send, &[(8, length)], &[(100, 50), (1000, 200)]);
    }
    Ok(())
}

/// Loopback: two queue pairs of one context reach each other (IBTA vol. 1, 9.8.3 asks that a
/// port's own address be usable as destination).
pub fn two_queue_pairs_of_one_context_reach_each_other<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let setup = Setup::default();
    let end = End::new(fixture, &setup);
    let other = end.another_qp(&setup);
    connect((&end.context, &end.qp), (&end.context, &other), &setup);
    let sent = end.fill_pattern(3);
    let sges = [end.mr.sge(4096, 128).expect("within the region")];
    other
        .post_recv(&[RecvRequest::new(WrId(9), &sges)])
        .expect("post a receive");
    end.post(4, Operation::Send, (0, 100), SIGNALED);
    end.expect_sent(&[(4, WcStatus::Success)]);
    let received = end.received(1)[0];
    assert_eq!((received.qp_num, received.byte_len), (other.qpn(), 100));
    assert_eq!(end.bytes(4096, 100), sent[..100]);
    Ok(())
}

/// A connection is symmetric: B may send while A does (IBTA vol. 1, 9.7).
pub fn both_directions_work_at_once<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    let (from_a, from_b) = (a.fill_pattern(1), b.fill_pattern(2));
    a.recv(1, (8192, 4096));
    b.recv(2, (8192, 4096));
    a.post(3, Operation::Send, (0, 4096), SIGNALED);
    b.post(4, Operation::Send, (0, 4096), SIGNALED);
    a.expect_sent(&[(3, WcStatus::Success)]);
    b.expect_sent(&[(4, WcStatus::Success)]);
    a.expect_received(&[(1, WcStatus::Success)]);
    b.expect_received(&[(2, WcStatus::Success)]);
    assert_eq!(b.bytes(8192, 4096), from_a[..4096]);
    assert_eq!(a.bytes(8192, 4096), from_b[..4096]);
    Ok(())
}
