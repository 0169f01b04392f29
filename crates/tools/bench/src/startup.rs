//! What `adverb run` adds to the start of a program.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::child::is_installed;
use crate::row::{Pair, Setting};

const PROGRAM: &str = "ibv_devices";
pub(crate) const NEEDS: &str = "ibv_devices is not installed (Debian: ibverbs-utils)";
const STARTS: u32 = 20;

/// The shortest times in ns with and without `adverb run`, started in turn; `None` if the program is not installed.
pub(crate) fn pair(setting: &Setting) -> Result<Option<Pair>> {
    if !is_installed(PROGRAM) {
        return Ok(None);
    }
    let mut least = (f64::INFINITY, f64::INFINITY);
    for _ in 0..STARTS {
        let mut over = Command::new(&setting.adverb);
        least.0 = least.0.min(time(over.args(["run", "--", PROGRAM]), true)?);
        // Without a device it fails, but has started all the same.
        least.1 = least.1.min(time(&mut Command::new(PROGRAM), false)?);
    }
    Ok(Some(least))
}

fn time(command: &mut Command, succeeds: bool) -> Result<f64> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().context("cannot start a program")?;
    let time = start.elapsed();
    ensure!(
        status.success() || !succeeds,
        "adverb run -- {PROGRAM}: {status}"
    );
    Ok(time.as_secs_f64() * 1e9)
}
