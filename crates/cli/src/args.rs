//! The command line as typed. What it means is decided in [`crate::request`].

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use adverb_results::{Completion, FigureId, Opcode, Posting};
use adverb_units::{SizeRange, Span};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::device::DeviceChoice;

const AFTER_HELP: &str = "\
Exit status:
  0  done (also when the reader of the output went away: a broken pipe is no error)
  1  a measurement, a file or the machine failed; the last line on stderr says which and what to do
  2  the command line asks for something that cannot be; nothing was run

Results go to stdout, everything else to stderr. NO_COLOR and --color are respected.";

const ABOUT: &str = "\
Measures how to use RDMA verbs.

RDMA offers many ways to move a message: SEND or WRITE or READ, inline or not, busy polling or
events, one request or a list, a completion for each or for few. Adverb measures what each choice
costs in time, throughput and CPU, on a user-space RDMA device that needs no hardware.

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
    Devices(DevicesArgs),
    Report(ReportArgs),
    /// One side of a measurement; started by the other commands.
    #[command(hide = true)]
    Role(RoleArgs),
}

/// Measure the study of MacArthur & Russell on a device and write a report
///
/// Runs `ping` and `blast` over the choices that a verbs program has (opcode, size, inline,
/// polling or events, buffers, lists, signaling) and writes a folder:
///
///   report.html    plots, findings and the table in one file that works offline
///   results.jsonl  one record a line, written the moment a cell has been measured
///   results.csv    the same records as a table
///   study.json     what was asked, on which machine
///
/// The findings also end the output; its last line is the path of the report.
/// An interrupted study (Ctrl-C, a crash) leaves the report of what is there, and goes on with
/// --resume.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb study                                    about 3 minutes, into ./study-DATE
  adverb study --only fig1,rank-rtt --out latency only the cells of two figures
  adverb study --profile full --out full          all sizes, more repetitions: about half an hour
  adverb study --resume --out full                go on where it was interrupted"
)]
pub(crate) struct StudyArgs {
    /// How much to measure: quick (about 3 minutes on 2 cores) or full [default: quick]
    #[arg(long, value_name = "PROFILE", hide_possible_values = true)]
    pub(crate) profile: Option<ProfileChoice>,

    /// Only the cells of these figures, separated by commas
    ///
    /// fig1 to fig6 are the figures of MacArthur & Russell (HPCC 2012): fig1 ping by size; fig2
    /// blast with one buffer by size; fig3 and fig4 inline and other WRITE blast by number of
    /// buffers; fig5 blast with four buffers by size; fig6 signaling. rank-rtt, rank-cpu and
    /// latency compare the variants of a 64-byte ping (Russell's tutorial, 2013).
    #[arg(long, value_name = "FIG,...", value_delimiter = ',')]
    pub(crate) only: Vec<FigureId>,

    /// The device to measure: soft, the user-space device of this machine [default: soft]
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<DeviceChoice>,

    /// The folder to write [default: study-DATE, in UTC]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Go on with the study in --out: cells that are there are not measured again
    ///
    /// Profile, figures and device are those of the folder. Cells that failed are tried again.
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// End with one JSON object on stdout instead of the findings
    ///
    /// Its fields: out, report, planned, ok, failed, skipped, interrupted, findings. The records
    /// are in results.jsonl.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) cores: CoreArgs,
}

/// One message goes back and forth: latency
///
/// The one-way time is half of a round. Rows are sizes; figures:
///
///   one-way        mean over all rounds, with the 95 % confidence interval over repetitions
///   p50 ... max    of single sampled rounds, halved
///   rate           messages per second, counting both directions
///   throughput     payload bytes per second, counting both directions
///   CPU            (user + system) / elapsed by getrusage, in percent of one core, of either side
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Operations:
  send        SEND into a posted RECV
  write-imm   RDMA WRITE WITH IMMEDIATE, announced by a RECV
  write       RDMA WRITE into memory that the other side polls (as perftest's ib_write_lat);
              it knows no completion events
  write-read  the client pushes with WRITE and pulls with READ; the server's CPU does nothing
  read        the client READs, and READs again; the server's CPU does nothing

Examples:
  adverb ping --op send                             64 B, busy polling
  adverb ping --op send --size 1..1K --inline       powers of two; the payload in the request
  adverb ping --op send --completion event          sleeping instead of polling: slower, cheaper
  adverb ping --op write --size 8 --duration 2s --json"
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
/// The time per message is elapsed / messages, from just before the first post to just after the
/// last completion. Rows are sizes; figures:
///
///   one-way        time per message, with the 95 % confidence interval over repetitions
///   p50 ... max    from a message's post to its completion, of sampled signaled messages
///   rate           messages per second
///   throughput     payload bytes per second
///   CPU            (user + system) / elapsed by getrusage, in percent of one core, of either side
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
  adverb blast --op write --size 16 --inline --buffers 16 --post list --signal periodic
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
        value_parser = count::<u32>,
        allow_negative_numbers = true
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
    /// The device to measure: soft, the user-space device of this machine
    #[arg(long, value_name = "DEV", default_value = "soft")]
    pub(crate) device: DeviceChoice,

    /// Payload of a message: bytes (8), binary multiples (1K, 4M), or a range that doubles (1..1M)
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64",
        allow_negative_numbers = true
    )]
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

    /// Rounds (ping) or messages (blast) in each of 5 repetitions [default: as many as take 0.2 s]
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "duration",
        value_parser = count::<u64>,
        allow_negative_numbers = true
    )]
    pub(crate) iters: Option<u64>,

    /// Measure each size for about this long, in 5 repetitions: 2s, 500ms [default: 1s]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub(crate) duration: Option<Span>,

    /// Check each payload on arrival (costs time: do not compare with unverified figures)
    #[arg(long)]
    pub(crate) verify: bool,

    /// One JSON object a line on stdout, as in results.jsonl
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) cores: CoreArgs,
}

/// Where the two sides run.
#[derive(Clone, Debug, Args)]
pub(crate) struct CoreArgs {
    /// Cores of the active and the passive side [default: the first two usable ones]
    #[arg(long, value_name = "A,B", conflicts_with = "no_pin")]
    pub(crate) cpu: Option<CorePair>,

    /// Let the kernel choose the cores (two polling sides may meet on one)
    #[arg(long)]
    pub(crate) no_pin: bool,
}

/// List the devices and what they can do
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// One JSON object a line on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write report.html and results.csv of a study's folder anew, from its results.jsonl
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  adverb report study-20260102T030405Z --open")]
pub(crate) struct ReportArgs {
    /// A folder that `adverb study` wrote
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

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
fn count<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is no count: write a whole number from 1"))
}

/// Two cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CorePair {
    pub(crate) active: u32,
    pub(crate) passive: u32,
}

impl FromStr for CorePair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let core = |part: &str| part.trim().parse::<u32>().ok();
        match text.split_once(',').map(|(a, b)| (core(a), core(b))) {
            Some((Some(active), Some(passive))) => Ok(CorePair { active, passive }),
            _ => Err(format!(
                "'{text}' is no pair of cores: write two core numbers, such as 0,1"
            )),
        }
    }
}
