//! Kernel TCP: the path of a stream from the sending kernel to the receiving one.
//!
//! The kernel passes pieces of a stream to the NIC: segments, or several at once if the NIC has GSO and GRO.
//! A piece is read over PCIe, sent in frames of the IP MTU, written to the other host's memory, and raises
//! an interrupt. A core there handles interrupts, runs the protocol for each piece in turn, and wakes the
//! reader. Acknowledgements are piggybacked on data, or sent alone for every second piece (RFC 5681). At
//! most a window of data is unacknowledged. Nothing is lost.

use adverb_units::Span;
use adverb_verbs::LinkLayer;

use crate::host::tcp::Piece;
use crate::machine::Machine;
use crate::world::fabric::{Event, EventQueue, Fabric};
use crate::world::wire::{header, switched};

/// TCP and IPv4 headers, with time stamps (RFC 793, 791, 7323).
const TCP_IP: u64 = 20 + 20 + 12;
/// Encapsulation of IP over InfiniBand (RFC 4391), which is part of the link's MTU.
const IPOIB: u64 = 4;
/// Pieces per acknowledgement.
const PIECES_OF_ACK: u32 = 2;
/// A receive descriptor that the NIC writes, and a send descriptor that it reads.
const DESCRIPTOR: u64 = 16;

fn peer(end: u32) -> u32 {
    end ^ 1
}

fn segment(machine: &Machine) -> u64 {
    let ip = match machine.preset.link_layer {
        LinkLayer::InfiniBand => u64::from(machine.preset.params.link.mtu_bytes.get()) - IPOIB,
        _ => header::ETHERNET_MTU,
    };
    ip - TCP_IP
}

fn wire_bytes(machine: &Machine, bytes: u64) -> u64 {
    let around = match machine.preset.link_layer {
        LinkLayer::InfiniBand => header::DATAGRAM + IPOIB,
        _ => header::ETHERNET,
    };
    let frames = bytes.div_ceil(segment(machine)).max(1);
    bytes + frames * (around + TCP_IP)
}

impl Machine {
    /// The largest piece that the kernel passes to the NIC.
    pub(crate) fn largest_piece(&self) -> u64 {
        let offered = u64::from(self.preset.params.tcp.piece_bytes);
        offered.max(segment(self))
    }
}

impl Fabric {
    /// The kernel's doorbell for a piece of `bytes` arrives at the NIC.
    pub(super) fn tcp_send(&mut self, end: u32, bytes: u64, events: &mut EventQueue) {
        let owed = std::mem::take(&mut self.ends[end as usize].owed);
        let piece = Piece {
            bytes,
            acknowledges: owed.0,
        };
        self.frames_leave(end, piece, events);
    }

    fn frames_leave(&mut self, end: u32, piece: Piece, events: &mut EventQueue) {
        let now = events.now();
        let here = self.ends[end as usize].machine;
        let there = self.ends[peer(end) as usize].machine;
        let host = &mut self.machines[here];
        let through = host.preset.params.tcp.nic_ns;
        let latency = host.dma_latency();
        let headers = DESCRIPTOR + TCP_IP;
        let arrival = host
            .pcie
            .read(now, Span::ZERO, piece.bytes + headers, latency);
        let wire = wire_bytes(host, piece.bytes);
        let whole = host.link.byte.of(wire);
        let port_turn = host.nic.ports[0].begin(now, whole);
        let begin = port_turn.max(arrival.first + through);
        let last_frame = host
            .link
            .byte
            .of(wire_bytes(host, piece.bytes.min(segment(host))));
        let left = (begin + whole).max(arrival.last + through + last_frame);
        let at = left + switched(&mut self.machines[there], 0, port_turn, whole);
        let to = peer(end);
        events.schedule(at, Event::TcpArrive { end: to, piece });
    }

    /// The last frame of a piece arrives at the port; the NIC writes it to memory and raises an interrupt.
    pub(super) fn tcp_arrive(&mut self, end: u32, piece: Piece, events: &mut EventQueue) {
        let now = events.now();
        let machine = self.ends[end as usize].machine;
        let host = &mut self.machines[machine];
        let tcp = &host.preset.params.tcp;
        let (through, work) = (tcp.nic_ns, tcp.process_ns);
        let late = tcp.interrupt_delay_ns;
        let seen = host.pcie.write(now, through, piece.bytes + DESCRIPTOR);
        let done = host.interrupts.serve(seen + late, work);
        self.ends[end as usize].interrupts += work;
        events.schedule(done, Event::TcpTaken { end, piece });
    }

    /// The kernel has processed a piece.
    pub(super) fn tcp_taken(&mut self, end: u32, piece: Piece, events: &mut EventQueue) {
        let this = &mut self.ends[end as usize];
        this.readable += piece.bytes;
        this.unacknowledged = this.unacknowledged.saturating_sub(piece.acknowledges);
        if piece.acknowledges > 0 {
            events.signal(this.room);
        }
        if piece.bytes == 0 {
            return;
        }
        events.signal(this.data);
        this.owed = (this.owed.0 + piece.bytes, this.owed.1 + 1);
        if this.owed.1 >= PIECES_OF_ACK {
            let way = self.machines[this.machine].pcie.way();
            let at = events.now() + way;
            events.schedule(at, Event::TcpSend { end, bytes: 0 });
        }
    }
}
