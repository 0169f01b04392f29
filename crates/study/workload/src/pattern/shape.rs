//! The members of a pattern and their links.

use adverb_units::{Bytes, Span};
use adverb_verbs::{CpuLoad, LoadWork, NodeChoice, NumaPlacement, PathOptions, RoleId};
use serde::{Deserialize, Serialize};

use crate::HardwareChanges;
use crate::load::{Aim, Dc, Limits, Load, Transport};
use crate::wiring::GRH;
use adverb_results::Completion;

/// A queue pair of a member and its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The other member.
    pub peer: RoleId,
}

/// The activity of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Posts requests over its links, in turn.
    Request(Load),
    /// Registers and deregisters memory, repeatedly.
    Churn {
        /// Bytes of the region.
        region: u64,
    },
    /// Posts as many SENDs as fit, for which no receive is posted.
    Strand(Load),
    /// Owns memory and queue pairs, and does nothing.
    Serve,
    /// Owns memory and queue pairs, while threads load its machine and access that memory.
    Work(Vec<CpuLoad>),
    /// Sleeps, and reports the counters of its machine's device for the measured time.
    Count,
    /// Computes pieces, and counts them.
    Compute(Piece),
    /// Receives messages (datagrams of all links on one queue pair) and keeps receives posted.
    Receive {
        /// Receives of each queue pair.
        depth: u32,
        /// Size of each in bytes: a global routing header and the payload.
        size: u32,
    },
}

/// A piece of a computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Duration without memory accesses.
    pub busy: Span,
    /// Cache lines of the member's memory that it loads, at random places.
    pub lines: u32,
}

/// A role of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its machine, from 0.
    pub machine: u32,
    /// Transport of its queue pairs.
    pub transport: Transport,
    /// Its links. Two members that are linked several times pair them in order.
    pub links: Vec<Link>,
    /// What it does.
    pub part: Part,
    /// Memory for its peers, in bytes.
    pub memory: u64,
    /// NUMA nodes of its thread and its memory.
    pub numa: NumaPlacement,
}

impl Member {
    /// Returns the most requests that it has outstanding; 0 if it posts none.
    pub fn outstanding(&self) -> u64 {
        let Part::Request(load) = &self.part else {
            return 0;
        };
        let queues = match self.transport {
            Transport::Dci => u64::from(load.dc.initiators),
            _ => self.links.len() as u64,
        };
        let all = queues * u64::from(load.limits.per_qp);
        all.min(load.limits.per_member.into())
    }
}

/// Where the payload of a message is when its receive completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Landing {
    /// In the receive's buffer: the device has written it there.
    #[default]
    Buffer,
    /// Within the completion: inline receive, which few devices have.
    Completion,
}

/// A program of several machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// Transport of the members that are added.
    pub transport: Transport,
    /// How members wait for completions.
    pub wait: Completion,
    /// Where messages land at members that receive.
    pub landing: Landing,
    /// Options of the path between all queue pairs.
    pub path: PathOptions,
    /// Changes of the hardware, which only models take.
    pub hardware: HardwareChanges,
    /// The members, by role.
    pub members: Vec<Member>,
}

impl Pattern {
    /// Returns a pattern without members.
    pub fn new(transport: Transport) -> Self {
        Pattern {
            transport,
            wait: Completion::Poll,
            landing: Landing::Buffer,
            path: PathOptions::default(),
            hardware: HardwareChanges::default(),
            members: Vec::new(),
        }
    }

    /// Adds a member without links.
    pub fn add(&mut self, machine: u32, part: Part, memory: u64) -> RoleId {
        self.members.push(Member {
            machine,
            transport: self.transport,
            links: Vec::new(),
            part,
            memory,
            numa: NumaPlacement::default(),
        });
        RoleId(self.members.len() as u32 - 1)
    }

    /// Returns the machine of the first member that posts requests; 0 if none does.
    pub fn home(&self) -> u32 {
        let mut members = self.members.iter();
        let posts = |member: &&Member| matches!(member.part, Part::Request(_));
        members.find(posts).map_or(0, |member| member.machine)
    }

    /// Links two members.
    ///
    /// # Panics
    /// If a member does not exist.
    pub fn link(&mut self, a: RoleId, b: RoleId) {
        self.members[a.0 as usize].links.push(Link { peer: b });
        self.members[b.0 as usize].links.push(Link { peer: a });
    }

