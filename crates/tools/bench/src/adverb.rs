//! Figures of the `adverb` binary, from its `--json`.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::child::Ended;
use crate::row::{Pair, Setting};

/// Names the optimization of the UDP port to turn off.
const UDP_WITHOUT: &str = "ADVERB_UDP_WITHOUT";

/// How long a cell is measured.
const FOR: &str = "--duration 300ms";

/// Mean one-way time in ns.
pub(crate) fn one_way(setting: &Setting, command: &str) -> Result<f64> {
    figure(setting, command, "/metrics/one_way_ns/mean")
}

pub(crate) fn messages_per_second(setting: &Setting, command: &str) -> Result<f64> {
    figure(setting, command, "/metrics/messages_per_s")
}

/// Messages per second of 32 runs at the same time on the same cores, and of one.
pub(crate) fn of_32_and_of_one(setting: &Setting, command: &str) -> Result<Pair> {
    let rate = |runs| messages_per_second_of(setting, command, runs);
    Ok((rate(32)?, rate(1)?))
}

/// All messages of the runs over the time from the first start to the last end: the measurements of the runs overlap
/// only in part.
fn messages_per_second_of(setting: &Setting, command: &str, runs: u32) -> Result<f64> {
    let (command, cores) = (format!("{command} --duration 1s"), both(setting));
    let start = Instant::now();
    let printed: Result<Vec<_>> = std::thread::scope(|scope| {
        let run = || run(setting, &command, Some(&cores));
        let runs: Vec<_> = (0..runs).map(|_| scope.spawn(run)).collect();
        let results = runs.into_iter().map(|run| run.join().expect("no panic"));
        results.collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    let messages = |printed: Vec<u8>| -> Result<f64> {
        let rate = figure_in(&printed, "/metrics/messages_per_s")?;
        Ok(rate * figure_in(&printed, "/metrics/elapsed_ns")? / 1e9)
    };
    let messages: Result<f64> = printed?.into_iter().map(messages).sum();
    Ok(messages? / seconds)
}

pub(crate) fn bytes_per_second(setting: &Setting, command: &str) -> Result<f64> {
    figure(setting, command, "/metrics/bytes_per_s")
}

/// CPU in percent of a core of `side`: `active` or `passive`.
pub(crate) fn cpu_percent(setting: &Setting, command: &str, side: &str) -> Result<f64> {
    figure(setting, command, &format!("/metrics/cpu/{side}/percent"))
}

/// Mean one-way time in ns over the UDP port, between two processes at two loopback addresses.
pub(crate) fn one_way_over_udp(setting: &Setting, command: &str) -> Result<f64> {
    over_udp(setting, command, "/metrics/one_way_ns/mean", "")
}

/// Median one-way time in ns over the UDP port, between the same addresses.
pub(crate) fn median_over_udp(setting: &Setting, command: &str) -> Result<f64> {
    over_udp(setting, command, "/metrics/one_way_ns/p50", "")
}

/// The median one-way time as it is, and without an optimization of the port.
pub(crate) fn one_way_with_and_without(setting: &Setting, optimization: &str) -> Result<Pair> {
    let ping = "ping --op send --size 64";
    let without = over_udp(setting, ping, "/metrics/one_way_ns/p50", optimization)?;
    Ok((median_over_udp(setting, ping)?, without))
}

/// The same of bytes per second.
pub(crate) fn bytes_per_second_over_udp(setting: &Setting, command: &str) -> Result<f64> {
    over_udp(setting, command, "/metrics/bytes_per_s", "")
}

/// Requests per second of more roles than cores, which the kernel places.
pub(crate) fn requests_per_second(setting: &Setting, command: &str) -> Result<f64> {
    let printed = run(setting, &format!("{command} {FOR} --no-pin"), None)?;
    figure_in(&printed, "/metrics/requests_per_s")
}

/// Requests per second of a service with one server core and one client.
pub(crate) fn served_per_second(setting: &Setting, command: &str) -> Result<f64> {
    figure(setting, command, "/metrics/requests_per_s")
}

/// Requests per second of a program with some of its roles at `adverb serve` on this host.
pub(crate) fn requests_per_second_served(setting: &Setting, command: &str) -> Result<f64> {
    let (_server, address) = serve(setting, &["--device", "soft", "--no-pin"], "")?;
    requests_per_second(setting, &format!("{command} --peer {address}"))
}

fn over_udp(setting: &Setting, command: &str, pointer: &str, without: &str) -> Result<f64> {
    let [active, passive] = setting.cores.map(|core| core.to_string());
    let device = ["--device", "soft@127.0.0.1", "--cpu", &passive];
    let (_server, address) = serve(setting, &device, without)?;
    let command = format!("{command} {FOR} --device soft@127.0.0.2 --peer {address}");
    let printed = run_without(setting, &command, Some(&active), without)?;
    figure_in(&printed, pointer)
}

/// Bytes per second of a command between two ends of a path. `enter` moves the calling thread
/// to one of them.
pub(crate) fn bytes_per_second_between(
    setting: &Setting,
    command: &str,
    [near, far]: [&str; 2],
    enter: &dyn Fn(usize) -> Result<()>,
) -> Result<f64> {
    let [active, passive] = setting.cores.map(|core| core.to_string());
    enter(1)?;
    let device = format!("soft@{far}");
    let device = ["--device", &device, "--cpu", &passive];
    let (_server, address) = serve_at(setting, far, &device, "")?;
    enter(0)?;
    let command = format!("{command} --device soft@{near} --peer {address}");
    figure_in(
        &run(setting, &command, Some(&active))?,
        "/metrics/bytes_per_s",
    )
}

/// Starts `adverb serve` for one session; returns the process and where it listens.
fn serve(setting: &Setting, options: &[&str], without: &str) -> Result<(Ended, String)> {
    serve_at(setting, "127.0.0.1", options, without)
}

fn serve_at(
    setting: &Setting,
    ip: &str,
    options: &[&str],
    without: &str,
) -> Result<(Ended, String)> {
    let server = Command::new(&setting.adverb)
        .args(["serve", "--once", "--bind", &format!("{ip}:0")])
        .args(options)
        .env(UDP_WITHOUT, without)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start adverb")?;
    let mut server = Ended(server);
    let mut talk = BufReader::new(server.0.stderr.take().context("stderr is a pipe")?);
    let mut first = String::new();
    talk.read_line(&mut first)?;
    let address = first
        .strip_prefix("listening at ")
        .and_then(|rest| rest.split(',').next())
        .with_context(|| format!("adverb serve: {first}"))?;
    let address = address.to_owned();
    // Nobody reads on: the pipe's end must stay open as long as the server may write.
    server.0.stderr = Some(talk.into_inner());
    Ok((server, address))
}

fn figure(setting: &Setting, command: &str, pointer: &str) -> Result<f64> {
    let printed = run(setting, &format!("{command} {FOR}"), Some(&both(setting)))?;
    figure_in(&printed, pointer)
}

/// The cores of both sides, as `--cpu` takes them.
pub(crate) fn both(setting: &Setting) -> String {
    let [active, passive] = setting.cores;
    format!("{active},{passive}")
}

/// Runs a command of `adverb` on these cores, if any are given; returns what it prints.
pub(crate) fn run(setting: &Setting, command: &str, cores: Option<&str>) -> Result<Vec<u8>> {
    run_without(setting, command, cores, "")
}

fn run_without(
    setting: &Setting,
    command: &str,
    cores: Option<&str>,
    without: &str,
) -> Result<Vec<u8>> {
    let output = Command::new(&setting.adverb)
        .env(UDP_WITHOUT, without)
        .args(command.split(' '))
        .args(cores.iter().flat_map(|cores| ["--cpu", *cores]))
        .arg("--json")
        .output()
        .context("cannot start adverb")?;
    let talk = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "adverb {command}: {}", talk.trim());
    Ok(output.stdout)
}

/// A figure of a record, as `--json` prints it.
pub(crate) fn figure_in(printed: &[u8], pointer: &str) -> Result<f64> {
    let record: Value = serde_json::from_slice(printed).context("adverb printed no JSON")?;
    record
        .pointer(pointer)
        .and_then(Value::as_f64)
        .with_context(|| format!("no {pointer} in {record}"))
}
