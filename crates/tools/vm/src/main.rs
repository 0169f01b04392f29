//! The `adverb-vm` program: a command line over the library, and the `/init` of its guests.

mod args;
mod run;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let name = std::env::args().next().unwrap_or_default();
    if name.rsplit('/').next() == Some(adverb_vm::INIT_NAME) {
        return adverb_vm::run_init();
    }
    match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Check => check(),
    }
}

fn check() -> ExitCode {
    let missing = adverb_vm::missing();
    missing.iter().for_each(|need| println!("{need}"));
    ExitCode::from(u8::from(!missing.is_empty()))
}
