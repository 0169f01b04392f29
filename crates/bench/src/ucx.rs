//! UCX over shared memory, by its own benchmark.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::child::{free_port, is_installed};

pub(crate) const NEEDS: &str = "ucx_perftest is not installed (Debian: ucx-utils)";

/// One-way time in ns of `tag_lat`; none where UCX is not installed.
pub(crate) fn latency(cores: [u32; 2], size: u32) -> Result<Option<f64>> {
    // Columns of the "Final:" line: iterations, typical, average, overall latency (µs) …
    Ok(perftest(cores, "tag_lat", size, 1_000_000)?.map(|columns| columns[3] * 1e3))
}

/// Messages per second of `tag_bw`; none where UCX is not installed.
pub(crate) fn message_rate(cores: [u32; 2], size: u32) -> Result<Option<f64>> {
    Ok(perftest(cores, "tag_bw", size, 3_000_000)?.map(|columns| columns[7]))
}

fn perftest(cores: [u32; 2], test: &str, size: u32, count: u32) -> Result<Option<Vec<f64>>> {
    let port = free_port()?;
    let Some(mut server) = start(cores[1], &["-p", &port])? else {
        return Ok(None);
    };
    std::thread::sleep(Duration::from_millis(300));
    let (size, count) = (size.to_string(), count.to_string());
    let args = [
        "127.0.0.1",
        "-p",
        &port,
        "-t",
        test,
        "-s",
        &size,
        "-n",
        &count,
    ];
    let client = start(cores[0], &args)?.context("ucx_perftest went away")?;
    let output = client
        .wait_with_output()
        .context("ucx_perftest did not end")?;
    if !output.status.success() {
        let _ = server.kill();
    }
    let _ = server.wait();
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().find(|line| line.starts_with("Final:"));
    let columns: Vec<f64> = last
        .unwrap_or("")
        .split_whitespace()
        .skip(1)
        .filter_map(|c| c.parse().ok())
        .collect();
    ensure!(
        columns.len() == 8,
        "ucx_perftest {test} printed no result: {text}"
    );
    Ok(Some(columns))
}

/// Starts it pinned; none where it is not installed.
fn start(core: u32, args: &[&str]) -> Result<Option<Child>> {
    let started = Command::new("taskset")
        .args(["-c", &core.to_string(), "ucx_perftest"])
        .args(args)
        .env("UCX_TLS", "posix,self")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start taskset (Debian: util-linux)")?;
    if is_installed("ucx_perftest") {
        return Ok(Some(started));
    }
    let mut started = started;
    let _ = started.wait();
    Ok(None)
}