    /// Places the members that post requests, and the members that own memory, on NUMA nodes.
    #[must_use]
    pub fn placed(mut self, requesters: NumaPlacement, owners: NumaPlacement) -> Self {
        for member in &mut self.members {
            match member.part {
                Part::Request(_) => member.numa = requesters,
                Part::Serve | Part::Work(_) => member.numa = owners,
                _ => {}
            }
        }
        self
    }

    /// Lets these threads load the machines of members that only own memory.
    #[must_use]
    pub fn under_load(mut self, loads: &[CpuLoad]) -> Self {
        for member in &mut self.members {
            if member.part == Part::Serve && !loads.is_empty() {
                member.part = Part::Work(loads.to_vec());
            }
        }
        self
    }

    /// Whether threads access the memory that requests access. Then the words there are checked.
    pub(crate) fn shares_memory(&self) -> bool {
        let accesses = |load: &CpuLoad| match load.work {
            LoadWork::Buffer { access, .. } => !access.adds(),
            _ => false,
        };
        self.members.iter().any(|member| match &member.part {
            Part::Work(loads) => loads.iter().any(accesses),
            _ => false,
        })
    }

    /// Returns the NUMA node of the memory of a machine's members.
    pub fn memory_node(&self, machine: u32) -> NodeChoice {
        let mut members = self.members.iter();
        let first = members.find(|member| member.machine == machine);
        first.map_or(NodeChoice::Any, |member| member.numa.memory)
    }

    /// Returns the memory of a member.
    pub fn memory(&self, role: RoleId) -> Bytes {
        Bytes::new(self.members[role.0 as usize].memory)
    }

    /// Returns the number of machines.
    pub fn machines(&self) -> u32 {
        let machines = self.members.iter().map(|member| member.machine + 1);
        machines.max().unwrap_or(0)
    }

    /// Returns a pattern in which one machine posts: `cores` members with `qps` links each, in turn to members
    /// on `peers` machines, which are passive, or receive messages over connections. Datagrams are not
    /// received: they are dropped, which costs the sender nothing.
    pub fn outbound(transport: Transport, load: &Load, shape: Outbound) -> Self {
        let mut pattern = Pattern::new(transport);
        let requesters: Vec<_> = (0..shape.cores)
            .map(|core| {
                let part = Part::Request(Load {
                    first_place: u64::from(core * shape.qps),
                    ..seeded(load, core)
                });
                pattern.add(0, part, shape.memory)
            })
            .collect();
        let servers: Vec<_> = (0..shape.peers)
            .map(|peer| {
                let part = if load.op.consumes_receive() && transport != Transport::Ud {
                    let depth = 2 * load.limits.per_qp.clamp(1, 512);
                    let size = load.payload();
                    Part::Receive { depth, size }
                } else {
                    Part::Serve
                };
                let memory = shape.memory.max(receive_memory(&part));
                pattern.add(peer + 1, part, memory)
            })
            .collect();
        let mut next = 0;
        for requester in requesters {
            if transport == Transport::Dci {
                servers
                    .iter()
                    .for_each(|server| pattern.link(requester, *server));
                pattern.initiators(requester, shape.qps);
                continue;
            }
            for _ in 0..shape.qps {
                pattern.link(requester, servers[next % servers.len()]);
                next += 1;
            }
        }
        pattern
    }

    /// Returns a pattern in which `threads` members on `peers` machines post to one machine, over `qps` links in
    /// total. Messages that need receives are sent to its `receivers`, each with its own queue pair.
    pub fn inbound(transport: Transport, load: &Load, shape: &Inbound) -> Self {
        let mut pattern = Pattern::new(transport);
        let servers: Vec<_> = if shape.receivers > 0 {
            let part = Part::Receive {
                depth: shape.depth,
                size: load.payload() + GRH,
            };
            let memory = shape.memory.max(receive_memory(&part));
            let add = |_| pattern.add(0, part.clone(), memory);
            (0..shape.receivers).map(add).collect()
        } else {
            vec![pattern.add(0, Part::Serve, shape.memory)]
        };
        let peers = shape.peers.max(1);
        let links = shape.qps.div_ceil(shape.threads.max(1));
        let threads: Vec<_> = (0..shape.threads)
            .map(|thread| {
                let load = Load {
                    first_place: u64::from(thread * links),
                    ..seeded(load, thread)
                };
                let part = match shape.share_of(thread) {
                    // A machine with more threads than requests in flight leaves some idle.
                    Some(0) => Part::Serve,
                    share => Part::Request(within(&load, share)),
                };
                // All of its requests access one place.
                pattern.add(1 + thread % peers, part, load.payload().into())
            })
            .collect();
        if transport == Transport::Dci {
            for thread in &threads {
                servers
                    .iter()
                    .for_each(|server| pattern.link(*thread, *server));
                pattern.initiators(*thread, shape.qps / shape.threads.max(1));
            }
            return pattern;
        }
        for qp in 0..shape.qps.max(shape.threads) as usize {
            pattern.link(threads[qp % threads.len()], servers[qp % servers.len()]);
        }
        pattern
    }

