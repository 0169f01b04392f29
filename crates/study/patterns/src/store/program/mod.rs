//! A store and its clients as a program: memslap's load, a share of PUTs and GETs of random items, closed loop.
//!
//! The first members are the server's workers: cores that poll. Each has a share of the items in memory of its own, as
//! in MICA, so that they share nothing. Or there are none, and the clients use a server that is running elsewhere. Each
//! client is a thread that keeps one operation outstanding on each of its connections. Connections are assigned to workers
//! in turn, and ask for items of their worker. Clients first PUT all items, then meet, then measure a number of
//! operations.

mod load;
mod serve;
mod share;

use std::net::SocketAddr;

use adverb_results::Completion;
use adverb_units::Bytes;
use adverb_verbs::{
    Context, CpuLoad, NodeChoice, NumaPlacement, PathOptions, QpType, RemoteAddress, RoleId,
    Station,
};
use adverb_workload::attend::{Awaited, Members};
use adverb_workload::pattern::wiring::{Depths, Wiring};
use adverb_workload::pattern::{Part, Pattern, PatternError, Timing};
use adverb_workload::reap::Queue;
use adverb_workload::streams::StreamOf;
use adverb_workload::wiring::Kit;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::attach::{ACCESS, attach};
use super::cache::block;
use super::client::Connection;
use super::session::{Ends, SEND_DEPTH, Session};
use crate::placement::{add_load, add_nodes};
use crate::tally::ServiceTally;
use share::Share;

/// Largest value.
pub const MAX_VALUE: u32 = 1 << 20;
/// A store and the load on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Store {
    /// A server that is running, in place of workers.
    pub server: Option<SocketAddr>,
    /// Server threads, each with a share of the items and of the memory.
    pub workers: u32,
    /// Memory for values, of all workers.
    pub memory: Bytes,
    /// Items that clients ask for.
    pub items: u64,
    /// Bytes of a value.
    pub value: u32,
    /// Share of PUTs.
    pub put_ratio: f64,
    /// Client threads.
    pub clients: u32,
    /// Machines to which clients are assigned in turn.
    pub machines: u32,
    /// Connections of each client.
    pub connections: u32,
    /// Operations over each connection.
    pub requests: u64,
    /// Whether each operation is timed.
    pub timing: Timing,
    /// NUMA node of the clients' threads and memory.
    pub numa_client: NodeChoice,
    /// NUMA nodes of the server.
    pub numa_server: NumaPlacement,
    /// Threads that load the server's machine.
    pub load: Option<CpuLoad>,
    /// Seed of random choices.
    pub seed: u64,
    /// Options of the path between all queue pairs.
    pub path: PathOptions,
}

impl Store {
    /// Returns memslap's load: a tenth of the operations are PUTs, a value has 67 B.
    pub fn memslap() -> Self {
        Store {
            server: None,
            workers: 1,
            memory: Bytes::mib(64),
            items: 10_000,
            value: 67,
            put_ratio: 0.1,
            clients: 1,
            machines: 1,
            connections: 1,
            requests: 100_000,
            timing: Timing::Each,
            numa_client: NodeChoice::Any,
            numa_server: NumaPlacement::default(),
            load: None,
            seed: 1,
            path: PathOptions::default(),
        }
    }

    /// Returns the number of members: workers and clients.
    pub fn members(&self) -> u32 {
        self.first_client() + self.clients
    }

    fn first_client(&self) -> u32 {
        if self.server.is_none() {
            self.workers
        } else {
            0
        }
    }

    /// Returns the number of parts of the items: one for each worker.
    fn shares(&self) -> u64 {
        self.first_client().max(1).into()
    }

    /// Returns the items that a connection of a client asks for.
    fn share(&self, client: u32, connection: u32) -> Share {
        let number = u64::from(client) * u64::from(self.connections) + u64::from(connection);
        Share::new(number, self.connections(), (self.items, self.shares()))
    }

    /// Returns how many clients have connections to a worker.
    fn clients_of(&self, worker: RoleId) -> usize {
        let asks = |client: &u32| {
            let mut workers = (0..self.connections).map(|n| self.share(*client, n).worker);
            workers.any(|own| own == u64::from(worker.0))
        };
        (0..self.clients).filter(asks).count()
    }

