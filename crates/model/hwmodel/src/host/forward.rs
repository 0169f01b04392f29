//! Ethernet frames that one core forwards: through PCIe, the last-level cache and two rings.
//!
//! The NIC writes each frame into the buffer of the next receive descriptor, and a completion. The core
//! takes bursts: for each frame it reads completion and header, writes the header, posts the buffer for
//! sending and another one for receiving. The NIC reads the frame and the buffer is free again. What
//! is looked for is how many lines of these DMA accesses the cache serves.
//!
//! Work requests that the NIC fetches are in the core's own cache and are not counted.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use adverb_sim::Seed;
use adverb_units::{Bytes, Span, Time};

use crate::host::llc::{Access, Line, Llc};
use crate::host::pcie::{LINE, Pcie};
use crate::params::Params;
use crate::preset::{Kind, Preset};
use crate::rate::{ByteTime, ns};
use crate::resource::Server;

/// Frames that the core takes at a time.
const BURST: usize = 32;
/// Frames that the core may have posted for sending; the others it drops.
const SEND_QUEUE: usize = 1024;
/// Distance of buffers: DPDK's descriptor of a packet (128 B), its headroom (128 B), 2 KiB of data, and the
/// header and padding of its memory pool.
const BUFFER: u64 = 38 * LINE;
/// Where the data of a frame begin in its buffer.
const DATA: u64 = 5 * LINE;
/// Longest frame that a buffer takes.
const LONGEST: Bytes = Bytes::new(2048);
/// Around a frame on the wire: check sequence 4 B, preamble 8 B, gap 12 B.
const FRAME_OVERHEAD: u64 = 24;
/// Address of the completion queue.
const COMPLETIONS: u64 = 1 << 40;
/// Frames that are measured, beside those of some turns of the ring.
const FRAMES: u64 = 20_000;

/// Why nothing can be forwarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The preset is of another kind.
    #[error("{name} has no link that frames could come from")]
    NoLink {
        /// Its name.
        name: String,
    },
    /// A frame that no buffer takes.
    #[error("frames of {given}: a buffer takes 1 B to {LONGEST}")]
    Frame {
        /// What was asked for.
        given: Bytes,
    },
    /// A ring that is too large.
    #[error("a ring of {given} descriptors: at most {MOST_DESCRIPTORS}")]
    Ring {
        /// What was asked for.
        given: u32,
    },
}

/// Most descriptors of a ring.
const MOST_DESCRIPTORS: u32 = 1 << 16;

/// What came and what was found in the cache.
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

/// What the core takes for things.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// A frame, but for reading its header.
    frame: Span,
    burst: Span,
    cached: Span,
    uncached: Span,
    /// Answering the NIC's read from the cache, and from memory.
    read_cached: Span,
    read_uncached: Span,
    /// How far PCIe may be behind before the NIC drops frames.
    backlog: Span,
}

/// A buffer's number.
type Buffer = u64;

/// A frame in memory: since when the core can see it.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    seen: Time,
    slot: u64,
    buffer: Buffer,
}

/// NIC, core and cache.
struct Forwarder {
    frame: u64,
    times: Times,
    pcie: Pcie,
    llc: Llc,
    wire: Server,
    frame_time: Span,
    /// Buffers of posted descriptors, the next one first.
    posted: VecDeque<(u64, Buffer)>,
    received: VecDeque<Waiting>,
    /// What the core works on, and when it looks again.
    working: Vec<Waiting>,
    core: Time,
    /// Buffers that are being sent, and until when.
    sending: VecDeque<(Time, Buffer)>,
    /// The pool: last in, first out.
    pool: Vec<Buffer>,
    buffers: u64,
    found: Forwarded,
}

