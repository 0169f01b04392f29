//! Combining the records of one cell: several passes over a study's plan, or a cell measured again.
//!
//! A study spreads the repetitions of a cell over its whole length, one pass after another, so that the
//! confidence interval contains the differences between starts of the processes.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::{CpuShare, Histogram, LatencyRecorder, Record, RoleRun, Values, stats};

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
    let metrics: Vec<(Values, Weight)> = passes
        .iter()
        .filter_map(|r| r.metrics.as_ref())
        .map(|metrics| (metrics.clone(), Weight::of(metrics)))
        .collect();
    let roles = combined_roles(&passes);
    let mut passes = passes.into_iter();
    let mut record = passes.next().expect("a cell has at least one record");
    record.pass = None;
    record.roles = roles;
    if metrics.len() > 1 {
        record.metrics = Some(combined_values(&metrics));
    }
    passes.for_each(|pass| add_counters(&mut record.counters, pass.counters));
    record
}

/// The roles of the first pass, each with its metrics in all passes.
fn combined_roles(passes: &[Record]) -> Vec<RoleRun> {
    let weight = |pass: &Record| pass.metrics.as_ref().map(Weight::of).unwrap_or_default();
    let combined = |role: &RoleRun| {
        let of_name = |pass: &'_ Record| pass.roles.iter().find(|r| r.name == role.name).cloned();
        let each = passes.iter();
        let each: Vec<(RoleRun, Weight)> = each
            .filter_map(|pass| Some((of_name(pass)?, weight(pass))))
            .collect();
        if each.len() < 2 {
            return role.clone();
        }
        let metrics: Vec<(Values, Weight)> = each
            .iter()
            .map(|(role, weight)| (role.metrics.clone(), *weight))
            .collect();
        let share = |part: fn(&CpuShare) -> Option<f64>| {
            let all = each.iter();
            let all = all.filter_map(|(role, weight)| Some((part(&role.cpu)?, weight.elapsed)));
            weighted(&all.collect::<Vec<_>>())
        };
        RoleRun {
            cpu: CpuShare {
                user: share(|cpu| cpu.user),
                system: share(|cpu| cpu.system),
                percent: share(|cpu| cpu.percent),
            },
            metrics: combined_parts(&metrics),
            ..role.clone()
        }
    };
    passes[0].roles.iter().map(combined).collect()
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

/// Weight of a pass in a mean: time for rates, number of messages or requests for latencies.
#[derive(Clone, Copy, Default)]
struct Weight {
    elapsed: f64,
    count: f64,
}

impl Weight {
    fn of(pass: &Values) -> Self {
        let repetitions = pass.get("repetitions").and_then(Value::as_array);
        let counts = repetitions.into_iter().flatten();
        let counts = counts.map(|r| number(r.get("iters").or_else(|| r.get("requests"))));
        Weight {
            elapsed: number(pass.get("elapsed_ns")),
            count: counts.sum(),
        }
    }
}

fn number(value: Option<&Value>) -> f64 {
    value.and_then(Value::as_f64).unwrap_or(0.0)
}

/// Returns the mean of values with their weights; `None` without values.
fn weighted(values: &[(f64, f64)]) -> Option<f64> {
    let all: f64 = values.iter().map(|(_, weight)| weight).sum();
    if all <= 0.0 {
        let values: Vec<f64> = values.iter().map(|(value, _)| *value).collect();
        return stats::mean(&values);
    }
    Some(values.iter().map(|(v, w)| v * w).sum::<f64>() / all)
}

fn combined_values(passes: &[(Values, Weight)]) -> Values {
    let mut all = combined_parts(passes);
    refresh_latencies(&mut all);
    all
}

/// Combines each value of the passes that have it. A pass without it, or with null, does not count.
fn combined_parts(passes: &[(Values, Weight)]) -> Values {
    let mut all = Values::new();
    for name in passes.iter().flat_map(|(pass, _)| pass.keys()) {
        if !all.contains_key(name) {
            let there =
                |(pass, weight): &'_ (Values, Weight)| Some((pass.get(name)?.clone(), *weight));
            let each = passes.iter().filter_map(there);
            let each: Vec<_> = each.filter(|(value, _)| !value.is_null()).collect();
            all.insert(name.clone(), combined_value(name, &each));
        }
    }
    all
}

fn combined_value(name: &str, each: &[(Value, Weight)]) -> Value {
    let Some((first, _)) = each.first() else {
        return Value::Null;
    };
    let numbers = || {
        each.iter()
            .filter_map(|(v, w)| Some((v.as_f64()?, w.elapsed)))
    };
    match first {
        _ if name == "elapsed_ns" => numbers().map(|(value, _)| value).sum::<f64>().into(),
        Value::Array(_) => {
            let arrays = each.iter().filter_map(|(value, _)| value.as_array());
            arrays.flatten().cloned().collect()
        }
        Value::Object(_) if name == "histogram" => combined_histograms(each),
        Value::Object(first) => {
            let is_latency = first.contains_key("p50");
            let part = |(value, weight): &(Value, Weight)| {
                let elapsed = if is_latency {
                    weight.count
                } else {
                    weight.elapsed
                };
                Some((value.as_object()?.clone(), Weight { elapsed, ..*weight }))
            };
            let parts: Vec<_> = each.iter().filter_map(part).collect();
            let mut all = combined_parts(&parts);
            if is_latency {
                let most = parts
                    .iter()
                    .filter_map(|(part, _)| part.get("max")?.as_f64());
                all.insert("max".to_owned(), most.reduce(f64::max).into());
            }
            Value::Object(all)
        }
        // A number of a node, not of things.
        _ if name == "memory_node" => match each.iter().all(|(node, _)| node == first) {
            true => first.clone(),
            false => Value::Null,
        },
        Value::Number(n) if n.is_u64() => {
            let counts = each.iter().filter_map(|(value, _)| value.as_u64());
            counts.sum::<u64>().into()
        }
        Value::Number(_) => weighted(&numbers().collect::<Vec<_>>()).into(),
        other => other.clone(),
    }
}

fn combined_histograms(each: &[(Value, Weight)]) -> Value {
    let read = |(value, _): &(Value, Weight)| -> Option<(LatencyRecorder, u64)> {
        let histogram: Histogram = serde_json::from_value(value.clone()).ok()?;
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
    use serde_json::json;

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

    fn metrics(values: &Value) -> Option<Values> {
        values.as_object().cloned()
    }

    #[test]
    fn a_pass_without_requests_does_not_change_latencies() {
        let mut times = LatencyRecorder::new();
        times.record(adverb_units::Span::from_ns(100));
        let measured = json!({
            "elapsed_ns": 1e9,
            "latency_ns": { "mean": 100.0, "p50": 100.0, "max": 100.0 },
            "repetitions": [{ "requests": 1, "latency_ns": 100.0 }],
            "histogram": times.to_histogram(1),
        });
        let empty = json!({
            "elapsed_ns": 1e9,
            "latency_ns": null,
            "repetitions": [{ "requests": 1, "latency_ns": null }],
            "histogram": null,
        });
        for order in [[&measured, &empty], [&empty, &measured]] {
            let passes = (1..).zip(order).map(|(n, of)| Record {
                metrics: metrics(of),
                ..pass(n, record("a"))
            });
            let all = &merged(passes.collect())[0];
            assert_eq!(all.metric("latency_ns.mean"), Some(100.0));
            assert_eq!(all.metric("latency_ns.p99").map(f64::round), Some(100.0));
            assert_eq!(all.metric("elapsed_ns"), Some(2e9));
        }
    }

    #[test]
    fn roles_and_the_largest_of_other_latencies_are_of_all_passes() {
        let run = |n, max: f64, requests: u64| {
            let role = |name: &str, percent| RoleRun {
                name: name.to_owned(),
                cpu: CpuShare {
                    percent: Some(percent),
                    ..CpuShare::default()
                },
                metrics: metrics(&json!({ "requests": requests })).unwrap(),
                ..RoleRun::default()
            };
            let latency = json!({ "mean": max / 2.0, "p50": max / 2.0, "max": max });
            Record {
                metrics: metrics(&json!({ "elapsed_ns": 1e9, "communication_ns": latency })),
                roles: vec![role("server", max), role("client 0", 100.0)],
                ..pass(n, record("a"))
            }
        };
        let all = &merged(vec![run(1, 20.0, 3), run(2, 60.0, 4)])[0];
        assert_eq!(all.metric("communication_ns.max"), Some(60.0));
        assert_eq!(all.metric("communication_ns.mean"), Some(20.0));
        let [server, client] = &all.roles[..] else {
            panic!("{:?}", all.roles);
        };
        assert_eq!(
            (server.cpu.percent, client.cpu.percent),
            (Some(40.0), Some(100.0))
        );
        assert_eq!(server.metrics["requests"], 7);
    }

    #[test]
    fn the_node_of_a_memory_is_the_one_of_all_passes() {
        let run = |n, node: u32| {
            let role = RoleRun {
                name: "server".to_owned(),
                metrics: metrics(&json!({ "memory_node": node })).unwrap(),
                ..RoleRun::default()
            };
            Record {
                roles: vec![role],
                ..pass(n, record("a"))
            }
        };
        let node = |nodes: [u32; 3]| {
            let passes = (1..).zip(nodes).map(|(n, node)| run(n, node));
            merged(passes.collect())[0].roles[0].metrics["memory_node"].clone()
        };
        assert_eq!(node([1, 1, 1]), 1);
        assert_eq!(node([1, 0, 1]), Value::Null);
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
