//! The command line as typed. What it means is decided in [`crate::request`].
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these comments are help texts, where brackets are what may be left out"
)]

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use adverb_results::{Completion, FigureId, Opcode, Posting};
use adverb_units::{Bytes, SizeRange, Span};
use adverb_validate::Only;
use adverb_verbs::PathMtu;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::device::DeviceChoice;
use crate::model::PresetChoice;
use crate::remote::HostPort;
use crate::services::{ClosedLoopArgs, KvArgs, SequencerArgs};

const AFTER_HELP: &str = "\
Exit status:
  0  done (also where the reader of the output went away: a broken pipe)
  1  a measurement, a file or the machine failed; the last line on stderr says
     which, and what to do
  2  the command line asks for something that cannot be; nothing was run

Results go to stdout, everything else to stderr. NO_COLOR is respected.";

const ABOUT: &str = "\
Measures how to use RDMA verbs.

RDMA offers many ways to move a message: SEND or WRITE or READ, inline or not,
busy polling or events, one request or a list, a completion for each or for few.
Adverb measures what each choice costs in time, throughput and CPU: on your RDMA
devices, or on a user-space device that needs no hardware. Of hardware that you
don't have, it predicts the costs with a model.

Begin with `adverb study`: three minutes, one report.";

/// What was typed.
#[derive(Debug, Parser)]
#[command(
    name = "adverb",
    version = crate::VERSION,
    about = "Measures how to use RDMA verbs",
    long_about = ABOUT,
    after_help = AFTER_HELP,
    subcommand_required = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Colours on the terminal: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(
        long,
        global = true,
        display_order = 1000,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub(crate) color: ColorWhen,
}

/// What was typed, or what is wrong with it.
pub(crate) fn typed() -> Result<Cli, clap::Error> {
    let mut command = taking_negative_numbers(Cli::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Has options take `-1` as a value, and refuse it as theirs, instead of calling it an unknown option.
fn taking_negative_numbers(command: clap::Command) -> clap::Command {
    let option = |arg: Arg| match arg.is_positional() || !arg.get_action().takes_values() {
        true => arg,
        false => arg.allow_negative_numbers(true),
    };
    command
        .mut_args(option)
        .mut_subcommands(taking_negative_numbers)
}

/// When to colour.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ColorWhen {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Study(StudyArgs),
    Ping(PingArgs),
    Blast(BlastArgs),
    ClosedLoop(ClosedLoopArgs),
    Sequencer(SequencerArgs),
    Kv(KvArgs),
    Serve(ServeArgs),
    Devices(DevicesArgs),
    Doctor(DoctorArgs),
    Model(ModelArgs),
    Report(ReportArgs),
    /// One side of a measurement; started by the other commands.
    #[command(hide = true)]
    Role(RoleArgs),
}

/// Measure the study of MacArthur & Russell on a device and write a report
///
/// Runs `ping` and `blast` over the choices that a verbs program has (opcode, size,
/// inline, polling or events, buffers, lists, signaling) and writes a folder:
///
///   report.html    plots, findings and the table in one file that works offline
///   results.jsonl  one record a line, written the moment a cell has been measured
///   results.csv    the same records as a table
///   study.json     what was asked, on which machine
///
/// The findings also end the output; its last line is the path of the report.
/// An interrupted study (Ctrl-C, a crash) leaves the report of what is there, and
/// goes on with --resume.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb study                              3 minutes, into ./study-DATE
  adverb study --only fig1,rank-rtt         only the cells of two figures
  adverb study --profile full --out full    all sizes: about half an hour
  adverb study --resume --out full          go on where it was interrupted
  adverb study --peer nodeb --out two       with nodeb (`adverb serve` there)
  adverb study --device model:connect_ib    what a Connect-IB would do: seconds"
)]
pub(crate) struct StudyArgs {
    /// How much to measure: quick (about 3 minutes on 2 cores) or full [default: quick]
    #[arg(long, value_name = "PROFILE", hide_possible_values = true)]
    pub(crate) profile: Option<ProfileChoice>,

    /// Only the cells of these figures, separated by commas
    ///
    /// fig1 to fig6 and fig8 are the figures of MacArthur & Russell (HPCC 2012): fig1 ping by size; fig2
    /// blast with one buffer by size; fig3 and fig4 inline and other WRITE blast by number of buffers; fig5
    /// blast with four buffers by size; fig6 signaling; fig8 ping and blast side by side, for reports of
    /// several devices. rank-rtt, rank-cpu and latency compare the variants of a 64-byte ping (Russell's
    /// tutorial, 2013).
    #[arg(long, value_name = "FIG,...", value_delimiter = ',')]
    pub(crate) only: Vec<FigureId>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// Largest payload of a packet: 256, 512, 1024, 2048 or 4096 [default: the largest that both sides carry]
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<PathMtu>,

