//! Kernel TCP: the path of a stream from the sending kernel to the receiving one.
//!
//! The kernel passes pieces of a stream to the NIC: segments, or several at once if the NIC has GSO and GRO.
//! A piece is read over PCIe, sent in frames of the IP MTU, written to the other host's memory, and raises
//! an interrupt. A core there handles interrupts, runs the protocol for each piece in turn, and wakes the
//! reader. Without DDIO the NIC and the copies between kernel and programs share the bandwidth of memory.
//! Acknowledgements are piggybacked on data, or sent alone for every second piece (RFC 5681). At
//! most a window of data is unacknowledged or unread; that the program has read is known to the sender at once
//! and without a packet.
//!
//! Over a long or bad path, lost segments of a piece are resent after a round trip (SACK), or after two if no other piece is
//! in flight (tail loss probe, RFC 8985); a segment that is alone in flight after the retransmission timeout, which doubles
//! each time (RFC 6298). Until then the stream waits, and nothing new is acknowledged. A lost SYN costs a second. The losses
//! shrink the congestion window. Acknowledgements without data are not lost: the next one repeats them.

use adverb_units::{Span, Time};
use adverb_verbs::LinkLayer;

use crate::host::tcp::{EndState, Flag, Piece};
use crate::machine::Machine;
use crate::nic::long_path::Packets;
use crate::world::fabric::{Event, EventQueue, Fabric};
use crate::world::wire::{header, switched};

/// TCP and IPv4 headers, with time stamps (RFC 793, 791, 7323).
const TCP_IP: u64 = 20 + 20 + 12;
/// Encapsulation of IP over InfiniBand (RFC 4391), which is part of the link's MTU.
const IPOIB: u64 = 4;
/// Pieces per acknowledgement.
const PIECES_OF_ACK: u32 = 2;
/// How long Linux takes to send a piece at the stream's rate, and by how much that exceeds a window in a round trip
/// (`tcp_pacing_ca_ratio`).
const PIECE_TIME: Span = Span::from_ms(1);
const PACING: f64 = 1.2;
/// How long a SYN is not answered until it is sent again (RFC 6298, 2.1).
const HANDSHAKE_TIMEOUT: Span = Span::from_secs(1);
/// Linux's `TCP_RTO_MIN`, which it adds to the round trip.
const RETRANSMISSION_TIMEOUT: Span = Span::from_ms(200);
/// Linux's `TCP_RTO_MAX`.
const LONGEST_TIMEOUT: Span = Span::from_secs(120);
/// A receive descriptor that the NIC writes, and a send descriptor that it reads.
const DESCRIPTOR: u64 = 16;

