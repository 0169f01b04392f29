//! `adverb-vm run`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use adverb_units::Span;
use adverb_vm::{Ending, Job, Lab, LabSpec, Program, Progress};
use anyhow::Context;

use crate::args::RunArgs;

/// The machines failed, not the program: as `env` and container programs have it.
const MACHINES_FAILED: u8 = 125;
/// As `timeout` has it.
const LIMIT_REACHED: u8 = 124;
/// How long a server may take until it listens.
const SERVER_TIMEOUT: Span = Span::from_secs(30);
const SIGNAL_BASE: i32 = 128;

pub(crate) fn run(args: &RunArgs) -> ExitCode {
    match try_run(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(MACHINES_FAILED)
        }
    }
}

fn try_run(args: &RunArgs) -> anyhow::Result<u8> {
    let begin = Instant::now();
    let lab = boot(args)?;
    let took = Span::from(begin.elapsed());
    eprintln!("adverb-vm: {} machine(s) up in {took}", args.machines);
    let server = serve(args, &lab)?;
    let (name, rest) = args.program.split_first().context("no program")?;
    let mut program = Program::new(in_guest(name)).args(rest).limit(args.limit);
    for (name, value) in &args.env {
        program = program.env(name, value);
    }
    let ending = pass_on(&lab.machine(0).start_program(&program)?)?;
    if let Some(server) = server {
        server.kill()?;
        let printed = server.output()?;
        std::io::stderr().write_all(&printed.stdout)?;
        std::io::stderr().write_all(&printed.stderr)?;
    }
    for get in &args.get {
        lab.machine(0).get(&get.from, &get.to)?;
    }
    Ok(status(ending, args.limit))
}

fn boot(args: &RunArgs) -> anyhow::Result<Lab> {
    let mut spec = match (args.machines, args.looped) {
        (_, true) => LabSpec::looped(),
        (2, false) => LabSpec::two(),
        _ => LabSpec::one(),
    };
    spec = spec
        .link_type(args.link.into())
        .processors(args.processors)
        .memory(args.memory)
        .mtu(args.mtu);
    if let Some(file) = &args.capture {
        spec = spec.capture(file);
    }
    Ok(spec.boot()?)
}

fn serve<'a>(args: &RunArgs, lab: &'a Lab) -> anyhow::Result<Option<Job<'a>>> {
    let Some(command) = &args.serve else {
        return Ok(None);
    };
    let mut words = command.split(' ').filter(|word| !word.is_empty());
    let name = words.next().context("--serve is empty")?;
    let program = Program::new(in_guest(name)).args(words).limit(args.limit);
    let last = lab.machines().last().context("no machine")?;
    let server = last.start_program(&program)?;
    last.wait_until_listening(args.serve_port, SERVER_TIMEOUT)?;
    Ok(Some(server))
}

/// What the program is called in the guest: files are there at the same absolute path.
fn in_guest(name: &str) -> String {
    if !name.contains('/') {
        return name.to_owned();
    }
    std::path::absolute(name).map_or_else(
        |_| name.to_owned(),
        |path| path.to_string_lossy().into_owned(),
    )
}

fn pass_on(job: &Job<'_>) -> anyhow::Result<Ending> {
    loop {
        match job.progress()? {
            Progress::Stdout(bytes) => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(&bytes).context("standard output")?;
                stdout.flush().context("standard output")?;
            }
            Progress::Stderr(bytes) => std::io::stderr().write_all(&bytes)?,
            Progress::Ended(ending) => return Ok(ending),
        }
    }
}

fn status(ending: Ending, limit: Span) -> u8 {
    match ending {
        Ending::Exited(code) => code as u8,
        Ending::Signaled(signal) => (SIGNAL_BASE + signal) as u8,
        Ending::LimitReached => {
            eprintln!("adverb-vm: the program was killed: its limit of {limit} was reached");
            LIMIT_REACHED
        }
    }
}