    /// The folder to write [default: study-DATE, in UTC]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Go on with the study in --out: cells that are there are not measured again
    ///
    /// Profile, figures, device and peer are those of the folder. Cells that failed are tried again.
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// End with one JSON object on stdout instead of the findings
    ///
    /// Its fields: out, report, planned, ok, failed, skipped, interrupted, findings. The records
    /// are in results.jsonl.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// One message goes back and forth: latency
///
/// The one-way time is half of a round. Rows are sizes; figures:
///
///   one-way        mean over all rounds; ±95 %: its confidence interval over
///                  repetitions
///   p50 ... max    of single sampled rounds, halved
///   rate           messages per second, counting both directions
///   throughput     payload bytes per second, counting both directions
///   CPU            of either side: user+system time by getrusage over elapsed
///                  time, in percent of one core
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Operations:
  send        SEND into a posted RECV
  write-imm   RDMA WRITE WITH IMMEDIATE, announced by a RECV
  write       RDMA WRITE into memory that the other side polls (as perftest's
              ib_write_lat); it knows no completion events
  write-read  the client pushes with WRITE and pulls with READ; the server's CPU
              does nothing
  read        the client READs, and READs again; the server's CPU does nothing

Examples:
  adverb ping --op send                         64 B, busy polling
  adverb ping --op send --size 1..1K --inline   powers of two, in the request
  adverb ping --op send --completion event      sleeping: slower, cheaper
  adverb ping --op write --size 8 --duration 2s --json
  adverb ping --op read --device model:cx3      what a ConnectX-3 would do"
)]
pub(crate) struct PingArgs {
    /// Operation: send, write-imm, write, read or write-read (see below)
    #[arg(long, hide_possible_values = true)]
    pub(crate) op: PingOp,

    /// Which requests ask for a completion: all, or write-unsignaled (only with --op write-read)
    #[arg(
        long,
        value_name = "WHICH",
        default_value = "all",
        hide_possible_values = true
    )]
    pub(crate) signal: PingSignal,

    #[command(flatten)]
    pub(crate) common: MeasureArgs,
}

/// One side sends as fast as its buffers allow: throughput and message rate
///
/// The time per message is elapsed / messages, from just before the first post to
/// just after the last completion. Rows are sizes; figures:
///
///   one-way        time per message; ±95 %: its confidence interval over
///                  repetitions
///   p50 ... max    from a message's post to its completion, of sampled signaled
///                  messages
///   rate           messages per second
///   throughput     payload bytes per second
///   CPU            of either side: user+system time by getrusage over elapsed
///                  time, in percent of one core
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Operations:
  send        SEND into a posted RECV
  write-imm   RDMA WRITE WITH IMMEDIATE, announced by a RECV
  write       RDMA WRITE; the server's CPU does nothing
  read        RDMA READ; the server's CPU does nothing

Examples:
  adverb blast --op write --size 64K --buffers 4
  adverb blast --op write --size 16 --inline --buffers 16 --post list
  adverb blast --op write --size 16 --buffers 16 --signal periodic
  adverb blast --op send --size 1..1M --completion event --json"
)]
pub(crate) struct BlastArgs {
    /// Operation: send, write-imm, write or read (see below)
    #[arg(long, hide_possible_values = true)]
    pub(crate) op: BlastOp,

    /// Messages in flight at most, each with its own buffer
    #[arg(
        long,
        value_name = "N",
        default_value = "4",
        value_parser = count::<u32>
    )]
    pub(crate) buffers: u32,

    /// How requests are posted: single (one call each) or list (all that are free, in one call)
    #[arg(
        long,
        value_name = "HOW",
        default_value = "single",
        hide_possible_values = true
    )]
    pub(crate) post: PostChoice,

    /// Which requests ask for a completion: all, periodic (one in buffers/2) or every=N (one in N)
    #[arg(long, value_name = "WHICH", default_value = "all")]
    pub(crate) signal: BlastSignal,

    #[command(flatten)]
    pub(crate) common: MeasureArgs,
}

