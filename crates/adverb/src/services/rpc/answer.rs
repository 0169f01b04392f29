//! The answer: which way to send requests and replies serves best.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use adverb_patterns::EchoBy;
use adverb_report::findings::{EQUAL, keeps_up};
use adverb_report::format;
use adverb_results::{Record, Values, Word};

use crate::section::differences;
use crate::table::{ns, per_second};

/// Parameters that a way may choose for itself. The others are the workload, and ways are compared at the same one.
const CHOICES: [&str; 7] = [
    "by",
    "transport",
    "machines",
    "server_cores",
    "clients",
    "outstanding",
    "completion",
];

/// Returns the sentence that compares the ways on one device, at each point of the workload; `None` if there is only one
/// way.
pub(super) fn sentence(records: &[&Record]) -> Option<String> {
    let points: Vec<&Values> = records.iter().map(|record| &record.params).collect();
    let mut workloads: Vec<(Vec<String>, Vec<&Record>)> = Vec::new();
    for record in records {
        let workload = differences(&record.params, &points, &CHOICES);
        match workloads.iter_mut().find(|(own, _)| *own == workload) {
            Some((_, own)) => own.push(record),
            None => workloads.push((workload, vec![record])),
        }
    }
    let ways = EchoBy::ALL.into_iter();
    let ways = ways.filter(|by| records.iter().any(|record| is_by(record, *by)));
    if ways.count() < 2 {
        return None;
    }
    let compared = match &workloads[..] {
        [_] => Ranking::of(records).in_full(&points)?,
        _ => over_workloads(&workloads),
    };
    let mut sentence = format!("On {}, {compared}.", records.first()?.device);
    let mut rankings = workloads.iter().map(|(_, records)| Ranking::of(records));
    if rankings.any(|ranking| ranking.compares_read()) {
        sentence +=
            " A READ brings the server no request: it fetches a reply that is already there.";
    }
    if records.iter().any(|record| record.loses()) {
        sentence +=
            " Which packets are lost is chance: other seeds (--seed) may have another order.";
    }
    Some(sentence)
}

/// Returns which of several devices is the fastest, and by how much; `None` if one has several points or requests were
/// offered at a rate.
pub(super) fn of_devices(records: &[Record]) -> Option<String> {
    let mut names: Vec<String> = records.iter().map(|of| of.device.to_string()).collect();
    names.sort();
    names.dedup();
    let is_comparable =
        names.len() == records.len() && records.iter().all(|of| of.offered().is_none());
    let rates = records.iter().map(|of| Some((rate(of)?, of)));
    let mut rates = rates
        .collect::<Option<Vec<_>>>()
        .filter(|_| is_comparable)?;
    rates.sort_by(|a, b| b.0.total_cmp(&a.0));
    let [(most, fastest), others @ ..] = &rates[..] else {
        return None;
    };
    let others = others.iter().map(|(rate, of)| {
        let than = match most / rate {
            by if by <= EQUAL => "equal within 2 % to".to_owned(),
            by => format!("{} the rate of", format::factor(by)),
        };
        Some(format!("{than} {} ({})", of.device, per_second(*rate)?))
    });
    let others = others
        .collect::<Option<Vec<_>>>()
        .filter(|all| !all.is_empty())?;
    let most = per_second(*most)?;
    Some(format!(
        "{} has the highest rate ({most}): {}.",
        fastest.device,
        format::and(&others)
    ))
}

/// The ways at one point of the workload.
struct Ranking<'r> {
    order: Order,
    /// The best record of each way, best first; each tier holds those that are equal.
    tiers: Vec<Vec<(EchoBy, &'r Record)>>,
    /// Ways that do not keep up where others do.
    slow: Vec<EchoBy>,
}

