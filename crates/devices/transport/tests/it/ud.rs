//! UD: one packet a message, queue keys, routing headers.

use crate::lab::memory::{REMOTE, piece, pieces};
use crate::lab::{TestMemory, steps};
use adverb_transport::{
    Completion, DropReason, PACKET_SPACE, PostError, ReceiveQueue, ReceiveWork, Solicited,
    UdConfig, UdDestination, UdQp, Work,
};
use adverb_verbs::{Imm, PathMtu, Psn, QpState, Qpn, SendFlags, WcFlags, WcStatus, WrId};
use adverb_wire::{Packet, UnknownOpcode, grh};

const QKEY: u32 = 0x1111;
const AREA: [u8; grh::LEN] = [0x6b; grh::LEN];

struct Node {
    qp: UdQp<&'static str>,
    memory: TestMemory,
}

fn qpn(n: u32) -> Qpn {
    Qpn::new(n).unwrap()
}

fn node(number: u32, qkey: u32) -> Node {
    let config = UdConfig {
        qpn: qpn(number),
        qkey,
        mtu: PathMtu::B1024,
        first_psn: Psn::new(0xff_ffff),
        max_work: 8,
    };
    Node {
        qp: UdQp::new(&config, ReceiveQueue::new(8)),
        memory: TestMemory::new(),
    }
}

fn to(number: u32, qkey: u32) -> UdDestination<&'static str> {
    UdDestination {
        address: "there",
        qpn: qpn(number),
        qkey,
    }
}

fn receive(node: &mut Node, id: u64, length: usize) {
    let work = ReceiveWork {
        wr_id: WrId(id),
        pieces: pieces(id as usize * 4096, length),
    };
    node.qp.post_receive(work).unwrap();
}

/// Carries all that one has to send to another, and gives what became of each packet.
fn carry(from: &mut Node, to: &mut Node) -> Vec<Result<(), DropReason>> {
    let mut out = [0; PACKET_SPACE];
    let mut fates = vec![];
    while let Some((length, address)) = from.qp.poll_transmit(&from.memory, &mut out) {
        assert_eq!(address, "there");
        let packet = Packet::parse(&out[..length]).unwrap();
        fates.push(to.qp.handle_packet(&packet, &AREA, &mut to.memory));
    }
    fates
}

fn completions(node: &mut Node) -> Vec<Completion> {
    std::iter::from_fn(|| node.qp.poll_completion()).collect()
}

fn statuses(node: &mut Node) -> Vec<(u64, WcStatus)> {
    let ended = completions(node);
    ended
        .iter()
        .map(|c| (c.work.wr_id.0, c.work.status))
        .collect()
}

#[test]
fn a_datagram_arrives_behind_its_routing_header() {
    let (mut a, mut b) = (node(1, 5), node(2, QKEY));
    receive(&mut b, 0, 1024);
    let payload = a.memory.put(64, b"datagram");
    let mut request = steps::work(7, Work::SendWithImm(Imm(3)), payload);
    request.flags |= SendFlags::SOLICITED;
    a.qp.post_send(request, to(2, QKEY)).unwrap();
    assert_eq!(carry(&mut a, &mut b), [Ok(())]);
    assert_eq!(statuses(&mut a), [(7, WcStatus::Success)]);
    let received = completions(&mut b)[0];
    assert_eq!(received.work.byte_len, 48);
    assert_eq!(received.work.src_qp, Some(qpn(1)));
    assert_eq!(received.work.imm, Some(Imm(3)));
    assert_eq!(received.work.flags, WcFlags::GRH | WcFlags::WITH_IMM);
    assert_eq!(received.solicited, Solicited::Yes);
    assert_eq!(b.memory.local[..40], AREA);
    assert_eq!(b.memory.local[40..48], *b"datagram");
}

#[test]
fn a_wrong_queue_key_or_no_receive_drops_the_datagram() {
    let (mut a, mut b) = (node(1, 5), node(2, QKEY));
    a.qp.post_send(steps::work(1, Work::Send, piece(0, 8)), to(2, QKEY))
        .unwrap();
    receive(&mut b, 1, 64);
    a.qp.post_send(steps::work(2, Work::Send, piece(0, 8)), to(2, QKEY + 1))
        .unwrap();
    a.qp.post_send(steps::work(3, Work::Send, piece(0, 8)), to(9, QKEY))
        .unwrap();
    a.qp.post_send(steps::work(4, Work::Send, piece(0, 8)), to(2, QKEY))
        .unwrap();
    let mut fates = carry(&mut a, &mut b);
    let wanted = [
        Ok(()),
        Err(DropReason::WrongQkey),
        Err(DropReason::WrongQueuePair),
        Err(DropReason::ReceiverNotReady),
    ];
    assert_eq!(fates, wanted);
    fates.retain(Result::is_err);
    assert_eq!(b.qp.counters().dropped_in_all(), fates.len() as u64);
    assert_eq!(completions(&mut a).len(), 4, "a sender learns of none");
    assert_eq!(b.qp.state(), QpState::Rts);
}

#[test]
fn a_packet_of_an_unknown_opcode_is_dropped_and_counted() {
    let mut b = node(2, QKEY);
    receive(&mut b, 1, 64);
    let of = |code, to| UnknownOpcode {
        code,
        pkey: adverb_wire::DEFAULT_PKEY,
        dest_qp: qpn(to),
        psn: Psn::new(0),
    };
    let wanted = [
        (of(0x66, 2), DropReason::UnknownOpcode),
        (of(0x15, 2), DropReason::WrongService),
        (of(0x66, 3), DropReason::WrongQueuePair),
    ];
    for (unknown, reason) in wanted {
        assert_eq!(b.qp.handle_unknown(&unknown), reason, "{unknown:?}");
        assert_eq!(b.qp.counters().dropped(reason), 1);
    }
    assert!(completions(&mut b).is_empty());
    assert_eq!(b.qp.state(), QpState::Rts);
}

