//! One word that NICs and CPUs update: how many updates are lost, and what each kind of update costs.
//!
//! Remote clients update the word by FETCH_ADD. Threads of the word's machine update it at the same time, in one of
//! several ways. All of them add 1, so that the word's last value shows how many updates took effect.

use adverb_results::{Word, words};
use adverb_units::{Bytes, Span};
use adverb_verbs::{Access, CpuLoad, LoadWork, NodeChoice, PathOptions, QpType};
use adverb_workload::pattern::{
    Limits, Load, Member, Opcode, Part, Pattern, Places, Tally, Timing,
};
use serde_json::{Value, json};

use crate::RD_ATOMIC;

/// Memory of a member.
const MEMORY: u64 = 4096;
/// The word.
const WORD: Bytes = Bytes::new(8);
/// The machine of the word's owner.
const OWNER: u32 = 1;

/// How threads of the word's machine update it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalUpdates {
    /// They do not.
    None,
    /// By the CPU's atomic instructions.
    Cpu,
    /// By FETCH_ADDs that their own NIC executes (loopback).
    Loopback,
    /// By a load and a store: the updates that this loses show that losses are found.
    Plain,
}

impl LocalUpdates {
    /// All ways.
    pub const ALL: [LocalUpdates; 4] = [
        LocalUpdates::None,
        LocalUpdates::Cpu,
        LocalUpdates::Loopback,
        LocalUpdates::Plain,
    ];
}

words! {
    LocalUpdates { None => "none", Cpu => "cpu", Loopback => "loopback", Plain => "plain" }
}

/// The program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedWord {
    /// How threads of the word's machine update it.
    pub local: LocalUpdates,
    /// Number of these threads.
    pub threads: u32,
    /// Remote clients.
    pub clients: u32,
    /// Outstanding FETCH_ADDs of each client, and of each thread that uses loopback.
    pub outstanding: u32,
    /// Options of the path.
    pub path: PathOptions,
}

impl SharedWord {
    /// Returns the members, and what each does.
    pub fn pattern(&self) -> Pattern {
        let load = Load {
            places: Places::Own(0),
            timing: Timing::Each,
            limits: Limits::of_each_qp(self.outstanding, RD_ATOMIC),
            ..Load::new(Opcode::FetchAdd, 8)
        };
        let access = match self.local {
            LocalUpdates::Cpu => Some(Access::FetchAdd),
            LocalUpdates::Plain => Some(Access::Increment),
            LocalUpdates::None | LocalUpdates::Loopback => None,
        };
        let threads = access.map(|access| CpuLoad {
            threads: self.threads,
            node: NodeChoice::Any,
            work: LoadWork::Buffer {
                bytes: WORD,
                access,
                think: Span::ZERO,
            },
        });
        let loopback = match self.local {
            LocalUpdates::Loopback => self.threads,
            _ => 0,
        };
        let mut pattern = Pattern::new(QpType::Rc);
        pattern.path = self.path;
        let owner = Part::Work(threads.into_iter().collect());
        let owner = pattern.add(OWNER, owner, MEMORY);
        let remote = (0..self.clients).map(|_| 0);
        for machine in remote.chain((0..loopback).map(|_| OWNER)) {
            let client = pattern.add(machine, Part::Request(load.clone()), MEMORY);
            pattern.link(client, owner);
        }
        pattern
    }

    /// Returns the parameters, as records have them.
    pub fn parameters(&self) -> Value {
        json!({
            "local": self.local.word(), "threads": self.threads, "clients": self.clients,
            "outstanding": self.outstanding,
        })
    }
}

/// A word has more updates than there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{updates} updates of a word left the value {value}: some were executed twice")]
pub struct ExtraUpdates {
    updates: u64,
    value: u64,
}

