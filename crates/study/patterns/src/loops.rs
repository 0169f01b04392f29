//! Closed and open loops of one-sided requests, with the placement and the load of NUMA machines.
//!
//! Clients of a closed loop keep a fixed number of requests in flight and time each. Clients of an open loop post as
//! fast as they can until the send queue is full. The servers' CPUs take no part, but threads there may load their
//! machine: workers access the words that requests access, other threads arrays of their own.

use adverb_results::{Word, words};
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    Access, CpuLoad, LoadWork, NodeChoice, NumaPlacement, PathMtu, PathOptions, Probability,
};
use adverb_workload::HardwareChanges;
use adverb_workload::pattern::{Inbound, Load, Outbound, Pattern, Places, Timing, Transport};
use serde_json::{Value, json};

use crate::placement::{add_load, add_nodes};

/// Smallest memory of a member.
const MEMORY: u64 = 2 << 20;
/// A word: the smallest slot.
const WORD: u64 = 8;
/// A cache line.
const LINE: u64 = 64;
/// Computation of a client before each post, in the benchmark of Nelson and Palmieri (schema.md).
pub const CLIENT_SPIN: Span = Span::from_ns(32);
/// Computation of a worker between two accesses, in the same benchmark: it reads the clock (`cpu.clock_ns`), and divides by
/// the buffer's size (64 bits: about 36 cycles on Haswell, Agner Fog's tables).
pub const WORKER_THINK: Span = Span::from_ns(35);
/// Outstanding READs and atomics of one queue pair, unless chosen.
pub const RD_ATOMIC: u8 = 16;

/// Whether clients wait for their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    /// They keep a number of requests in flight, and time each.
    Closed,
    /// They post until the send queue is full. Only the rate is measured.
    Open,
}

/// The distance of the slots in a server's memory, one for each queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotLayout {
    /// No two slots have a cache line in common.
    #[default]
    Lines,
    /// Without a gap.
    Packed,
}

words! {
    SlotLayout { Lines => "lines", Packed => "packed" }
}

/// NUMA nodes of a program's parts, relative to the NIC of each machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopNodes {
    /// Threads and memory of the clients.
    pub client: NodeChoice,
    /// Threads of the servers that own memory.
    pub server: NodeChoice,
    /// Memory that clients access.
    pub memory: NodeChoice,
    /// Workers.
    pub workers: NodeChoice,
}

/// Threads that load the servers' machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLoad {
    /// Threads that walk through the words that clients access.
    pub workers: u32,
    /// Share of writes among their accesses.
    pub worker_writes: Probability,
    /// Time for which they compute after each access.
    pub worker_think: Span,
    /// Threads that access arrays of their own ([`crate::independent`]).
    pub independent: Option<CpuLoad>,
    /// A thread flushes the lines that clients access from the caches.
    pub flushes: bool,
}

/// A loop of one-sided requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneSidedLoop {
    /// Closed or open.
    pub kind: LoopKind,
    /// Requests of each client; places and what is timed follow from the other fields.
    pub load: Load,
    /// Client threads.
    pub clients: u32,
    /// Queue pairs of each.
    pub qps: u32,
    /// Servers, each on a machine of its own; or the machines of the clients, if it is inbound.
    pub machines: u32,
    /// The clients are on several machines and access one server, instead of on one and accessing several.
    pub inbound: bool,
    /// Slots of the queue pairs.
    pub slots: SlotLayout,
    /// NUMA nodes.
    pub nodes: LoopNodes,
    /// Load of the servers' machines.
    pub server_load: ServerLoad,
    /// Changes of the hardware (models only).
    pub hardware: HardwareChanges,
    /// Options of the path.
    pub path: PathOptions,
}

impl OneSidedLoop {
    /// Returns a loop of one client with one queue pair, on idle machines.
    pub fn new(kind: LoopKind, load: Load) -> Self {
        OneSidedLoop {
            kind,
            load,
            clients: 1,
            qps: 1,
            machines: 1,
            inbound: false,
            slots: SlotLayout::default(),
            nodes: LoopNodes::default(),
            server_load: ServerLoad {
                workers: 0,
                worker_writes: Probability::ZERO,
                worker_think: Span::ZERO,
                independent: None,
                flushes: false,
            },
            hardware: HardwareChanges::default(),
            path: PathOptions::default(),
        }
    }

    /// Returns the distance of two slots.
    pub fn distance(&self) -> u64 {
        let size = u64::from(self.load.size).max(WORD);
        match self.slots {
            SlotLayout::Lines => size.next_multiple_of(LINE),
            SlotLayout::Packed => size,
        }
    }

    /// Returns the memory of all slots.
    fn slots_bytes(&self) -> Bytes {
        let slots = u64::from(self.clients) * u64::from(self.qps) * self.load.places_a_link();
        Bytes::new(self.distance() * slots)
    }

    /// Returns the threads that load a server's machine.
    fn loads(&self) -> Vec<CpuLoad> {
        let load = &self.server_load;
        let bytes = self.slots_bytes();
        let access = Access::Mixed {
            writes: load.worker_writes,
        };
        let flush = LoadWork::Flush { bytes };
        let work = LoadWork::Buffer {
            bytes,
            access,
            think: load.worker_think,
        };
        let all = [(u32::from(load.flushes), flush), (load.workers, work)];
        let all = all.into_iter().filter(|(threads, _)| *threads > 0);
        let all = all.map(|(threads, work)| CpuLoad {
            threads,
            node: self.nodes.workers,
            work,
        });
        all.chain(load.independent).collect()
    }

