//! The same measurement by perftest and by Adverb, in turn, on one device.
//!
//! Both run with the same parameters on the same cores, client and server on this host. Where perftest
//! defines a figure in another way, the difference is shown on perftest's own samples rather than copied.

mod definitions;
mod ours;
mod parameters;
pub(crate) mod program;

use std::path::PathBuf;

use adverb_results::PairRecord;
use anyhow::{Context as _, Result, ensure};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, ValueEnum};

use crate::adverb::{both, run};
use crate::row::{Limit, Pair, Row, Setting, Unit, Verdict, in_turn};
use crate::stats::{median_interval, sorted};
use crate::{Cli, table};
use definitions::Definitions;
use parameters::{Parameters, ensure_figure};

const AFTER_HELP: &str = "\
Exit status:
  0  no median ratio is outside the bound, as far as the rounds can tell; with `--purpose check`,
     both programs ran with the same parameters and gave figures
  1  a median ratio is, with its 90 % interval; or a program failed
  2  invalid arguments

Examples:
  adverb-bench perftest --device mlx5_0
  adverb-bench perftest --device rxe0 --rounds 9 --only latency --json
  adverb-bench perftest --device rxe0 --purpose check";

/// Rounds of a comparison, unless given.
const ROUNDS: u32 = 5;
/// With fewer rounds no interval contains the median with 90 % confidence.
const FEWEST: u32 = 5;

/// Compare Adverb with perftest on one device
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PerftestArgs {
    /// The device, as `ibv_devices` names it
    #[arg(long, value_name = "NAME")]
    device: String,
    /// What the rounds are for
    #[arg(long, value_enum, default_value_t = Purpose::Judge)]
    purpose: Purpose,
    /// Measurements of each pair, at least [default: 5 to judge, 1 to check]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Measurements of each pair, at most: to judge, more rounds are added while the interval of a
    /// median is wider than the bound
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1000))]
    most: u32,
    /// Largest distance of a median ratio from 1, in percent
    #[arg(long, default_value_t = 3.0)]
    bound: f64,
    /// The `adverb` program [default: the one in this program's folder]
    #[arg(long, value_name = "PATH")]
    pub(crate) adverb: Option<PathBuf>,
}

/// What the rounds are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Purpose {
    /// Hold the median ratios against the bound; needs a quiet machine
    Judge,
    /// Check that both programs run with the same parameters and give figures, however far apart
    Check,
}

impl PerftestArgs {
    pub(crate) fn rounds(&self) -> Result<u32, clap::Error> {
        let rounds = match self.purpose {
            Purpose::Judge => self.rounds.unwrap_or(ROUNDS),
            Purpose::Check => return Ok(self.rounds.unwrap_or(1)),
        };
        if rounds < FEWEST {
            let text = format!(
                "{rounds} rounds cannot judge a median: --rounds {FEWEST} or more, or --purpose check"
            );
            return Err(Cli::command().error(ErrorKind::ValueValidation, text));
        }
        Ok(rounds)
    }

    /// Measures and prints the rows whose name contains `only`. Returns whether no row misses the bound.
    pub(crate) fn run(&self, setting: &Setting, only: Option<&str>, json: bool) -> Result<bool> {
        let comparison = Comparison {
            setting,
            device: &self.device,
            most: match self.purpose {
                Purpose::Judge => self.most.max(setting.rounds),
                Purpose::Check => setting.rounds,
            },
            bound: self.bound / 100.0,
            limit: match self.purpose {
                Purpose::Judge => Limit::Near(self.bound / 100.0),
                Purpose::Check => Limit::None,
            },
        };
        let wanted = |test: &&Test| only.is_none_or(|only| test.name.contains(only));
        let (mut rows, mut definitions) = (Vec::new(), Vec::new());
        for test in TESTS.iter().filter(wanted) {
            eprintln!("measuring: {} …", test.name);
            let (row, last) = test.measure(&comparison).with_context(|| test.name)?;
            definitions.extend(last.map(|last| (row.name, last)));
            rows.push(row);
        }
        ensure!(
            !rows.is_empty(),
            "no row's name contains '{}': choose from {}",
            only.unwrap_or(""),
            TESTS.map(|test| test.name).join(", ")
        );
        if json {
            rows.iter().for_each(|row| println!("{}", table::json(row)));
        } else {
            table::print_machine(setting);
            let title = format!("On device {}", self.device);
            table::print(&title, "perftest", &rows, 24);
            println!("\nCompared are medians of all samples (latency) and means (bandwidth), of:");
            rows.iter().for_each(|row| println!("  {}", row.what));
            definitions::print(&definitions);
        }
        let missed = |row: &Row| row.summary().is_ok_and(|s| s.verdict == Verdict::Missed);
        Ok(!rows.iter().any(missed))
    }
}

