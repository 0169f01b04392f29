//! The pairs that are compared.

use adverb_results::PairRecord;
use anyhow::{Context as _, Result, ensure};

use crate::parameters::{Parameters, ensure_figure};
use crate::stats::{median, median_interval, sorted};
use crate::{Purpose, Setting, ours, perftest};

/// As perftest runs: each beginning and end of a stream costs as much as all requests in flight take once.
const IN_ONE_GO: [&str; 2] = ["--repetitions", "1"];

/// Which part of a round perftest reports.
#[derive(Clone, Copy, Debug)]
enum Reported {
    /// SEND and WRITE: half of a round trip.
    Half,
    /// READ: the whole.
    Whole,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Latency(Reported),
    Bandwidth,
}

/// One comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    program: &'static str,
    /// Of perftest, beside device, port and iterations.
    theirs: &'static [&'static str],
    /// Of Adverb, beside device and iterations.
    ours: &'static [&'static str],
    kind: Kind,
}

const SMALL: &str = "64";
const LARGE: &str = "65536";

/// With the same parameters on both sides: no inline payload (perftest takes it only of adapters that
/// it knows), 16 requests in flight of which one in 8 is signaled, 16 READs.
pub(crate) const ROWS: [Row; 6] = [
    Row {
        name: "send latency, 64 B",
        program: "ib_send_lat",
        theirs: &["-s", SMALL, "-I", "0"],
        ours: &["ping", "--op", "send", "--size", SMALL],
        kind: Kind::Latency(Reported::Half),
    },
    Row {
        name: "write latency, 64 B",
        program: "ib_write_lat",
        theirs: &["-s", SMALL, "-I", "0"],
        ours: &["ping", "--op", "write", "--size", SMALL],
        kind: Kind::Latency(Reported::Half),
    },
    Row {
        name: "read latency, 64 B",
        program: "ib_read_lat",
        theirs: &["-s", SMALL, "-o", "16"],
        ours: &["ping", "--op", "read", "--size", SMALL],
        kind: Kind::Latency(Reported::Whole),
    },
    Row {
        name: "send bandwidth, 64 KiB",
        program: "ib_send_bw",
        theirs: &["-s", LARGE, "-t", "16", "-Q", "8"],
        ours: &[
            "blast",
            "--op",
            "send",
            "--size",
            LARGE,
            "--buffers",
            "16",
            "--signal",
            "every=8",
        ],
        kind: Kind::Bandwidth,
    },
    Row {
        name: "write bandwidth, 64 KiB",
        program: "ib_write_bw",
        theirs: &["-s", LARGE, "-t", "16", "-Q", "8"],
        ours: &[
            "blast",
            "--op",
            "write",
            "--size",
            LARGE,
            "--buffers",
            "16",
            "--signal",
            "every=8",
        ],
        kind: Kind::Bandwidth,
    },
    Row {
        name: "read bandwidth, 64 KiB",
        program: "ib_read_bw",
        theirs: &["-s", LARGE, "-t", "16", "-Q", "8", "-o", "16"],
        ours: &[
            "blast",
            "--op",
            "read",
            "--size",
            LARGE,
            "--buffers",
            "16",
            "--signal",
            "every=8",
        ],
        kind: Kind::Bandwidth,
    },
];

/// What the rounds of a row gave.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// `µs` or `MiB/s`.
    pub(crate) unit: &'static str,
    /// What is compared.
    pub(crate) figure: &'static str,
    /// Figures of each round: Adverb's, perftest's.
    pub(crate) pairs: Vec<(f64, f64)>,
    /// Where the definitions differ: of the last round.
    pub(crate) definitions: Option<Definitions>,
}

/// Whether a median ratio is as near to 1 as the bound asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is.
    Within,
    /// It is not, but the true median may be: the rounds scatter too much to tell.
    Unsettled,
    /// It is not, and the interval of the true median lies outside as well.
    Outside,
}

impl Verdict {
    /// A word for the table.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Verdict::Within => "yes",
            Verdict::Unsettled => "unsettled",
            Verdict::Outside => "NO",
        }
    }
}

/// One latency run, by perftest's definitions and plainly.
#[derive(Clone, Debug)]
pub(crate) struct Definitions {
    pub(crate) perftest: perftest::Latency,
    pub(crate) ours: ours::Latency,
}

impl Measured {
    /// Ratios of the rounds, Adverb's figure over perftest's, in order of size.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        sorted(self.pairs.iter().map(|(ours, theirs)| ours / theirs))
    }

    /// Median of the ratios.
    pub(crate) fn ratio(&self) -> f64 {
        median(&self.ratios())
    }

    /// Of the median ratio, where it is to be judged.
    pub(crate) fn verdict(&self, setting: &Setting) -> Option<Verdict> {
        match setting.purpose {
            Purpose::Judge => Some(self.judge(setting.bound)),
            Purpose::Check => None,
        }
    }

    /// What the rounds say of the median ratio's distance from 1.
    fn judge(&self, bound: f64) -> Verdict {
        let (low, high) = median_interval(&self.ratios());
        if (self.ratio() - 1.0).abs() <= bound {
            Verdict::Within
        } else if low <= 1.0 + bound && high >= 1.0 - bound {
            Verdict::Unsettled
        } else {
            Verdict::Outside
        }
    }

    /// Whether more rounds would tell nothing: the interval of the median is as narrow as the bound.
    fn is_settled(&self, bound: f64) -> bool {
        let (low, high) = median_interval(&self.ratios());
        high - low <= bound
    }
}

