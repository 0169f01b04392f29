//! Programs in two virtual machines that are joined by a link and have the kernel's Soft-RoCE.
//!
//! Their processors are emulated: absolute times mean nothing. The ratio of two alternating measurements shows
//! which of two programs needs more of such a processor.

use std::path::PathBuf;

use adverb_units::Span;
use adverb_vm::{Job, Lab, Machine, Output, Program};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::adverb::figure_in;
use crate::child::is_installed;
use crate::row::{self, Pair, Setting};

pub(crate) const NEEDS: &str =
    "the virtual machines lack something, `adverb-vm check` names it (Debian: qemu-system-x86)";
pub(crate) const NEEDS_PERFTEST: &str =
    "perftest is not installed, or the virtual machines lack something: see `adverb-vm check`";

/// The first machine's address.
const HERE: &str = "10.77.0.1";
/// Where the passive side listens, at the second machine's address.
const PEER: &str = "10.77.0.2";
const PORT: u16 = 18600;
/// Devices of the active and the passive side. Soft-RoCE has the usual UDP port of both addresses; the
/// user-space NICs take the next one.
const SOFT: [&str; 2] = ["soft@10.77.0.1", "soft@10.77.0.2"];
const SOFT_ROCE: [&str; 2] = ["verbs:rxe0", "verbs:rxe0"];
/// A server has to start on an emulated processor.
const TIMEOUT: Span = Span::from_secs(60);
const CELL: Span = Span::from_secs(120);
const COMPARISON: Span = Span::from_secs(3600);
/// Fewer rounds would leave the median of an emulated machine to chance.
const FEWEST_ROUNDS: u32 = 11;

/// A cell of `adverb`, and the place of the figure in its record.
#[derive(Clone, Copy)]
pub(crate) struct Cell {
    /// The command without devices and peer.
    pub(crate) command: &'static str,
    pub(crate) figure: &'static str,
}

/// Figures of a cell between the user-space NICs, and between the Soft-RoCE devices.
pub(crate) fn over_the_link(setting: &Setting, cell: Cell) -> Result<Option<Vec<Pair>>> {
    let between = |devices| move |lab: &Lab| figure(lab, setting, devices, cell);
    in_turn(setting, between(SOFT), between(SOFT_ROCE))
}

/// Pairs of figures that are measured in turn, every second time the reference first.
fn in_turn(
    setting: &Setting,
    ours: impl Fn(&Lab) -> Result<f64>,
    reference: impl Fn(&Lab) -> Result<f64>,
) -> Result<Option<Vec<Pair>>> {
    let Some(lab) = setting.lab.get()? else {
        return Ok(None);
    };
    let pair = |round| row::in_turn(round, || ours(lab), || reference(lab));
    let rounds = setting.rounds.max(FEWEST_ROUNDS);
    (0..rounds).map(pair).collect::<Result<_>>().map(Some)
}

fn figure(lab: &Lab, setting: &Setting, devices: [&str; 2], cell: Cell) -> Result<f64> {
    figure_in(&record(lab, setting, devices, cell.command)?, cell.figure)
}

/// The record of a cell between the machines, both sides on their machine's first processor.
fn record(
    lab: &Lab,
    setting: &Setting,
    [active, passive]: [&str; 2],
    command: &str,
) -> Result<Vec<u8>> {
    let adverb = setting.adverb.to_string_lossy();
    let (here, there) = (lab.machine(0), lab.machine(1));
    let listen = format!("{PEER}:{PORT}");
    let serve = ["serve", "--once", "--bind", &listen, "--device", passive];
    let server = Program::new(&*adverb).args(serve).args(["--cpu", "0"]);
    let server = start(there, &server.limit(CELL))?;
    let with = ["--device", active, "--peer", &listen, "--cpu", "0"];
    let client = Program::new(&*adverb).args(command.split(' ')).args(with);
    let client = client.args(["--json"]).limit(CELL);
    let measured = here.run(&client)?;
    if !measured.success() {
        server.kill()?;
    }
    let served = server.output()?;
    ensure!(
        measured.success() && served.success(),
        "adverb {command} on {active}: {} {}",
        talk(&measured),
        talk(&served)
    );
    Ok(measured.stdout)
}

/// Returns figures of a cell between the user-space NICs, and of bare UDP between `sides`, the names of the
/// passive and the active role.
pub(crate) fn against_bare_udp(
    setting: &Setting,
    cell: Cell,
    sides: [&str; 2],
) -> Result<Option<Vec<Pair>>> {
    in_turn(
        setting,
        |lab| figure(lab, setting, SOFT, cell),
        |lab| bare_udp(lab, sides),
    )
}

fn bare_udp(lab: &Lab, [passive, active]: [&str; 2]) -> Result<f64> {
    let own = own_program()?;
    let side = |role| Program::new(own.to_string_lossy()).args(["udp", role, "--core", "0"]);
    let (here, there) = (format!("{HERE}:{PORT}"), format!("{PEER}:{PORT}"));
    let server = side(passive).args(["--at", &there]).limit(CELL);
    let server = start(lab.machine(1), &server)?;
    let client = side(active).args(["--at", &here, "--to", &there]);
    let measured = lab.machine(0).run(&client.limit(CELL))?;
    server.kill()?;
    server.output()?;
    ensure!(measured.success(), "bare UDP: {}", talk(&measured));
    let figure = String::from_utf8_lossy(&measured.stdout).trim().parse();
    figure.context("the active side of bare UDP printed no figure")
}

fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program")
}

/// Starts a server and waits until it listens.
fn start<'a>(machine: &'a Machine, server: &Program) -> Result<Job<'a>> {
    let job = machine.start_program(server)?;
    machine.wait_until_listening(PORT, TIMEOUT)?;
    Ok(job)
}

/// Returns figures of Adverb and of perftest on the first machine, from the row of this program's `perftest`
/// that contains `row`.
pub(crate) fn perftest(setting: &Setting, row: &str) -> Result<Option<Vec<Pair>>> {
    if !is_installed("ib_send_lat") {
        return Ok(None);
    }
    let Some(lab) = setting.lab.get()? else {
        return Ok(None);
    };
    let rounds = setting.rounds.max(FEWEST_ROUNDS).to_string();
    let compare = Program::new(own_program()?.to_string_lossy())
        .args(["perftest", "--device", "rxe0", "--only", row, "--json"])
        .args(["--purpose", "check", "--rounds", &rounds])
        .limit(COMPARISON);
    let output = lab.machine(0).run(&compare)?;
    ensure!(output.success(), "perftest: {}", talk(&output));
    let printed: Value = serde_json::from_slice(&output.stdout).context("not one row")?;
    let pairs = printed.get("pairs").cloned().unwrap_or_default();
    let pairs = serde_json::from_value(pairs).context("a row without pairs")?;
    Ok(Some(pairs))
}

fn talk(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}
