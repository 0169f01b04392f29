//! A core that forwards Ethernet frames: through PCIe, the last-level cache and two rings.
//!
//! The NIC writes each frame into the buffer of the next receive descriptor, and a completion. The core
//! handles bursts: for each frame it reads completion and header, writes the header, posts the buffer for
//! sending and another one for receiving. The NIC reads the frame, and the buffer is free again. The
//! result is how many lines of these DMA accesses hit the cache.
//!
//! Work requests that the NIC fetches are in the core's own cache and are not counted.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use adverb_sim::Seed;
use adverb_units::{Bytes, Span, Time};

use crate::host::llc::{AccessKind, Line, Llc};
use crate::host::pcie::{LINE, Pcie};
use crate::params::Params;
use crate::preset::{Kind, Preset};
use crate::rate::ByteTime;
use crate::resource::Server;

const BURST: usize = 32;
/// Size of the send queue. The core drops frames that exceed it.
const SEND_QUEUE: usize = 1024;
/// Distance of buffers: DPDK's `rte_mbuf` (128 B), its headroom (128 B), 2 KiB of data, and the
/// header and padding of its memory pool.
const BUFFER: u64 = 38 * LINE;
/// Offset of a frame's data in its buffer.
const DATA: u64 = 5 * LINE;
/// Longest frame that fits a buffer.
const LONGEST: Bytes = Bytes::new(2048);
/// Around a frame on the wire: check sequence 4 B, preamble 8 B, gap 12 B.
const FRAME_OVERHEAD: u64 = 24;
/// Address of the completion queue.
const COMPLETIONS: u64 = 1 << 40;
/// Number of measured frames, in addition to some turns of the ring.
const FRAMES: u64 = 20_000;

/// Why frames cannot be forwarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The preset of this name has no link.
    #[error("{0} has no link to receive frames from")]
    NoLink(String),
    /// A frame of this size does not fit a buffer.
    #[error("frames of {0} are outside 1 B to {LONGEST}, the size of a buffer")]
    Frame(Bytes),
    /// A ring of this many descriptors is too large.
    #[error("ring of {0} descriptors exceeds {MAX_DESCRIPTORS}")]
    Ring(u32),
}

/// Largest number of descriptors of a ring.
const MAX_DESCRIPTORS: u32 = 1 << 16;

/// The frames that were forwarded, and how many of their lines hit the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forwarded {
    /// Frames that were read for sending.
    pub frames: u64,
    /// Frames that found no descriptor.
    pub dropped: u64,
    /// The NIC's writes, in lines.
    pub writes: Lookups,
    /// Its reads.
    pub reads: Lookups,
}

/// Lines that were looked for in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lookups {
    /// All.
    pub lines: u64,
    /// Those that were there.
    pub hits: u64,
}

impl Lookups {
    fn count(&mut self, is_hit: bool) {
        self.lines += 1;
        self.hits += u64::from(is_hit);
    }

    /// Share of hits, in percent.
    pub fn percent(self) -> Option<f64> {
        (self.lines > 0).then(|| 100.0 * self.hits as f64 / self.lines as f64)
    }
}

/// The costs of the core, and of the NIC's reads.
#[derive(Clone, Copy, Debug)]
struct ForwardTimes {
    /// Handling a frame, without reading its header.
    frame: Span,
    burst: Span,
    cached: Span,
    uncached: Span,
    /// Serving a read of the NIC from the cache, and from memory.
    read_cached: Span,
    read_uncached: Span,
    /// Time that PCIe may be behind the port before the NIC drops frames.
    backlog: Span,
}

type Buffer = u64;

/// A frame in memory, and when it becomes visible to the core.
#[derive(Clone, Copy, Debug)]
struct ReceivedFrame {
    visible: Time,
    slot: u64,
    buffer: Buffer,
}

struct Forwarder {
    frame: u64,
    times: ForwardTimes,
    pcie: Pcie,
    llc: Llc,
    wire: Server,
    frame_time: Span,
    /// Slots and buffers of posted descriptors, the next one first.
    posted: VecDeque<(u64, Buffer)>,
    received: VecDeque<ReceivedFrame>,
    /// The burst that the core works on, and when it polls again.
    working: Vec<ReceivedFrame>,
    core: Time,
    /// Buffers that are being sent, and when each is free again.
    sending: VecDeque<(Time, Buffer)>,
    /// The pool of free buffers: last in, first out.
    pool: Vec<Buffer>,
    buffers: u64,
    found: Forwarded,
}

