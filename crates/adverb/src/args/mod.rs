//! Definitions of the command line. `request` interprets the parsed arguments.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these comments are help texts, where brackets are what may be left out"
)]

mod claims;
mod compare;
mod connect;
mod degen;
mod format;
mod impair;
mod install;
mod length;
mod limit;
mod loops;
mod machine;
mod mcast;
mod measure;
mod model;
mod out;
mod path;
mod place;
mod placement;
mod report;
mod rpc;
mod run;
mod serve;
mod services;
mod store;
mod study;
mod sweep;
mod sync;
mod target;
mod value;
mod wan;

use adverb_launch::DeviceChoice;
use anstream::ColorChoice;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub(crate) use claims::ClaimsArgs;
pub(crate) use compare::CompareArgs;
pub(crate) use connect::ConnectArgs;
pub(crate) use degen::DegenArgs;
pub(crate) use format::Format;
pub(crate) use install::{CompletionsArgs, ManArgs};
pub(crate) use length::{LengthArgs, RunsArgs};
pub(crate) use limit::LimitArgs;
pub(crate) use loops::{ClosedLoopArgs, LoadArgs, LoopArgs, OnOff, OpenLoopArgs, WorkerMix};
pub(crate) use machine::{DevicesArgs, DoctorArgs, NodesArgs};
pub(crate) use mcast::{McastArgs, McastSide};
pub(crate) use measure::{BlastArgs, MeasureArgs, PingArgs};
pub(crate) use model::{
    CalibrateArgs, ModelArgs, ModelCommand, ModelListArgs, ModelShowArgs, TraceArgs, ValidateArgs,
};
pub(crate) use out::OutArgs;
pub(crate) use path::flags_of;
pub(crate) use place::{CoreList, DeviceArgs, PlaceArgs};
pub(crate) use placement::PlacementArgs;
pub(crate) use report::ReportArgs;
pub(crate) use rpc::RpcArgs;
pub(crate) use run::{EnvArgs, NicArgs, RunArgs};
pub(crate) use serve::ServeArgs;
pub(crate) use services::{
    ClientArgs, KvArgs, KvBy, KvPuts, PostingArgs, SequencerArgs, SequencerBy, ServerArgs,
};
pub(crate) use store::{StoreArgs, StoreCommand, StoreLoadArgs, StoreServeArgs};
pub(crate) use study::StudyArgs;
pub(crate) use sync::SyncArgs;
pub(crate) use target::TargetArgs;
use value::one_of;
pub(crate) use wan::{FetchArgs, InterferenceArgs, OverlapArgs, RendezvousArgs};

const AFTER_HELP: &str = "\
Exit status:
  0  done (also if the reader of the output closed the pipe)
  1  a measurement, a file or the machine failed; the last line on stderr says
     which, and what to do; or a point is outside --min-rate or --max-latency
  2  invalid command line; nothing was run
  130  Ctrl-C ended it (143: SIGTERM, 129: SIGHUP); a server then exits with 0

Results go to stdout, everything else to stderr. NO_COLOR is respected.";

const ABOUT: &str = "\
Measures how to use RDMA verbs.

RDMA offers many ways to move a message: SEND or WRITE or READ, inline or not,
busy polling or events, one request or a list, a completion for each or for few.
Adverb measures what each choice costs in time, throughput and CPU: on your RDMA
devices, or on a user-space device that needs no hardware. Of hardware that you
don't have, it predicts the costs with a model.

Begin with `adverb study`: two minutes, one report.";

/// The parsed command line.
#[derive(Debug, Parser)]
#[command(
    name = "adverb",
    version = adverb_measure::VERSION,
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

/// Parses the command line: returns one `Cli` for each point of a sweep, at least one.
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
    /// An argument is wrong or missing; or help or the version was requested.
    Words(clap::Error),
    /// A sweep has no points.
    Sweep(String),
}

/// Returns the definitions of all arguments.
pub(crate) fn command() -> clap::Command {
    let command = with_usual_options(Cli::command());
    let command = command.mut_subcommand("rpc", |rpc| {
        let outstanding = "Outstanding requests per client";
        let machines = "Machines of the clients [default: 1, or as many as there are other hosts; \
                        of a model one for each client]";
        rpc.mut_arg("clients", |arg| arg.default_value("1"))
            .mut_arg("outstanding", |arg| {
                arg.default_value("1").help(outstanding)
            })
            .mut_arg("machines", |arg| arg.help(machines))
    });
    let alone = |arg: Arg| {
        arg.default_value("1")
            .help("Requests posted with one doorbell, once all of them fit; 1 posts each alone")
    };
    let command = command.mut_subcommand("closed-loop", |closed| closed.mut_arg("batch", alone));
    command.mut_subcommand("open-loop", |open| {
        let queue = "Requests of a queue pair's send queue, which the thread keeps full";
        open.mut_arg("outstanding", |arg| arg.default_value("1024").help(queue))
            .mut_arg("qps", |arg| {
                arg.default_value("1").help("Queue pairs per client")
            })
            .mut_arg("batch", alone)
    })
}

