//! One UD queue pair at the UDP port.
//!
//! It sends by the transport's state transport, one request at a time on the thread that posts. What
//! comes it puts into the queue pair's receive ring as one more sender beside the processes of this
//! host ([`crate::shm::datagram_ring`]).
//!
//! Sources: IBTA vol. 1, 9.8.3 (UD); annex A17.4.5.2 (what a receive over IPv4 begins with).

use std::net::SocketAddr;
use std::sync::Arc;

use adverb_transport::{
    Counters, DropReason, Memory, PacketBuffer, ReceiveQueue, SendWork, Solicited, UdConfig,
    UdDestination, UdQp,
};
use adverb_verbs::{PathMtu, Psn, QpState, WcStatus};
use adverb_wire::frame::{Addresses, Flow};
use adverb_wire::ipv4::{self, Ipv4, Unseen};
use adverb_wire::ipv6::Ipv6;
use adverb_wire::{Packet, UnknownOpcode, grh, udp};

use super::host::Endpoint;
use super::socket::Remote;
use crate::shm::datagram_ring::{Front, Message};
use crate::shm::notify::Urgency;

/// Where a packet goes, as the socket and the ICRC need it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) to: Remote,
    pub(super) flow: Flow,
}

impl Target {
    /// From one socket to another. None where they are of two families.
    pub(super) fn new(own: SocketAddr, to: Remote) -> Option<Self> {
        let flow = Flow {
            addresses: Addresses::of(own.ip(), to.to.ip())?,
            source_port: own.port(),
            destination_port: to.to.port(),
        };
        Some(Target { to, flow })
    }
}

#[derive(Debug)]
pub(super) struct DatagramLink {
    pub(super) qp: Arc<dyn Endpoint>,
    ud: UdQp<Target>,
    /// No receive before this position is posted.
    next: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outgoing {
    /// Its packet, of this length, is built.
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
            first_psn: Psn::default(), // nothing is sent before RTS names one
            // Each is sent before the next is posted.
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

    /// Takes the queue pair to the error state.
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
        // The state of its send queue the queue pair has itself.
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

    /// Drops a packet of an unknown opcode, and counts it.
    pub(super) fn drop_unknown(&mut self, unknown: &UnknownOpcode) {
        self.ud.handle_unknown(unknown);
    }

    /// Gives a packet's message to the oldest posted receive. What it drops it counts.
    pub(super) fn take(&mut self, packet: &Packet<'_>, front: &[u8; grh::LEN]) {
        let DatagramLink { qp, ud, next } = self;
        ud.set_qkey(qp.queue_key());
        let _ = ud.handle_packet_apart(packet, |datagram| {
            let message = Message {
                length: datagram.payload.len() as u32,
                source: datagram.src_qp.get(),
                imm: datagram.imm.map(|imm| imm.0),
                front: Front::Given,
            };
            let urgency = match datagram.solicited {
                Solicited::Yes => Urgency::Solicited,
                Solicited::No => Urgency::Usual,
            };
            let position = qp.put_datagram(*next, message, (front, datagram.payload), urgency);
            *next = position.ok_or(DropReason::ReceiverNotReady)? + 1;
            Ok(())
        });
    }
}

/// What a receive gets before the payload of a packet of `length` bytes, ICRC included: its IPv6
/// header, or 20 bytes of zero and its IPv4 header. What a socket does not see of them (class of
/// traffic, flow label, time to live) is zero.
pub(super) fn front(addresses: Addresses, length: usize, unseen: Unseen) -> [u8; grh::LEN] {
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
