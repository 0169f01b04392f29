//! The `adverb` program: what was typed becomes cells, cells become records, records become rows
//! and reports. It decides, prints and exits; it does not measure.

mod args;
mod busy;
mod compare;
mod device;
mod doctor;
mod failure;
mod folder;
mod hosts;
mod measure;
mod model;
mod progress;
mod record;
mod report;
mod request;
mod services;
mod space;
mod study;
mod table;
mod terminal;

use std::io::{self, Write};
use std::process::ExitCode;

use adverb_launch::{AgentOptions, Until};
use clap::error::ErrorKind;

use args::{Command, ServeArgs};

/// Version, with the revision of the source where it was known when this was built.
pub(crate) const VERSION: &str = env!("ADVERB_VERSION");
/// That revision.
pub(crate) const REVISION: Option<&str> = option_env!("ADVERB_REVISION");

fn main() -> ExitCode {
    let cli = match args::typed() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    terminal::choose_color(cli.color);
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

/// Says why; a reader that went away has seen enough.
fn failed(error: &anyhow::Error) -> ExitCode {
    let Some(code) = failure::exit_code(error) else {
        return ExitCode::SUCCESS;
    };
    terminal::error(&adverb_launch::one_line(error));
    code
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Study(args) => return study::run(&args),
        Command::Ping(args) => measure::ping(&args)?,
        Command::Blast(args) => measure::blast(&args)?,
        Command::ClosedLoop(args) => services::closed_loop(&args)?,
        Command::Sequencer(args) => services::sequencer(&args)?,
        Command::Kv(args) => services::kv(&args)?,
        Command::Serve(args) => serve(&args)?,
        Command::Devices(args) => device::list(&args)?,
        Command::Doctor(args) => return doctor::run(&args),
        Command::Model(args) => return model::run(&args.command),
        Command::Report(args) => report::run(&args)?,
        Command::Compare(args) => return compare::run(&args),
        Command::Role(_) => adverb_launch::run_roles(&hosts::CATALOG)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    let options = AgentOptions {
        bind: args.bind.clone(),
        device: args.device.clone(),
        pinning: request::pinning(args.cpu.as_ref(), args.no_pin)?,
        until: match args.once {
            true => Until::FirstSession,
            false => Until::Signal,
        },
    };
    adverb_launch::serve(&options, &hosts::CATALOG, hosts::log)
}

/// Help and version are answers; all else is a usage error in one line, but for no command at all:
/// who types that wants to know what there is.
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
