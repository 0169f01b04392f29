//! The command lines of `devices` and `doctor`: what there is, and what stands in the way.

use super::format::{Format, format};
use adverb_launch::DeviceChoice;
use clap::{ArgAction, Args};

/// List the devices and what they can do
///
/// The hardware that the model can be is listed by name; with --device its limits
/// are shown.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct DevicesArgs {
    /// Only this device: soft, soft@ADDR, verbs:NAME[:PORT[:GID]] or model:PRESET
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<DeviceChoice>,

    /// One JSON object a line on stdout
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,
}

/// Say what stands in the way of RDMA on this machine, and what mends it
///
/// Looks at the limits of this process, libraries, kernel modules, CPUs and memory,
/// and at each RDMA device and port. Changes nothing. Findings are
///
///   ok       as it should be
///   note     good to know; to be had better in some cases
///   warning  it works, but figures suffer or some programs fail
///   broken   it does not work: the exit status is 1
///
/// Below a finding: why it matters, and the commands that mend it. A machine
/// without RDMA devices is not broken: --device soft measures without.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb doctor
  adverb doctor --device verbs:mlx5_0
  adverb doctor --json | jq '.findings[] | select(.verdict == \"broken\")'"
)]
pub(crate) struct DoctorArgs {
    /// Only this device, and the machine as far as it matters to it: verbs:NAME or soft
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<DeviceChoice>,

    /// One JSON object on stdout
    ///
    /// Its fields: broken, warnings, notes, ok (how many there are of each) and findings.
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,
}