/// Lets a machine of `preset` forward frames of size `frame` that arrive at line rate, with a ring of
/// `descriptors`. Measures after the ring has turned a few times.
///
/// # Errors
/// If the preset has no link, or the frame or ring size is impossible.
pub fn forward(
    preset: &Preset,
    frame: Bytes,
    descriptors: NonZeroU32,
    seed: Seed,
) -> Result<Forwarded, ForwardError> {
    if preset.kind != Kind::Nic {
        return Err(ForwardError::NoLink(preset.name.clone()));
    }
    if !(Bytes::new(1)..=LONGEST).contains(&frame) {
        return Err(ForwardError::Frame(frame));
    }
    let given = descriptors.get();
    if given > MAX_DESCRIPTORS {
        return Err(ForwardError::Ring(given));
    }
    let mut forwarder = Forwarder::new(&preset.params, frame, given.into(), seed);
    let turns = 3 * u64::from(given);
    forwarder.run(turns);
    forwarder.found = Forwarded::default();
    forwarder.run(turns + FRAMES);
    Ok(forwarder.found)
}

impl Forwarder {
    fn new(p: &Params, frame: Bytes, descriptors: u64, seed: Seed) -> Self {
        let byte = ByteTime::of_rate(p.link.gbps * 1e9 / 8.0);
        let mut forwarder = Forwarder {
            frame: frame.get(),
            times: times(p, byte),
            pcie: Pcie::new(&p.pcie),
            llc: Llc::new(&p.memory, seed.stream("llc", 0).bits()),
            wire: Server::default(),
            frame_time: byte.of(frame.get() + FRAME_OVERHEAD),
            posted: VecDeque::new(),
            received: VecDeque::new(),
            working: Vec::new(),
            core: Time::ZERO,
            sending: VecDeque::new(),
            pool: Vec::new(),
            buffers: 0,
            found: Forwarded::default(),
        };
        for slot in 0..descriptors {
            let buffer = forwarder.take();
            forwarder.posted.push_back((slot, buffer));
        }
        forwarder
    }

    /// Runs until `frames` more have arrived.
    fn run(&mut self, frames: u64) {
        for _ in 0..frames {
            let comes = self.wire.serve(self.wire.free(), self.frame_time);
            while self.core < comes {
                self.core = self.burst(self.core, comes);
            }
            self.receive(comes);
        }
    }

    fn receive(&mut self, at: Time) {
        let starts = self.pcie.admit_write(at);
        if starts > at + self.times.backlog || self.posted.is_empty() {
            self.found.dropped += 1;
            return;
        }
        let (slot, buffer) = self.posted.pop_front().expect("there is one");
        for line in lines(buffer, self.frame) {
            let found = self.llc.dma_write(line);
            self.found.writes.count(found.is_hit());
        }
        let found = self.llc.dma_write(completion(slot));
        self.found.writes.count(found.is_hit());
        self.pcie.write(at, Span::ZERO, self.frame);
        let visible = self.pcie.write(at, Span::ZERO, LINE);
        self.received.push_back(ReceivedFrame {
            visible,
            slot,
            buffer,
        });
    }

    /// The core finishes a burst at `at` and starts the next; returns when that is finished, or the earliest
    /// time at which there can be one. No further frame arrives before `next`.
    fn burst(&mut self, at: Time, next: Time) -> Time {
        while self.sending.front().is_some_and(|(sent, _)| *sent <= at) {
            let sent = self.sending.pop_front();
            self.pool.extend(sent.map(|(_, buffer)| buffer));
        }
        for frame in std::mem::take(&mut self.working) {
            let fresh = self.take();
            self.posted.push_back((frame.slot, fresh));
            self.send(at, frame.buffer);
        }
        let is_visible = |frame: &&ReceivedFrame| frame.visible <= at;
        let there = self
            .received
            .iter()
            .take(BURST)
            .take_while(is_visible)
            .count();
        if there == 0 {
            return self.received.front().map_or(next, |first| first.visible);
        }
        self.working = self.received.drain(..there).collect();
        let mut busy = self.times.burst;
        for place in 0..there {
            let ReceivedFrame { slot, buffer, .. } = self.working[place];
            busy += self.times.frame + self.load(completion(slot), AccessKind::Load);
            busy += self.load(data(buffer), AccessKind::Store);
        }
        at + busy
    }

    /// The core accesses a line; returns how long that takes.
    fn load(&mut self, line: Line, access: AccessKind) -> Span {
        if self.llc.core(line, access).is_hit() {
            self.times.cached
        } else {
            self.times.uncached
        }
    }

