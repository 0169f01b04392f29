//! Combining the records of one cell: several passes over a study's plan, or a cell measured again.
//!
//! A study spreads the repetitions of a cell over its whole length, one pass after another, so that the
//! confidence interval contains the differences between starts of the processes.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::{Histogram, LatencyRecorder, Record, Values, stats};

/// Combines the passes of each cell and device; of several records of the same pass (a cell that failed
/// and was tried again) the last one counts. Cells are in the order of their first records.
pub fn merged(records: Vec<Record>) -> Vec<Record> {
    let mut cells: Vec<Vec<Record>> = Vec::new();
    let mut places = HashMap::new();
    for record in records {
        let identity = (
            record.cell.clone(),
            record.device.clone(),
            record.label.clone(),
        );
        let place = *places.entry(identity).or_insert(cells.len());
        match cells.get_mut(place) {
            Some(cell) => add(cell, record),
            None => cells.push(vec![record]),
        }
    }
    cells.into_iter().map(combined).collect()
}

/// Returns the passes that failed, at the last try, of cells that another pass measured: [`merged`] leaves
/// them out.
pub fn failed_passes(records: &[Record]) -> Vec<&Record> {
    let cell = |r: &'_ Record| (r.cell.clone(), r.device.clone(), r.label.clone());
    let passes = records.iter().filter(|record| record.pass.is_some());
    let last: HashMap<_, &Record> = passes.map(|r| ((cell(r), r.pass), r)).collect();
    let measured = last.values().filter(|record| record.is_ok());
    let measured: HashSet<_> = measured.map(|record| cell(record)).collect();
    let is_left_out = |r: &&Record| {
        let is_last = |last: &&Record| std::ptr::eq(*last, *r);
        last.get(&(cell(r), r.pass)).is_some_and(is_last) && !r.is_ok()
    };
    let failed = records.iter().filter(is_left_out);
    failed.filter(|r| measured.contains(&cell(r))).collect()
}

fn add(passes: &mut Vec<Record>, record: Record) {
    match passes
        .iter_mut()
        .find(|earlier| earlier.pass == record.pass)
    {
        Some(earlier) => *earlier = record,
        None => passes.push(record),
    }
}

/// One record of all passes that were measured; the last failure if none was.
fn combined(mut passes: Vec<Record>) -> Record {
    let last = passes.len() - 1;
    if passes.iter().any(Record::is_ok) {
        passes.retain(Record::is_ok);
    } else {
        passes.swap(0, last);
        passes.truncate(1);
    }
    let metrics: Vec<Values> = passes.iter().filter_map(|r| r.metrics.clone()).collect();
    let mut passes = passes.into_iter();
    let mut record = passes.next().expect("a cell has at least one record");
    record.pass = None;
    if metrics.len() > 1 {
        let weights = Weights::of(&metrics);
        record.metrics = Some(combined_values(&metrics, &weights));
    }
    passes.for_each(|pass| add_counters(&mut record.counters, pass.counters));
    record
}

type Counters = BTreeMap<String, BTreeMap<String, u64>>;

fn add_counters(sums: &mut Counters, pass: Counters) {
    for (role, counted) in pass {
        let sums = sums.entry(role).or_default();
        for (name, count) in counted {
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(count);
        }
    }
}

/// Weights of the passes in a mean: time for rates, number of messages or requests for latencies.
#[derive(Clone)]
struct Weights {
    elapsed: Vec<f64>,
    count: Vec<f64>,
}

impl Weights {
    fn of(passes: &[Values]) -> Self {
        let elapsed = passes.iter().map(|pass| number(pass.get("elapsed_ns")));
        let count = passes.iter().map(|pass| {
            let repetitions = pass.get("repetitions").and_then(Value::as_array);
            let counts = repetitions.into_iter().flatten();
            let counted = counts.map(|r| number(r.get("iters").or_else(|| r.get("requests"))));
            counted.sum()
        });
        Weights {
            elapsed: elapsed.collect(),
            count: count.collect(),
        }
    }
}

fn number(value: Option<&Value>) -> f64 {
    value.and_then(Value::as_f64).unwrap_or(0.0)
}

/// The mean of the values that are there; `None` if one is missing.
fn weighted(values: &[Option<f64>], weights: &[f64]) -> Option<f64> {
    let values: Vec<f64> = values.iter().copied().collect::<Option<_>>()?;
    let all: f64 = weights.iter().sum();
    if all <= 0.0 {
        return stats::mean(&values);
    }
    Some(values.iter().zip(weights).map(|(v, w)| v * w).sum::<f64>() / all)
}

fn combined_values(passes: &[Values], weights: &Weights) -> Values {
    let mut all = Values::new();
    for name in passes.iter().flat_map(Values::keys) {
        if !all.contains_key(name) {
            let each: Vec<&Value> = passes.iter().filter_map(|p| p.get(name)).collect();
            all.insert(name.clone(), combined_value(name, &each, weights));
        }
    }
    refresh_latencies(&mut all);
    all
}

