//! Compares two sets of records of the same device cell by cell: which became faster or slower beyond the noise.

use crate::{DeviceRef, Record, stats};

/// How one cell changed. A ratio above 1 means that the second measurement is faster.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Cell and device.
    pub cell: String,
    /// Device of both records.
    pub device: DeviceRef,
    /// Label of both records, if it distinguishes them from others.
    pub label: Option<String>,
    /// Metric that was compared, as records name it.
    pub metric: &'static str,
    /// Its mean before and after.
    pub before: f64,
    /// Its mean in the second measurement.
    pub after: f64,
    /// Speed after over speed before.
    pub ratio: f64,
    /// The 95 % confidence interval of the ratio; the ratio itself on a model, which has no noise; `None` from a single
    /// repetition on other devices.
    pub interval: Option<[f64; 2]>,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The interval of the ratio is below 1.
    Slower,
    /// The interval contains 1.
    Unchanged,
    /// The interval is above 1.
    Faster,
    /// A single repetition: its noise is unknown.
    Unknown,
}

impl Change {
    /// Returns the cell, with the label that distinguishes it from others.
    pub fn name(&self) -> String {
        name(&self.cell, self.label.as_deref())
    }

    /// Whether the cell became slower by more than `percent`, with its whole interval.
    pub fn is_regression(&self, percent: f64) -> bool {
        self.interval
            .is_some_and(|[_, upper]| upper < 1.0 - percent / 100.0)
    }
}

/// A comparison of two measurements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Cells that both have, in the order of the first.
    pub changes: Vec<Change>,
    /// Cells that were measured in the first, and failed in the second.
    pub failed: Vec<String>,
    /// Cells that only the first has.
    pub only_before: Vec<String>,
    /// Cells that only the second has.
    pub only_after: Vec<String>,
    /// Cells that both have, without a rate or a time to compare.
    pub not_comparable: Vec<String>,
}

/// Why two measurements cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// They share no device.
    #[error("{before} and {after} are different devices: compare measurements of the same device")]
    Devices {
        /// Devices of the first, separated by commas.
        before: String,
        /// Devices of the second.
        after: String,
    },
    /// They share no label, and one of them has several.
    #[error(
        "labels {before} and {after}: compare measurements with the same labels, or with one label each"
    )]
    Labels {
        /// Labels of the first, separated by commas.
        before: String,
        /// Labels of the second.
        after: String,
    },
    /// They share no cell.
    #[error(
        "no cell was measured in both: compare measurements of the same programs and parameters"
    )]
    NothingInCommon,
    /// The cells that they share have neither a rate nor a time.
    #[error("the cells that were measured in both have no rate or time to compare")]
    NotComparable,
}

/// The metrics by which cells are compared, the first that both records have: their names in a
/// repetition, or in a record of a program without repetitions, and whether a larger value is faster.
const METRICS: [Metric; 8] = [
    // Of `interference`, where messages are only a load.
    ("slowdown", Better::Smaller),
    ("one_way_ns", Better::Smaller),
    ("requests_per_s", Better::Larger),
    ("connections_per_s", Better::Larger),
    ("messages_per_s", Better::Larger),
    ("one_way_ns.mean", Better::Smaller),
    ("latency_ns", Better::Smaller),
    ("latency_ns.mean", Better::Smaller),
];

/// A change that is shown as `1.00 times as fast` is none.
const SMALLEST: f64 = 0.005;

type Metric = (&'static str, Better);

/// Of requests that are sent at a given rate, the rate says only whether they were answered.
const OF_OFFERED: [Metric; 1] = [("latency_ns", Better::Smaller)];

/// Of messages that may be lost, the rate of the sender does not say what arrived.
const OF_LOST: [Metric; 1] = [(RECEIVED, Better::Larger)];
/// Messages that arrived per second.
const RECEIVED: &str = "received_per_s";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    Smaller,
    Larger,
}