/// What all tests share.
struct Comparison<'a> {
    setting: &'a Setting,
    device: &'a str,
    /// Rounds at most.
    most: u32,
    /// Largest distance of a median ratio from 1.
    bound: f64,
    limit: Limit,
}

impl Comparison<'_> {
    fn start(&self) -> program::Start<'_> {
        program::Start {
            cores: self.setting.cores,
            device: self.device,
            through: Default::default(),
            env: &[],
        }
    }
}

/// What a test reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Half of a round trip: SEND.
    HalfRound,
    /// Half of a round trip of WRITEs: Adverb signals some of them, perftest signals all.
    HalfRoundOfWrites,
    /// The whole round trip: READ.
    WholeRound,
    Bandwidth,
}

/// A test of perftest, and the same of Adverb.
#[derive(Clone, Copy, Debug)]
struct Test {
    name: &'static str,
    program: &'static str,
    /// Arguments of perftest, except device, port and iterations.
    theirs: &'static str,
    /// Arguments of Adverb, except device, cores and iterations.
    ours: &'static str,
    kind: Kind,
}

/// All tests have the same parameters on both sides: no inline payload (perftest supports it only on adapters
/// that it knows), 16 requests in flight with one in 8 signaled, 16 READs.
const TESTS: [Test; 6] = [
    Test {
        name: "send latency, 64 B",
        program: "ib_send_lat",
        theirs: "-s 64 -I 0",
        ours: "ping --op send --size 64",
        kind: Kind::HalfRound,
    },
    Test {
        name: "write latency, 64 B",
        program: "ib_write_lat",
        theirs: "-s 64 -I 0",
        ours: "ping --op write --size 64",
        kind: Kind::HalfRoundOfWrites,
    },
    Test {
        name: "read latency, 64 B",
        program: "ib_read_lat",
        theirs: "-s 64 -o 16",
        ours: "ping --op read --size 64",
        kind: Kind::WholeRound,
    },
    Test {
        name: "send bandwidth, 64 KiB",
        program: "ib_send_bw",
        theirs: "-s 65536 -t 16 -Q 8",
        ours: "blast --op send --size 65536 --buffers 16 --signal every=8",
        kind: Kind::Bandwidth,
    },
    Test {
        name: "write bandwidth, 64 KiB",
        program: "ib_write_bw",
        theirs: "-s 65536 -t 16 -Q 8",
        ours: "blast --op write --size 65536 --buffers 16 --signal every=8",
        kind: Kind::Bandwidth,
    },
    Test {
        name: "read bandwidth, 64 KiB",
        program: "ib_read_bw",
        theirs: "-s 65536 -t 16 -Q 8 -o 16",
        ours: "blast --op read --size 65536 --buffers 16 --signal every=8",
        kind: Kind::Bandwidth,
    },
];

impl Test {
    /// Measures rounds until the ratio is settled. The definitions are from the last round.
    fn measure(&self, comparison: &Comparison<'_>) -> Result<(Row, Option<Definitions>)> {
        let (mut pairs, mut definitions) = (Vec::new(), None);
        for round in 0..comparison.most {
            let (pair, last) = self.round(comparison, round)?;
            pairs.push(pair);
            definitions = last;
            if round + 1 >= comparison.setting.rounds && is_settled(&pairs, comparison.bound) {
                break;
            }
        }
        let row = Row {
            name: self.name,
            what: format!(
                "adverb {}\n  {} {}",
                self.ours(),
                self.program,
                self.theirs()
            ),
            unit: match self.kind {
                Kind::Bandwidth => Unit::BytesPerSecond,
                _ => Unit::Nanoseconds,
            },
            limit: comparison.limit,
            pairs: Ok(pairs),
        };
        Ok((row, definitions))
    }

