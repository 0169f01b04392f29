//! A machine: its CPU costs, NIC, PCIe link and memory.

pub(crate) mod stages;

use adverb_sim::{Clock, Pace, Seed};
use adverb_units::{Span, Time};
use adverb_verbs::{CpuLoad, DeviceCaps, Gid, Lid, Operation, PathMtu};

use crate::host::cores::Words;
use crate::host::memory::{Memory, Range};
use crate::host::pcie::{LINE, Pcie};
use crate::host::placement::Placement;
use crate::host::root::Root;
use crate::ids::{MachineId, QpIndex};
use crate::nic::device::{self, Nic, NicTimes};
use crate::nic::long_path::LongPath;
use crate::nic::wqe::Wqe;
use crate::params::CpuParams;
use crate::preset::{Driver, Preset};
use crate::rate::ByteTime;
use crate::resource::Server;
use crate::trace::{StepKind, Tracer};

#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkTimes {
    pub(crate) byte: ByteTime,
    /// Time that the receiver may be behind before senders wait for credits.
    pub(crate) backlog: Span,
}

/// BlueFlame registers of an opened context.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registers {
    /// Number of queue pairs that were assigned one.
    pub(crate) used: u32,
    /// Number of threads that use the context.
    pub(crate) threads: u32,
    /// The register that all further queue pairs share, under its lock.
    shared: Server,
    /// The thread that locked it last.
    owner: Option<u32>,
}

impl Registers {
    /// A thread writes to the shared register at `at`, for `span`; returns when it has written.
    ///
    /// A spin lock: its line moves to the thread that takes it, which takes `transfer`. If others wait, they have
    /// copies of the line, so that the thread that releases the lock must get it back first.
    pub(crate) fn write(&mut self, thread: u32, at: Time, span: Span, transfer: Span) -> Time {
        let moves = match self.owner.replace(thread) {
            Some(owner) if owner != thread => 1 + u64::from(self.shared.free() > at),
            _ => 0,
        };
        self.shared.serve(at, span + transfer * moves)
    }
}

pub(crate) struct Machine {
    pub(crate) index: MachineId,
    pub(crate) preset: Preset,
    pub(crate) seed: Seed,
    pub(crate) caps: DeviceCaps,
    pub(crate) cpu: CpuParams,
    pub(crate) nic: Nic,
    pub(crate) pcie: Pcie,
    pub(crate) link: LinkTimes,
    /// What packets cross behind its port, if that is more than cables and switches.
    pub(crate) path: Option<LongPath>,
    /// The core that handles network interrupts.
    pub(crate) interrupts: Server,
    /// CPU time there of all network interrupts so far.
    pub(crate) interrupted: Span,
    /// Threads there that may take precedence: the kernel's own, and roles.
    pub(crate) preempting: u32,
    pub(crate) memory: Memory,
    pub(crate) placement: Placement,
    pub(crate) root: Root,
    /// Number of roles that occupy cores, and of threads of the load.
    roles: u32,
    /// CPU time of all roles, except for polls that find nothing; and its part that wrote to the NIC.
    pub(crate) worked: Span,
    pub(crate) rang: Span,
    pub(crate) words: Words,
    /// Queue pairs by number.
    pub(crate) numbers: Vec<QpIndex>,
    pub(crate) handles: Vec<Gid>,
    pub(crate) protection_domains: u32,
    pub(crate) registers: Vec<Registers>,
    /// Whether its roles are threads of a process that opens the NIC once.
    pub(crate) has_one_context: bool,
    /// Whether a thread of its own polls each completion queue.
    pub(crate) has_pollers: bool,
    /// Records steps of the CPU, the NIC and the port; PCIe has its own tracer.
    pub(crate) trace: Tracer,
}

impl Machine {
    pub(crate) fn new(index: MachineId, preset: Preset, placement: Placement, seed: Seed) -> Self {
        let p = &preset.params;
        let mut pcie = Pcie::new(&p.pcie);
        // The driver allocates what the NIC itself needs (contexts) on the NIC's node.
        let round_trip = pcie.round_trip(64, p.memory.dma_ns);
        let times = NicTimes::new(p, round_trip);
        if placement.is_remote() {
            pcie = pcie.across(p.memory.dma_numa_extra_ns / 2);
        }
        let root = Root::new(p, placement, |name| seed.stream(name, index.0.into()));
        Machine {
            index,
            caps: device::caps(p, preset.link_layer),
            cpu: p.cpu,
            nic: Nic::new(p, times, seed.stream("contexts", index.0.into()).bits()),
            seed,
            link: LinkTimes {
                byte: ByteTime::of_rate(p.link.gbps * 1e9 / 8.0),
                backlog: ByteTime::of_rate(p.link.gbps * 1e9 / 8.0).of(p.link.buffer_bytes.into()),
            },
            pcie,
            path: None,
            interrupts: Server::default(),
            interrupted: Span::ZERO,
            preempting: 1,
            memory: Memory::new(index, p.nic.page_bytes.into()),
            placement,
            root,
            roles: 0,
            worked: Span::ZERO,
            rang: Span::ZERO,
            words: Words::new(p),
            numbers: Vec::new(),
            handles: Vec::new(),
            protection_domains: 0,
            registers: Vec::new(),
            has_one_context: false,
            has_pollers: false,
            trace: Tracer::default(),
            preset,
        }
    }

