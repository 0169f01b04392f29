//! Remote procedure calls as in HERD and FaSST: small requests to a few server cores, which answer each by
//! a datagram (Kalia et al., ATC 2016, sections 4 and 5).
//!
//! The members of an [`Rpc`] are its server cores, then its clients. One core serves a client. Requests
//! are either WRITEs (UC, inline) into a slot of the core's request region, with one slot for each
//! outstanding request, or SENDs (UD) without payload. The core polls, takes up to a batch of requests,
//! and answers each by a SEND (UD) from one of its queue pairs in turn. Clients that WRITE are assigned to the ports of the
//! server's NIC in turn: a core has queue pairs at each port, and posts the answers of a batch as one list for each
//! port. A core of requests without payload uses one list (worker.c of HERD and of the WRITE-SEND sequencer, and server.c of
//! the SEND-SEND sequencer, in the repository efficient/rdma_bench).
//!
//! Datagrams may be lost. A client waits for its answers with a timeout and fails if one is missing. It
//! never repeats a request, so no number is handed out twice.

mod client;
pub(crate) mod seats;
mod server;
pub(crate) mod service;
pub(crate) mod slots;
pub(crate) mod table;
mod wiring;

use std::sync::atomic::{AtomicU64, Ordering};

use adverb_units::{Bytes, Span};
use adverb_verbs::{Level, PathOptions, RoleId, Station};
use serde::{Deserialize, Serialize};

use crate::tally::ServiceTally;
use adverb_workload::attend::Members;
use adverb_workload::pattern::PatternError;
use adverb_workload::pattern::Schedule;
use adverb_workload::pattern::{Posting, Timing};
use adverb_workload::wiring::GRH;
use seats::Seats;

/// Maximum number of requests that a server core takes at once.
pub const MAX_BATCH: u32 = 32;
/// Timeout for another member's request or answer, after which it counts as lost.
pub(crate) const TIMEOUT: Span = Span::from_secs(10);

/// How clients send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestBy {
    /// By a WRITE into memory that the server's cores poll; the answer has a payload.
    Write,
    /// By a SEND without payload; request and answer are immediate data of 32 bits.
    HeaderOnly,
}

/// A core's key-value store and the load on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreLoad {
    /// Items in each core's table.
    pub items: u64,
    /// Memory level of a table of realistic size.
    pub level: Level,
    /// Bytes of a value.
    pub value: u32,
    /// Share of requests that replace a value, 0 to 1.
    pub put_ratio: f64,
}

/// The service.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Service {
    /// Hands out the numbers of a counter, each once.
    Sequencer(RequestBy),
    /// Stores items by keys of 16 B. Each core has its own table.
    Store(StoreLoad),
}

/// Parameters of the server's cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// Cores.
    pub cores: u32,
    /// UD queue pairs at each port from which each core answers in turn.
    pub qps_per_port: u32,
    /// Each answer posted alone, or lists with one doorbell.
    pub posting: Posting,
    /// One in this many answers on a queue pair is signaled.
    pub signaled_every: u32,
}

/// When clients send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// As soon as there is room for another request.
    Closed,
    /// At random times with this mean distance per client. A request without room for it waits, which is part of its latency.
    Open(Span),
}

/// Parameters of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clients {
    /// Client threads.
    pub threads: u32,
    /// Machines to which clients are assigned in turn.
    pub machines: u32,
    /// Most outstanding requests of a client.
    pub outstanding: u32,
    /// When they send requests.
    pub pace: Pace,
    /// Whether each request is timed.
    pub timing: Timing,
    /// Seed of keys and times.
    pub seed: u64,
}

impl Clients {
    /// Returns `threads` clients on `machines`, each with up to `outstanding` requests, which are timed. All of them together
    /// send `offered` requests per second, or each sends one as soon as it has room for it.
    pub fn new([threads, machines, outstanding]: [u32; 3], offered: Option<f64>) -> Self {
        Clients {
            threads,
            machines,
            outstanding,
            pace: match offered {
                Some(rate) => Pace::Open(Span::from_secs_f64(f64::from(threads) / rate)),
                None => Pace::Closed,
            },
            timing: Timing::Each,
            seed: 1,
        }
    }
}

/// A program of server cores and their clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rpc {
    /// The service.
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
    /// Returns the assignment of members to parts and machines.
    pub(crate) fn seats(&self) -> Seats {
        Seats {
            cores: self.serving.cores,
            clients: self.clients.threads,
            machines: self.clients.machines,
        }
    }

    /// Returns the number of members.
    pub fn members(&self) -> u32 {
        self.seats().members()
    }

    /// Returns the number of machines.
    pub fn machines(&self) -> u32 {
        self.seats().machines()
    }

    /// Returns the part of a member.
    pub fn part(&self, role: RoleId) -> RpcPart {
        self.seats().part(role)
    }

    /// Returns the machine of a member.
    pub fn machine(&self, role: RoleId) -> u32 {
        self.seats().machine(role)
    }

    fn request_by(&self) -> RequestBy {
        match self.service {
            Service::Sequencer(request_by) => request_by,
            Service::Store(_) => RequestBy::Write,
        }
    }

    /// Returns the number of answers per post.
    fn list(&self) -> u32 {
        self.serving.posting.requests().clamp(1, MAX_BATCH)
    }

    /// Returns the number of requests that a core takes at once. A store takes more than it posts, so
    /// that the loads of several lookups overlap, as in HERD's pipeline.
    fn batch(&self) -> u32 {
        match self.service {
            Service::Sequencer(_) => self.list(),
            Service::Store(_) => MAX_BATCH,
        }
    }

    /// Returns the memory of a core's table and of its clients' slots, or of a client's slots and receives.
    pub(crate) fn memory(&self, role: RoleId) -> Bytes {
        let slots = slots::Slots::of(self).bytes();
        Bytes::new(match self.part(role) {
            RpcPart::Core(core) => {
                let table = match self.service {
                    Service::Sequencer(_) => 0,
                    Service::Store(load) => table::bytes(load.items, load.value),
                };
                table + slots * self.seats().clients_of(core).count() as u64
            }
            RpcPart::Client(_) => {
                let receive = u64::from(GRH + service::answer_bytes(&self.service));
                slots + u64::from(self.clients.outstanding) * receive
            }
        })
    }

    pub(crate) fn check(&self) -> Result<(), PatternError> {
        let (serving, clients) = (&self.serving, &self.clients);
        let counts = [
            ("server cores", serving.cores, 1 << 10),
            ("queue pairs of a core", serving.qps_per_port, 1 << 10),
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

/// The word of a model's memory that holds a [`Counter`].
pub(crate) const COUNTER: u64 = 0;

/// The next number of a sequencer, shared by all cores of a server, which are threads of one process.
pub type Counter = AtomicU64;

/// Runs member `me`; all members run at the same time. The cores share `counter`, so on real devices they
/// are threads of one process.
///
/// # Errors
/// An object could not be created, a request was refused, failed or was lost, a value is wrong, or another
/// member has ended.
pub fn run_rpc<S: Station>(
    station: &S,
    rpc: &Rpc,
    me: RoleId,
    counter: &AtomicU64,
    schedule: Schedule,
) -> Result<ServiceTally, PatternError> {
    rpc.check()?;
    let members = Members::new(station, (me, rpc.members()), rpc.seats().peers(me));
    // Objects are kept until all members are done, because their last messages may be in flight.
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