    /// Returns the memory for values of one worker.
    fn worker_memory(&self) -> Bytes {
        Bytes::new(self.memory.get() / u64::from(self.workers) / 64 * 64)
    }

    /// Returns the number of a client; `None` for a worker.
    pub fn client(&self, role: RoleId) -> Option<u32> {
        role.0.checked_sub(self.first_client())
    }

    /// Returns the machine of a member.
    pub fn machine(&self, role: RoleId) -> u32 {
        let machines = self.machines.min(self.clients).max(1);
        match self.client(role) {
            None => 0,
            Some(client) => u32::from(self.server.is_none()) + client % machines,
        }
    }

    /// Returns the memory of a member's region.
    pub(crate) fn memory(&self, role: RoleId) -> Bytes {
        Bytes::new(match self.client(role) {
            None => {
                let connections = self.connections().div_ceil(self.shares());
                self.worker_memory().get() + connections * Session::BUFFERS
            }
            Some(_) => u64::from(self.connections) * Connection::buffers(self.value),
        })
    }

    /// Returns the NUMA nodes of a member.
    fn numa(&self, role: RoleId) -> NumaPlacement {
        match self.client(role) {
            None => self.numa_server,
            Some(_) => NumaPlacement {
                threads: self.numa_client,
                memory: self.numa_client,
            },
        }
    }

    /// Returns the NUMA node of the memory of a machine's members.
    pub(crate) fn memory_node(&self, machine: u32) -> NodeChoice {
        let mut roles = (0..self.members()).map(RoleId);
        let first = roles.find(|role| self.machine(*role) == machine);
        first.map_or(NodeChoice::Any, |role| self.numa(role).memory)
    }

    /// Returns the parameters, as records have them. NUMA nodes and load are absent unless chosen.
    pub fn parameters(&self) -> Value {
        let mut params = json!({
            "value_bytes": self.value, "put_ratio": self.put_ratio, "items": self.items,
            "memory_bytes": self.memory, "clients": self.clients, "machines": self.machines,
            "connections": self.connections, "requests": self.requests,
        });
        match self.server {
            Some(server) => params["server"] = server.to_string().into(),
            None => params["workers"] = self.workers.into(),
        }
        let nodes = [
            ("numa_client", self.numa_client),
            ("numa_server", self.numa_server.threads),
            ("numa_memory", self.numa_server.memory),
        ];
        add_nodes(&mut params, nodes);
        add_load(&mut params, self.load);
        params
    }

    /// Returns the number of connections of all clients.
    fn connections(&self) -> u64 {
        u64::from(self.clients) * u64::from(self.connections)
    }

    pub(crate) fn check(&self) -> Result<(), PatternError> {
        let items = u32::try_from(self.items).unwrap_or(u32::MAX);
        for (what, given, max) in [
            ("workers", self.workers, 1 << 10),
            ("clients", self.clients, 1 << 14),
            ("client machines", self.machines, 1 << 14),
            ("connections of a client", self.connections, 1 << 12),
            ("bytes of a value", self.value, MAX_VALUE),
            ("items", items, 1 << 28),
        ] {
            if !(1..=max).contains(&given) {
                return Err(PatternError::Count { what, given, max });
            }
        }
        if self.server.is_some() {
            return Ok(());
        }
        let (workers, connections) = (self.shares(), self.connections());
        for (few, what) in [(self.items, "items"), (connections, "connections")] {
            if few < workers {
                return Err(PatternError::Refused(format!(
                    "{few} {what} do not suffice for {workers} workers: each has its share"
                )));
            }
        }
        // Each connection may hold a value of its worker.
        let needed = connections.div_ceil(workers) * block(self.value);
        if needed > self.worker_memory().get() {
            let (memory, value) = (self.memory, Bytes::new(self.value.into()));
            let needed = Bytes::new(needed * workers);
            return Err(PatternError::Refused(format!(
                "--memory {memory} has no room for a value of {value} for each of {connections} connections; expected at least {needed}",
            )));
        }
        Ok(())
    }

    fn pattern(&self) -> Pattern {
        let mut pattern = Pattern::new(QpType::Rc);
        (pattern.path, pattern.wait) = (self.path, Completion::Poll);
        for role in (0..self.members()).map(RoleId) {
            let bytes = self.memory(role).get();
            let member = pattern.add(self.machine(role), Part::Serve, bytes);
            if let Some(client) = self.client(role) {
                for connection in 0..self.connections {
                    let share = self.share(client, connection);
                    pattern.link(member, RoleId(share.worker as u32));
                }
            }
        }
        pattern
    }
}