    fn round(
        &self,
        comparison: &Comparison<'_>,
        round: u32,
    ) -> Result<(Pair, Option<Definitions>)> {
        let ours = || self.record(comparison);
        let theirs = self.theirs();
        let (pair, definitions) = if self.kind == Kind::Bandwidth {
            let theirs = || program::bandwidth(&comparison.start(), self.program, &theirs);
            let (record, perftest) = in_turn(round, ours, theirs)?;
            self.ensure_same(&record, &perftest.parameters)?;
            let rate = record.metrics.as_ref().and_then(|m| m.bytes_per_s);
            let rate = rate.context("the record has no throughput")?;
            ((rate.bytes_per_second(), perftest.bytes_per_s()), None)
        } else {
            let theirs = || program::latency(&comparison.start(), self.program, &theirs);
            let (record, perftest) = in_turn(round, ours, theirs)?;
            self.ensure_same(&record, &perftest.parameters)?;
            ensure_timed(&record, &perftest)?;
            let half = ours::Latency::of(&record).context("the record has no latencies")?;
            let ours = match self.kind {
                Kind::WholeRound => half.times(2.0),
                _ => half,
            };
            let pair = (ours.median * 1e3, perftest.median() * 1e3);
            (pair, Some(Definitions { perftest, ours }))
        };
        ensure_figure("adverb", pair.0)?;
        ensure_figure("perftest", pair.1)?;
        Ok((pair, definitions))
    }

    fn record(&self, comparison: &Comparison<'_>) -> Result<PairRecord> {
        let command = format!("{} --device verbs:{}", self.ours(), comparison.device);
        let printed = run(
            comparison.setting,
            &command,
            Some(&both(comparison.setting)),
        )?;
        serde_json::from_slice(&printed).context("adverb printed no record")
    }

    fn ensure_same(&self, record: &PairRecord, perftest: &Parameters) -> Result<()> {
        let ours = ours::parameters(record);
        let mut ours = ours.context("the record has no parameters")?;
        if self.kind == Kind::HalfRoundOfWrites {
            ours.signaled_every = perftest.signaled_every;
        }
        ours.ensure_same(perftest)
    }

    /// The arguments of perftest, except device and port.
    fn theirs(&self) -> String {
        format!("{} -n {}", self.theirs, self.iters())
    }

    /// The arguments of Adverb, except device and cores. In one repetition, as perftest runs: each
    /// beginning and end of a stream costs as much as all requests in flight take once.
    fn ours(&self) -> String {
        format!("{} --iters {} --repetitions 1", self.ours, self.iters())
    }

    /// Rounds (latency) or messages (bandwidth): enough that the first ones, which perftest counts and
    /// with which Adverb warms up, matter little.
    const fn iters(&self) -> u32 {
        match self.kind {
            Kind::Bandwidth => 3000,
            _ => 1000,
        }
    }
}

/// Whether more rounds would change nothing: the interval of the median is as narrow as the bound.
fn is_settled(pairs: &[Pair], bound: f64) -> bool {
    let ratios = sorted(pairs.iter().map(|(ours, reference)| ours / reference));
    let (low, high) = median_interval(&ratios);
    high - low <= bound
}

/// Checks that both timed the rounds they ran: perftest times all rounds, Adverb may sample.
fn ensure_timed(record: &PairRecord, perftest: &program::Latency) -> Result<()> {
    let (samples, every) = ours::samples(record).context("the record has no latencies")?;
    let iterations = perftest.parameters.iterations;
    ensure!(
        samples * every >= iterations && perftest.samples.len() as u64 + 1 == iterations,
        "of {iterations} rounds, adverb timed {samples} (one in {every}), perftest {}",
        perftest.samples.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::Command;

    fn rounds(line: &[&str]) -> Result<u32, String> {
        let start = ["adverb-bench", "perftest", "--device", "rxe0"];
        match Cli::parse_from([&start, line].concat()).command {
            Command::Perftest(args) => args.rounds().map_err(|wrong| wrong.to_string()),
            other => panic!("{other:?}"),
        }
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