impl<'r> Ranking<'r> {
    fn of(records: &[&'r Record]) -> Self {
        let able = records.iter().filter(|record| keeps_up(record));
        let able: Vec<&Record> = able.copied().collect();
        let is_offered = records.iter().all(|record| record.offered().is_some());
        let (order, ranked) = match (is_offered, able.is_empty()) {
            (false, _) => (Order::Fastest, records),
            (true, false) => (Order::Soonest, &able[..]),
            (true, true) => (Order::FastestOfSlow, records),
        };
        let (mut best, mut slow) = (Vec::new(), Vec::new());
        for by in EchoBy::ALL {
            let of_way = ranked.iter().copied().filter(|record| is_by(record, by));
            match order.best(of_way) {
                Some(record) => best.push((by, record)),
                None if records.iter().any(|record| is_by(record, by)) => slow.push(by),
                None => {}
            }
        }
        best.sort_by(|a, b| order.compare(a.1, b.1));
        let mut tiers: Vec<Vec<(EchoBy, &Record)>> = Vec::new();
        for (by, record) in best {
            match tiers.last_mut() {
                Some(tier) if order.are_equal(tier[0].1, record) => tier.push((by, record)),
                _ => tiers.push(vec![(by, record)]),
            }
        }
        Ranking { order, tiers, slow }
    }

    /// Returns the ways from best to worst, each with its figures.
    fn in_full(&self, points: &[&Values]) -> Option<String> {
        let named = |(by, record): &(EchoBy, &Record)| described(*by, record, points, self.order);
        let mut tiers = Vec::new();
        for tier in &self.tiers {
            tiers.push(tier.iter().map(named).collect::<Option<Vec<_>>>()?);
        }
        let (first, others) = tiers.split_first()?;
        let mut words = self.order.leads(first, "");
        if self.order == Order::FastestOfSlow {
            words = format!("{NONE_KEEPS_UP}; {words}");
        }
        if !others.is_empty() {
            let others = others.iter().map(|tier| format::and(tier) + equal(tier));
            let others: Vec<String> = others.collect();
            words += &format!(", followed by {}", others.join(", then "));
        }
        if !self.slow.is_empty() {
            let verb = if self.slow.len() == 1 { "does" } else { "do" };
            let slow: Vec<String> = self.slow.iter().map(|by| name(*by).to_owned()).collect();
            let slow = format::and(&slow);
            words += &format!("; {slow} {verb} not keep up with what is offered");
        }
        Some(words)
    }

    /// Whether READ is compared with another way.
    fn compares_read(&self) -> bool {
        let ways = || self.tiers.iter().flatten();
        ways().count() > 1 && ways().any(|(by, _)| *by == EchoBy::Read)
    }

    /// Returns the ways that lead, which are equal; empty if none keeps up.
    fn leaders(&self) -> Vec<String> {
        let tiers = self.tiers.iter().take(1).flatten();
        let tiers = tiers.filter(|_| self.order != Order::FastestOfSlow);
        let mut ways: Vec<String> = tiers.map(|(by, record)| way(*by, record)).collect();
        // Which of equal ways is ahead by a hair means nothing.
        ways.sort();
        ways
    }
}

/// Returns which way leads at all points of the workload, or which one leads where.
fn over_workloads(workloads: &[(Vec<String>, Vec<&Record>)]) -> String {
    let rankings = workloads.iter().map(|(_, records)| Ranking::of(records));
    let rankings: Vec<Ranking<'_>> = rankings.collect();
    let is_offered = rankings.iter().all(|at| at.order != Order::Fastest);
    let order = match is_offered {
        true => Order::Soonest,
        false => Order::Fastest,
    };
    let leaders: Vec<Vec<String>> = rankings.iter().map(Ranking::leaders).collect();
    // Points in a row at which the same ways lead.
    let mut runs: Vec<(Vec<String>, Vec<&[String]>)> = Vec::new();
    for ((workload, _), leaders) in workloads.iter().zip(&leaders) {
        match runs.last_mut() {
            Some((shared, points)) if shared == leaders => points.push(workload),
            _ => runs.push((leaders.clone(), vec![workload])),
        }
    }
    let is_sweep = workloads.iter().all(|(workload, _)| workload.len() == 1);
    let all = leaders.len();
    let clauses: Vec<String> = match &runs[..] {
        [(shared, _)] => vec![order.leads(shared, &format!("at all {all} points"))],
        runs if is_sweep && runs.len() <= FEW_RUNS => {
            let clauses = runs.iter();
            let clauses = clauses.map(|(shared, points)| order.leads(shared, &at(points)));
            clauses.collect()
        }
        _ => {
            let mut counts: BTreeMap<&[String], u32> = BTreeMap::new();
            for leaders in &leaders {
                *counts.entry(leaders).or_default() += 1;
            }
            let mut counts: Vec<(&[String], u32)> = counts.into_iter().collect();
            counts.sort_by_key(|(_, count)| Reverse(*count));
            let counts = counts.into_iter();
            let clauses =
                counts.map(|(way, count)| order.leads(way, &format!("at {count} of {all} points")));
            clauses.collect()
        }
    };
    clauses.join("; ")
}

/// More runs of points than this are counted instead of listed.
const FEW_RUNS: usize = 4;

/// `at reply_bytes=64`, `at reply_bytes=64 to 4096`.
fn at(points: &[&[String]]) -> String {
    let ends = points.first().zip(points.last());
    let (first, last) = ends.map_or_else(Default::default, |(a, b)| (a.join(", "), b.join(", ")));
    match last.split_once('=') {
        Some((_, value)) if points.len() > 1 => format!("at {first} to {value}"),
        _ => format!("at {first}"),
    }
}

/// By what the ways are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The highest rate first.
    Fastest,
    /// The shortest latency first, of the points that keep up.
    Soonest,
    /// The highest rate first, of points that do not keep up.
    FastestOfSlow,
}

