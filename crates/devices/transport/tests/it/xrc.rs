//! XRC: one end sends requests, each to a shared receive queue that it names; the other end only responds.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use crate::lab::memory::{REMOTE, piece, pieces};
use crate::lab::{Delivery, Lab, Random, Side, config};
use adverb_transport::{
    DropReason, Payload, RcConfig, RcQp, ReceiveQueue, ReceiveWork, ResponderFault, SendWork,
    SharedReceives, Work,
};
use adverb_verbs::{Comparison, Imm, QpState, QpType, SendFlags, Srqn, WcOpcode, WcStatus, WrId};
use adverb_wire::{Bth, Extension, Opcode, Packet, PacketHeaders, Service, XrcEth};

/// The shared receive queues of a domain.
#[derive(Clone, Debug, Default)]
struct Domain(Arc<Mutex<HashMap<Srqn, VecDeque<ReceiveWork>>>>);

#[derive(Debug)]
struct Receives {
    domain: Domain,
    selected: Srqn,
}

impl SharedReceives for Receives {
    fn take(&mut self) -> Option<ReceiveWork> {
        let mut queues = self.domain.0.lock().unwrap();
        queues.get_mut(&self.selected)?.pop_front()
    }

    fn give_back(&mut self, work: ReceiveWork) {
        let mut queues = self.domain.0.lock().unwrap();
        queues.entry(self.selected).or_default().push_front(work);
    }

    fn select(&mut self, srqn: Srqn) -> bool {
        self.selected = srqn;
        self.domain.0.lock().unwrap().contains_key(&srqn)
    }
}

impl Domain {
    fn of(queues: &[u32]) -> Self {
        let queues = queues.iter().map(|n| (Srqn(*n), VecDeque::new()));
        Domain(Arc::new(Mutex::new(queues.collect())))
    }

    fn post(&self, srqn: u32, id: u64, length: usize) {
        let pieces = pieces(id as usize * 1024, length);
        let wr_id = WrId(id);
        let mut queues = self.0.lock().unwrap();
        let queue = queues.get_mut(&Srqn(srqn)).unwrap();
        queue.push_back(ReceiveWork { wr_id, pieces });
    }
}

/// A connection whose A sends to queues of the domain.
fn connected(domain: &Domain, rule: crate::lab::Rule) -> Lab<RcQp> {
    let of = |side, qp_type| RcConfig {
        qp_type,
        ..config(side)
    };
    let receives = Receives {
        domain: domain.clone(),
        selected: Srqn(0),
    };
    let a = RcQp::new(&of(Side::A, QpType::XrcSend), ReceiveQueue::new(1));
    let receives = ReceiveQueue::shared(receives);
    let b = RcQp::new(&of(Side::B, QpType::XrcRecv), receives);
    Lab::new(a, b, rule)
}

fn post(lab: &mut Lab<RcQp>, (id, srqn): (u64, u32), work: Work, payload: Payload) {
    let request = SendWork {
        wr_id: WrId(id),
        work,
        payload,
        flags: SendFlags::SIGNALED,
        remote_srqn: Srqn(srqn),
    };
    lab.a.qp.post_send(request, &lab.a.memory).unwrap();
}

fn completed(end: &[adverb_transport::Completion]) -> Vec<(u64, WcOpcode, WcStatus)> {
    end.iter()
        .map(|c| (c.work.wr_id.0, c.work.opcode, c.work.status))
        .collect()
}

