//! Findings: sentences that an experiment computes from records, and the parts that they share.
//!
//! A finding is left out if its cells are missing or failed. A difference within the noise is reported as
//! no difference.

use std::collections::BTreeMap;
use std::fmt;

use adverb_results::{DeviceRef, PairRecord, Record};

use crate::Chapter;
use crate::cells::{Cell, Cells, Quantity, Verdict, compare, pairs};
use crate::format;

/// One statement about the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Kind and object of the finding: `completion-send`; unique per device.
    pub id: String,
    /// Its subject, shared with its neighbours: `Inline data`.
    pub topic: &'static str,
    /// Id of the figure that shows it.
    pub figure: &'static str,
    /// The device that it is about, if the records are of several devices and it compares none.
    pub device: Option<String>,
    /// In words, with figures and units.
    pub sentence: String,
    /// The cells that it was computed from.
    pub evidence: Vec<String>,
}

impl fmt::Display for Finding {
    /// The sentence, which names the device if there are several.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            Some(device) => write!(f, "On {device}: {}", self.sentence),
            None => f.write_str(&self.sentence),
        }
    }
}

/// What to use for a need on one device: a row of the table that opens a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What a program needs; equal rows of several devices share a line.
    pub need: &'static str,
    /// How to program it.
    pub choice: String,
    /// What that takes.
    pub cost: String,
    /// Id of the figure that shows it.
    pub figure: &'static str,
}

/// The findings about one subject, or advice, as an experiment declares them.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    title: &'static str,
    cells: Breadth,
    find: Find,
}

#[derive(Clone, Copy, Debug)]
enum Find {
    Findings(fn(&Scope<'_>) -> Vec<Finding>),
    Advice(fn(&Scope<'_>) -> Vec<Advice>),
}

/// Which cells a topic gets at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breadth {
    OneDevice,
    AllDevices,
}

impl Topic {
    /// Findings that are computed for each device by itself.
    pub const fn of_a_device(title: &'static str, find: fn(&Scope<'_>) -> Vec<Finding>) -> Self {
        Topic {
            title,
            cells: Breadth::OneDevice,
            find: Find::Findings(find),
        }
    }

    /// Rows of the table that opens a report, computed for each device by itself.
    pub const fn advice(find: fn(&Scope<'_>) -> Vec<Advice>) -> Self {
        Topic {
            title: "",
            cells: Breadth::OneDevice,
            find: Find::Advice(find),
        }
    }

    /// Findings that compare devices.
    pub const fn across_devices(title: &'static str, find: fn(&Scope<'_>) -> Vec<Finding>) -> Self {
        Topic {
            title,
            cells: Breadth::AllDevices,
            find: Find::Findings(find),
        }
    }
}

/// Returns the findings of all experiments: comparisons of devices first, then device by device.
pub(crate) fn all(records: &[&PairRecord], chapters: &[Chapter]) -> Vec<Finding> {
    let cells = usable(records);
    let devices = cells.devices();
    let several = devices.len() > 1;
    let of_each = devices.into_iter().map(|device| Scope {
        cells: cells.filter(|r| r.device == *device),
        device: several.then_some(device),
    });
    let whole = Scope {
        cells: cells.clone(),
        device: None,
    };
    let mut found = find(chapters, Breadth::AllDevices, &whole);
    found.extend(of_each.flat_map(|scope| find(chapters, Breadth::OneDevice, &scope)));
    found
}

/// The cells with enough messages.
fn usable<'a>(records: &[&'a PairRecord]) -> Cells<'a> {
    let has_enough = |record: &PairRecord| record.metrics.as_ref().is_some_and(|m| !m.few_messages);
    Cells::of(records).filter(has_enough)
}

fn find(chapters: &[Chapter], breadth: Breadth, scope: &Scope<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for topic in chapters.iter().flat_map(|chapter| chapter.topics) {
        if let Find::Findings(find) = topic.find
            && topic.cells == breadth
        {
            found.extend(find(scope).into_iter().map(|finding| Finding {
                topic: topic.title,
                ..finding
            }));
        }
    }
    found
}