/// Lets a machine of `preset` forward frames of `frame` that come at its link's full rate, over a ring
/// of `descriptors`, and measures once the ring has turned a few times.
///
/// # Errors
/// The preset has no link, or frame or ring are impossible.
pub fn forward(
    preset: &Preset,
    frame: Bytes,
    descriptors: NonZeroU32,
    seed: Seed,
) -> Result<Forwarded, ForwardError> {
    if preset.kind != Kind::Nic {
        let name = preset.name.clone();
        return Err(ForwardError::NoLink { name });
    }
    if !(Bytes::new(1)..=LONGEST).contains(&frame) {
        return Err(ForwardError::Frame { given: frame });
    }
    let given = descriptors.get();
    if given > MOST_DESCRIPTORS {
        return Err(ForwardError::Ring { given });
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

    /// Goes on until `frames` more have come, in the order of time.
    fn run(&mut self, frames: u64) {
        for _ in 0..frames {
            let comes = self.wire.serve(self.wire.free(), self.frame_time);
            while self.core < comes {
                self.core = self.burst(self.core, comes);
            }
            self.receive(comes);
        }
    }

    /// A frame has come.
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
        let seen = self.pcie.write(at, Span::ZERO, LINE);
        self.received.push_back(Waiting { seen, slot, buffer });
    }

    /// The core is done with one burst at `at` and looks for the next; returns when it is done with that, or
    /// will find one at the earliest. Until `next` no more comes.
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
        let seen = |waiting: &&Waiting| waiting.seen <= at;
        let there = self.received.iter().take(BURST).take_while(seen).count();
        if there == 0 {
            return self.received.front().map_or(next, |first| first.seen);
        }
        self.working = self.received.drain(..there).collect();
        let mut busy = self.times.burst;
        for place in 0..there {
            let Waiting { slot, buffer, .. } = self.working[place];
            busy += self.times.frame + self.load(completion(slot), Access::Load);
            busy += self.load(data(buffer), Access::Store);
        }
        at + busy
    }

    /// The core reads a line, and may write it.
    fn load(&mut self, line: Line, access: Access) -> Span {
        if self.llc.core(line, access).is_hit() {
            self.times.cached
        } else {
            self.times.uncached
        }
    }

    /// The NIC has been told at `at` to send a frame: it reads the request and the frame.
    fn send(&mut self, at: Time, buffer: Buffer) {
        if self.sending.len() >= SEND_QUEUE {
            self.pool.push(buffer);
            return;
        }
        let mut is_cached = true;
        for line in lines(buffer, self.frame) {
            let is_hit = self.llc.dma_read(line).is_hit();
            self.found.reads.count(is_hit);
            is_cached &= is_hit;
        }
        let latency = if is_cached {
            self.times.read_cached
        } else {
            self.times.read_uncached
        };
        let told = at + self.pcie.way();
        let request = self
            .pcie
            .read(told, Span::ZERO, LINE, self.times.read_cached);
        let way = request.last - told;
        let sent = self.pcie.read(told, way, self.frame, latency).last;
        self.sending.push_back((sent, buffer));
        self.found.frames += 1;
    }

    /// A buffer of the pool.
    fn take(&mut self) -> Buffer {
        self.pool.pop().unwrap_or_else(|| {
            self.buffers += 1;
            self.buffers - 1
        })
    }
}

fn times(p: &Params, byte: ByteTime) -> Times {
    let (c, m) = (&p.cpu, &p.memory);
    Times {
        frame: ns(c.poll_hit_ns + c.recv_build_ns + c.wqe_build_ns),
        burst: ns(c.mmio_line_ns),
        cached: ns(m.llc_ns),
        uncached: ns(m.dram_ns),
        read_cached: ns(m.dma_ns),
        read_uncached: ns(m.dma_ns + m.dma_dram_extra_ns),
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

/// The line of a slot's completion.
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
    fn a_ring_that_fits_stays_in_the_cache_and_a_longer_one_leaves_it() {
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
    fn a_core_that_keeps_up_finds_all_in_the_cache_however_long_the_ring() {
        let found = forwarded(1500, 4096, &[("link.gbps", 25.0)]);
        assert_eq!(found.dropped, 0);
        assert!(found.reads.percent() > Some(99.0), "{found:?}");
        let found = forwarded(64, 4096, &[]);
        assert!(found.dropped > found.frames, "{found:?}");
    }

    #[test]
    fn what_cannot_be_forwarded_is_refused_by_name() {
        let bare = Preset::built_in("nfp6000_hsw").expect("it comes with Adverb");
        let ring = NonZeroU32::new(64).expect("not 0");
        let refused = |preset: &Preset, frame, ring| {
            let refused = forward(preset, Bytes::new(frame), ring, Seed(0));
            refused.expect_err("impossible").to_string()
        };
        let text = refused(&bare, 64, ring);
        assert_eq!(text, "nfp6000_hsw has no link that frames could come from");
        let nic = Preset::built_in("cx5_skylake").expect("it comes with Adverb");
        assert!(refused(&nic, 4096, ring).starts_with("frames of 4 KiB"));
        assert!(refused(&nic, 64, NonZeroU32::MAX).starts_with("a ring of 4294967295"));
    }
}
