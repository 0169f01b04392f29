//! Where a program runs and where its records go: options that all measuring programs share.

use clap::{ArgAction, Args};

use super::format::{Format, format};
use super::out::OutArgs;
use super::path::PathArgs;
use super::place::{DeviceArgs, PlaceArgs};

/// Device, hosts, path and output of a program.
#[derive(Clone, Debug, Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    #[command(flatten)]
    pub(crate) path: PathArgs,

    #[command(flatten)]
    pub(crate) out: OutArgs,

    /// A JSON record for each point on stdout instead of the table, as in results.jsonl
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,
}

impl TargetArgs {
    /// Returns the number of hosts besides the first one, at least one: what this machine acts as, and the peers.
    pub(crate) fn other_hosts(&self) -> u32 {
        let hosts = self.place.peer.len() + self.device.all().len();
        hosts.saturating_sub(1).max(1) as u32
    }
}
