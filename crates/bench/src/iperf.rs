//! One TCP stream over the loopback device, by iperf3.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::child::{Ended, free_port, is_installed};

pub(crate) const NEEDS: &str = "iperf3 is not installed (Debian: iperf3)";

/// Bytes per second of one stream; none where iperf3 is not installed.
pub(crate) fn stream(cores: [u32; 2]) -> Result<Option<f64>> {
    if !is_installed("iperf3") {
        return Ok(None);
    }
    let port = free_port()?;
    let [active, passive] = cores.map(|core| core.to_string());
    let _server = listening(&port, &passive)?;
    let client = Command::new("iperf3")
        .args(["-c", "127.0.0.1", "-p", &port, "-t", "1"])
        .args(["-A", &active, "-J"])
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

/// The server, once it listens.
fn listening(port: &str, core: &str) -> Result<Ended> {
    let server = Command::new("iperf3")
        .args(["-s", "-1", "--forceflush", "-B", "127.0.0.1"])
        .args(["-p", port, "-A", core])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start iperf3")?;
    let mut server = Ended(server);
    let talk = server.0.stdout.as_mut().context("stdout is a pipe")?;
    for line in BufReader::new(talk).lines() {
        if line?.contains("listening") {
            return Ok(server);
        }
    }
    bail!("iperf3 does not listen at port {port}")
}
