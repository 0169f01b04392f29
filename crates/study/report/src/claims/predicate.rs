//! The conditions under which claims hold.

use std::collections::BTreeMap;

use adverb_results::CpuShare;
use adverb_results::stats::Spread;
use serde::{Deserialize, Serialize};

use super::factor;
use super::pick::{Pick, Places};
use super::reading::Reading;
use crate::cells::{Cell, Cells, Quantity};
use crate::findings::EQUAL;
use crate::format;

/// A quantity of a cell, its median over the repetitions if each repetition has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// Mean one-way time, or time per message, in ns.
    #[default]
    OneWay,
    /// Mean time of a round, in ns.
    RoundTrip,
    /// Payload per second.
    Throughput,
    /// Payload of one direction, in Mb/s.
    Megabits,
    /// CPU of the active side, in percent of one core.
    CpuActive,
    /// CPU of the passive side.
    CpuPassive,
    /// CPU time of the active side in a round, in ns.
    CpuTimeActive,
    /// CPU time of the passive side in a round, in ns.
    CpuTimePassive,
    /// CPU of the passive side over CPU of the active side.
    CpuPassiveToActive,
    /// User over system time of the active side.
    UserToSystemActive,
    /// User over system time of the passive side.
    UserToSystemPassive,
}

impl Value {
    /// Returns the value of a cell, over its repetitions if they have it.
    fn of(self, cell: Cell<'_>) -> Option<Spread> {
        let sample = |quantity| Some(cell.sample(quantity)?.median);
        let cpu = &cell.metrics.cpu;
        let whole = match self {
            Value::CpuTimePassive => {
                Some(sample(Quantity::CpuPassive)? / 100.0 * sample(Quantity::RoundTrip)?)
            }
            Value::CpuPassiveToActive => {
                Some(sample(Quantity::CpuPassive)? / sample(Quantity::CpuActive)?)
            }
            Value::UserToSystemActive => user_to_system(cpu.active),
            Value::UserToSystemPassive => user_to_system(cpu.passive),
            other => return cell.sample(other.quantity()?),
        };
        Spread::of(&[whole?])
    }

    /// Returns the quantity that formats it; `None` for a ratio.
    fn quantity(self) -> Option<Quantity> {
        match self {
            Value::OneWay => Some(Quantity::OneWay),
            Value::RoundTrip => Some(Quantity::RoundTrip),
            Value::Throughput => Some(Quantity::Throughput),
            Value::Megabits => Some(Quantity::Megabits),
            Value::CpuActive => Some(Quantity::CpuActive),
            Value::CpuPassive => Some(Quantity::CpuPassive),
            Value::CpuTimeActive | Value::CpuTimePassive => Some(Quantity::CpuActivePerRound),
            Value::CpuPassiveToActive | Value::UserToSystemActive | Value::UserToSystemPassive => {
                None
            }
        }
    }

    fn show(self, value: f64) -> String {
        match self.quantity() {
            Some(quantity) => quantity.show(value),
            None => factor(value),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Value::CpuTimePassive => "CPU time per round, passive side",
            Value::CpuPassiveToActive => "CPU, passive side / active side",
            Value::UserToSystemActive => "user / system time, active side",
            Value::UserToSystemPassive => "user / system time, passive side",
            other => other.quantity().map_or("", Quantity::name),
        }
    }
}

/// Returns user over system time; `None` if neither was used or measured.
fn user_to_system(cpu: CpuShare) -> Option<f64> {
    let (user, system) = (cpu.user?, cpu.system?);
    (user + system > 0.0).then(|| user / system)
}

