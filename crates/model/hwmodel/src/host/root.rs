//! The root complex: DMA into the last-level cache, past it, or to the other socket.

use adverb_sim::Random;
use adverb_units::{Span, Time};
use adverb_verbs::{Access, CpuLoad, LoadWork, NodeChoice};

use crate::host::contention::{Contention, Core, LineTimes, Walk};
use crate::host::demand::Demand;
use crate::host::interconnect::{Crossing, Interconnect};
use crate::host::memory::Range;
use crate::host::pcie::LINE;
use crate::host::placement::Placement;
use crate::host::share::{Filling, Share};
use crate::params::Params;
use crate::rate::ns;

/// Largest share of the memory bandwidth that DMA and other cores get while a core needs it.
const MAX_OTHERS_SHARE: f64 = 0.9;

/// The path of the NIC's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// DDIO: into the last-level cache of the NIC's socket.
    Allocate,
    /// To memory of the buffer's socket; cached copies are invalidated.
    Bypass,
    /// To memory of the other socket; cached copies are invalidated.
    Across,
}

/// The memory bandwidth that DMA and all cores have used up to a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    at: Time,
    time: Span,
}

/// A machine's root port, and the lines that it and the cores contend for.
#[derive(Debug)]
pub(crate) struct Root {
    flow: Flow,
    /// Whether buffers are on the other socket.
    is_remote: bool,
    /// Time for which a line occupies memory, and the total time of all lines of DMA and of cores.
    line: Span,
    taken: Span,
    /// Whether buffers are in memory.
    is_cold: bool,
    /// If so, what the NIC's writes have brought into the cache since.
    share: Option<Share>,
    contention: Contention,
    /// Seed of the replacement in the share.
    seed: u64,
    /// How long an access to memory waits for accesses of the load.
    queueing: Span,
    interconnect: Interconnect,
}

impl Root {
    pub(crate) fn new(p: &Params, placement: Placement, stream: impl Fn(&str) -> Random) -> Self {
        let flow = match (p.memory.ddio_ways, placement.is_remote()) {
            (0, _) => Flow::Bypass,
            (_, true) => Flow::Across,
            (_, false) => Flow::Allocate,
        };
        let times = LineTimes {
            transfer: p.memory.line_transfer_ns,
            memory: p.memory.dma_dram_extra_ns,
            snoop: p.memory.dma_ns,
            conflict: p.memory.dma_numa_extra_ns,
        };
        let mut root = Root {
            flow,
            is_remote: placement.is_remote(),
            line: p.memory.line_ns,
            taken: Span::ZERO,
            is_cold: false,
            share: None,
            contention: Contention::new(times, stream("load")),
            seed: stream("ddio").bits(),
            queueing: Span::ZERO,
            interconnect: Interconnect::new(p.memory.interconnect_line_ns),
        };
        if placement.is_memory() {
            root.evict(p);
        }
        root
    }

    /// The buffers are evicted from the last-level cache, except for what the NIC will write.
    pub(crate) fn evict(&mut self, p: &Params) {
        if !self.is_cold {
            self.is_cold = true;
            self.share = (self.allocates()).then(|| Share::new(&p.memory, self.seed));
        }
    }

    /// Returns how long an access to memory waits for accesses of the load.
    pub(crate) fn queueing(&self) -> Span {
        self.queueing
    }

    /// Returns how long a line waits to cross between the sockets.
    pub(crate) fn queueing_to_cross(&self, crossing: Crossing) -> Span {
        self.interconnect.queueing(crossing)
    }

    /// Whether the NIC writes to the last-level cache (DDIO).
    pub(crate) fn allocates(&self) -> bool {
        self.flow == Flow::Allocate
    }

    /// Whether a node is the buffers' one.
    fn is_near(&self, node: NodeChoice) -> bool {
        (node == NodeChoice::Other) == self.is_remote
    }

    /// Starts the threads of a load; each CPU runs one at a time. Returns the number of threads on the buffers' socket: if they
    /// may be on any node, every second one.
    pub(crate) fn load(&mut self, load: &CpuLoad, p: &Params, now: Time) -> u32 {
        let near = match load.node {
            NodeChoice::Any | NodeChoice::Number(_) => load.threads.div_ceil(2),
            node if self.is_near(node) => load.threads,
            _ => 0,
        };
        match load.work {
            LoadWork::Compute => {}
            LoadWork::Buffer {
                bytes,
                access,
                think,
            } => {
                let walk = Walk {
                    bytes: bytes.get(),
                    access,
                    each: match access {
                        Access::Mixed { .. } | Access::Increment => p.cpu.access_ns,
                        Access::CompareSwap | Access::FetchAdd => p.cpu.atomic_ns,
                    },
                    think,
                };
                self.walk((load, near), walk, p, now);
            }
            // What is flushed again and again is in memory whenever the NIC accesses it.
            LoadWork::Flush { .. } => self.evict(p),
            LoadWork::Independent {
                bytes,
                writes,
                memory,
            } => {
                for (threads, is_near) in [(near, true), (load.threads - near, false)] {
                    if let Some(demand) = Demand::of(threads, bytes, writes, p) {
                        self.compete(demand, (is_near, memory), p);
                    }
                }
            }
        }
        near
    }

