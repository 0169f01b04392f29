//! The life of connections: set-up, use and break-down, each step timed with the role's clock.
//!
//! An active role and one or more passive ones open all connections, one after another; then each connection
//! carries its messages; then each is broken down. All roles finish a phase before any begins the next one.
//! Every connection has objects of its own: protection domain, completion channel, completion queue, memory
//! region and queue pair (RC).
//!
//! Over TCP a connection is a pair of sockets, and the passive role listens once for all.
//!
//! With agents, the active role sends its address to a listener, which hands connections to the agents in
//! turn; the agent answers the active role directly.

mod link;
mod step;
mod stream;

use std::collections::BTreeMap;

use adverb_results::Transport;
use adverb_units::{Bytes, CpuTime, Span};
use adverb_verbs::{DeviceCaps, NotCounted, PageKind, PathOptions, RoleId, Station};
use serde::{Deserialize, Serialize};

use crate::attend::Members;
use crate::error::Fault;
use crate::pattern::wiring::{receive, send};
use crate::{Role, RoleLoad};
use link::{Hello, Link, MESSAGE, MOST_RECEIVES, Peers};
pub use step::{Calls, Step};
use step::{Steps, Timings};

/// The active role.
const ACTIVE: RoleId = RoleId(0);

/// The parameters of `connect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connect {
    /// TCP, or RC for queue pairs.
    pub transport: Transport,
    /// Connections, which all exist at the same time.
    pub connections: u32,
    /// Passive roles to which a listener hands connections; `None`: one passive role without a listener.
    pub agents: Option<u32>,
    /// Messages after the first one on each connection.
    pub messages: u32,
    /// Length of each memory region.
    pub region: Bytes,
    /// The pages of memory regions; `None`: what suits the device best.
    pub pages: Option<PageKind>,
    /// Options of the path. With RNR retries the passive role posts no receives, so that the first message
    /// fails.
    pub path: PathOptions,
}

/// What a role of `connect` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectTally {
    /// Times of the steps; nothing for a listener.
    pub steps: Vec<(Step, adverb_results::LatencyRecorder)>,
    /// System calls of the role's thread in the steps; or why they are not counted.
    pub calls: Result<Vec<(Step, Calls)>, NotCounted>,
    /// From the first step of the first connection until the last one is set up.
    pub setup: Span,
    /// CPU time of the role.
    pub cpu: CpuTime,
    /// The time over which `cpu` was used.
    pub cpu_over: Span,
}

/// A role of `connect`.
enum Part {
    Active,
    Listener,
    Passive(u32),
}

impl Connect {
    /// Smallest memory region: it holds the message buffers.
    pub const LEAST_REGION: Bytes = Bytes::kib(4);

    fn passives(&self) -> u32 {
        self.agents.unwrap_or(1)
    }

    /// Number of the first passive role.
    fn first_passive(&self) -> u32 {
        1 + u32::from(self.agents.is_some())
    }

    fn part(&self, role: RoleId) -> Part {
        match (role, role.0.checked_sub(self.first_passive())) {
            (ACTIVE, _) => Part::Active,
            (_, Some(passive)) => Part::Passive(passive),
            _ => Part::Listener,
        }
    }

    /// The passive role of a connection.
    fn passive_of(&self, connection: u32) -> RoleId {
        RoleId(self.first_passive() + connection % self.passives())
    }

    /// Whether connections are byte streams.
    pub fn is_stream(&self) -> bool {
        self.transport == Transport::Tcp
    }

    /// Whether the passive side posts no receives, so that messages fail.
    fn withholds_receives(&self) -> bool {
        self.path.rnr_retries.is_some()
    }

    /// Receives that one end of a connection posts. The active one receives nothing: its receive is there to
    /// be flushed.
    fn receives(&self, part: &Part) -> u32 {
        match part {
            Part::Passive(_) if self.withholds_receives() => 0,
            Part::Passive(_) => (self.messages + 2).min(MOST_RECEIVES),
            _ => 1,
        }
    }

