//! `adverb degen`: a path between two network namespaces, and the programs at its ends.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use adverb_degen::{DirectionCounts, Router};
use adverb_launch::{CannotRun, Interrupt};
use anyhow::Context as _;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use crate::args::DegenArgs;
use crate::terminal;

pub(crate) fn run(args: &DegenArgs) -> anyhow::Result<ExitCode> {
    let (how, addresses) = (args.impairment()?, args.addresses()?);
    // First, so that a signal also ends a path that is just being made in an orderly way.
    let interrupt = Interrupt::listen()?;
    // Before any thread starts: the process may enter a user namespace.
    let path = adverb_degen::Path::make(&args.ends(), addresses, args.mtu)?;
    let [near, far] = addresses;
    let path_is = format!("near {near}, far {far}, MTU {}: {how}", args.mtu);
    let Some((name, arguments)) = args.program.split_first() else {
        terminal::say(&format!("{path_is}; Ctrl-C ends the path"));
        let mut router = Router::new(&path, how);
        router.run(&[interrupt.fd()])?;
        report(&router.counts());
        return Ok(ExitCode::SUCCESS);
    };
    terminal::say(&path_is);
    let far = args.far.as_ref().map(|line| {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        FarProgram::start(&path, command)
    });
    let mut far = far.transpose()?;
    let mut command = Command::new(name);
    command.args(arguments);
    command.env("ADVERB_FAR", adverb_degen::Path::far_prefix());
    let started = path.spawn(0, &mut command)?;
    let mut child = started.map_err(|e| CannotRun::after_spawn(Path::new(name), &e))?;
    let ended = pidfd(&child)?;
    let mut router = Router::new(&path, how);
    if router.run(&[ended.as_fd(), interrupt.fd()])? == 1 {
        // Ctrl-C signals the whole process group. COMMAND decides when it ends.
        let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        router.run(&[ended.as_fd()])?;
    }
    let status = child.wait().context("cannot wait for COMMAND")?;
    if let Some(status) = far.as_mut().and_then(FarProgram::failed) {
        terminal::warn(&format!("--far ended before COMMAND: {status}"));
    }
    drop(far);
    report(&router.counts());
    Ok(exit_code(status))
}

/// Returns a descriptor that is readable once the process has ended.
fn pidfd(child: &Child) -> anyhow::Result<OwnedFd> {
    let opened = pidfd_open(Pid::from_child(child), PidfdFlags::empty());
    opened.context("cannot open a pidfd of COMMAND")
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let signal = || 128 + status.signal().unwrap_or(0);
    let code = status.code().unwrap_or_else(signal);
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The program at the far end, in a process group of its own, which dropping this ends.
pub(crate) struct FarProgram(Child);

impl FarProgram {
    pub(crate) fn start(path: &adverb_degen::Path, mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).process_group(0);
        let started = path.spawn(1, &mut command)?;
        let name = Path::new(command.get_program());
        let child = started.map_err(|e| CannotRun::after_spawn(name, &e))?;
        Ok(FarProgram(child))
    }

    /// Returns how it has ended, if it failed.
    fn failed(&mut self) -> Option<ExitStatus> {
        let ended = self.0.try_wait().ok().flatten();
        ended.filter(|status| !status.success())
    }
}

impl Drop for FarProgram {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Prints what passed in each direction.
pub(crate) fn report(counts: &[DirectionCounts; 2]) {
    for (way, counts) in ["near to far", "far to near"].iter().zip(counts) {
        terminal::say(&format!("{way}: {}", summary(counts)));
    }
}

/// `1000 packets, 10 lost, 3 duplicated`.
fn summary(counts: &DirectionCounts) -> String {
    let mut text = format!("{} packets", counts.arrived);
    let faults = counts.impaired.iter().map(|(name, count)| {
        let name = name.trim_start_matches("impaired_");
        (name.trim_end_matches("_pkts"), *count)
    });
    let refused = ("refused by the other end", counts.refused);
    for (what, count) in faults.chain([refused]).filter(|(_, count)| *count != 0) {
        let what = match what {
            "overflow" => "dropped by the full queue",
            what => what,
        };
        text += &format!(", {count} {what}");
    }
    text
}
