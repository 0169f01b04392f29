//! Conditions on metrics of records of any program.

use std::fmt;

use adverb_results::stats::Spread;
use adverb_results::{DeviceKind, DeviceRef, Record, Values, word};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::factor;
use super::predicate::{Bounds, Check};
use crate::format;

/// A metric, or its ratio to another one, and its bounds. Every record that `of` names is compared with every one that
/// `to` names.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// The metric, or the numerator.
    of: Metric,
    /// The denominator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<Metric>,
    /// Bounds of the metric or of the ratio.
    is: Bounds,
}

/// A metric of the records of a program that have some parameters.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Metric {
    program: String,
    /// Values of parameters; `"none"`: a record without the parameter, or with null. A list has alternatives: the first that
    /// a record of the device has.
    #[serde(default)]
    params: Values,
    /// The path of names, such as `active.setup_ns.p50`.
    metric: String,
    /// Takes only the largest of the metrics of these records.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    largest: bool,
    /// Takes the mean of the metrics of these requesters, in place of the record's metric: the first of them, counted from
    /// 0, and the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requesters: Option<[usize; 2]>,
}

/// The value of a parameter that a record must not have.
const NONE: &str = "none";
/// The parameter that a record has if its path injects faults or delays.
const IMPAIRMENT: &str = "impairment";

impl Metric {
    /// Whether it is of this record, with this one of the alternative values.
    fn takes(&self, record: &Record, alternative: usize) -> bool {
        let found = |name: &str| record.params.get(name).filter(|value| !value.is_null());
        let has = |(name, asked): (&String, &Value)| {
            let asked = match asked {
                Value::Array(all) => &all[alternative.min(all.len() - 1)],
                one => one,
            };
            match asked.as_str() {
                Some(NONE) => found(name).is_none(),
                _ => found(name) == Some(asked),
            }
        };
        // What is claimed without naming a path is not claimed for a bad one.
        let is_plain = found(IMPAIRMENT).is_none() || self.params.contains_key(IMPAIRMENT);
        let is_of_program = record.program == self.program && is_plain;
        is_of_program && record.is_ok() && self.params.iter().all(has)
    }

    /// Returns the metric in a record.
    fn value(&self, record: &Record) -> Option<f64> {
        let Some([first, end]) = self.requesters else {
            return record.metric(&self.metric);
        };
        let all = record.of_requesters(&self.metric);
        let meant = all.get(first..end)?;
        Some(meant.iter().sum::<f64>() / meant.len() as f64)
    }

    /// Returns the metric in a record, and its range over the repetitions if they have it.
    fn measured(&self, record: &Record) -> Option<Spread> {
        let value = self.value(record)?;
        let name = self.metric.strip_suffix(".mean").unwrap_or(&self.metric);
        let mut all = match self.requesters {
            None => record.repetitions(name),
            Some(_) => Vec::new(),
        };
        all.push(value);
        let range = Spread::of(&all)?;
        Some(Spread {
            median: value,
            ..range
        })
    }

    /// Returns the metric in the records of a device. Where a parameter names TCP, which the device does not have, the
    /// records of `tcp` count.
    fn values(&self, device: &DeviceRef, records: &[Record]) -> Result<Vec<Spread>, String> {
        let of = |is_meant: &dyn Fn(&DeviceRef) -> bool| -> Vec<Spread> {
            let taken = |alternative: usize| -> Vec<Spread> {
                let meant = records.iter().filter(|record| is_meant(&record.device));
                let taken = meant.filter(|record| self.takes(record, alternative));
                taken.filter_map(|record| self.measured(record)).collect()
            };
            let lengths = self.params.values().filter_map(Value::as_array);
            let alternatives = lengths.map(Vec::len).max().unwrap_or(1);
            let mut all = (0..alternatives).map(taken);
            all.find(|values| !values.is_empty()).unwrap_or_default()
        };
        let mut values = of(&|own| own == device);
        let names = |name: &str| self.params.get(name).and_then(Value::as_str) == Some("tcp");
        let is_tcp = names("transport") || names("by");
        if values.is_empty() && is_tcp && device.kind != DeviceKind::Model {
            values = of(&|other| other.kind == DeviceKind::Tcp);
        }
        let by_value = |a: &Spread, b: &Spread| a.median.total_cmp(&b.median);
        let largest = values.iter().copied().max_by(by_value);
        match largest {
            None => Err(format!("no record of {self}")),
            Some(largest) if self.largest => Ok(vec![largest]),
            Some(_) => Ok(values),
        }
    }

