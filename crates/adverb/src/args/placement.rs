//! The command line of `adverb place`.

use std::path::PathBuf;

use adverb_launch::{DeviceChoice, PresetChoice};
use adverb_units::{Bytes, Span};
use clap::{ArgAction, Args};

use super::format::{Format, format};
use super::loops::WorkerMix;
use super::services::share;
use super::value::{count, duration};

/// Advise on which NUMA node a running program's remotely accessible memory should be
///
/// Reads where the program's written memory is and on which nodes its threads run
/// (/proc/PID/numa_maps, task/*/stat), and compares two placements of that memory,
/// on the NIC's node and on another one, by a model. What peers do is described by
/// options; the share of READs is counted if the device counts them (verbs:NAME
/// with rx_read_requests and rx_write_requests).
///
/// The program's threads stay on the nodes where they ran. They load memory of
/// another node more slowly: the model predicts by how much, and --accesses says
/// how many loads there are for each request of a peer. The better node is the one
/// on which a request and these loads take less time together.
///
/// Times and rates are predictions for the hardware of --preset, not measurements
/// of this machine. A machine with one node has nothing to choose.
///
/// --move moves the pages to the better node (move_pages), with --watch only after
/// three equal results in a row that promise at least --gain. Pages that hardware
/// has pinned, as it pins registered memory, do not move: move them before the
/// program registers them, or start it with numactl --membind.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb place 4711 --device verbs:mlx5_0
  adverb place 4711 --nic-node 0 --mapping /dev/shm/store --reads 0.9 --size 4K
  adverb place 4711 --nic-node 0 --size 8 --workers 16 --outstanding 64
  adverb place 4711 --device verbs:mlx5_0 --watch 10 --move
  adverb place 4711 --root copy-of-another-machine --nic-node 1"
)]
pub(crate) struct PlacementArgs {
    /// The program's process
    #[arg(value_name = "PID", value_parser = pid)]
    pub(crate) pid: u32,

    /// The NIC, whose node and counters are used: verbs:NAME
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<DeviceChoice>,

    /// Node of the NIC, if --device does not tell it
    #[arg(long, value_name = "N")]
    pub(crate) nic_node: Option<u32>,

    /// Only mappings whose file name contains this [default: all written ones except stacks]
    #[arg(long, value_name = "TEXT")]
    pub(crate) mapping: Option<String>,

    /// Share of READs among the requests of peers, 0 to 1; the others are WRITEs [default: as counted, or
    /// 0.5]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) reads: Option<f64>,

    /// Payload of a request
    #[arg(long, value_name = "SIZE", default_value = "64")]
    pub(crate) size: Bytes,

    /// Clients, each with a queue pair; payloads below 64 B are next to each other
    #[arg(long, value_name = "N", default_value = "8", value_parser = count::<u32, _>(1..=256))]
    pub(crate) clients: u32,

    /// Outstanding requests of each
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<u32, _>(1..=1024))]
    pub(crate) outstanding: u32,

    /// Loads of that memory by the program's threads for each request of a peer; those that their own caches
    /// answer do not count
    #[arg(long, value_name = "N", default_value = "1", value_parser = number)]
    pub(crate) accesses: f64,

    /// Threads of the program that access the same words
    #[arg(long, value_name = "N", default_value = "0", value_parser = count::<u32, _>(0..=1024))]
    pub(crate) workers: u32,

    /// Reads and writes among their accesses, as parts: 1:1, 10:90
    #[arg(long, value_name = "READ:WRITE", default_value = "1:1")]
    pub(crate) worker_mix: WorkerMix,

    /// Model whose hardware the prediction is for
    #[arg(long, value_name = "PRESET", default_value = "cx3_fdr_nurdma")]
    pub(crate) preset: PresetChoice,

    /// Least gain that is worth another node, in percent
    #[arg(long, value_name = "PERCENT", default_value = "3", value_parser = count::<u32, _>(0..=1000))]
    pub(crate) gain: u32,

    /// Evaluate again after each such time until the program ends or Ctrl-C: seconds (10), or with a unit
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) watch: Option<Span>,

    /// Move the pages to the better node
    #[arg(long = "move")]
    pub(crate) moves: bool,

    /// Read /proc and /sys below this folder: a copy of another machine's
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,

    /// One JSON object for each evaluation on stdout
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,
}

/// Parses a mean number of accesses.
fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|n| (0.0..=1e6).contains(n));
    number
        .ok_or_else(|| format!("invalid number '{text}': expected 0 to 1000000, such as 0.5 or 2"))
}

fn pid(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("invalid process '{text}': expected its number (pgrep NAME)"))
}