#[test]
fn a_driver_may_place_messages_itself() {
    let (mut a, mut b) = (node(1, 5), node(2, QKEY));
    let mut out = [0; PACKET_SPACE];
    let mut give = |b: &mut Node, qkey, room: usize| {
        let payload = a.memory.put(0, b"datagram");
        let request = steps::work(1, Work::SendWithImm(Imm(3)), payload);
        a.qp.post_send(request, to(2, qkey)).unwrap();
        let (length, _) = a.qp.poll_transmit(&a.memory, &mut out).unwrap();
        let packet = Packet::parse(&out[..length]).unwrap();
        b.qp.handle_packet_apart(&packet, |datagram| {
            assert_eq!(datagram.payload, b"datagram");
            assert_eq!((datagram.src_qp, datagram.imm), (qpn(1), Some(Imm(3))));
            assert_eq!(datagram.solicited, Solicited::No);
            match datagram.payload.len() > room {
                true => Err(DropReason::ReceiverNotReady),
                false => Ok(()),
            }
        })
    };
    // Its own receive request is not used.
    receive(&mut b, 1, 64);
    assert_eq!(give(&mut b, QKEY, 8), Ok(()));
    assert_eq!(give(&mut b, QKEY, 7), Err(DropReason::ReceiverNotReady));
    assert_eq!(give(&mut b, 7, 8), Err(DropReason::WrongQkey));
    b.qp.set_qkey(7);
    assert_eq!(give(&mut b, 7, 8), Ok(()));
    let counters = b.qp.counters();
    assert_eq!((counters.taken, counters.dropped_in_all()), (2, 2));
    assert!(completions(&mut b).is_empty());
}

#[test]
fn a_privileged_queue_key_is_the_senders_own() {
    let (mut a, mut b) = (node(1, QKEY), node(2, QKEY));
    receive(&mut b, 1, 64);
    a.qp.post_send(steps::work(1, Work::Send, piece(0, 8)), to(2, 0x8000_0000))
        .unwrap();
    assert_eq!(carry(&mut a, &mut b), [Ok(())]);
}

#[test]
fn a_receive_that_is_too_small_fails_the_receiver_alone() {
    for room in [39, 47] {
        let (mut a, mut b) = (node(1, 5), node(2, QKEY));
        receive(&mut b, 1, room);
        receive(&mut b, 2, 64);
        a.qp.post_send(steps::work(1, Work::Send, piece(0, 8)), to(2, QKEY))
            .unwrap();
        assert_eq!(carry(&mut a, &mut b), [Err(DropReason::TooLong)]);
        let ended = [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)];
        assert_eq!(statuses(&mut b), ended);
        assert_eq!(b.qp.state(), QpState::Err);
        assert!(b.memory.local.iter().all(|&byte| byte == 0));
        assert_eq!(statuses(&mut a), [(1, WcStatus::Success)]);
    }
}

#[test]
fn wrong_memory_stops_the_send_queue_until_it_is_resumed() {
    let (mut a, mut b) = (node(1, QKEY), node(2, QKEY));
    receive(&mut b, 1, 64);
    receive(&mut a, 1, 64);
    let beyond = piece(crate::lab::memory::SIZE - 4, 8);
    a.qp.post_send(steps::work(1, Work::Send, beyond), to(2, QKEY))
        .unwrap();
    a.qp.post_send(steps::work(2, Work::Send, piece(0, 8)), to(2, QKEY))
        .unwrap();
    assert_eq!(carry(&mut a, &mut b), []);
    let ended = [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)];
    assert_eq!(statuses(&mut a), ended);
    assert_eq!(a.qp.state(), QpState::Sqe);
    b.qp.post_send(steps::work(1, Work::Send, piece(0, 8)), to(1, QKEY))
        .unwrap();
    assert_eq!(carry(&mut b, &mut a), [Ok(())], "it still receives");
    a.qp.resume();
    a.qp.post_send(steps::work(3, Work::Send, piece(0, 8)), to(2, QKEY))
        .unwrap();
    assert_eq!(carry(&mut a, &mut b), [Ok(())]);
}

#[test]
fn operations_that_ud_lacks_are_refused_at_the_post() {
    let mut a = node(1, QKEY);
    let mut refused = |work, length| {
        let request = steps::work(1, work, piece(0, length));
        a.qp.post_send(request, to(2, QKEY)).unwrap_err()
    };
    assert_eq!(
        refused(Work::Read(REMOTE), 8),
        PostError::NotOfService(Work::Read(REMOTE))
    );
    let too_long = PostError::TooLong {
        length: 1025,
        most: 1024,
    };
    assert_eq!(refused(Work::Send, 1025), too_long);
}

#[test]
fn requests_posted_in_the_error_state_are_flushed() {
    let mut node = node(1, QKEY);
    receive(&mut node, 1, 64);
    node.qp.enter_error();
    receive(&mut node, 2, 64);
    let request = steps::work(3, Work::Send, piece(0, 8));
    node.qp.post_send(request, to(2, QKEY)).unwrap();
    let ended = std::iter::from_fn(|| node.qp.poll_completion());
    let ended: Vec<_> = ended.map(|c| (c.work.wr_id.0, c.work.status)).collect();
    assert_eq!(ended, [1, 2, 3].map(|id| (id, WcStatus::WrFlushErr)));
    let sent = node.qp.poll_transmit(&node.memory, &mut [0; PACKET_SPACE]);
    assert_eq!(sent, None);
}
