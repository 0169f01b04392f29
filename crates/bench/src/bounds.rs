//! What a comparison is: what is measured, against what, and the bound.

use std::path::PathBuf;

use adverb_units::{Bytes, MessageRate, Span, Throughput};
use anyhow::Result;
use serde_json::json;

use crate::guests::Guests;

/// What all comparisons share.
pub(crate) struct Setting {
    /// Both sides' cores: active, passive.
    pub(crate) cores: [u32; 2],
    /// The `adverb` binary.
    pub(crate) adverb: PathBuf,
    /// Measurements of each pair.
    pub(crate) rounds: u32,
    /// Where rows are measured that want another kernel.
    pub(crate) guests: Guests,
}

/// Which way is good.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// The ratio is to be at most this.
    AtMost(f64),
    /// The ratio is to be at least this.
    AtLeast(f64),
    /// The ratio is to lie within this of 1.
    Near(f64),
    /// Ours is to be at most this, whatever the reference.
    Itself(f64),
    /// Ours is to be at least this, whatever the reference.
    ItselfAtLeast(f64),
    /// Ours is to be at most this above the reference.
    Above(f64),
    /// Shown for its own sake.
    None,
}

/// Ours and the reference, in the row's unit.
pub(crate) type Pair = (f64, f64);

/// How a row comes by its pairs. None where something is not installed.
#[derive(Clone, Copy)]
pub(crate) enum Measure {
    /// One in each round, as many as were asked for.
    Rounds(fn(&Setting) -> Result<Option<Pair>>),
    /// Once: it takes long, and nothing of it is short enough for a passing disturbance to matter.
    Once(fn(&Setting) -> Result<Option<Pair>>),
    /// All of them, by what has rounds of its own, at least as many as were asked for.
    All(fn(&Setting) -> Result<Option<Vec<Pair>>>),
}

/// One comparison.
pub(crate) struct Bound {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) unit: Unit,
    pub(crate) limit: Limit,
    pub(crate) measure: Measure,
    /// What is missing where `measure` gives none.
    pub(crate) needs: &'static str,
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
    fn show(self, value: f64) -> String {
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

/// A measured comparison.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    unit: Unit,
    limit: Limit,
    pub(crate) verdict: Verdict,
}

/// What became of it.
pub(crate) enum Verdict {
    Measured(Measured),
    NotRun(&'static str),
}

/// Medians over the rounds.
pub(crate) struct Measured {
    pub(crate) ours: String,
    pub(crate) reference: String,
    pub(crate) ratio: f64,
    pub(crate) spread: (f64, f64),
    medians: (f64, f64),
}

impl Bound {
    pub(crate) fn measure(&self, setting: &Setting) -> Result<Row> {
        let Some(pairs) = self.pairs(setting)? else {
            return Ok(self.row(Verdict::NotRun(self.needs)));
        };
        let ratios = sorted(pairs.iter().map(|(ours, reference)| ours / reference));
        let ours = median(&sorted(pairs.iter().map(|pair| pair.0)));
        let reference = median(&sorted(pairs.iter().map(|pair| pair.1)));
        Ok(self.row(Verdict::Measured(Measured {
            ours: self.unit.show(ours),
            reference: self.unit.show(reference),
            ratio: median(&ratios),
            spread: (ratios[0], ratios[ratios.len() - 1]),
            medians: (ours, reference),
        })))
    }

    fn pairs(&self, setting: &Setting) -> Result<Option<Vec<Pair>>> {
        match self.measure {
            Measure::Rounds(measure) => (0..setting.rounds).map(|_| measure(setting)).collect(),
            Measure::Once(measure) => Ok(measure(setting)?.map(|pair| vec![pair])),
            Measure::All(measure) => measure(setting),
        }
    }

    fn row(&self, verdict: Verdict) -> Row {
        Row {
            name: self.name,
            what: self.what,
            unit: self.unit,
            limit: self.limit,
            verdict,
        }
    }
}

impl Row {
    pub(crate) fn bound_words(&self, measured: &Measured) -> String {
        let (ours, reference) = measured.medians;
        let ratio = measured.ratio;
        let show = |value| self.unit.show(value);
        let (words, met) = match self.limit {
            Limit::AtMost(most) => (format!("ratio <= {most:.2}"), ratio <= most),
            Limit::AtLeast(least) => (format!("ratio >= {least:.2}"), ratio >= least),
            Limit::Near(most) => (format!("ratio 1 +- {most:.2}"), (ratio - 1.0).abs() <= most),
            Limit::Itself(most) => (format!("adverb <= {}", show(most)), ours <= most),
            Limit::ItselfAtLeast(least) => (format!("adverb >= {}", show(least)), ours >= least),
            Limit::Above(most) => (
                format!("difference <= {}", show(most)),
                ours - reference <= most,
            ),
            Limit::None => return "-".into(),
        };
        format!("{words}: {}", if met { "met" } else { "MISSED" })
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        match &self.verdict {
            Verdict::Measured(m) => json!({
                "name": self.name,
                "what": self.what,
                "adverb": m.ours,
                "reference": m.reference,
                "ratio": m.ratio,
                "ratio_min": m.spread.0,
                "ratio_max": m.spread.1,
                "bound": self.bound_words(m),
            }),
            Verdict::NotRun(reason) => json!({ "name": self.name, "not_run": reason }),
        }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    } else {
        sorted[middle]
    }
}