    /// Threads of one socket compete for its cache, and for the memory that their arrays are in.
    fn compete(&mut self, demand: Demand, (is_near, memory): (bool, NodeChoice), p: &Params) {
        if is_near {
            // READs do not allocate, so a line that is only read is never cached again.
            self.evict(p);
        }
        let is_array_near = match memory {
            NodeChoice::Any | NodeChoice::Number(_) => is_near,
            node => self.is_near(node),
        };
        let used = if is_array_near == is_near {
            demand.used(p.memory.dram_ns)
        } else {
            let crossing = match is_near == self.is_remote {
                true => Crossing::FromNic,
                false => Crossing::ToNic,
            };
            let demand = demand.across(self.interconnect.line());
            let used = demand.used(p.memory.dram_ns + p.memory.numa_extra_ns);
            self.interconnect.load(crossing, used);
            used
        };
        if is_array_near {
            self.queueing += used.bus;
        }
    }

    /// Starts threads that walk through a buffer, `near` of them on its socket.
    fn walk(&mut self, (load, near): (&CpuLoad, u32), walk: Walk, p: &Params, now: Time) {
        let cores = p.cpu.cores;
        let cpus = cores * p.cpu.threads_per_core;
        let nodes = if load.node == NodeChoice::Any { 2 } else { 1 };
        let transfer = p.memory.line_transfer_ns;
        let [to_nic, from_nic] =
            [Crossing::ToNic, Crossing::FromNic].map(|way| self.interconnect.queueing(way));
        let across = transfer + p.memory.dma_numa_extra_ns + to_nic.max(from_nic);
        // Lines move in both directions.
        let crossing = (load.threads - near).min(walk.bytes.div_ceil(LINE) as u32);
        let used = Demand::crossing(crossing, self.interconnect.line()).used(across);
        self.interconnect.load(Crossing::ToNic, used);
        self.interconnect.load(Crossing::FromNic, used);
        let threads = (0..load.threads.min(nodes * cpus)).map(|thread| {
            let core = Core(thread % (nodes * cores));
            let is_near = if nodes == 1 {
                near > 0
            } else {
                thread.is_multiple_of(2)
            };
            let transfer = if is_near { transfer } else { across };
            (core, transfer)
        });
        self.contention.begin(walk, threads, now);
    }

    /// Accounts for `bytes` that the NIC wrote.
    pub(crate) fn carry(&mut self, bytes: u64) {
        if self.flow != Flow::Allocate {
            self.taken += self.line * bytes.div_ceil(LINE);
        }
    }

    /// A core moves `lines` from or to memory. Returns how long they wait for DMA and for other cores, which had
    /// their share of the memory bandwidth since `last`; updates `last`.
    ///
    /// An M/D/1 queue: with the probability of that share a line finds another one in service, half done on average,
    /// and others queued behind it.
    pub(crate) fn move_lines(&mut self, lines: u64, last: &mut Taken, at: Time) -> Span {
        let (over, time) = (
            (at - last.at).as_ns_f64(),
            self.taken.saturating_sub(last.time),
        );
        self.taken += self.line * lines;
        *last = Taken {
            at,
            time: self.taken,
        };
        if over <= 0.0 {
            return Span::ZERO;
        }
        let share = (time.as_ns_f64() / over).min(MAX_OTHERS_SHARE);
        ns(self.line.as_ns_f64() / 2.0 * share / (1.0 - share)) * lines
    }

    /// The NIC reads `bytes` of the buffers' socket; returns how long they wait to cross.
    pub(crate) fn cross(&mut self, bytes: u64, at: Time) -> Span {
        if !self.is_remote {
            return Span::ZERO;
        }
        let behind = self.interconnect.carry(Crossing::ToNic, bytes, at);
        behind + self.interconnect.queueing(Crossing::ToNic)
    }

    /// The NIC writes a range; returns how long until it has all lines.
    ///
    /// Writes to the other socket are posted, so they wait only for each other.
    pub(crate) fn write(&mut self, range: Range, at: Time) -> Span {
        let behind = match self.is_remote {
            true => (self.interconnect).carry(Crossing::FromNic, range.length as u64, at),
            false => Span::ZERO,
        };
        behind + self.take(range, at + behind)
    }