/// A condition over a value of cells. Parameters of a [`Pick`] here are in addition to those that all cells of the
/// claim have. Except for `Flat` and `Growth`, the condition has to be true at every place that all series have.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum Predicate {
    /// The value is within bounds.
    Within(Bounds),
    /// The values of all series are within bounds.
    Each {
        /// The series.
        of: Vec<Pick>,
        /// Bounds of each value.
        is: Bounds,
    },
    /// One value over another is within bounds.
    Ratio {
        /// Numerator.
        of: Pick,
        /// Denominator.
        to: Pick,
        /// Bounds of the ratio.
        is: Bounds,
    },
    /// One value minus another is within bounds.
    Difference {
        /// Minuend.
        of: Pick,
        /// Subtrahend.
        to: Pick,
        /// Bounds of the difference, in the unit of the value.
        is: Bounds,
    },
    /// The ratio of the first two series is smaller than the ratio of the last two.
    Gain([Pick; 4]),
    /// The largest value of the range over the smallest one is within bounds.
    Flat(Bounds),
    /// The last value of the range over the first one is within bounds.
    Growth(Bounds),
    /// Every value of a rank is smaller than all values of the next one.
    Order(Vec<Vec<Pick>>),
    /// `of` is smaller than `to` up to a place, and not smaller from another one on.
    Crossover {
        /// The series that is smaller at first.
        of: Pick,
        /// The other one.
        to: Pick,
        /// Last place at which `of` has to be smaller.
        up_to: Places,
        /// First place from which on it must not be smaller.
        from: Places,
    },
    /// A metric of records of any program, or its ratio to another one, is within bounds.
    Records(Reading),
}

/// The least and the largest value of an interval; a missing one is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Smallest value inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// Largest value inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
}

impl Bounds {
    /// Returns the bounds of a value whose ratio to `value` has these bounds.
    pub(super) fn times(self, value: f64) -> Self {
        Bounds {
            least: self.least.map(|least| least * value),
            most: self.most.map(|most| most * value),
        }
    }

    pub(super) fn contains(self, value: f64) -> bool {
        self.least.is_none_or(|least| value >= least) && self.most.is_none_or(|most| value <= most)
    }

    pub(super) fn words(self, show: impl Fn(f64) -> String) -> String {
        match (self.least, self.most) {
            (Some(least), Some(most)) => format!("from {} to {}", show(least), show(most)),
            (Some(least), None) => format!("≥ {}", show(least)),
            (None, Some(most)) => format!("≤ {}", show(most)),
            (None, None) => "is measured".to_owned(),
        }
    }
}

/// Whether a condition is true at one place.
pub(super) struct Check {
    pub(super) is_true: bool,
    /// Whether another repetition of one of the cells makes no difference to that.
    pub(super) is_certain: bool,
    /// The figures in words, with the place.
    pub(super) figures: String,
}

impl Check {
    /// Returns a check of these figures, without a look at other repetitions.
    pub(super) fn of(is_true: bool, figures: String) -> Self {
        Check {
            is_true,
            is_certain: true,
            figures,
        }
    }
}

/// The values of all series at one place.
#[derive(Clone)]
struct Point {
    at: u64,
    /// The place in words that follow a figure.
    place: String,
    values: Vec<f64>,
    /// The values in the repetitions.
    spreads: Vec<Spread>,
}

impl Point {
    /// Returns this point with the value of one series as in another repetition, for each series and its extreme values.
    fn repeated(&self) -> impl Iterator<Item = Point> + '_ {
        let each = self.spreads.iter().enumerate();
        each.flat_map(|(series, spread)| {
            [spread.min, spread.max].map(|value| {
                let mut other = self.clone();
                other.values[series] = value;
                other
            })
        })
    }
}

impl Predicate {
    /// Returns the series that it compares; empty if the claim's own cells are the only one.
    pub fn series(&self) -> Vec<&Pick> {
        match self {
            Predicate::Within(_)
            | Predicate::Flat(_)
            | Predicate::Growth(_)
            | Predicate::Records(_) => Vec::new(),
            Predicate::Ratio { of, to, .. }
            | Predicate::Difference { of, to, .. }
            | Predicate::Crossover { of, to, .. } => vec![of, to],
            Predicate::Gain(picks) => picks.iter().collect(),
            Predicate::Each { of, .. } => of.iter().collect(),
            Predicate::Order(ranks) => ranks.iter().flatten().collect(),
        }
    }

