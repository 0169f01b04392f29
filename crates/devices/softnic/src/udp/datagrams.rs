//! A UD queue pair at the UDP port.
//!
//! It sends through the transport's state machine, one request at a time on the posting thread. It puts arriving
//! messages into the queue pair's datagram ring, like any other sender ([`crate::shm::datagram_ring`]).
//!
//! Sources: IBTA vol. 1, 9.8.3 (UD); annex A17.4.5.2 (the first 40 bytes of a receive over IPv4).

use std::sync::Arc;

use adverb_transport::{
    Counters, DropReason, Memory, PacketBuffer, ReceiveQueue, SendWork, Solicited, UdConfig,
    UdDestination, UdQp,
};
use adverb_verbs::{PathMtu, Psn, QpState, WcStatus};
use adverb_wire::frame::Addresses;
use adverb_wire::ipv4::{self, Ipv4, Unseen};
use adverb_wire::ipv6::Ipv6;
use adverb_wire::{Packet, UnknownOpcode, grh, udp};

use super::host::Endpoint;
use super::packet::Target;
use crate::shm::datagram_ring::{GrhSource, Message};
use crate::shm::notify::Urgency;

#[derive(Debug)]
pub(super) struct DatagramLink {
    pub(super) qp: Arc<dyn Endpoint>,
    ud: UdQp<Target>,
    /// All receives before this position have a message.
    next: u64,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outgoing {
    /// Its packet of this length was built.
    Packet(usize, Target),
    /// It failed.
    Failed(WcStatus),
}

impl DatagramLink {
    pub(super) fn new(qp: &Arc<dyn Endpoint>, mtu: PathMtu) -> Self {
        let config = UdConfig {
            qpn: qp.qpn(),
            qkey: qp.queue_key(),
            mtu,
            first_psn: Psn::default(), // set by RTS, before anything is sent
            // Each request is sent before the next is posted.
            max_work: 1,
        };
        DatagramLink {
            qp: qp.clone(),
            ud: UdQp::new(&config, ReceiveQueue::new(0)),
            next: 0,
        }
    }

    pub(super) fn start_sending(&mut self, first_psn: Psn) {
        self.ud.start_sending(first_psn);
    }

    pub(super) fn counters(&self) -> &Counters {
        self.ud.counters()
    }

    /// Moves the queue pair to the error state.
    pub(super) fn enter_error(&mut self) {
        self.ud.enter_error();
        self.qp.end_in_error();
    }

    /// Builds the packet of a request in `out`.
    pub(super) fn send(
        &mut self,
        work: SendWork,
        to: UdDestination<Target>,
        (memory, out): (&impl Memory, &mut PacketBuffer),
    ) -> Outgoing {
        self.ud.set_qkey(self.qp.queue_key());
        if self.ud.post_send(work, to).is_err() {
            return Outgoing::Failed(WcStatus::LocQpOpErr);
        }
        let built = self.ud.poll_transmit(memory, out);
        let mut ended = std::iter::from_fn(|| self.ud.poll_completion());
        let failed = ended.find(|completion| !completion.work.status.is_success());
        // The queue pair itself keeps the state of its send queue.
        if self.ud.state() == QpState::Sqe {
            self.ud.resume();
        }
        match built {
            Some((length, target)) => Outgoing::Packet(length, target),
            None => {
                Outgoing::Failed(failed.map_or(WcStatus::WrFlushErr, |ended| ended.work.status))
            }
        }
    }

    /// Drops and counts a packet with an unknown opcode.
    pub(super) fn drop_unknown(&mut self, unknown: &UnknownOpcode) {
        self.ud.handle_unknown(unknown);
    }

    /// Completes the oldest posted receive with a packet's message, or drops and counts the packet.
    pub(super) fn take(&mut self, packet: &Packet<'_>, grh: &[u8; grh::LEN]) {
        let DatagramLink { qp, ud, next } = self;
        ud.set_qkey(qp.queue_key());
        let _ = ud.handle_packet_apart(packet, |datagram| {
            let message = Message {
                length: datagram.payload.len() as u32,
                source: datagram.src_qp.get(),
                imm: datagram.imm.map(|imm| imm.0),
                grh: GrhSource::Received,
            };
            let urgency = match datagram.solicited {
                Solicited::Yes => Urgency::Solicited,
                Solicited::No => Urgency::Usual,
            };
            let position = qp.put_datagram(*next, message, (grh, datagram.payload), urgency);
            *next = position.ok_or(DropReason::ReceiverNotReady)? + 1;
            Ok(())
        });
    }
}

/// Returns the 40 bytes that a receive gets before the payload of a packet of `length` bytes (with ICRC): its IPv6
/// header, or 20 zeros and its IPv4 header. Fields that a socket does not see (traffic class, flow label, hop limit)
/// are zero.
pub(super) fn receive_grh(addresses: Addresses, length: usize, unseen: Unseen) -> [u8; grh::LEN] {
    let in_ip = (udp::LEN + length) as u16;
    match addresses {
        Addresses::V4(source, destination) => grh::area_of_ipv4(
            &Ipv4 {
                tos: 0,
                total_length: ipv4::LEN as u16 + in_ip,
                unseen,
                ttl: 0,
                source,
                destination,
            }
            .to_bytes(),
        ),
        Addresses::V6(source, destination) => Ipv6 {
            traffic_class: 0,
            flow_label: 0,
            payload_length: in_ip,
            hop_limit: 0,
            source,
            destination,
        }
        .to_bytes(),
    }
}
