//! The command line as typed. What it means is decided in `request`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these comments are help texts, where brackets are what may be left out"
)]

mod compare;
mod connect;
mod format;
mod impair;
mod install;
mod length;
mod limit;
mod machine;
mod measure;
mod model;
mod out;
mod path;
mod place;
mod report;
mod retry;
mod serve;
mod services;
mod study;
mod sweep;
mod value;

use adverb_launch::DeviceChoice;
use anstream::ColorChoice;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

pub(crate) use compare::CompareArgs;
pub(crate) use connect::ConnectArgs;
pub(crate) use format::Format;
pub(crate) use install::{CompletionsArgs, ManArgs};
pub(crate) use limit::LimitArgs;
pub(crate) use machine::{DevicesArgs, DoctorArgs};
pub(crate) use measure::{BlastArgs, MeasureArgs, PingArgs};
pub(crate) use model::{
    ModelArgs, ModelCommand, ModelListArgs, ModelShowArgs, TraceArgs, ValidateArgs,
};
pub(crate) use out::OutArgs;
pub(crate) use path::flags_of;
pub(crate) use place::{CoreList, DeviceArgs, PlaceArgs};
pub(crate) use report::ReportArgs;
pub(crate) use serve::ServeArgs;
pub(crate) use services::{
    ClientArgs, ClosedLoopArgs, KvArgs, KvBy, KvPuts, PostingArgs, SequencerArgs, SequencerBy,
    ServerArgs,
};
pub(crate) use study::StudyArgs;
use value::one_of;

const AFTER_HELP: &str = "\
Exit status:
  0  done (also if the reader of the output closed the pipe)
  1  a measurement, a file or the machine failed; the last line on stderr says
     which, and what to do; or a point is outside --min-rate or --max-latency
  2  invalid command line; nothing was run
  130  Ctrl-C ended a --run-forever

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
        value_parser = one_of([
            ("auto", ColorChoice::Auto),
            ("always", ColorChoice::Always),
            ("never", ColorChoice::Never),
        ])
    )]
    pub(crate) color: ColorChoice,
}

/// What was typed, or what is wrong with it: one command line for each point of a sweep, at least one.
pub(crate) fn typed() -> Result<Vec<Cli>, Refused> {
    let mut command = command();
    let lines = sweep::expanded(&command, std::env::args_os().collect());
    let lines = lines.map_err(Refused::Sweep)?;
    let points = lines.into_iter().map(|line| {
        let matches = command.try_get_matches_from_mut(line)?;
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    });
    points
        .collect::<Result<_, clap::Error>>()
        .map_err(Refused::Words)
}

/// Why a command line is refused.
pub(crate) enum Refused {
    /// A word is wrong or missing; or help or the version was asked for.
    Words(clap::Error),
    /// A sweep has no points.
    Sweep(String),
}

impl Refused {
    /// The exit status of what prints nothing.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Refused::Words(error) if !error.use_stderr() => ExitCode::SUCCESS,
            _ => ExitCode::from(2),
        }
    }
}

/// Returns the definitions of all arguments.
pub(crate) fn command() -> clap::Command {
    with_usual_options(Cli::command())
}

/// Has options take `-1` as a value, and refuse it as theirs, instead of calling it an unknown option. Their
/// help says in its own words what they take.
fn with_usual_options(command: clap::Command) -> clap::Command {
    let option = |arg: Arg| match arg.is_positional() || !arg.get_action().takes_values() {
        true => arg,
        false => arg.allow_negative_numbers(true).hide_possible_values(true),
    };
    command.mut_args(option).mut_subcommands(with_usual_options)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Study(StudyArgs),
    Ping(PingArgs),
    Blast(BlastArgs),
    ClosedLoop(ClosedLoopArgs),
    Sequencer(SequencerArgs),
    Kv(KvArgs),
    Connect(ConnectArgs),
    Serve(ServeArgs),
    Devices(DevicesArgs),
    Doctor(DoctorArgs),
    Model(ModelArgs),
    Report(ReportArgs),
    Compare(CompareArgs),
    Completions(CompletionsArgs),
    #[command(hide = true)]
    Man(ManArgs),
    /// Roles of a program; started by the other commands.
    #[command(hide = true)]
    Role(RoleArgs),
}

/// What the hosts of a program are chosen by.
pub(crate) struct Hosts<'a> {
    pub(crate) device: &'a mut DeviceArgs,
    pub(crate) place: &'a mut PlaceArgs,
    /// Peers that the program can use.
    pub(crate) most_peers: usize,
}

impl Command {
    /// Whether each rank of a job does the same: it is about a host.
    pub(crate) fn is_of_each_rank(&self) -> bool {
        matches!(
            self,
            Command::Devices(_) | Command::Doctor(_) | Command::Serve(_) | Command::Role(_)
        )
    }

    /// What chooses the hosts of a program that runs on several.
    pub(crate) fn hosts(&mut self) -> Option<Hosts<'_>> {
        let (device, place, most_peers) = match self {
            Command::Ping(PingArgs {
                all_pairs: true,
                common,
                ..
            }) => (&mut common.device, &mut common.place, usize::MAX),
            Command::Ping(PingArgs { common, .. }) | Command::Blast(BlastArgs { common, .. }) => {
                (&mut common.device, &mut common.place, 1)
            }
            Command::Study(args) => (&mut args.device, &mut args.place, 1),
            Command::Connect(args) => (&mut args.device, &mut args.place, 1),
            Command::ClosedLoop(ClosedLoopArgs { clients, .. })
            | Command::Sequencer(SequencerArgs { clients, .. })
            | Command::Kv(KvArgs { clients, .. }) => {
                (&mut clients.device, &mut clients.place, usize::MAX)
            }
            _ => return None,
        };
        let is_model = matches!(device.choice(), DeviceChoice::Model(_));
        (!is_model).then_some(Hosts {
            device,
            place,
            most_peers,
        })
    }
}

/// Roles of a program; stdin is a socket to the process that started them.
#[derive(Debug, Args)]
pub(crate) struct RoleArgs {
    /// Their names, for people: the order comes over the socket.
    #[arg(value_name = "ROLE")]
    names: String,
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
