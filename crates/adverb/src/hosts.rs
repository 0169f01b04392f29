//! The hosts of a program, from its arguments.

use adverb_host::usable_cores;
use adverb_launch::{
    Catalog, DeviceChoice, DeviceInfo, Entry, Event, Launcher, Mode, Peer, Pinning, Usage,
};
use adverb_measure::VERSION;
use adverb_patterns::Job;
use adverb_workload::pair::CellSpec;

use crate::args::{CoreList, PlaceArgs};
use crate::terminal;

/// The programs that role processes and clients of `adverb serve` can run.
pub(crate) static CATALOG: Catalog = Catalog {
    version: VERSION,
    programs: &[Entry::of::<CellSpec>(), Entry::of::<Job>()],
};

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