    /// Returns whether the condition is true at each place; an error says which cells are missing.
    pub(super) fn checks(
        &self,
        value: Value,
        base: &Pick,
        cells: &Cells<'_>,
    ) -> Result<Vec<Check>, String> {
        let own = self.series();
        let picks: Vec<Pick> = match own.is_empty() {
            true => vec![base.clone()],
            false => own.into_iter().map(|own| base.with(own)).collect(),
        };
        let points = points(value, &picks, cells)?;
        match self {
            Predicate::Flat(bounds) | Predicate::Growth(bounds) => {
                let (Some(first), Some(last)) = (points.first(), points.last()) else {
                    return Err(missing(&picks[0]));
                };
                if first.at == last.at {
                    return Err(format!("a single record of {}", picks[0]));
                }
                let (high, low) = match self {
                    Predicate::Growth(_) => (last, first),
                    _ => extremes(&points),
                };
                let of = |high: &Point, low: &Point| over_range(value, (high, low), *bounds);
                let check = of(high, low);
                let same = |other: Check| other.is_true == check.is_true;
                let is_certain = high.repeated().all(|high| same(of(&high, low)))
                    && low.repeated().all(|low| same(of(high, &low)));
                Ok(vec![Check {
                    is_certain,
                    ..check
                }])
            }
            Predicate::Crossover { up_to, from, .. } => {
                let has = |is_meant: &dyn Fn(u64) -> bool| points.iter().any(|p| is_meant(p.at));
                if !(has(&|at| up_to.reaches(at)) && has(&|at| !from.exceeds(at))) {
                    return Err(format!(
                        "no records on both sides of the crossover of {}",
                        picks[0]
                    ));
                }
                let decided = points
                    .iter()
                    .filter(|p| up_to.reaches(p.at) || !from.exceeds(p.at));
                Ok(decided.map(|point| self.repeated(value, point)).collect())
            }
            _ => Ok(points
                .iter()
                .map(|point| self.repeated(value, point))
                .collect()),
        }
    }

    /// Checks the condition at one place, in other repetitions, too.
    fn repeated(&self, value: Value, point: &Point) -> Check {
        let check = self.check(value, point);
        let mut others = point.repeated();
        Check {
            is_certain: others.all(|other| self.check(value, &other).is_true == check.is_true),
            ..check
        }
    }

    /// Checks the condition at one place.
    fn check(&self, value: Value, point: &Point) -> Check {
        let Point {
            at, place, values, ..
        } = point;
        match self {
            Predicate::Within(bounds) | Predicate::Flat(bounds) | Predicate::Growth(bounds) => {
                Check::of(
                    bounds.contains(values[0]),
                    format!("{}{place}", value.show(values[0])),
                )
            }
            Predicate::Each { of, is } => {
                let shown = of.iter().zip(values);
                let shown = shown.map(|(pick, v)| format!("{pick}: {}", value.show(*v)));
                Check::of(
                    values.iter().all(|v| is.contains(*v)),
                    shown.collect::<Vec<_>>().join(", ") + place,
                )
            }
            Predicate::Ratio { is, .. } => Check::of(
                is.contains(values[0] / values[1]),
                against(value, values, place),
            ),
            Predicate::Difference { is, .. } => {
                let difference = values[0] - values[1];
                let sign = if difference < 0.0 { "-" } else { "" };
                let [shown, one, other] =
                    [difference.abs(), values[0], values[1]].map(|v| value.show(v));
                Check::of(
                    is.contains(difference),
                    format!("{sign}{shown}{place} ({one} - {other})"),
                )
            }
            Predicate::Gain(_) => {
                let (one, other) = (values[0] / values[1], values[2] / values[3]);
                Check::of(
                    one * EQUAL <= other,
                    format!("{} against {}{place}", factor(one), factor(other)),
                )
            }
            Predicate::Order(ranks) => in_order(value, ranks, point),
            Predicate::Records(_) => unreachable!("it is not about cells"),
            Predicate::Crossover { up_to, .. } => Check::of(
                (values[0] * EQUAL <= values[1]) == up_to.reaches(*at),
                against(value, values, place),
            ),
        }
    }
}

fn missing(pick: &Pick) -> String {
    format!("no record of {pick}")
}

/// Returns the values of all series at the places that all of them have, at least one; an error names what is
/// missing.
fn points(value: Value, picks: &[Pick], cells: &Cells<'_>) -> Result<Vec<Point>, String> {
    let series = picks.iter().map(|pick| {
        let cells = pick.series(cells).into_iter();
        let values = cells.filter_map(|(at, cell)| Some((at, value.of(cell)?)));
        let values: BTreeMap<u64, Spread> = values.collect();
        (!values.is_empty())
            .then_some(values)
            .ok_or_else(|| missing(pick))
    });
    let series: Vec<BTreeMap<u64, Spread>> = series.collect::<Result<_, _>>()?;
    let point = |at: &u64| {
        let spreads = series.iter().map(|values| values.get(at).copied());
        let spreads: Vec<Spread> = spreads.collect::<Option<_>>()?;
        Some(Point {
            at: *at,
            place: picks[0].place(*at),
            values: spreads.iter().map(|spread| spread.median).collect(),
            spreads,
        })
    };
    let points: Vec<Point> = series[0].keys().filter_map(point).collect();
    match points.is_empty() {
        true => Err(format!(
            "no place of which all series have a record: {}",
            picks[0]
        )),
        false => Ok(points),
    }
}

