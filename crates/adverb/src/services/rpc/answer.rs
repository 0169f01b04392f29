//! The answer: which way to send requests and replies serves best.

use std::cmp::Ordering;

use adverb_patterns::EchoBy;
use adverb_report::findings::{EQUAL, keeps_up};
use adverb_report::format;
use adverb_results::{Record, Values, Word};

use crate::section::differences;
use crate::table::{ns, per_second};

/// Returns the sentence that compares the ways on one device, each at its best point; `None` if there is only one way.
pub(super) fn sentence(records: &[&Record]) -> Option<String> {
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
        match order.best(ranked.iter().filter(|record| is_by(record, by))) {
            Some(record) => best.push((by, record)),
            None if records.iter().any(|record| is_by(record, by)) => {
                slow.push(name(by).to_owned());
            }
            None => {}
        }
    }
    best.sort_by(|a, b| order.compare(a.1, b.1));
    if best.len() + slow.len() < 2 {
        return None;
    }
    let (_, first) = *best.first()?;
    let equal = best
        .iter()
        .filter(|(_, other)| order.are_equal(first, other));
    let equal = equal.count();
    let points: Vec<&Values> = records.iter().map(|record| &record.params).collect();
    let named = best
        .iter()
        .map(|(by, record)| described(*by, record, &points, order));
    let named: Vec<String> = named.collect::<Option<_>>()?;
    let (winners, others) = named.split_at(equal);
    let mut sentence = format!("On {}, {}", first.device, order.lead(winners));
    if !others.is_empty() {
        sentence += &format!(", followed by {}", others.join(", then "));
    }
    if !slow.is_empty() {
        let verb = if slow.len() == 1 { "does" } else { "do" };
        let slow = format::and(&slow);
        sentence += &format!("; {slow} {verb} not keep up with what is offered");
    }
    sentence.push('.');
    if best.len() > 1 && best.iter().any(|(by, _)| *by == EchoBy::Read) {
        sentence +=
            " A READ brings the server no request: it fetches a reply that is already there.";
    }
    if records.iter().any(|record| record.loses()) {
        sentence +=
            " Which packets are lost is chance: other seeds (--seed) may have another order.";
    }
    Some(sentence)
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
    fn best<'r>(self, points: impl Iterator<Item = &'r &'r Record> + Clone) -> Option<&'r Record> {
        let best = points.clone().min_by(|a, b| self.compare(a, b))?;
        let cpu = |record: &Record| record.metric("server_cpu_percent").map_or(0.0, f64::round);
        let equal = points.filter(|point| self.are_equal(best, point));
        equal.min_by(|a, b| cpu(a).total_cmp(&cpu(b))).copied()
    }

    /// Returns that these ways are the best, in words.
    fn lead(self, winners: &[String]) -> String {
        let (one, several) = match self {
            Order::Fastest | Order::FastestOfSlow => {
                ("has the highest rate", "have the highest rate")
            }
            Order::Soonest => ("answers soonest", "answer soonest"),
        };
        let before = match self {
            Order::FastestOfSlow => "no way keeps up with what is offered; ",
            Order::Fastest | Order::Soonest => "",
        };
        match winners {
            [winner] => format!("{before}{winner} {one}"),
            winners => format!(
                "{before}{} {several}, equal within 2 %",
                format::and(winners)
            ),
        }
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
    let transport = record
        .params
        .get("transport")
        .and_then(|word| word.as_str());
    let over = match by {
        EchoBy::Tcp => String::new(),
        _ => format!(" over {}", transport.unwrap_or_default().to_uppercase()),
    };
    Some(format!("{}{over} ({})", name(by), figures.join(", ")))
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
