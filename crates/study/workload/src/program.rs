//! The interface between a program and its launcher.

use adverb_units::Bytes;
use adverb_verbs::{DeviceCaps, Impairment, NodeChoice, PathMtu, RoleId, Station};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A program: its parameters and roles.
///
/// The parameters are serialized to reach the processes and hosts that run the roles.
pub trait Program:
    Clone + Send + Sync + Serialize + DeserializeOwned + PartialEq + 'static
{
    /// Identifies the program's type in messages between processes and hosts, such as `pair`.
    const ID: &'static str;

    /// What a role returns at its end.
    type Report: Serialize + DeserializeOwned + Send + 'static;

    /// State that the roles of one process share, such as the counter of a sequencer. The launcher makes one
    /// default value per [process](Role::process) and run.
    type Shared: Default + Send + Sync + 'static;

    /// The roles, in the order of their [`RoleId`]s.
    fn roles(&self) -> Vec<Role>;

    /// Runs one role to its end; all roles run at the same time.
    ///
    /// # Errors
    /// The parameters are refused, the device fails, or another role has failed.
    fn run<S: Station>(
        &self,
        station: &S,
        role: RoleId,
        shared: &Self::Shared,
    ) -> Result<Self::Report, RoleError>;

    /// Checks the parameters against what a device can do, before anything runs on it.
    ///
    /// # Errors
    /// The parameter that is out of range and its limit, in one line.
    fn check(&self, caps: &DeviceCaps) -> Result<(), String> {
        let _ = caps;
        Ok(())
    }

    /// Returns the memory that a role allocates, which grows with the parameters: its regions and tables.
    fn memory(&self, role: RoleId) -> Bytes;

    /// Faults that the roles' ports inject into what they send.
    fn impairment(&self) -> Option<Impairment> {
        None
    }

    /// Returns the NUMA node of the memory of a host's roles.
    fn memory_node(&self, host: u32) -> NodeChoice {
        let _ = host;
        NodeChoice::Any
    }

    /// What is different on the hosts, which only models can change.
    fn hardware(&self) -> HardwareChanges {
        HardwareChanges::default()
    }

    /// Why a connection manager (`verbs+cm:`) cannot connect its queue pairs, if it cannot: it has UC, UD
    /// or DC queue pairs.
    fn refuses_manager(&self) -> Option<&'static str> {
        None
    }

    /// Whether it uses byte streams in place of verbs.
    fn is_stream(&self) -> bool {
        false
    }

    /// The [`Role::host`] whose roles run where the program is started, as long as there are other hosts: 0,
    /// or 1 if host 0 is a server that clients reach.
    fn home(&self) -> u32 {
        0
    }

    /// Returns the number of hosts that the roles ask for.
    fn hosts(&self) -> u32 {
        let hosts = self.roles().into_iter().map(|role| role.host + 1);
        hosts.max().unwrap_or(1)
    }
}

/// Changes of modelled machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareChanges {
    /// NICs write to memory past the last-level cache (no DDIO).
    pub without_ddio: bool,
    /// Another MTU of the links than the preset has.
    pub link_mtu: Option<PathMtu>,
    /// Fewer switches between two machines than the preset has.
    pub fewer_switches: u32,
    /// The roles of a machine are threads of one process, which opens the NIC once.
    pub one_context: bool,
    /// A thread of its own polls each completion queue.
    pub polls_apart: bool,
}

/// A role of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// Name in records and messages, such as `active` or `client 3`.
    pub name: String,
    /// The host that it asks for, from 0. A launcher with fewer hosts uses theirs in turn.
    pub host: u32,
    /// Roles of one host with the same number share memory: a launcher that starts processes starts them
    /// as threads of one process.
    pub process: u32,
    /// Whether the role is busy while the program runs; an idle one needs no core of its own.
    pub load: RoleLoad,
}

/// CPU use of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleLoad {
    /// Posts, polls or computes.
    Busy,
    /// Owns memory and queue pairs, and sleeps.
    Idle,
    /// Sleeps most of the time. It runs on the core of the first busy role of its host, as if all cores were busy.
    Preempting,
}

/// Why a role failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{reason}")]
pub struct RoleError {
    /// Role, phase and cause, in one line.
    pub reason: String,
    /// Where the failure began.
    pub cause: Cause,
}

/// Where a failure began. Of several failed roles the one with the least cause is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The parameters were refused: a usage error.
    Refused,
    /// In this role.
    Own,
    /// In another role, which failed first or is gone.
    Peer,
}
