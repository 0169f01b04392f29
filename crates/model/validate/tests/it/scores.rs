//! Errors and scores, by hand and by property.

use crate::common::{RATIO, report, with};
use adverb_validate::{
    Column as C, Experiment, Interval, Outcome, Refusal, Score, Status, Tally, WORST_ERROR, error,
};
use proptest::prelude::*;

const LN_2: f64 = std::f64::consts::LN_2;

fn interval(lo: f64, hi: f64) -> Interval {
    Interval::new(lo, hi).unwrap()
}

#[track_caller]
fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9, "{a} is not {b}");
}

#[test]
fn errors_by_hand() {
    let of = interval(100.0, 200.0);
    for inside in [100.0, 150.0, 200.0] {
        assert_eq!(error(of, inside), 0.0);
    }
    near(error(of, 400.0), LN_2);
    near(error(of, 50.0), LN_2);
    near(error(of, 220.0), 1.1_f64.ln());
}

#[test]
fn errors_of_differences_below_0() {
    let of = interval(-200.0, -100.0);
    near(error(of, -400.0), LN_2);
    near(error(of, -50.0), LN_2);
    assert_eq!(error(of, 50.0), WORST_ERROR);
    assert_eq!(error(of, 0.0), WORST_ERROR);
}

#[test]
fn errors_without_a_logarithm_are_the_worst() {
    near(WORST_ERROR, 100_f64.ln());
    assert_eq!(error(interval(100.0, 200.0), -150.0), WORST_ERROR);
    assert_eq!(error(interval(99.0, 100.0), 0.0), WORST_ERROR);
    assert_eq!(error(interval(-5.0, 0.0), 1.0), WORST_ERROR);
    near(error(interval(0.0, 0.5), 1.0), LN_2);
    assert_eq!(error(interval(-1.0, 1.0), 0.0), 0.0);
    assert_eq!(error(interval(1.0, 1.0), 1e9), WORST_ERROR);
    assert_eq!(error(interval(1.0, f64::INFINITY), 1e300), 0.0);
}

fn intervals() -> impl Strategy<Value = (f64, f64)> {
    (1e-3..1e9_f64, 1.0..10.0_f64).prop_map(|(lo, width)| (lo, lo * width))
}

proptest! {
    #[test]
    fn the_error_is_0_inside((lo, hi) in intervals(), at in 0.0..=1.0_f64) {
        let inside = (lo + at * (hi - lo)).clamp(lo, hi);
        prop_assert_eq!(error(interval(lo, hi), inside), 0.0);
    }

    #[test]
    fn errors_above_and_below_are_symmetric((lo, hi) in intervals(), factor in 1.001..99.0_f64) {
        let of = interval(lo, hi);
        let (above, below) = (error(of, hi * factor), error(of, lo / factor));
        prop_assert!((above - below).abs() < 1e-9, "{above} {below}");
        prop_assert!((above - factor.ln()).abs() < 1e-9);
    }

    #[test]
    fn errors_do_not_depend_on_the_sign((lo, hi) in intervals(), predicted in -1e10..1e10_f64) {
        let mirrored = error(interval(-hi, -lo), -predicted);
        prop_assert_eq!(error(interval(lo, hi), predicted), mirrored);
    }

    #[test]
    fn farther_is_never_better(
        (lo, hi) in intervals(),
        a in -1e10..1e10_f64,
        b in -1e10..1e10_f64,
    ) {
        let of = interval(lo, hi);
        let (small, large) = (a.min(b), a.max(b));
        if small >= hi {
            prop_assert!(error(of, large) >= error(of, small));
        }
        if large <= lo {
            prop_assert!(error(of, small) >= error(of, large));
        }
        prop_assert!((0.0..=WORST_ERROR).contains(&error(of, a)));
    }
}

/// A model whose round trip takes a nanosecond per byte.
fn size(experiment: &Experiment) -> Result<f64, Refusal> {
    if experiment.preset == "none" {
        let near = vec!["nine".to_owned()];
        let name = experiment.preset.clone();
        return Err(Refusal::UnknownPreset { name, near });
    }
    let size = experiment.parameters.operation.size;
    Ok(size.unwrap_or_default().get() as f64)
}

fn tally(inside: usize, of: usize) -> Tally {
    Tally { inside, of }
}

#[test]
fn curves_have_equal_weight() {
    // Curve A: errors 0, ln 2, ln 4. Curve B: ln 2. Mean of ln 2 and ln 2.
    let report = report(
        &[
            &[(C::Id, "1"), (C::Curve, "A"), (C::SizeBytes, "2000")],
            &[(C::Id, "2"), (C::Curve, "A"), (C::SizeBytes, "4200")],
            &[(C::Id, "3"), (C::Curve, "A"), (C::SizeBytes, "475")],
            &[(C::Id, "4"), (C::Curve, "B"), (C::SizeBytes, "950")],
        ],
        size,
    );
    let scores = report.scores();
    near(scores.overall.error.unwrap(), LN_2);
    assert_eq!(scores.overall.curves, 2);
    assert_eq!(scores.overall.values, tally(1, 4));
    assert_eq!(scores.overall.close, 1);
    let curves: Vec<&str> = scores.curves.iter().map(|g| &*g.name).collect();
    assert_eq!(curves.len(), 2);
    assert!(curves.contains(&"A (cx3)") && curves.contains(&"B (cx3)"));
}

