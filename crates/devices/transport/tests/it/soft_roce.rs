//! Compared with the kernel's Soft-RoCE: given the same requests, the transport sends the packets that
//! Soft-RoCE sent, byte for byte except the migration bit (Soft-RoCE leaves it 0; the transport sets
//! it, as IBTA vol. 1, 17.2.8 has it for a connection with one path), and answers its requests as it
//! answered them.
//! `crates/devices/wire/tests/data/README.md` describes the capture.

use adverb_transport::{
    Access, AccessError, AtomicOperation, LocalPiece, Memory, PACKET_SPACE, Payload, Place,
    RcConfig, RcQp, ReceiveQueue, ReceiveWork, RequesterConfig, ResponderConfig, SendWork,
    UcConfig, UcQp, Work,
};
use adverb_units::Time;
use adverb_verbs::{
    AccessFlags, Lkey, PathMtu, Psn, QpType, Qpn, RemoteAddress, RetryParams, Rkey, RnrTimer,
    SendFlags, Srqn, WcStatus, WrId,
};
use adverb_wire::bth::BthFlags;
use adverb_wire::{Extension, Frame, Opcode, Packet};

const CAPTURE: &[u8] = include_bytes!("../../../wire/tests/data/rxe.pcap");
/// perftest's path MTU.
const MTU: PathMtu = PathMtu::B1024;

/// The packets of the capture that have this opcode, in order.
fn packets(opcode: Opcode) -> Vec<Packet<'static>> {
    let mut found = vec![];
    let mut rest = &CAPTURE[24..];
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let frame = Frame::parse_ethernet(&rest[16..16 + length]).unwrap();
        if frame.packet.opcode() == opcode {
            found.push(frame.packet);
        }
        rest = &rest[16 + length..];
    }
    assert!(!found.is_empty(), "no {}", opcode.name());
    found
}

/// The packets of one message.
fn message<const N: usize>(opcodes: [Opcode; N]) -> [Packet<'static>; N] {
    let parts = opcodes.map(|opcode| packets(opcode)[0]);
    for pair in parts.windows(2) {
        let [one, two] = [pair[0].headers.bth.psn, pair[1].headers.bth.psn];
        assert_eq!(two, one.advance(1), "not of one message");
    }
    parts
}

/// Memory from an address on, whatever the key.
struct Anywhere {
    from: u64,
    bytes: Vec<u8>,
}

impl Anywhere {
    fn new(from: u64, parts: &[Packet<'_>]) -> Self {
        let bytes = parts
            .iter()
            .flat_map(|part| part.payload)
            .copied()
            .collect();
        Anywhere { from, bytes }
    }

    fn blank(from: u64, length: usize) -> Self {
        let bytes = vec![0; length];
        Anywhere { from, bytes }
    }

    fn range(&self, place: Place, length: usize) -> Result<std::ops::Range<usize>, AccessError> {
        let at = place
            .addr
            .checked_sub(self.from)
            .ok_or(AccessError::OutOfRange)? as usize;
        match at + length <= self.bytes.len() {
            true => Ok(at..at + length),
            false => Err(AccessError::OutOfRange),
        }
    }

    /// All of it as a request's local memory.
    fn piece(&self) -> LocalPiece {
        LocalPiece {
            addr: self.from,
            length: self.bytes.len() as u32,
            lkey: Lkey(0),
        }
    }
}

impl Memory for Anywhere {
    fn check(&self, place: Place, length: u64, _: Access) -> Result<(), AccessError> {
        self.range(place, length as usize).map(|_| ())
    }

    fn read(&self, place: Place, into: &mut [u8]) -> Result<(), AccessError> {
        into.copy_from_slice(&self.bytes[self.range(place, into.len())?]);
        Ok(())
    }

    fn write(&mut self, place: Place, from: &[u8]) -> Result<(), AccessError> {
        let range = self.range(place, from.len())?;
        self.bytes[range].copy_from_slice(from);
        Ok(())
    }

