//! Axes: from values to places, and the ticks on the way.

use crate::cells::Quantity;
use crate::figure::X;
use crate::format;

/// An axis over a range of values, drawn from one place to another.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    kind: Kind,
    /// Ends of the range, transformed.
    low: f64,
    high: f64,
    places: (f64, f64),
    /// The values that have ticks; round ones if empty.
    marked: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Log2 {
        sizes: bool,
    },
    Log10 {
        quantity: Quantity,
    },
    Linear {
        quantity: Quantity,
        /// Distance of the ticks.
        step: f64,
    },
    Percent,
    Percentile,
    /// Logarithmic; zero is drawn as a tenth of [`LEAST_LOSS`].
    Loss,
    Ratio,
}

/// The form of a vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Logarithmic.
    Decades,
    /// From zero.
    Linear,
    /// From zero to a whole core at least.
    Percent,
}

/// A place on an axis; without a text it is a minor one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) at: f64,
    pub(crate) text: Option<String>,
}

/// Decades from which on digits are labelled.
const LEAST_DECADES: f64 = 0.4;
/// Sizes that are labelled on an axis at most.
const MOST_LABELS: f64 = 6.0;

/// Ratios that are labelled: as far from 1 below as above.
const RATIOS: [f64; 11] = [0.1, 0.2, 0.33, 0.5, 0.8, 1.0, 1.25, 2.0, 3.0, 5.0, 10.0];

/// The least share of packets lost that differs from none.
const LEAST_LOSS: f64 = 1e-4;
/// Values that are not powers of two have ticks of their own if there are at most this many.
const MOST_MARKED: usize = 8;
/// Room for the label of such a tick.
const LABEL: f64 = 44.0;
/// Times, all above 0, that differ by this factor are on a logarithmic axis.
const FAR: f64 = 30.0;

impl Scale {
    /// The horizontal axis over these values, drawn in these places.
    pub(crate) fn horizontal(
        axis: X,
        values: impl Iterator<Item = f64>,
        places: (f64, f64),
    ) -> Self {
        let mut values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (least, most) = range(values.iter().copied());
        let binary = values.iter().all(|v| *v == 0.0 || v.log2().fract() == 0.0);
        // A single value is in the middle of a linear axis.
        let reach = match most {
            most if most <= 0.0 => 1.0,
            most if most > least => most,
            only => 2.0 * only,
        };
        let step = round_step(reach / 5.0);
        let linear = |quantity, step| Kind::Linear { quantity, step };
        let kind = match axis {
            X::Size => Kind::Log2 { sizes: true },
            X::Buffers | X::Queue | X::Parameter(Quantity::Count) | X::Bars if binary => {
                Kind::Log2 { sizes: false }
            }
            X::Buffers | X::Queue | X::Bars => Kind::Log10 {
                quantity: Quantity::Count,
            },
            X::Parameter(quantity) => Kind::Log10 { quantity },
            X::Loss => Kind::Loss,
            X::Time if least > 0.0 && most >= FAR * least => Kind::Log10 {
                quantity: Quantity::Latency,
            },
            X::Time => linear(Quantity::Latency, step),
            X::Count => linear(Quantity::Count, count_step(step, reach, &values)),
            X::Share => linear(Quantity::Share, step),
            X::Rate => linear(Quantity::MessageRate, step),
            X::Percentile => Kind::Percentile,
        };
        let (low, high) = range(values.iter().map(|v| kind.transform(*v)));
        let (low, high) = match kind {
            _ if high > low => (low, high),
            Kind::Linear { .. } => (0.0, reach),
            _ => (low - 1.0, high + 1.0),
        };
        let has_own = match kind {
            Kind::Loss => true,
            Kind::Log2 { .. } | Kind::Log10 { .. } => !binary && values.len() <= MOST_MARKED,
            _ => false,
        };
        if !has_own {
            values.clear();
        }
        Scale {
            kind,
            low,
            high,
            places,
            marked: values,
        }
    }

