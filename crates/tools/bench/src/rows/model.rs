//! The model's own speed.

use crate::model;
use crate::row::{Bound, Limit, Measure, Unit};

pub(crate) const ROWS: &[Bound] = &[
    Bound {
        name: "model, operations per second",
        what: "inline 32 B WRITEs that the model of Connect-IB carries out per second on one core, compared with \
               what it says that the hardware does",
        unit: Unit::PerSecond,
        limit: Limit::ItselfAtLeast(2e6),
        measure: Measure::Rounds(|s| model::operations(s.cores[0]).map(Some)),
        needs: "",
    },
    Bound {
        name: "model, published values",
        what: "time of `adverb model validate --only file=visible.csv` on two cores, over its CPU time",
        unit: Unit::Seconds,
        limit: Limit::Itself(60.0),
        measure: Measure::Once(|s| {
            model::seconds(s, "model validate --only file=visible.csv").map(Some)
        }),
        needs: "",
    },
    Bound {
        name: "model, quick study",
        what: "time of `adverb study --device model:connect_ib --profile quick` on two cores, compared with its \
               CPU time",
        unit: Unit::Seconds,
        limit: Limit::Itself(1.0),
        measure: Measure::Once(|s| {
            model::study(s, "study --device model:connect_ib --profile quick").map(Some)
        }),
        needs: "",
    },
];
