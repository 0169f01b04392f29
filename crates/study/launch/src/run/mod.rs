//! Starts a program's roles on this host and others, waits for them, and reports how the run ended.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use adverb_host::usable_cores;
use adverb_hwmodel::Usage as HardwareUsage;
use adverb_results::DeviceRef;
use adverb_units::CpuTime;
use adverb_verbs::{Counters, RoleId};
use adverb_workload::{Cause, HardwareChanges, Program, Role, RoleError, RoleLoad};
use serde_json::Value;

use crate::catalog::Catalog;
use crate::catalog::Details;
use crate::control::{Peer, RunOrder};
use crate::device::DeviceChoice;
use crate::interrupt::Interrupt;
use crate::local::LocalRoles;
use crate::place::{Cores, Pinning, Placement, place};
use crate::process::Mode;
use crate::remote::RemoteRoles;
use crate::role::{Order, Seat};
use crate::space::check_memory;
use crate::text::{Usage, one_line};

mod watch;

use watch::{Stop, Watch};

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
    /// What was used of each host in the measured time, if the hosts are modelled; otherwise empty.
    pub usage: Vec<(u32, HardwareUsage)>,
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

    /// Runs a program, with the timeout `timeout`.
    ///
    /// # Errors
    /// The run was not started, was interrupted, or the system failed.
    pub fn run<P: Program>(
        &mut self,
        program: &P,
        timeout: Duration,
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
        let started = self.start(P::ID, &params, (&roles, &hosts), timeout);
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
        Ok(watch.result::<P>(&roles, (&hosts, &devices), timeout))
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
                "{device}: this program needs an RDMA device; ping, blast, connect, rpc, sequencer, overlap, fetch, interference and rendezvous run on {device}"
            )));
        }
        if program.hardware() != HardwareChanges::default() {
            let device = &self.devices[0];
            return Err(Usage(format!(
                "{device} is not a model: Adverb changes no real hardware; leave out --ddio and --link-mtu, or name a model with --device model:PRESET"
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
        timeout: Duration,
    ) -> anyhow::Result<Watch<'_>> {
        let deadline = Instant::now() + timeout;
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