    /// The roles: the active one, the listener if there are agents, and the passive ones.
    pub fn roles(&self) -> Vec<Role> {
        let count = self.first_passive() + self.passives();
        let role = |number: u32| {
            let (name, host, load) = match self.part(RoleId(number)) {
                Part::Active => ("active".to_owned(), 0, RoleLoad::Busy),
                Part::Listener => ("listener".to_owned(), 1, RoleLoad::Idle),
                Part::Passive(_) if self.agents.is_none() => {
                    ("passive".to_owned(), 1, RoleLoad::Busy)
                }
                Part::Passive(agent) => (format!("agent {agent}"), 1, RoleLoad::Busy),
            };
            Role {
                name,
                host,
                process: number,
                load,
            }
        };
        (0..count).map(role).collect()
    }

    /// Returns the memory that a role registers: a region for each of its connections, none over TCP.
    pub fn memory(&self, role: RoleId) -> Bytes {
        if self.is_stream() {
            return Bytes::new(0);
        }
        let connections = match self.part(role) {
            Part::Active => self.connections,
            Part::Listener => 0,
            Part::Passive(_) => self.connections.div_ceil(self.passives()),
        };
        Bytes::new(self.region.get().saturating_mul(connections.into()))
    }

    /// Checks the parameters against the limits of the device.
    ///
    /// # Errors
    /// The parameter that is out of range, and its limit.
    pub fn check(&self, caps: &DeviceCaps) -> Result<(), String> {
        if self.is_stream() {
            return Ok(());
        }
        let (least, most) = (Self::LEAST_REGION, caps.max_mr_size);
        if !(least..=most).contains(&self.region) {
            let given = self.region;
            return Err(format!(
                "region of {given}: this device has regions up to {most}, the messages need {least}"
            ));
        }
        let limits = [
            ("max_qp", caps.max_qp),
            ("max_cq", caps.max_cq),
            ("max_mr", caps.max_mr),
        ];
        match limits.into_iter().find(|(_, max)| self.connections > *max) {
            Some((name, max)) => Err(format!(
                "{} connections exceed the device's {name} {max}; use fewer --connections",
                self.connections
            )),
            None => Ok(()),
        }
    }
}

/// Runs one role of `connect`.
///
/// # Errors
/// The device refuses, a message is lost or wrong, or another role has failed.
pub fn run_connect<S: Station>(
    station: &S,
    connect: &Connect,
    role: RoleId,
) -> Result<ConnectTally, Fault> {
    let count = connect.first_passive() + connect.passives();
    let members = Members::new(station, (role, count), []);
    let part = connect.part(role);
    if let Part::Listener = part {
        return listen(&members, connect);
    }
    let (begun, cpu) = (station.now(), station.cpu());
    let mut tally = match connect.is_stream() {
        true => stream::run(&members, connect, &part)?,
        false => run_queue_pairs(&members, connect, &part)?,
    };
    tally.cpu = station.cpu().since(cpu);
    tally.cpu_over = station.now() - begun;
    Ok(tally)
}

fn run_queue_pairs<S: Station>(
    members: &Members<'_, S>,
    connect: &Connect,
    part: &Part,
) -> Result<ConnectTally, Fault> {
    let mut end = End {
        members,
        connect,
        receives: connect.receives(part),
        timings: Timings::new(members.station()),
    };
    let setup = match part {
        Part::Passive(passive) => end.passive(*passive)?,
        _ => end.active()?,
    };
    Ok(ConnectTally {
        setup,
        ..end.timings.into_tally()
    })
}

/// Hands each connection to an agent.
fn listen<S: Station>(members: &Members<'_, S>, connect: &Connect) -> Result<ConnectTally, Fault> {
    for connection in 0..connect.connections {
        let hello: Hello = receive(members, ACTIVE)?;
        send(members, connect.passive_of(connection), &hello)?;
    }
    // The ends of the three phases.
    (0..3).try_for_each(|_| members.meet())?;
    Ok(ConnectTally::default())
}

/// One end of all connections of a role.
struct End<'s, S: Station> {
    members: &'s Members<'s, S>,
    connect: &'s Connect,
    receives: u32,
    timings: Timings<'s, S>,
}