    /// Returns the members, and what each does.
    pub fn pattern(&self) -> Pattern {
        let load = Load {
            places: Places::Own(self.distance()),
            timing: match self.kind {
                LoopKind::Closed => Timing::Each,
                LoopKind::Open => Timing::Whole,
            },
            ..self.load.clone()
        };
        let memory = MEMORY.max(self.slots_bytes().get());
        let pattern = match self.inbound {
            true => {
                let shape = Inbound {
                    threads: self.clients,
                    peers: self.machines,
                    qps: self.clients * self.qps,
                    window: None,
                    receivers: 0,
                    depth: 0,
                    memory,
                };
                Pattern::inbound(Transport::Rc, &load, &shape)
            }
            false => {
                let shape = Outbound {
                    cores: self.clients,
                    qps: self.qps,
                    peers: self.machines,
                    memory,
                };
                Pattern::outbound(Transport::Rc, &load, shape)
            }
        };
        let nodes = self.nodes;
        let client = NumaPlacement {
            threads: nodes.client,
            memory: nodes.client,
        };
        let server = NumaPlacement {
            threads: nodes.server,
            memory: nodes.memory,
        };
        let pattern = pattern.placed(client, server).under_load(&self.loads());
        Pattern {
            path: self.path,
            hardware: self.hardware,
            ..pattern
        }
    }

    /// Returns the program's name and its parameters, as records have them. Those of NUMA machines are absent unless
    /// chosen.
    pub fn parameters(&self) -> (&'static str, Value) {
        let name = match self.kind {
            LoopKind::Closed => "closed-loop",
            LoopKind::Open => "open-loop",
        };
        let (load, server) = (&self.load, &self.server_load);
        let mut params = json!({
            "op": load.op, "size_bytes": load.size, "inline": load.inline,
            "clients": self.clients, "outstanding": load.limits.per_qp, "machines": self.machines,
            "qps": self.qps, "batch": load.posting.requests(),
        });
        let nodes = self.nodes;
        let nodes = [
            ("numa_client", nodes.client),
            ("numa_server", nodes.server),
            ("numa_memory", nodes.memory),
            ("numa_workers", nodes.workers),
        ];
        add_nodes(&mut params, nodes);
        add_load(&mut params, server.independent);
        let mut add = |is_chosen: bool, name: &str, value: Value| {
            if is_chosen {
                params[name] = value;
            }
        };
        add(self.inbound, "inbound", true.into());
        let rd_atomic = load.limits.rd_atomic;
        add(
            self.slots != SlotLayout::default(),
            "slots",
            self.slots.word().into(),
        );
        add(rd_atomic != RD_ATOMIC, "rd_atomic", rd_atomic.into());
        add(
            load.think > Span::ZERO,
            "think_ns",
            load.think.as_ns_f64().into(),
        );
        let has_workers = server.workers > 0;
        add(has_workers, "workers", server.workers.into());
        add(has_workers, "worker_writes", json!(server.worker_writes));
        let think = server.worker_think;
        add(
            think > Span::ZERO,
            "worker_think_ns",
            think.as_ns_f64().into(),
        );
        add(server.flushes, "flush", true.into());
        let hardware = self.hardware;
        add(hardware.without_ddio, "ddio", "off".into());
        let mtu = hardware.link_mtu.map(PathMtu::bytes);
        add(mtu.is_some(), "link_mtu_bytes", json!(mtu));
        let fewer = hardware.fewer_switches;
        add(fewer > 0, "fewer_switches", fewer.into());
        add(hardware.one_context, "one_context", true.into());
        add(hardware.polls_apart, "polls_apart", true.into());
        (name, params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::independent;
    use adverb_workload::pattern::{Opcode, Part};

    fn program(slots: SlotLayout) -> OneSidedLoop {
        let load = Load::new(Opcode::Write, 8);
        OneSidedLoop {
            clients: 8,
            slots,
            ..OneSidedLoop::new(LoopKind::Open, load)
        }
    }

    #[test]
    fn packed_slots_share_lines() {
        let bytes = |slots| program(slots).slots_bytes().get();
        assert_eq!(bytes(SlotLayout::Packed), 64);
        assert_eq!(bytes(SlotLayout::Lines), 8 * 64);
    }

    #[test]
    fn only_a_server_under_load_runs_threads() {
        let mut all = program(SlotLayout::Packed);
        let server = |all: &OneSidedLoop| all.pattern().members[8].part.clone();
        assert_eq!(server(&all), Part::Serve);
        all.server_load.workers = 4;
        let array = (Bytes::mib(1), Probability::ZERO);
        all.server_load.independent = independent(2, array, Default::default());
        let Part::Work(loads) = server(&all) else {
            panic!("threads run");
        };
        assert_eq!(loads.iter().map(|load| load.threads).sum::<u32>(), 6);
    }

    #[test]
    fn parameters_of_numa_machines_are_absent_unless_chosen() {
        let mut all = program(SlotLayout::Lines);
        let (name, params) = all.parameters();
        assert_eq!((name, params.as_object().unwrap().len()), ("open-loop", 8));
        all.nodes.memory = NodeChoice::Other;
        all.server_load.workers = 4;
        let params = all.parameters().1;
        assert_eq!(params["numa_memory"], "other");
        assert_eq!(
            (&params["workers"], &params["worker_writes"]),
            (&4.into(), &0.0.into())
        );
    }
}
