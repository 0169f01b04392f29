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
mod guests;
mod iperf;
mod link;
mod machine;
mod model;
mod rows;
mod seam;
mod ucx;
mod udp;

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

use bounds::{Bound, Row, Setting, Verdict};
use rows::{SECTIONS, Section};

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
    #[command(flatten)]
    udp: udp::Side,
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
    if args.udp.run()? {
        return Ok(());
    }
    let cores = adverb_host::usable_cores();
    let &[first, second, ..] = &cores[..] else {
        ensure!(
            cores.len() > 1,
            "the comparisons need two cores, this process may use {cores:?}"
        );
        return Ok(());
    };
    let setting = Setting {
        cores: [first, second],
        adverb: adverb::find("adverb")?,
        rounds: args.rounds,
        guests: guests::Guests::default(),
    };
    let mut tables = Vec::new();
    for section in SECTIONS {
        let rows = measure(section, &setting, args.only.as_deref())?;
        if !rows.is_empty() {
            tables.push((section.title, rows));
        }
    }
    ensure!(
        !tables.is_empty(),
        "no row's name contains '{}'",
        args.only.as_deref().unwrap_or("")
    );
    if args.json {
        let rows = tables.iter().flat_map(|(_, rows)| rows);
        rows.for_each(|row| println!("{}", row.json()));
    } else {
        print_tables(&tables);
    }
    Ok(())
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

fn print_tables(tables: &[(&str, Vec<Row>)]) {
    let machine = adverb_host::Machine::this();
    println!(
        "{}, Linux {}, adverb {}",
        machine.cpu,
        machine.kernel,
        env!("CARGO_PKG_VERSION")
    );
    let rows = || tables.iter().flat_map(|(_, rows)| rows);
    let name = rows().map(|row| row.name.chars().count()).max();
    for (title, rows) in tables {
        print_table(title, rows, name.unwrap_or(0));
    }
    println!();
    rows().for_each(|row| println!("{}: {}", row.name, row.what));
}

/// One table, its first column so wide.
fn print_table(title: &str, rows: &[Row], name: usize) {
    println!("\n{title}");
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
}
