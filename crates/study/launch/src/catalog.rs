//! The programs that a process can run. Other processes and hosts name a program by id and parameters.

use std::any::Any;
use std::sync::Arc;

use adverb_results::Impairment;
use adverb_units::CpuTime;
use adverb_verbs::{self as verbs, Counters, DeviceCaps, RoleId, Station};
use adverb_workload::{Cause, Program, Role, RoleError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The programs of an executable.
#[derive(Debug)]
pub struct Catalog {
    /// Version of the executable, for the other end of a connection.
    pub version: &'static str,
    /// Its programs.
    pub programs: &'static [Entry],
}

/// A program type.
#[derive(Debug)]
pub struct Entry {
    id: &'static str,
    read: fn(&Value) -> Result<Arc<dyn AnyProgram>, String>,
}

impl Entry {
    /// Program type `P`.
    pub const fn of<P: Program>() -> Self {
        Entry {
            id: P::ID,
            read: |params| match read_value::<P>(params) {
                Ok(program) => Ok(Arc::new(program)),
                Err(e) => Err(format!("the parameters of {} cannot be read: {e}", P::ID)),
            },
        }
    }
}

impl Catalog {
    /// Returns the program with this id and these parameters.
    pub(crate) fn read(&self, id: &str, params: &Value) -> Result<Arc<dyn AnyProgram>, String> {
        let entry = self.programs.iter().find(|entry| entry.id == id);
        let entry = entry.ok_or_else(|| format!("unknown program '{id}'"))?;
        (entry.read)(params)
    }
}

/// Details of a device for a record's provenance.
pub type Details = Vec<(String, String)>;

/// How a role ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Played {
    /// Its report, as JSON.
    pub(crate) end: Result<Value, RoleError>,
    /// What its device counted while it ran; only counters that grew.
    pub(crate) counters: Counters,
    pub(crate) details: Details,
    pub(crate) cpu: CpuTime,
}

/// A program whose type is not known at compile time.
pub(crate) trait AnyProgram: Send + Sync {
    fn roles(&self) -> Vec<Role>;

    fn check(&self, caps: &DeviceCaps) -> Result<(), String>;

    fn impairment(&self) -> Option<Impairment>;

    fn refuses_manager(&self) -> Option<&'static str>;

    /// State that the roles of one process share.
    fn shared(&self) -> Box<dyn Any + Send + Sync>;

    /// Runs a role on an opened device.
    fn play(&self, role: RoleId, on: Opened, shared: &(dyn Any + Send + Sync)) -> Played;
}

/// A station on any real device.
pub(crate) enum Opened {
    Soft(adverb_host::HostStation<adverb_softnic::SoftContext>),
    Verbs(adverb_host::HostStation<adverb_ibverbs::VerbsContext>),
    Tcp(adverb_host::HostStation<adverb_host::TcpContext>),
}

impl<P: Program> AnyProgram for P {
    fn roles(&self) -> Vec<Role> {
        Program::roles(self)
    }

    fn check(&self, caps: &DeviceCaps) -> Result<(), String> {
        Program::check(self, caps)
    }

    fn impairment(&self) -> Option<Impairment> {
        Program::impairment(self)
    }

    fn refuses_manager(&self) -> Option<&'static str> {
        Program::refuses_manager(self)
    }

    fn shared(&self) -> Box<dyn Any + Send + Sync> {
        Box::new(P::Shared::default())
    }

    fn play(&self, role: RoleId, on: Opened, shared: &(dyn Any + Send + Sync)) -> Played {
        let shared = shared.downcast_ref().expect("made by this program");
        match on {
            Opened::Soft(station) => play(self, role, &station, shared),
            Opened::Verbs(station) => play(self, role, &station, shared),
            Opened::Tcp(station) => play(self, role, &station, shared),
        }
    }
}

/// Runs a role. What its device counted is reported even if it fails.
fn play<P: Program, S: Station>(
    program: &P,
    role: RoleId,
    station: &S,
    shared: &P::Shared,
) -> Played {
    use verbs::Context;
    let (counters, cpu) = (station.context().counters(), station.cpu());
    let end = program.run(station, role, shared);
    let end = end.and_then(|report| {
        serde_json::to_value(report).map_err(|e| RoleError {
            reason: format!("{role}: its report cannot be written: {e}"),
            cause: Cause::Own,
        })
    });
    Played {
        end,
        counters: moved(&counters, station.context().counters()),
        details: Details::from(station.context().provenance()),
        cpu: station.cpu().since(cpu),
    }
}

/// Returns the growth of each counter that grew. A counter that shrank was reset, and is left out.
fn moved(before: &Counters, after: Counters) -> Counters {
    let grown = after.into_iter().filter_map(|(name, count)| {
        let earlier = before.get(&name).copied().unwrap_or(0);
        let by = count.checked_sub(earlier).filter(|by| *by > 0)?;
        Some((name, by))
    });
    grown.collect()
}

/// Reads a value, and refuses fields that this version does not know, also those that a nested type would
/// ignore: a newer version may expect an effect from them.
pub(crate) fn read_value<T: Serialize + DeserializeOwned>(
    value: &Value,
) -> Result<T, serde_json::Error> {
    use serde::de::Error;
    let read: T = serde_json::from_value(value.clone())?;
    if serde_json::to_value(&read)? == *value {
        Ok(read)
    } else {
        let what = "it has fields that this version does not know";
        Err(serde_json::Error::custom(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counters_that_grew_are_reported() {
        let counters = |all: &[(&str, u64)]| -> Counters {
            all.iter()
                .map(|(name, n)| ((*name).to_owned(), *n))
                .collect()
        };
        let before = counters(&[("still", 5), ("grown", 5), ("reset", 5)]);
        let after = counters(&[("still", 5), ("grown", 7), ("reset", 1), ("new", 2)]);
        assert_eq!(moved(&before, after), counters(&[("grown", 2), ("new", 2)]));
    }
}
