//! One type for all programs, for launchers, processes and remote agents.

use adverb_results::Opcode;
use adverb_units::{Bytes, Time};
use adverb_verbs::{
    DeviceCaps, Impairment, MemoryTimes, NodeChoice, PathOptions, QpType, RoleId, Station,
};
use adverb_workload::connect::{Connect, ConnectTally, run_connect};
use adverb_workload::multicast::{Multicast, MulticastTally, run_multicast};
use adverb_workload::pair::{CellResult, CellSpec, SpecError, check_atomics};
use adverb_workload::pattern::{Part, Pattern, PatternError, Schedule, Tally, run};
use adverb_workload::{Cause, HardwareChanges, Program, Role, RoleError, RoleLoad};
use serde::{Deserialize, Serialize};

use crate::echo::{Echo, EchoBy, run_echo};
use crate::nodes::Nodes;
use crate::onesided::{OneSided, run_onesided};
use crate::rpc::seats::Seats;
use crate::rpc::{Counter, Rpc, RpcPart, run_rpc};
use crate::store::{Store, run_store};
use crate::tally::ServiceTally;
use crate::wan::{Wan, WanTally, run_wan};

/// Any program, with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// `ping` or `blast`.
    Pair(CellSpec),
    /// Members that post requests to one another, such as `closed-loop`.
    Pattern(Pattern, Schedule),
    /// A server by RPC, with its clients.
    Rpc(Rpc, Schedule),
    /// A server that answers requests in one of several ways, with its clients.
    Echo(Echo, Schedule),
    /// Memory that clients use by one-sided operations.
    OneSided(OneSided, Schedule),
    /// Connections that are set up, used and broken down.
    Connect(Connect),
    /// A publisher and its subscribers.
    Multicast(Multicast),
    /// A program of the study of RDMA in a WAN.
    Wan(Wan),
    /// A store and its clients.
    Store(Store),
    /// Memory and caches between NUMA nodes.
    Nodes(Nodes),
}

impl Job {
    /// Returns the options of the path between its queue pairs.
    pub fn path(&self) -> &PathOptions {
        match self {
            Job::Pair(cell) => &cell.params.path,
            Job::Pattern(pattern, _) => &pattern.path,
            Job::Rpc(rpc, _) => &rpc.path,
            Job::Echo(echo, _) => &echo.path,
            Job::OneSided(program, _) => &program.path,
            Job::Connect(connect) => &connect.path,
            Job::Multicast(multicast) => &multicast.path,
            Job::Wan(wan) => &wan.path,
            Job::Store(store) => &store.path,
            Job::Nodes(nodes) => &nodes.path,
        }
    }

    /// Returns the options of the path between its queue pairs, to change them.
    pub fn path_mut(&mut self) -> &mut PathOptions {
        match self {
            Job::Pair(cell) => &mut cell.params.path,
            Job::Pattern(pattern, _) => &mut pattern.path,
            Job::Rpc(rpc, _) => &mut rpc.path,
            Job::Echo(echo, _) => &mut echo.path,
            Job::OneSided(program, _) => &mut program.path,
            Job::Connect(connect) => &mut connect.path,
            Job::Multicast(multicast) => &mut multicast.path,
            Job::Wan(wan) => &mut wan.path,
            Job::Store(store) => &mut store.path,
            Job::Nodes(nodes) => &mut nodes.path,
        }
    }

    /// Whether its roles use other queue pairs than RC. Multicast refuses devices without them itself.
    pub fn needs_all_transports(&self) -> bool {
        match self {
            Job::Pattern(pattern, _) => {
                let mut members = pattern.members.iter();
                members.any(|member| member.transport != QpType::Rc)
            }
            Job::Echo(echo, _) => echo.transport != QpType::Rc,
            Job::Rpc(..) => true,
            _ => false,
        }
    }

    /// Whether its roles use connected queue pairs.
    pub fn is_connected(&self) -> bool {
        !matches!(self, Job::Multicast(_) | Job::Nodes(_))
    }
}

/// What a role of a [`Job`] returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobReport {
    /// The active side's result; `None` from the passive side.
    Pair(Option<Box<CellResult>>),
    /// Results of a member of a pattern.
    Member(Tally),
    /// Results of a server core, an owner, a store or a client.
    Service(ServiceTally),
    /// Times of a role of `connect`.
    Connect(ConnectTally),
    /// Counts of a publisher or a subscriber.
    Multicast(MulticastTally),
    /// Times of a role of a program of the study of RDMA in a WAN.
    Wan(WanTally),
    /// Times of memory and caches.
    Nodes(MemoryTimes),
}