/// What `ping` and `blast` have in common.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// Payload of a message: bytes (8), binary multiples (1K, 4M), or a range that doubles (1..1M)
    #[arg(long, value_name = "SIZE", default_value = "64")]
    pub(crate) size: SizeRange,

    /// Carry the payload in the request itself (up to the device's limit; see `adverb devices`)
    #[arg(long)]
    pub(crate) inline: bool,

    /// How both sides learn of completions: poll (busy) or event (sleep until one comes)
    #[arg(
        long,
        value_name = "HOW",
        default_value = "poll",
        hide_possible_values = true
    )]
    pub(crate) completion: CompletionChoice,

    /// Rounds (ping) or messages (blast) in each of 5 repetitions [default: as the duration allows]
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "duration",
        value_parser = count::<u64>
    )]
    pub(crate) iters: Option<u64>,

    /// Measure each size for about this long, in 5 repetitions: 2s, 500ms [default: 1s; of a model
    /// 10ms, in virtual time]
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Span>,

    /// Largest payload of a packet: 256, 512, 1024, 2048 or 4096 [default: the largest that both sides carry]
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<PathMtu>,

    /// Check each payload on arrival (costs time: do not compare with unverified figures)
    #[arg(long)]
    pub(crate) verify: bool,

    /// One JSON object a line on stdout, as in results.jsonl
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// Which device: for all that measures.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// The device to measure [default: soft]
    ///
    /// soft, the user-space device of this machine; soft@ADDR, the same with RoCE over UDP at ADDR, an
    /// address of this host; verbs:NAME[:PORT[:GID]], a device behind libibverbs (GID: index or IP
    /// address; verbs+cm:NAME connects through librdmacm); model:PRESET, hardware that is not there, in
    /// virtual time (see `adverb model`).
    #[arg(long, value_name = "DEV")]
    device: Option<DeviceChoice>,

    /// A model by a preset file of your own, in place of --device (`adverb model show -h` has one)
    #[arg(long, value_name = "FILE", conflicts_with = "device")]
    preset: Option<PathBuf>,
}

impl DeviceArgs {
    /// The device that was named, either way.
    pub(crate) fn named(&self) -> Option<DeviceChoice> {
        let model = self.preset.as_ref();
        let model = model.map(|file| DeviceChoice::Model(PresetChoice::file(file)));
        model.or_else(|| self.device.clone())
    }

    /// That, or the user-space device.
    pub(crate) fn choice(&self) -> DeviceChoice {
        self.named().unwrap_or(DeviceChoice::SOFT)
    }
}

/// Where the two sides run.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlaceArgs {
    /// Run the passive side on another host, where `adverb serve` listens (default port 18600)
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) peer: Option<HostPort>,

    /// Cores of the active and the passive side [default: the first two usable ones]
    ///
    /// With --peer, the core of the active side alone: the server chooses its own.
    #[arg(long, value_name = "A,B", conflicts_with = "no_pin")]
    pub(crate) cpu: Option<CoreList>,

    /// Let the kernel choose the cores (two polling sides may meet on one)
    #[arg(long)]
    pub(crate) no_pin: bool,
}

/// Run the passive side for `--peer` on another host
///
/// Serves one client after another until Ctrl-C: `adverb ping`, `blast` and `study`
/// with --peer. While one is served, others are told so.
///
/// Whoever reaches the port can run measurements on this host: there is no
/// authentication and no encryption. A client chooses the program and its
/// parameters, within this host's limits, and nothing else. Without --bind, only
/// this host reaches it.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb serve                          on this host alone, to try it
  adverb serve --bind 10.0.0.2          on the address of the RDMA network
  adverb serve --bind 0.0.0.0 --cpu 4   on all networks; its side on core 4
  adverb serve --bind [fe80::2%eth0]:7000 --once     ends after one client

On the other host:
  adverb ping --op send --peer 10.0.0.2"
)]
pub(crate) struct ServeArgs {
    /// Where to listen: an address of this host [default: 127.0.0.1:18600, this host alone]
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub(crate) bind: Option<HostPort>,

    /// The device of this side [default: the one that the client names]
    ///
    /// Device names differ between hosts. Clients of another kind of device are refused.
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<DeviceChoice>,

    /// The core of this side [default: the first usable one]
    #[arg(long, value_name = "N", conflicts_with = "no_pin", value_parser = count::<u32>)]
    pub(crate) cpu: Option<u32>,

    /// Let the kernel choose the core
    #[arg(long)]
    pub(crate) no_pin: bool,

