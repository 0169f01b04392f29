//! `adverb-parity`: the same measurement by perftest and by Adverb, in turn, on one device.
//!
//! Both run with the same parameters on the same cores, client and server on this host. What counts
//! is the ratio of the two in one round; the table shows the median over the rounds, its spread, and
//! the interval in which the true median lies. Where perftest defines a figure in another way, the
//! difference is shown on perftest's own samples rather than copied.

mod ours;
mod parameters;
mod perftest;
mod row;
mod stats;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, ValueEnum};

use row::{Measured, ROWS, Row, Verdict};

const AFTER_HELP: &str = "\
Exit status:
  0  no median ratio lies outside the bound, as far as the rounds can tell; with `--purpose check`,
     both programs ran with the same parameters and gave figures
  1  a median ratio does, with its 90 % interval; or a program failed
  2  the command line asks for something that cannot be

Examples:
  adverb-parity --device mlx5_0
  adverb-parity --device rxe0 --rounds 9 --only latency --json
  adverb-parity --device rxe0 --purpose check";

/// Rounds of a comparison, if not told.
const ROUNDS: u32 = 5;
/// Fewer rounds have no interval that would hold the median with 90 %.
const FEWEST: u32 = 5;

/// Adverb beside perftest on the same device, in turn
#[derive(Debug, Parser)]
#[command(version, after_help = AFTER_HELP)]
struct Args {
    /// The device, as `ibv_devices` names it
    #[arg(long, value_name = "NAME")]
    device: String,
    /// What the rounds are for
    #[arg(long, value_enum, default_value_t = Purpose::Judge)]
    purpose: Purpose,
    /// How often each pair is measured, at least [default: 5 to judge, 1 to check]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// How often at most: to judge, more rounds are added while the interval of a median is wider
    /// than the bound
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1000))]
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

/// What the rounds are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Purpose {
    /// Hold the median ratios against the bound; wants a quiet machine
    Judge,
    /// See that both programs run with the same parameters and give figures, however far apart
    Check,
}

impl Args {
    fn rounds(&self) -> Result<u32, clap::Error> {
        let rounds = match self.purpose {
            Purpose::Judge => self.rounds.unwrap_or(ROUNDS),
            Purpose::Check => return Ok(self.rounds.unwrap_or(1)),
        };
        if rounds < FEWEST {
            let text = format!(
                "{rounds} rounds cannot judge a median: --rounds {FEWEST} or more, or --purpose check"
            );
            return Err(Args::command().error(ErrorKind::ValueValidation, text));
        }
        Ok(rounds)
    }
}

/// What all measurements share.
#[derive(Debug)]
struct Setting {
    purpose: Purpose,
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

/// Whether no row lies outside the bound, where that is the question.
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
            println!("{}", table::json(&setting, row, result));
        }
    } else {
        table::print(&setting, &measured);
    }
    let outside = |m: &Measured| m.verdict(&setting) == Some(Verdict::Outside);
    Ok(!measured.iter().any(|(_, m)| outside(m)))
}

fn setting(args: &Args) -> Result<Setting> {
    let usable = adverb_host::usable_cores();
    let cores = match usable[..] {
        [first, second, ..] => [first, second],
        [only] => [only, only],
        [] => anyhow::bail!("this process may use no core"),
    };
    let rounds = args.rounds().unwrap_or_else(|wrong| wrong.exit());
    Ok(Setting {
        purpose: args.purpose,
        device: args.device.clone(),
        adverb: args.adverb.clone().map_or_else(ours::find, Ok)?,
        cores,
        rounds,
        most: match args.purpose {
            Purpose::Judge => args.most.max(rounds),
            Purpose::Check => rounds,
        },
        bound: args.bound / 100.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(line: &[&str]) -> Result<u32, String> {
        let args = Args::parse_from([&["adverb-parity", "--device", "rxe0"], line].concat());
        args.rounds().map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn a_check_is_content_with_one_round_and_a_judgement_is_not() {
        assert_eq!(rounds(&[]), Ok(5));
        assert_eq!(rounds(&["--purpose", "check"]), Ok(1));
        assert_eq!(rounds(&["--purpose", "check", "--rounds", "2"]), Ok(2));
        let refused = rounds(&["--rounds", "4"]).unwrap_err();
        assert!(refused.contains("4 rounds cannot judge"), "{refused}");
    }
}