/// Returns the advice of all experiments, by device.
pub(crate) fn advice(records: &[&PairRecord], chapters: &[Chapter]) -> Vec<(String, Vec<Advice>)> {
    let cells = usable(records);
    let of_device = |device: &DeviceRef| {
        let scope = Scope {
            cells: cells.filter(|r| r.device == *device),
            device: None,
        };
        let topics = chapters.iter().flat_map(|chapter| chapter.topics);
        let advice = topics.flat_map(|topic| match topic.find {
            Find::Advice(find) => find(&scope),
            Find::Findings(_) => Vec::new(),
        });
        (device.to_string(), advice.collect())
    };
    cells.devices().into_iter().map(of_device).collect()
}

/// Keeps numbers and their units on one line.
pub(crate) fn unbroken(sentence: &str) -> String {
    let mut previous = ' ';
    let keep = |c: char| {
        let joined = if c == ' ' && previous.is_ascii_digit() {
            '\u{a0}'
        } else {
            c
        };
        previous = c;
        joined
    };
    sentence.chars().map(keep).collect()
}

/// The cells that a topic's findings are computed from.
pub struct Scope<'a> {
    /// Cells of one device, or of all.
    pub cells: Cells<'a>,
    /// Their device, if findings have to name it.
    device: Option<&'a DeviceRef>,
}

impl<'a> Scope<'a> {
    /// Returns the cells that a figure shows.
    pub fn figure(&self, figure: &str) -> Cells<'a> {
        self.cells.figure(figure)
    }

    /// Makes a finding that a figure shows.
    pub fn finding(
        &self,
        id: impl Into<String>,
        figure: &'static str,
        sentence: String,
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
            sentence,
            evidence,
        }
    }
}

