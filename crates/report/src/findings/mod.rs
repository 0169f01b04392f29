//! Sentences computed from the records. A sentence whose cells are missing or failed is left out; a
//! difference inside the noise is called that.

mod buffers;
mod completion;
mod devices;
mod inline;
mod loss;
mod opcodes;
mod ranking;
mod signaling;

use std::collections::BTreeMap;
use std::fmt;

use adverb_results::{DeviceKind, DeviceRef, PairRecord};

use crate::cells::{Cell, Cells, Quantity, Verdict, compare};
use crate::format;

/// One thing that the records say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which kind of finding, and of what: `completion-send`; one per device.
    pub id: String,
    /// What it is about, the same for neighbours: `Inline data`.
    pub topic: &'static str,
    /// Id of the figure that shows it.
    pub figure: &'static str,
    /// The device that it is about, where the records are of several and it compares none.
    pub device: Option<String>,
    /// In words, with figures and units.
    pub sentence: String,
    /// The cells it was computed from; nothing else went into it.
    pub evidence: Vec<String>,
}

impl fmt::Display for Finding {
    /// The sentence, which names the device where there are several.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            Some(device) => write!(f, "On {device}: {}", self.sentence),
            None => f.write_str(&self.sentence),
        }
    }
}

/// The findings of all devices, in the order of a report.
pub(crate) fn all(records: &[&PairRecord]) -> Vec<Finding> {
    let has_enough = |record: &PairRecord| record.metrics.as_ref().is_some_and(|m| !m.few_messages);
    let cells = Cells::of(records).filter(has_enough);
    let devices = cells.devices();
    let several = devices.len() > 1;
    let of_each = devices.into_iter().flat_map(|device| {
        let scope = Scope {
            cells: cells.filter(|r| r.device == *device),
            device: several.then_some(device),
        };
        of_device(&scope)
    });
    let compared = devices::findings(&cells);
    compared.into_iter().chain(of_each).collect()
}

type Topic = (&'static str, fn(&Scope<'_>) -> Vec<Finding>);

const TOPICS: [Topic; 7] = [
    ("Busy polling or events", completion::findings),
    ("Inline data", inline::findings),
    ("Buffers and lists", buffers::findings),
    ("Signaling", signaling::findings),
    ("Operations", opcodes::findings),
    ("Rankings and tail", ranking::findings),
    ("Loss", loss::findings),
];

fn of_device(scope: &Scope<'_>) -> Vec<Finding> {
    let found = TOPICS.iter().flat_map(|(topic, findings)| {
        findings(scope)
            .into_iter()
            .map(|finding| Finding { topic, ..finding })
    });
    found.collect()
}

/// The cells of one device.
pub(crate) struct Scope<'a> {
    cells: Cells<'a>,
    /// Named where there are several.
    device: Option<&'a DeviceRef>,
}

impl<'a> Scope<'a> {
    fn figure(&self, figure: &'static str) -> Cells<'a> {
        self.cells.figure(figure)
    }

    fn finding(
        &self,
        id: impl Into<String>,
        figure: &'static str,
        sentence: &str,
        evidence: impl Iterator<Item = Cell<'a>>,
    ) -> Finding {
        let id = match self.device {
            Some(device) => format!("{device}-{}", id.into()),
            None => id.into(),
        };
        let mut evidence: Vec<String> = evidence.map(|c| c.record.cell.clone()).collect();
        evidence.sort();
        evidence.dedup();
        Finding {
            id,
            topic: "",
            figure,
            device: self.device.map(ToString::to_string),
            sentence: sentence.to_owned(),
            evidence,
        }
    }
}

/// What keeps cells from being told apart.
#[derive(Clone, Copy)]
enum Noise {
    /// That of measurements.
    Measured,
    /// A model is deterministic: only small differences are not told.
    None,
}

impl Noise {
    fn of(cell: Cell<'_>) -> Self {
        match cell.record.device.kind {
            DeviceKind::Model => Noise::None,
            DeviceKind::Soft | DeviceKind::Verbs => Noise::Measured,
        }
    }

    /// Behind `no difference`.
    fn beyond(self) -> &'static str {
        match self {
            Noise::Measured => "beyond the noise",
            Noise::None => "of 2 % or more (the model has no noise)",
        }
    }

    /// Behind `they do not differ`.
    fn by_more(self) -> &'static str {
        match self {
            Noise::Measured => "beyond the noise",
            Noise::None => "by 2 % or more (the model has no noise)",
        }
    }

    /// Behind `equal`.
    fn within(self) -> &'static str {
        match self {
            Noise::Measured => "within the noise",
            Noise::None => "within 2 % (the model has no noise)",
        }
    }
}