/// Returns what happened to the word of a [`SharedWord`]; `None` for other programs.
///
/// # Errors
/// Updates were executed twice.
pub(crate) fn outcome(
    pattern: &Pattern,
    tallies: &[&Tally],
) -> Result<Option<Value>, ExtraUpdates> {
    let is_other = |member: &Member| match &member.part {
        Part::Request(load) => load.op != Opcode::FetchAdd || load.places != Places::Own(0),
        _ => false,
    };
    if pattern.members.iter().any(is_other) {
        return Ok(None);
    }
    let members = || pattern.members.iter().zip(tallies);
    let found = members().find_map(|(member, tally)| match &member.part {
        Part::Work(threads) => Some((threads, tally, tally.word?)),
        _ => None,
    });
    let Some((threads, owner, value)) = found else {
        return Ok(None);
    };
    let (remote, loopback) = (of_clients(members(), 0), of_clients(members(), OWNER));
    let mut local = loopback;
    if !threads.is_empty() {
        let elapsed = owner.elapsed.as_secs_f64();
        let count: u32 = threads.iter().map(|load| load.threads).sum();
        let accesses = owner.load.accesses;
        let rate = (accesses > 0).then(|| accesses as f64 / elapsed);
        local = Updates {
            executed: accesses,
            rate,
            each_ns: rate.map(|rate| 1e9 * f64::from(count) / rate),
        };
    }
    let updates = remote.executed + local.executed;
    // A model does not execute the accesses of its threads.
    let is_counted = threads.is_empty() || local.executed > 0;
    let lost = updates.checked_sub(value);
    if is_counted && lost.is_none() {
        return Err(ExtraUpdates { updates, value });
    }
    Ok(Some(json!({
        "updates": updates,
        "lost": lost.filter(|_| is_counted),
        "remote": { "updates_per_s": remote.rate, "each_ns": remote.each_ns },
        "local": { "updates_per_s": local.rate, "each_ns": local.each_ns },
    })))
}

/// Updates of one kind.
struct Updates {
    executed: u64,
    rate: Option<f64>,
    /// Mean time of one.
    each_ns: Option<f64>,
}

/// Returns the updates of the clients on a machine.
fn of_clients<'t>(
    members: impl Iterator<Item = (&'t Member, &'t &'t Tally)>,
    machine: u32,
) -> Updates {
    let is_client =
        |member: &Member| member.machine == machine && matches!(member.part, Part::Request(_));
    let clients: Vec<&Tally> = members
        .filter(|(member, _)| is_client(member))
        .map(|(_, tally)| *tally)
        .collect();
    let rate: f64 = clients.iter().filter_map(|tally| tally.per_second()).sum();
    let waits = clients.iter().filter_map(|tally| tally.waits.as_ref());
    let waits = adverb_results::LatencyRecorder::merged(waits);
    Updates {
        executed: clients.iter().map(|tally| tally.executed).sum(),
        rate: Some(rate).filter(|rate| *rate > 0.0),
        each_ns: waits.and_then(|waits| waits.mean_ns()),
    }
}

#[cfg(test)]
mod tests {
    use adverb_verbs::LoadTally;

    use super::*;

    fn program(local: LocalUpdates) -> Pattern {
        let program = SharedWord {
            local,
            threads: 2,
            clients: 3,
            outstanding: 4,
            path: PathOptions::default(),
        };
        program.pattern()
    }

    /// Returns the outcome of 10 updates by each client, `accesses` by threads, and this last value.
    fn of(local: LocalUpdates, accesses: u64, value: u64) -> Result<Value, ExtraUpdates> {
        let pattern = program(local);
        let tally = |member: &Member| match member.part {
            Part::Request(_) => Tally {
                executed: 10,
                ..Tally::default()
            },
            _ => Tally {
                word: Some(value),
                load: LoadTally {
                    accesses,
                    ..LoadTally::default()
                },
                ..Tally::default()
            },
        };
        let tallies: Vec<Tally> = pattern.members.iter().map(tally).collect();
        let tallies: Vec<&Tally> = tallies.iter().collect();
        outcome(&pattern, &tallies).map(Option::unwrap)
    }

    #[test]
    fn threads_that_use_loopback_are_clients_on_the_owners_machine() {
        let machines = |local| -> Vec<u32> {
            let members = program(local).members;
            members.iter().map(|member| member.machine).collect()
        };
        assert_eq!(machines(LocalUpdates::Loopback), [1, 0, 0, 0, 1, 1]);
        assert_eq!(machines(LocalUpdates::Cpu), [1, 0, 0, 0]);
    }

    #[test]
    fn lost_updates_are_those_that_the_last_value_lacks() {
        let lost = |local, accesses, value| of(local, accesses, value).unwrap()["lost"].clone();
        assert_eq!(lost(LocalUpdates::None, 0, 30), 0);
        assert_eq!(lost(LocalUpdates::Cpu, 100, 127), 3);
        assert_eq!(lost(LocalUpdates::Loopback, 0, 50), 0);
        assert!(of(LocalUpdates::Cpu, 100, 131).is_err());
    }

    #[test]
    fn a_model_cannot_tell_what_threads_lose() {
        assert_eq!(of(LocalUpdates::Cpu, 0, 30).unwrap()["lost"], Value::Null);
    }
}