    /// Returns a pattern of `machines` equal machines with `cores` members each; a member has `qps` links, in
    /// turn to the members with the same number on all other machines.
    pub fn symmetric(transport: Transport, load: &Load, shape: Symmetric) -> Self {
        let mut pattern = Pattern::new(transport);
        for machine in 0..shape.machines {
            for core in 0..shape.cores {
                let part = Part::Request(seeded(load, machine * shape.cores + core));
                pattern.add(machine, part, shape.memory);
            }
        }
        let rounds = match transport {
            Transport::Dci => 1,
            _ => (shape.qps / (shape.machines - 1).max(1)).max(1),
        };
        for (a, b) in (0..shape.machines).flat_map(|a| (0..a).map(move |b| (a, b))) {
            for (core, _) in (0..shape.cores).flat_map(|c| (0..rounds).map(move |r| (c, r))) {
                let role = |machine: u32| RoleId(machine * shape.cores + core);
                pattern.link(role(a), role(b));
            }
        }
        if transport == Transport::Dci {
            for role in (0..pattern.members.len() as u32).map(RoleId) {
                pattern.initiators(role, shape.qps);
                // A machine's links are in the order of the other machines, so that with fixed targets each
                // machine is the target of one other.
                pattern.fix_aim(role);
            }
        }
        pattern
    }

    /// Gives a posting member this many DC initiators, at least one.
    fn initiators(&mut self, role: RoleId, initiators: u32) {
        if let Part::Request(load) = &mut self.members[role.0 as usize].part {
            load.dc.initiators = initiators.max(1);
        }
    }

    /// Sets the fixed target of a member to the machine after its own.
    fn fix_aim(&mut self, role: RoleId) {
        let member = &mut self.members[role.0 as usize];
        if let Part::Request(Load {
            dc: Dc {
                aim: Aim::Fixed(peer),
                ..
            },
            ..
        }) = &mut member.part
        {
            *peer = member.machine;
        }
    }
}

/// Returns the memory for receive buffers.
fn receive_memory(part: &Part) -> u64 {
    match part {
        Part::Receive { depth, size } => u64::from(*depth) * u64::from(*size),
        _ => 0,
    }
}

fn seeded(load: &Load, member: u32) -> Load {
    Load {
        seed: load.seed.wrapping_mul(1_000_003) + u64::from(member),
        ..load.clone()
    }
}

/// Returns the load with at most `window` outstanding requests.
fn within(load: &Load, window: Option<u32>) -> Load {
    let limits = Limits {
        per_member: load.limits.per_member.min(window.unwrap_or(u32::MAX)),
        ..load.limits
    };
    Load {
        limits,
        ..load.clone()
    }
}

/// Sizes of [`Pattern::outbound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// Posting members.
    pub cores: u32,
    /// Queue pairs of each.
    pub qps: u32,
    /// Other machines.
    pub peers: u32,
    /// Memory of each member.
    pub memory: u64,
}

/// Sizes of [`Pattern::inbound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// Posting members.
    pub threads: u32,
    /// Machines that they are on.
    pub peers: u32,
    /// Queue pairs of all together; at least one each.
    pub qps: u32,
    /// Outstanding requests of all threads of one machine, which share them evenly.
    pub window: Option<u32>,
    /// Members of the one machine that receive messages; 0 if no receives are needed.
    pub receivers: u32,
    /// Receives that each of them keeps posted.
    pub depth: u32,
    /// Memory of each member.
    pub memory: u64,
}

impl Inbound {
    /// Returns the share of thread `thread` of its machine's window.
    fn share_of(&self, thread: u32) -> Option<u32> {
        let (peers, window) = (self.peers.max(1), self.window?);
        let (machine, place) = (thread % peers, thread / peers);
        let threads = (self.threads - machine).div_ceil(peers);
        Some(window / threads + u32::from(place < window % threads))
    }
}

/// Sizes of [`Pattern::symmetric`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symmetric {
    /// Machines.
    pub machines: u32,
    /// Members on each.
    pub cores: u32,
    /// Queue pairs of each member.
    pub qps: u32,
    /// Memory of each member.
    pub memory: u64,
}