/// Returns the limit below which cells like this one count as equal, in words that follow `beyond` or
/// `within`. Without noise only small differences are ignored.
pub fn noise(cell: Cell<'_>) -> &'static str {
    match cell.record.has_noise() {
        false => "2 % (the model has no noise)",
        true => "the noise",
    }
}

/// What two series are compared over, and how sentences name its places.
pub struct Scale<K> {
    /// The quantity that is compared.
    quantity: Quantity,
    /// One place in a list of places: `4`.
    in_list: fn(K) -> String,
    /// One place by itself: `4 buffers`.
    alone: fn(K) -> String,
    /// A list of places in a sentence: `with 4 to 16 buffers`.
    at: fn(&str) -> String,
}

impl Scale<u64> {
    /// One-way times over message sizes.
    pub const SIZES: Self = Scale {
        quantity: Quantity::OneWay,
        in_list: format::size,
        alone: format::size,
        at: |places| format!("at {places}"),
    };
}

impl Scale<u32> {
    /// Message rates over numbers of buffers.
    pub const BUFFERS: Self = Scale {
        quantity: Quantity::MessageRate,
        in_list: |n| n.to_string(),
        alone: format::buffers,
        at: |places| match places {
            "1" => "with 1 buffer".to_owned(),
            _ => format!("with {places} buffers"),
        },
    };
}

/// A series by the place of its cells, with words that follow a value: `with lists`.
pub type Named<'s, 'a, K> = (&'static str, &'s BTreeMap<K, Cell<'a>>);

/// Two series, compared place by place.
pub struct Contrast<'a, K> {
    scale: Scale<K>,
    names: [&'static str; 2],
    pairs: Vec<(K, Cell<'a>, Cell<'a>, Verdict)>,
}

impl<'a, K: Ord + Copy> Contrast<'a, K> {
    /// Compares two series at the places that both have and whose noise is known; `None` if there is no
    /// such place.
    pub fn new(scale: Scale<K>, first: Named<'_, 'a, K>, second: Named<'_, 'a, K>) -> Option<Self> {
        let names = [first.0, second.0];
        let pairs: Vec<_> = pairs(first.1, second.1)
            .into_iter()
            .filter_map(|(k, a, b)| compare(a, b).map(|verdict| (k, a, b, verdict)))
            .collect();
        (!pairs.is_empty()).then_some(Contrast {
            scale,
            names,
            pairs,
        })
    }

    /// Returns the places with the cells of both series and their comparison, in order.
    pub fn pairs(&self) -> &[(K, Cell<'a>, Cell<'a>, Verdict)] {
        &self.pairs
    }

    /// Returns [`noise`] of these cells.
    pub fn noise(&self) -> &'static str {
        let first = self.pairs.first();
        first.map_or("the noise", |(_, cell, ..)| noise(*cell))
    }

    /// Returns all cells of both series.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'a>> + '_ {
        self.pairs.iter().flat_map(|(_, a, b, _)| [*a, *b])
    }

    fn places(&self, is_meant: impl Fn(Verdict) -> bool) -> Vec<K> {
        let meant = self.pairs.iter().filter(|(.., verdict)| is_meant(*verdict));
        meant.map(|(place, ..)| *place).collect()
    }

    /// Returns all places in words: `at 1 B to 4 KiB`.
    pub fn everywhere(&self) -> String {
        self.words(&self.places(|_| true))
    }

    /// Returns the places without a difference in words; `None` if there is no such place.
    pub fn ties(&self) -> Option<String> {
        let ties = self.places(|verdict| verdict == Verdict::Tie);
        (!ties.is_empty()).then(|| self.words(&ties))
    }

    fn words(&self, places: &[K]) -> String {
        let all = self.places(|_| true);
        (self.scale.at)(&format::runs(&all, places, self.scale.in_list))
    }

    /// Returns `claim` with the places where it is true and the largest factor: `events are faster at 1 MiB
    /// to 4 MiB, by up to 1.20× (at 1 MiB: 108 µs with busy polling, 90 µs with events)`. `None` if `verdict` is
    /// nowhere true.
    pub fn claim(&self, claim: &str, verdict: Verdict) -> Option<String> {
        let leads = self.pairs.iter().filter(|p| p.3 == verdict);
        let leads = leads.filter_map(|(place, a, b, _)| {
            let (faster, slower) = match verdict {
                Verdict::Second => (*b, *a),
                Verdict::First | Verdict::Tie => (*a, *b),
            };
            let factor = one_way(slower)? / one_way(faster)?;
            let value = |cell: Cell<'_>| Some(cell.sample(self.scale.quantity)?.median);
            let values = (value(*a)?, value(*b)?);
            factor.is_finite().then_some((factor, *place, values))
        });
        let (factor, place, (first, second)) = leads.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let show = |value| self.scale.quantity.show(value);
        let [of_first, of_second] = self.names;
        Some(format!(
            "{claim} {}, by up to {} (at {}: {} {of_first}, {} {of_second})",
            self.words(&self.places(|each| each == verdict)),
            format::factor(factor),
            (self.scale.alone)(place),
            show(first),
            show(second)
        ))
    }

    /// Returns the effect of what the first series does and the second does not: `Posting lists make a
    /// blast faster with 4 to 64 buffers, by up to …; with 1 buffer there is no difference beyond the noise`.
    pub fn effect(&self, cause: &str, of: &str) -> String {
        let sides = [("faster", Verdict::First), ("slower", Verdict::Second)];
        let claims = sides.map(|(word, verdict)| self.claim(word, verdict));
        let claims: Vec<String> = claims.into_iter().flatten().collect();
        let noise = self.noise();
        if claims.is_empty() {
            let everywhere = self.everywhere();
            return format!("{cause} no difference beyond {noise} in {of} {everywhere}.");
        }
        let ties = self.ties().map_or_else(String::new, |places| {
            format!("; {places} there is no difference beyond {noise}")
        });
        format!("{cause} {of} {}{ties}.", claims.join(" and "))
    }
}

/// Share of the offered requests that have to be answered: if fewer are, requests wait longer and longer, and the latency
/// depends on the measured time.
const KEEPS_UP: f64 = 0.95;

/// Returns whether a server has answered the requests that clients were to send. In a closed loop it always does.
/// Arrivals are random: their number may be two standard deviations, `2 √n`, below its mean.
pub fn keeps_up(record: &Record) -> bool {
    let chance = match record.metric("requests") {
        Some(requests) if requests > 0.0 => 2.0 / requests.sqrt(),
        _ => 0.0,
    };
    let rate = record.metric("requests_per_s");
    let is_enough = |asked| rate.is_some_and(|rate| rate * (1.0 + chance) >= KEEPS_UP * asked);
    record.offered().is_none_or(is_enough)
}

