//! The command lines of `model`.

use std::path::PathBuf;

use super::format::{Format, format};
use adverb_launch::{DeviceChoice, PresetChoice};
use adverb_patterns::EchoBy;
use adverb_results::{Completion, Opcode, Program, Transport};
use adverb_units::Bytes;
use adverb_validate::Only;
use adverb_workload::pair::operations;
use clap::{ArgAction, Args, Subcommand};

use super::value::{count, word_of};

/// Simulated hardware: list, inspect, trace, validate and calibrate presets
///
/// The model runs the same programs as real devices, in virtual time, on simulated
/// hosts, PCIe, NICs and links, whose parameters are in presets. Each command that
/// measures runs on one with `--device model:PRESET`. Equal commands give equal
/// figures, on any machine, to the last bit.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb model list
  adverb model show cx3
  adverb ping --op read --device model:cx3
  adverb study --device model:connect_ib
  adverb model trace cx3 --op read
  adverb model validate --headlines
  adverb model calibrate --nic cx6dx --out mine.toml"
)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    pub(crate) command: ModelCommand,
}

/// Subcommands of `adverb model`.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// List the presets that come with Adverb
    List(ModelListArgs),
    Show(ModelShowArgs),
    Trace(TraceArgs),
    Validate(ValidateArgs),
    Calibrate(CalibrateArgs),
}

/// Options of `model list`.
#[derive(Debug, Args)]
pub(crate) struct ModelListArgs {
    /// One JSON object a line on stdout
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,
}

/// Show a preset: each parameter with its unit, meaning and source
///
/// The unit is in a parameter's name, too: _ns nanoseconds, _bytes bytes, _mops
/// million a second.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
A preset of your own is a TOML file that names what differs from another one:

  name = \"mine\"
  summary = \"ConnectX-3 behind two switches\"
  extends = \"cx3\"

  [link]
  switches = { value = 2, source = \"our rack\" }

Examples:
  adverb model show cx3
  adverb model show mine.toml
  adverb ping --op send --preset mine.toml"
)]
pub(crate) struct ModelShowArgs {
    /// A preset's name, or a file (a path with a / or ending in .toml)
    #[arg(value_name = "PRESET")]
    pub(crate) preset: PresetChoice,

    /// One JSON object on stdout
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,
}

/// Show the steps of one message, with their places and durations
///
/// Runs a ping on the model as `adverb ping` does, and shows one message of it,
/// from the client's post until the server posts its answer (with READs: until the
/// client posts the next one): first what the message waits for, one step after
/// another, which add up to the time that ping reports; then all steps in lanes;
/// then what happens concurrently.
///
/// With --batch it shows a list of requests, posted with one doorbell, until all
/// have completed; with --by, a request and its reply, as `adverb rpc` sends them.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb model trace cx3 --op write --size 32 --inline
  adverb model trace cx3 --op read --size 64 --svg read.svg
  adverb model trace connect_ib --op fetch-add --batch 4
  adverb model trace connect_ib --op send --transport ud --batch 16
  adverb model trace connect_ib --by write-send --transport ud --size 32
  adverb model trace --device model:connect_ib --op send --completion event
  adverb model trace --preset mine.toml --op write --size 4K --json"
)]
pub(crate) struct TraceArgs {
    /// A preset's name, or a file (a path with a / or ending in .toml)
    #[arg(value_name = "PRESET", conflicts_with_all = ["device", "preset"])]
    pub(crate) model: Option<PresetChoice>,

    /// The same as a device: model:PRESET
    #[arg(long, value_name = "DEV", conflicts_with = "preset")]
    pub(crate) device: Option<DeviceChoice>,

    /// A preset file of your own
    #[arg(long, value_name = "FILE")]
    pub(crate) preset: Option<PathBuf>,

    /// Operation: send, write-imm, write, read, write-read, fetch-add or cas (see `adverb ping -h`)
    #[arg(long, value_parser = word_of(operations(Program::Ping)), required_unless_present = "by")]
    pub(crate) op: Option<Opcode>,