impl JobReport {
    /// Returns begin and end of the measured time on the clock of the role's host, if the role has one.
    pub fn window(&self) -> Option<[Time; 2]> {
        match self {
            JobReport::Member(tally) => tally.window,
            JobReport::Service(tally) => tally.window,
            _ => None,
        }
    }
}

impl Program for Job {
    const ID: &'static str = "job";

    type Report = JobReport;

    /// Numbers that a sequencer hands out.
    type Shared = Counter;

    fn roles(&self) -> Vec<Role> {
        match self {
            Job::Pair(cell) => cell.roles(),
            Job::Pattern(pattern, _) => pattern_roles(pattern),
            Job::Rpc(rpc, _) => served_roles(rpc.seats(), RoleLoad::Busy),
            Job::Echo(echo, _) if echo.by == EchoBy::Read => {
                served_roles(echo.seats(), RoleLoad::Idle)
            }
            Job::Echo(echo, _) => served_roles(echo.seats(), RoleLoad::Busy),
            Job::OneSided(program, _) => onesided_roles(program),
            Job::Connect(connect) => connect.roles(),
            Job::Multicast(multicast) => multicast.roles(),
            Job::Wan(wan) => wan.roles(),
            Job::Store(store) => store_roles(store),
            Job::Nodes(_) => Nodes::roles(),
        }
    }

    fn run<S: Station>(
        &self,
        station: &S,
        role: RoleId,
        counter: &Counter,
    ) -> Result<JobReport, RoleError> {
        let ran = match self {
            Job::Pair(cell) => {
                return Ok(JobReport::Pair(cell.run(station, role, &())?.map(Box::new)));
            }
            Job::Nodes(nodes) => {
                let times = station.memory_times(nodes.cpu_node, nodes.memory_node);
                return times.map(JobReport::Nodes).map_err(|error| RoleError {
                    reason: error.0,
                    cause: Cause::Own,
                });
            }
            Job::Pattern(pattern, schedule) => {
                run(station, pattern, role, *schedule).map(JobReport::Member)
            }
            Job::Rpc(rpc, schedule) => {
                run_rpc(station, rpc, role, counter, *schedule).map(JobReport::Service)
            }
            Job::Echo(echo, schedule) => {
                run_echo(station, echo, role, counter, *schedule).map(JobReport::Service)
            }
            Job::OneSided(program, schedule) => {
                run_onesided(station, program, role, *schedule).map(JobReport::Service)
            }
            Job::Connect(connect) => run_connect(station, connect, role).map(JobReport::Connect),
            Job::Multicast(multicast) => {
                run_multicast(station, multicast, role).map(JobReport::Multicast)
            }
            Job::Wan(wan) => run_wan(station, wan, role).map(JobReport::Wan),
            Job::Store(store) => run_store(station, store, role).map(JobReport::Service),
        };
        ran.map_err(|error: PatternError| {
            let name = self.roles().into_iter().nth(role.0 as usize);
            error.of_role(&name.map_or_else(|| role.to_string(), |role| role.name))
        })
    }

    fn check(&self, caps: &DeviceCaps) -> Result<(), String> {
        let checked = match self {
            Job::Pair(cell) => return Program::check(cell, caps),
            Job::Pattern(pattern, _) => return check_pattern(pattern, caps),
            Job::Rpc(rpc, _) => {
                let instead = "operations on the server's memory (--by atomics, --by memory)";
                check_retransmission(&rpc.path, instead)?;
                rpc.check()
            }
            Job::Echo(echo, _) => {
                if echo.transport != QpType::Rc {
                    check_retransmission(&echo.path, "--transport rc")?;
                }
                echo.check(caps)
            }
            Job::OneSided(program, _) => {
                if program.needs_atomics() {
                    check_atomics(Opcode::FetchAdd, caps).map_err(|e| e.to_string())?;
                }
                program.check()
            }
            Job::Store(store) => store.check(),
            Job::Connect(connect) => return connect.check(caps),
            Job::Multicast(multicast) => return multicast.check(caps),
            Job::Wan(wan) => return wan.check(caps),
            Job::Nodes(_) => return Ok(()),
        };
        checked.map_err(|error| error.to_string())
    }

