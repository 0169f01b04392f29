//! Programs of several members, for whoever starts the members.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_patterns::{
    OneSided, Pattern, PatternError, Rpc, Schedule, ServiceTally, Tally, run, run_onesided, run_rpc,
};
use adverb_verbs::{RoleId, Station};

/// A program that runs as threads on a real device, and as coroutines on the model.
pub(super) trait Program: Clone + Send + 'static {
    /// What a member says at its end.
    type Tally: Send + 'static;

    /// How many members it has.
    fn members(&self) -> u32;

    /// The machine that a member is on.
    fn machine(&self, role: RoleId) -> u32;

    /// The members that a member talks with, beside member 0, which talks with all.
    fn peers(&self, role: RoleId) -> Vec<RoleId>;

    /// A member's part.
    fn run<S: Station>(
        &self,
        station: &S,
        role: RoleId,
        schedule: Schedule,
    ) -> Result<Self::Tally, PatternError>;

    /// How many machines it needs.
    fn machines(&self) -> u32 {
        let machines = (0..self.members()).map(|role| self.machine(RoleId(role)) + 1);
        machines.max().unwrap_or(1)
    }
}

/// Server cores and clients, with the counter that the cores share.
#[derive(Clone)]
pub(super) struct Served {
    pub(super) rpc: Rpc,
    counter: Arc<AtomicU64>,
}

impl Served {
    pub(super) fn new(rpc: Rpc) -> Self {
        Served {
            rpc,
            counter: Arc::default(),
        }
    }

    /// How many numbers were handed out.
    pub(super) fn handed_out(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }
}

impl Program for Served {
    type Tally = ServiceTally;

    fn members(&self) -> u32 {
        self.rpc.members()
    }

    fn machine(&self, role: RoleId) -> u32 {
        self.rpc.machine(role)
    }

    fn peers(&self, role: RoleId) -> Vec<RoleId> {
        self.rpc.peers(role)
    }

    fn run<S: Station>(
        &self,
        station: &S,
        role: RoleId,
        schedule: Schedule,
    ) -> Result<ServiceTally, PatternError> {
        run_rpc(station, &self.rpc, role, &self.counter, schedule)
    }
}

impl Program for OneSided {
    type Tally = ServiceTally;

    fn members(&self) -> u32 {
        self.members()
    }

    fn machine(&self, role: RoleId) -> u32 {
        self.machine(role)
    }

    fn peers(&self, role: RoleId) -> Vec<RoleId> {
        self.owner(role).into_iter().collect()
    }

    fn run<S: Station>(
        &self,
        station: &S,
        role: RoleId,
        schedule: Schedule,
    ) -> Result<ServiceTally, PatternError> {
        run_onesided(station, self, role, schedule)
    }
}

impl Program for Pattern {
    type Tally = Tally;

    fn members(&self) -> u32 {
        self.members.len() as u32
    }

    fn machine(&self, role: RoleId) -> u32 {
        self.members[role.0 as usize].machine
    }

    fn peers(&self, role: RoleId) -> Vec<RoleId> {
        let links = &self.members[role.0 as usize].links;
        links.iter().map(|link| link.peer).collect()
    }

    fn run<S: Station>(
        &self,
        station: &S,
        role: RoleId,
        schedule: Schedule,
    ) -> Result<Tally, PatternError> {
        run(station, self, role, schedule)
    }
}
