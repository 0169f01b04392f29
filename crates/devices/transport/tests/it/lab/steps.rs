//! Single steps of a test with two RC queue pairs: requests of A, and forged packets.

use adverb_transport::{Completion, DropReason, Payload, RcQp, ReceiveWork, SendWork, Work};
use adverb_verbs::{Psn, SendFlags, Srqn, WcStatus, WrId};
use adverb_wire::{Bth, Extension, Opcode, Packet, PacketHeaders, Syndrome};

use super::memory::pieces;
use super::{Lab, Sent, Side, config};

/// The path MTU of the queue pairs.
pub const MTU: usize = 256;

pub fn work(id: u64, work: Work, payload: Payload) -> SendWork {
    SendWork {
        wr_id: WrId(id),
        work,
        payload,
        flags: SendFlags::SIGNALED,
        remote_srqn: Srqn(0),
    }
}

pub fn post(lab: &mut Lab<RcQp>, request: SendWork) {
    lab.a.qp.post_send(request, &lab.a.memory).unwrap();
}

pub fn receive(id: u64, length: usize) -> ReceiveWork {
    ReceiveWork {
        wr_id: WrId(id),
        pieces: pieces(id as usize * 4096, length),
    }
}

pub fn post_receive(lab: &mut Lab<RcQp>, id: u64, length: usize) {
    lab.b.qp.post_receive(receive(id, length)).unwrap();
}

pub fn statuses(completions: &[Completion]) -> Vec<(u64, WcStatus)> {
    let pair = |c: &Completion| (c.work.wr_id.0, c.work.status);
    completions.iter().map(pair).collect()
}

pub fn sent_by(lab: &Lab<RcQp>, side: Side, opcode: Opcode) -> Vec<&Sent> {
    let wanted = |s: &&Sent| s.from == side && s.headers.bth.opcode == opcode;
    lab.sent.iter().filter(wanted).collect()
}

pub fn syndromes(lab: &Lab<RcQp>) -> Vec<Syndrome> {
    let acks = lab.sent.iter().filter_map(|s| match s.headers.extension {
        Extension::Ack(aeth) if s.headers.bth.opcode == Opcode::RcAck => Some(aeth.syndrome),
        _ => None,
    });
    acks.collect()
}

/// Passes a forged packet to B.
pub fn inject(
    lab: &mut Lab<RcQp>,
    opcode: Opcode,
    extension: Extension,
    payload: &[u8],
) -> Result<(), DropReason> {
    inject_at(lab, opcode, extension, payload, 0)
}

pub fn inject_at(
    lab: &mut Lab<RcQp>,
    opcode: Opcode,
    extension: Extension,
    payload: &[u8],
    ahead: u32,
) -> Result<(), DropReason> {
    let psn: Psn = config(Side::A).requester.first_psn.advance(ahead);
    let bth = Bth::new(opcode, config(Side::B).qpn, psn).padded_for(payload.len());
    let headers = PacketHeaders::new(bth, extension);
    let packet = Packet { headers, payload };
    lab.b.qp.handle_packet(lab.now, &packet, &mut lab.b.memory)
}