    /// End after one client
    #[arg(long)]
    pub(crate) once: bool,
}

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
    #[arg(long)]
    pub(crate) json: bool,
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
    #[arg(long)]
    pub(crate) json: bool,
}

/// Hardware that is not there: what the model can be, and how well it predicts
///
/// The model runs the same programs as real devices do, in virtual time: hosts,
/// PCIe, NICs and links made of mechanisms, whose parameters are in presets. With
/// `--device model:PRESET`, `study`, `ping`, `blast`, `closed-loop`, `sequencer`
/// and `kv` run on one. Equal commands give equal figures, on any machine, to the
/// last bit.
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
  adverb model validate --headlines"
)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    pub(crate) command: ModelCommand,
}

/// What to do with the model.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// List the presets that come with Adverb
    List(ModelListArgs),
    Show(ModelShowArgs),
    Trace(TraceArgs),
    Validate(ValidateArgs),
}

/// Options of `model list`.
#[derive(Debug, Args)]
pub(crate) struct ModelListArgs {
    /// One JSON object a line on stdout
    #[arg(long)]
    pub(crate) json: bool,
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
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show what a message consists of: each step, where it happens, how long it takes
///
/// Runs a ping on the model as `adverb ping` does, and shows one message of it,
/// from the client's post until the server posts its answer (with READs: until the
/// client posts the next one): first what the message waits for, one step after
/// another, which add up to the time that ping reports; then all steps in lanes;
/// then what goes on beside.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb model trace cx3 --op write --size 32 --inline
  adverb model trace cx3 --op read --size 64 --svg read.svg
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

    /// Operation: send, write-imm, write, read or write-read (as `adverb ping -h` has them)
    #[arg(long, hide_possible_values = true)]
    pub(crate) op: PingOp,

    /// Payload of the message: bytes (8) or binary multiples (1K, 4M)
    #[arg(long, value_name = "SIZE", default_value = "64")]
    pub(crate) size: Bytes,

    /// Carry the payload in the request itself
    #[arg(long)]
    pub(crate) inline: bool,

    /// How both sides learn of completions: poll (busy) or event (sleep until one comes)
    #[arg(
        long,
        value_name = "HOW",
        default_value = "poll",
        hide_possible_values = true
    )]
    pub(crate) completion: CompletionChoice,

    /// Draw it into this file, too
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) svg: Option<PathBuf>,

    /// One JSON object on stdout: the whole round, leg by leg
    #[arg(long)]
    pub(crate) json: bool,
}

/// Hold the model against published measurements
///
/// Runs the experiment of each row and shows what was published, the interval that
/// the published value lies in, what the model predicts, and whether that is
/// inside; then scores by file, program, preset and curve.
///
///   ratio    predicted over published
///   error    0 inside lo..hi, else |ln(predicted / nearest end)|: 0.10 is about
///            10 %; a score is the mean over the rows of a curve, then over curves
///   status   inside, outside, ungraded (shown only), cannot (the model lacks
///            something, or the row cannot be read: it says what) or failed (a
///            deadlock, or a budget was spent)
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
    /// Rows of this file (may be repeated) [default: those that come with Adverb]
    ///
    /// CSV; `--columns` tells which.
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) data: Vec<PathBuf>,

    /// Only rows of this program, preset, curve or file: NAME, or program=NAME, preset=NAME, ...
    #[arg(long, value_name = "SELECTION")]
    pub(crate) only: Option<Only>,

    /// Only the results that the studies are quoted for, each in words: about 20 rows
    #[arg(long, conflicts_with_all = ["data", "only", "worst"])]
    pub(crate) headlines: bool,

    /// Show only the N worst rows, the worst first
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    pub(crate) worst: Option<usize>,

    /// Draw the rows into this file, too: predicted over published, by program
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) svg: Option<PathBuf>,

    /// One JSON object a row and line on stdout
    #[arg(long, conflicts_with = "worst")]
    pub(crate) json: bool,

    /// Instead: print what the columns of such a file mean, and what the programs are
    #[arg(long, conflicts_with_all = ["data", "only", "headlines", "worst", "svg", "json"])]
    pub(crate) columns: bool,
}

/// Write report.html and results.csv of a study's folder anew, from its results.jsonl
///
/// With several folders: one report of all, in which the devices stand beside each
/// other. Plots of a model's study show published values of the same hardware,
/// where there are any, with their source.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb report study-20260102T030405Z --open
  adverb report on-soft on-cx3 --out both.html    this machine beside a model"
)]
pub(crate) struct ReportArgs {
    /// A folder that `adverb study` wrote; or several
    #[arg(value_name = "DIR", required = true)]
    pub(crate) dirs: Vec<PathBuf>,

