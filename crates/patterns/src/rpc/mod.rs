//! Remote procedure calls as HERD and FaSST make them: small requests to a few server cores, which
//! answer each by a datagram (Kalia et al., ATC 2016, sections 4 and 5).
//!
//! The members of an [`Rpc`] are its server cores, then its clients. A client is served by one core.
//! It asks either by a WRITE (UC, inline) into a slot of the core's request region, one slot for each
//! request that it may have under way, or by a SEND (UD) without payload. The core polls, takes what
//! it finds, up to a batch, and answers each by a SEND (UD) from one of its queue pairs in turn.
//!
//! Datagrams may be lost. A client waits a bounded time for its answers, also for the last ones, and
//! fails if one is missing; it asks nothing twice, so no number is handed out twice.

mod client;
mod server;
pub(crate) mod service;
pub(crate) mod slots;
pub(crate) mod table;
mod wiring;

use std::sync::atomic::{AtomicU64, Ordering};

use adverb_units::Span;
use adverb_verbs::{Level, PathOptions, RoleId, Station};
use serde::{Deserialize, Serialize};

use crate::tally::ServiceTally;
use adverb_workload::attend::Members;
use adverb_workload::pattern::PatternError;
use adverb_workload::pattern::Schedule;
use adverb_workload::pattern::{Posting, Timing};

/// Requests that a server core takes at a time at most.
pub const MAX_BATCH: u32 = 32;
/// How long a member waits for another's request or answer before it gives it up for lost.
const PATIENCE: Span = Span::from_secs(10);

/// How clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asking {
    /// By a WRITE into the server's memory, which its cores poll; the answer is payload.
    Write,
    /// By a SEND without payload; question and answer are immediate data, of 32 bits.
    HeaderOnly,
}

/// A core's key-value store, and what clients do with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreLoad {
    /// Items in each core's table.
    pub items: u64,
    /// Where the lines of a table of the real size are.
    pub level: Level,
    /// Bytes of a value.
    pub value: u32,
    /// Share of requests that replace a value, 0 to 1.
    pub put_ratio: f64,
}

/// What the server does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Service {
    /// Hands out the numbers from the counter's on, each once.
    Sequencer(Asking),
    /// Keeps items by keys of 16 B. Each core has a table of its own.
    Store(StoreLoad),
}

/// How the server's cores work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// Cores.
    pub cores: u32,
    /// Datagram queue pairs that each core answers from, in turn.
    pub qps_per_core: u32,
    /// Each answer posted alone, or up to so many at a time with one doorbell.
    pub posting: Posting,
    /// One answer of so many on a queue pair asks for a completion.
    pub signaled_every: u32,
}

/// When clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// As soon as there is room for another request.
    Closed,
    /// At random moments, on average this far apart on one client, if there is room.
    Open(Span),
}

/// How the clients work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clients {
    /// Client threads.
    pub threads: u32,
    /// Machines that they are on, in turn.
    pub machines: u32,
    /// Requests of one client under way at most.
    pub outstanding: u32,
    /// When they ask.
    pub pace: Pace,
    /// Whether each request is timed.
    pub timing: Timing,
    /// Seed of keys and moments.
    pub seed: u64,
}

/// A program of server cores and their clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rpc {
    /// What for.
    pub service: Service,
    /// The server's part: machine 0.
    pub serving: Serving,
    /// The clients' part: machines 1 and up.
    pub clients: Clients,
    /// Options of the path between all queue pairs.
    pub path: PathOptions,
}

/// A member's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcPart {
    /// A server core, by number.
    Core(u32),
    /// A client, by number.
    Client(u32),
}

impl Rpc {
    /// How many members it has.
    pub fn members(&self) -> u32 {
        self.serving.cores + self.clients.threads
    }

    /// How many machines.
    pub fn machines(&self) -> u32 {
        1 + self.clients.machines.min(self.clients.threads).max(1)
    }

    /// What a member does.
    pub fn part(&self, role: RoleId) -> RpcPart {
        match role.0.checked_sub(self.serving.cores) {
            None => RpcPart::Core(role.0),
            Some(client) => RpcPart::Client(client),
        }
    }

