//! A machine: its parameters as times, its NIC's resources, its memory.

use adverb_sim::{Pace, Seed};
use adverb_units::{Span, Time};
use adverb_verbs::{AtomicCap, DeviceCaps, Gid, Lid, Operation, PathMtu};

use super::atomics::Atomics;
use super::memory::{Memory, Range};
use super::queue_pair::Wqe;
use super::root::Root;
use super::send_queue::Wqes;
use super::wire::Leaves;
use crate::cores::Words;
use crate::load::{CpuLoad, Node};
use crate::params::Params;
use crate::pcie::{LINE, Pcie};
use crate::preset::{Driver, Preset};
use crate::rate::{ByteTime, ns, period};
use crate::resource::{Cache, Room, Server};
use crate::trace::{Act, Tracer};

/// Where a program's buffers lie, and in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// On the NIC's node, in its last-level cache.
    #[default]
    Cached,
    /// On the NIC's node, in memory.
    Memory,
    /// On the other node, in its last-level cache.
    RemoteCached,
    /// On the other node, in memory.
    RemoteMemory,
}

impl Placement {
    /// Whether it is on the other node.
    pub(crate) fn is_remote(self) -> bool {
        matches!(self, Placement::RemoteCached | Placement::RemoteMemory)
    }

    /// Whether it is in memory alone.
    pub(crate) fn is_memory(self) -> bool {
        matches!(self, Placement::Memory | Placement::RemoteMemory)
    }
}

/// What CPUs take for things.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTimes {
    pub(crate) wqe_build: Span,
    pub(crate) wqe_line: Span,
    pub(crate) mmio_line: Span,
    pub(crate) doorbell: Span,
    pub(crate) recv_build: Span,
    pub(crate) poll_empty: Span,
    pub(crate) poll_hit: Span,
    /// Loading a line that the NIC has just written.
    pub(crate) fresh_line: Span,
    pub(crate) wake: Span,
    pub(crate) wake_cpu: Span,
    pub(crate) syscall: Span,
    pub(crate) clock: Span,
    pub(crate) pin_page: Span,
    pub(crate) out_of_band: Span,
}

/// What the NIC takes for things.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NicTimes {
    pub(crate) tx: Span,
    pub(crate) rx: Span,
    pub(crate) unit_wqe: Span,
    pub(crate) unit_fetch: Span,
    pub(crate) send: Span,
    pub(crate) send_line: Span,
    pub(crate) read_request: Span,
    pub(crate) read_response: Span,
    pub(crate) write: Span,
    pub(crate) recv: Span,
    pub(crate) recv_header_only: Span,
    pub(crate) response: Span,
    /// How long a missing context stops a side of the NIC.
    pub(crate) context_miss: Span,
    /// Making a context, and how long that stops a side of the NIC.
    /// A command of the driver's.
    pub(crate) command: Span,
    /// What the NIC has taken up passes it.
    pub(crate) drain: Span,
    /// What is not of the usual course (RNR NAK) is done one at a time, with the context read and written.
    pub(crate) exception: Span,
    pub(crate) context_made: Span,
    pub(crate) context_making: Span,
    pub(crate) wqe_miss: Span,
    /// A locked read-modify-write of cached memory.
    pub(crate) atomic: Span,
}

/// What the NIC counts beside its PCIe traffic.
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
    /// Requests that have ended, whether anybody is told or not; unreliable ones when they are at their peer's port.
    pub(crate) completed_requests: u64,
}

/// The NIC's resources.
#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) times: NicTimes,
    pub(crate) units: Vec<Server>,
    pub(crate) tx: Server,
    pub(crate) rx: Server,
    /// When the receiving side will have served all that is on its way: what credits are given by.
    pub(crate) promised: Server,
    pub(crate) contexts: Cache,
    pub(crate) translations: Cache,
    /// Carries out the driver's commands.
    pub(crate) commands: Server,
    /// Contexts for DC initiators.
    pub(crate) dc_contexts: super::dc::Contexts,
    pub(crate) wqes: Wqes,
    pub(crate) atomics: Atomics,
    /// Outgoing side of each port.
    pub(crate) ports: Vec<Server>,
    /// The switch's outgoing side towards each port.
    pub(crate) inbound: Vec<Server>,
    /// Connections of each port, made so far.
    pub(crate) connected: Vec<u32>,
    pub(crate) counts: NicCounts,
}

