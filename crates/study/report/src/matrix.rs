//! Records between two hosts (those with the parameters `from` and `to`) as matrices, and which pairs of
//! hosts are slow.
//!
//! A matrix holds one metric: the one-way time of `ping`, the request rate or throughput of other programs.

use std::collections::BTreeMap;

use adverb_results::{Record, stats, word};
use adverb_units::Bytes;
use maud::{Markup, html};
use serde_json::Value;

use crate::cells::Quantity;
use crate::format;
use crate::plot::heat::{self, Cell};

/// A pair is slow if it is slower than the reference by more than this factor.
const SLOW: f64 = 1.5;
/// With fewer hosts than this, one slow host is in at least half of all pairs, so that the median is no
/// reference.
const FEWEST_FOR_MEDIAN: usize = 5;
/// Maximum number of pairs that a sentence names.
const MOST_NAMED: usize = 6;

/// Whether a record is of a pair of hosts.
pub fn is_between_hosts(record: &Record) -> bool {
    ends(record).is_some()
}

/// The two hosts of a record.
fn ends(record: &Record) -> Option<(&str, &str)> {
    let end = |name| record.params.get(name)?.as_str();
    Some((end("from")?, end("to")?))
}

/// One metric between hosts.
pub struct Matrix {
    title: String,
    quantity: Quantity,
    hosts: Vec<String>,
    /// Values by row and column; `None` if the pair failed.
    cells: BTreeMap<(usize, usize), Option<f64>>,
    /// The reference for the other pairs, and its name; `None` with fewer than two measured pairs.
    reference: Option<(f64, &'static str)>,
}

/// Returns the matrices of the records that are between hosts: one for each program, device, label and
/// set of other parameters.
pub fn matrices<'r>(records: impl IntoIterator<Item = &'r Record>) -> Vec<Matrix> {
    let records: Vec<&Record> = records
        .into_iter()
        .filter(|r| is_between_hosts(r))
        .collect();
    let mut groups: Vec<Vec<&Record>> = Vec::new();
    for record in records.iter().copied() {
        let same = |group: &&mut Vec<&Record>| key(group[0]) == key(record);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(record),
            None => groups.push(vec![record]),
        }
    }
    let matrix = |group: &Vec<&Record>| {
        // Hosts at one address share memory, which is another device. A host has the same number in both matrices.
        let (cell, _, label) = key(group[0]);
        let same = records.iter().filter(|record| {
            let (other, _, other_label) = key(record);
            (other, other_label) == (cell, label)
        });
        Matrix::of(group, hosts(same.copied()))
    };
    groups.iter().map(matrix).collect()
}

/// Returns the hosts of records in the order of their first use.
fn hosts<'r>(records: impl Iterator<Item = &'r Record>) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for (from, to) in records.filter_map(ends) {
        for host in [from, to] {
            if hosts.iter().all(|known| known != host) {
                hosts.push(host.to_owned());
            }
        }
    }
    hosts
}

/// What the records of a matrix have in common: program and parameters are in the cell's id.
fn key(record: &Record) -> (&str, String, Option<&str>) {
    let cell = record.cell.split("/from=").next().unwrap_or_default();
    (cell, record.device.to_string(), record.label.as_deref())
}

impl Matrix {
    fn of(records: &[&Record], hosts: Vec<String>) -> Self {
        let (path, quantity) = headline(records);
        let mut cells = BTreeMap::new();
        for record in records {
            let number = |name: &str| hosts.iter().position(|host| host == name);
            let ends = ends(record);
            let Some(place) = ends.and_then(|(from, to)| Some((number(from)?, number(to)?))) else {
                continue;
            };
            let value = record.metric(path).filter(|v| record.is_ok() && *v > 0.0);
            // The record has half of it.
            let value = match quantity {
                Quantity::RoundTrip => value.map(|ns| 2.0 * ns),
                _ => value,
            };
            cells.insert(place, value);
        }
        Matrix::new(title(records[0], quantity), quantity, hosts, cells)
    }

    fn new(
        title: String,
        quantity: Quantity,
        hosts: Vec<String>,
        cells: BTreeMap<(usize, usize), Option<f64>>,
    ) -> Self {
        let mut matrix = Matrix {
            title,
            quantity,
            hosts,
            cells,
            reference: None,
        };
        matrix.reference = matrix.find_reference();
        matrix
    }