#[test]
fn a_label_of_two_presets_is_two_curves() {
    // Of one curve the mean would be ln 2 / 2 * ...: 3 rows, (0 + 0 + ln 2) / 3.
    let report = report(
        &[
            &[(C::Id, "1"), (C::Preset, "a"), (C::SizeBytes, "2000")],
            &[(C::Id, "2"), (C::Preset, "a"), (C::SizeBytes, "2000")],
            &[(C::Id, "3"), (C::Preset, "b"), (C::SizeBytes, "4200")],
        ],
        size,
    );
    let scores = report.scores();
    near(scores.overall.error.unwrap(), LN_2 / 2.0);
    assert_eq!(scores.overall.curves, 2);
    let presets: Vec<&str> = scores.presets.iter().map(|g| &*g.name).collect();
    assert_eq!(presets, ["b", "a"], "worst first");
    near(scores.programs[0].score.error.unwrap(), LN_2 / 2.0);
}

#[test]
fn bounds_are_counted_and_not_averaged() {
    let bound = (C::Value, "");
    let shown = (C::Grade, "0");
    let report = report(
        &[
            &[(C::Id, "1"), (C::SizeBytes, "2000"), bound],
            &[(C::Id, "2"), (C::SizeBytes, "4200"), bound],
            &[(C::Id, "3"), (C::SizeBytes, "2142")],
            &[(C::Id, "4"), (C::SizeBytes, "9999"), shown],
        ],
        size,
    );
    let score = report.scores().overall;
    assert_eq!(score.bounds, tally(1, 2));
    assert_eq!(score.values, tally(0, 1));
    assert_eq!(score.close, 1, "2 % beyond the end");
    near(score.error.unwrap(), 1.02_f64.ln());
    let statuses: Vec<Status> = report.outcomes().iter().map(Outcome::status).collect();
    let (inside, outside) = (Status::Inside, Status::Outside);
    assert_eq!(statuses, [inside, outside, outside, Status::Ungraded]);
    near(report.outcomes()[1].error().unwrap(), LN_2);
    assert!(report.outcomes()[3].error().unwrap() > 1.0);
}

#[test]
fn rows_without_prediction_are_missing() {
    let report = report(
        &[
            &[(C::Id, "1"), (C::SizeBytes, "2000")],
            &[(C::Id, "2"), (C::Preset, "none")],
            &[(C::Id, "3"), (C::Opcode, "?")],
            &[(C::Id, "4"), (C::Preset, "none"), (C::Grade, "0")],
        ],
        size,
    );
    let scores = report.scores();
    assert_eq!(scores.overall.missing, 2);
    assert_eq!(scores.overall.error, Some(0.0));
    let none = scores.presets.iter().find(|g| g.name == "none").unwrap();
    let missing = Score {
        missing: 1,
        ..Score::default()
    };
    assert_eq!(none.score, missing);
    assert_eq!(scores.presets.last().unwrap().name, "none");
}

#[test]
fn the_worst_rows_come_first() {
    let model = |experiment: &Experiment| match experiment.preset.as_str() {
        "stuck" => Err(Refusal::Deadlock(
            "client waits for a completion".to_owned(),
        )),
        _ => size(experiment),
    };
    let ratio_inside = with(RATIO, &[(C::Id, "7"), (C::SizeBytes, "128")]);
    let report = report(
        &[
            &[(C::Id, "1"), (C::Preset, "none")],
            &[(C::Id, "2"), (C::SizeBytes, "2200")],
            &[(C::Id, "3"), (C::SizeBytes, "2000")],
            &[(C::Id, "4"), (C::SizeBytes, "1000"), (C::Value, "")],
            &[(C::Id, "5"), (C::Preset, "stuck")],
            &[(C::Id, "6"), (C::SizeBytes, "9999"), (C::Grade, "0")],
            &ratio_inside,
        ],
        model,
    );
    let worst = report.worst();
    let ids: Vec<&str> = worst.iter().map(|o| &*o.entry().labels.id).collect();
    assert_eq!(ids, ["5", "4", "2", "1"]);
}

#[test]
fn the_spread_has_percentiles_of_curves_and_the_order_of_values() {
    // Curve A: published 1000 before 2000 before 2000 to 4000, which may be equal. Predictions: 1500, 1400, 1300.
    let at = |value, lo, hi, size| {
        [
            (C::Value, value),
            (C::Lo, lo),
            (C::Hi, hi),
            (C::SizeBytes, size),
        ]
    };
    let [a, b, c, of_b] = [
        at("1000", "900", "1100", "1500"),
        at("2000", "1900", "2100", "1400"),
        at("3000", "2000", "4000", "1300"),
        at("2000", "1900", "2100", "2000"),
    ];
    let rows = [
        with(&a, &[(C::Id, "1"), (C::Curve, "A")]),
        with(&b, &[(C::Id, "2"), (C::Curve, "A")]),
        with(&c, &[(C::Id, "3"), (C::Curve, "A")]),
        with(&of_b, &[(C::Id, "4"), (C::Curve, "B")]),
    ];
    let rows: Vec<_> = rows.iter().map(|row| &row[..]).collect();
    let spread = report(&rows, size).scores().spread;
    assert_eq!(spread.pairs, tally(0, 2));
    let of_a =
        ((1500.0_f64 / 1100.0).ln() + (1900.0_f64 / 1400.0).ln() + (2000.0_f64 / 1300.0).ln())
            / 3.0;
    near(spread.median.unwrap(), of_a / 2.0);
    near(spread.p90.unwrap(), of_a);
}