impl<S: Station> End<'_, S> {
    /// Returns how long setting all connections up took.
    fn active(&mut self) -> Result<Span, Fault> {
        let (connect, station) = (self.connect, self.members.station());
        let begun = station.now();
        let mut links = Vec::new();
        for connection in 0..connect.connections {
            // Without agents the passive role is the first one, too.
            links.push(self.open(Peers {
                to: RoleId(1),
                from: connect.passive_of(connection),
            })?);
        }
        let setup = station.now() - begun;
        self.members.meet()?;
        for link in &mut links {
            self.speak(link)?;
        }
        self.close(links)?;
        Ok(setup)
    }

    fn passive(&mut self, passive: u32) -> Result<Span, Fault> {
        let connect = self.connect;
        let own = (passive..connect.connections).step_by(connect.passives() as usize);
        let from = match connect.agents {
            Some(_) => RoleId(1),
            None => ACTIVE,
        };
        let mut links = Vec::new();
        for _ in own {
            links.push(self.open(Peers { to: ACTIVE, from })?);
        }
        self.members.meet()?;
        if !connect.withholds_receives() {
            for link in &mut links {
                link.take_messages(self.members)?;
            }
        }
        self.close(links)?;
        Ok(Span::ZERO)
    }

    /// Sets a connection up.
    fn open(&mut self, peers: Peers) -> Result<Link<S::Context>, Fault> {
        let timings = &mut self.timings;
        let mut link = Link::new(self.members, self.connect, self.receives, timings)?;
        link.post_receives(self.receives, timings)?;
        link.connect(self.members, (self.connect, peers), timings)?;
        timings.end(Step::SetUp, &mut link.spent);
        Ok(link)
    }

    /// The active end's messages: the first one, further ones, and their number.
    fn speak(&mut self, link: &mut Link<S::Context>) -> Result<(), Fault> {
        let withheld = self.connect.withholds_receives();
        let further = if withheld { 0 } else { self.connect.messages };
        for number in 1..=1 + u64::from(further) {
            let step = match number {
                1 => Step::FirstMessage,
                _ => Step::FurtherMessage,
            };
            let sent = || link.say(self.members, number, MESSAGE);
            let status = self.timings.time(step, sent)?;
            link::expect(status, number, withheld.then_some(link::NO_RECEIVE))?;
        }
        let count = 1 + u64::from(further);
        let sent = || link.say(self.members, count, link::COUNT);
        let status = self.timings.time(Step::Finished, sent)?;
        link::expect(status, count + 1, withheld.then_some(link::FLUSHED))?;
        self.timings.end(Step::Use, &mut link.spent);
        Ok(())
    }

    /// Breaks connections down, once all roles have finished using theirs.
    fn close(&mut self, links: Vec<Link<S::Context>>) -> Result<(), Fault> {
        self.members.meet()?;
        for link in links {
            let mut whole = link.spent;
            link.close(self.members, &mut self.timings)?;
            self.timings.end(Step::BreakDown, &mut whole);
            self.timings.record(Step::Whole, whole);
        }
        // No role ends while another one still looks whether it is there.
        self.members.meet()
    }
}

impl Default for ConnectTally {
    fn default() -> Self {
        ConnectTally {
            steps: Vec::new(),
            calls: Ok(Vec::new()),
            setup: Span::ZERO,
            cpu: CpuTime::default(),
            cpu_over: Span::ZERO,
        }
    }
}

impl ConnectTally {
    /// Adds the times of another role.
    pub fn add(&mut self, other: &ConnectTally) {
        let mut all: Steps = std::mem::take(&mut self.steps).into_iter().collect();
        for (step, times) in &other.steps {
            all.entry(*step).or_default().merge(times);
        }
        self.steps = all.into_iter().collect();
        match (&mut self.calls, &other.calls) {
            (Ok(own), Ok(others)) => {
                let mut all: BTreeMap<Step, Calls> = std::mem::take(own).into_iter().collect();
                for (step, calls) in others {
                    let sum = all.entry(*step).or_default();
                    sum.steps += calls.steps;
                    sum.calls += calls.calls;
                }
                *own = all.into_iter().collect();
            }
            (Err(_), _) => {}
            (own, Err(why)) => *own = Err(why.clone()),
        }
    }
}
