//! A comparison: what is measured, against what, and the bound on it.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use adverb_units::{Bytes, MessageRate, Span, Throughput};
use anyhow::Result;

use crate::lab::LazyLab;
use crate::stats::{median, median_interval, sorted};

/// Settings of all comparisons.
pub(crate) struct Setting {
    /// Both sides' cores: active, passive.
    pub(crate) cores: [u32; 2],
    /// The `adverb` binary.
    pub(crate) adverb: PathBuf,
    /// Measurements of each pair.
    pub(crate) rounds: u32,
    /// The virtual machines, for rows that need another kernel.
    pub(crate) lab: LazyLab,
}

/// Adverb's figure and the reference, in the row's unit.
pub(crate) type Pair = (f64, f64);

/// The judged quantity of a pair.
type Quantity = fn(&Pair) -> f64;

/// How a row gets its pairs: `None` if something is not installed.
#[derive(Clone, Copy)]
pub(crate) enum Measure {
    /// One in each round.
    Rounds(fn(&Setting) -> Result<Option<Pair>>),
    /// Once: it takes long enough that a passing disturbance does not matter.
    Once(fn(&Setting) -> Result<Option<Pair>>),
    /// All pairs, at least one per round.
    All(fn(&Setting) -> Result<Option<Vec<Pair>>>),
}

/// One comparison of `bounds`.
pub(crate) struct Bound {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) unit: Unit,
    pub(crate) limit: Limit,
    pub(crate) measure: Measure,
    /// What is missing if `measure` returns `None`.
    pub(crate) needs: &'static str,
}

impl Bound {
    pub(crate) fn measure(&self, setting: &Setting) -> Result<Row> {
        let pairs = match self.measure {
            Measure::Rounds(measure) => (0..setting.rounds).map(|_| measure(setting)).collect(),
            Measure::Once(measure) => measure(setting).map(|pair| Some(vec![pair?])),
            Measure::All(measure) => measure(setting),
        };
        Ok(Row {
            name: self.name,
            what: self.what.to_owned(),
            unit: self.unit,
            limit: self.limit,
            pairs: pairs?.ok_or(self.needs),
        })
    }
}

/// Measures both, in every second round the reference first: neither gains by its place.
pub(crate) fn in_turn<A, B>(
    round: u32,
    ours: impl FnOnce() -> Result<A>,
    reference: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    if round.is_multiple_of(2) {
        return Ok((ours()?, reference()?));
    }
    let reference = reference()?;
    Ok((ours()?, reference))
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    Nanoseconds,
    PerSecond,
    BytesPerSecond,
    Percent,
    Seconds,
}

impl Unit {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::PerSecond => "1/s",
            Unit::BytesPerSecond => "B/s",
            Unit::Percent => "%",
            Unit::Seconds => "s",
        }
    }

    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Unit::Nanoseconds => Span::from_ps((value * 1e3) as u64).to_string(),
            Unit::PerSecond => MessageRate::over((value * 1e3) as u64, Span::from_secs(1000))
                .map_or_else(String::new, |rate| rate.to_string()),
            Unit::BytesPerSecond => Throughput::over(Bytes::new(value as u64), Span::from_secs(1))
                .map_or_else(String::new, |rate| rate.to_string()),
            Unit::Percent => format!("{value:.1} %"),
            Unit::Seconds => format!("{value:.1} s"),
        }
    }
}

/// Bound on a comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// The ratio is to be at most this.
    AtMost(f64),
    /// The ratio is to be at least this.
    AtLeast(f64),
    /// The ratio is to be within this of 1.
    Near(f64),
    /// Ours is to be at most this, whatever the reference.
    Itself(f64),
    /// Ours is to be at least this, whatever the reference.
    ItselfAtLeast(f64),
    /// Ours is to be at most this above the reference.
    Above(f64),
    /// No bound.
    None,
}

impl Limit {
    /// Returns the judged quantity of a pair, and the range in which its median must be.
    fn judged(self) -> Option<(Quantity, RangeInclusive<f64>)> {
        const MOST: f64 = f64::INFINITY;
        let ours: Quantity = |pair| pair.0;
        Some(match self {
            Limit::AtMost(most) => (ratio, 0.0..=most),
            Limit::AtLeast(least) => (ratio, least..=MOST),
            Limit::Near(most) => (ratio, 1.0 - most..=1.0 + most),
            Limit::Itself(most) => (ours, 0.0..=most),
            Limit::ItselfAtLeast(least) => (ours, least..=MOST),
            Limit::Above(most) => (|pair| pair.0 - pair.1, -MOST..=most),
            Limit::None => return None,
        })
    }