#[test]
fn all_operations_reach_the_queues_that_they_name_although_packets_are_lost() {
    let domain = Domain::of(&[0x11, 0x22]);
    let mut random = Random::new(5);
    let rule = move |_: &crate::lab::Sent| match random.below(10) {
        0 => Delivery::Drop,
        _ => Delivery::Pass,
    };
    let mut lab = connected(&domain, Box::new(rule));
    for id in 0..8 {
        domain.post([0x11, 0x22][id as usize % 2], id, 700);
    }
    let mut expected = Vec::new();
    for id in 0..8 {
        let bytes = Random::new(id).bytes(700);
        let payload = lab.a.memory.put(id as usize * 1024, &bytes);
        let (work, opcode) = match id % 4 {
            0 | 1 => (Work::Send, WcOpcode::Recv),
            _ => (
                Work::WriteWithImm(REMOTE, Imm(9)),
                WcOpcode::RecvRdmaWithImm,
            ),
        };
        post(&mut lab, (id, [0x11, 0x22][id as usize % 2]), work, payload);
        expected.push((id, opcode, WcStatus::Success));
        if opcode == WcOpcode::Recv {
            lab.run();
            assert_eq!(lab.b.memory.local[id as usize * 1024..][..700], bytes);
        }
    }
    post(&mut lab, (8, 0x11), Work::Read(REMOTE), piece(0, 700));
    post(
        &mut lab,
        (9, 0x22),
        Work::FetchAdd(REMOTE, 1),
        piece(2048, 8),
    );
    let compare = Comparison {
        expected: 0,
        new: 1,
    };
    let work = Work::CompareSwap(REMOTE, compare);
    post(&mut lab, (10, 0x22), work, piece(2048, 8));
    lab.run();
    assert_eq!(completed(&lab.b.completions), expected);
    assert_eq!(lab.a.completions.len(), 11);
    let failed = |c: &&adverb_transport::Completion| c.work.status != WcStatus::Success;
    assert_eq!(lab.a.completions.iter().find(failed), None);
    let xrc = |s: &crate::lab::Sent| s.headers.bth.opcode.service() == Service::Xrc;
    assert!(!lab.sent.is_empty() && lab.sent.iter().all(xrc));
}

#[test]
fn a_message_to_a_queue_outside_the_domain_is_an_invalid_request() {
    let domain = Domain::of(&[1]);
    for work in [Work::Send, Work::Write(REMOTE), Work::Read(REMOTE)] {
        let mut lab = connected(&domain, Box::new(|_| Delivery::Pass));
        post(&mut lab, (1, 2), work, piece(0, 8));
        lab.run();
        assert_eq!(lab.a.completions[0].work.status, WcStatus::RemInvReqErr);
        assert_eq!(lab.b.qp.state(), QpState::Err);
        assert_eq!(lab.b.qp.take_fault(), Some(ResponderFault::Request));
    }
}

/// Passes a SEND packet to one end, as if the other had sent it first.
fn inject(
    lab: &mut Lab<RcQp>,
    to: Side,
    (opcode, ahead, srqn): (Opcode, u32, u32),
    payload: &[u8],
) -> Result<(), DropReason> {
    let first = config(to).responder.first_psn.advance(ahead);
    let headers = PacketHeaders {
        xrc: Some(XrcEth { srqn: Srqn(srqn) }),
        ..PacketHeaders::new(Bth::new(opcode, to.qpn(), first), Extension::None)
    };
    let packet = Packet { headers, payload };
    let end = match to {
        Side::A => &mut lab.a,
        Side::B => &mut lab.b,
    };
    end.qp.handle_packet(lab.now, &packet, &mut end.memory)
}

#[test]
fn all_packets_of_a_message_name_one_queue() {
    let domain = Domain::of(&[1, 2]);
    (1..=2).for_each(|srqn| domain.post(srqn, srqn.into(), 700));
    let mut lab = connected(&domain, Box::new(|_| Delivery::Pass));
    let full = [7; 256];
    let first = (Opcode::XrcSendFirst, 0, 1);
    assert_eq!(inject(&mut lab, Side::B, first, &full), Ok(()));
    let other = (Opcode::XrcSendMiddle, 1, 2);
    let refused = inject(&mut lab, Side::B, other, &full);
    assert_eq!(refused, Err(DropReason::InvalidRequest));
    assert_eq!(lab.b.qp.state(), QpState::Err);
}

#[test]
fn the_sending_end_takes_no_requests() {
    let mut lab = connected(&Domain::of(&[1]), Box::new(|_| Delivery::Pass));
    let request = (Opcode::XrcSendOnly, 0, 1);
    let refused = inject(&mut lab, Side::A, request, &[7; 8]);
    assert_eq!(refused, Err(DropReason::InvalidRequest));
    assert_eq!(lab.a.qp.state(), QpState::Rts);
    // Nor does it answer one.
    let mut out = [0; adverb_transport::PACKET_SPACE];
    let now = lab.now;
    assert_eq!(lab.a.qp.poll_transmit(now, &lab.a.memory, &mut out), None);
}
