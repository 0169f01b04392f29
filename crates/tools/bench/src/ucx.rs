//! UCX over shared memory, by its own benchmark.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::child::{Ended, free_port, is_installed, spawn_on};

pub(crate) const NEEDS: &str = "ucx_perftest is not installed (Debian: ucx-utils)";

/// One-way time in ns of `tag_lat`; `None` if UCX is not installed.
pub(crate) fn latency(cores: [u32; 2], size: u32) -> Result<Option<f64>> {
    // Columns of the "Final:" line: iterations, typical, average, overall latency (µs) …
    Ok(perftest(cores, "tag_lat", size, 1_000_000)?.map(|columns| columns[3] * 1e3))
}

/// Messages per second of `tag_bw`; `None` if UCX is not installed.
pub(crate) fn message_rate(cores: [u32; 2], size: u32) -> Result<Option<f64>> {
    Ok(perftest(cores, "tag_bw", size, 3_000_000)?.map(|columns| columns[7]))
}

fn perftest(cores: [u32; 2], test: &str, size: u32, count: u32) -> Result<Option<Vec<f64>>> {
    const PROGRAM: &str = "ucx_perftest";
    if !is_installed(PROGRAM) {
        return Ok(None);
    }
    let port = free_port()?;
    let start = |core, args: &str| {
        let mut command = Command::new(PROGRAM);
        command
            .args(["-p", &port.to_string()])
            .args(args.split_whitespace())
            .env("UCX_TLS", "posix,self")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        spawn_on(core, command)
    };
    let mut server = Ended(start(cores[1], "")?);
    server.wait_until_it_listens(port, PROGRAM)?;
    let client = start(
        cores[0],
        &format!("127.0.0.1 -t {test} -s {size} -n {count}"),
    )?;
    let output = client
        .wait_with_output()
        .context("ucx_perftest did not end")?;
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
