//! RC requests at the edge of what may be: empty and longest messages, every opcode at every place, rights
//! of the queue pair; and which NAK tells of what may not be (IBTA vol. 1, 9.7.4.1, 9.9.3).

use crate::lab::memory::{REMOTE, REMOTE_KEY, piece};
use crate::lab::steps::{MTU, inject_at, post, post_receive, sent_by, statuses, syndromes, work};
use crate::lab::{Delivery, Lab, Side, config, connected, quiet};
use adverb_transport::{
    Access, AccessError, AtomicOperation, DropReason, Key, MAX_MESSAGE, Memory, PACKET_SPACE,
    Place, RcQp, ReceiveQueue, Work,
};
use adverb_units::Time;
use adverb_verbs::{AccessFlags, Imm, PathMtu, QpState, RemoteAddress, Rkey, SendFlags, WcStatus};
use adverb_wire::bth::BthFlags;
use adverb_wire::{
    AtomicEth, Extension, Headers, Ieth, ImmDt, NakCode, Opcode, Packet, Position, Reth, Service,
    Syndrome, Verb,
};

// --- which packet may follow which (9.7.4.1.1, tables 39 and 40)

/// Extended headers of a request, for a WRITE or READ of `length` B.
fn extension(opcode: Opcode, length: u32) -> Extension {
    let (remote, imm) = (REMOTE, ImmDt { imm: Imm(1) });
    let (reth, headers) = (Reth { remote, length }, opcode.headers());
    if headers.contains(Headers::RETH | Headers::IMM_DT) {
        Extension::RdmaImm(reth, imm)
    } else if headers.contains(Headers::RETH) {
        Extension::Rdma(reth)
    } else if headers.contains(Headers::ATOMIC_ETH) {
        Extension::Atomic(AtomicEth {
            remote,
            swap_or_add: 1,
            compare: 0,
        })
    } else if headers.contains(Headers::IMM_DT) {
        Extension::Imm(imm)
    } else if headers.contains(Headers::IETH) {
        Extension::Invalidate(Ieth { rkey: REMOTE_KEY })
    } else {
        Extension::None
    }
}

/// The payload of a packet at its place.
fn payload(opcode: Opcode) -> &'static [u8] {
    match (opcode.verb(), opcode.position()) {
        (Verb::Send | Verb::Write, Position::First | Position::Middle) => &[7; MTU],
        (Verb::Send | Verb::Write, _) => &[7; 8],
        _ => &[],
    }
}

fn requests() -> impl Iterator<Item = Opcode> {
    let all = Opcode::ALL.iter().copied();
    all.filter(|o| o.service() == Service::Rc && !o.verb().is_response())
}

#[test]
fn every_request_comes_where_it_may_and_is_invalid_elsewhere() {
    let mut tried = 0;
    for begun in [None, Some(Opcode::RcSendFirst), Some(Opcode::RcWriteFirst)] {
        for opcode in requests() {
            let mut lab = quiet();
            post_receive(&mut lab, 1, 4096);
            let mut at = 0;
            if let Some(first) = begun {
                let whole = match opcode.position() {
                    Position::Middle => 3 * MTU,
                    _ => MTU + 8,
                };
                let first_extension = extension(first, whole as u32);
                let taken = inject_at(&mut lab, first, first_extension, payload(first), at);
                assert_eq!(taken, Ok(()));
                at += 1;
            }
            let whole = match opcode {
                Opcode::RcWriteFirst => 2 * MTU,
                _ => 8,
            };
            let taken = inject_at(
                &mut lab,
                opcode,
                extension(opcode, whole as u32),
                payload(opcode),
                at,
            );
            let may = match begun {
                None => opcode.position().begins(),
                Some(first) => opcode.verb() == first.verb() && !opcode.position().begins(),
            };
            tried += 1;
            if may {
                assert_eq!(taken, Ok(()), "{opcode:?} behind {begun:?}");
                continue;
            }
            assert_eq!(
                taken,
                Err(DropReason::InvalidRequest),
                "{opcode:?} {begun:?}"
            );
            check_refusal(&mut lab, at);
        }
    }
    assert!(tried > 3 * 15, "{tried}");
}

/// B has told of an invalid request `at` packets behind the first, has ended and has done nothing.
fn check_refusal(lab: &mut Lab<RcQp>, at: u32) {
    lab.flush();
    assert_eq!(syndromes(lab), [Syndrome::Nak(NakCode::InvalidRequest)]);
    let told = lab.sent.last().unwrap().headers.bth.psn;
    assert_eq!(told, config(Side::A).requester.first_psn.advance(at));
    assert_eq!(lab.b.qp.state(), QpState::Err);
    assert_eq!(statuses(&lab.b.completions), [(1, WcStatus::WrFlushErr)]);
    let rest = &lab.b.memory.shared[if at == 0 { 0 } else { MTU }..];
    assert!(rest.iter().all(|&byte| byte == 0) && lab.b.memory.atomics == 0);
}

