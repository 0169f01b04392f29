//! Values that others published, to be shown next to measurements and predictions.

use crate::record::{Params, Program};

/// The quantity of a published value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PublishedQuantity {
    /// Mean one-way time, in ns, as in a record's metrics.
    OneWay,
    /// CPU of the active side, in percent of one core.
    CpuActive,
    /// CPU of the passive side, in percent of one core.
    CpuPassive,
    /// CPU time that a round of a ping takes of the active side, in ns.
    CpuActivePerRound,
}

/// A published value of a cell, measured by others on hardware that a model represents. It is not a record:
/// nothing is known of it except what its source reports.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedPoint {
    /// Its id in the data files: `MAC-04`.
    pub id: String,
    /// Paper or repository.
    pub source: String,
    /// Name of the model's preset that represents the hardware.
    pub preset: String,
    /// The program that was measured.
    pub program: Program,
    /// With what; iterations, cores and seed mean nothing here.
    pub params: Params,
    /// What was published.
    pub quantity: PublishedQuantity,
    /// The value; `None` if only bounds were published.
    pub value: Option<f64>,
    /// Lower end of the interval that contains the value: the accuracy of reading a plot, or bounds in the text.
    pub low: f64,
    /// Upper end of that interval.
    pub high: f64,
}