/// Returns the points with the largest and the smallest value.
fn extremes(points: &[Point]) -> (&Point, &Point) {
    let (mut high, mut low) = (&points[0], &points[0]);
    for point in points {
        if point.values[0] > high.values[0] {
            high = point;
        }
        if point.values[0] < low.values[0] {
            low = point;
        }
    }
    (high, low)
}

fn over_range(value: Value, (one, other): (&Point, &Point), bounds: Bounds) -> Check {
    let (a, b) = (one.values[0], other.values[0]);
    let [shown, reference] = [a, b].map(|v| value.show(v));
    Check::of(
        bounds.contains(a / b),
        format!(
            "{} ({shown}{} against {reference}{})",
            factor(a / b),
            one.place,
            other.place
        ),
    )
}

/// `0.74× at 64 B (1.05 µs against 1.41 µs)`.
fn against(value: Value, values: &[f64], place: &str) -> String {
    let (one, other) = (value.show(values[0]), value.show(values[1]));
    format!(
        "{}{place} ({one} against {other})",
        factor(values[0] / values[1])
    )
}

/// Compares the ranks at a place, whose values are those of all ranks one after the other.
fn in_order(value: Value, ranks: &[Vec<Pick>], point: &Point) -> Check {
    let (mut rest, mut is_true, mut floor) = (&point.values[..], true, f64::MIN);
    let mut words = Vec::new();
    for rank in ranks {
        let (own, others) = rest.split_at(rank.len());
        rest = others;
        is_true &= own.iter().all(|v| *v >= floor);
        floor = own.iter().fold(f64::MIN, |a, b| a.max(*b)) * EQUAL;
        let named = rank.iter().zip(own);
        let named = named.map(|(pick, v)| format!("{pick}: {}", value.show(*v)));
        words.push(format::and(&named.collect::<Vec<_>>()));
    }
    Check::of(is_true, format!("{}{}", words.join(", "), point.place))
}

impl Predicate {
    /// Returns the condition on a value in words: `one-way time: (inline) / (not inline) ≤ 0.98×`.
    pub(super) fn words(&self, value: Value) -> String {
        let name = value.name();
        match self {
            Predicate::Within(bounds) => format!("{name} {}", bounds.words(|v| value.show(v))),
            Predicate::Each { of, is } => {
                let picks: Vec<String> = of.iter().map(|pick| format!("({pick})")).collect();
                let bounds = is.words(|v| value.show(v));
                format!("{name}: {} {bounds}", format::and(&picks))
            }
            Predicate::Ratio { of, to, is } => {
                format!("{name}: ({of}) / ({to}) {}", is.words(factor))
            }
            Predicate::Difference { of, to, is } => {
                let bounds = is.words(|v| value.show(v));
                format!("{name}: ({of}) - ({to}) {bounds}")
            }
            Predicate::Gain([of, to, than_of, than_to]) => {
                format!("{name}: ({of}) / ({to}) < ({than_of}) / ({than_to})")
            }
            Predicate::Flat(bounds) => {
                format!("{name}: largest / smallest {}", bounds.words(factor))
            }
            Predicate::Growth(bounds) => format!("{name}: last / first {}", bounds.words(factor)),
            Predicate::Order(ranks) => {
                let ranks = ranks.iter().map(|rank| {
                    let picks = rank.iter().map(|pick| format!("({pick})"));
                    format::and(&picks.collect::<Vec<_>>())
                });
                format!("{name}: {}", ranks.collect::<Vec<_>>().join(" < "))
            }
            Predicate::Crossover {
                of,
                to,
                up_to,
                from,
            } => {
                let [up_to, from] = [up_to, from].map(|places| places.words(format::size));
                format!("{name}: ({of}) < ({to}) up to {up_to}, not from {from} on")
            }
            Predicate::Records(reading) => reading.words(),
        }
    }
}
