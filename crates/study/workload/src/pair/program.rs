//! A cell as a [`Program`]: its roles and results.

use adverb_results::Transport;
use adverb_units::Bytes;
use adverb_verbs::{DeviceCaps, Impairment, RoleId, Station};

use super::bench::is_idle;
use super::{
    ACTIVE, CellResult, CellSpec, Fault, PASSIVE, RunError, Side, run_active, run_passive,
};
use crate::{Cause, Program, Role, RoleError, RoleLoad};

impl Program for CellSpec {
    const ID: &'static str = "pair";

    /// The active side's result; `None` from the passive side.
    type Report = Option<CellResult>;

    type Shared = ();

    fn roles(&self) -> Vec<Role> {
        let role = |side: Side, place, load| Role {
            name: side.to_string(),
            host: place,
            process: place,
            load,
        };
        let passive = if is_idle(self, Side::Passive) {
            RoleLoad::Idle
        } else {
            RoleLoad::Busy
        };
        vec![
            role(Side::Active, ACTIVE.0, RoleLoad::Busy),
            role(Side::Passive, PASSIVE.0, passive),
        ]
    }

    fn run<S: Station>(
        &self,
        station: &S,
        role: RoleId,
        (): &(),
    ) -> Result<Option<CellResult>, RoleError> {
        match role {
            ACTIVE => Ok(Some(run_active(station, self)?)),
            _ => Ok(run_passive(station, self).map(|()| None)?),
        }
    }

    fn check(&self, caps: &DeviceCaps) -> Result<(), String> {
        self.validate(caps).map_err(|error| error.to_string())
    }

    /// A side of a byte stream has two buffers of one message, a side of verbs has one for each message in flight.
    fn memory(&self, role: RoleId) -> Bytes {
        match (self.is_stream(), role) {
            (true, _) => Bytes::new(self.params.size.get().saturating_mul(2)),
            (false, ACTIVE) => self.side_memory(Side::Active),
            (false, _) => self.side_memory(Side::Passive),
        }
    }

    fn refuses_manager(&self) -> Option<&'static str> {
        let is_reliable = self.params.traffic.transport.is_reliable();
        (!is_reliable).then_some("the connection manager connects RC queue pairs only")
    }

    fn is_stream(&self) -> bool {
        self.params.traffic.transport == Transport::Tcp
    }

    fn home(&self) -> u32 {
        match self.params.traffic.reversed {
            true => PASSIVE.0,
            false => ACTIVE.0,
        }
    }

    fn impairment(&self) -> Option<Impairment> {
        self.params.path.injected()
    }
}

impl From<RunError> for RoleError {
    fn from(error: RunError) -> Self {
        let cause = match &*error.fault {
            Fault::Refused(_) | Fault::PathOption(_) => Cause::Refused,
            Fault::Peer(_) | Fault::PeerEnded(_) => Cause::Peer,
            _ => Cause::Own,
        };
        RoleError {
            reason: error.to_string(),
            cause,
        }
    }
}
