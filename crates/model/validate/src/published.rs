//! A published value with its interval, or a published bound.

use crate::cells::Reader;
use crate::columns::Column;
use crate::fault::Problem;

/// A published value, or a bound or ordering, in the unit of the row's metric.
///
/// The interval is the uncertainty of the *published* value (reading accuracy, spread between machines, the
/// wording of a text), not a tolerance for the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    value: Option<f64>,
    interval: Interval,
}

/// `lo..hi`, ends included; an open end is infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    lo: f64,
    hi: f64,
}

impl Published {
    /// The value; `None` for a bound or an ordering.
    pub const fn value(&self) -> Option<f64> {
        self.value
    }

    /// The interval of the published value; for a bound, of valid predictions.
    pub const fn interval(&self) -> Interval {
        self.interval
    }

    /// Reads the columns `value`, `lo`, `hi`. An empty end is the value, or open if there is none.
    pub(crate) fn read(cells: &mut Reader<'_>) -> Option<Self> {
        let value: Option<f64> = cells.opt(Column::Value);
        let lo: Option<f64> = cells.opt(Column::Lo);
        let hi: Option<f64> = cells.opt(Column::Hi);
        if !cells.faults.is_empty() {
            return None;
        }
        match check(value, lo, hi) {
            Ok(published) => Some(published),
            Err((column, problem)) => {
                cells.fault(column, problem);
                None
            }
        }
    }
}

fn check(
    value: Option<f64>,
    lo: Option<f64>,
    hi: Option<f64>,
) -> Result<Published, (Column, Problem)> {
    if value.is_none() && lo.is_none() && hi.is_none() {
        return Err((Column::Value, Problem::NothingPublished));
    }
    let lo = lo.or(value).unwrap_or(f64::NEG_INFINITY);
    let hi = hi.or(value).unwrap_or(f64::INFINITY);
    let interval = Interval::new(lo, hi).ok_or((Column::Lo, Problem::Reversed { lo, hi }))?;
    match value {
        Some(value) if !interval.contains(value) => {
            Err((Column::Value, Problem::OutsideItsInterval { value, lo, hi }))
        }
        _ => Ok(Published { value, interval }),
    }
}

impl Interval {
    /// The interval `lo..hi`; `None` unless `lo <= hi`.
    pub fn new(lo: f64, hi: f64) -> Option<Self> {
        (lo <= hi).then_some(Interval { lo, hi })
    }

    /// Its lower end.
    pub const fn lo(self) -> f64 {
        self.lo
    }

    /// Its upper end.
    pub const fn hi(self) -> f64 {
        self.hi
    }

    /// Whether it contains `x`. It includes its ends.
    pub fn contains(self, x: f64) -> bool {
        (self.lo..=self.hi).contains(&x)
    }

    /// The point of the interval that is nearest to `x`.
    pub const fn nearest(self, x: f64) -> f64 {
        x.clamp(self.lo, self.hi)
    }
}
