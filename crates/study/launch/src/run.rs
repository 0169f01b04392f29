//! Starts a program's roles on this host and others, waits for them, and reports how the run ended.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use adverb_host::usable_cores;
use adverb_results::DeviceRef;
use adverb_units::CpuTime;
use adverb_verbs::{Counters, RoleId};
use adverb_workload::{Cause, Program, Role, RoleError, RoleLoad};
use anyhow::Context;
use rustix::event::{PollFd, PollFlags};
use serde_json::Value;

use crate::catalog::Catalog;
use crate::catalog::Details;
use crate::control::{Peer, RunOrder, wait_until};
use crate::device::DeviceChoice;
use crate::interrupt::Interrupt;
use crate::local::{End, LocalRoles, Output, Rank, RoleEnded};
use crate::place::{Cores, Pinning, Placement, place};
use crate::process::Mode;
use crate::remote::RemoteRoles;
use crate::role::{Order, Seat};
use crate::space::check_memory;
use crate::text::{Usage, one_line};

/// How long other roles may take to end by themselves after the first failure: their reasons may explain it
/// better.
const GRACE: Duration = Duration::from_millis(500);
/// Maximum roles of a run on one host: each is a thread that polls on a core, or waits for one.
pub(crate) const MOST_ROLES: usize = 256;

/// Starts programs on these hosts.
pub struct Launcher {
    catalog: &'static Catalog,
    /// Devices of this host; several make it act as several hosts.
    devices: Vec<DeviceChoice>,
    peers: Vec<Peer>,
    mode: Mode,
    placement: Placement,
    pinning: Pinning,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Run<R> {
    /// The results of the roles, in their order.
    pub reports: Result<Vec<R>, Failure>,
    /// Where the roles ran.
    pub roles: Vec<RoleRun>,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// In one line.
    pub reason: String,
    /// Whether the parameters were refused.
    pub is_usage: bool,
}

/// Where a role ran, and its counters.
#[derive(Clone, Debug)]
pub struct RoleRun {
    /// Its name.
    pub name: String,
    /// Its host: this one is 0, the peers follow.
    pub host: u32,
    /// Its device.
    pub device: DeviceRef,
    /// The core that it was pinned to.
    pub core: Option<u32>,
    /// That core's NUMA node.
    pub numa_node: Option<u32>,
    /// Counters of its device that grew.
    pub counters: Counters,
    /// Its device's details for a record's provenance.
    pub details: Details,
    /// CPU time that it used.
    pub cpu: CpuTime,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
    /// It was not started: a peer cannot be reached any more.
    #[error("{0}")]
    Unreachable(String),
    /// It was not started: the program cannot run there.
    #[error(transparent)]
    Refused(#[from] Usage),
    /// The system failed.
    #[error("{}", one_line(.0))]
    System(anyhow::Error),
}

impl Launcher {
    /// Returns a launcher for this host, which acts as one host per device.
    pub fn new(catalog: &'static Catalog, devices: Vec<DeviceChoice>) -> Self {
        Launcher {
            catalog,
            devices,
            peers: Vec::new(),
            mode: Mode::Processes,
            placement: Placement::default(),
            pinning: Pinning::Automatic,
        }
    }

    /// Adds peers. Roles are then processes.
    #[must_use]
    pub fn with_peers(self, peers: Vec<Peer>) -> Self {
        Launcher { peers, ..self }
    }

    /// Sets whether roles are threads or processes.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Launcher { mode, ..self }
    }

    /// Sets where roles run.
    #[must_use]
    pub fn with_places(self, placement: Placement, pinning: Pinning) -> Self {
        Launcher {
            placement,
            pinning,
            ..self
        }
    }

    /// Changes where the roles of the next run are placed.
    pub fn set_placement(&mut self, placement: Placement) {
        self.placement = placement;
    }

    /// Whether a host is connected: the server of a peer may have been lost.
    pub fn is_connected(&self, host: u32) -> bool {
        let peer = (host as usize).checked_sub(self.devices.len());
        peer.is_none_or(|peer| self.peers[peer].connected().is_some())
    }

    /// Returns the peers.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Returns this host's first device, as seen by the first peer.
    pub fn device(&self) -> DeviceChoice {
        self.devices[0].met_at(self.reached_from())
    }