/// Compares the measured cells of `before` and `after`, each already [`merged`](crate::merged). If one of them has several
/// labels, only cells with the same label are compared; else each label names a whole measurement.
///
/// # Errors
/// The records are of different devices, or have no cell in common.
pub fn compare(before: &[Record], after: &[Record]) -> Result<Comparison, CompareError> {
    let mut comparison = Comparison::default();
    let (labels, other_labels) = (labels(before), labels(after));
    let by_label = labels.len() > 1 || other_labels.len() > 1;
    let is_same_cell = |one: &Record, other: &Record| {
        let is_same = one.cell == other.cell && one.device == other.device;
        is_same && (!by_label || one.label == other.label)
    };
    let name = |r: &Record| name(&r.cell, r.label.as_deref().filter(|_| by_label));
    let partner = |record: &Record, others: &[Record]| -> Option<Record> {
        let same = |other: &&Record| other.is_ok() && is_same_cell(record, other);
        others.iter().find(same).cloned()
    };
    for record in before.iter().filter(|r| r.is_ok()) {
        let changed = partner(record, after).map(|other| change(record, &other));
        match changed {
            Some(Some(change)) => comparison.changes.push(Change {
                label: change.label.filter(|_| by_label),
                ..change
            }),
            Some(None) => comparison.not_comparable.push(name(record)),
            None if after.iter().any(|other| is_same_cell(record, other)) => {
                comparison.failed.push(name(record));
            }
            None => comparison.only_before.push(name(record)),
        }
    }
    let new = after
        .iter()
        .filter(|r| r.is_ok() && partner(r, before).is_none());
    comparison.only_after = new.map(name).collect();
    if !comparison.changes.is_empty() || !comparison.failed.is_empty() {
        return Ok(comparison);
    }
    if !comparison.not_comparable.is_empty() {
        return Err(CompareError::NotComparable);
    }
    if by_label && labels.iter().all(|label| !other_labels.contains(label)) {
        return Err(CompareError::Labels {
            before: labels.join(", "),
            after: other_labels.join(", "),
        });
    }
    let (ours, theirs) = (devices(before), devices(after));
    if ours.iter().any(|device| theirs.contains(device)) {
        return Err(CompareError::NothingInCommon);
    }
    Err(CompareError::Devices {
        before: ours.join(", "),
        after: theirs.join(", "),
    })
}

fn name(cell: &str, label: Option<&str>) -> String {
    label.map_or_else(|| cell.to_owned(), |label| format!("{cell} ({label})"))
}

