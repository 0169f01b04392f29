//! Services without a server CPU: clients use READ and FETCH_ADD in the memory of a passive member
//! (Kalia et al., ATC 2016, section 5.3).
//!
//! Member 0 owns the memory. If the owner changes the items (Pilaf, FaRM), there are several owners, the
//! server's cores, each with its own items, and a client belongs to one of them.
//!
//! Each client keeps *trains* outstanding: lists of requests on one queue pair. Each request is the next
//! step of an operation, which occupies a *lane* of the train. Only the last request is signaled: its
//! completion covers all, because a reliable connection executes them in order. Then each lane
//! checks the result of its step, and the train is posted again.

mod client;
mod item_server;
mod layout;

use adverb_units::Bytes;
use adverb_verbs::{Context, PathOptions, QpType, RoleId, Station};
use serde::{Deserialize, Serialize};

use crate::inline::inline_data;
use crate::rpc::RpcPart;
use crate::rpc::seats::Seats;
use crate::rpc::slots::{KEY, Slots};
use crate::tally::ServiceTally;
use adverb_workload::attend::Members;
use adverb_workload::pattern::wiring::{Depths, Wiring};
use adverb_workload::pattern::{
    Limits, Load, Opcode, Part, Pattern, PatternError, Posting, Schedule, Timing,
};
use item_server::ItemServer;
use layout::Layout;

/// Maximum number of requests that a client posts at once.
const MAX_LIST: u32 = 32;

/// Items that clients look up and lock without the server's CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Items {
    /// Number of items.
    pub items: u64,
    /// Bytes of the record that each READ of a GET fetches, in order. Each except the last contains the
    /// position of the next one.
    pub records: Vec<u32>,
    /// Mean number of READs of a GET.
    pub mean_reads: f64,
    /// Share of operations that change an item.
    pub put_ratio: f64,
    /// How items are changed.
    pub puts: Puts,
}

/// How an item is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Puts {
    /// The client locks and frees it by FETCH_ADD.
    Lock,
    /// The client asks an owner's core by a WRITE, which it answers by a SEND without payload.
    Ask {
        /// Cores, each with its own items and clients.
        cores: u32,
        /// Bytes of a value. The WRITE also contains the key (16 B), a length and a mark.
        value: u32,
    },
}

impl Puts {
    /// Returns the bytes of a question; `None` if clients do not ask.
    fn question(self) -> Option<u32> {
        match self {
            Puts::Lock => None,
            Puts::Ask { value, .. } => Some(value + 1 + KEY as u32 + 1),
        }
    }
}

/// The content of the owner's memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Remote {
    /// A counter: the next number.
    Counter,
    /// Items and their lock words, 64 B apart.
    Items(Items),
}

/// Parameters of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneSidedClients {
    /// Client threads.
    pub threads: u32,
    /// Machines to which clients are assigned in turn.
    pub machines: u32,
    /// Queue pairs of each client.
    pub qps: u32,
    /// Outstanding operations on each queue pair.
    pub outstanding: u32,
    /// Requests per post.
    pub posting: Posting,
    /// Outstanding READs and atomics of a queue pair (`max_rd_atomic`).
    pub rd_atomic: u8,
    /// Whether each operation is timed.
    pub timing: Timing,
    /// Seed of random choices.
    pub seed: u64,
}

/// A program of an owner and its clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneSided {
    /// The memory.
    pub remote: Remote,
    /// The clients.
    pub clients: OneSidedClients,
    /// Options of the path between all queue pairs.
    pub path: PathOptions,
}

impl OneSided {
    /// Returns the number of owners; the other members are clients.
    pub fn owners(&self) -> u32 {
        match self.puts() {
            Puts::Lock => 1,
            Puts::Ask { cores, .. } => cores,
        }
    }

    /// Returns the assignment of members to parts and machines: a core of the server is an owner.
    fn seats(&self) -> Seats {
        Seats {
            cores: self.owners(),
            clients: self.clients.threads,
            machines: self.clients.machines,
        }
    }

    /// Returns the number of members.
    pub fn members(&self) -> u32 {
        self.seats().members()
    }

    /// Returns the operations that all clients together keep outstanding.
    pub(crate) fn outstanding(&self) -> u64 {
        let OneSidedClients {
            threads,
            qps,
            outstanding,
            ..
        } = self.clients;
        u64::from(threads) * u64::from(qps) * u64::from(outstanding)
    }

    /// Whether it counts or locks by FETCH_ADD.
    pub(crate) fn needs_atomics(&self) -> bool {
        match &self.remote {
            Remote::Counter => true,
            Remote::Items(items) => items.put_ratio > 0.0 && items.puts == Puts::Lock,
        }
    }

    fn puts(&self) -> Puts {
        match &self.remote {
            Remote::Counter => Puts::Lock,
            Remote::Items(items) => items.puts,
        }
    }

    /// Returns the slots for questions of an owner's clients; `None` if they do not ask.
    fn slots(&self) -> Option<Slots> {
        Some(Slots {
            each: self.clients.qps * self.clients.outstanding,
            stride: self.puts().question()?.next_multiple_of(64),
        })
    }

    /// Returns the owner that a client belongs to; `None` for an owner.
    pub fn owner(&self, role: RoleId) -> Option<RoleId> {
        match self.seats().part(role) {
            RpcPart::Core(_) => None,
            RpcPart::Client(client) => Some(self.seats().core_of(client)),
        }
    }