/// The way out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkTimes {
    pub(crate) byte: ByteTime,
    pub(crate) cable: Span,
    pub(crate) switches: u64,
    pub(crate) switch: Span,
    /// How far the receiving side may be behind before senders wait for credits.
    pub(crate) backlog: Span,
}

/// Half of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Requester = 0,
    Responder = 1,
    /// What a DC target holds for an initiator, by its number in the pool.
    DcResponder = 2,
    /// It answers nothing, and keeps nothing to answer again.
    UnreliableResponder = 3,
}

impl Half {
    /// Its name in the cache of contexts.
    fn key(self, number: u32) -> u32 {
        4 * number + self as u32
    }

    /// The room that it takes. An unreliable responder takes half of it: HERD's server keeps its rate up to
    /// 260 clients that WRITE over UC (Kalia et al., SIGCOMM 2014, 5.5, recalled), where a NIC of the same
    /// kind has no room for the two halves of as many reliable ones.
    fn room(self) -> Room {
        match self {
            Half::UnreliableResponder => Room::Half,
            _ => Room::Whole,
        }
    }
}

/// BlueFlame registers of an opened context.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registers {
    /// Queue pairs that have got one, in turn.
    pub(crate) used: u32,
    /// The one that all queue pairs share that come too late for their own, under its lock.
    pub(crate) shared: Server,
}

/// Whether a role takes a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// It does.
    Core,
    /// It sleeps.
    None,
}

/// A machine with one NIC.
pub(crate) struct Machine {
    pub(crate) index: u32,
    pub(crate) preset: Preset,
    pub(crate) seed: Seed,
    pub(crate) caps: DeviceCaps,
    pub(crate) cpu: CpuTimes,
    pub(crate) nic: Nic,
    pub(crate) pcie: Pcie,
    pub(crate) link: LinkTimes,
    /// The core that takes interrupts of the network.
    pub(crate) interrupts: Server,
    pub(crate) memory: Memory,
    pub(crate) placement: Placement,
    pub(crate) root: Root,
    /// Roles that have cores, and threads beside them.
    roles: u32,
    /// Words that programs share among its cores.
    pub(crate) words: Words,
    /// Queue pairs by number.
    pub(crate) numbers: Vec<u32>,
    /// Ways to ports, by the name of their handle.
    pub(crate) handles: Vec<Gid>,
    pub(crate) protection_domains: u32,
    /// BlueFlame registers of the opened contexts.
    pub(crate) registers: Vec<Registers>,
    /// Takes notes of the CPU, the NIC and the way out; PCIe takes its own.
    pub(crate) trace: Tracer,
}

impl Machine {
    pub(crate) fn new(index: u32, preset: Preset, placement: Placement, seed: Seed) -> Self {
        let p = &preset.params;
        let mut pcie = Pcie::new(&p.pcie);
        // The driver keeps what the NIC itself needs (contexts) on the NIC's node.
        let round_trip = pcie.round_trip(64, ns(p.memory.dma_ns));
        let times = nic_times(p, round_trip);
        if placement.is_remote() {
            pcie = pcie.across(ns(p.memory.dma_numa_extra_ns) / 2);
        }
        let root = Root::new(p, placement, |name| seed.stream(name, index.into()));
        Machine {
            index,
            caps: caps(p),
            cpu: cpu_times(p, &root),
            nic: nic(p, times, seed.stream("contexts", index.into()).bits()),
            seed,
            link: LinkTimes {
                byte: ByteTime::of_rate(p.link.gbps * 1e9 / 8.0),
                cable: ns(p.link.cable_ns),
                switches: p.link.switches.into(),
                switch: ns(p.link.switch_ns),
                backlog: ByteTime::of_rate(p.link.gbps * 1e9 / 8.0).of(p.link.buffer_bytes.into()),
            },
            pcie,
            interrupts: Server::default(),
            memory: Memory::new(index, p.nic.page_bytes.into()),
            placement,
            root,
            roles: 0,
            words: Words::new(p),
            numbers: Vec::new(),
            handles: Vec::new(),
            protection_domains: 0,
            registers: Vec::new(),
            trace: Tracer::default(),
            preset,
        }
    }