    /// The file to write [default: report.html in the folder; needed for several]
    #[arg(long, value_name = "FILE.html")]
    pub(crate) out: Option<PathBuf>,

    /// Show the report in the browser (xdg-open)
    #[arg(long)]
    pub(crate) open: bool,
}

/// One side of a cell; its stdin is a socket to the other side.
#[derive(Debug, Args)]
pub(crate) struct RoleArgs {
    /// Which side.
    #[arg(value_enum)]
    pub(crate) side: crate::pair::Side,
}

/// How much a study measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProfileChoice {
    Quick,
    Full,
}

impl fmt::Display for ProfileChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ProfileChoice::Quick => "quick",
            ProfileChoice::Full => "full",
        })
    }
}

/// Operations of `ping`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PingOp {
    Send,
    WriteImm,
    Write,
    Read,
    WriteRead,
}

impl From<PingOp> for Opcode {
    fn from(op: PingOp) -> Opcode {
        match op {
            PingOp::Send => Opcode::Send,
            PingOp::WriteImm => Opcode::WriteImm,
            PingOp::Write => Opcode::Write,
            PingOp::Read => Opcode::Read,
            PingOp::WriteRead => Opcode::WriteRead,
        }
    }
}

/// Operations of `blast`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BlastOp {
    Send,
    WriteImm,
    Write,
    Read,
}

impl From<BlastOp> for Opcode {
    fn from(op: BlastOp) -> Opcode {
        match op {
            BlastOp::Send => Opcode::Send,
            BlastOp::WriteImm => Opcode::WriteImm,
            BlastOp::Write => Opcode::Write,
            BlastOp::Read => Opcode::Read,
        }
    }
}

/// How to learn of completions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CompletionChoice {
    Poll,
    Event,
}

impl From<CompletionChoice> for Completion {
    fn from(choice: CompletionChoice) -> Completion {
        match choice {
            CompletionChoice::Poll => Completion::Poll,
            CompletionChoice::Event => Completion::Event,
        }
    }
}

/// How to post.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PostChoice {
    Single,
    List,
}

impl From<PostChoice> for Posting {
    fn from(choice: PostChoice) -> Posting {
        match choice {
            PostChoice::Single => Posting::Single,
            PostChoice::List => Posting::List,
        }
    }
}

/// Signaling of `ping`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PingSignal {
    All,
    WriteUnsignaled,
}

/// Signaling of `blast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlastSignal {
    All,
    Periodic,
    Every(u32),
}

impl FromStr for BlastSignal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(BlastSignal::All),
            "periodic" => Ok(BlastSignal::Periodic),
            _ => match text.strip_prefix("every=").map(str::parse::<u32>) {
                Some(Ok(n)) if n > 0 => Ok(BlastSignal::Every(n)),
                _ => Err(format!(
                    "'{text}' is no signaling: choose from all, periodic, every=N with N from 1"
                )),
            },
        }
    }
}

/// A whole number; whether 0 makes sense is for the program to say.
pub(crate) fn count<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is no count: write a whole number from 1"))
}

/// Cores: that of the active side, and, where both sides run here, that of the passive side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoreList {
    pub(crate) active: u32,
    pub(crate) passive: Option<u32>,
}

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let core = |part: &str| part.trim().parse::<u32>();
        let (active, passive) = match text.split_once(',') {
            Some((active, passive)) => (core(active), Some(core(passive))),
            None => (core(text), None),
        };
        match (active, passive.transpose()) {
            (Ok(active), Ok(passive)) => Ok(CoreList { active, passive }),
            _ => Err(format!(
                "'{text}' is no pair of cores: write two core numbers, such as 0,1 (with --peer one)"
            )),
        }
    }
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.active)?;
        match self.passive {
            Some(passive) => write!(f, ",{passive}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts that are shown as they stand break raggedly where the terminal is narrower.
    #[test]
    fn help_fits_a_terminal_of_80_columns() {
        fn check(command: &clap::Command) {
            let about = command.get_long_about().into_iter();
            let texts = about.chain(command.get_after_help());
            for text in texts.map(ToString::to_string) {
                // The first line is the summary.
                for line in text.lines().skip(1) {
                    let width = line.chars().count();
                    assert!(width <= 80, "{}: {width}: {line}", command.get_name());
                }
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