/// What the queue pair is not set up for is invalid, whatever the region allows and however short it is.
#[test]
fn a_queue_pair_takes_only_what_it_is_set_up_for() {
    let rights = [
        (Work::Write(REMOTE), AccessFlags::REMOTE_WRITE, 0),
        (Work::Write(REMOTE), AccessFlags::REMOTE_WRITE, 8),
        (Work::Read(REMOTE), AccessFlags::REMOTE_READ, 0),
        (Work::Read(REMOTE), AccessFlags::REMOTE_READ, 8),
        (Work::FetchAdd(REMOTE, 1), AccessFlags::REMOTE_ATOMIC, 8),
    ];
    for (request, needed, length) in rights {
        let ended = |access: AccessFlags| {
            let mut b = config(Side::B);
            b.responder.access = access;
            let mut lab = connected(&config(Side::A), &b, Box::new(|_| Delivery::Pass));
            post(&mut lab, work(1, request, piece(0, length)));
            lab.run();
            statuses(&lab.a.completions)
        };
        assert_eq!(ended(needed), [(1, WcStatus::Success)]);
        let others = AccessFlags::all() - needed;
        assert_eq!(ended(others), [(1, WcStatus::RemInvReqErr)], "{request:?}");
    }
}

// --- empty messages (9.7.2, 9.7.4.1.4)

#[test]
fn an_empty_message_is_a_packet_and_needs_no_memory() {
    let mut lab = quiet();
    post_receive(&mut lab, 0, 0);
    post_receive(&mut lab, 1, 0);
    let nowhere = RemoteAddress {
        addr: 0,
        rkey: Rkey(77),
    };
    let requests = [
        Work::Send,
        Work::Write(nowhere),
        Work::WriteWithImm(nowhere, Imm(5)),
        Work::Read(nowhere),
    ];
    for (id, request) in requests.into_iter().enumerate() {
        post(&mut lab, work(id as u64, request, piece(0, 0)));
    }
    lab.run();
    let done: Vec<_> = (0..4).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(statuses(&lab.a.completions), done);
    let received = &lab.b.completions;
    assert_eq!(statuses(received), done[..2]);
    assert!(received.iter().all(|c| c.work.byte_len == 0));
    assert_eq!(received[1].work.imm, Some(Imm(5)));
    let sent = lab.sent.iter().filter(|s| s.from == Side::A);
    let opcodes: Vec<_> = sent.map(|s| (s.headers.bth.opcode, s.payload)).collect();
    let wanted = [
        Opcode::RcSendOnly,
        Opcode::RcWriteOnly,
        Opcode::RcWriteOnlyImm,
        Opcode::RcReadRequest,
    ];
    assert_eq!(opcodes, wanted.map(|opcode| (opcode, 0)));
}

// --- the longest messages

#[test]
fn more_than_two_gibibytes_are_an_invalid_request() {
    let more = MAX_MESSAGE as u32 + 1;
    let requests = [
        Opcode::RcReadRequest,
        Opcode::RcWriteFirst,
        Opcode::RcWriteOnly,
    ];
    for opcode in requests {
        let mut lab = quiet();
        post_receive(&mut lab, 1, 8);
        let taken = inject_at(
            &mut lab,
            opcode,
            extension(opcode, more),
            payload(opcode),
            0,
        );
        assert_eq!(taken, Err(DropReason::InvalidRequest), "{opcode:?}");
        check_refusal(&mut lab, 0);
    }
}

/// Memory without end: each packet's first bytes say how far from its beginning it was read, and what is
/// written has to be the next of it.
#[derive(Default)]
struct Endless {
    written: u64,
}

const LOCAL: u64 = crate::lab::memory::LOCAL;

fn offset(place: Place) -> u64 {
    match place.key {
        Key::Local(_) => place.addr - LOCAL,
        Key::Remote(_) => place.addr - REMOTE.addr,
    }
}

