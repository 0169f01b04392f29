//! The command lines of `devices`, `doctor` and `nodes`.

use super::format::{Format, format};
use adverb_launch::DeviceChoice;
use clap::{ArgAction, Args};

/// List the devices and their limits
///
/// Limits have the names that ibv_devinfo prints. Model presets are listed by
/// name; --device shows the limits of one.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct DevicesArgs {
    /// Only this device: soft, soft@ADDR, verbs:NAME[:PORT[:GID]], model:PRESET or tcp
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<DeviceChoice>,

    /// One JSON object a line on stdout
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,
}

/// Check this machine's RDMA setup and suggest fixes
///
/// Checks the limits of this process, libraries, kernel modules, CPUs and memory,
/// and each RDMA device and port. Changes nothing. Findings are
///
///   ok       as it should be
///   note     informational; could be improved
///   warning  it works, but results suffer or some programs fail
///   broken   it does not work: the exit status is 1
///
/// Below a finding: why it matters, and commands that fix it. A machine without
/// RDMA devices is not broken: --device soft needs none.
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
    /// Only this device and what affects it: verbs:NAME or soft
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<DeviceChoice>,

    /// One JSON object on stdout
    ///
    /// Its fields: broken, warnings, notes, ok (how many there are of each) and findings.
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,
}

/// Measure memory latency and bandwidth between this machine's NUMA nodes
///
/// A row for each pair of nodes, where one has the CPU and the other one the
/// memory:
///
///   L3      latency of dependent loads at random places of an array that the
///           last-level cache holds
///   memory  the same of an array of four times that cache, 64 to 512 MiB
///   read    reading that array in order, one thread
///   line    passing a cache line from a CPU to another one: half a round trip
///
/// The fastest of five repetitions counts. The kernel chooses the size of pages, so
/// that latencies of large arrays contain TLB misses. closed-loop and open-loop
/// measure what a NIC sees (--numa-memory).
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct NodesArgs {
    /// One JSON object a line on stdout
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,
}