/// Two series compared, place by place.
pub(crate) struct Contest<'a, K> {
    pairs: Vec<(K, Cell<'a>, Cell<'a>, Verdict)>,
}

impl<'a, K: Ord + Copy> Contest<'a, K> {
    /// Over the places that both have and whose noise is known; none where there is no such place.
    fn between(first: &BTreeMap<K, Cell<'a>>, second: &BTreeMap<K, Cell<'a>>) -> Option<Self> {
        let pairs: Vec<_> = crate::cells::pairs(first, second)
            .into_iter()
            .filter_map(|(k, a, b)| compare(a, b).map(|verdict| (k, a, b, verdict)))
            .collect();
        (!pairs.is_empty()).then_some(Contest { pairs })
    }

    fn noise(&self) -> Noise {
        let first = self.pairs.first();
        first.map_or(Noise::Measured, |(_, cell, ..)| Noise::of(*cell))
    }

    fn cells(&self) -> impl Iterator<Item = Cell<'a>> + '_ {
        self.pairs.iter().flat_map(|(_, a, b, _)| [*a, *b])
    }

    /// The places of one verdict in words; none where there is no such place.
    fn places(&self, verdict: Verdict, show: impl Fn(K) -> String) -> Option<String> {
        let all: Vec<K> = self.pairs.iter().map(|p| p.0).collect();
        let these: Vec<K> = self
            .pairs
            .iter()
            .filter(|p| p.3 == verdict)
            .map(|p| p.0)
            .collect();
        (!these.is_empty()).then(|| format::runs(&all, &these, show))
    }

    /// All places in words.
    fn all_places(&self, show: impl Fn(K) -> String) -> String {
        let all: Vec<K> = self.pairs.iter().map(|p| p.0).collect();
        format::runs(&all, &all, show)
    }

    /// Where the winner of this verdict leads by the largest factor, as slower over faster.
    fn best_lead(&self, verdict: Verdict) -> Option<Lead<'a, K>> {
        let leads = self
            .pairs
            .iter()
            .filter(|p| p.3 == verdict)
            .filter_map(|(place, a, b, _)| {
                let (faster, slower) = if verdict == Verdict::Second {
                    (*b, *a)
                } else {
                    (*a, *b)
                };
                let factor = one_way(slower)? / one_way(faster)?;
                factor.is_finite().then_some(Lead {
                    place: *place,
                    factor,
                    faster,
                    slower,
                })
            });
        leads.max_by(|a, b| a.factor.total_cmp(&b.factor))
    }
}

/// One place at which one cell is faster than the other.
pub(crate) struct Lead<'a, K> {
    place: K,
    factor: f64,
    faster: Cell<'a>,
    slower: Cell<'a>,
}

impl<K: Copy> Lead<'_, K> {
    /// `by up to 4.20× (at 1 B: 0.30 µs against 1.26 µs)`.
    fn in_words(&self, quantity: Quantity, show: impl Fn(K) -> String) -> String {
        let value = |c: Cell<'_>| {
            c.sample(quantity)
                .map_or_else(String::new, |s| quantity.show(s.median))
        };
        format!(
            "by up to {} (at {}: {} against {})",
            format::factor(self.factor),
            show(self.place),
            value(self.faster),
            value(self.slower)
        )
    }
}

fn one_way(cell: Cell<'_>) -> Option<f64> {
    cell.sample(Quantity::OneWay).map(|s| s.median)
}

/// Whether one that the fastest can be told from is faster than one that it cannot: the noise ranks none.
fn overlap(first: &[Cell<'_>], rest: &[Cell<'_>]) -> bool {
    let slowest = first
        .iter()
        .filter_map(|c| one_way(*c))
        .max_by(f64::total_cmp);
    let mut rest = rest.iter().filter_map(|c| one_way(*c));
    slowest.is_some_and(|slowest| rest.any(|time| time < slowest))
}

/// The fastest of these cells and those that cannot be told from it; then the rest. None where the
/// noise of one is unknown, or where there is nothing to compare.
fn podium(cells: Vec<Cell<'_>>) -> Option<(Vec<Cell<'_>>, Vec<Cell<'_>>)> {
    let mut timed: Vec<(f64, Cell<'_>)> = cells
        .into_iter()
        .map(|c| one_way(c).map(|t| (t, c)))
        .collect::<Option<_>>()?;
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let best = timed.first().filter(|_| timed.len() >= 2)?.1;
    let (mut first, mut rest) = (vec![best], Vec::new());
    for (_, cell) in &timed[1..] {
        match compare(best, *cell)? {
            Verdict::First => rest.push(*cell),
            _ => first.push(*cell),
        }
    }
    Some((first, rest))
}