/// Figures within this factor are equal.
pub const EQUAL: f64 = 1.02;

/// Times or rates within this factor are about equal.
const ABOUT: f64 = 1.1;

/// Returns whether values are about equal, so that a sentence may call them that if they do not differ beyond the noise.
pub fn about_equal(values: &[f64]) -> bool {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    values.iter().all(|value| *value <= ABOUT * least)
}

/// Returns the mean one-way time, or time per message, in ns.
pub fn one_way(cell: Cell<'_>) -> Option<f64> {
    cell.sample(Quantity::OneWay).map(|s| s.median)
}

/// Cells divided by their one-way time.
pub struct Ranks<'a> {
    /// The fastest cell and those that do not differ from it beyond the noise.
    pub first: Vec<Cell<'a>>,
    /// The others, fastest first.
    pub rest: Vec<Cell<'a>>,
}

impl<'a> Ranks<'a> {
    /// Ranks cells; `None` if the noise of one is unknown, or if there is nothing to compare.
    pub fn of(cells: impl IntoIterator<Item = Cell<'a>>) -> Option<Self> {
        let timed = cells.into_iter().map(|c| one_way(c).map(|t| (t, c)));
        let mut timed: Vec<(f64, Cell<'_>)> = timed.collect::<Option<_>>()?;
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let best = timed.first().filter(|_| timed.len() >= 2)?.1;
        let (mut first, mut rest) = (vec![best], Vec::new());
        for (_, cell) in &timed[1..] {
            match compare(best, *cell)? {
                Verdict::First => rest.push(*cell),
                _ => first.push(*cell),
            }
        }
        Some(Ranks { first, rest })
    }

    /// Returns whether the first cells are about equal. If not, the noise is only too large to tell them apart.
    pub fn is_close(&self) -> bool {
        let times: Vec<f64> = self.first.iter().filter_map(|c| one_way(*c)).collect();
        about_equal(&times)
    }

    /// Returns whether a cell that differs from the fastest is faster than one that does not: then the
    /// noise is too large to rank the cells.
    pub fn overlap(&self) -> bool {
        let times =
            |cells: &[Cell<'a>]| -> Vec<f64> { cells.iter().filter_map(|c| one_way(*c)).collect() };
        let rest = times(&self.rest);
        let slower_than = |time: f64| rest.iter().any(|other| *other < time);
        times(&self.first).into_iter().any(slower_than)
    }

    /// Returns the cells in tiers, fastest first: each cell of a tier is faster than each cell of the next
    /// tiers, although the noise may be too large to rank the cells within a tier.
    pub fn tiers(&self) -> Vec<Vec<Cell<'a>>> {
        let mut cells = [&self.first[..], &self.rest[..]].concat();
        let time = |cell: &Cell<'_>| one_way(*cell).unwrap_or(f64::INFINITY);
        cells.sort_by(|a, b| time(a).total_cmp(&time(b)));
        let mut tiers = vec![Vec::new()];
        for (place, cell) in cells.iter().enumerate() {
            let (faster, slower) = cells.split_at(place);
            let is_apart = |fast: &Cell<'_>| slower.iter().all(|slow| is_faster(*fast, *slow));
            if place > 0 && faster.iter().all(is_apart) {
                tiers.push(Vec::new());
            }
            if let Some(tier) = tiers.last_mut() {
                tier.push(*cell);
            }
        }
        tiers
    }
}

/// Returns whether a cell is faster than another beyond the noise, or each of its repetitions took at most
/// half as long as each of the other's: with few repetitions the interval of a mean can be wider than that.
fn is_faster(fast: Cell<'_>, slow: Cell<'_>) -> bool {
    let samples = fast
        .sample(Quantity::OneWay)
        .zip(slow.sample(Quantity::OneWay));
    compare(fast, slow) == Some(Verdict::First)
        || samples.is_some_and(|(fast, slow)| 2.0 * fast.max <= slow.min)
}