    fn memory(&self, role: RoleId) -> Bytes {
        match self {
            Job::Pair(cell) => cell.memory(role),
            Job::Pattern(pattern, _) => pattern.memory(role),
            Job::Rpc(rpc, _) => rpc.memory(role),
            Job::Echo(echo, _) => echo.memory(role),
            Job::OneSided(program, _) => program.memory(role),
            Job::Connect(connect) => connect.memory(role),
            Job::Multicast(multicast) => multicast.memory(role),
            Job::Wan(wan) => wan.memory(role),
            Job::Store(store) => store.memory(role),
            Job::Nodes(_) => Bytes::new(0),
        }
    }

    fn impairment(&self) -> Option<Impairment> {
        self.path().injected()
    }

    fn memory_node(&self, host: u32) -> NodeChoice {
        match self {
            Job::Pattern(pattern, _) => pattern.memory_node(host),
            Job::Store(store) => store.memory_node(host),
            _ => NodeChoice::Any,
        }
    }

    fn hardware(&self) -> HardwareChanges {
        match self {
            Job::Pattern(pattern, _) => pattern.hardware,
            _ => HardwareChanges::default(),
        }
    }

    fn is_stream(&self) -> bool {
        match self {
            Job::Pair(cell) => cell.is_stream(),
            Job::Connect(connect) => connect.is_stream(),
            Job::Wan(wan) => wan.is_stream(),
            Job::Echo(echo, _) => echo.by == EchoBy::Tcp,
            _ => false,
        }
    }

    fn refuses_manager(&self) -> Option<&'static str> {
        match self {
            // Multicast joins its groups through it.
            Job::Pair(_) | Job::Connect(_) | Job::Multicast(_) | Job::Nodes(_) => None,
            Job::Pattern(..) | Job::Echo(..) | Job::OneSided(..) | Job::Wan(_) | Job::Store(_) => {
                Some("its queue pairs are connected by hand")
            }
            Job::Rpc(..) => Some("its queue pairs are UC and UD"),
        }
    }

    /// Clients run where the program is started, a server on the first other host.
    fn home(&self) -> u32 {
        match self {
            Job::Pair(_) | Job::Connect(_) | Job::Nodes(_) => 0,
            Job::Pattern(pattern, _) => pattern.home(),
            Job::Store(store) => u32::from(store.server.is_none()),
            Job::Rpc(..) | Job::Echo(..) | Job::OneSided(..) => 1,
            Job::Multicast(multicast) => multicast.home,
            Job::Wan(wan) => wan.home(),
        }
    }
}

/// Returns the option of a path that UC and UD queue pairs do not support, because they send nothing again.
pub fn needs_retransmission(path: &PathOptions) -> Option<String> {
    let faults = path.impairment.filter(|faults| !faults.is_none());
    match (path.ack_timeout, path.retries, faults) {
        (Some(timeout), ..) => Some(format!("--timeout {timeout}")),
        (_, Some(retries), _) => Some(format!("--retries {}", retries.get())),
        (.., faults) => faults.map(|faults| faults.to_string()),
    }
}

/// Refuses options that need retransmissions; says what to choose instead.
fn check_retransmission(path: &PathOptions, instead: &str) -> Result<(), String> {
    match needs_retransmission(path) {
        None => Ok(()),
        Some(refused) => Err(format!(
            "{refused}: requests and answers of an RPC are sent by UC and UD queue pairs, which send nothing again; leave it out, or choose {instead}"
        )),
    }
}

/// Refuses atomic operations that the device lacks, inline data beyond its maximum, and members whose memory exceeds a region.
fn check_pattern(pattern: &Pattern, caps: &DeviceCaps) -> Result<(), String> {
    let max = Bytes::new(caps.max_inline_data.into());
    for member in &pattern.members {
        if let Part::Request(load) | Part::Strand(load) = &member.part {
            let size = Bytes::new(load.size.into());
            if load.inline && size > max {
                return Err(SpecError::Inline { size, max }.to_string());
            }
            check_atomics(load.op, caps).map_err(|e| e.to_string())?;
        }
    }
    let largest = pattern.members.iter().map(|member| member.memory).max();
    match largest.filter(|bytes| *bytes > caps.max_mr_size.get()) {
        Some(bytes) => Err(format!(
            "{} of memory of a member exceeds the largest region of {}; use less",
            Bytes::new(bytes),
            caps.max_mr_size
        )),
        None => Ok(()),
    }
}