/// Returns the labels of measured records; `none` is of records without one.
fn labels(records: &[Record]) -> Vec<String> {
    let measured = records.iter().filter(|record| record.is_ok());
    let labels = measured.map(|r| r.label.clone().unwrap_or_else(|| "none".to_owned()));
    let mut labels: Vec<String> = labels.collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

fn devices(records: &[Record]) -> Vec<String> {
    let mut names: Vec<String> = records.iter().map(|r| r.device.to_string()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn change(before: &Record, after: &Record) -> Option<Change> {
    let first: &[Metric] = match (before.metric("lost"), before.offered()) {
        (Some(_), _) => &OF_LOST,
        (None, Some(_)) => &OF_OFFERED,
        (None, None) => &[],
    };
    first.iter().chain(&METRICS).find_map(|&(metric, better)| {
        let (x, y) = (logs(before, metric)?, logs(after, metric)?);
        let difference = stats::mean(&y)? - stats::mean(&x)?;
        let gain = match better {
            Better::Smaller => -difference,
            Better::Larger => difference,
        };
        let half = match before.has_noise() {
            false => Some(0.0),
            true => stats::welch_half_width(&x, &y),
        };
        Some(Change {
            cell: before.cell.clone(),
            device: before.device.clone(),
            label: before.label.clone(),
            metric,
            before: stats::mean(&x)?.exp(),
            after: stats::mean(&y)?.exp(),
            ratio: gain.exp(),
            interval: half.map(|half| [-half, half].map(|way| (gain + way).exp())),
            verdict: match half.map(|half| half.max(SMALLEST)) {
                None => Verdict::Unknown,
                Some(half) if gain > half => Verdict::Faster,
                Some(half) if gain < -half => Verdict::Slower,
                Some(_) => Verdict::Unchanged,
            },
        })
    })
}

/// Returns the messages that arrived per second; if none did, as if one had, because a ratio needs a number above 0.
fn received_per_s(record: &Record) -> Option<f64> {
    let received = record.metric("received")?.max(1.0);
    Some(1e9 * received / record.metric("elapsed_ns")?)
}

/// Logarithms of the repetitions, so that differences are ratios; `None` without the metric.
fn logs(record: &Record, metric: &str) -> Option<Vec<f64>> {
    let mut values = record.repetitions(metric);
    if values.is_empty() {
        values.extend(match metric {
            RECEIVED => received_per_s(record),
            metric => record.metric(metric),
        });
    }
    let usable = !values.is_empty() && values.iter().all(|v| *v > 0.0);
    usable.then(|| values.into_iter().map(f64::ln).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceKind;
    use crate::testing::record;
    use serde_json::json;

    fn measured(cell: &str, times: &[f64]) -> Record {
        let mut record = record(cell);
        let all: Vec<_> = times.iter().map(|ns| json!({ "one_way_ns": ns })).collect();
        let metrics = record.metrics.as_mut().unwrap();
        metrics.insert("repetitions".to_owned(), all.into());
        record
    }

    #[test]
    fn noise_is_no_change_and_a_change_has_its_ratio() {
        let before = [
            measured("a", &[100.0, 104.0, 98.0]),
            measured("b", &[100.0, 101.0, 99.0]),
        ];
        let after = [
            measured("a", &[101.0, 97.0, 103.0]),
            measured("b", &[50.0, 50.5, 49.5]),
        ];
        let changes = compare(&before, &after).unwrap().changes;
        assert_eq!(changes[0].verdict, Verdict::Unchanged);
        assert_eq!(changes[1].verdict, Verdict::Faster);
        assert!((changes[1].ratio - 2.0).abs() < 1e-9, "{changes:?}");
        let back = compare(&after, &before).unwrap().changes;
        assert_eq!(back[1].verdict, Verdict::Slower);
        assert!(back[1].is_regression(40.0) && !back[1].is_regression(60.0));
        assert!(!back[0].is_regression(0.0));
    }

    #[test]
    fn a_single_repetition_and_missing_cells_are_named() {
        let before = ["a", "gone", "bad"].map(|cell| measured(cell, &[100.0]));
        let mut after = ["a", "new", "bad"].map(|cell| measured(cell, &[50.0]));
        after[2].outcome = crate::Outcome::Failed {
            reason: "it timed out".to_owned(),
        };
        let comparison = compare(&before, &after).unwrap();
        assert_eq!(comparison.changes[0].verdict, Verdict::Unknown);
        assert_eq!(comparison.failed, ["bad"]);
        assert_eq!(comparison.only_before, ["gone"]);
        assert_eq!(comparison.only_after, ["new"]);
    }

    #[test]
    fn programs_without_repetitions_are_compared_and_a_model_has_no_noise() {
        let of = |kind, rate: f64| {
            let mut record = measured("a", &[]);
            record.device.kind = kind;
            let metrics = record.metrics.as_mut().unwrap();
            metrics.clear();
            metrics.insert("connections_per_s".to_owned(), rate.into());
            record
        };
        let changed = |kind, rates: [f64; 2]| {
            let [before, after] = rates.map(|rate| [of(kind, rate)]);
            let change = compare(&before, &after).unwrap().changes.remove(0);
            assert!((change.ratio - rates[1] / rates[0]).abs() < 1e-9);
            change
        };
        let real = changed(DeviceKind::Soft, [100.0, 50.0]);
        assert_eq!(real.verdict, Verdict::Unknown);
        assert!(!real.is_regression(10.0));
        let model = changed(DeviceKind::Model, [100.0, 50.0]);
        assert_eq!(model.verdict, Verdict::Slower);
        assert!(model.is_regression(10.0));
        let same = changed(DeviceKind::Model, [100.0, 100.0]);
        assert_eq!(same.verdict, Verdict::Unchanged);
        let mut without = of(DeviceKind::Soft, 1.0);
        without.metrics.as_mut().unwrap().clear();
        let error = compare(&[without.clone()], &[without]).unwrap_err();
        assert_eq!(error, CompareError::NotComparable);
    }

    #[test]
    fn a_computation_is_compared_by_its_slowdown_not_by_the_messages_next_to_it() {
        let of = |slowdown: f64, rate: f64| {
            let mut record = measured("a", &[]);
            record.device.kind = DeviceKind::Model;
            let metrics = record.metrics.as_mut().unwrap();
            metrics.clear();
            metrics.insert("slowdown".to_owned(), slowdown.into());
            metrics.insert("messages_per_s".to_owned(), rate.into());
            [record]
        };
        let change = compare(&of(3.0, 1e5), &of(1.5, 1e4)).unwrap().changes;
        assert_eq!((change[0].metric, change[0].ratio), ("slowdown", 2.0));
    }

    #[test]
    fn requests_at_a_given_rate_are_compared_by_their_latency() {
        let of = |latency: f64| {
            let mut record = measured("a", &[]);
            record.params.insert("offered_per_s".to_owned(), 1e5.into());
            let repetition = json!({ "requests_per_s": 1e5, "latency_ns": latency });
            let metrics = record.metrics.as_mut().unwrap();
            metrics.insert("repetitions".to_owned(), vec![repetition; 3].into());
            [record]
        };
        let change = compare(&of(1e3), &of(3e3)).unwrap().changes.remove(0);
        assert_eq!(
            (change.metric, change.verdict),
            ("latency_ns", Verdict::Slower)
        );
    }

    #[test]
    fn measurements_with_several_labels_are_compared_label_by_label() {
        let of = |label: &str, ns: f64| {
            let mut record = measured("a", &[ns; 3]);
            record.label = Some(label.to_owned());
            record
        };
        let both = |ns: f64| [of("quiet", 100.0), of("busy", ns)];
        let changes = compare(&both(200.0), &both(400.0)).unwrap().changes;
        let found: Vec<_> = changes.iter().map(|c| (c.name(), c.verdict)).collect();
        assert_eq!(
            found,
            [
                ("a (quiet)".to_owned(), Verdict::Unchanged),
                ("a (busy)".to_owned(), Verdict::Slower)
            ]
        );
        // A label of a whole measurement is its name.
        let whole = compare(&[of("before", 100.0)], &[of("after", 200.0)]).unwrap();
        assert_eq!(whole.changes[0].name(), "a");
        let error = compare(&[of("before", 100.0)], &both(100.0)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "labels before and busy, quiet: compare measurements with the same labels, or with one label each"
        );
    }

    #[test]
    fn repeated_fetches_are_compared_over_their_repetitions() {
        let of = |ns: f64| {
            let mut record = measured("fetch", &[]);
            let all = [0.99, 1.0, 1.01].map(|factor| json!({ "latency_ns": ns * factor }));
            let metrics = record.metrics.as_mut().unwrap();
            metrics.clear();
            metrics.insert("latency_ns".to_owned(), json!({ "mean": ns }));
            metrics.insert("repetitions".to_owned(), all.to_vec().into());
            [record]
        };
        let change = compare(&of(1e3), &of(3e3)).unwrap().changes.remove(0);
        assert_eq!(change.verdict, Verdict::Slower);
        assert!(change.is_regression(50.0));
    }

    #[test]
    fn messages_that_are_lost_are_not_part_of_the_rate() {
        let of = |received: u64| {
            let mut record = measured("mcast", &[]);
            record.device.kind = DeviceKind::Model;
            record.params.insert("offered_per_s".to_owned(), 1e5.into());
            let metrics = json!({
                "messages_per_s": 1e5, "elapsed_ns": 1e7,
                "received": received, "lost": 1000 - received,
            });
            record.metrics = metrics.as_object().cloned();
            [record]
        };
        let change = |after| {
            let changes = compare(&of(1000), &of(after)).unwrap().changes;
            changes.into_iter().next().unwrap()
        };
        let half = change(500);
        assert_eq!((half.metric, half.verdict), (RECEIVED, Verdict::Slower));
        assert!((half.ratio - 0.5).abs() < 1e-9 && half.is_regression(40.0));
        assert!(change(0).is_regression(90.0));
    }

    #[test]
    fn a_change_that_is_not_shown_is_none() {
        let of = |ns: f64| [measured("a", &[ns; 3])];
        let verdict = |ns| compare(&of(100.0), &of(ns)).unwrap().changes[0].verdict;
        assert_eq!(verdict(100.2), Verdict::Unchanged);
        assert_eq!(verdict(102.0), Verdict::Slower);
    }

    #[test]
    fn records_that_cannot_be_compared_are_refused() {
        let mut other = measured("a", &[1.0]);
        other.device.name = "soft@10.0.0.1".to_owned();
        let error = compare(&[measured("a", &[1.0])], &[other]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "soft and soft@10.0.0.1 are different devices: compare measurements of the same device"
        );
        let error = compare(&[measured("a", &[1.0])], &[measured("b", &[1.0])]).unwrap_err();
        assert_eq!(error, CompareError::NothingInCommon);
    }
}
