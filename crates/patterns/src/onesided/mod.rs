//! Services without a server's CPU: clients READ, and add by FETCH_ADD, in memory of a member that does
//! nothing but own it (Kalia et al., ATC 2016, section 5.3).
//!
//! Member 0 is the owner. Each client keeps *trains* under way, lists of requests of one queue pair, each
//! of a *lane*: the next step of one operation. A train's last request alone asks for a completion,
//! which stands for all, as a reliable connection carries them out in order. Then each lane looks at
//! what its step brought, and the train is posted again.

mod client;
mod layout;

use adverb_units::Span;
use adverb_verbs::{QpType, RoleId, Station};

use crate::error::PatternError;
use crate::load::{Limits, Load, Posting, Request, Timing};
use crate::member::Schedule;
use crate::pattern::{Part, Pattern};
use crate::tally::ServiceTally;
use crate::wiring::{Wiring, meet};
use layout::Layout;

/// Longest list of requests that a client posts at a time.
const MAX_LIST: u32 = 32;
/// How long a client waits for a completion.
const PATIENCE: Span = Span::from_secs(10);

/// Items that clients find and lock by themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct Items {
    /// How many.
    pub items: u64,
    /// Bytes of the record that each READ of a GET brings, in order. Each but the last says where the
    /// next one is.
    pub records: Vec<u32>,
    /// READs of a GET, on average.
    pub mean_reads: f64,
    /// Share of operations that lock an item and free it, by a FETCH_ADD each.
    pub put_ratio: f64,
}

/// What the owner's memory is.
#[derive(Clone, Debug, PartialEq)]
pub enum Remote {
    /// One word: the next number.
    Counter,
    /// Items, and a lock word of each, 64 B apart.
    Items(Items),
}

/// How clients work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneSidedClients {
    /// Client threads.
    pub threads: u32,
    /// Machines that they are on, in turn.
    pub machines: u32,
    /// Queue pairs of each.
    pub qps: u32,
    /// Operations under way on each queue pair.
    pub outstanding: u32,
    /// Requests of a post.
    pub posting: Posting,
    /// READs and atomics of one queue pair on the wire.
    pub rd_atomic: u8,
    /// Whether each operation is timed.
    pub timing: Timing,
    /// Seed of what is chosen.
    pub seed: u64,
}

/// A program of an owner and its clients.
#[derive(Clone, Debug, PartialEq)]
pub struct OneSided {
    /// What is owned.
    pub remote: Remote,
    /// The clients.
    pub clients: OneSidedClients,
}

impl OneSided {
    /// How many members it has.
    pub fn members(&self) -> u32 {
        1 + self.clients.threads
    }

    /// How many machines.
    pub fn machines(&self) -> u32 {
        1 + self.clients.machines.min(self.clients.threads).max(1)
    }

    /// The machine that a member is on.
    pub fn machine(&self, role: RoleId) -> u32 {
        match role.0.checked_sub(1) {
            None => 0,
            Some(client) => 1 + client % (self.machines() - 1),
        }
    }

    fn list(&self) -> u32 {
        let list = match self.clients.posting {
            Posting::Single => 1,
            Posting::List(n) => n,
        };
        list.clamp(1, MAX_LIST.min(self.clients.outstanding))
    }

    /// Queue pairs and memory, as a pattern's.
    fn pattern(&self, layout: &Layout) -> Pattern {
        let clients = &self.clients;
        let mut pattern = Pattern::new(QpType::Rc);
        let owner = pattern.add(0, Part::Serve, layout.bytes());
        let load = Load {
            posting: clients.posting,
            limits: Limits {
                per_qp: clients.outstanding,
                per_member: u32::MAX,
                rd_atomic: clients.rd_atomic,
            },
            ..Load::new(Request::Read, 0)
        };
        let operations = u64::from(clients.qps) * u64::from(clients.outstanding);
        for client in 1..=clients.threads {
            let part = Part::Request(load.clone());
            let memory = operations * layout.widest();
            let client = pattern.add(self.machine(RoleId(client)), part, memory);
            (0..clients.qps).for_each(|_| pattern.link(client, owner));
        }
        pattern
    }

    fn check(&self) -> Result<(), PatternError> {
        let clients = &self.clients;
        for (what, given, max) in [
            ("clients", clients.threads, 1 << 14),
            ("queue pairs of a client", clients.qps, 1 << 10),
            ("operations of a queue pair", clients.outstanding, 1 << 12),
        ] {
            if !(1..=max).contains(&given) {
                return Err(PatternError::Count { what, given, max });
            }
        }
        layout::check(&self.remote)
    }
}

/// Does the part of member `me`; all members run at the same time.
///
/// # Errors
/// An object could not be made, a request was refused or failed, a value is wrong, or another member is
/// gone.
pub fn run_onesided<S: Station>(
    station: &S,
    program: &OneSided,
    me: RoleId,
    schedule: Schedule,
) -> Result<ServiceTally, PatternError> {
    program.check()?;
    let layout = Layout::new(&program.remote);
    let pattern = program.pattern(&layout);
    let wiring = Wiring::new(station, &pattern, &pattern.members[me.0 as usize])?;
    let is_owner = me.0 == 0;
    if is_owner {
        layout.fill(&wiring.mr)?;
    }
    meet(station, me, program.members())?;
    let mut tally = ServiceTally::default();
    if !is_owner {
        let client = client::Client::new(station, &wiring, program, &layout, (me, schedule));
        tally = client.run()?;
    }
    meet(station, me, program.members())?;
    if is_owner {
        tally.locked = layout.locked(&wiring.mr)?;
    }
    Ok(tally)
}
