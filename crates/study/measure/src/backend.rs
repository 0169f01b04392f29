//! What programs run on: real devices of this host and others, or a model.

use adverb_host::Machine;
use adverb_launch::{Hardware, Launcher, Peer, RunError};
use adverb_results::{DeviceRef, Provenance, Record, Site};
use anyhow::anyhow;

/// The backend of a program.
pub enum Backend {
    /// Real devices of this host and the peers.
    Hosts(Box<Launcher>),
    /// A model, in virtual time.
    Model(Box<Hardware>),
}

impl Backend {
    /// Returns the servers that take part.
    pub fn peers(&self) -> &[Peer] {
        match self {
            Backend::Hosts(launcher) => launcher.peers(),
            Backend::Model(_) => &[],
        }
    }

    /// Whether a server on this machine takes part; its load cannot be distinguished from other programs'.
    pub fn is_served_here(&self) -> bool {
        self.peers().iter().any(Peer::is_here)
    }

    /// Whether a record was measured on this device; for a model, also with the same parameters, because its preset may have
    /// been edited since.
    pub(crate) fn is_of(&self, record: &Record, (device, site): (&DeviceRef, &Site)) -> bool {
        let is_same = match self {
            Backend::Hosts(_) => true,
            Backend::Model(_) => record.provenance.active.device == site.device,
        };
        is_same && record.device == *device
    }

    /// Returns the machine name of a host of a run.
    pub(crate) fn host_name(&self, number: u32) -> String {
        match self {
            Backend::Hosts(launcher) => {
                let first_peer = launcher.hosts() - launcher.peers().len() as u32;
                match number.checked_sub(first_peer) {
                    Some(peer) => launcher.peers()[peer as usize].welcome().site.host.clone(),
                    None => Machine::this().host,
                }
            }
            Backend::Model(_) => format!("machine {number}"),
        }
    }

    /// Returns the provenance of a record that was `started` (RFC 3339) at these places.
    pub(crate) fn provenance(
        &self,
        started: String,
        active: Site,
        passive: Option<Site>,
    ) -> Provenance {
        Provenance {
            virtual_time: matches!(self, Backend::Model(_)),
            ..provenance(started, active, passive)
        }
    }
}

/// Returns the provenance of a record of real devices.
pub(crate) fn provenance(started: String, active: Site, passive: Option<Site>) -> Provenance {
    Provenance {
        adverb: env!("CARGO_PKG_VERSION").to_owned(),
        revision: crate::REVISION.map(str::to_owned),
        started,
        virtual_time: false,
        active,
        passive,
    }
}

/// Converts to the error that ends a measurement.
pub(crate) fn failed(error: RunError) -> anyhow::Error {
    match error {
        RunError::Refused(usage) => usage.into(),
        RunError::System(error) => error,
        other => anyhow!(other.to_string()),
    }
}
