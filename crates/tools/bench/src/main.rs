//! `adverb-bench`: compares Adverb with this machine's limits, other programs and perftest.
//!
//! Every figure is a ratio of two measurements taken in turn, in one run, by processes (or threads)
//! pinned to the same two cores. The tables show medians over the rounds and their spread: on a shared
//! machine a single time means little.
//!
//! Adverb's own figures come from the `adverb` binary, as a user would get them.

mod adverb;
mod child;
mod degen;
mod guests;
mod iperf;
mod lab;
mod link;
mod machine;
mod memcached;
mod memory;
mod model;
mod perftest;
mod polls;
mod row;
mod rows;
mod seam;
mod startup;
mod stats;
mod table;
mod tcp;
mod timestamp;
mod ucx;
mod udp;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};

use row::{Bound, Row, Setting};
use rows::{SECTIONS, Section};

/// Adverb compared with others, as ratios of one run
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Only the rows whose name contains this
    #[arg(long, global = true, value_name = "TEXT")]
    only: Option<String>,
    /// Print one JSON object a row instead of tables
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare Adverb with UCX, memcpy, sockets and the bare cache line (`make bench`)
    Bounds {
        /// Measurements of each pair; the median counts
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
        rounds: u32,
    },
    Perftest(perftest::PerftestArgs),
    /// Run as one side of a bare UDP measurement
    #[command(hide = true)]
    Udp(udp::Side),
    /// Run as the passive side of a bare TCP measurement
    #[command(hide = true)]
    Tcp(tcp::Side),
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether no row misses a bound that decides the exit status.
fn run(cli: &Cli) -> Result<bool> {
    let only = cli.only.as_deref();
    match &cli.command {
        Command::Bounds { rounds } => bounds(&setting(*rounds, None)?, only, cli.json),
        Command::Perftest(args) => {
            let rounds = args.rounds().unwrap_or_else(|wrong| wrong.exit());
            args.run(&setting(rounds, args.adverb.clone())?, only, cli.json)
        }
        Command::Udp(side) => side.run().map(|()| true),
        Command::Tcp(side) => side.run().map(|()| true),
    }
}

fn setting(rounds: u32, adverb: Option<PathBuf>) -> Result<Setting> {
    let cores = adverb_host::usable_cores();
    ensure!(!cores.is_empty(), "this process may use no core");
    Ok(Setting {
        cores: [cores[0], *cores.get(1).unwrap_or(&cores[0])],
        adverb: adverb.map_or_else(|| child::find("adverb"), Ok)?,
        rounds,
        lab: lab::LazyLab::default(),
    })
}

fn bounds(setting: &Setting, only: Option<&str>, json: bool) -> Result<bool> {
    let [active, passive] = setting.cores;
    ensure!(
        active != passive,
        "the comparisons need two cores, this process may use core {active} only"
    );
    let mut tables = Vec::new();
    for section in SECTIONS {
        let rows = measure(section, setting, only)?;
        if !rows.is_empty() {
            tables.push((section.title, rows));
        }
    }
    ensure!(
        !tables.is_empty(),
        "no row's name contains '{}'",
        only.unwrap_or("")
    );
    let rows = || tables.iter().flat_map(|(_, rows)| rows);
    if json {
        rows().for_each(|row| println!("{}", table::json(row)));
        return Ok(true);
    }
    table::print_machine(setting);
    let width = rows().map(|row| row.name.chars().count()).max();
    for (title, rows) in &tables {
        table::print(title, "reference", rows, width.unwrap_or(0));
    }
    println!();
    rows().for_each(|row| println!("{}: {}", row.name, row.what));
    Ok(true)
}

/// The rows of a section whose name contains `only`.
fn measure(section: &Section, setting: &Setting, only: Option<&str>) -> Result<Vec<Row>> {
    let wanted = |bound: &&Bound| only.is_none_or(|only| bound.name.contains(only));
    let mut rows = Vec::new();
    for bound in section.bounds.iter().filter(wanted) {
        eprintln!("measuring: {} …", bound.name);
        let row = bound.measure(setting);
        rows.push(row.with_context(|| bound.name.to_owned())?);
    }
    Ok(rows)
}
