//! The command line of `study`.

use std::path::PathBuf;

use super::format::{Format, format};
use adverb_experiments::{FigureId, Profile, StudyId};
use adverb_verbs::LinkRate;
use clap::{ArgAction, Args};

use super::path::PathArgs;
use super::place::{DeviceArgs, PlaceArgs};
use super::value::{count, one_of};

/// Run the experiments on a device and write a report
///
/// Runs `ping` and `blast` over the choices that a verbs program has (opcode, size,
/// inline, polling or events, buffers, lists, signaling), as published studies do
/// (see --list), and writes a folder:
///
///   report.html    plots, findings and the table in one file that works offline
///   results.jsonl  one record a line, written the moment a run of a cell ends
///   results.csv    the same records as a table
///   study.json     what was asked, on which machine
///
/// The findings also end the output; its last line is the path of the report.
/// An interrupted study (Ctrl-C, a crash) leaves a report of the measured cells;
/// --resume continues it.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb study --open                       2 minutes, into ./study-DATE
  adverb study --list                       the studies and their figures
  adverb study --study macarthur --profile paper --device model:mt26428_qdr
  adverb study --study wan --device model:ammasso_gige    RDMA and TCP in a WAN
  adverb study --study wan --degen --only wan3,beyond     the same on this host
  adverb study --study guidelines --device model:connect_ib --only ladder
  adverb study --only fig1,rank-rtt         only the cells of two figures
  adverb study --only loss --device soft@127.0.0.1    what lost packets cost
  adverb study --only path --device model:cx3         what a long path costs
  adverb study --profile full --out full    all sizes: about half an hour
  adverb study --resume --out full          continue where it was interrupted
  adverb study --peer nodeb --out two       with nodeb (`adverb serve` there)
  adverb study --only fig8 --device model:mt26428_qdr \\
      --device model:mt26428_roce10         InfiniBand and RoCE
  adverb study --device model:connect_ib    what a Connect-IB would do: seconds"
)]
pub(crate) struct StudyArgs {
    /// Only the figures of one study: macarthur (MacArthur & Russell, HPCC 2012), russell (tutorial, 2013),
    /// path, or one that is only measured if it is named: wan (RDMA over IP in a WAN), numa or guidelines (Kalia et
    /// al., ATC 2016) [default: macarthur, russell and path]
    #[arg(long, value_name = "STUDY")]
    pub(crate) study: Option<StudyId>,

    /// How much to measure: quick (about 2 minutes on 2 cores), paper or full [default: quick]
    ///
    /// paper measures the sizes and numbers of buffers of the publications; quick some of them, up to 16 MiB;
    /// full all powers of two that the programs take. docs/programs.md has the number of cells of each figure.
    #[arg(
        long,
        value_name = "PROFILE",
        value_parser = one_of([
            ("quick", Profile::Quick),
            ("paper", Profile::Paper),
            ("full", Profile::Full),
        ])
    )]
    pub(crate) profile: Option<Profile>,

    /// Only the cells of these figures (fig1) or panels (fig1a), separated by commas
    ///
    /// --list names the figures. Those that need packet loss run only on soft@ADDR. Those of wan, numa and guidelines
    /// need --study.
    #[arg(long, value_name = "FIG,...", value_delimiter = ',')]
    pub(crate) only: Vec<FigureId>,

    /// Speeds of the link that Figure 7 and Table I compare, separated by commas: sdr, ddr, qdr, fdr, edr, hdr,
    /// ndr, xdr [default: all that the device has]
    ///
    /// A model takes all of them; verbs:NAME those up to its InfiniBand link, as the static rate of the path.
    #[arg(long, value_name = "RATE,...", value_delimiter = ',')]
    pub(crate) rates: Vec<LinkRate>,

    /// List the experiments and their figures, with --study of that study alone, and measure nothing
    #[arg(long, conflicts_with_all = ["only", "rates", "out", "resume"])]
    pub(crate) list: bool,

    /// Repetitions of each cell, in passes over the whole plan; with --resume, a larger number adds
    /// passes [default: 3, with --profile paper or full 5; 1 for wan, numa and guidelines; a model repeats only
    /// cells that lose packets]
    #[arg(long, value_name = "N", value_parser = count::<u32, _>(1..=1000))]
    pub(crate) repetitions: Option<u32>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// Run wan between two network namespaces, with `adverb degen` between them: RDMA and TCP on one path
    ///
    /// Both ends are on this host, as soft@10.77.0.1 and tcp, unless --device names one of them. The router has the
    /// delay and the loss of each cell. It needs /dev/net/tun, and root or user namespaces.
    #[arg(long, conflicts_with_all = ["list", "peer"])]
    pub(crate) degen: bool,

    #[command(flatten)]
    pub(crate) path: PathArgs,

    /// Name of this study in its records
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// The folder to write [default: study-DATE, in UTC]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Show the report in the browser at the end (xdg-open)
    #[arg(long, conflicts_with = "list")]
    pub(crate) open: bool,

    /// Resume the study in --out; cells already measured are kept
    ///
    /// Profile, figures, device and peer are read from the folder. Failed cells are measured again.
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,

    /// End with one JSON object on stdout instead of the findings
    ///
    /// Its fields: out, report, planned, ok, failed, skipped, not_run (except with --study wan, numa or guidelines),
    /// interrupted, findings, claims. The records are in results.jsonl.
    #[arg(id = "json", long, action = ArgAction::SetTrue, value_parser = format())]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}