    /// Whether all hosts use one UDP address and share memory, so that connected queue pairs do not use UDP.
    pub fn is_within_memory(&self) -> bool {
        let device = self.device();
        device.reference().has_udp_port()
            && self.devices.len() == 1
            && self.peers.iter().all(|peer| peer.shares_memory_at(&device))
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> u32 {
        (self.devices.len() + self.peers.len()) as u32
    }

    /// Returns this host's address on the network to the first connected peer.
    fn reached_from(&self) -> Option<IpAddr> {
        self.peers.iter().find_map(Peer::reached_from)
    }

    /// Runs a program, with the timeout `patience`.
    ///
    /// # Errors
    /// The run was not started, was interrupted, or the system failed.
    pub fn run<P: Program>(
        &mut self,
        program: &P,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<Run<P::Report>, RunError> {
        let roles = program.roles();
        let hosts = place(&roles, program.home(), self.hosts(), &self.placement)?;
        self.check_on(program, &hosts)?;
        let first_peer = self.devices.len() as u32;
        for (host, peer) in (first_peer..).zip(&mut self.peers) {
            if hosts.contains(&host) {
                let ready = peer.ready(interrupt);
                ready.map_err(|error| RunError::Unreachable(one_line(&error)))?;
            }
        }
        if interrupt.raised() {
            return Err(RunError::Interrupted);
        }
        let params = serde_json::to_value(program).map_err(|e| RunError::System(e.into()))?;
        let devices: Vec<DeviceRef> = (0..self.hosts()).map(|host| self.device_of(host)).collect();
        let started = self.start(P::ID, &params, (&roles, &hosts), patience);
        let mut watch = started.map_err(RunError::System)?;
        watch.follow(interrupt).map_err(RunError::System)?;
        watch.local.tidy();
        if watch.is_lost() {
            // The processes of an agent that was lost may have been on this host.
            watch.tidy.iter().for_each(DeviceChoice::tidy);
        }
        if watch.stop == Some(Stop::Interrupted) {
            return Err(RunError::Interrupted);
        }
        Ok(watch.result::<P>(&roles, (&hosts, &devices), patience))
    }

    /// Refuses a program that cannot run on these hosts, before anything runs.
    ///
    /// # Errors
    /// There are too many roles, they need too much memory, have no place, or their device cannot run the program.
    pub fn check<P: Program>(&self, program: &P) -> Result<(), Usage> {
        let roles = program.roles();
        let hosts = place(&roles, program.home(), self.hosts(), &self.placement)?;
        self.check_on(program, &hosts)
    }

    fn check_on<P: Program>(&self, program: &P, hosts: &[u32]) -> Result<(), Usage> {
        let most = |host: u32| hosts.iter().filter(|at| **at == host).count();
        let most = (0..self.hosts()).map(most).max().unwrap_or(0);
        if most > MOST_ROLES {
            return Err(Usage(format!(
                "{most} members exceed the maximum of {MOST_ROLES} threads on one machine"
            )));
        }
        self.check_device(program)?;
        let is_here = |host: u32| {
            let peer = (host as usize).checked_sub(self.devices.len());
            peer.is_none_or(|peer| self.peers[peer].is_here())
        };
        let roles = (0..).map(RoleId).zip(hosts);
        let here = roles.filter(|(_, host)| is_here(**host));
        check_memory(here.map(|(role, _)| program.memory(role)))
    }

    /// Refuses devices of this host that have no verbs if the program needs them, or that connect queue pairs in a
    /// way that the program does not support.
    ///
    /// # Errors
    /// The device and the reason.
    pub fn check_device<P: Program>(&self, program: &P) -> Result<(), Usage> {
        let tcp = |device: &&DeviceChoice| matches!(device, DeviceChoice::Tcp(_));
        if let Some(device) = self
            .devices
            .iter()
            .find(tcp)
            .filter(|_| !program.is_stream())
        {
            return Err(Usage(format!(
                "{device}: this program needs an RDMA device; only ping, blast and connect run on {device}"
            )));
        }
        let by_manager = self.devices.iter().find(|device| device.is_managed());
        match (by_manager, program.refuses_manager()) {
            (Some(device), Some(why)) => Err(Usage(format!(
                "{device}: {why}; name the device as verbs:NAME"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether a connection between two hosts stays in memory: both use one address of one machine.
    pub fn is_pair_within_memory(&self, (one, other): (u32, u32)) -> bool {
        let device = self.device_of(one);
        let first_peer = self.devices.len() as u32;
        let peer = |host: u32| Some(&self.peers[host.checked_sub(first_peer)? as usize]);
        device.has_udp_port()
            && device == self.device_of(other)
            && match (peer(one), peer(other)) {
                (None, None) => true,
                (Some(peer), None) | (None, Some(peer)) => peer.shares_memory(),
                (Some(one), Some(other)) => one.shares_memory_with(other),
            }
    }

    /// Returns the device of a host.
    pub fn device_of(&self, host: u32) -> DeviceRef {
        let host = host as usize;
        match self.devices.get(host) {
            Some(device) => device.met_at(self.reached_from()).reference(),
            None => self.peers[host - self.devices.len()]
                .welcome()
                .device
                .clone(),
        }
    }

    /// Orders the agents' roles, and starts the roles of this host.
    fn start(
        &mut self,
        id: &str,
        params: &Value,
        (roles, hosts): (&[Role], &[u32]),
        patience: Duration,
    ) -> anyhow::Result<Watch<'_>> {
        let deadline = Instant::now() + patience;
        let at = |host: u32| {
            let ids = (0..).map(RoleId).zip(hosts);
            ids.filter(move |(_, at)| **at == host)
                .map(|(role, _)| role)
        };
        let load = |role: RoleId| (role, roles[role.0 as usize].load);
        let first_peer = self.devices.len() as u32;
        let here: Vec<_> = (0..first_peer).flat_map(at).map(load).collect();
        let of_peers = |index: usize| at(first_peer + index as u32);
        let (seats, is_crowded) = self.seat(&here, |index| of_peers(index).map(load).collect());
        let reached_at = self.reached_from();
        let taken: Vec<u32> = seats.iter().filter_map(|seat| seat.core).collect();
        let mode = match self.peers.is_empty() {
            true => self.mode,
            false => Mode::Processes,
        };
        let mut remote = Vec::new();
        let shares = self.shares(&taken, is_crowded, |i| of_peers(i).map(load).collect());
        let peers = self.peers.iter_mut().zip(shares);
        for (index, (peer, (taken, shares_cores))) in peers.enumerate() {
            let roles: Vec<RoleId> = of_peers(index).collect();
            if roles.is_empty() {
                continue;
            }
            let order = RunOrder {
                run: 0,
                program: id.to_owned(),
                params: params.clone(),
                roles,
                taken,
                shares_cores,
            };
            remote.push(RemoteRoles::order(peer, order));
        }
        let mut watch = Watch {
            local: LocalRoles::default(),
            remote,
            ends: roles.iter().map(|_| None).collect(),
            ended: Vec::new(),
            deadline,
            stop: None,
            tidy: self
                .devices
                .iter()
                .map(|device| device.met_at(reached_at))
                .collect(),
        };
        for (host, device) in (0..).zip(&self.devices) {
            let is_here = |seat: &&Seat| hosts[seat.role.0 as usize] == host;
            let order = Order {
                program: id.to_owned(),
                params: params.clone(),
                roles: seats.iter().filter(is_here).copied().collect(),
                device: device.clone(),
                parent: (mode == Mode::Processes).then(std::process::id),
                memory: None,
                reached_at,
            };
            watch.local.start(self.catalog, mode, roles, &order)?;
        }
        Ok(watch)
    }

    /// Assigns cores to the roles on this machine; also returns whether there are too few.
    fn seat(
        &self,
        here: &[(RoleId, RoleLoad)],
        of_peer: impl Fn(usize) -> Vec<(RoleId, RoleLoad)>,
    ) -> (Vec<Seat>, bool) {
        let usable = usable_cores();
        let mut taken = Vec::new();
        let mut others = 0;
        for (index, peer) in self.peers.iter().enumerate() {
            if !peer.is_here() {
                continue;
            }
            match &peer.welcome().cores {
                Some(cores) => taken.extend_from_slice(cores),
                // A launcher may have bound its ranks to other cores.
                None if !peer.welcome().usable.iter().any(|c| usable.contains(c)) => {}
                None => others += busy(&of_peer(index)),
            }
        }
        Cores::of(usable, &taken, others).seat(here, &self.pinning)
    }

    /// Returns for each agent the cores of its machine that other roles use, and whether the busy roles there
    /// have too few. `here` are the cores of this process's roles.
    fn shares(
        &self,
        here: &[u32],
        is_crowded: bool,
        of_peer: impl Fn(usize) -> Vec<(RoleId, RoleLoad)>,
    ) -> Vec<(Vec<u32>, bool)> {
        let mut given: Vec<Vec<u32>> = Vec::new();
        let mut shares = Vec::new();
        for (index, peer) in self.peers.iter().enumerate() {
            let is_here = peer.is_here();
            let mut taken = if is_here { here.to_vec() } else { Vec::new() };
            let others = (0..self.peers.len())
                .filter(|other| *other != index && self.peers[*other].meets(peer))
                .map(|other| busy(&of_peer(other)))
                .sum();
            let (roles, welcome) = (of_peer(index), peer.welcome());
            let how = welcome
                .cores
                .clone()
                .map_or(Pinning::Automatic, Pinning::Cores);
            let cores = |taken: &[u32], others| Cores::of(welcome.usable.clone(), taken, others);
            let crowded = cores(&taken, others).seat(&roles, &how).1 || (is_here && is_crowded);
            let earlier = self.peers.iter().zip(&given);
            taken.extend(
                earlier
                    .filter(|(other, _)| other.meets(peer))
                    .flat_map(|(_, cores)| cores),
            );
            // Predict the agent's choice.
            let (seats, _) =
                cores(&taken, if crowded { usize::MAX / 2 } else { 0 }).seat(&roles, &how);
            given.push(seats.iter().filter_map(|seat| seat.core).collect());
            shares.push((taken, crowded));
        }
        shares
    }
}

fn busy(roles: &[(RoleId, RoleLoad)]) -> usize {
    let busy = roles.iter().filter(|(_, load)| *load == RoleLoad::Busy);
    busy.count()
}

/// Why the roles are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Interrupted,
    Overdue,
    OtherFailed,
}

/// The roles of a run, wherever they run.
struct Watch<'p> {
    local: LocalRoles,
    remote: Vec<RemoteRoles<'p>>,
    ends: Vec<Option<RoleEnded>>,
    /// The roles that have ended, in the order of their ends.
    ended: Vec<RoleId>,
    deadline: Instant,
    stop: Option<Stop>,
    /// Where processes of this host may leave files.
    tidy: Vec<DeviceChoice>,
}

impl Watch<'_> {
    /// Waits until all roles have ended.
    fn follow(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        while !self.local.is_over() || !self.remote.iter().all(RemoteRoles::is_over) {
            self.sleep(interrupt)?;
            self.turn()?;
            self.decide(interrupt);
        }
        Ok(())
    }

    /// Handles what the roles sent, and forwards messages.
    fn turn(&mut self) -> anyhow::Result<()> {
        let mut out = Vec::new();
        if !self.is_congested() {
            self.local
                .turn(&mut out)
                .context("cannot read from a role")?;
        }
        let local = out.len();
        for remote in &mut self.remote {
            remote.turn(&mut out);
        }
        for (at, output) in out.into_iter().enumerate() {
            match output {
                Output::Message { from, to, bytes } => {
                    let elsewhere = self.local.deliver(from, to, bytes);
                    if let Some(bytes) = elsewhere {
                        for remote in &mut self.remote {
                            remote.deliver(from, to, &bytes);
                        }
                    }
                }
                Output::Ended(ended) => {
                    if at >= local {
                        self.local.announce_end(ended.role);
                    }
                    for remote in &mut self.remote {
                        remote.announce_end(ended.role);
                    }
                    if let Some(end) = self.ends.get_mut(ended.role.0 as usize) {
                        self.ended.push(ended.role);
                        *end = Some(*ended);
                    }
                }
            }
        }
        Ok(())
    }

    fn is_congested(&self) -> bool {
        self.remote.iter().any(RemoteRoles::is_congested)
    }

    fn has_failed(&self) -> bool {
        let ended = self.ends.iter().flatten();
        ended.into_iter().any(|ended| ended.end.is_failure())
    }

    /// Ends the roles after a signal, a failure or the deadline.
    fn decide(&mut self, interrupt: &Interrupt) {
        if self.stop.is_some() {
            return;
        }
        let now = Instant::now();
        let has_failed = self.has_failed();
        if has_failed {
            self.deadline = self.deadline.min(now + GRACE);
        }
        self.stop = match () {
            // A launcher ends all ranks when one died: that is the reason, not the signal.
            () if interrupt.raised() && has_failed => Some(Stop::OtherFailed),
            () if interrupt.raised() => Some(Stop::Interrupted),
            () if now < self.deadline => return,
            () if has_failed => Some(Stop::OtherFailed),
            () => Some(Stop::Overdue),
        };
        self.local.kill();
        self.remote.iter_mut().for_each(RemoteRoles::kill);
    }

    /// Sleeps until a role sends something or ends, a signal arrives, or the deadline.
    fn sleep(&self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        if !self.is_congested() {
            fds.extend(self.local.poll_fds());
        }
        fds.extend(self.remote.iter().filter_map(RemoteRoles::poll_fd));
        let mut wake_at: Vec<Instant> = self
            .remote
            .iter()
            .filter_map(RemoteRoles::wake_at)
            .collect();
        if self.stop.is_none() {
            let interrupt = interrupt.fd();
            fds.push(PollFd::from_borrowed_fd(interrupt, PollFlags::IN));
            wake_at.push(self.deadline);
        }
        wait_until(&mut fds, wake_at.into_iter().min())
    }

    fn is_lost(&self) -> bool {
        self.remote.iter().any(RemoteRoles::is_lost)
    }

    /// Returns how the run ended.
    fn result<P: Program>(
        &mut self,
        roles: &[Role],
        (hosts, devices): (&[u32], &[DeviceRef]),
        patience: Duration,
    ) -> Run<P::Report> {
        let ids = (0..).map(RoleId);
        let missing = |role| RoleEnded::without_answer(role, End::Stopped);
        let ends = std::mem::take(&mut self.ends);
        let ends: Vec<RoleEnded> = ids
            .zip(ends)
            .map(|(role, end)| end.unwrap_or_else(|| missing(role)))
            .collect();
        let reports = match self.stop {
            Some(Stop::Overdue) => Err(Failure::new(format!(
                "timed out after {} s",
                patience.as_secs()
            ))),
            _ => reports::<P>(roles, &ends, &self.ended),
        };
        let role_run = |(role, (host, ended)): (&Role, (&u32, RoleEnded))| RoleRun {
            name: role.name.clone(),
            host: *host,
            device: devices[*host as usize].clone(),
            core: ended.core,
            numa_node: ended.numa_node,
            counters: ended.counters,
            details: ended.details,
            cpu: ended.cpu,
        };
        Run {
            reports,
            roles: roles
                .iter()
                .zip(hosts.iter().zip(ends))
                .map(role_run)
                .collect(),
        }
    }
}

impl Failure {
    pub(crate) fn new(reason: String) -> Self {
        let is_usage = false;
        Failure { reason, is_usage }
    }

    pub(crate) fn of(error: RoleError) -> Self {
        Failure {
            is_usage: error.cause == Cause::Refused,
            reason: error.reason,
        }
    }
}

/// Returns the reports of all roles, or the best explanation for a missing one.
fn reports<P: Program>(
    roles: &[Role],
    ends: &[RoleEnded],
    order: &[RoleId],
) -> Result<Vec<P::Report>, Failure> {
    let read = |ended: &RoleEnded| match &ended.end {
        End::Report(report) => serde_json::from_value(report.clone()).ok(),
        _ => None,
    };
    let all: Option<Vec<P::Report>> = ends.iter().map(read).collect();
    all.ok_or_else(|| first_cause(roles, ends, order))
}

/// Returns the best of several reasons: a death explains more than an error, and an error more than its
/// consequences. Of equals it is the first in `order`.
fn first_cause(roles: &[Role], ends: &[RoleEnded], order: &[RoleId]) -> Failure {
    let all = order.iter().map(|role| role.0 as usize);
    let reasons = all.filter_map(|at| ends[at].end.reason(&roles[at].name));
    match reasons.min_by_key(|(rank, _)| *rank) {
        Some((rank, reason)) => Failure {
            reason,
            is_usage: rank == Rank::Failed(Cause::Refused),
        },
        None => Failure::new("the roles ended without a result".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_is_given() {
        let failed = |reason: &str, cause| {
            let reason = reason.to_owned();
            End::Failed(RoleError { reason, cause })
        };
        let died = || End::Died("killed by signal 9".to_owned());
        let gone = || failed("the other side has ended", Cause::Peer);
        let real = || failed("remote access error", Cause::Own);
        let role = |name: &str, host| Role {
            name: name.to_owned(),
            host,
            process: 0,
            load: RoleLoad::Busy,
        };
        let roles = [role("active", 0), role("passive", 1)];
        let cases = [
            ([gone(), died()], "passive side: killed by signal 9"),
            ([real(), died()], "passive side: killed by signal 9"),
            ([gone(), real()], "remote access error"),
            ([real(), gone()], "remote access error"),
            ([End::Stopped, real()], "remote access error"),
            ([gone(), End::Stopped], "the other side has ended"),
            ([died(), died()], "passive side: killed by signal 9"),
        ];
        for (ends, reason) in cases {
            let ends = ends.map(|end| RoleEnded::without_answer(RoleId(0), end));
            let order = [RoleId(1), RoleId(0)];
            assert_eq!(first_cause(&roles, &ends, &order).reason, reason);
        }
    }
}
