//! One TCP stream over the loopback device, by iperf3.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::child::{Ended, free_port, is_installed};

pub(crate) const NEEDS: &str = "iperf3 is not installed (Debian: iperf3)";

/// Bytes per second of one stream of messages of this length, without its first second; `None` if iperf3 is not
/// installed.
pub(crate) fn stream(cores: [u32; 2], length: &str) -> Result<Option<f64>> {
    stream_between(cores, ("127.0.0.1", length), &["-t", "1"], &|_| Ok(()))
}

/// The same with a server at `ip`, and further options of the client. `enter` moves the calling thread to the
/// end of a path where the server (1) or the client (0) is started.
pub(crate) fn stream_between(
    cores: [u32; 2],
    (ip, length): (&str, &str),
    options: &[&str],
    enter: &dyn Fn(usize) -> Result<()>,
) -> Result<Option<f64>> {
    if !is_installed("iperf3") {
        return Ok(None);
    }
    enter(1)?;
    let port = free_port()?;
    let server = Command::new("iperf3")
        .args(["-s", "-1", "-B", ip, "-p", &port.to_string()])
        .args(["-A", &cores[1].to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start iperf3")?;
    let mut server = Ended(server);
    server.wait_until_it_listens(port, "iperf3")?;
    enter(0)?;
    let client = Command::new("iperf3")
        .args(["-c", ip, "-p", &port.to_string()])
        .args(["-O", "1", "-l", length])
        .args(options)
        .args(["-A", &cores[0].to_string(), "-J"])
        .output()
        .context("cannot start iperf3")?;
    let record: Value = serde_json::from_slice(&client.stdout).context("iperf3 printed no JSON")?;
    let rate = record.pointer("/end/sum_received/bits_per_second");
    let bits = rate.and_then(Value::as_f64).with_context(|| {
        let why = record.get("error").and_then(Value::as_str);
        format!("iperf3: {}", why.unwrap_or("it printed no rate"))
    })?;
    Ok(Some(bits / 8.0))
}
