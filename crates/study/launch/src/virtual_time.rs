//! A program in virtual time: its roles are coroutines of one simulation.

use adverb_hwmodel::{Cluster, MachineId, ModelStation};
use adverb_sim::{Budget, Outcome, Resource, Returned};
use adverb_units::{CpuTime, Span, Time};
use adverb_verbs::{Counters, RoleId};
use adverb_workload::pair::CellSpec;
use adverb_workload::{Program, Role, RoleError, RoleLoad};

use crate::hardware::Hardware;
use crate::run::{Failure, RoleRun, Run};

/// Simulation events between two checks of `is_over`: far below a second.
const SLICE: u64 = 200_000;

/// Timeout in virtual time in addition to the longest time of a cell; cells with few messages or losses are prolonged
/// for up to a minute.
const LEAST_VIRTUAL_TIMEOUT: Span = Span::from_secs(120);

/// How long a run may take.
#[derive(Clone, Copy, Debug, Default)]
pub struct VirtualLimits {
    /// In virtual time.
    pub until: Option<Span>,
    /// In real time.
    pub real: Option<Span>,
}

impl From<&CellSpec> for VirtualLimits {
    /// Returns limits far above the time that the cell needs.
    fn from(spec: &CellSpec) -> Self {
        VirtualLimits {
            until: Some(LEAST_VIRTUAL_TIMEOUT + spec.longest()),
            real: Some(spec.timeout()),
        }
    }
}

/// A run in virtual time that has ended.
#[derive(Debug)]
pub struct VirtualRun<R> {
    /// The result of each role; `None` if it has not ended.
    pub ends: Vec<Option<Result<R, RoleError>>>,
    /// How the simulation ended.
    pub outcome: Outcome,
}

impl<R> VirtualRun<R> {
    /// Returns the reports of all roles, or the best explanation for a missing one.
    ///
    /// # Errors
    /// A role failed; or some have not ended: they wait for each other, or a limit was reached.
    pub fn reports(self) -> Result<Vec<R>, Failure> {
        let (mut reports, mut failures) = (Vec::new(), Vec::new());
        let mut is_missing = false;
        for end in self.ends {
            match end {
                Some(Ok(report)) => reports.push(report),
                Some(Err(error)) => failures.push(error),
                None => is_missing = true,
            }
        }
        let first = failures.into_iter().min_by_key(|error| error.cause);
        match first {
            Some(error) => Err(Failure::of(error)),
            None if is_missing => Err(Failure::new(self.outcome.to_string())),
            None => Ok(reports),
        }
    }
}

impl Hardware {
    /// Runs a program on this hardware, with one machine per host of the program; `None` if `is_over` ended it.
    pub fn run<P: Program>(
        &self,
        program: &P,
        limits: VirtualLimits,
        is_over: &dyn Fn() -> bool,
    ) -> Option<Run<P::Report>> {
        let mut cluster = self.cluster_of(program);
        if let Some(how) = program.impairment() {
            cluster.impair(how);
        }
        let machines: Vec<_> = (0..program.hosts()).map(MachineId).collect();
        let run = run_in_virtual_time(&mut cluster, &machines, program, limits, is_over)?;
        let roles = program.roles();
        let role_run = |role: &Role| RoleRun {
            name: role.name.clone(),
            host: role.host,
            device: self.reference(),
            core: None,
            numa_node: None,
            counters: counters(&cluster, &roles, role.host),
            details: Vec::new(),
            cpu: CpuTime::default(),
        };
        let usage = machines.iter();
        let usage = usage.filter_map(|machine| Some((machine.0, cluster.usage(*machine)?)));
        Some(Run {
            reports: run.reports(),
            roles: roles.iter().map(role_run).collect(),
            usage: usage.collect(),
        })
    }
}

/// Returns the counters of a machine's device, if only one role used it.
fn counters(cluster: &Cluster, roles: &[Role], host: u32) -> Counters {
    if roles.iter().filter(|role| role.host == host).count() > 1 {
        return Counters::new();
    }
    let mut counters = cluster.counters(MachineId(host));
    counters.retain(|_, count| *count > 0);
    counters
}