fn combined_value(name: &str, each: &[&Value], weights: &Weights) -> Value {
    let numbers: Vec<Option<f64>> = each.iter().map(|v| v.as_f64()).collect();
    match each[0] {
        _ if name == "elapsed_ns" => numbers.iter().flatten().sum::<f64>().into(),
        Value::Array(_) => each
            .iter()
            .filter_map(|v| v.as_array())
            .flatten()
            .cloned()
            .collect(),
        Value::Object(_) if name == "histogram" => combined_histograms(each),
        Value::Object(first) => {
            let is_latency = first.contains_key("p50");
            let mut part = weights.clone();
            if is_latency {
                part.elapsed.clone_from(&weights.count);
            }
            let parts: Vec<Values> = each.iter().filter_map(|v| v.as_object()).cloned().collect();
            let names = first.keys().cloned();
            let values = names.map(|name| {
                let each: Vec<&Value> = parts.iter().filter_map(|p| p.get(&name)).collect();
                let value = combined_value(&name, &each, &part);
                (name, value)
            });
            Value::Object(values.collect())
        }
        Value::Number(n) if n.is_u64() => {
            each.iter().filter_map(|v| v.as_u64()).sum::<u64>().into()
        }
        Value::Number(_) => weighted(&numbers, &weights.elapsed).into(),
        other => other.clone(),
    }
}

fn combined_histograms(each: &[&Value]) -> Value {
    let read = |value: &&Value| -> Option<(LatencyRecorder, u64)> {
        let histogram: Histogram = serde_json::from_value((*value).clone()).ok()?;
        let recorder = LatencyRecorder::from_histogram(&histogram).ok()?;
        Some((recorder, histogram.sampled_every))
    };
    let all: Option<Vec<_>> = each.iter().map(read).collect();
    let Some(((mut recorder, mut every), rest)) =
        all.and_then(|mut all| (!all.is_empty()).then(|| (all.remove(0), all)))
    else {
        return Value::Null;
    };
    for (other, distance) in rest {
        recorder.merge(&other);
        every = every.max(distance);
    }
    serde_json::to_value(recorder.to_histogram(every)).unwrap_or(Value::Null)
}

/// Recomputes percentiles from the combined histogram, and the interval of the mean from all repetitions.
fn refresh_latencies(metrics: &mut Values) {
    let histogram: Option<Histogram> = metrics
        .get("histogram")
        .and_then(|h| serde_json::from_value(h.clone()).ok());
    let recorder = histogram.and_then(|h| LatencyRecorder::from_histogram(&h).ok());
    for name in ["one_way_ns", "latency_ns"] {
        let repetitions = metrics.get("repetitions").and_then(Value::as_array);
        let means = repetitions.into_iter().flatten();
        let means: Vec<f64> = means.filter_map(|r| r.get(name)?.as_f64()).collect();
        let Some(latency) = metrics.get_mut(name).and_then(Value::as_object_mut) else {
            continue;
        };
        latency.insert("ci95".to_owned(), stats::ci95_half_width(&means).into());
        let Some(recorder) = &recorder else { continue };
        let percentiles = serde_json::to_value(recorder.percentiles()).unwrap_or(Value::Null);
        for field in ["sd", "p50", "p99", "p999", "max"] {
            latency.insert(field.to_owned(), percentiles[field].clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{failed, record};

    fn pass(number: u32, record: Record) -> Record {
        let pass = Some(number);
        Record { pass, ..record }
    }

    #[test]
    fn passes_add_their_repetitions_and_time() {
        let one = record("a");
        let all = merged(vec![
            pass(1, one.clone()),
            record("b"),
            pass(2, one.clone()),
        ]);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].repetitions("one_way_ns").len(), 4);
        assert_eq!(all[0].pass, None);
        let twice = 2.0 * one.metric("elapsed_ns").unwrap();
        assert_eq!(all[0].metric("elapsed_ns"), Some(twice));
        for mean in ["one_way_ns.mean", "messages_per_s", "cpu.active.percent"] {
            assert_eq!(all[0].metric(mean), one.metric(mean), "{mean}");
        }
        assert_eq!(all[1], record("b"));
    }

    #[test]
    fn passes_add_their_counters_and_too_few_messages_in_one_are_too_few() {
        let counted = |number, lost: u64| {
            let mut record = pass(number, record("a"));
            let counters = BTreeMap::from([("lost".to_owned(), lost)]);
            record.counters = Counters::from([("active".to_owned(), counters)]);
            record
        };
        let mut short = counted(2, 5);
        let metrics = short.metrics.as_mut().unwrap();
        metrics.insert("few_messages".to_owned(), true.into());
        let all = merged(vec![counted(1, 2), short]);
        assert_eq!(all[0].counters["active"]["lost"], 7);
        assert_eq!(all[0].metrics.as_ref().unwrap()["few_messages"], true);
    }

    #[test]
    fn a_pass_that_failed_leaves_the_others_and_a_later_try_replaces_it() {
        let broken = || pass(2, failed("a", "why"));
        let records = vec![pass(1, record("a")), broken()];
        assert_eq!(failed_passes(&records), [&records[1]]);
        assert_eq!(merged(records)[0].repetitions("one_way_ns").len(), 2);
        let records = vec![pass(1, record("a")), broken(), pass(2, record("a"))];
        assert_eq!(failed_passes(&records), [] as [&Record; 0]);
        assert_eq!(merged(records)[0].repetitions("one_way_ns").len(), 4);
        assert_eq!(failed_passes(&[broken()]), [] as [&Record; 0]);
        let all = merged(vec![broken()]);
        assert_eq!(all[0].outcome, broken().outcome);
    }
}
