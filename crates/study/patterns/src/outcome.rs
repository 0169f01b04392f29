//! Checks the reports of a program's roles and converts them to the metrics of its record.

use std::collections::HashMap;

use adverb_results::{CpuShare, LatencyRecorder, Values};
use adverb_units::{CpuTime, Span};
use adverb_verbs::WordCount;
use adverb_workload::connect::{Connect, ConnectTally};
use adverb_workload::multicast::{Multicast, MulticastTally};
use adverb_workload::pair::CellResult;
use adverb_workload::pattern::{Part, Pattern, Tally};
use serde_json::{Value, json};

use crate::checked::NumberSet;
use crate::echo::{Echo, Reply};
use crate::job::{Job, JobReport};
use crate::nodes;
use crate::onesided::{OneSided, Puts, Remote};
use crate::rpc::{Rpc, Service};
use crate::store::Store;
use crate::sync::{self, ExtraUpdates};
use crate::tally::ServiceTally;

/// Metrics of a run, and of each of its roles.
pub struct Outcome {
    /// Metrics of the run.
    pub metrics: Values,
    /// Results of each role.
    pub roles: Vec<RoleOutcome>,
}

/// Results of a role.
#[derive(Default)]
pub struct RoleOutcome {
    /// CPU use of the role.
    pub cpu: CpuShare,
    /// Metrics of the role.
    pub metrics: Values,
}

/// A run has no valid outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutcomeError {
    /// A sequencer handed out wrong numbers.
    #[error("a number was handed out twice or never, among {0}")]
    Numbers(u64),
    /// Clients and the items in memory disagree.
    #[error("clients changed items {done} times, but memory contains {found} changes")]
    Changes {
        /// Changes by clients.
        done: u64,
        /// Changes found in memory.
        found: u64,
    },
    /// NICs executed updates of a word twice.
    #[error(transparent)]
    Updates(#[from] ExtraUpdates),
    /// A role reported no result.
    #[error("a role reported no result")]
    NoResult,
}

/// The counts of a role of any program.
struct Done<'r> {
    requests: u64,
    requests_first: f64,
    per_second: Option<f64>,
    elapsed: Span,
    waits: Option<&'r LatencyRecorder>,
    cpu: (CpuTime, Span),
    memory_node: Option<u32>,
}