    fn show(&self, value: f64) -> String {
        let has_unit = |unit: &str| self.metric.split('.').any(|name| name.ends_with(unit));
        match () {
            () if has_unit("_ns") => format::time(value),
            () if has_unit("percent") => format::percent(value),
            () if has_unit("bytes_per_s") => format::throughput(value),
            () if has_unit("per_s") => format::rate(value),
            () => value.to_string(),
        }
    }
}

impl fmt::Display for Metric {
    /// `active.setup_ns.p50 of connect transport=tcp`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let largest = if self.largest { "largest " } else { "" };
        write!(f, "{largest}{} of ", self.metric)?;
        if let Some([first, end]) = self.requesters {
            write!(f, "requesters {} to {end} of ", first + 1)?;
        }
        write!(f, "{}", self.program)?;
        self.params.iter().try_for_each(|(name, value)| {
            let of = |value| word(Some(value)).unwrap_or_default();
            let words = match value {
                Value::Array(all) => all.iter().map(of).collect::<Vec<_>>().join(" or "),
                one => of(one),
            };
            write!(f, " {name}={words}")
        })
    }
}

/// Whether the condition has the same answer in all repetitions.
fn agree<const N: usize>(answers: [bool; N]) -> bool {
    answers.iter().all(|answer| *answer == answers[0])
}

impl Reading {
    /// Returns whether the condition is true for each record, also in its other repetitions; an error says which records are missing.
    pub(super) fn checks(
        &self,
        device: &DeviceRef,
        records: &[Record],
    ) -> Result<Vec<Check>, String> {
        let values = self.of.values(device, records)?;
        let Some(to) = &self.to else {
            let check = |value: &Spread| Check {
                is_true: self.is.contains(value.median),
                is_certain: agree(
                    [value.min, value.median, value.max].map(|v| self.is.contains(v)),
                ),
                figures: self.of.show(value.median),
            };
            return Ok(values.iter().map(check).collect());
        };
        let others = to.values(device, records)?;
        let pairs = values
            .iter()
            .flat_map(|value| others.iter().map(move |other| (value, other)));
        // A product: 0 is within any share of 0, and 0 / 0 is not.
        let is_true = |value: f64, other: f64| self.is.times(other).contains(value);
        let check = |(value, other): (&Spread, &Spread)| {
            let (v, o) = (value.median, other.median);
            let figures = format!("{} against {}", self.of.show(v), to.show(o));
            let repeated = [
                (v, o),
                (value.min, o),
                (value.max, o),
                (v, other.min),
                (v, other.max),
            ];
            Check {
                is_true: is_true(v, o),
                is_certain: agree(repeated.map(|(v, o)| is_true(v, o))),
                figures: match o == 0.0 {
                    true => figures,
                    false => format!("{} ({figures})", factor(v / o)),
                },
            }
        };
        Ok(pairs.map(check).collect())
    }

    /// Returns whether it needs records of this program.
    pub(super) fn is_about(&self, program: &str) -> bool {
        let mut metrics = [Some(&self.of), self.to.as_ref()].into_iter().flatten();
        metrics.any(|metric| metric.program == program)
    }

    /// Returns the condition in words.
    pub(super) fn words(&self) -> String {
        match &self.to {
            None => format!("{} {}", self.of, self.is.words(|v| self.of.show(v))),
            Some(to) => format!("({}) / ({to}) {}", self.of, self.is.words(factor)),
        }
    }
}