    /// Requests of a list that is posted with one doorbell
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<u32, _>(1..=256))]
    pub(crate) batch: u32,

    /// Instead of --op, a request and its reply: send, write, write-send or read (see `adverb rpc -h`)
    #[arg(
        long,
        value_name = "HOW",
        conflicts_with_all = ["op", "batch", "inline"],
        value_parser = word_of(&[EchoBy::Send, EchoBy::Write, EchoBy::WriteSend, EchoBy::Read])
    )]
    pub(crate) by: Option<EchoBy>,

    /// Transport service: rc, uc or ud; with --by for the reply, and for the request if it can carry it
    #[arg(
        long,
        value_name = "WHICH",
        default_value = "rc",
        value_parser = word_of(&[Transport::Rc, Transport::Uc, Transport::Ud])
    )]
    pub(crate) transport: Transport,

    /// Payload of a message: bytes (8) or binary multiples (1K, 4M) [default: 64; an atomic operation always
    /// has 8]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Bytes>,

    /// Carry the payload in the request itself
    #[arg(long)]
    pub(crate) inline: bool,

    /// How both sides detect completions: poll (busy), event (sleep until one arrives) or hybrid:TIME (poll
    /// for TIME, then sleep)
    #[arg(long, value_name = "HOW", default_value = "poll")]
    pub(crate) completion: Completion,

    /// Draw it into this file, too
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) svg: Option<PathBuf>,

    /// One JSON object on stdout: the whole round, leg by leg
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,
}

/// Compare the model with published measurements
///
/// Runs the experiment of each row and shows the published value, its interval, the
/// prediction, and whether that is inside; then scores by file, program, preset and
/// curve.
///
///   ratio    predicted over published
///   error    0 inside lo..hi, else |ln(predicted / nearest end)|: 0.10 is about
///            10 %; a score is the mean over the rows of a curve, then over curves
///   status   inside, outside, ungraded (shown only), cannot (not modelled, or an
///            unreadable row; the reason is shown) or failed (a deadlock, or a
///            budget was spent)
///
/// Parameters of the model were fitted to the rows of calibration.csv and to no
/// others.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb model validate                       all rows: a minute
  adverb model validate --headlines           what the studies are quoted for
  adverb model validate --only program=ping   also preset=, curve=, file=
  adverb model validate --worst 20 --svg all.svg
  adverb model validate --data mine.csv       as --columns says they are written
  adverb model validate --json | jq -r 'select(.status == \"outside\") | .id'"
)]
pub(crate) struct ValidateArgs {
    /// Rows of this file (may be repeated) [default: the rows that come with Adverb]
    ///
    /// CSV; `--columns` describes its columns.
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) data: Vec<PathBuf>,

    /// Only rows of this program, preset, curve or file: NAME, or program=NAME, preset=NAME, ...
    #[arg(long, value_name = "SELECTION")]
    pub(crate) only: Option<Only>,

    /// Only the results that studies are quoted for, in words: about 20 rows
    #[arg(long, conflicts_with_all = ["data", "only", "worst"])]
    pub(crate) headlines: bool,

    /// Show only the N worst rows, the worst first
    #[arg(long, value_name = "N", value_parser = count::<usize, _>(..))]
    pub(crate) worst: Option<usize>,

    /// Draw the rows into this file, too: predicted over published, by program
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) svg: Option<PathBuf>,

    /// One JSON object a row and line on stdout
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format(), conflicts_with = "worst")]
    pub(crate) format: Format,

    /// Predict intervals, from N samples of the parameters that are estimates
    ///
    /// Each estimate varies by a factor of 1.5 in both directions, a size in bytes by 2 (a Latin hypercube); published and fitted values
    /// stay. Prints how often the interval meets the published one. 20 samples take 20 times as long.
    #[arg(long, value_name = "N", value_parser = count::<u32, _>(2..), conflicts_with_all = ["headlines", "worst", "svg", "support"])]
    pub(crate) intervals: Option<u32>,

    /// Print how far the predictions of each preset are from published values, as CSV
    ///
    /// `model list` and records of models repeat it.
    #[arg(long, conflicts_with_all = ["headlines", "worst", "json"])]
    pub(crate) support: bool,

    /// Describe the columns of such a file and the programs, and predict nothing
    #[arg(long, conflicts_with_all = ["data", "only", "headlines", "worst", "svg", "json"])]
    pub(crate) columns: bool,
}

/// Write a preset with this host's CPU and memory and the NIC of another preset
///
/// Measures the clock, an atomic instruction, a system call, a wake-up, a copy, the
/// latencies of the last-level cache and of memory, and the hand-over of a cache
/// line between cores; reads cores and cache from the kernel. All other parameters
/// come from --nic, and so do latencies that the others contradict, as a cache that
/// is slower than memory: a warning names them. Of five rounds the fastest
/// counts; the preset names the slowest. Needs no RDMA hardware. A virtual machine
/// is measured as it is: its wake-ups may take several times as long.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb model calibrate --nic cx6dx --out mine.toml
  adverb model show mine.toml
  adverb ping --op send --completion event --preset mine.toml"
)]
pub(crate) struct CalibrateArgs {
    /// Preset with the NIC, PCIe and link: cx3, cx5, cx6dx, cx7, ...
    #[arg(long, value_name = "PRESET")]
    pub(crate) nic: String,

    /// Write the preset to this file, not to stdout
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) out: Option<PathBuf>,
}
