//! The cells of the study's figures.

use adverb_patterns::store::Store;
use adverb_patterns::{
    CLIENT_SPIN, Job, LocalUpdates, LoopKind, LoopNodes, Nodes, OneSidedLoop, Opcode, Schedule,
    SharedWord, SlotLayout, WORKER_THINK, independent,
};
use adverb_units::{Bytes, Span};
use adverb_verbs::{CpuLoad, NodeChoice, NumaPlacement, PathMtu, PathOptions, Probability};
use adverb_workload::HardwareChanges;
use adverb_workload::pattern::{Limits, Load};

use super::figures::{
    CLOSED, INDEPENDENT, LARGE, NODES, OPEN, REMEDIES, SLOTS, STORE, SYNC, WORKERS,
};
use crate::Profile;
use crate::programs::{Abilities, Point, add};

/// Send queue of an open loop, and of the quick profile's: more than a NIC processes at a time. A model measures until
/// several times as many requests have ended.
const QUEUE: u32 = 1024;
const SHORT_QUEUE: u32 = 128;
/// Clients of the open loop, and of its larger variant, with one queue pair each.
const CLIENTS: u32 = 8;
const MANY_CLIENTS: u32 = 32;
/// Queue pairs of the closed loop.
const QUEUE_PAIRS: [u32; 9] = [1, 2, 4, 7, 8, 12, 16, 24, 32];
/// Payloads of the open loop.
const SIZES: [u32; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const FEW_SIZES: [u32; 5] = [8, 64, 512, 1024, 4096];
/// Connections of the store's client.
const CONNECTIONS: [u32; 6] = [1, 2, 4, 8, 16, 32];
const FEW_CONNECTIONS: [u32; 3] = [1, 8, 32];
/// Workers on the accessible words.
const WORKERS_OF: [u32; 9] = [0, 1, 2, 4, 8, 12, 16, 20, 24];
const FEW_WORKERS: [u32; 6] = [0, 1, 4, 8, 16, 24];
/// Threads of the independent load, and the arrays of each.
const LOAD_OF: [u32; 7] = [0, 4, 16, 32, 48, 64, 128];
const ARRAYS: [u64; 5] = [8 << 10, 256 << 10, 1 << 20, LARGE, 8 << 30];
const OPS: [Opcode; 2] = [Opcode::Read, Opcode::Write];
/// Share of writes among the accesses of workers.
const MIXES: [Probability; 3] = [
    Probability::per_million(900_000),
    Probability::per_million(500_000),
    Probability::ZERO,
];

struct Draft {
    abilities: Abilities,
    profile: Profile,
    points: Vec<Point>,
}

/// Returns the cells that a device can run.
pub(super) fn plan(profile: Profile, abilities: Abilities) -> Vec<Point> {
    let mut draft = Draft {
        abilities,
        profile,
        points: Vec::new(),
    };
    if abilities.queue_pairs {
        draft.closed();
        draft.open();
        draft.independent();
        draft.workers();
        draft.remedies();
        draft.store();
        draft.machine();
        if abilities.atomics {
            draft.sync();
        }
    }
    draft.points
}

impl Draft {
    /// The nodes on which the accessible memory is, one after the other.
    fn nodes(&self) -> &'static [NodeChoice] {
        match self.abilities.other_node {
            true => &[NodeChoice::Nic, NodeChoice::Other],
            false => &[NodeChoice::Any],
        }
    }

    /// Returns the clients of an experiment: real devices have a core for one.
    fn clients(&self, of_publication: u32) -> u32 {
        match self.abilities.is_virtual {
            true => of_publication,
            false => 1,
        }
    }

    /// Returns the publication's benchmark: a request of `size` over one queue pair for each client.
    fn program(
        &self,
        kind: LoopKind,
        (op, size): (Opcode, u32),
        (clients, memory): (u32, NodeChoice),
    ) -> OneSidedLoop {
        let per_qp = match kind {
            LoopKind::Closed => 1,
            LoopKind::Open if self.profile == Profile::Quick => SHORT_QUEUE,
            LoopKind::Open => QUEUE,
        };
        let load = Load {
            think: CLIENT_SPIN,
            limits: Limits::of_each_qp(per_qp, 1),
            ..Load::new(op, size)
        };
        let mut program = OneSidedLoop {
            clients,
            nodes: LoopNodes {
                memory,
                server: memory,
                ..LoopNodes::default()
            },
            // Slots of less than a line share lines.
            slots: match size {
                ..64 => SlotLayout::Packed,
                _ => SlotLayout::Lines,
            },
            ..OneSidedLoop::new(kind, load)
        };
        if self.abilities.is_virtual {
            program.path.path_mtu = Some(PathMtu::B256);
            // The publication's clients are threads of one process, two each in the open loop.
            program.hardware.one_context = true;
            program.hardware.polls_apart = kind == LoopKind::Open;
        }
        program
    }

    /// Figure 2: this machine's memory and caches, from CPUs of the first node or of all.
    fn machine(&mut self) {
        let nodes = self.abilities.nodes;
        let from = match self.profile {
            Profile::Quick => &nodes[..nodes.len().min(1)],
            Profile::Full | Profile::Paper => nodes,
        };
        for (cpus, memory) in from
            .iter()
            .flat_map(|cpus| nodes.iter().map(move |m| (*cpus, *m)))
        {
            let program = Nodes::new(cpus, memory);
            let new = Point {
                program: "nodes",
                params: program.parameters(),
                job: Job::Nodes(program),
                figures: vec![NODES.id],
            };
            add(&mut self.points, new);
        }
    }

    /// Figures 3a and 3b: 64 B over queue pairs.
    fn closed(&mut self) {
        for clients in QUEUE_PAIRS {
            if !self.abilities.is_virtual && clients > self.abilities.cpus {
                continue;
            }
            for memory in self.nodes() {
                for op in OPS {
                    let program = self.program(LoopKind::Closed, (op, 64), (clients, *memory));
                    self.add(&program, CLOSED.id);
                }
            }
        }
    }

    /// Figure 4: sizes.
    fn open(&mut self) {
        let sizes = match self.profile {
            Profile::Quick => &FEW_SIZES[..],
            _ => &SIZES[..],
        };
        for size in sizes {
            for memory in self.nodes() {
                for op in OPS {
                    let at = (self.clients(CLIENTS), *memory);
                    let program = self.program(LoopKind::Open, (op, *size), at);
                    self.add(&program, OPEN.id);
                }
            }
        }
    }

    /// Returns the threads of a load on a whole machine.
    fn most_load(&self) -> u32 {
        match self.abilities.is_virtual {
            true => 48,
            false => 4,
        }
    }

    /// Section V-C: threads with arrays of their own.
    fn independent(&mut self) {
        let is_virtual = self.abilities.is_virtual;
        let most = self.most_load();
        let memory = self.nodes()[0];
        for size in [8, 64] {
            for op in OPS {
                let at = (self.clients(CLIENTS), memory);
                let program = self.program(LoopKind::Open, (op, size), at);
                let mut loaded = |threads, bytes, node| {
                    let mut program = program.clone();
                    program.server_load.independent = load(threads, bytes, node);
                    self.add(&program, INDEPENDENT.id);
                };
                for threads in LOAD_OF.into_iter().filter(|n| is_virtual || *n <= most) {
                    loaded(threads, LARGE, NodeChoice::Any);
                    if threads > 0 && memory == NodeChoice::Nic {
                        loaded(threads, LARGE, NodeChoice::Nic);
                    }
                }
                for bytes in ARRAYS.into_iter().filter(|n| is_virtual || *n <= LARGE) {
                    loaded(most, bytes, NodeChoice::Any);
                }
            }
        }
    }

    /// Figures 5a and 5b, Section V-D: workers on the accessible words.
    fn workers(&mut self) {
        // On soft the client is one of the cores that meet in the line.
        let cpus = match self.abilities.is_virtual {
            true => self.abilities.cpus,
            false => self.abilities.cpus.saturating_sub(1).max(1),
        };
        let counts = match self.profile {
            Profile::Quick => &FEW_WORKERS[..],
            Profile::Full | Profile::Paper => &WORKERS_OF,
        };
        for workers in counts.iter().copied().filter(|n| *n <= cpus) {
            for memory in self.nodes() {
                for op in OPS {
                    for mix in MIXES {
                        self.worked((op, 8), (CLIENTS, *memory), (workers, mix), WORKERS.id);
                    }
                    self.worked(
                        (op, 8),
                        (MANY_CLIENTS, *memory),
                        (workers, MIXES[0]),
                        WORKERS.id,
                    );
                    self.worked((op, 64), (CLIENTS, *memory), (workers, MIXES[0]), SLOTS.id);
                }
            }
        }
    }

    fn worked(
        &mut self,
        request: (Opcode, u32),
        (clients, memory): (u32, NodeChoice),
        (workers, mix): (u32, Probability),
        figure: &'static str,
    ) {
        let at = (self.clients(clients), memory);
        let mut program = self.program(LoopKind::Open, request, at);
        // These runs of the publication were at another place in the network, a switch nearer than the others.
        program.hardware.fewer_switches = u32::from(self.abilities.switches > 1);
        if workers > 0 {
            program.server_load.workers = workers;
            program.server_load.worker_writes = mix;
            program.server_load.worker_think = WORKER_THINK;
            program.nodes.workers = memory;
        }
        // The publication's data has a run of one worker without DDIO, at the usual place.
        let is_measured = workers == 1 && mix == MIXES[0] && clients == CLIENTS;
        if is_measured && self.abilities.is_virtual && figure == WORKERS.id {
            let mut past_caches = program.clone();
            past_caches.hardware = HardwareChanges {
                without_ddio: true,
                fewer_switches: 0,
                ..program.hardware
            };
            self.add(&past_caches, REMEDIES.id);
        }
        self.add(&program, figure);
    }

    /// Section VII: flushed lines, no DDIO, larger MTUs.
    fn remedies(&mut self) {
        let memory = self.nodes()[0];
        let at = (self.clients(CLIENTS), memory);
        for op in OPS {
            for size in [8, 64] {
                let program = self.program(LoopKind::Open, (op, size), at);
                self.add(&program, REMEDIES.id);
                let mut flushed = program.clone();
                flushed.server_load.flushes = true;
                flushed.nodes.workers = memory;
                self.add(&flushed, REMEDIES.id);
                if self.abilities.is_virtual {
                    let mut past_caches = program;
                    past_caches.hardware.without_ddio = true;
                    self.add(&past_caches, REMEDIES.id);
                }
            }
            let sizes = match self.abilities.is_virtual {
                true => &SIZES[..],
                false => &[],
            };
            for size in sizes.iter().copied() {
                for mtu in [PathMtu::B256, PathMtu::B1024, PathMtu::B4096] {
                    let mut program = self.program(LoopKind::Open, (op, size), at);
                    if mtu != PathMtu::B256 {
                        program.path.path_mtu = None;
                        program.hardware.link_mtu = Some(mtu);
                    }
                    if self.profile != Profile::Quick || FEW_SIZES.contains(&size) {
                        self.add(&program, REMEDIES.id);
                    }
                }
            }
        }
    }

    /// Figures 6a to 6c: a store under memslap's load.
    fn store(&mut self) {
        let placements: &[[NodeChoice; 2]] = match self.abilities.other_node {
            true => &[
                [NodeChoice::Nic, NodeChoice::Nic],
                [NodeChoice::Other, NodeChoice::Nic],
                [NodeChoice::Other, NodeChoice::Other],
            ],
            false => &[[NodeChoice::Any, NodeChoice::Any]],
        };
        let connections = match self.profile {
            Profile::Quick => &FEW_CONNECTIONS[..],
            Profile::Full | Profile::Paper => &CONNECTIONS[..],
        };
        let (items, requests) = match (self.abilities.is_virtual, self.profile) {
            (true, _) => (500, 300),
            (false, Profile::Quick) => (10_000, 2000),
            (false, Profile::Full | Profile::Paper) => (10_000, 100_000),
        };
        let most = self.most_load();
        let on = |node| load(most, LARGE, node);
        for connections in connections {
            for [server, client] in placements {
                let mut loads = vec![None, on(NodeChoice::Any)];
                if *server != NodeChoice::Any {
                    loads.push(on(*server));
                }
                for load in loads {
                    let store = Store {
                        connections: *connections,
                        items,
                        requests,
                        numa_client: *client,
                        numa_server: NumaPlacement {
                            threads: *server,
                            memory: *server,
                        },
                        load,
                        ..Store::memslap()
                    };
                    let new = Point {
                        program: "store",
                        params: store.parameters(),
                        job: Job::Store(store),
                        figures: vec![STORE.id],
                    };
                    add(&mut self.points, new);
                }
            }
        }
    }

    /// One word that NICs and CPUs update.
    fn sync(&mut self) {
        let (clients, threads) = match self.abilities.is_virtual {
            true => (8, 4),
            false => (1, 1),
        };
        for local in LocalUpdates::ALL {
            let program = SharedWord {
                local,
                threads,
                clients,
                outstanding: 1,
                path: PathOptions::default(),
            };
            let new = Point {
                program: "sync",
                params: program.parameters(),
                job: Job::Pattern(program.pattern(), self.schedule()),
                figures: vec![SYNC.id],
            };
            add(&mut self.points, new);
        }
    }

    fn add(&mut self, program: &OneSidedLoop, figure: &'static str) {
        let (name, params) = program.parameters();
        let new = Point {
            program: name,
            params,
            job: Job::Pattern(program.pattern(), self.schedule()),
            figures: vec![figure],
        };
        add(&mut self.points, new);
    }

    fn schedule(&self) -> Schedule {
        let measured = match (self.abilities.is_virtual, self.profile) {
            (true, Profile::Quick) => Span::from_us(300),
            (true, Profile::Full | Profile::Paper) => Span::from_ms(1),
            (_, Profile::Quick) => Span::from_ms(200),
            (_, Profile::Full | Profile::Paper) => Span::from_secs(2),
        };
        Schedule {
            warm_up: measured / 2,
            measured,
        }
    }
}

/// Returns a load, half of whose accesses are writes.
fn load(threads: u32, bytes: u64, node: NodeChoice) -> Option<CpuLoad> {
    let array = (Bytes::new(bytes), Probability::per_million(500_000));
    independent(threads, array, (node, NodeChoice::Any))
}

#[cfg(test)]
mod tests;