/// Runs a program on a cluster without roles; `role.host` is the index in `machines`. `None` if `is_over`
/// ended it.
///
/// # Panics
/// If there are fewer machines than the program asks for.
pub fn run_in_virtual_time<P: Program>(
    cluster: &mut Cluster,
    machines: &[MachineId],
    program: &P,
    limits: VirtualLimits,
    is_over: &dyn Fn() -> bool,
) -> Option<VirtualRun<P::Report>> {
    let roles = program.roles();
    let processes: Vec<(u32, u32)> = {
        let mut all: Vec<_> = roles.iter().map(|role| (role.host, role.process)).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let shared: Vec<_> = processes
        .iter()
        .map(|_| std::rc::Rc::<P::Shared>::default())
        .collect();
    let started: Vec<Returned<_>> = roles
        .iter()
        .zip((0..).map(RoleId))
        .map(|(role, id)| {
            let at = processes.binary_search(&(role.host, role.process));
            let shared = shared[at.expect("each role's is there")].clone();
            let machine = machines[role.host as usize];
            let program = program.clone();
            let body = move |station: &ModelStation<'_>| program.run(station, id, &shared);
            match role.load {
                RoleLoad::Busy => cluster.spawn(machine, &role.name, body),
                RoleLoad::Idle => cluster.spawn_sleeper(machine, &role.name, body),
                RoleLoad::Preempting => cluster.spawn_preempting(machine, &role.name, body),
            }
        })
        .collect();
    let outcome = run_in_slices(cluster, limits, is_over)?;
    Some(VirtualRun {
        ends: started.iter().map(Returned::take).collect(),
        outcome,
    })
}

/// Runs the simulation until it ends; `None` if `is_over` ended it.
fn run_in_slices(
    cluster: &mut Cluster,
    limits: VirtualLimits,
    is_over: &dyn Fn() -> bool,
) -> Option<Outcome> {
    let started = std::time::Instant::now();
    let slice = Budget {
        until: limits.until.map(|until| Time::ZERO + until),
        events: Some(SLICE),
        real: None,
    };
    loop {
        if is_over() {
            return None;
        }
        let outcome = cluster.run(&slice);
        let Outcome::Exhausted {
            budget: Resource::Events(_),
            waiting,
        } = outcome
        else {
            return Some(outcome);
        };
        let used = Span::from(started.elapsed());
        if limits.real.is_some_and(|real| used > real) {
            let budget = Resource::RealTime(used);
            return Some(Outcome::Exhausted { budget, waiting });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_hwmodel::{Placement, Preset};
    use adverb_results::{Opcode, Transport};
    use adverb_units::Bytes;
    use adverb_verbs::Station;
    use adverb_workload::pair::Request;
    use adverb_workload::{Cause, Role};
    use serde::{Deserialize, Serialize};
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Two roles of one process; the first one sends the second one a message, or not.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    enum Pair {
        Talks,
        Listens,
        Polls,
    }

    impl Program for Pair {
        const ID: &'static str = "pair";
        type Report = u32;
        type Shared = AtomicU32;

        fn roles(&self) -> Vec<Role> {
            let role = |number| Role {
                name: format!("role {number}"),
                host: 0,
                process: 0,
                load: RoleLoad::Busy,
            };
            vec![role(0), role(1)]
        }

        fn memory(&self, _: RoleId) -> Bytes {
            Bytes::new(0)
        }

        fn run<S: Station>(
            &self,
            station: &S,
            RoleId(me): RoleId,
            shared: &AtomicU32,
        ) -> Result<u32, RoleError> {
            let failed = |reason: String| RoleError {
                reason,
                cause: Cause::Own,
            };
            let said = match (self, me) {
                (Pair::Talks, 0) => station.send(RoleId(1), b"hello"),
                (Pair::Polls, _) => loop {
                    station.sleep(Span::from_us(1));
                },
                _ => station.receive(RoleId(1 - me), Span::MAX).map(drop),
            };
            said.map_err(|e| failed(e.to_string()))?;
            Ok(shared.fetch_add(1, Ordering::Relaxed))
        }
    }

    fn run(pair: Pair, is_over: &dyn Fn() -> bool) -> Option<Result<Vec<u32>, Failure>> {
        let preset = Preset::built_in("cx3").unwrap();
        let mut cluster = Cluster::new(&preset, &[Placement::Cached]);
        let machines = [cluster.machine(0)];
        let limits = VirtualLimits::default();
        let run = run_in_virtual_time(&mut cluster, &machines, &pair, limits, is_over)?;
        Some(run.reports())
    }

    #[test]
    fn roles_of_one_process_share_state_and_a_deadlock_is_named() {
        let mut shared = run(Pair::Talks, &|| false).unwrap().unwrap();
        shared.sort_unstable();
        assert_eq!(shared, [0, 1]);
        let stuck = run(Pair::Listens, &|| false).unwrap().unwrap_err().reason;
        assert!(stuck.starts_with("deadlock: "), "{stuck}");
    }

    #[test]
    fn a_model_has_streams() {
        let mut request = Request::new(Opcode::Send, Bytes::new(64));
        request.traffic.transport = Transport::Tcp;
        let spec = CellSpec::ping(request);
        let hardware = Hardware::all().next().unwrap();
        let run = hardware.run(&spec, VirtualLimits::from(&spec), &|| false);
        let reports = run.unwrap().reports.unwrap();
        let measured = reports.iter().flatten().next().unwrap();
        assert!(measured.metrics.one_way_ns.mean.unwrap() > 1e3);
    }

    #[test]
    fn a_run_ends_when_it_is_no_longer_wanted() {
        let looks = Cell::new(0);
        let is_over = || {
            looks.set(looks.get() + 1);
            looks.get() > 2
        };
        assert!(run(Pair::Polls, &is_over).is_none());
    }
}