/// Runs member `me`; all members run at the same time.
///
/// # Errors
/// An object could not be created, a request was refused or failed, a value is wrong, or another member has
/// ended.
pub fn run_store<S: Station>(
    station: &S,
    store: &Store,
    me: RoleId,
) -> Result<ServiceTally, PatternError> {
    store.check()?;
    let peers: Vec<RoleId> = match store.client(me) {
        None => (0..store.members()).map(RoleId).collect(),
        Some(_) => (0..store.first_client()).map(RoleId).collect(),
    };
    let members = Members::new(station, (me, store.members()), peers);
    station.bind(store.numa(me))?;
    let ends = match store.server {
        None => Objects::among_members(&members, store, me)?,
        Some(server) => Objects::attached(&members, store, (me, server))?,
    };
    let memory_node = station.memory_node(&ends.mr)?;
    let tally = match store.client(me) {
        None => {
            // The machine's load, once.
            let loads: Vec<CpuLoad> = store.load.into_iter().filter(|_| me.0 == 0).collect();
            let serve = || serve::serve(&members, &ends, (store, me));
            let (tally, load) = station.under_load(&loads, &ends.mr, serve)?;
            ServiceTally {
                load_accesses: load.accesses,
                ..tally?
            }
        }
        Some(client) => load::Client::new(&members, &ends, store, client).run(client)?,
    };
    members.meet()?;
    Ok(ServiceTally {
        memory_node,
        ..tally
    })
}

/// A member's objects.
struct Objects<S: Station> {
    queue: Queue<S::Context>,
    mr: <S::Context as Context>::Mr,
    qps: Vec<<S::Context as Context>::Qp>,
    /// The peer's region, by queue pair.
    remotes: Vec<RemoteAddress>,
    inline: u32,
    /// They keep the connections with a server that is running.
    _streams: Vec<StreamOf<S>>,
}

impl<S: Station> Objects<S> {
    /// Connects the members.
    fn among_members(
        members: &Members<'_, S>,
        store: &Store,
        me: RoleId,
    ) -> Result<Self, PatternError> {
        let pattern = store.pattern();
        let depths = Depths {
            send: SEND_DEPTH,
            recv: 2,
            inline: Self::inline(members),
            rd_atomic: 1,
            shares_qp: false,
            access: ACCESS,
        };
        let member = &pattern.members[me.0 as usize];
        let wiring = Wiring::with_depths(members, &pattern, member, depths)?;
        Ok(Objects {
            remotes: wiring.wires.iter().map(|wire| wire.remote).collect(),
            queue: wiring.queue,
            mr: wiring.mr,
            qps: wiring.qps,
            inline: wiring.inline,
            _streams: Vec::new(),
        })
    }

    /// Connects a client with a server that is running.
    fn attached(
        members: &Members<'_, S>,
        store: &Store,
        (me, server): (RoleId, SocketAddr),
    ) -> Result<Self, PatternError> {
        let station = members.station();
        let inline = Self::inline(members);
        let kit = Kit::new(station, (store.memory(me).get(), ACCESS), store.path)?;
        let entries = store.connections * (SEND_DEPTH + 2);
        let queue = Queue::new(
            station.context(),
            entries,
            Completion::Poll,
            Awaited::OwnRequest,
        )?;
        let (mut qps, mut remotes, mut streams) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..store.connections {
            let attached = attach(members, (&kit, &queue), (server, inline))?;
            qps.push(attached.qp);
            remotes.push(attached.server);
            streams.push(attached.stream);
        }
        Ok(Objects {
            queue,
            mr: kit.mr,
            qps,
            remotes,
            inline,
            _streams: streams,
        })
    }

    fn inline(members: &Members<'_, S>) -> u32 {
        members.station().context().caps().max_inline_data.min(64)
    }

    /// Returns what a connection works with.
    fn of(&self, connection: u32) -> Ends<'_, S::Context> {
        Ends {
            qp: &self.qps[connection as usize],
            mr: &self.mr,
            inline: self.inline,
        }
    }
}