/// Lets options take `-1`, and those with a unit `-1ms`, as a value, so that their own parser refuses it, instead of an
/// error about an unknown option. Possible values are hidden because the help texts list them.
fn with_usual_options(command: clap::Command) -> clap::Command {
    let option = |arg: Arg| {
        if arg.is_positional() || !arg.get_action().takes_values() {
            return arg;
        }
        let name = arg.get_value_names().and_then(|names| names.first());
        let has_unit =
            name.is_some_and(|name| ["TIME", "SHARE", "RATE", "SIZE"].contains(&name.as_str()));
        arg.allow_negative_numbers(true)
            .allow_hyphen_values(has_unit)
            .hide_possible_values(true)
    };
    let command = command.mut_args(option).mut_subcommands(with_usual_options);
    let has = |id| command.get_arguments().any(|arg| arg.get_id() == id);
    // Programs for which --rate is the load that they offer have only the long name.
    match has("link_rate") && !has("rate") {
        true => command.mut_arg("link_rate", |arg| arg.visible_alias("rate")),
        false => command,
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Study(StudyArgs),
    Ping(PingArgs),
    Blast(BlastArgs),
    ClosedLoop(ClosedLoopArgs),
    OpenLoop(OpenLoopArgs),
    Sequencer(SequencerArgs),
    Kv(KvArgs),
    Rpc(RpcArgs),
    Store(StoreArgs),
    Sync(SyncArgs),
    Connect(ConnectArgs),
    Mcast(McastArgs),
    Overlap(OverlapArgs),
    Fetch(FetchArgs),
    Interference(InterferenceArgs),
    Rendezvous(RendezvousArgs),
    Run(RunArgs),
    Env(EnvArgs),
    Degen(DegenArgs),
    Serve(ServeArgs),
    Devices(DevicesArgs),
    Doctor(DoctorArgs),
    Nodes(NodesArgs),
    Place(PlacementArgs),
    Model(ModelArgs),
    Report(ReportArgs),
    Compare(CompareArgs),
    Claims(ClaimsArgs),
    Completions(CompletionsArgs),
    #[command(hide = true)]
    Man(ManArgs),
    /// Roles of a program; started by the other commands.
    #[command(hide = true)]
    Role(RoleArgs),
}

/// The arguments that choose the hosts of a program.
pub(crate) struct Hosts<'a> {
    pub(crate) device: &'a mut DeviceArgs,
    pub(crate) place: &'a mut PlaceArgs,
    /// Maximum number of peers that the program can use.
    pub(crate) most_peers: usize,
}

impl Command {
    /// Whether each rank of a job runs the command by itself, for its own host.
    pub(crate) fn is_of_each_rank(&self) -> bool {
        matches!(
            self,
            Command::Degen(_)
                | Command::Devices(_)
                | Command::Doctor(_)
                | Command::Env(_)
                | Command::Nodes(_)
                | Command::Place(_)
                | Command::Role(_)
                | Command::Run(_)
                | Command::Serve(_)
                | Command::Store(StoreArgs {
                    command: Some(_),
                    ..
                })
        )
    }

    /// Returns the arguments that choose the hosts, if the program can run on several.
    pub(crate) fn hosts(&mut self) -> Option<Hosts<'_>> {
        let (target, most_peers) = match self {
            Command::Study(StudyArgs { device, place, .. }) => return hosts(device, place, 1),
            Command::Ping(PingArgs {
                all_pairs: true,
                common,
                ..
            }) => (&mut common.on, usize::MAX),
            Command::Ping(PingArgs { common, .. }) | Command::Blast(BlastArgs { common, .. }) => {
                (&mut common.on, 1)
            }
            Command::Connect(args) => (&mut args.on, 1),
            Command::Mcast(args) => (&mut args.on, usize::MAX),
            Command::Overlap(args) => (&mut args.on, 1),
            Command::Store(args) => (&mut args.load.on, usize::MAX),
            Command::Sync(args) => (&mut args.on, 1),
            Command::Fetch(args) => (&mut args.on, 1),
            Command::Rendezvous(args) => (&mut args.on, 1),
            Command::Interference(args) => (&mut args.on, usize::MAX),
            Command::ClosedLoop(ClosedLoopArgs { loops })
            | Command::OpenLoop(OpenLoopArgs { loops }) => (&mut loops.clients.on, usize::MAX),
            Command::Sequencer(SequencerArgs { clients, .. })
            | Command::Kv(KvArgs { clients, .. })
            | Command::Rpc(RpcArgs { clients, .. }) => (&mut clients.on, usize::MAX),
            _ => return None,
        };
        hosts(&mut target.device, &mut target.place, most_peers)
    }
}

/// The hosts of a program, if it does not run on a model.
fn hosts<'a>(
    device: &'a mut DeviceArgs,
    place: &'a mut PlaceArgs,
    most_peers: usize,
) -> Option<Hosts<'a>> {
    let is_model = matches!(device.choice(), DeviceChoice::Model(_));
    (!is_model).then_some(Hosts {
        device,
        place,
        most_peers,
    })
}

/// Arguments of a process of roles, whose stdin is a socket to the process that started it.
#[derive(Debug, Args)]
pub(crate) struct RoleArgs {
    /// Names of the roles, shown by `ps`. The order is sent over the socket.
    #[arg(value_name = "ROLE")]
    names: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verbatim texts wrap badly on narrower terminals.
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
