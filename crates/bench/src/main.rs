//! `make bench`: the user-space NIC held against this machine and its peers.
//!
//! Every figure is a ratio of two measurements taken in turn, in one run, by processes (or threads)
//! pinned on the same two cores. The table gives the median over the rounds and its spread: these
//! machines are shared, so a single time means little.
//!
//! Adverb's own figures come from the `adverb` binary, as a user would get them.

mod adverb;
mod bounds;
mod child;
mod iperf;
mod machine;
mod model;
mod seam;
mod ucx;
mod udp;

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

use bounds::{Row, Verdict};

/// Adverb beside UCX, memcpy and the bare cache line, as ratios of one run.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// How often each pair is measured; the median counts.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One JSON object a row instead of the table.
    #[arg(long)]
    json: bool,
    /// Only the rows whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// `cargo bench` passes it; it means nothing here.
    #[arg(long, hide = true)]
    bench: bool,
    /// The passive side of the bare UDP ping, on this core.
    #[arg(long, hide = true)]
    udp_echo: Option<u32>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if let Some(core) = args.udp_echo {
        return udp::echo(core);
    }
    let cores = adverb_host::usable_cores();
    let &[first, second, ..] = &cores[..] else {
        ensure!(
            cores.len() > 1,
            "the comparisons need two cores, this process may use {cores:?}"
        );
        return Ok(());
    };
    let setting = bounds::Setting {
        cores: [first, second],
        adverb: adverb::find()?,
        rounds: args.rounds,
    };
    let wanted = |row: &&bounds::Bound| {
        args.only
            .as_ref()
            .is_none_or(|only| row.name.contains(only))
    };
    let mut rows = Vec::new();
    for bound in bounds::BOUNDS.iter().filter(wanted) {
        eprintln!("measuring: {} …", bound.name);
        rows.push(
            bound
                .measure(&setting)
                .with_context(|| bound.name.to_owned())?,
        );
    }
    ensure!(
        !rows.is_empty(),
        "no row's name contains '{}'",
        args.only.as_deref().unwrap_or("")
    );
    if args.json {
        rows.iter().for_each(|row| println!("{}", row.json()));
    } else {
        print_table(&rows);
    }
    Ok(())
}

fn print_table(rows: &[Row]) {
    let machine = adverb_host::Machine::this();
    println!(
        "{}, Linux {}, adverb {}",
        machine.cpu,
        machine.kernel,
        env!("CARGO_PKG_VERSION")
    );
    println!();
    let name = rows
        .iter()
        .map(|row| row.name.chars().count())
        .max()
        .unwrap_or(0);
    println!(
        "{:name$}  {:>12}  {:>12}  {:>7}  {:>15}  bound",
        "", "adverb", "reference", "ratio", "min..max"
    );
    for row in rows {
        match &row.verdict {
            Verdict::Measured(m) => println!(
                "{:name$}  {:>12}  {:>12}  {:>7.2}  {:>15}  {}",
                row.name,
                m.ours,
                m.reference,
                m.ratio,
                format!("{:.2}..{:.2}", m.spread.0, m.spread.1),
                row.bound_words(m),
            ),
            Verdict::NotRun(reason) => println!("{:name$}  NOT RUN: {reason}", row.name),
        }
    }
    println!();
    rows.iter()
        .for_each(|row| println!("{}: {}", row.name, row.what));
}
