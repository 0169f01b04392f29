//! What was published: a value with the interval it lies in, or a bound.

use crate::cells::Reader;
use crate::columns::Column;
use crate::fault::Problem;

/// A published value, or a bound or ordering, in the unit of the row's metric.
///
/// The interval is that of the *published* value (reading accuracy, spread between machines, the
/// words of a text), not a tolerance for the model.
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
    /// The value; none for a bound or an ordering.
    pub const fn value(&self) -> Option<f64> {
        self.value
    }

    /// Where the published value lies; for a bound, where a prediction must.
    pub const fn interval(&self) -> Interval {
        self.interval
    }

    /// From the columns `value`, `lo`, `hi`. An empty end is the value's, or open if there is none.
    pub(crate) fn read(cells: &mut Reader<'_>) -> Option<Self> {
        let value: Option<f64> = cells.opt(Column::Value);
        let lo: Option<f64> = cells.opt(Column::Lo);
        let hi: Option<f64> = cells.opt(Column::Hi);
        if cells.has_faults() {
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
    let interval = Interval::new(lo, hi).ok_or((Column::Lo, Problem::UpsideDown { lo, hi }))?;
    match value {
        Some(value) if !interval.contains(value) => {
            Err((Column::Value, Problem::OutsideItsInterval { value, lo, hi }))
        }
        _ => Ok(Published { value, interval }),
    }
}

impl Interval {
    /// `lo..hi`; none unless `lo <= hi`.
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

    /// Whether `x` lies in it; the ends do.
    pub fn contains(self, x: f64) -> bool {
        (self.lo..=self.hi).contains(&x)
    }

    /// The end that `x` is nearer to: `x` itself inside.
    pub const fn nearest(self, x: f64) -> f64 {
        x.clamp(self.lo, self.hi)
    }
}
