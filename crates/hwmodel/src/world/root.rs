//! The root port's way to memory: through the last-level cache, past it, or to the other socket.

use adverb_sim::Random;
use adverb_units::{Span, Time};

use super::contest::{Contest, Core, LineTimes, Walk};
use super::machine::Placement;
use super::memory::Range;
use crate::load::{CpuLoad, Node, Work};
use crate::params::Params;
use crate::pcie::LINE;
use crate::rate::ns;

/// Most of memory's bandwidth that DMA gets: cores get the rest.
const MOST_TAKEN: f64 = 0.9;

/// Which way the NIC's writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// DDIO: they allocate in the last-level cache of the NIC's socket.
    Allocate,
    /// To memory of that socket; caches lose the lines.
    Bypass,
    /// To memory of the other socket; caches lose the lines.
    Across,
}

/// What DMA has taken of memory's bandwidth up to a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    at: Time,
    time: Span,
}

/// A machine's root port, and the lines that it and the cores want.
#[derive(Debug)]
pub(crate) struct Root {
    flow: Flow,
    /// What a line takes of memory's bandwidth, and what all lines of DMA have taken.
    line: Span,
    taken: Span,
    /// Buffers are in memory from the beginning: each read goes there.
    is_cold: bool,
    contest: Contest,
}

impl Root {
    pub(crate) fn new(p: &Params, placement: Placement, random: Random) -> Self {
        let flow = if placement.is_remote() {
            Flow::Across
        } else if p.memory.ddio_ways > 0.0 {
            Flow::Allocate
        } else {
            Flow::Bypass
        };
        let times = LineTimes {
            transfer: ns(p.memory.line_transfer_ns),
            memory: ns(p.memory.dma_dram_extra_ns),
            snoop: ns(p.memory.dma_ns),
            conflict: ns(p.memory.dma_numa_extra_ns),
        };
        Root {
            flow,
            line: ns(p.memory.line_ns),
            taken: Span::ZERO,
            is_cold: placement.is_memory(),
            contest: Contest::new(times, random),
        }
    }

    /// Whether what the NIC writes can be read out of the last-level cache.
    pub(crate) fn allocates(&self) -> bool {
        self.flow == Flow::Allocate
    }

    /// Lets threads work. Those that the CPUs have no room for wait for their turn.
    pub(crate) fn load(&mut self, load: &CpuLoad, p: &Params) {
        let Work::Walk { bytes, access } = load.work else {
            return;
        };
        let cores = p.cpu.cores as u32;
        let cpus = cores * p.cpu.threads_per_core as u32;
        let nodes = if load.node == Node::Both { 2 } else { 1 };
        let transfer = ns(p.memory.line_transfer_ns);
        let across = transfer + ns(p.memory.dma_numa_extra_ns);
        let is_near = |thread: u32| match load.node {
            Node::Nic => self.flow != Flow::Across,
            Node::Other => self.flow == Flow::Across,
            Node::Both => thread.is_multiple_of(2),
        };
        let threads = (0..load.threads.min(nodes * cpus)).map(|thread| {
            let core = Core(thread % (nodes * cores));
            let transfer = if is_near(thread) { transfer } else { across };
            (core, transfer)
        });
        let walk = Walk {
            bytes: bytes.get(),
            access,
            each: match access {
                crate::load::Access::Bytes { .. } => ns(p.cpu.access_ns),
                crate::load::Access::CompareSwap => ns(p.cpu.atomic_ns),
            },
        };
        self.contest.begin(walk, threads);
    }

    /// The NIC has written `bytes`.
    pub(crate) fn carry(&mut self, bytes: u64) {
        if self.flow != Flow::Allocate {
            self.taken += self.line * bytes.div_ceil(LINE);
        }
    }

    /// How long a core's load of a line from memory waits for lines of DMA, whose share of the bandwidth is
    /// what they took since `last`, which this moves on to `at`.
    ///
    /// A line that comes at any moment finds one of them under way with the probability of that share, half
    /// through on average, and behind it those that have queued up meanwhile.
    pub(crate) fn load_wait(&self, last: &mut Taken, at: Time) -> Span {
        let (over, time) = (
            (at - last.at).as_ns_f64(),
            self.taken.saturating_sub(last.time),
        );
        *last = Taken {
            at,
            time: self.taken,
        };
        if over <= 0.0 {
            return Span::ZERO;
        }
        let share = (time.as_ns_f64() / over).min(MOST_TAKEN);
        ns(self.line.as_ns_f64() / 2.0 * share / (1.0 - share))
    }

    /// The NIC writes; how long until it has all lines.
    ///
    /// Writes to the other socket are posted there and wait but for one another.
    pub(crate) fn write(&mut self, range: Range, at: Time) -> Span {
        let is_contested = self.contest.concerns(range);
        match self.flow {
            Flow::Allocate if is_contested => self.contest.allocate(range, at) - at,
            Flow::Bypass => self.contest.bypass(range, at) - at,
            Flow::Across if is_contested => self.contest.invalidate(range, at) - at,
            Flow::Allocate | Flow::Across => Span::ZERO,
        }
    }

    /// The NIC reads; how much longer that takes than where nobody else wants the lines.
    pub(crate) fn read(&mut self, range: Range, at: Time) -> Span {
        let is_contested = self.contest.concerns(range);
        match self.flow {
            Flow::Allocate if is_contested => self.contest.read(range, at) - at,
            Flow::Bypass if is_contested || !self.is_cold => self.contest.read(range, at) - at,
            Flow::Across if is_contested => self.contest.read_across(range, at) - at,
            Flow::Allocate | Flow::Bypass | Flow::Across => Span::ZERO,
        }
    }
}