fn pattern_roles(pattern: &Pattern) -> Vec<Role> {
    let members = pattern.members.iter().zip(0..);
    let roles = members.map(|(member, number)| {
        let (name, load) = match member.part {
            Part::Request(_) => ("requester", RoleLoad::Busy),
            Part::Receive { .. } => ("receiver", RoleLoad::Busy),
            Part::Compute(_) => ("computer", RoleLoad::Busy),
            Part::Churn { .. } => ("registrar", RoleLoad::Busy),
            Part::Strand(_) => ("sender", RoleLoad::Idle),
            Part::Serve => ("server", RoleLoad::Idle),
            Part::Work(ref loads) if loads.is_empty() => ("server", RoleLoad::Idle),
            Part::Work(_) => ("server", RoleLoad::Busy),
            Part::Count => ("counter", RoleLoad::Idle),
        };
        Role {
            name: format!("{name} {number}"),
            host: member.machine,
            process: number,
            load,
        }
    });
    roles.collect()
}

/// Returns the roles of server cores, with their load, and of their clients. The cores are threads of one process, because
/// the cores of a sequencer share the counter.
fn served_roles(seats: Seats, cores: RoleLoad) -> Vec<Role> {
    let roles = (0..seats.members()).map(|number| {
        let role = RoleId(number);
        let (name, process, load) = match seats.part(role) {
            RpcPart::Core(core) => (format!("server core {core}"), 0, cores),
            RpcPart::Client(client) => (format!("client {client}"), 1 + client, RoleLoad::Busy),
        };
        Role {
            name,
            host: seats.machine(role),
            process,
            load,
        }
    });
    roles.collect()
}

fn onesided_roles(program: &OneSided) -> Vec<Role> {
    let owners = program.owners();
    let roles = (0..program.members()).map(|number| {
        let role = RoleId(number);
        let (name, load) = match program.owner(role) {
            None if program.serves() => (format!("server core {number}"), RoleLoad::Busy),
            None => (format!("owner {number}"), RoleLoad::Idle),
            Some(_) => (format!("client {}", number - owners), RoleLoad::Busy),
        };
        Role {
            name,
            host: program.machine(role),
            process: number,
            load,
        }
    });
    roles.collect()
}

fn store_roles(store: &Store) -> Vec<Role> {
    let roles = (0..store.members()).map(|number| Role {
        name: match store.client(RoleId(number)) {
            None if store.workers == 1 => "server".to_owned(),
            None => format!("server worker {number}"),
            Some(client) => format!("client {client}"),
        },
        host: store.machine(RoleId(number)),
        process: number,
        load: RoleLoad::Busy,
    });
    roles.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_units::Bytes;
    use adverb_workload::pattern::{Load, Opcode, Outbound, Transport};

    fn closed_loop(peers: u32) -> Job {
        let shape = Outbound {
            cores: 2,
            qps: 2,
            peers,
            memory: 4096,
        };
        let load = Load::new(Opcode::Read, 8);
        let pattern = Pattern::outbound(Transport::Rc, &load, shape);
        let span = adverb_units::Span::from_ms(1);
        let schedule = Schedule {
            warm_up: span,
            measured: span,
        };
        Job::Pattern(pattern, schedule)
    }

    #[test]
    fn a_job_survives_the_way_to_another_process() {
        let request = adverb_workload::pair::Request::new(Opcode::Read, Bytes::new(8));
        for job in [closed_loop(1), Job::Pair(CellSpec::ping(request))] {
            let json = serde_json::to_string(&job).unwrap();
            assert_eq!(serde_json::from_str::<Job>(&json).unwrap(), job);
        }
    }

    #[test]
    fn requesters_are_at_home_and_servers_on_other_hosts() {
        let job = closed_loop(2);
        let hosts: Vec<u32> = job.roles().iter().map(|role| role.host).collect();
        assert_eq!(hosts, [0, 0, 1, 2]);
        assert_eq!((job.hosts(), job.home()), (3, 0));
    }
}