    /// The machine that a member is on.
    pub fn machine(&self, role: RoleId) -> u32 {
        match self.part(role) {
            RpcPart::Core(_) => 0,
            RpcPart::Client(client) => 1 + client % (self.machines() - 1),
        }
    }

    /// The members that a member talks with, but for the start and the end.
    pub fn peers(&self, role: RoleId) -> Vec<RoleId> {
        match self.part(role) {
            RpcPart::Core(core) => self.clients_of(core).collect(),
            RpcPart::Client(client) => vec![self.core_of(client)],
        }
    }

    /// The core that serves a client.
    fn core_of(&self, client: u32) -> RoleId {
        RoleId(client % self.serving.cores)
    }

    fn clients_of(&self, core: u32) -> impl Iterator<Item = RoleId> {
        let cores = self.serving.cores;
        let clients = (core..self.clients.threads).step_by(cores as usize);
        clients.map(move |client| RoleId(cores + client))
    }

    fn asking(&self) -> Asking {
        match self.service {
            Service::Sequencer(asking) => asking,
            Service::Store(_) => Asking::Write,
        }
    }

    /// Answers in one call of the post.
    fn list(&self) -> u32 {
        match self.serving.posting {
            Posting::Single => 1,
            Posting::List(n) => n.clamp(1, MAX_BATCH),
        }
    }

    /// Requests that a core takes at a time: a store takes more than it posts, so that the loads of
    /// several lookups overlap, as HERD's pipeline lets them.
    fn batch(&self) -> u32 {
        match self.service {
            Service::Sequencer(_) => self.list(),
            Service::Store(_) => MAX_BATCH,
        }
    }

    pub(crate) fn check(&self) -> Result<(), PatternError> {
        let (serving, clients) = (&self.serving, &self.clients);
        let counts = [
            ("server cores", serving.cores, 1 << 10),
            ("queue pairs of a core", serving.qps_per_core, 1 << 10),
            ("unsignaled answers", serving.signaled_every, 1 << 12),
            ("clients", clients.threads, 1 << 14),
            ("client machines", clients.machines, 1 << 14),
            ("requests of a client", clients.outstanding, 1 << 12),
        ];
        for (what, given, max) in counts {
            if !(1..=max).contains(&given) {
                return Err(PatternError::Count { what, given, max });
            }
        }
        match self.service {
            Service::Store(store) => table::check(&store),
            Service::Sequencer(_) => Ok(()),
        }
    }
}

/// The next number of a sequencer. All cores of a server count on one: they are threads of one process.
pub type Counter = AtomicU64;

/// Does the part of member `me`; all members run at the same time. The cores' `counter` is one: on
/// real devices they are threads of one process.
///
/// # Errors
/// An object could not be made, a request was refused or failed or lost, a value is wrong, or another
/// member is gone.
pub fn run_rpc<S: Station>(
    station: &S,
    rpc: &Rpc,
    me: RoleId,
    counter: &AtomicU64,
    schedule: Schedule,
) -> Result<ServiceTally, PatternError> {
    rpc.check()?;
    let members = Members::new(station, (me, rpc.members()), rpc.peers(me));
    // Objects live until all members are done: what they sent last may still be in flight.
    let mut tally;
    match rpc.part(me) {
        RpcPart::Core(core) => {
            let number = counter.load(Ordering::Relaxed);
            let ends = wiring::CoreEnds::new(&members, rpc, (core, number))?;
            let mut service = service::Backend::new(rpc, counter);
            members.meet()?;
            tally = server::Core::new(&members, rpc, &ends, schedule).run(&mut service)?;
            members.meet()?;
        }
        RpcPart::Client(client) => {
            let ends = wiring::ClientEnds::new(&members, rpc, client)?;
            members.meet()?;
            tally = client::Client::new(&members, rpc, &ends, client, schedule).run()?;
            members.meet()?;
        }
    }
    // All requests have been answered.
    tally.handed_out = counter.load(Ordering::Relaxed);
    Ok(tally)
}
