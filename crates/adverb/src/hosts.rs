//! The hosts of a program, from its arguments.

use adverb_host::{Machine, usable_cores};
use adverb_launch::{
    Catalog, DeviceChoice, DeviceInfo, Entry, Event, Hardware, Launcher, Mode, Peer, Pinning,
    RunError, Usage,
};
use adverb_patterns::Job;
use adverb_results::{Provenance, Site};
use adverb_workload::pair::CellSpec;
use anyhow::anyhow;

use crate::args::{CoreList, PlaceArgs};
use crate::{VERSION, terminal};

/// The programs that role processes and clients of `adverb serve` can run.
pub(crate) static CATALOG: Catalog = Catalog {
    version: VERSION,
    programs: &[Entry::of::<CellSpec>(), Entry::of::<Job>()],
};

/// The backend of a program.
pub(crate) enum Bed {
    /// Real devices of this host and the peers.
    Hosts(Box<Launcher>),
    /// A model, in virtual time.
    Model(Box<Hardware>),
}

impl Bed {
    /// Returns the servers that take part.
    pub(crate) fn peers(&self) -> &[Peer] {
        match self {
            Bed::Hosts(launcher) => launcher.peers(),
            Bed::Model(_) => &[],
        }
    }

    /// Returns the machine name of a host of a run.
    pub(crate) fn host_name(&self, number: u32) -> String {
        match self {
            Bed::Hosts(launcher) => {
                let first_peer = launcher.hosts() - launcher.peers().len() as u32;
                match number.checked_sub(first_peer) {
                    Some(peer) => launcher.peers()[peer as usize].welcome().site.host.clone(),
                    None => Machine::this().host,
                }
            }
            Bed::Model(_) => format!("machine {number}"),
        }
    }

    /// Whether a server on this machine takes part; its load cannot be distinguished from other programs'.
    pub(crate) fn is_served_here(&self) -> bool {
        self.peers().iter().any(Peer::is_here)
    }

    /// Returns the provenance of a record that was `started` (RFC 3339) at these places.
    pub(crate) fn provenance(
        &self,
        started: String,
        active: Site,
        passive: Option<Site>,
    ) -> Provenance {
        Provenance {
            virtual_time: matches!(self, Bed::Model(_)),
            ..provenance(started, active, passive)
        }
    }
}

/// Returns the detail of a device whose connected queue pairs do not use its UDP port.
pub(crate) fn in_shared_memory() -> (String, String) {
    let said = ("connected queue pairs", "in shared memory");
    (said.0.to_owned(), said.1.to_owned())
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

/// Prints an event.
pub(crate) fn log(event: Event) {
    match event {
        Event::Note(line) => terminal::say(&line),
        Event::Warning(line) => terminal::warn(&line),
    }
}

/// Connects to the peers before anything runs.
pub(crate) fn peers(
    place: &PlaceArgs,
    device: &DeviceChoice,
    info: &DeviceInfo,
) -> anyhow::Result<Vec<Peer>> {
    let connect = |address| Peer::connect(address, &place.ranks, (device, info), &CATALOG, log);
    place.peer.iter().map(connect).collect()
}

/// Returns a launcher for this host and the peers.
pub(crate) fn launcher(
    devices: Vec<DeviceChoice>,
    peers: Vec<Peer>,
    place: &PlaceArgs,
) -> Result<Launcher, Usage> {
    let pinning = pinning(place.cpu.as_ref(), place.no_pin)?;
    let mode = match place.processes || devices.len() > 1 {
        true => Mode::Processes,
        false => Mode::Threads,
    };
    let placement = place.place.clone().unwrap_or_default();
    Ok(Launcher::new(&CATALOG, devices)
        .with_peers(peers)
        .with_mode(mode)
        .with_places(placement, pinning))
}

/// Returns the pinning, if this process may run on the given cores.
pub(crate) fn pinning(cores: Option<&CoreList>, no_pin: bool) -> Result<Pinning, Usage> {
    let Some(CoreList(cores)) = cores else {
        return Ok(if no_pin {
            Pinning::None
        } else {
            Pinning::Automatic
        });
    };
    let usable = usable_cores();
    for core in cores {
        if !usable.contains(core) {
            let choices: Vec<String> = usable.iter().map(u32::to_string).collect();
            return Err(Usage(format!(
                "--cpu: core {core} is not usable here: choose from {}",
                choices.join(", ")
            )));
        }
    }
    Ok(Pinning::Cores(cores.clone()))
}

/// Converts to the error that ends the command.
pub(crate) fn failed(error: RunError) -> anyhow::Error {
    match error {
        RunError::Refused(usage) => usage.into(),
        RunError::System(error) => error,
        other => anyhow!(other.to_string()),
    }
}