    /// Returns the members that a member communicates with, in addition to member 0.
    pub fn peers(&self, role: RoleId) -> Vec<RoleId> {
        self.seats().peers(role)
    }

    fn layout(&self) -> Layout {
        let most = self.seats().clients_of(0).count() as u64;
        let questions = self.slots().map_or(0, |slots| most * slots.bytes());
        Layout::new(&self.remote, questions)
    }

    /// Returns the number of machines.
    pub fn machines(&self) -> u32 {
        self.seats().machines()
    }

    /// Returns the machine of a member.
    pub fn machine(&self, role: RoleId) -> u32 {
        self.seats().machine(role)
    }

    fn list(&self) -> u32 {
        let most = MAX_LIST.min(self.clients.outstanding);
        self.clients.posting.requests().clamp(1, most)
    }

    /// Returns the size of a member's region: the layout at an owner, a buffer for each operation at a client.
    fn bytes(&self, layout: &Layout, role: RoleId) -> u64 {
        let clients = &self.clients;
        match role.0 < self.owners() {
            true => layout.bytes(),
            false => u64::from(clients.qps) * u64::from(clients.outstanding) * layout.widest(),
        }
    }

    /// Returns queue pairs and memory as a pattern.
    fn pattern(&self, layout: &Layout) -> Pattern {
        let clients = &self.clients;
        let mut pattern = Pattern::new(QpType::Rc);
        pattern.path = self.path;
        let owners = self.owners();
        for owner in 0..owners {
            let bytes = self.bytes(layout, RoleId(owner));
            pattern.add(0, Part::Serve, bytes);
        }
        let load = Load {
            posting: clients.posting,
            limits: Limits::of_each_qp(clients.outstanding, clients.rd_atomic),
            ..Load::new(Opcode::Read, 0)
        };
        for client in owners..self.members() {
            let role = RoleId(client);
            let part = Part::Request(load.clone());
            let bytes = self.bytes(layout, role);
            let client = pattern.add(self.machine(role), part, bytes);
            if let Some(owner) = self.owner(role) {
                (0..clients.qps).for_each(|_| pattern.link(client, owner));
            }
        }
        pattern
    }

    /// Returns the memory of a member.
    pub(crate) fn memory(&self, role: RoleId) -> Bytes {
        Bytes::new(self.bytes(&self.layout(), role))
    }

    /// Whether the owners' cores answer questions.
    pub(crate) fn serves(&self) -> bool {
        self.puts().question().is_some()
    }

    pub(crate) fn check(&self) -> Result<(), PatternError> {
        let clients = &self.clients;
        for (what, given, max) in [
            ("clients", clients.threads, 1 << 14),
            ("client machines", clients.machines, 1 << 14),
            ("queue pairs of a client", clients.qps, 1 << 10),
            ("operations of a queue pair", clients.outstanding, 1 << 12),
            ("owner's cores", self.owners(), 1 << 10),
        ] {
            if !(1..=max).contains(&given) {
                return Err(PatternError::Count { what, given, max });
            }
        }
        layout::check(&self.remote)
    }

    /// Returns the sizes of an owner's queues; `None` for the default ones.
    fn owner_depths(&self) -> Option<Depths> {
        self.puts().question()?;
        Some(Depths {
            send: item_server::answers(self.clients.outstanding),
            ..Depths::PASSIVE
        })
    }

    /// Returns the sizes of a client's queues; `None` for the default ones.
    fn client_depths(&self, context: &impl Context) -> Option<Depths> {
        let question = self.puts().question()?;
        let each = self.clients.outstanding;
        Some(Depths {
            // One more for a train's last request, or for the final message.
            send: each.max(self.list()) + 1,
            recv: item_server::answers(each),
            inline: inline_data(context, QpType::Rc, question),
            rd_atomic: self.clients.rd_atomic,
            ..Depths::PASSIVE
        })
    }
}

/// Runs member `me`; all members run at the same time.
///
/// # Errors
/// An object could not be created, a request was refused or failed, a value is wrong, or another member has
/// ended.
pub fn run_onesided<S: Station>(
    station: &S,
    program: &OneSided,
    me: RoleId,
    schedule: Schedule,
) -> Result<ServiceTally, PatternError> {
    program.check()?;
    let layout = program.layout();
    let pattern = program.pattern(&layout);
    let member = &pattern.members[me.0 as usize];
    let is_owner = me.0 < program.owners();
    let depths = if is_owner {
        program.owner_depths()
    } else {
        program.client_depths(station.context())
    };
    let members = Members::new(station, (me, program.members()), program.peers(me));
    let wiring = match depths {
        Some(depths) => Wiring::with_depths(&members, &pattern, member, depths)?,
        None => Wiring::new(&members, &pattern, member)?,
    };
    if is_owner {
        layout.fill(&wiring.mr)?;
    }
    let server = program.slots().map(|slots| {
        let clients = program.peers(me).len();
        ItemServer::new(
            (&members, &wiring),
            &layout,
            (slots, clients),
            &program.clients,
        )
    });
    members.meet()?;
    let mut tally = ServiceTally::default();
    if !is_owner {
        let client = client::Client::new(&members, &wiring, program, &layout, (me, schedule))?;
        tally = client.run()?;
    } else if let Some(server) = server {
        server.run()?;
    }
    members.meet()?;
    if is_owner {
        tally.locked = layout.locked(&wiring.mr)?;
    }
    Ok(tally)
}