impl Memory for Endless {
    fn check(&self, _: Place, _: u64, _: Access) -> Result<(), AccessError> {
        Ok(())
    }
    fn read(&self, place: Place, into: &mut [u8]) -> Result<(), AccessError> {
        into[..8].copy_from_slice(&offset(place).to_le_bytes());
        Ok(())
    }
    fn write(&mut self, place: Place, from: &[u8]) -> Result<(), AccessError> {
        assert_eq!(offset(place), self.written);
        assert_eq!(from[..8], self.written.to_le_bytes());
        self.written += from.len() as u64;
        Ok(())
    }
    fn atomic(&mut self, _: RemoteAddress, _: AtomicOperation) -> Result<u64, AccessError> {
        Err(AccessError::UnknownKey)
    }
    fn invalidate(&mut self, _: Rkey) -> Result<(), AccessError> {
        Err(AccessError::UnknownKey)
    }
}

/// Carries all that one side has to send to the other.
fn carry(from: &mut (RcQp, Endless), to: &mut (RcQp, Endless)) -> u64 {
    let mut out = [0; PACKET_SPACE];
    let mut packets = 0;
    while let Some(length) = from.0.poll_transmit(Time::ZERO, &from.1, &mut out) {
        let packet = Packet::parse(&out[..length]).unwrap();
        to.0.handle_packet(Time::ZERO, &packet, &mut to.1).unwrap();
        packets += 1;
    }
    packets
}

#[test]
fn two_gibibytes_go_whole_by_write_and_by_read() {
    for request in [Work::Write(REMOTE), Work::Read(REMOTE)] {
        let mut ends = [Side::A, Side::B].map(|side| {
            let mut config = config(side);
            config.path_mtu = PathMtu::B4096;
            let qp = RcQp::new(&config, ReceiveQueue::new(1));
            (qp, Endless::default())
        });
        let [a, b] = &mut ends;
        let payload = piece(0, MAX_MESSAGE as usize);
        a.0.post_send(work(1, request, payload), &a.1).unwrap();
        let mut packets = 0;
        let ended = loop {
            packets += carry(a, b) + carry(b, a);
            if let Some(ended) = a.0.poll_completion() {
                break ended;
            }
        };
        assert_eq!(ended.work.status, WcStatus::Success);
        assert_eq!(u64::from(ended.work.byte_len), MAX_MESSAGE);
        let written = match request {
            Work::Read(_) => a.1.written,
            _ => b.1.written,
        };
        assert_eq!(written, MAX_MESSAGE);
        // One request or acknowledgement for at least a quarter of the window of 64.
        assert!(packets <= (MAX_MESSAGE >> 12) * 17 / 16, "{packets}");
    }
}

// --- receivers that are not ready (9.7.5.2.8)

#[test]
fn behind_a_request_that_no_receive_waits_for_others_are_dropped_in_silence() {
    let mut lab = quiet();
    for id in 0..4 {
        post(&mut lab, work(id, Work::Send, piece(0, 8)));
    }
    while lab.a.qp.counters().rnr_naks == 0 {
        assert!(lab.step());
    }
    let rnr = Syndrome::RnrNak(config(Side::B).responder.rnr_timer);
    assert_eq!(syndromes(&lab), [rnr]);
    assert_eq!(lab.b.qp.counters().dropped(DropReason::OutOfSequence), 3);
    for id in 0..4 {
        post_receive(&mut lab, id, 8);
    }
    lab.run();
    assert!(!syndromes(&lab).contains(&Syndrome::Nak(NakCode::PsnSequenceError)));
    assert_eq!(lab.b.completions.len(), 4);
}

// --- solicited events (9.2.3, 11.4.2.2)

#[test]
fn only_the_last_packet_of_a_message_asks_for_an_event() {
    let mut lab = quiet();
    post_receive(&mut lab, 1, 4096);
    post_receive(&mut lab, 2, 0);
    for (id, request) in [Work::Send, Work::WriteWithImm(REMOTE, Imm(0))]
        .into_iter()
        .enumerate()
    {
        let mut request = work(id as u64, request, piece(0, 3 * MTU));
        request.flags |= SendFlags::SOLICITED;
        post(&mut lab, request);
    }
    lab.run();
    let solicits = |s: &&crate::lab::Sent| s.headers.bth.flags.contains(BthFlags::SOLICITED);
    let asked = lab.sent.iter().filter(solicits);
    let asked: Vec<_> = asked.map(|s| s.headers.bth.opcode).collect();
    assert_eq!(asked, [Opcode::RcSendLast, Opcode::RcWriteLastImm]);
    let solicited = adverb_transport::Solicited::Yes;
    assert!(lab.b.completions.iter().all(|c| c.solicited == solicited));
    // What fails raises one, too.
    lab.b.qp.enter_error();
    post_receive(&mut lab, 3, 8);
    lab.flush();
    assert_eq!(lab.b.completions[2].solicited, solicited);
    assert_eq!(sent_by(&lab, Side::B, Opcode::RcAck).len(), 1);
}
