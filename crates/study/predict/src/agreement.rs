//! The ratios of predictions to published values by program, to be drawn.

use adverb_report::agreement::{Agreement, Basis, Group, Published as Given, Row};
use adverb_validate::{Outcome, Published, Report};

/// Returns the graded rows that have a ratio. A row that publishes only bounds is compared with their
/// geometric mean.
pub fn agreement(report: &Report) -> Agreement {
    let graded: Vec<&Outcome> = report
        .outcomes()
        .iter()
        .filter(|outcome| outcome.entry().counts())
        .collect();
    let mut groups: Vec<Group> = Vec::new();
    let mut drawn = 0;
    for (program, row) in by_program(&graded) {
        drawn += 1;
        match groups.iter_mut().find(|group| group.name == program) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group {
                name: program.to_owned(),
                rows: vec![row],
            }),
        }
    }
    let scores = report.scores().overall;
    let error = scores.error.map_or_else(String::new, |error| {
        format!(", mean error {error:.3} over {} curves", scores.curves)
    });
    let (inside, of) = (
        scores.values.inside + scores.bounds.inside,
        scores.values.of + scores.bounds.of,
    );
    Agreement {
        title: "The hardware model against published measurements".to_owned(),
        note: format!(
            "{inside} of {of} predictions lie inside the published interval{error}; {} graded rows have no ratio and are not drawn",
            graded.len() - drawn
        ),
        groups,
    }
}

/// Rows with their programs, grouped by preset.
fn by_program<'r>(graded: &[&'r Outcome]) -> Vec<(&'r str, Row)> {
    let mut sorted = graded.to_vec();
    sorted.sort_by_key(|outcome| {
        let labels = &outcome.entry().labels;
        (&labels.program, &labels.preset)
    });
    let rows = sorted.into_iter().filter_map(|outcome| {
        let program = outcome.entry().labels.program.as_str();
        Some((program, row(outcome)?))
    });
    rows.collect()
}

fn row(outcome: &Outcome) -> Option<Row> {
    let published = outcome.row()?.published;
    let unit = reference(published)?;
    let interval = published.interval();
    let (one, other) = (interval.lo() / unit, interval.hi() / unit);
    let predicted = outcome.predicted()? / unit;
    let low = one.min(other);
    let is_ratio = |figure: f64| figure > 0.0 && figure.is_finite();
    if !is_ratio(predicted) || low.is_nan() {
        return None;
    }
    Some(Row {
        name: outcome.entry().labels.id.clone(),
        text: outcome.sentence(),
        low,
        high: one.max(other),
        predicted,
        basis: if outcome.entry().is_fitted() {
            Basis::Fitted
        } else {
            Basis::Predicted
        },
        published: match published.value() {
            Some(_) => Given::Value,
            None => Given::Bounds,
        },
    })
}

/// What a row's figures are compared with: its value, or the geometric mean of its bounds, or its only bound.
fn reference(published: Published) -> Option<f64> {
    let interval = published.interval();
    let (lo, hi) = (interval.lo(), interval.hi());
    let usable = |figure: f64| figure.is_finite() && figure != 0.0;
    let middle = match (usable(lo), usable(hi)) {
        (true, true) if lo * hi > 0.0 => Some((lo * hi).sqrt().copysign(lo)),
        (true, false) => Some(lo),
        (_, true) => Some(hi),
        _ => None,
    };
    published.value().or(middle).filter(|value| usable(*value))
}

#[cfg(test)]
mod tests {
    use adverb_validate::{Budget, Data, Experiment, Limits, Refusal, validate};

    use super::*;

    fn drawn(predicted: f64) -> Agreement {
        let model = |_: &Experiment, _: &Budget| -> Result<f64, Refusal> { Ok(predicted) };
        let mut data = Data::shipped();
        data.retain(|entry| {
            let id = entry.labels.id.as_str();
            ["MAC-04", "MAC-06a", "MAC-05a", "MAC-22a", "RUS-01"].contains(&id)
        });
        agreement(&validate(&model, data, &Limits::default(), |_| {}))
    }

    #[test]
    fn rows_are_grouped_by_program_relative_to_the_published_value() {
        let agreement = drawn(330.0);
        // MAC-22a publishes 0 %, and RUS-01 does not count.
        let names = |group: &Group| -> Vec<String> {
            group.rows.iter().map(|row| row.name.clone()).collect()
        };
        assert_eq!(agreement.groups.len(), 1);
        assert_eq!(agreement.groups[0].name, "blast_outbound");
        assert_eq!(
            names(&agreement.groups[0]),
            ["MAC-04", "MAC-05a", "MAC-06a"]
        );
        let [fitted, bound, value] = &agreement.groups[0].rows[..] else {
            panic!("{agreement:?}");
        };
        assert_eq!((fitted.low, fitted.high), (0.9, 1.1));
        assert_eq!((fitted.predicted, fitted.basis), (1.1, Basis::Fitted));
        assert_eq!((value.predicted, value.basis), (1.1, Basis::Predicted));
        // 300 to 1000 ns, relative to their geometric mean.
        assert!((bound.high / bound.low - 1000.0 / 300.0).abs() < 1e-9);
        assert!((bound.low * bound.high - 1.0).abs() < 1e-9);
        assert!(
            agreement
                .note
                .ends_with("1 graded rows have no ratio and are not drawn")
        );
    }

    #[test]
    fn a_prediction_of_0_is_not_drawn() {
        assert!(drawn(0.0).groups.is_empty());
    }
}
