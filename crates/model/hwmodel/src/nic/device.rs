//! A machine's NIC: service times, resources, counters and limits.

use std::collections::VecDeque;

use adverb_units::Span;
use adverb_verbs::{AtomicCap, DeviceCaps, LinkLayer};

use crate::ids::QpRef;
use crate::nic::atomics::Atomics;
use crate::nic::dc;
use crate::nic::unit::Units;
use crate::nic::wqe::Wqes;
use crate::params::{NicParams, Params};
use crate::rate::period;
use crate::resource::{Cache, Room, Server, Slots};

#[derive(Clone, Copy, Debug)]
pub(crate) struct NicTimes {
    pub(crate) send: Span,
    pub(crate) read_request: Span,
    pub(crate) read_response: Span,
    pub(crate) write: Span,
    pub(crate) recv: Span,
    pub(crate) recv_header_only: Span,
    pub(crate) response: Span,
    /// How long a context miss stalls a side of the NIC.
    pub(crate) context_miss: Span,
    /// Draining what is in the NIC's pipeline.
    pub(crate) drain: Span,
    /// Reading a context from memory and loading it; handling an exception (an RNR NAK) takes as long, one at a time.
    pub(crate) exception: Span,
    /// Creating a DC context or loading a cached context, and how long that stalls what needs it.
    pub(crate) context_creation: Span,
    pub(crate) context_creation_stall: Span,
    /// A locked read-modify-write of cached memory.
    pub(crate) atomic: Span,
}

impl NicTimes {
    pub(crate) fn new(p: &Params, round_trip: Span) -> Self {
        let n = &p.nic;
        let context = round_trip + n.context_load_ns;
        Self {
            send: period(n.send_mops),
            read_request: period(n.read_request_mops),
            read_response: period(n.read_response_mops),
            write: period(n.write_mops),
            recv: period(n.recv_mops),
            recv_header_only: period(n.recv_header_only_mops),
            response: period(n.response_mops),
            context_miss: context / u64::from(n.context_fetches),
            drain: (n.tx_ns + n.rx_ns) + round_trip,
            exception: context,
            context_creation: n.context_load_ns,
            context_creation_stall: n.context_load_ns / u64::from(n.context_fetches),
            atomic: round_trip + n.atomic_ns,
        }
    }
}

/// Counters of the NIC, except its PCIe traffic.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NicCounts {
    pub(crate) context_hits: u64,
    pub(crate) context_misses: u64,
    pub(crate) translation_misses: u64,
    pub(crate) wqe_misses: u64,
    pub(crate) rnr_naks: u64,
    pub(crate) retransmissions: u64,
    pub(crate) dropped_datagrams: u64,
    pub(crate) sent_messages: u64,
    pub(crate) received_messages: u64,
    /// Requests that programs have posted to send queues.
    pub(crate) posted_requests: u64,
    /// Requests that have completed, signaled or not; unreliable ones when they reach the peer's port.
    pub(crate) completed_requests: u64,
}

#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) params: NicParams,
    pub(crate) times: NicTimes,
    pub(crate) units: Units,
    pub(crate) tx: Server,
    pub(crate) rx: Server,
    /// When the receive side will have served all messages in flight: limits the credits.
    pub(crate) promised: Server,
    pub(crate) contexts: Cache,
    /// Loads contexts to send READs and atomic operations.
    pub(crate) loads: Server,
    pub(crate) translations: Cache,
    pub(crate) commands: Server,
    pub(crate) dc_contexts: dc::Contexts,
    pub(crate) wqes: Wqes,
    /// Reads of evicted WQEs.
    pub(crate) fetches: Slots,
    /// Queue pairs whose next WQE is to be read when a read ends.
    pub(crate) unread: VecDeque<QpRef>,
    /// Whether an event is scheduled at that time.
    pub(crate) is_fetch_scheduled: bool,
    pub(crate) atomics: Atomics,
    /// The transmit direction of each port.
    pub(crate) ports: Vec<Server>,
    /// The switch port that each port is connected to.
    pub(crate) inbound: Vec<Server>,
    /// Connections made so far by each port.
    pub(crate) connected: Vec<u32>,
    pub(crate) counts: NicCounts,
}