impl Row {
    /// Runs both in turn, and the other way round every second time: what follows what cannot matter.
    pub(crate) fn measure(&self, setting: &Setting) -> Result<Measured> {
        let (unit, figure) = match self.kind {
            Kind::Latency(_) => ("µs", "median"),
            Kind::Bandwidth => ("MiB/s", "mean"),
        };
        let mut measured = Measured {
            unit,
            figure,
            pairs: Vec::new(),
            definitions: None,
        };
        for round in 0..setting.most {
            self.round(setting, First::of(round), &mut measured)?;
            if round + 1 >= setting.rounds && measured.is_settled(setting.bound) {
                break;
            }
        }
        Ok(measured)
    }

    fn round(&self, setting: &Setting, first: First, measured: &mut Measured) -> Result<()> {
        let ours = || ours::record(setting, &self.our_args());
        let pair = match self.kind {
            Kind::Latency(reported) => {
                let theirs = || perftest::latency(setting, self.program, &self.their_args());
                let (record, perftest) = first.then(ours, theirs)?;
                ensure_same(&record, &perftest.parameters)?;
                ensure_timed(&record, &perftest)?;
                let ours = reported.of(&record)?;
                let pair = (ours.median, perftest.median());
                measured.definitions = Some(Definitions { perftest, ours });
                pair
            }
            Kind::Bandwidth => {
                let theirs = || perftest::bandwidth(setting, self.program, &self.their_args());
                let (record, perftest) = first.then(ours, theirs)?;
                ensure_same(&record, &perftest.parameters)?;
                let rate = ours::mebibytes_per_s(&record);
                let ours = rate.context("the record has no throughput")?;
                (ours, perftest.mebibytes_per_s)
            }
        };
        ensure_figure("adverb", pair.0)?;
        ensure_figure("perftest", pair.1)?;
        measured.pairs.push(pair);
        Ok(())
    }

    /// The command line of perftest, but for device and port.
    pub(crate) fn their_args(&self) -> Vec<&'static str> {
        [self.theirs, &["-n", self.iters()]].concat()
    }

    /// The command line of Adverb, but for device and cores.
    pub(crate) fn our_args(&self) -> Vec<&'static str> {
        [self.ours, &["--iters", self.iters()], &IN_ONE_GO].concat()
    }

    /// Rounds (latency) or messages (bandwidth): so many that it matters little that perftest counts its
    /// first ones, too, which Adverb warms up with.
    const fn iters(&self) -> &'static str {
        match self.kind {
            Kind::Latency(_) => "1000",
            Kind::Bandwidth => "3000",
        }
    }

    /// Both command lines, for people.
    pub(crate) fn commands(&self) -> (String, String) {
        (
            format!("adverb {}", self.our_args().join(" ")),
            format!("{} {}", self.program, self.their_args().join(" ")),
        )
    }
}

impl Reported {
    /// Of a record, what perftest reports.
    fn of(self, record: &PairRecord) -> Result<ours::Latency> {
        let half = ours::Latency::of(record).context("the record has no latencies")?;
        Ok(match self {
            Reported::Half => half,
            Reported::Whole => half.times(2.0),
        })
    }
}

fn ensure_same(record: &PairRecord, perftest: &Parameters) -> Result<()> {
    let ours = ours::parameters(record).context("the record does not say what was measured")?;
    ours.ensure_same(perftest)
}

/// That both timed the rounds they ran: perftest takes the time from one to the next, Adverb may take
/// one in so many.
fn ensure_timed(record: &PairRecord, perftest: &perftest::Latency) -> Result<()> {
    let (samples, every) = ours::samples(record).context("the record has no latencies")?;
    let iterations = perftest.parameters.iterations;
    ensure!(
        samples * every >= iterations && perftest.samples.len() as u64 + 1 == iterations,
        "of {iterations} rounds, adverb timed {samples} (one in {every}), perftest {}",
        perftest.samples.len()
    );
    Ok(())
}

/// Which program runs first in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Ours,
    Theirs,
}

impl First {
    /// Taken in turn, so that neither gains by its place.
    fn of(round: u32) -> Self {
        if round.is_multiple_of(2) {
            First::Theirs
        } else {
            First::Ours
        }
    }

    /// Runs both, this one first.
    fn then<A, B>(
        self,
        ours: impl FnOnce() -> Result<A>,
        theirs: impl FnOnce() -> Result<B>,
    ) -> Result<(A, B)> {
        match self {
            First::Ours => Ok((ours()?, theirs()?)),
            First::Theirs => {
                let theirs = theirs()?;
                Ok((ours()?, theirs))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(ratios: [f64; 5]) -> Verdict {
        let measured = Measured {
            unit: "µs",
            figure: "median",
            pairs: ratios.map(|ratio| (ratio, 1.0)).to_vec(),
            definitions: None,
        };
        measured.judge(0.03)
    }

    #[test]
    fn what_scatters_is_unsettled_and_what_does_not_is_outside() {
        assert_eq!(verdict([0.5, 0.9, 1.02, 1.3, 2.0]), Verdict::Within);
        assert_eq!(verdict([0.9, 1.0, 1.1, 1.2, 1.3]), Verdict::Unsettled);
        assert_eq!(verdict([1.04, 1.05, 1.06, 1.07, 1.3]), Verdict::Outside);
        assert_eq!(verdict([0.8, 0.85, 0.9, 0.95, 0.96]), Verdict::Outside);
    }
}