impl<'r> Done<'r> {
    fn of_all(tallies: &[&'r ServiceTally]) -> Vec<Self> {
        let done = tallies.iter().map(|tally| Done {
            requests: tally.requests,
            requests_first: tally.requests_first,
            per_second: tally.per_second(),
            elapsed: tally.elapsed,
            waits: tally.waits.as_ref(),
            cpu: (tally.cpu, tally.cpu_over),
            memory_node: tally.memory_node,
        });
        done.collect()
    }

    fn of_member(tally: &'r Tally) -> Self {
        Done {
            requests: tally.completed,
            requests_first: tally.completed_first,
            per_second: tally.per_second(),
            elapsed: tally.elapsed,
            waits: tally.waits.as_ref(),
            cpu: (tally.cpu, tally.cpu_over),
            memory_node: tally.memory_node,
        }
    }

    fn role(&self) -> RoleOutcome {
        let mut metrics = Values::new();
        metrics.insert("requests".to_owned(), self.requests.into());
        if let Some(waits) = self.waits {
            metrics.insert("latency_ns".to_owned(), latency(waits));
        }
        if let Some(node) = self.memory_node {
            metrics.insert("memory_node".to_owned(), node.into());
        }
        RoleOutcome {
            cpu: CpuShare::of(self.cpu.0, self.cpu.1),
            metrics,
        }
    }
}

/// Returns percentiles and mean.
pub(crate) fn latency(waits: &LatencyRecorder) -> Value {
    let mut latency = waits.percentiles();
    latency.mean = waits.mean_ns();
    serde_json::to_value(latency).unwrap_or(Value::Null)
}

impl Job {
    /// Checks the reports of the roles of this program and returns its metrics.
    ///
    /// # Errors
    /// A check failed: the program returned wrong results.
    pub fn outcome(&self, reports: &[JobReport]) -> Result<Outcome, OutcomeError> {
        /// The reports of this kind.
        macro_rules! tallies {
            ($kind:ident) => {{
                let of_kind = reports.iter().filter_map(|report| match report {
                    JobReport::$kind(tally) => Some(tally),
                    _ => None,
                });
                of_kind.collect::<Vec<_>>()
            }};
        }
        match self {
            Job::Rpc(rpc, _) => served(rpc, &tallies!(Service)),
            Job::Echo(echo, _) => echoed(echo, &tallies!(Service)),
            Job::OneSided(program, _) => onesided(program, &tallies!(Service)),
            Job::Store(store) => Ok(stored(store, &tallies!(Service))),
            Job::Pattern(pattern, _) => pattern_outcome(pattern, &tallies!(Member)),
            Job::Connect(connect) => Ok(connected(connect, &tallies!(Connect))),
            Job::Multicast(multicast) => Ok(published(multicast, &tallies!(Multicast))),
            Job::Wan(wan) => Ok(wan.outcome(&tallies!(Wan))),
            Job::Nodes(_) => {
                let times = tallies!(Nodes).pop();
                times.map(nodes::outcome).ok_or(OutcomeError::NoResult)
            }
            Job::Pair(_) => {
                let result = reports.iter().find_map(|report| match report {
                    JobReport::Pair(result) => result.as_deref(),
                    _ => None,
                });
                result.map(paired).ok_or(OutcomeError::NoResult)
            }
        }
    }
}

/// Returns the figures of `ping` or `blast`.
fn paired(result: &CellResult) -> Outcome {
    let metrics = serde_json::to_value(&result.metrics).unwrap_or_default();
    let cpu = result.metrics.cpu;
    let role = |cpu| RoleOutcome {
        cpu,
        metrics: Values::new(),
    };
    Outcome {
        metrics: metrics.as_object().cloned().unwrap_or_default(),
        roles: [cpu.active, cpu.passive].map(role).into(),
    }
}

/// Returns what was sent, what arrived at all subscribers together, and the counts of each.
fn published(multicast: &Multicast, tallies: &[&MulticastTally]) -> Outcome {
    let (publisher, subscribers) = tallies.split_first().expect("a publisher");
    let per_second = |tally: &MulticastTally| {
        let elapsed = tally.elapsed.as_secs_f64();
        // From the first message to the last one there is an interval less than messages. A publisher that does not wait
        // between them measures their cost instead, which the last one has, too.
        let is_first_to_last = tally.join.is_some() || multicast.interval.is_some();
        let messages = tally.messages.saturating_sub(u64::from(is_first_to_last));
        (elapsed > 0.0).then(|| messages as f64 / elapsed)
    };
    let percent = |lost: u64, received: u64| {
        let all = lost + received;
        (all > 0).then(|| 100.0 * lost as f64 / all as f64)
    };
    let sum = |count: fn(&MulticastTally) -> u64| -> u64 {
        subscribers.iter().map(|tally| count(tally)).sum()
    };
    let (received, lost) = (sum(|tally| tally.messages), sum(|tally| tally.lost));
    let rate = per_second(publisher);
    let metrics = json!({
        "messages": publisher.messages,
        "messages_per_s": rate,
        "bytes_per_s": rate.map(|rate| rate * multicast.size.get() as f64),
        "received": received,
        "lost": lost,
        "lost_percent": percent(lost, received),
        "away": sum(|tally| tally.away),
        "elapsed_ns": publisher.elapsed.as_ns_f64(),
    });
    let role = |tally: &&MulticastTally| {
        let mut all = json!({ "messages": tally.messages, "messages_per_s": per_second(tally) });
        if let Some(join) = tally.join {
            all["lost"] = tally.lost.into();
            all["lost_percent"] = percent(tally.lost, tally.messages).into();
            all["away"] = tally.away.into();
            all["reordered"] = tally.reordered.into();
            all["duplicates"] = tally.duplicates.into();
            all["foreign"] = tally.foreign.into();
            all["join_ns"] = join.as_ns_f64().into();
        }
        RoleOutcome {
            cpu: CpuShare::of(tally.cpu, tally.cpu_over),
            metrics: all.as_object().cloned().unwrap_or_default(),
        }
    };
    Outcome {
        metrics: metrics.as_object().cloned().unwrap_or_default(),
        roles: tallies.iter().map(role).collect(),
    }
}

/// Returns the times of the active role's steps, and of all passive roles' steps together.
fn connected(connect: &Connect, tallies: &[&ConnectTally]) -> Outcome {
    let mut passive = ConnectTally::default();
    let (active, others) = tallies.split_first().expect("an active role");
    others.iter().for_each(|tally| passive.add(tally));
    let setup = active.setup.as_secs_f64();
    let mut metrics = json!({
        "connections": connect.connections,
        "connections_per_s": (setup > 0.0).then(|| f64::from(connect.connections) / setup),
        "active": steps(active),
        "passive": steps(&passive),
        "elapsed_ns": active.setup.as_ns_f64(),
    });
    if let Err(why) = &active.calls {
        metrics["system_calls_not_counted"] = json!(why);
    }
    let role = |tally: &&ConnectTally| RoleOutcome {
        cpu: CpuShare::of(tally.cpu, tally.cpu_over),
        metrics: steps(tally),
    };
    Outcome {
        metrics: metrics.as_object().cloned().unwrap_or_default(),
        roles: tallies.iter().map(role).collect(),
    }
}

/// Returns the times of the steps that took any, by name, with the mean number of system calls of each.
fn steps(tally: &ConnectTally) -> Values {
    let calls = tally.calls.iter().flatten();
    let calls: HashMap<_, _> = calls.map(|(step, calls)| (step.name(), *calls)).collect();
    let named = tally.steps.iter().map(|(step, times)| {
        let mut values = latency(times);
        if let Some(calls) = calls.get(step.name()) {
            values["system_calls"] = calls.mean().into();
        }
        (step.name().to_owned(), values)
    });
    named.collect()
}

fn served(rpc: &Rpc, tallies: &[&ServiceTally]) -> Result<Outcome, OutcomeError> {
    let (cores, clients) = tallies.split_at(rpc.serving.cores as usize);
    let answers: u64 = cores.iter().map(|core| core.requests).sum();
    let posts = cores
        .iter()
        .filter_map(|core| Some(core.requests as f64 / core.batch?));
    let posts: f64 = posts.sum();
    let checked = match rpc.service {
        Service::Sequencer(_) => {
            let handed_out = cores.iter().map(|core| core.handed_out).max();
            numbers(clients, handed_out)?
        }
        Service::Store(_) => values(clients),
    };
    // The cores limit the rate, so it is counted there.
    let rate = cores.iter().filter_map(|core| core.per_second()).sum();
    let batch_mean = (posts > 0.0).then(|| answers as f64 / posts);
    let seen = Done::of_all(clients);
    let roles = Done::of_all(tallies).iter().map(Done::role).collect();
    Ok(Outcome {
        metrics: metrics(&seen, rate, batch_mean, &checked),
        roles,
    })
}

/// Returns the rate as the clients count it, because a server that they READ from counts nothing.
fn echoed(echo: &Echo, tallies: &[&ServiceTally]) -> Result<Outcome, OutcomeError> {
    let (cores, clients) = tallies.split_at(echo.cores as usize);
    let seen = Done::of_all(clients);
    let rates = seen.iter().map(|done| done.per_second.unwrap_or(0.0));
    let checked = match echo.content {
        Reply::Number => {
            let handed_out = cores.iter().map(|core| core.handed_out).max();
            numbers(clients, handed_out)?
        }
        Reply::Digest => {
            let replies: u64 = clients.iter().map(|tally| tally.values_checked).sum();
            json!({ "replies": replies })
        }
    };
    let roles: Vec<_> = Done::of_all(tallies).iter().map(Done::role).collect();
    let cpu =
        |roles: &[RoleOutcome]| -> Option<f64> { roles.iter().map(|role| role.cpu.percent).sum() };
    let mut metrics = metrics(&seen, rates.sum(), None, &checked);
    let (server, client) = roles.split_at(cores.len());
    let more = json!({
        "client_cpu_percent": cpu(client).map(|sum| sum / client.len() as f64),
        "server_cpu_percent": cpu(server),
    });
    metrics.extend(more.as_object().cloned().unwrap_or_default());
    Ok(Outcome { metrics, roles })
}

fn onesided(program: &OneSided, tallies: &[&ServiceTally]) -> Result<Outcome, OutcomeError> {
    let (owners, clients) = tallies.split_at(program.owners() as usize);
    let checked = match &program.remote {
        Remote::Counter => numbers(clients, None)?,
        Remote::Items(items) => changes(owners, clients, items.puts)?,
    };
    let seen = Done::of_all(clients);
    let rate = seen.iter().filter_map(|done| done.per_second).sum();
    let roles = Done::of_all(tallies).iter().map(Done::role).collect();
    Ok(Outcome {
        metrics: metrics(&seen, rate, None, &checked),
        roles,
    })
}

fn stored(store: &Store, tallies: &[&ServiceTally]) -> Outcome {
    let (servers, clients) = tallies.split_at(tallies.len() - store.clients as usize);
    let seen = Done::of_all(clients);
    let rate = seen.iter().filter_map(|done| done.per_second).sum();
    let roles = Done::of_all(tallies).iter().map(Done::role).collect();
    let mut metrics = metrics(&seen, rate, None, &values(clients));
    let misses: u64 = clients.iter().map(|tally| tally.misses).sum();
    metrics.insert("misses".to_owned(), misses.into());
    if !servers.is_empty() {
        let evicted: u64 = servers.iter().map(|server| server.evicted).sum();
        metrics.insert("evicted".to_owned(), evicted.into());
        add_accesses(
            &mut metrics,
            servers.iter().map(|server| server.load_accesses).sum(),
        );
    }
    Outcome { metrics, roles }
}

fn pattern_outcome(pattern: &Pattern, tallies: &[&Tally]) -> Result<Outcome, OutcomeError> {
    let members = pattern.members.iter().zip(tallies);
    let requesters = members.filter(|(member, _)| matches!(member.part, Part::Request(_)));
    let seen: Vec<_> = requesters
        .map(|(_, tally)| Done::of_member(tally))
        .collect();
    let rate = seen.iter().filter_map(|done| done.per_second).sum();
    let (mut accesses, mut words) = (0, WordCount::default());
    for tally in tallies {
        accesses += tally.load.accesses;
        words.add(tally.load.words);
        words.add(tally.words);
    }
    let mut metrics = metrics(&seen, rate, None, &json!({}));
    add_accesses(&mut metrics, accesses);
    if words.checked > 0 {
        metrics.insert("words_checked".to_owned(), words.checked.into());
        metrics.insert("words_torn".to_owned(), words.torn.into());
    }
    if let Some(word) = sync::outcome(pattern, tallies)? {
        metrics.insert("word".to_owned(), word);
    }
    let role = |tally: &&Tally| Done::of_member(tally).role();
    Ok(Outcome {
        metrics,
        roles: tallies.iter().map(role).collect(),
    })
}

/// Adds the accesses of the threads that load a machine, if there are any.
fn add_accesses(metrics: &mut Values, accesses: u64) {
    if accesses > 0 {
        metrics.insert("load_accesses".to_owned(), accesses.into());
    }
}

/// Returns the metrics over all clients.
fn metrics(clients: &[Done<'_>], rate: f64, batch_mean: Option<f64>, checked: &Value) -> Values {
    let requests: u64 = clients.iter().map(|done| done.requests).sum();
    let first: f64 = clients.iter().map(|done| done.requests_first).sum();
    let elapsed = clients.iter().map(|done| done.elapsed).max();
    let elapsed = elapsed.unwrap_or_default().as_ns_f64();
    let waits = LatencyRecorder::merged(clients.iter().filter_map(|done| done.waits));
    let waits = waits.filter(|waits| !waits.is_empty());
    let rate = Some(rate).filter(|rate| *rate > 0.0);
    // None of a run without requests.
    let rates = clients.iter().filter(|_| rate.is_some());
    let rates = rates.map(|done| done.per_second.unwrap_or(0.0));
    let all = json!({
        "requests": requests,
        "requests_per_s": rate,
        "drift_percent": (first > 0.0).then(|| 100.0 * (requests as f64 / first - 2.0)),
        "client_least_per_s": rates.clone().reduce(f64::min),
        "client_most_per_s": rates.reduce(f64::max),
        "batch_mean": batch_mean,
        "latency_ns": waits.as_ref().map(latency),
        "elapsed_ns": elapsed,
        "checked": checked,
        "repetitions": [{
            "requests": requests,
            "elapsed_ns": elapsed,
            "requests_per_s": rate,
            "latency_ns": waits.as_ref().and_then(LatencyRecorder::mean_ns),
        }],
        "histogram": waits.as_ref().map(|waits| waits.to_histogram(every(requests, waits))),
    });
    all.as_object().cloned().unwrap_or_default()
}

/// Returns k, if on average one request in k was timed.
fn every(requests: u64, waits: &LatencyRecorder) -> u64 {
    let every = requests as f64 / waits.len().max(1) as f64;
    every.round().max(1.0) as u64
}

/// Returns the numbers, if each was handed out exactly once.
fn numbers(clients: &[&ServiceTally], handed_out: Option<u64>) -> Result<Value, OutcomeError> {
    let mut all = NumberSet::default();
    clients.iter().for_each(|tally| all.merge(tally.handed));
    if handed_out.is_some_and(|count| count != all.count) || !all.is_exactly_once_from(0) {
        return Err(OutcomeError::Numbers(all.count));
    }
    Ok(json!({ "numbers": all.count }))
}

fn values(clients: &[&ServiceTally]) -> Value {
    let values: u64 = clients.iter().map(|tally| tally.values_checked).sum();
    json!({ "values": values })
}

/// Returns the checked values and changes of items, if clients and memory agree.
fn changes(
    owners: &[&ServiceTally],
    clients: &[&ServiceTally],
    puts: Puts,
) -> Result<Value, OutcomeError> {
    let count = |tallies: &[&ServiceTally]| tallies.iter().map(|tally| tally.locked).sum::<u64>();
    let (done, found) = (count(clients), count(owners));
    if done != found {
        return Err(OutcomeError::Changes { done, found });
    }
    let mut checked = values(clients);
    if done > 0 {
        let name = match puts {
            Puts::Lock => "locks",
            Puts::Ask { .. } => "puts",
        };
        checked[name] = done.into();
    }
    Ok(checked)
}