    /// What is measured: `ping send of 64 B on soft: one-way time`.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Names of the hosts, which are numbered from 0.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Returns the value from one host to another: `None` if it was not to be measured, `Some(None)` if
    /// it failed.
    pub fn cell(&self, from: usize, to: usize) -> Option<Option<f64>> {
        self.cells.get(&(from, to)).copied()
    }

    /// Returns the values' common unit, and its size.
    pub fn unit(&self) -> (&'static str, f64) {
        let values: Vec<f64> = self.values().map(|(_, value)| value).collect();
        let typical = stats::median(&values).unwrap_or(0.0);
        let units: &[(&str, f64)] = match self.quantity {
            Quantity::OneWay | Quantity::RoundTrip => {
                &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)]
            }
            Quantity::RequestRate => &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6)],
            _ => &[("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9)],
        };
        let fitting = units.iter().rev().find(|(_, size)| typical >= *size);
        *fitting.unwrap_or(&units[0])
    }

    fn values(&self) -> impl Iterator<Item = ((usize, usize), f64)> + '_ {
        let cells = self.cells.iter();
        cells.filter_map(|(place, value)| Some((*place, (*value)?)))
    }

    /// How much slower a value is than the reference.
    fn slowness(&self, value: f64, reference: f64) -> f64 {
        match self.quantity {
            Quantity::OneWay | Quantity::RoundTrip => value / reference,
            _ => reference / value,
        }
    }

    fn find_reference(&self) -> Option<(f64, &'static str)> {
        let mut values: Vec<f64> = self.values().map(|(_, value)| value).collect();
        if values.len() < 2 {
            return None;
        }
        if self.hosts.len() >= FEWEST_FOR_MEDIAN {
            return Some((stats::median(&values)?, "the median of all pairs"));
        }
        values.sort_by(|a, b| self.slowness(*a, 1.0).total_cmp(&self.slowness(*b, 1.0)));
        Some((values[values.len() / 4], "the first quartile of all pairs"))
    }

    /// Whether the pair is slow: more than 1.5 times slower than the median of all pairs or, with fewer
    /// than five hosts, than their first quartile.
    pub fn is_slow(&self, from: usize, to: usize) -> bool {
        let value = self.cell(from, to).flatten();
        value
            .zip(self.reference)
            .is_some_and(|(value, (reference, _))| self.slowness(value, reference) > SLOW)
    }

    /// Returns which pairs are slow or failed, and the host that most of them have in common, in sentences.
    pub fn findings(&self) -> Vec<String> {
        let slow = self
            .values()
            .filter(|((from, to), _)| self.is_slow(*from, *to));
        let mut slow: Vec<_> = slow.collect();
        slow.sort_by(|(_, a), (_, b)| {
            let slowness = |v: f64| self.slowness(v, 1.0);
            slowness(*b).total_cmp(&slowness(*a))
        });
        let failed = self.cells.iter().filter(|(_, value)| value.is_none());
        let failed: Vec<_> = failed.map(|(place, _)| *place).collect();
        let all = self.cells.len();
        let quantity = self.quantity.name();
        let mut sentences = Vec::new();
        if let Some((reference, what)) = self.reference {
            let rule = format!(
                "by {quantity} (more than {SLOW} times slower than {what}, {})",
                self.quantity.show(reference)
            );
            let pairs: Vec<_> = slow.iter().map(|(place, _)| *place).collect();
            sentences.push(match pairs.len() {
                0 => format!("None of {all} pairs is slow {rule}."),
                n => {
                    let named = self.named(&pairs, |place| {
                        let value = self.cell(place.0, place.1).flatten();
                        value.map_or_else(String::new, |v| format!(" ({})", self.quantity.show(v)))
                    });
                    let are = if n == 1 { "is" } else { "are" };
                    format!(
                        "{n} of {all} pairs {are} slow {rule}: {named}.{}",
                        self.blame(&pairs)
                    )
                }
            });
        }
        if !failed.is_empty() {
            let named = self.named(&failed, |_| String::new());
            let blame = self.blame(&failed);
            sentences.push(format!(
                "{} of {all} pairs failed: {named}.{blame}",
                failed.len()
            ));
        }
        sentences
    }

    /// `0 → 3 (9.87 µs), 1 → 3 (9.80 µs) and 4 more`.
    fn named(&self, pairs: &[(usize, usize)], value: impl Fn((usize, usize)) -> String) -> String {
        let name = |place: &(usize, usize)| format!("{} → {}{}", place.0, place.1, value(*place));
        let mut words: Vec<String> = pairs.iter().take(MOST_NAMED).map(name).collect();
        if pairs.len() > MOST_NAMED {
            words.push(format!("{} more", pairs.len() - MOST_NAMED));
        }
        format::and(&words)
    }

    /// The host that is in more than half of these pairs, if no other one is in as many.
    fn common_host(&self, pairs: &[(usize, usize)]) -> Option<(usize, usize)> {
        let count = |host: usize| {
            let with = pairs
                .iter()
                .filter(|(from, to)| *from == host || *to == host);
            (host, with.count())
        };
        let mut counts: Vec<_> = (0..self.hosts.len()).map(count).collect();
        counts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        match counts[..] {
            [(host, n), (_, next), ..] if n > next && 2 * n > pairs.len() => Some((host, n)),
            _ => None,
        }
    }

    fn blame(&self, pairs: &[(usize, usize)]) -> String {
        let common = self.common_host(pairs);
        common.map_or_else(String::new, |(host, n)| {
            let (name, of) = (&self.hosts[host], pairs.len());
            format!(" Host {host} ({name}) is in {n} of these {of}.")
        })
    }

    /// The section of the page.
    pub(crate) fn section(&self, number: usize) -> Markup {
        let cells: Vec<Cell> = self
            .cells
            .iter()
            .map(|(place, v)| self.drawn(*place, *v))
            .collect();
        html! {
            section class="figure" id=(id(number)) {
                h2 { (self.title) }
                @for finding in self.findings() { p class="about" { (finding) } }
                div class="panels" {
                    figure class="panel" {
                        figcaption { (self.quantity.name()) ": rows from, columns to" }
                        (heat::draw(&self.title, self.hosts.len(), &cells, |v| self.quantity.show(v)))
                    }
                    ol class="hosts about" start="0" { @for host in &self.hosts { li { (host) } } }
                }
                p class="readout" aria-live="polite" {}
            }
        }
    }

    pub(crate) fn link(&self, number: usize) -> Markup {
        html! { a href={ "#" (id(number)) } { (self.title) } }
    }

    fn drawn(&self, place: (usize, usize), value: Option<f64>) -> Cell {
        let is_slow = self.is_slow(place.0, place.1);
        let shown = value.map_or_else(|| "failed".to_owned(), |v| self.quantity.show(v));
        let (from, to) = (&self.hosts[place.0], &self.hosts[place.1]);
        let remark = if is_slow { ", slow" } else { "" };
        Cell {
            place,
            value,
            text: format!("{} → {} ({from} → {to}): {shown}{remark}", place.0, place.1),
            is_marked: is_slow || value.is_none(),
        }
    }
}