impl Nic {
    /// Creates the NIC; `random` is the seed of its caches.
    pub(crate) fn new(p: &Params, times: NicTimes, random: u64) -> Self {
        let n = &p.nic;
        let ports = vec![Server::default(); p.link.ports as usize];
        Self {
            params: *n,
            times,
            units: Units::new(n.processing_units, ports.len()),
            tx: Server::default(),
            rx: Server::default(),
            promised: Server::default(),
            dc_contexts: dc::Contexts::new(n.dc_contexts),
            translations: Cache::new(n.translation_entries as usize, !random),
            commands: Server::default(),
            loads: Server::default(),
            contexts: Cache::new(n.context_entries as usize, random),
            wqes: Wqes::new(n, random.rotate_left(32)),
            fetches: Slots::new(n.wqe_fetches as usize),
            unread: VecDeque::new(),
            is_fetch_scheduled: false,
            atomics: Atomics::new(n, ports.len()),
            inbound: ports.clone(),
            connected: vec![0; ports.len()],
            ports,
            counts: NicCounts::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextKind {
    Requester = 0,
    Responder = 1,
    /// A DC target's context for an initiator, by its number in the pool.
    DcResponder = 2,
    /// The responder of an unreliable transport, which keeps nothing for retransmissions.
    UnreliableResponder = 3,
}

impl ContextKind {
    pub(crate) fn key(self, number: u32) -> u32 {
        4 * number + self as u32
    }

    /// The room that it takes in the context cache. An unreliable responder takes half an entry: HERD's
    /// server keeps its rate up to 260 clients that WRITE over UC (Kalia et al., SIGCOMM 2014, from memory),
    /// while the cache of such a NIC does not hold the contexts of as many reliable queue pairs.
    pub(crate) fn room(self) -> Room {
        match self {
            ContextKind::UnreliableResponder => Room::Half,
            _ => Room::Whole,
        }
    }
}

/// The limits that the NIC reports to programs.
pub(crate) fn caps(p: &Params, link: LinkLayer) -> DeviceCaps {
    DeviceCaps {
        max_qp: 1 << 16,
        max_qp_wr: 1 << 15,
        max_sge: 16,
        max_cq: 1 << 16,
        max_cqe: 1 << 22,
        max_mr: 1 << 16,
        max_mr_size: adverb_units::Bytes::mib(16 * 1024),
        max_qp_rd_atom: p.nic.max_rd_atomic as u8,
        max_inline_data: p.nic.max_inline_bytes,
        max_srq: 1 << 16,
        max_srq_wr: 1 << 15,
        max_srq_sge: 16,
        atomics: match link.has_all_transports() {
            true => AtomicCap::Device,
            false => AtomicCap::None,
        },
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NicSide {
    Transmit,
    Receive,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::pcie::Pcie;
    use crate::preset::Preset;

    /// The published latency of a locked read-modify-write of cached memory, in nanoseconds.
    fn published(nic: &str) -> f64 {
        let parameters = include_str!("../../data/parameters.csv");
        let line = parameters
            .lines()
            .find(|line| line.starts_with("atomic RMW over PCIe (LLC)"));
        let fields: Vec<&str> = line.expect("a line of atomics").split(',').collect();
        let mut both = fields[2].split(" ; ").zip(fields[4].split(" ; "));
        let (value, _) = both.find(|(_, name)| *name == nic).expect("a NIC");
        value.parse().expect("a number")
    }

    #[test]
    fn an_atomic_takes_as_long_as_published_for_its_nic() {
        for (preset, nic) in [("connect_ib", "Connect-IB"), ("cx3", "ConnectX-3")] {
            let params = Preset::built_in(preset).expect("a preset").params;
            let round_trip = Pcie::new(&params.pcie).round_trip(64, params.memory.dma_ns);
            let atomic = NicTimes::new(&params, round_trip).atomic.as_ns_f64();
            let expected = published(nic);
            assert!(
                (atomic / expected - 1.0).abs() < 0.02,
                "{preset}: {atomic} ns, published {expected}"
            );
        }
    }
}