    fn atomic(
        &mut self,
        place: RemoteAddress,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError> {
        let range = self.range(place.into(), 8)?;
        let word = (&mut self.bytes[range]).try_into().unwrap();
        Ok(operation.carry_out(word))
    }

    fn invalidate(&mut self, _: Rkey) -> Result<(), AccessError> {
        Err(AccessError::NotAllowed)
    }
}

/// A queue pair connected to `peer`; both directions begin at `psn`.
fn rc(own: Qpn, peer: Qpn, psn: Psn) -> RcQp {
    let config = RcConfig {
        qp_type: QpType::Rc,
        qpn: own,
        peer,
        path_mtu: MTU,
        requester: RequesterConfig {
            first_psn: psn,
            max_work: 4,
            retry: RetryParams::default(),
            max_reads: 1,
            window: 64,
            max_window: 64,
        },
        responder: ResponderConfig {
            first_psn: psn,
            access: AccessFlags::all(),
            max_reads: 1,
            rnr_timer: RnrTimer::new(1).unwrap(),
        },
    };
    RcQp::new(&config, ReceiveQueue::new(4))
}

fn request(work: Work, memory: &Anywhere) -> SendWork {
    SendWork {
        wr_id: WrId(1),
        work,
        payload: Payload::Memory([memory.piece()].into_iter().collect()),
        flags: SendFlags::SIGNALED,
        remote_srqn: Srqn(0),
    }
}

fn bytes(packet: &Packet<'_>) -> Vec<u8> {
    let mut out = vec![0; PACKET_SPACE];
    let length = packet.emit(&mut out).unwrap();
    out.truncate(length);
    out
}

/// Whether what is sent is what Soft-RoCE sent.
fn sends_the_same(
    mut transmit: impl FnMut(&mut [u8; PACKET_SPACE]) -> Option<usize>,
    theirs: &[Packet<'_>],
) {
    let mut out = [0; PACKET_SPACE];
    for packet in theirs {
        let length = transmit(&mut out).expect("a packet is to be sent");
        let mut ours = Packet::parse(&out[..length]).unwrap();
        assert!(ours.headers.bth.flags.contains(BthFlags::MIGRATED));
        ours.headers.bth.flags.remove(BthFlags::MIGRATED);
        assert!(
            bytes(&ours) == bytes(packet),
            "ours: {ours}\ntheirs: {packet}"
        );
    }
    assert_eq!(transmit(&mut out), None);
}

fn first(parts: &[Packet<'_>]) -> (Qpn, Psn) {
    let bth = &parts[0].headers.bth;
    (bth.dest_qp, bth.psn)
}

fn remote(packet: &Packet<'_>) -> (RemoteAddress, usize) {
    match packet.headers.extension {
        Extension::Rdma(reth) => (reth.remote, reth.length as usize),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_read_is_asked_for_and_answered_as_by_soft_roce() {
    let asked = [packets(Opcode::RcReadRequest)[0]];
    let answer = message([
        Opcode::RcReadResponseFirst,
        Opcode::RcReadResponseMiddle,
        Opcode::RcReadResponseLast,
    ]);
    let (remote, length) = remote(&asked[0]);
    let ((responder, psn), (requester, answered)) = (first(&asked), first(&answer));
    assert_eq!(psn, answered);

    let mut memory = Anywhere::blank(0, length);
    let mut qp = rc(requester, responder, psn);
    qp.post_send(request(Work::Read(remote), &memory), &memory)
        .unwrap();
    sends_the_same(|out| qp.poll_transmit(Time::ZERO, &memory, out), &asked);
    for packet in &answer {
        qp.handle_packet(Time::ZERO, packet, &mut memory).unwrap();
    }
    let there = Anywhere::new(remote.addr, &answer);
    assert_eq!(memory.bytes, there.bytes);
    assert_eq!(qp.poll_completion().unwrap().work.status, WcStatus::Success);

    let mut memory = there;
    let mut qp = rc(responder, requester, psn);
    qp.handle_packet(Time::ZERO, &asked[0], &mut memory)
        .unwrap();
    sends_the_same(|out| qp.poll_transmit(Time::ZERO, &memory, out), &answer);
}

#[test]
fn an_atomic_operation_is_asked_for_and_answered_as_by_soft_roce() {
    let asked = [packets(Opcode::RcFetchAdd)[0]];
    let answer = [packets(Opcode::RcAtomicAck)[0]];
    let ((responder, psn), (requester, answered)) = (first(&asked), first(&answer));
    assert_eq!(psn, answered);
    let Extension::Atomic(atomic) = asked[0].headers.extension else {
        panic!("{}", asked[0])
    };
    let Extension::AtomicAck(_, found) = answer[0].headers.extension else {
        panic!("{}", answer[0])
    };

    let mut memory = Anywhere::blank(0, 8);
    let mut qp = rc(requester, responder, psn);
    let work = Work::FetchAdd(atomic.remote, atomic.swap_or_add);
    qp.post_send(request(work, &memory), &memory).unwrap();
    sends_the_same(|out| qp.poll_transmit(Time::ZERO, &memory, out), &asked);
    qp.handle_packet(Time::ZERO, &answer[0], &mut memory)
        .unwrap();
    assert_eq!(memory.bytes, found.original.to_ne_bytes());

    let mut memory = Anywhere::blank(atomic.remote.addr, 8);
    memory.bytes.copy_from_slice(&found.original.to_ne_bytes());
    let mut qp = rc(responder, requester, psn);
    qp.handle_packet(Time::ZERO, &asked[0], &mut memory)
        .unwrap();
    sends_the_same(|out| qp.poll_transmit(Time::ZERO, &memory, out), &answer);
}

#[test]
fn messages_of_rc_go_out_as_from_soft_roce_and_come_in() {
    let send = message([
        Opcode::RcSendFirst,
        Opcode::RcSendMiddle,
        Opcode::RcSendLast,
    ]);
    let write = message([
        Opcode::RcWriteFirst,
        Opcode::RcWriteMiddle,
        Opcode::RcWriteLast,
    ]);
    let (remote, _) = remote(&write[0]);
    for (work, parts) in [(Work::Send, send), (Work::Write(remote), write)] {
        let (peer, psn) = first(&parts);
        let memory = Anywhere::new(remote.addr, &parts);
        let mut qp = rc(peer, peer, psn);
        qp.post_send(request(work, &memory), &memory).unwrap();
        sends_the_same(|out| qp.poll_transmit(Time::ZERO, &memory, out), &parts);

        let mut there = Anywhere::blank(remote.addr, memory.bytes.len());
        let pieces = [there.piece()].into_iter().collect();
        qp.post_receive(ReceiveWork {
            wr_id: WrId(2),
            pieces,
        })
        .unwrap();
        for packet in &parts {
            qp.handle_packet(Time::ZERO, packet, &mut there).unwrap();
        }
        assert_eq!(there.bytes, memory.bytes);
    }
}

#[test]
fn messages_of_uc_go_out_as_from_soft_roce_and_come_in() {
    let send = message([
        Opcode::UcSendFirst,
        Opcode::UcSendMiddle,
        Opcode::UcSendLast,
    ]);
    let write = message([
        Opcode::UcWriteFirst,
        Opcode::UcWriteMiddle,
        Opcode::UcWriteLast,
    ]);
    let (remote, _) = remote(&write[0]);
    for (work, parts) in [(Work::Send, send), (Work::Write(remote), write)] {
        let (peer, psn) = first(&parts);
        let config = UcConfig {
            qpn: peer,
            peer,
            path_mtu: MTU,
            first_psn: psn,
            peer_first_psn: psn,
            access: AccessFlags::all(),
            max_work: 4,
        };
        let mut qp = UcQp::new(&config, ReceiveQueue::new(4));
        let memory = Anywhere::new(remote.addr, &parts);
        qp.post_send(request(work, &memory)).unwrap();
        sends_the_same(|out| qp.poll_transmit(&memory, out), &parts);

        let mut there = Anywhere::blank(remote.addr, memory.bytes.len());
        let pieces = [there.piece()].into_iter().collect();
        qp.post_receive(ReceiveWork {
            wr_id: WrId(2),
            pieces,
        })
        .unwrap();
        for packet in &parts {
            qp.handle_packet(packet, &mut there).unwrap();
        }
        assert_eq!(there.bytes, memory.bytes);
    }
}