    /// Assigns a place to another role that occupies a core.
    pub(crate) fn take_seat(&mut self) -> u32 {
        self.roles += 1;
        self.roles - 1
    }

    /// Starts the threads of a load, and assigns places to them.
    pub(crate) fn load(&mut self, load: &CpuLoad, now: Time) {
        self.roles += self.root.load(load, &self.preset.params, now);
    }

    /// Returns the pace of the role at `place`, once all roles are placed.
    ///
    /// Roles are placed on the cores of a socket in turn, and are always busy: a waiting role polls.
    pub(crate) fn pace(&self, place: Option<u32>) -> Pace {
        let cpu = &self.preset.params.cpu;
        let cores = cpu.cores;
        let Some(place) = place else {
            return Pace::ALONE;
        };
        let others = self.roles.saturating_sub(place % cores + 1) / cores;
        if others == 0 {
            return Pace::ALONE;
        }
        Pace::slower(f64::from(others + 1) / cpu.smt_gain)
    }

    /// The running role's CPU does what `kind` says for `span`.
    pub(crate) fn work(&mut self, kind: StepKind, span: Span, clock: &mut Clock) {
        let began = clock.now();
        clock.busy(span);
        self.trace.note(kind, began, clock.now());
        if !matches!(kind, StepKind::Look | StepKind::Sleep) {
            self.worked += clock.now() - began;
        }
    }

    /// Returns the number of roles that occupy cores, and of threads of the load.
    pub(crate) fn roles(&self) -> u32 {
        self.roles
    }

    pub(crate) fn gid(&self) -> Gid {
        gid_of(self.index)
    }

    pub(crate) fn lid(&self) -> Lid {
        Lid(u16::try_from(self.index.0 + 1).unwrap_or(u16::MAX))
    }

    pub(crate) fn mtu(&self) -> PathMtu {
        use PathMtu::{B256, B512, B1024, B2048, B4096};
        let bytes = u64::from(self.preset.params.link.mtu_bytes.get());
        [B4096, B2048, B1024, B512]
            .into_iter()
            .find(|mtu| mtu.bytes().get() <= bytes)
            .unwrap_or(B256)
    }

    /// How long memory takes to answer a read of a program's own buffers and queues by the NIC.
    pub(crate) fn dma_latency(&self) -> Span {
        let m = &self.preset.params.memory;
        if self.placement.is_memory() {
            m.dma_ns + m.dma_dram_extra_ns
        } else {
            m.dma_ns
        }
    }

    /// As [`Machine::dma_latency`], for a range that peers access.
    pub(crate) fn read_latency(&self, range: Range) -> Span {
        self.preset.params.memory.dma_ns + self.memory_extra(range)
    }

    /// Additional time of reading a range that is in memory.
    fn memory_extra(&self, range: Range) -> Span {
        if self.root.is_in_memory(range) {
            self.preset.params.memory.dma_dram_extra_ns + self.root.queueing()
        } else {
            Span::ZERO
        }
    }

    /// Additional time of a locked read-modify-write of uncached or remote memory. In memory the line is read twice: for
    /// the operation, and to merge the 8 B that it writes, before another operation can read them. The way to the other
    /// socket counts only for the read: the write is posted, and does not wait for an answer.
    pub(crate) fn atomic_extra(&self, range: Range) -> Span {
        let hop = if self.placement.is_remote() {
            self.preset.params.memory.dma_numa_extra_ns
        } else {
            Span::ZERO
        };
        self.memory_extra(range) * 2 + hop
    }

    /// Whether the CPU writes a single request by MMIO.
    pub(crate) fn by_mmio(&self, wqe: &Wqe) -> bool {
        let fits = wqe.lines * LINE <= u64::from(self.preset.params.nic.blueflame_bytes);
        match self.preset.driver {
            Driver::Mlx4Upstream => {
                fits && (wqe.inline.is_some() || matches!(wqe.operation, Operation::RdmaRead(_)))
            }
            Driver::Mlx4Mlnx | Driver::Mlx5 => fits,
            Driver::Doorbell => false,
        }
    }
}

/// The GID of machine `index`: link-local, ending with its number.
pub(crate) fn gid_of(index: MachineId) -> Gid {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[8..12].copy_from_slice(b"Advb");
    gid[12..].copy_from_slice(&(index.0 + 1).to_be_bytes());
    Gid(gid)
}

pub(crate) fn machine_of(gid: Gid, machines: u32) -> Option<MachineId> {
    (0..machines)
        .map(MachineId)
        .find(|index| gid_of(*index) == gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way to the other socket was charged for the write, too.
    #[test]
    fn an_atomic_waits_once_for_the_other_socket_and_twice_for_memory() {
        let extra = |placement| {
            let preset = Preset::built_in("cx3").expect("a preset");
            let machine = Machine::new(MachineId(0), preset, placement, Seed(1));
            let word = Range {
                region: 0,
                offset: 0,
                length: 8,
            };
            machine.atomic_extra(word)
        };
        let memory = Preset::built_in("cx3").expect("a preset").params.memory;
        let (hop, twice) = (memory.dma_numa_extra_ns, memory.dma_dram_extra_ns * 2);
        for (placement, expected) in [
            (Placement::Cached, Span::ZERO),
            (Placement::RemoteCached, hop),
            (Placement::Memory, twice),
            (Placement::RemoteMemory, twice + hop),
        ] {
            assert_eq!(extra(placement), expected, "{placement:?}");
        }
    }
}
