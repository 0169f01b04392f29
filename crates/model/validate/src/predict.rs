//! Predicts a row: runs the model once, or twice for a comparison.

use crate::experiment::Experiment;
use crate::model::{Budget, Model, Refusal};
use crate::report::Verdict;
use crate::row::{Pair, Plan, Row};
use crate::score;

/// Runs a row's experiments and compares the prediction with the published value.
pub(crate) fn verdict(model: &Model<'_>, row: &Row, budget: &Budget) -> Verdict {
    let predicted = match &row.plan {
        Ok(plan) => predicted(model, plan, budget),
        Err(unknown) => return Verdict::Cannot(unknown.to_string()),
    };
    match predicted {
        Ok(value) => Verdict::Predicted {
            value,
            error: score::error(row.published.interval(), value),
        },
        Err(Absent { of, refusal }) => {
            let reason = format!("{}{refusal}", of.prefix());
            match refusal {
                Refusal::UnknownPreset { .. } | Refusal::UnknownProgram(_) | Refusal::Cannot(_) => {
                    Verdict::Cannot(reason)
                }
                Refusal::Deadlock(_) | Refusal::OverBudget(_) | Refusal::Failed(_) => {
                    Verdict::Failed(reason)
                }
            }
        }
    }
}

/// The refusal of one of a row's experiments.
struct Absent {
    of: Which,
    refusal: Refusal,
}

#[derive(Clone, Copy)]
enum Which {
    Row,
    Reference,
}

impl Which {
    const fn prefix(self) -> &'static str {
        match self {
            Which::Row => "",
            Which::Reference => "reference: ",
        }
    }
}

fn predicted(model: &Model<'_>, plan: &Plan, budget: &Budget) -> Result<f64, Absent> {
    match plan {
        Plan::Plain(of) => figure(model, of, budget, Which::Row),
        Plan::Ratio(pair) => {
            let (of, base) = both(model, pair, budget)?;
            if base == 0.0 {
                let reason = format!("no ratio: its {} is 0", pair.base.metric);
                return Err(failed(Which::Reference, reason));
            }
            Ok(of / base)
        }
        Plan::Delta(pair) => both(model, pair, budget).map(|(of, base)| of - base),
    }
}

fn both(model: &Model<'_>, pair: &Pair, budget: &Budget) -> Result<(f64, f64), Absent> {
    let of = figure(model, &pair.of, budget, Which::Row)?;
    let base = figure(model, &pair.base, budget, Which::Reference)?;
    Ok((of, base))
}

/// Returns the model's figure, which must be finite and not negative.
fn figure(
    model: &Model<'_>,
    experiment: &Experiment,
    budget: &Budget,
    of: Which,
) -> Result<f64, Absent> {
    let value = model(experiment, budget).map_err(|refusal| Absent { of, refusal })?;
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    let metric = experiment.metric;
    Err(failed(
        of,
        format!("the model returned {value} for {metric}: expected a finite number from 0"),
    ))
}

fn failed(of: Which, reason: String) -> Absent {
    let refusal = Refusal::Failed(reason);
    Absent { of, refusal }
}