    fn words(self, unit: Unit) -> String {
        match self {
            Limit::AtMost(most) => format!("ratio <= {most:.2}"),
            Limit::AtLeast(least) => format!("ratio >= {least:.2}"),
            Limit::Near(most) => format!("ratio 1 +- {most:.2}"),
            Limit::Itself(most) => format!("adverb <= {}", unit.show(most)),
            Limit::ItselfAtLeast(least) => format!("adverb >= {}", unit.show(least)),
            Limit::Above(most) => format!("difference <= {}", unit.show(most)),
            Limit::None => String::new(),
        }
    }
}

fn ratio((ours, reference): &Pair) -> f64 {
    ours / reference
}

/// Whether the median is within the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    NotJudged,
    Met,
    /// It is not, but the true median may be: the rounds vary too much to decide.
    Unsettled,
    /// Neither it nor the interval of the true median is.
    Missed,
}

/// A comparison that was measured.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) limit: Limit,
    /// The pairs of the rounds, or what is missing.
    pub(crate) pairs: Result<Vec<Pair>, &'static str>,
}

/// What a row's pairs show.
pub(crate) struct Summary {
    /// Medians over the rounds.
    pub(crate) medians: Pair,
    /// Adverb's figure over the reference, in order of size.
    pub(crate) ratios: Vec<f64>,
    pub(crate) verdict: Verdict,
}

impl Row {
    pub(crate) fn summary(&self) -> Result<Summary, &'static str> {
        let pairs = self.pairs.as_ref().map_err(|needs| *needs)?;
        let sort = |of: Quantity| sorted(pairs.iter().map(of));
        Ok(Summary {
            medians: (median(&sort(|p| p.0)), median(&sort(|p| p.1))),
            ratios: sort(ratio),
            verdict: self
                .limit
                .judged()
                .map_or(Verdict::NotJudged, |(of, good)| {
                    let values = sort(of);
                    let (low, high) = median_interval(&values);
                    if good.contains(&median(&values)) {
                        Verdict::Met
                    } else if low <= *good.end() && high >= *good.start() {
                        Verdict::Unsettled
                    } else {
                        Verdict::Missed
                    }
                }),
        })
    }

    /// The bound and its verdict.
    pub(crate) fn bound_words(&self, verdict: Verdict) -> String {
        let verdict = match verdict {
            Verdict::NotJudged => return "not judged".to_owned(),
            Verdict::Met => "met",
            Verdict::Unsettled => "unsettled",
            Verdict::Missed => "MISSED",
        };
        format!("{}: {verdict}", self.limit.words(self.unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(limit: Limit, ours: [f64; 5]) -> Verdict {
        let row = Row {
            name: "",
            what: String::new(),
            unit: Unit::Nanoseconds,
            limit,
            pairs: Ok(ours.map(|ours| (ours, 2.0)).to_vec()),
        };
        row.summary().unwrap().verdict
    }

    #[test]
    fn scattered_rows_are_unsettled_and_steady_ones_are_missed() {
        let near = |ratios: [f64; 5]| verdict(Limit::Near(0.03), ratios.map(|ratio| 2.0 * ratio));
        assert_eq!(near([0.5, 0.9, 1.02, 1.3, 2.0]), Verdict::Met);
        assert_eq!(near([0.9, 1.0, 1.1, 1.2, 1.3]), Verdict::Unsettled);
        assert_eq!(near([1.04, 1.05, 1.06, 1.07, 1.3]), Verdict::Missed);
        assert_eq!(near([0.8, 0.85, 0.9, 0.95, 0.96]), Verdict::Missed);
    }

    #[test]
    fn each_limit_has_its_quantity_and_direction() {
        for (limit, met, missed) in [
            (Limit::AtMost(1.5), 3.0, 3.1),
            (Limit::AtLeast(1.5), 3.0, 2.9),
            (Limit::Itself(7.0), 7.0, 7.1),
            (Limit::ItselfAtLeast(7.0), 7.0, 6.9),
            (Limit::Above(5.0), 7.0, 7.1),
        ] {
            assert_eq!(verdict(limit, [met; 5]), Verdict::Met, "{limit:?}");
            assert_eq!(verdict(limit, [missed; 5]), Verdict::Missed, "{limit:?}");
        }
        assert_eq!(verdict(Limit::None, [1.0; 5]), Verdict::NotJudged);
    }
}