fn id(number: usize) -> String {
    format!("matrix-{number}")
}

/// The metric that a program is about.
fn headline(records: &[&Record]) -> (&'static str, Quantity) {
    if records[0].is_round_trip() {
        return ("one_way_ns.mean", Quantity::RoundTrip);
    }
    if records[0].program == "ping" {
        return ("one_way_ns.mean", Quantity::OneWay);
    }
    let has_requests = records.iter().any(|r| r.metric("requests_per_s").is_some());
    match has_requests {
        true => ("requests_per_s", Quantity::RequestRate),
        false => ("bytes_per_s", Quantity::Throughput),
    }
}

fn title(record: &Record, quantity: Quantity) -> String {
    let mut title = record.program.clone();
    if let Some(op) = word(record.params.get("op")) {
        title += &format!(" {op}");
    }
    if let Some(size) = record.params.get("size_bytes").and_then(Value::as_u64) {
        title += &format!(" of {}", Bytes::new(size));
    }
    let label = record.label.as_ref();
    let label = label.map_or_else(String::new, |label| format!(", {label}"));
    format!("{title} on {}{label}: {}", record.device, quantity.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One-way times of pairs; `None` if the pair failed.
    fn matrix(
        quantity: Quantity,
        hosts: usize,
        value: impl Fn(usize, usize) -> Option<f64>,
    ) -> Matrix {
        let pairs = (0..hosts).flat_map(|from| (from + 1..hosts).map(move |to| (from, to)));
        let names = (0..hosts).map(|n| format!("node{n}")).collect();
        let cells = pairs.map(|(from, to)| ((from, to), value(from, to)));
        Matrix::new("ping".to_owned(), quantity, names, cells.collect())
    }

    #[test]
    fn slow_pairs_are_named_with_the_rule_and_the_host_in_most_of_them() {
        let with = |slow: usize| {
            move |from, to| {
                Some(if from == slow || to == slow {
                    9000.0
                } else {
                    3000.0
                })
            }
        };
        assert_eq!(
            matrix(Quantity::OneWay, 6, with(3)).findings(),
            [
                "5 of 15 pairs are slow by one-way time (more than 1.5 times slower than the median of all pairs, 3.00 µs): 0 → 3 (9.00 µs), 1 → 3 (9.00 µs), 2 → 3 (9.00 µs), 3 → 4 (9.00 µs) and 3 → 5 (9.00 µs). Host 3 (node3) is in 5 of these 5."
            ]
        );
        // One slow host is in two of the three pairs: their median would be slow, too.
        assert_eq!(
            matrix(Quantity::OneWay, 3, with(0)).findings(),
            [
                "2 of 3 pairs are slow by one-way time (more than 1.5 times slower than the first quartile of all pairs, 3.00 µs): 0 → 1 (9.00 µs) and 0 → 2 (9.00 µs). Host 0 (node0) is in 2 of these 2."
            ]
        );
    }

    #[test]
    fn one_slow_pair_blames_no_host_and_none_is_said() {
        let one = |from, to| Some(if (from, to) == (1, 4) { 1e9 } else { 5e9 });
        let [finding] = &matrix(Quantity::Throughput, 5, one).findings()[..] else {
            panic!("one finding")
        };
        assert!(
            finding.starts_with("1 of 10 pairs is slow by throughput"),
            "{finding}"
        );
        assert!(
            finding.ends_with("5.00 GB/s): 1 → 4 (1.00 GB/s)."),
            "{finding}"
        );
        let even = matrix(Quantity::OneWay, 5, |from, _| Some(1000.0 + from as f64));
        assert_eq!(
            even.findings(),
            [
                "None of 10 pairs is slow by one-way time (more than 1.5 times slower than the median of all pairs, 1.00 µs)."
            ]
        );
        assert!(
            matrix(Quantity::OneWay, 2, |_, _| Some(1.0))
                .findings()
                .is_empty()
        );
    }

    #[test]
    fn failed_pairs_are_named_and_drawn() {
        let dead = matrix(Quantity::OneWay, 4, |_, to| (to != 3).then_some(1000.0));
        assert_eq!(
            dead.findings()[1],
            "3 of 6 pairs failed: 0 → 3, 1 → 3 and 2 → 3. Host 3 (node3) is in 3 of these 3."
        );
        assert_eq!((dead.cell(1, 3), dead.cell(3, 1)), (Some(None), None));
        let page = dead.section(0).into_string();
        assert_eq!(page.matches("class=\"pt\"").count(), 6);
        assert!(page.contains("1 → 3 (node1 → node3): failed"), "{page}");
    }

    #[test]
    fn values_share_a_unit() {
        let unit = |quantity, value: f64| matrix(quantity, 3, move |_, _| Some(value)).unit().0;
        assert_eq!(unit(Quantity::OneWay, 900.0), "ns");
        assert_eq!(unit(Quantity::OneWay, 12_000.0), "µs");
        assert_eq!(unit(Quantity::Throughput, 2e9), "GB/s");
        assert_eq!(unit(Quantity::Throughput, 10.0), "kB/s");
    }

    /// Two of three hosts are at one address and share memory.
    #[test]
    fn a_host_has_the_same_number_in_the_matrices_of_two_devices() {
        let record = |device: &str, from: &str, to: &str| -> Record {
            let record = serde_json::json!({
                "schema": 2, "cell": format!("ping/from={from}/to={to}"), "figures": [],
                "status": "ok", "program": "ping", "device": { "kind": "soft", "name": device },
                "params": { "from": from, "to": to },
                "metrics": { "one_way_ns": { "mean": 100.0 } },
                "provenance": {
                    "adverb": "0.1.0", "revision": null, "started": "2026-01-02T03:04:05Z",
                    "virtual_time": false, "host": "testbed", "kernel": "6.1",
                    "cpu": "Some CPU", "cores": 2, "device": {},
                },
            });
            serde_json::from_value(record).unwrap()
        };
        let records = [
            record("soft@10.0.0.1", "a", "b"),
            record("soft", "a", "c"),
            record("soft@10.0.0.1", "b", "c"),
        ];
        let matrices = matrices(&records);
        assert_eq!(matrices.len(), 2);
        assert!(matrices.iter().all(|m| m.hosts() == ["a", "b", "c"]));
        assert_eq!(matrices[1].cell(0, 2).flatten(), Some(100.0));
        assert_eq!(matrices[1].cell(0, 1), None);
    }
}
