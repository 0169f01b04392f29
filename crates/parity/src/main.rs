//! `adverb-parity`: the same measurement by perftest and by Adverb, in turn, on one device.
//!
//! Both run with the same parameters on the same cores, client and server on this host. What counts
//! is the ratio of the two in one round; the table shows the median over the rounds, its spread, and
//! the interval in which the true median lies. Where perftest defines a figure in another way, the
//! difference is shown on perftest's own samples rather than copied.

mod ours;
mod perftest;
mod row;
mod stats;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

use row::{Measured, ROWS, Row, Verdict};

const AFTER_HELP: &str = "\
Exit status:
  0  no median ratio lies outside the bound, as far as the rounds can tell
  1  one does, with its 90 % interval; or a program failed
  2  the command line asks for something that cannot be

Examples:
  adverb-parity --device mlx5_0
  adverb-parity --device rxe0 --rounds 9 --only latency --json";

/// Adverb beside perftest on the same device, in turn
#[derive(Debug, Parser)]
#[command(version, after_help = AFTER_HELP)]
struct Args {
    /// The device, as `ibv_devices` names it
    #[arg(long, value_name = "NAME")]
    device: String,
    /// How often each pair is measured, at least
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=1000))]
    rounds: u32,
    /// How often at most: more rounds are added while the interval of a median is wider than the bound
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(5..=1000))]
    most: u32,
    /// How far a median ratio may lie from 1, in percent
    #[arg(long, default_value_t = 3.0)]
    bound: f64,
    /// Only the rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The `adverb` program [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    adverb: Option<PathBuf>,
    /// One JSON object a row instead of the table
    #[arg(long)]
    json: bool,
}

/// What all measurements share.
#[derive(Debug)]
struct Setting {
    device: String,
    adverb: PathBuf,
    /// Cores of the client (active side) and of the server.
    cores: [u32; 2],
    rounds: u32,
    most: u32,
    /// Largest distance of a median ratio from 1.
    bound: f64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether no row lies outside the bound.
fn run(args: &Args) -> Result<bool> {
    let setting = setting(args)?;
    let wanted = |row: &&Row| args.only.as_ref().is_none_or(|o| row.name.contains(o));
    let mut measured: Vec<(&Row, Measured)> = Vec::new();
    for row in ROWS.iter().filter(wanted) {
        eprintln!("measuring: {} …", row.name);
        let result = row.measure(&setting).with_context(|| row.name.to_owned())?;
        measured.push((row, result));
    }
    ensure!(
        !measured.is_empty(),
        "no row's name contains '{}': choose from {}",
        args.only.as_deref().unwrap_or(""),
        ROWS.map(|row| row.name).join(", ")
    );
    if args.json {
        for (row, result) in &measured {
            println!("{}", table::json(row, result, setting.bound));
        }
    } else {
        table::print(&setting, &measured);
    }
    Ok(measured
        .iter()
        .all(|(_, m)| m.verdict(setting.bound) != Verdict::Outside))
}

fn setting(args: &Args) -> Result<Setting> {
    let usable = adverb_host::usable_cores();
    let cores = match usable[..] {
        [first, second, ..] => [first, second],
        [only] => [only, only],
        [] => anyhow::bail!("this process may use no core"),
    };
    Ok(Setting {
        device: args.device.clone(),
        adverb: args.adverb.clone().map_or_else(ours::find, Ok)?,
        cores,
        rounds: args.rounds,
        most: args.most.max(args.rounds),
        bound: args.bound / 100.0,
    })
}