    fn take(&mut self, range: Range, at: Time) -> Span {
        let is_contested = self.contention.concerns(range);
        match self.flow {
            Flow::Allocate if is_contested => self.contention.allocate(range, at) - at,
            Flow::Allocate => self.fill(range),
            Flow::Bypass => self.contention.bypass(range, at) - at,
            Flow::Across if is_contested => self.contention.invalidate(range, at) - at,
            Flow::Across => Span::ZERO,
        }
    }

    /// The NIC writes into its share of the cache.
    fn fill(&mut self, range: Range) -> Span {
        let share = self.share.as_mut();
        let filling = share.map_or_else(Filling::default, |share| share.write(range));
        self.taken += self.line * filling.in_memory;
        filling.wait
    }

    /// Whether the NIC reads a whole range from memory.
    pub(crate) fn is_in_memory(&self, range: Range) -> bool {
        let is_kept = |share: &Share| share.holds(range);
        self.is_cold
            && !self.contention.concerns(range)
            && !self.share.as_ref().is_some_and(is_kept)
    }

    /// The NIC reads a range; returns how much longer that takes because of contention, for lines or between the sockets.
    pub(crate) fn read(&mut self, range: Range, at: Time) -> Span {
        let crossing = self.cross(range.length as u64, at);
        let end = match self.contention.concerns(range) {
            true if self.is_remote => self.contention.read_across(range, at),
            true => self.contention.read(range, at),
            false if self.is_in_memory(range) => self.contention.fetch(range, at, self.queueing),
            false if self.flow == Flow::Bypass => self.contention.read(range, at),
            false => at,
        };
        end - at + crossing
    }
}

#[cfg(test)]
mod tests {
    use adverb_sim::Seed;

    use super::*;
    use crate::preset::Preset;

    fn root(placement: Placement, ways: u32) -> Root {
        let mut params = Preset::built_in("cx3").unwrap().params;
        params.memory.ddio_ways = ways;
        Root::new(&params, placement, |name| Seed(1).stream(name, 0))
    }

    fn lines(first: usize, count: usize) -> Range {
        Range {
            region: 0,
            offset: first * LINE as usize,
            length: count * LINE as usize,
        }
    }

    #[test]
    fn writes_bring_a_buffer_from_memory_into_the_share() {
        let mut cold = root(Placement::Memory, 2);
        assert!(cold.is_in_memory(lines(0, 1)));
        assert_eq!(cold.write(lines(0, 8), Time::ZERO), Span::ZERO);
        assert!(!cold.is_in_memory(lines(0, 8)));
        assert!(
            cold.is_in_memory(lines(0, 9)),
            "one of them was not written"
        );
        assert_eq!(cold.taken, Span::ZERO, "memory is not accessed");
        let part = Range {
            length: 8,
            ..lines(100, 1)
        };
        let rest = Preset::built_in("cx3")
            .unwrap()
            .params
            .memory
            .dma_dram_extra_ns;
        assert_eq!(
            cold.write(part, Time::ZERO),
            rest,
            "the rest of the line is fetched"
        );
        assert_eq!(cold.write(part, Time::ZERO), Span::ZERO, "once");
    }

    #[test]
    fn lines_evicted_from_the_share_are_written_back() {
        // 2 of 20 ways of 20 MiB.
        let share = (2 << 20) / LINE as usize;
        let mut cold = root(Placement::Memory, 2);
        for line in 0..4 * share {
            cold.write(lines(line, 1), Time::ZERO);
        }
        let kept = (0..4 * share).filter(|line| !cold.is_in_memory(lines(*line, 1)));
        let kept = kept.count();
        assert!(
            kept <= share && kept > share * 98 / 100,
            "{kept} of {share}"
        );
        let written_back = cold.line * (4 * share - kept) as u64;
        assert_eq!(cold.taken, written_back, "all others");
    }

    #[test]
    fn a_core_waits_for_dma_and_for_other_cores_but_not_for_its_own_lines() {
        let mut root = root(Placement::Cached, 0);
        let at = |us| Time::ZERO + Span::from_us(us);
        let (mut one, mut other) = (Taken::default(), Taken::default());
        for us in [1, 2] {
            assert_eq!(root.move_lines(100, &mut one, at(us)), Span::ZERO);
        }
        let cores = root.move_lines(100, &mut other, at(2));
        assert!(cores > Span::ZERO, "200 lines of the first core");
        assert_eq!(root.move_lines(0, &mut one, at(3)), Span::ZERO);
        root.carry(200 * LINE);
        let dma = root.move_lines(100, &mut one, at(5));
        assert_eq!(dma, cores, "200 lines in two microseconds, too");
    }

    #[test]
    fn only_buffers_in_memory_with_ddio_have_a_share() {
        for (placement, ways) in [
            (Placement::Memory, 0),
            (Placement::Cached, 2),
            (Placement::RemoteMemory, 2),
        ] {
            let mut root = root(placement, ways);
            root.write(lines(0, 4), Time::ZERO);
            assert!(root.share.is_none(), "{placement:?}");
        }
    }
}