    /// The vertical axis over these values, drawn in these places.
    pub(crate) fn vertical(
        quantity: Quantity,
        form: Form,
        values: impl Iterator<Item = f64>,
        places: (f64, f64),
    ) -> Self {
        let (kind, low, high) = match form {
            Form::Percent => {
                let (_, high) = range(values);
                let high = (high.max(100.0) / 50.0).ceil() * 50.0 + 4.0;
                (Kind::Percent, 0.0, high)
            }
            Form::Linear => {
                let (_, high) = range(values);
                let high = if high > 0.0 { high * 1.08 } else { 1.0 };
                let step = round_step(high / 5.0);
                (Kind::Linear { quantity, step }, 0.0, high)
            }
            Form::Decades => {
                let kind = Kind::Log10 { quantity };
                let (low, high) = range(values.map(|v| kind.transform(v)));
                // Some air at both ends, and a fifth of a decade at least.
                let least = ((0.2 - (high - low)) / 2.0).max(0.02);
                let air = least.max(0.06 * (high - low));
                (kind, low - air, high + air)
            }
        };
        Scale {
            kind,
            low,
            high,
            places,
            marked: Vec::new(),
        }
    }

    /// A vertical axis of ratios to 1: from a half to twice at least, a factor of ten at most.
    pub(crate) fn ratio(values: impl Iterator<Item = f64>, places: (f64, f64)) -> Self {
        let kind = Kind::Ratio;
        let (low, high) = range(values.map(|v| kind.transform(v)));
        let twice = 2_f64.log10();
        Scale {
            kind,
            low: (low - 0.03).clamp(-1.0, -twice),
            high: (high + 0.03).clamp(twice, 1.0),
            places,
            marked: Vec::new(),
        }
    }

    /// Returns whether a value is on the axis, and not beyond an end.
    pub(crate) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&self.kind.transform(value))
    }

    /// Where a value is drawn.
    pub(crate) fn place(&self, value: f64) -> f64 {
        self.place_of_transformed(self.kind.transform(value).clamp(self.low, self.high))
    }

    fn place_of_transformed(&self, t: f64) -> f64 {
        let (from, to) = self.places;
        from + (t - self.low) / (self.high - self.low) * (to - from)
    }

    /// The ticks, from the low end to the high one.
    pub(crate) fn ticks(&self) -> Vec<Tick> {
        let tick = |t: f64, text: Option<String>| Tick {
            at: self.place_of_transformed(t),
            text,
        };
        if !self.marked.is_empty() {
            return self.at_values();
        }
        match self.kind {
            Kind::Log2 { sizes } => {
                let steps = [1.0, 2.0, 3.0, 4.0, 6.0, 10.0];
                let fits = |step: &f64| ((self.high - self.low) / step).floor() < MOST_LABELS;
                let step = steps.into_iter().find(fits).unwrap_or(16.0) as i64;
                (self.low.ceil() as i64..=self.high.floor() as i64)
                    .map(|exponent| {
                        let labelled =
                            exponent.rem_euclid(step) == 0 && (0..63).contains(&exponent);
                        let text = || match sizes {
                            true => format::size_tick(1 << exponent),
                            false => (1_u64 << exponent).to_string(),
                        };
                        tick(exponent as f64, labelled.then(text))
                    })
                    .collect()
            }
            Kind::Log10 { quantity } => self.decades(quantity),
            Kind::Linear { step, .. } => {
                let first = (self.low / step).ceil() as i32;
                (first..=(self.high / step).floor() as i32)
                    .map(|n| f64::from(n) * step)
                    .map(|value| match value > 0.0 {
                        true => tick(value, Some(self.kind.label(value))),
                        false => tick(value, Some("0".to_owned())),
                    })
                    .collect()
            }
            Kind::Percent => {
                let step = if self.high > 200.0 { 100 } else { 50 };
                (0..=self.high as i64)
                    .step_by(step)
                    .map(|p| tick(p as f64, Some(format!("{p} %"))))
                    .collect()
            }
            Kind::Percentile => self.labelled(&[50.0, 90.0, 99.0, 99.9, 99.99], |p| {
                (-(1.0 - p / 100.0).log10(), format!("{p} %"))
            }),
            Kind::Loss => Vec::new(),
            Kind::Ratio => self.labelled(&RATIOS, |ratio| {
                (self.kind.transform(ratio), ratio.to_string())
            }),
        }
    }

    /// Ticks at the marked values, each labelled if the label before leaves room.
    fn at_values(&self) -> Vec<Tick> {
        let mut free = f64::NEG_INFINITY;
        let tick = |value: &f64| {
            let at = self.place(*value);
            let has_room = at >= free;
            if has_room {
                free = at + LABEL;
            }
            Tick {
                at,
                text: has_room.then(|| self.kind.label(*value)),
            }
        };
        self.marked.iter().map(tick).collect()
    }

    /// Ticks at the values that are on the axis; `show` returns the transformed value and its text.
    fn labelled(&self, values: &[f64], show: impl Fn(f64) -> (f64, String)) -> Vec<Tick> {
        let inside = |t: f64| t >= self.low - 1e-9 && t <= self.high + 1e-9;
        let all = values.iter().map(|value| show(*value));
        let ticks = all.filter(|(t, _)| inside(*t)).map(|(t, text)| Tick {
            at: self.place_of_transformed(t),
            text: Some(text),
        });
        ticks.collect()
    }

    /// Powers of ten; 2 and 5 between them are labelled where the range is short, and equal steps where it is shorter.
    fn decades(&self, quantity: Quantity) -> Vec<Tick> {
        if self.high - self.low < LEAST_DECADES {
            let step = round_step((10_f64.powf(self.high) - 10_f64.powf(self.low)) / 6.0);
            let ends = [self.low, self.high].map(|end| (10_f64.powf(end) / step) as i64);
            let values = (ends[0] + 1..=ends[1]).map(|n| n as f64 * step);
            let tick = |value: f64| Tick {
                at: self.place_of_transformed(value.log10()),
                text: Some(whole(&quantity.show(value))),
            };
            return values.map(tick).collect();
        }
        let short = self.high - self.low < 1.6;
        let long = self.high - self.low > 7.0;
        let mut ticks = Vec::new();
        for exponent in self.low.floor() as i32..=self.high.ceil() as i32 {
            for digit in 1..10 {
                let value = f64::from(digit) * 10_f64.powi(exponent);
                let t = value.log10();
                if t < self.low || t > self.high {
                    continue;
                }
                let labelled = match digit {
                    1 => !long || exponent.rem_euclid(2) == 0,
                    2 | 5 => short,
                    _ => self.high - self.low < 0.7,
                };
                let text = labelled.then(|| whole(&quantity.show(value)));
                ticks.push(Tick {
                    at: self.place_of_transformed(t),
                    text,
                });
            }
        }
        ticks
    }
}