/// Returns the sum of `count` retransmission timeouts, each twice as long as the one before.
fn timeouts_of(count: u32, first: Span) -> Span {
    let timeout = |doubled: u32| (first * (1 << doubled.min(16))).min(LONGEST_TIMEOUT);
    (0..count).map(timeout).sum()
}

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
    /// Returns whether an end may send `bytes` more: unread bytes do not exceed the receiver's window, and unacknowledged
    /// ones neither that nor the congestion window. A window without bytes has room for any piece.
    pub(crate) fn has_room(&self, end: u32, bytes: u64) -> bool {
        let this = &self.ends[end as usize];
        let unread = self.ends[peer(end) as usize].unread.len() as u64;
        let machine = &self.machines[this.machine];
        let window = u64::from(machine.preset.params.tcp.window_bytes);
        let congestion = match machine.path {
            Some(_) => this.congestion.bytes(segment(machine)).min(window),
            None => window,
        };
        let fits = |taken: u64, window: u64| taken == 0 || taken + bytes <= window;
        fits(unread, window) && fits(this.unacknowledged, congestion)
    }

    /// Returns the largest piece that the kernel passes to the NIC: over a long path what it sends in a millisecond, but two
    /// segments at least, and at most half a congestion window (Linux, `tcp_tso_autosize` and `sk_pacing_shift`).
    pub(crate) fn largest_piece(&self, end: u32) -> u64 {
        let this = &self.ends[end as usize];
        let machine = &self.machines[this.machine];
        let most = machine.largest_piece();
        match &machine.path {
            None => most,
            Some(path) => {
                let segment = segment(machine);
                let window = this.congestion.bytes(segment);
                let rate = PACING * window as f64 / path.round_trip().as_secs_f64();
                let sent = (rate * PIECE_TIME.as_secs_f64()) as u64;
                most.min(sent.max(2 * segment)).min(window / 2).max(segment)
            }
        }
    }

    /// A program sends a piece, for which there is room.
    pub(crate) fn push(&mut self, end: u32, bytes: &[u8]) {
        self.ends[end as usize].unacknowledged += bytes.len() as u64;
        self.ends[peer(end) as usize].unread.extend(bytes);
    }

    /// A program reads the first `into.len()` bytes, which have arrived.
    pub(crate) fn pull(&mut self, end: u32, into: &mut [u8], events: &mut EventQueue) {
        let this = &mut self.ends[end as usize];
        this.readable -= into.len() as u64;
        let taken = this.unread.drain(..into.len());
        into.iter_mut().zip(taken).for_each(|(to, byte)| *to = byte);
        events.signal(self.ends[peer(end) as usize].room);
    }

    /// The kernel's doorbell for a piece arrives at the NIC.
    pub(super) fn tcp_send(
        &mut self,
        end: u32,
        (bytes, flag): (u32, Flag),
        events: &mut EventQueue,
    ) {
        let this = &mut self.ends[end as usize];
        let piece = Piece {
            index: this.sent,
            bytes,
            acknowledges: std::mem::take(&mut this.owed).0,
            flag,
        };
        this.sent += u32::from(!piece.is_acknowledgement());
        self.frames_leave(end, piece, events);
    }

    fn frames_leave(&mut self, end: u32, piece: Piece, events: &mut EventQueue) {
        let now = events.now();
        let here = self.ends[end as usize].machine;
        let there = self.ends[peer(end) as usize].machine;
        let host = &mut self.machines[here];
        let bytes = u64::from(piece.bytes);
        let through = host.preset.params.tcp.nic_ns;
        let latency = host.dma_latency();
        let headers = DESCRIPTOR + TCP_IP;
        let arrival = host.pcie.read(now, Span::ZERO, bytes + headers, latency);
        let wire = wire_bytes(host, bytes);
        let whole = host.link.byte.of(wire);
        let port_turn = host.nic.ports[0].begin(now, whole);
        let begin = port_turn.max(arrival.first + through);
        let last_frame = host
            .link
            .byte
            .of(wire_bytes(host, bytes.min(segment(host))));
        let left = (begin + whole).max(arrival.last + through + last_frame);
        let at = left + switched(&mut self.machines[there], 0, port_turn, whole);
        let to = peer(end);
        let packets = Packets {
            first: at,
            last: at,
            count: bytes.div_ceil(segment(&self.machines[here])).max(1),
            head: wire,
            wire,
        };
        let at = match here == there {
            true => at,
            false => self.cross_by_tcp(end, piece, packets, now),
        };
        events.schedule(at, Event::TcpArrive { end: to, piece });
    }

    /// Returns when a piece has arrived behind the path of its machine, if there is one.
    fn cross_by_tcp(&mut self, end: u32, piece: Piece, mut packets: Packets, now: Time) -> Time {
        let this = &mut self.ends[end as usize];
        let Some(path) = &mut self.machines[this.machine].path else {
            return packets.last;
        };
        if piece.is_acknowledgement() {
            return path.cross_intact(packets, 0).1;
        }
        let round_trip = path.round_trip();
        let (mut rounds, resent) = path.resent(packets.count);
        packets.wire += resent * packets.wire / packets.count;
        let intact = path.lost;
        let is_alone = this.unacknowledged <= u64::from(piece.bytes);
        let mut timeouts = Span::ZERO;
        if is_alone && packets.count == 1 {
            let first = match piece.flag {
                Flag::Syn => HANDSHAKE_TIMEOUT,
                _ => RETRANSMISSION_TIMEOUT + round_trip,
            };
            timeouts = timeouts_of(std::mem::take(&mut rounds), first);
        } else if is_alone && rounds > 0 {
            rounds += 1;
        }
        let at = path.cross_intact(packets, rounds).1 + timeouts;
        if resent > 0 || path.lost > intact {
            this.congestion.lost(now, round_trip);
        }
        at
    }

    /// The last frame of a piece arrives at the port; the NIC writes it to memory and raises an interrupt.
    pub(super) fn tcp_arrive(&mut self, end: u32, piece: Piece, events: &mut EventQueue) {
        let now = events.now();
        let machine = self.ends[end as usize].machine;
        let host = &mut self.machines[machine];
        let tcp = &host.preset.params.tcp;
        let (through, work) = (tcp.nic_ns, tcp.process_ns);
        let late = tcp.interrupt_delay_ns;
        let written = u64::from(piece.bytes) + DESCRIPTOR;
        let seen = host.pcie.write(now, through, written);
        host.root.carry(written);
        let done = host.interrupts.serve(seen + late, work);
        host.interrupted += work;
        self.ends[end as usize].interrupts += work;
        events.schedule(done, Event::TcpTaken { end, piece });
    }

    /// The kernel has processed a piece.
    pub(super) fn tcp_taken(&mut self, end: u32, piece: Piece, events: &mut EventQueue) {
        let this = &mut self.ends[end as usize];
        let acknowledged = u64::from(piece.acknowledges);
        this.unacknowledged = this.unacknowledged.saturating_sub(acknowledged);
        if piece.acknowledges > 0 {
            let machine = &self.machines[this.machine];
            if let Some(path) = &machine.path {
                let segments = acknowledged as f64 / segment(machine) as f64;
                let round_trip = path.round_trip();
                (this.congestion).acknowledged(segments, events.now(), round_trip);
            }
            events.signal(this.room);
        }
        if piece.is_acknowledgement() {
            // It may end the handshake.
            return self.follow(end, Flag::None, events);
        }
        this.early.insert(piece.index, (piece.bytes, piece.flag));
        self.put_in_order(end, events);
        if piece.bytes == 0 {
            return;
        }
        let this = &mut self.ends[end as usize];
        this.owed = (this.owed.0 + piece.bytes, this.owed.1 + 1);
        // A window of a few segments must not wait for the second piece.
        let host = &self.machines[this.machine];
        let is_long = host.path.is_some() && u64::from(this.owed.0) >= segment(host);
        if this.owed.1 >= PIECES_OF_ACK || is_long {
            self.kernel_sends(end, Flag::None, events);
        }
    }

    /// Passes the pieces that follow in order to the program.
    fn put_in_order(&mut self, end: u32, events: &mut EventQueue) {
        loop {
            let this = &mut self.ends[end as usize];
            let Some((bytes, flag)) = this.early.remove(&this.expects) else {
                return;
            };
            this.expects += 1;
            this.readable += u64::from(bytes);
            events.signal(this.data);
            self.follow(end, flag, events);
        }
    }

    /// Follows the handshake (RFC 793, 3.4) and the end of the stream.
    fn follow(&mut self, end: u32, flag: Flag, events: &mut EventQueue) {
        let this = &mut self.ends[end as usize];
        match (this.state, flag) {
            (EndState::Connecting, Flag::Syn) => {
                this.state = EndState::Established;
                events.signal(this.room);
                self.kernel_sends(end, Flag::None, events);
            }
            (EndState::Asked { .. }, Flag::Syn) => self.kernel_sends(end, Flag::Syn, events),
            (EndState::Asked { listener }, Flag::None) => {
                this.state = EndState::Established;
                let listener = &mut self.listeners[listener as usize];
                if let Some(connected) = &mut listener.connected {
                    connected.push_back(end);
                }
                events.signal(listener.condition);
            }
            (_, Flag::Fin) => {
                this.state = EndState::Ended;
                events.signal(this.data);
                events.signal(this.room);
            }
            _ => {}
        }
    }

    /// The kernel sends a piece without bytes, as part of its work on a received one.
    fn kernel_sends(&self, end: u32, flag: Flag, events: &mut EventQueue) {
        self.transmit(end, (0, flag), events.now(), events);
    }

    /// The doorbell for a piece is written at `rung`.
    pub(crate) fn transmit(
        &self,
        end: u32,
        (bytes, flag): (u32, Flag),
        rung: Time,
        events: &mut EventQueue,
    ) {
        let way = self.machines[self.ends[end as usize].machine].pcie.way();
        events.schedule(rung + way, Event::TcpSend { end, bytes, flag });
    }
}