    /// The place of one more role among those that have cores.
    pub(crate) fn take_seat(&mut self, seat: Seat) -> Option<u32> {
        let place = self.roles;
        self.roles += u32::from(seat == Seat::Core);
        (seat == Seat::Core).then_some(place)
    }

    /// Gives the threads of a load their places.
    pub(crate) fn seat(&mut self, load: &CpuLoad) {
        self.roles += match (load.node, self.placement.is_remote()) {
            (Node::Nic, false) | (Node::Other, true) => load.threads,
            (Node::Nic, true) | (Node::Other, false) => 0,
            (Node::Both, _) => load.threads.div_ceil(2),
        };
    }

    /// How fast the role at `place` computes, now that all are there.
    ///
    /// Roles are put on the cores of a socket in turn, and work all the time: who waits polls.
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

    pub(crate) fn gid(&self) -> Gid {
        gid_of(self.index)
    }

    pub(crate) fn lid(&self) -> Lid {
        Lid(u16::try_from(self.index + 1).unwrap_or(u16::MAX))
    }

    pub(crate) fn mtu(&self) -> PathMtu {
        use PathMtu::{B256, B512, B1024, B2048, B4096};
        let bytes = u64::from(self.preset.params.link.mtu_bytes.get());
        [B4096, B2048, B1024, B512]
            .into_iter()
            .find(|mtu| mtu.bytes().get() <= bytes)
            .unwrap_or(B256)
    }

    /// How long memory takes to answer the NIC.
    pub(crate) fn dma_latency(&self) -> Span {
        let m = &self.preset.params.memory;
        let state = if self.placement.is_memory() {
            m.dma_dram_extra_ns
        } else {
            0.0
        };
        ns(m.dma_ns + state)
    }

    /// The same of a range, of which the NIC may have brought into the cache what it wrote.
    pub(crate) fn read_latency(&self, range: Range) -> Span {
        if self.root.keeps(range) {
            ns(self.preset.params.memory.dma_ns)
        } else {
            self.dma_latency()
        }
    }

    /// What memory adds to a locked read-modify-write: reading and writing find it uncached.
    pub(crate) fn atomic_extra(&self) -> Span {
        let m = &self.preset.params.memory;
        let hop = if self.placement.is_remote() {
            ns(m.dma_numa_extra_ns)
        } else {
            Span::ZERO
        };
        (self.dma_latency().saturating_sub(ns(m.dma_ns)) + hop) * 2
    }

    /// Whether one request goes by MMIO.
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

    /// The context of one half of a queue pair is needed; how long that stops the side that needs it.
    ///
    /// The halves, as requester and as responder, are kept apart.
    #[inline]
    pub(crate) fn context(&mut self, qp: u32, half: Half) -> Span {
        if self.nic.contexts.access_in(half.key(qp), half.room()) {
            self.nic.counts.context_hits += 1;
            return Span::ZERO;
        }
        self.nic.counts.context_misses += 1;
        self.pcie.traffic.read_lines +=
            u64::from(self.preset.params.nic.context_bytes).div_ceil(64);
        self.nic.times.context_miss
    }

    /// The NIC makes a context: what it writes it need not read.
    pub(crate) fn make_context(&mut self, number: u32, half: Half) {
        self.nic.contexts.access_in(half.key(number), half.room());
    }

    /// The sending side works for `span`, from `at` on; returns when the request has passed it.
    #[inline]
    pub(crate) fn transmit(&mut self, at: Time, span: Span) -> Leaves {
        let passed = self.nic.tx.serve(at, span) + self.nic.times.tx;
        let idle = at + span + self.nic.times.tx;
        Leaves {
            idle,
            ready: passed,
        }
    }

    /// So many lines of payload follow: the sending side is busy with them, while the first ones are on
    /// their way.
    #[inline]
    pub(crate) fn transmit_more(&mut self, at: Time, lines: u64) {
        self.nic.tx.serve(at, self.nic.times.send_line * lines);
    }

