//! Figures of the `adverb` binary, from its `--json`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::bounds::Setting;

/// The `adverb` binary beside this one.
pub(crate) fn find() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let adverb = own.with_file_name("adverb");
    ensure!(
        adverb.is_file(),
        "{} is not there: build it with `cargo build --release -p adverb`",
        adverb.display()
    );
    Ok(adverb)
}

/// Mean one-way time in ns.
pub(crate) fn one_way(setting: &Setting, args: &[&str]) -> Result<f64> {
    figure(setting, args, "/metrics/one_way_ns/mean")
}

pub(crate) fn messages_per_second(setting: &Setting, args: &[&str]) -> Result<f64> {
    figure(setting, args, "/metrics/messages_per_s")
}

pub(crate) fn bytes_per_second(setting: &Setting, args: &[&str]) -> Result<f64> {
    figure(setting, args, "/metrics/bytes_per_s")
}

/// CPU in percent of a core of `side`: `active` or `passive`.
pub(crate) fn cpu_percent(setting: &Setting, args: &[&str], side: &str) -> Result<f64> {
    figure(setting, args, &format!("/metrics/cpu/{side}/percent"))
}

fn figure(setting: &Setting, args: &[&str], pointer: &str) -> Result<f64> {
    let [active, passive] = setting.cores;
    let output = Command::new(&setting.adverb)
        .args(args)
        .args([
            "--duration",
            "300ms",
            "--json",
            "--cpu",
            &format!("{active},{passive}"),
        ])
        .output()
        .context("cannot start adverb")?;
    let talk = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "adverb {}: {}",
        args.join(" "),
        talk.trim()
    );
    let record: Value = serde_json::from_slice(&output.stdout).context("adverb printed no JSON")?;
    record
        .pointer(pointer)
        .and_then(Value::as_f64)
        .with_context(|| format!("no {pointer} in {record}"))
}