    /// The core rings the doorbell at `at` for a frame: the NIC reads the request and the frame.
    fn send(&mut self, at: Time, buffer: Buffer) {
        if self.sending.len() >= SEND_QUEUE {
            self.pool.push(buffer);
            return;
        }
        let mut is_cached = true;
        for line in lines(buffer, self.frame) {
            let is_hit = self.llc.holds(line);
            self.found.reads.count(is_hit);
            is_cached &= is_hit;
        }
        let latency = if is_cached {
            self.times.read_cached
        } else {
            self.times.read_uncached
        };
        let rung = at + self.pcie.way();
        let request = self
            .pcie
            .read(rung, Span::ZERO, LINE, self.times.read_cached);
        let way = request.last - rung;
        let sent = self.pcie.read(rung, way, self.frame, latency).last;
        self.sending.push_back((sent, buffer));
        self.found.frames += 1;
    }

    fn take(&mut self) -> Buffer {
        self.pool.pop().unwrap_or_else(|| {
            self.buffers += 1;
            self.buffers - 1
        })
    }
}

fn times(p: &Params, byte: ByteTime) -> ForwardTimes {
    let (c, m) = (&p.cpu, &p.memory);
    ForwardTimes {
        frame: (c.poll_hit_ns + c.recv_build_ns + c.wqe_build_ns),
        burst: c.mmio_line_ns,
        cached: m.llc_ns,
        uncached: m.dram_ns,
        read_cached: m.dma_ns,
        read_uncached: (m.dma_ns + m.dma_dram_extra_ns),
        backlog: byte.of(p.link.buffer_bytes.into()),
    }
}

/// The line that a frame's header is in.
fn data(buffer: Buffer) -> Line {
    Line::of(buffer * BUFFER + DATA)
}

fn lines(buffer: Buffer, frame: u64) -> impl Iterator<Item = Line> {
    let first = data(buffer).0;
    (first..first + frame.div_ceil(LINE)).map(Line)
}

fn completion(slot: u64) -> Line {
    Line::of(COMPLETIONS + slot * LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(frame: u64, descriptors: u32, changes: &[(&str, f64)]) -> Forwarded {
        let preset = Preset::built_in("cx5_skylake").and_then(|preset| preset.with(changes));
        let descriptors = NonZeroU32::new(descriptors).expect("not 0");
        let preset = preset.expect("possible values");
        forward(&preset, Bytes::new(frame), descriptors, Seed(3)).expect("a possible frame")
    }

    fn reads(frame: u64, descriptors: u32, changes: &[(&str, f64)]) -> f64 {
        let found = forwarded(frame, descriptors, changes);
        found.reads.percent().expect("frames were read")
    }

    #[test]
    fn a_ring_stays_in_the_cache_if_it_fits() {
        let shares = [128, 1024, 4096, 8192].map(|ring| reads(1500, ring, &[]));
        assert!(shares.is_sorted_by(|a, b| a > b), "{shares:?}");
        assert!(shares[0] > 98.0 && shares[3] < 20.0, "{shares:?}");
    }

    #[test]
    fn more_ways_hold_more() {
        let shares =
            [1.0, 2.0, 4.0, 8.0, 11.0].map(|ways| reads(1500, 4096, &[("memory.ddio_ways", ways)]));
        assert!(shares.is_sorted_by(|a, b| a < b), "{shares:?}");
        let none = forwarded(1500, 4096, &[("memory.ddio_ways", 0.0)]);
        assert_eq!(none.writes.hits, 0);
        assert!(none.writes.lines > 0);
    }

    #[test]
    fn a_core_that_keeps_up_hits_the_cache_with_any_ring() {
        let found = forwarded(1500, 4096, &[("link.gbps", 25.0)]);
        assert_eq!(found.dropped, 0);
        assert!(found.reads.percent() > Some(99.0), "{found:?}");
        let found = forwarded(64, 4096, &[]);
        assert!(found.dropped > found.frames, "{found:?}");
    }

    #[test]
    fn impossible_frames_and_rings_are_refused() {
        let bare = Preset::built_in("nfp6000_hsw").expect("it comes with Adverb");
        let ring = NonZeroU32::new(64).expect("not 0");
        let refused = |preset: &Preset, frame, ring| {
            let refused = forward(preset, Bytes::new(frame), ring, Seed(0));
            refused.expect_err("impossible").to_string()
        };
        let text = refused(&bare, 64, ring);
        assert_eq!(text, "nfp6000_hsw has no link to receive frames from");
        let nic = Preset::built_in("cx5_skylake").expect("it comes with Adverb");
        assert!(refused(&nic, 4096, ring).starts_with("frames of 4 KiB"));
        assert!(refused(&nic, 64, NonZeroU32::MAX).starts_with("ring of 4294967295"));
    }
}