    /// The NIC writes a message of `length` bytes to memory, `delay` after its first packet came at
    /// `first`; the last one passes the receiving side at `passed`. Returns when all can be seen.
    ///
    /// A long message streams in behind its first packet.
    pub(crate) fn stream_in(
        &mut self,
        (first, passed): (Time, Time),
        delay: Span,
        (length, mtu): (u64, u64),
    ) -> Time {
        let streamed = self.pcie.write(first, delay, length);
        if length <= mtu {
            return streamed.max(passed);
        }
        // What came last is written last; so is the full packet before it.
        let rest = (length - 1) % mtu.max(1) + 1;
        let came_before = self.link.byte.of(rest);
        let full = self.pcie.write_time(mtu).saturating_sub(came_before);
        let seen = passed + self.pcie.write_time(rest).max(full);
        let act = Act::Write(self.pcie.trace.subject(), rest);
        self.pcie.trace.note(act, passed, seen);
        streamed.max(seen)
    }

    /// The receiving side works for `span`, from `at` on; returns when the packet has passed it.
    #[inline]
    pub(crate) fn receive(&mut self, at: Time, span: Span) -> Time {
        let at = self.pcie.admit_write(at);
        self.nic.rx.serve(at, span) + self.nic.times.rx
    }
}

/// The GID of machine `index`: link-local, with its number.
pub(crate) fn gid_of(index: u32) -> Gid {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[8..12].copy_from_slice(b"Advb");
    gid[12..].copy_from_slice(&(index + 1).to_be_bytes());
    Gid(gid)
}

/// The machine whose port has `gid`.
pub(crate) fn machine_of(gid: Gid, machines: u32) -> Option<u32> {
    (0..machines).find(|index| gid_of(*index) == gid)
}

fn caps(p: &Params) -> DeviceCaps {
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
        atomics: AtomicCap::Device,
    }
}

fn cpu_times(p: &Params, root: &Root) -> CpuTimes {
    let c = &p.cpu;
    CpuTimes {
        wqe_build: ns(c.wqe_build_ns),
        wqe_line: ns(c.wqe_line_ns),
        mmio_line: ns(c.mmio_line_ns),
        doorbell: ns(c.doorbell_ns),
        recv_build: ns(c.recv_build_ns),
        poll_empty: ns(c.poll_empty_ns),
        poll_hit: ns(c.poll_hit_ns),
        fresh_line: if root.allocates() {
            ns(p.memory.llc_ns)
        } else {
            ns(p.memory.dram_ns)
        },
        wake: ns(c.wake_ns),
        wake_cpu: ns(c.wake_cpu_ns),
        syscall: ns(c.syscall_ns),
        clock: ns(c.clock_ns),
        pin_page: ns(c.pin_page_ns),
        out_of_band: ns(c.out_of_band_ns),
    }
}

fn nic_times(p: &Params, round_trip: Span) -> NicTimes {
    let n = &p.nic;
    let context = round_trip + ns(n.context_load_ns);
    NicTimes {
        tx: ns(n.tx_ns),
        rx: ns(n.rx_ns),
        unit_wqe: ns(n.unit_wqe_ns),
        unit_fetch: ns(n.unit_fetch_ns),
        send: period(n.send_mops),
        send_line: ns(n.send_line_ns),
        read_request: period(n.read_request_mops),
        read_response: period(n.read_response_mops),
        write: period(n.write_mops),
        recv: period(n.recv_mops),
        recv_header_only: period(n.recv_header_only_mops),
        response: period(n.response_mops),
        context_miss: context / u64::from(n.context_fetches),
        command: ns(n.command_ns),
        drain: ns(n.tx_ns + n.rx_ns) + round_trip,
        exception: context,
        context_made: ns(n.context_load_ns),
        context_making: ns(n.context_load_ns) / u64::from(n.context_fetches),
        wqe_miss: round_trip / u64::from(n.wqe_fetches),
        atomic: round_trip + ns(n.atomic_ns),
    }
}

fn nic(p: &Params, times: NicTimes, random: u64) -> Nic {
    let n = &p.nic;
    let ports = vec![Server::default(); p.link.ports as usize];
    Nic {
        times,
        units: vec![Server::default(); n.processing_units as usize],
        tx: Server::default(),
        rx: Server::default(),
        promised: Server::default(),
        dc_contexts: super::dc::Contexts::new(n.dc_contexts),
        translations: Cache::new(n.translation_entries as usize, !random),
        commands: Server::default(),
        contexts: Cache::new(n.context_entries as usize, random),
        wqes: Wqes::new(n),
        atomics: Atomics::new(n, ports.len()),
        inbound: ports.clone(),
        connected: vec![0; ports.len()],
        ports,
        counts: NicCounts::default(),
    }
}
