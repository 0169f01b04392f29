//! The `adverb` program: converts arguments to cells, cells to records, and records to rows and reports.
//! It decides, prints and exits; other crates measure.

mod all_pairs;
mod args;
mod busy;
mod claims;
mod compare;
mod degen;
mod device;
mod doctor;
mod experiments;
mod failure;
mod hosts;
mod install;
mod measure;
mod model;
mod nodes;
mod place;
mod progress;
mod ranks;
mod report;
mod request;
mod resumed;
mod run;
mod section;
mod services;
mod sink;
mod study;
mod table;
mod terminal;

use std::io::{self, Write};
use std::process::ExitCode;

use adverb_launch::{AgentOptions, Until, Usage};
use adverb_patterns::LoopKind;
use clap::error::ErrorKind;

use args::{Command, Refused, ServeArgs, StoreArgs, StoreCommand};

fn main() -> ExitCode {
    let mut points = match args::typed() {
        Ok(points) => points,
        Err(_) if !ranks::is_first() => return ranks::LEFT_TO_RANK_0,
        Err(Refused::Words(error)) => return refuse(&error),
        Err(Refused::Sweep(reason)) => return failed(&Usage(reason).into()),
    };
    points.iter().for_each(|cli| cli.color.write_global());
    if let Err(error) = adverb_launch::report_file_size_limit() {
        return failed(&error.into());
    }
    let ended = match ranks::join(&mut points) {
        Ok(Some(code)) => Ok(code),
        Ok(None) => run(points.into_iter().map(|cli| cli.command).collect()),
        Err(error) => Err(error),
    };
    ended.unwrap_or_else(|error| failed(&error))
}

/// Prints the error, unless the reader of standard output closed it or a signal ended a `--run-forever`.
fn failed(error: &anyhow::Error) -> ExitCode {
    let Some(code) = failure::exit_code(error) else {
        return ExitCode::SUCCESS;
    };
    if !error.is::<failure::Stopped>() {
        terminal::error(&adverb_launch::one_line(error));
    }
    code
}

/// The arguments of all points of a sweep, which are of one command.
macro_rules! points {
    ($commands:expr, $variant:ident) => {{
        let all = $commands.into_iter().filter_map(|command| match command {
            Command::$variant(args) => Some(args),
            _ => None,
        });
        all.collect::<Vec<_>>()
    }};
}

/// Runs a command at all points of its sweep, at least one.
fn run(mut commands: Vec<Command>) -> anyhow::Result<ExitCode> {
    match &commands[0] {
        Command::Ping(_) => {
            let points = points!(commands, Ping);
            match points[0].all_pairs {
                true => all_pairs::run(&points)?,
                false => measure::ping(&points)?,
            }
        }
        Command::Blast(_) => measure::blast(&points!(commands, Blast))?,
        Command::ClosedLoop(_) => {
            let points = points!(commands, ClosedLoop);
            services::loops(LoopKind::Closed, points.iter().map(|args| &args.loops))?;
        }
        Command::OpenLoop(_) => {
            let points = points!(commands, OpenLoop);
            services::loops(LoopKind::Open, points.iter().map(|args| &args.loops))?;
        }
        Command::Sequencer(_) => services::sequencer(&points!(commands, Sequencer))?,
        Command::Kv(_) => services::kv(&points!(commands, Kv))?,
        Command::Rpc(_) => services::rpc(&points!(commands, Rpc))?,
        Command::Store(StoreArgs { command: None, .. }) => {
            services::store(&points!(commands, Store))?;
        }
        Command::Sync(_) => services::sync(&points!(commands, Sync))?,
        Command::Connect(_) => services::connect(&points!(commands, Connect))?,
        Command::Mcast(_) => services::mcast(&points!(commands, Mcast))?,
        Command::Overlap(_) => services::overlap(&points!(commands, Overlap))?,
        Command::Fetch(_) => services::fetch(&points!(commands, Fetch))?,
        Command::Interference(_) => services::interference(&points!(commands, Interference))?,
        Command::Rendezvous(_) => services::rendezvous(&points!(commands, Rendezvous))?,
        _ if commands.len() > 1 => {
            let reason = "a list or range of values is for ping, blast, closed-loop, open-loop, sequencer, kv, rpc, store, sync, connect, mcast, overlap, fetch, interference and rendezvous";
            return Err(Usage(reason.to_owned()).into());
        }
        _ => return run_once(commands.swap_remove(0)),
    }
    Ok(ExitCode::SUCCESS)
}

fn run_once(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Study(args) => return study::run(&args),
        Command::Run(args) => match run::run(&args)? {},
        Command::Degen(args) => return degen::run(&args),
        Command::Env(args) => run::env(&args)?,
        Command::Serve(args) => serve(&args)?,
        Command::Store(StoreArgs {
            command: Some(StoreCommand::Serve(args)),
            ..
        }) => services::serve_store(&args)?,
        Command::Devices(args) => device::list(&args)?,
        Command::Doctor(args) => return doctor::run(&args),
        Command::Nodes(args) => nodes::run(&args)?,
        Command::Place(args) => place::run(&args)?,
        Command::Model(args) => return model::run(&args.command),
        Command::Report(args) => report::run(&args)?,
        Command::Compare(args) => return compare::run(&args),
        Command::Claims(args) => claims::run(&args)?,
        Command::Completions(args) => install::completions(args.shell)?,
        Command::Man(args) => install::manual(&args.dir)?,
        Command::Role(_) => adverb_launch::run_roles(&hosts::CATALOG)?,
        Command::Ping(_)
        | Command::Blast(_)
        | Command::ClosedLoop(_)
        | Command::OpenLoop(_)
        | Command::Sequencer(_)
        | Command::Kv(_)
        | Command::Rpc(_)
        | Command::Store(_)
        | Command::Sync(_)
        | Command::Connect(_)
        | Command::Mcast(_)
        | Command::Overlap(_)
        | Command::Fetch(_)
        | Command::Interference(_)
        | Command::Rendezvous(_) => unreachable!("programs run all points of their sweep"),
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    args.parent.map_or(Ok(()), adverb_host::die_with_parent)?;
    let options = AgentOptions {
        bind: args.bind.clone(),
        device: args.device.clone(),
        pinning: hosts::pinning(args.cpu.as_ref(), args.no_pin)?,
        until: match args.once {
            true => Until::FirstSession,
            false => Until::Signal,
        },
    };
    adverb_launch::serve(&options, &hosts::CATALOG, hosts::log)
}

/// Prints help and version with status 0, and everything else as a usage error in one line; without a
/// command it prints the whole help.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    if error.use_stderr() {
        terminal::error(&failure::usage_line(error));
        return ExitCode::from(2);
    }
    match error.print().and_then(|()| io::stdout().flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&terminal::unwritten(&error).into()),
    }
}