impl Kind {
    /// Returns the label of a value.
    fn label(self, value: f64) -> String {
        match self {
            Kind::Log2 { .. } => format::size_tick(value as u64),
            Kind::Log10 { quantity } | Kind::Linear { quantity, .. } => {
                whole(&quantity.show(value))
            }
            _ => format!("{} %", (value * 1e8).round() / 1e6),
        }
    }

    fn transform(self, value: f64) -> f64 {
        match self {
            Kind::Log2 { .. } => value.max(f64::MIN_POSITIVE).log2(),
            Kind::Log10 { .. } | Kind::Ratio => value.max(f64::MIN_POSITIVE).log10(),
            Kind::Loss => value.max(LEAST_LOSS / 10.0).log10(),
            Kind::Linear { .. } | Kind::Percent | Kind::Percentile => value,
        }
    }
}

/// Returns the distance of ticks of counts: a power of two if more of the values have a tick then than with `decimal`.
fn count_step(decimal: f64, reach: f64, values: &[f64]) -> f64 {
    let steps = [decimal, (reach / 5.0).log2().ceil().exp2()].map(|step| step.max(1.0));
    let [usual, binary] = steps.map(|step| values.iter().filter(|v| *v % step == 0.0).count());
    steps[usize::from(binary > usual)]
}

/// The next of 1, 2, 5, 10, … times a power of ten.
pub(crate) fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    let step = steps.into_iter().find(|step| *step >= least);
    step.unwrap_or(least)
}