impl Order {
    /// Returns what is ordered: the less, the better.
    fn value(self, record: &Record) -> f64 {
        let value = match self {
            Order::Fastest | Order::FastestOfSlow => rate(record).map(f64::recip),
            Order::Soonest => record.metric("latency_ns.p50"),
        };
        value.unwrap_or(f64::INFINITY)
    }

    fn compare(self, a: &Record, b: &Record) -> Ordering {
        self.value(a).total_cmp(&self.value(b))
    }

    fn are_equal(self, best: &Record, other: &Record) -> bool {
        self.value(other) <= EQUAL * self.value(best)
    }

    /// Returns the best of some points. Of equal ones, the server uses the least CPU in it.
    fn best<'r>(self, points: impl Iterator<Item = &'r Record> + Clone) -> Option<&'r Record> {
        let best = points.clone().min_by(|a, b| self.compare(a, b))?;
        let cpu = |record: &Record| record.metric("server_cpu_percent").map_or(0.0, f64::round);
        let equal = points.filter(|point| self.are_equal(best, point));
        equal.min_by(|a, b| cpu(a).total_cmp(&cpu(b)))
    }

    /// Returns that these ways are the best `at` some points, in words.
    fn leads(self, ways: &[String], at: &str) -> String {
        let verb = match (self, ways.len()) {
            (_, 0) => return format!("{at} {NONE_KEEPS_UP}"),
            (Order::Soonest, 1) => " answers soonest",
            (Order::Soonest, _) => " answer soonest",
            (_, 1) => " has the highest rate",
            _ => " have the highest rate",
        };
        let space = if at.is_empty() { "" } else { " " };
        format!("{}{verb}{space}{at}{}", format::and(ways), equal(ways))
    }
}

const NONE_KEEPS_UP: &str = "no way keeps up with what is offered";

/// Returns that several ways are equal.
fn equal(ways: &[String]) -> &'static str {
    match ways {
        [] | [_] => "",
        _ => ", equal within 2 %",
    }
}

fn rate(record: &Record) -> Option<f64> {
    record.metric("requests_per_s")
}

fn is_by(record: &Record, by: EchoBy) -> bool {
    record.params.get("by") == Some(&by.word().into())
}

/// `READ over RC (clients=20, 11.3 M/s, p50 1.77 µs, server CPU 0 %)`.
fn described(by: EchoBy, record: &Record, points: &[&Values], order: Order) -> Option<String> {
    let mut figures = differences(&record.params, points, &["by", "transport", "machines"]);
    figures.push(per_second(rate(record)?)?);
    let p50 = record.metric("latency_ns.p50");
    let p50 = p50.filter(|_| order != Order::FastestOfSlow);
    figures.extend(p50.map(|p50| format!("p50 {}", ns(p50))));
    let cpu = record.metric("server_cpu_percent");
    figures.extend(cpu.map(|percent| format!("server CPU {percent:.0} %")));
    Some(format!("{} ({})", way(by, record), figures.join(", ")))
}

/// `READ over RC`.
fn way(by: EchoBy, record: &Record) -> String {
    let transport = record.params.get("transport");
    let transport = transport.and_then(|word| word.as_str());
    match by {
        EchoBy::Tcp => name(by).to_owned(),
        _ => format!(
            "{} over {}",
            name(by),
            transport.unwrap_or_default().to_uppercase()
        ),
    }
}

/// Returns the name of a way in a sentence.
fn name(by: EchoBy) -> &'static str {
    match by {
        EchoBy::Send => "SEND",
        EchoBy::Write => "WRITE and polling",
        EchoBy::WriteSend => "WRITE answered by SEND",
        EchoBy::Read => "READ",
        EchoBy::Tcp => "TCP",
    }
}
