//! `adverb doctor`: checks the RDMA setup of this machine.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use adverb_doctor::{Finding, Machine, Process, Scope, Verdict, counted, examine, text};
use adverb_launch::{DeviceChoice, Usage};
use clap::builder::styling::{AnsiColor, Style};
use serde_json::json;

use crate::args::{DoctorArgs, Format};
use crate::terminal;

/// Widest text; longer lines are hard to read.
const MAX_WIDTH: usize = 100;

/// `adverb doctor`: status 1 if something is broken.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let machine = Machine::gather(Path::new("/"), Process::this())?;
    let scope = args.device.as_ref().map_or(Ok(Scope::All), scope)?;
    let findings = examine(&machine, &scope).map_err(|e| Usage(format!("--device: {e}")))?;
    let mut out = terminal::stdout();
    if args.format == Format::Json {
        writeln!(out, "{}", json(&findings))?;
    } else {
        let width = textwrap::termwidth().min(MAX_WIDTH);
        write!(out, "{}", text(&findings, width, &painted))?;
    }
    let broken = counted(&findings, Verdict::Broken) > 0;
    Ok(ExitCode::from(u8::from(broken)))
}

/// Returns the scope: all ports of a device, even if the name chooses one; another may be the better choice.
fn scope(device: &DeviceChoice) -> Result<Scope, Usage> {
    match device {
        DeviceChoice::Soft(_) => Ok(Scope::Soft),
        DeviceChoice::Verbs(device) => Ok(Scope::Verbs(device.ibv_name().to_owned())),
        DeviceChoice::Model(_) => Err(Usage(format!(
            "--device {device}: a model needs nothing from this machine, so there is nothing to check"
        ))),
        DeviceChoice::Tcp(_) => Err(Usage(format!(
            "--device {device}: the checks are of RDMA, which {device} does not use; leave it out"
        ))),
    }
}

fn json(findings: &[Finding]) -> serde_json::Value {
    let count = |verdict| counted(findings, verdict);
    json!({
        "broken": count(Verdict::Broken),
        "warnings": count(Verdict::Warning),
        "notes": count(Verdict::Note),
        "ok": count(Verdict::Ok),
        "findings": findings,
    })
}

fn painted(verdict: Verdict, word: &str) -> String {
    let style: Style = match verdict {
        Verdict::Ok => AnsiColor::Green.on_default(),
        Verdict::Note => AnsiColor::Cyan.on_default(),
        Verdict::Warning => AnsiColor::Yellow.on_default().bold(),
        Verdict::Broken => AnsiColor::Red.on_default().bold(),
    };
    format!("{style}{word}{style:#}")
}