/// `1.00 µs` to `1 µs`, `30.00` to `30`.
pub(crate) fn whole(text: &str) -> String {
    let text = text.replace(".00 ", " ").replace(".0 ", " ");
    text.strip_suffix(".00").map_or(text.clone(), str::to_owned)
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|v| v.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| {
            (l.min(v), h.max(v))
        });
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().filter_map(|t| t.text).collect()
    }

    fn vertical(quantity: Quantity, form: Form, values: &[f64]) -> Scale {
        Scale::vertical(quantity, form, values.iter().copied(), (100.0, 0.0))
    }

    #[test]
    fn sizes_are_labelled_as_in_the_paper() {
        let sizes = [1.0, 64.0 * 1024.0 * 1024.0];
        let scale = Scale::horizontal(X::Size, sizes.into_iter(), (0.0, 100.0));
        assert_eq!(texts(&scale), ["1", "64", "4K", "256K", "16M"]);
        assert_eq!(scale.place(1.0), 0.0);
        assert_eq!(scale.place(sizes[1]), 100.0);
    }

    #[test]
    fn times_stand_at_decades() {
        let scale = vertical(Quantity::OneWay, Form::Decades, &[40.0, 30_000.0]);
        assert_eq!(texts(&scale), ["100 ns", "1 µs", "10 µs"]);
    }

    #[test]
    fn counts_are_whole_and_on_the_axis() {
        let counts = |values: [f64; 2]| {
            let scale = Scale::horizontal(X::Count, values.into_iter(), (0.0, 100.0));
            texts(&scale)
        };
        assert_eq!(counts([0.0, 2.0]), ["0", "1", "2"]);
        assert_eq!(counts([1.0, 2.0]), ["1", "2"]);
        assert_eq!(counts([1.0, 30.0]), ["10", "20", "30"]);
    }

    #[test]
    fn ticks_suit_the_values() {
        let texts_of = |axis, values: &[f64]| {
            let values = values.iter().copied();
            texts(&Scale::horizontal(axis, values, (0.0, 290.0)))
        };
        let count = X::Parameter(Quantity::Count);
        assert_eq!(
            texts_of(count, &[1.0, 4.0, 16.0]),
            ["1", "2", "4", "8", "16"]
        );
        assert_eq!(texts_of(count, &[1.0, 3.0, 5.0, 50.0]), ["1", "3", "50"]);
        let queues = [100.0, 1000.0, 4000.0];
        assert_eq!(texts_of(X::Queue, &queues), ["100", "1000", "4000"]);
        assert_eq!(texts_of(X::Size, &[1000.0, 3000.0]), ["1000", "3000"]);
        let times = X::Parameter(Quantity::Latency);
        assert_eq!(texts_of(times, &[1e3, 2e6]), ["1 µs", "2 ms"]);
        assert_eq!(
            texts_of(X::Time, &[1e6, 1e7, 1e8]),
            ["1 ms", "10 ms", "100 ms"]
        );
        assert_eq!(texts_of(X::Count, &[1.0, 32.0]), ["8", "16", "24", "32"]);
        assert_eq!(texts_of(X::Count, &[1.0, 24.0]), ["8", "16", "24"]);
        assert_eq!(
            texts_of(X::Share, &[0.0, 0.05, 1.0]).last().unwrap(),
            "100 %"
        );
        assert_eq!(
            texts_of(X::Loss, &[0.0, 0.002, 0.05]),
            ["0 %", "0.2 %", "5 %"]
        );
    }

    #[test]
    fn a_short_range_has_equal_steps() {
        let scale = vertical(Quantity::Latency, Form::Decades, &[2150.0, 3640.0]);
        assert_eq!(texts(&scale), ["2.50 µs", "3 µs", "3.50 µs"]);
        let scale = vertical(Quantity::RequestRate, Form::Decades, &[4.4e6, 6.2e6]);
        let expected = ["4.50 M/s", "5 M/s", "5.50 M/s", "6 M/s", "6.50 M/s"];
        assert_eq!(texts(&scale), expected);
    }

    #[test]
    fn a_single_value_has_an_axis() {
        let scale = vertical(Quantity::OneWay, Form::Decades, &[100.0]);
        assert!((scale.place(100.0) - 50.0).abs() < 1e-9);
        let scale = Scale::horizontal(X::Buffers, [4.0].into_iter(), (0.0, 100.0));
        assert_eq!(scale.place(4.0), 50.0);
    }

    #[test]
    fn ratios_stand_around_one() {
        let scale = Scale::ratio([1.0, 1.1].into_iter(), (100.0, 0.0));
        assert_eq!(texts(&scale), ["0.5", "0.8", "1", "1.25", "2"]);
        assert!((scale.place(1.0) - 50.0).abs() < 1e-9);
        let far = Scale::ratio([1.0, 1e6].into_iter(), (100.0, 0.0));
        assert!(far.holds(10.0) && !far.holds(11.0));
        assert_eq!(far.place(1e6), 0.0);
    }

    #[test]
    fn cpu_starts_at_zero_and_reaches_a_whole_core() {
        let scale = vertical(Quantity::CpuActive, Form::Percent, &[20.0]);
        assert_eq!(texts(&scale), ["0 %", "50 %", "100 %"]);
    }
}
