//! Predictions of rows, and the runner around them.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use crate::common::{Changes, RATIO, cells, data, report, with};
use adverb_units::Span;
use adverb_validate::{
    Budget, Column as C, Data, Experiment, Limits, Metric, Outcome, OverBudget, Program, Refusal,
    Report, Status, intervals, validate,
};

/// A row's outcome with a model that takes a nanosecond per byte.
fn outcome(changes: Changes<'_>) -> Outcome {
    report(&[changes], size).outcomes()[0].clone()
}

fn size(experiment: &Experiment) -> Result<f64, Refusal> {
    let size = experiment.parameters.operation.size;
    Ok(size.unwrap_or_default().get() as f64)
}

#[track_caller]
fn assert_refused(outcome: &Outcome, status: Status, reason: &str) {
    assert_eq!((outcome.predicted(), outcome.error()), (None, None));
    assert_eq!((outcome.status(), outcome.reason()), (status, Some(reason)));
}

#[test]
fn a_plain_row_has_the_models_figure() {
    let inside = outcome(&[(C::SizeBytes, "2050")]);
    assert_eq!(inside.predicted(), Some(2050.0));
    assert_eq!(inside.ratio(), Some(1.025));
    assert_eq!(inside.status(), Status::Inside);
    assert_eq!(inside.reason(), None);
}

#[test]
fn ratios_and_differences_are_of_two_experiments() {
    let ratio = outcome(&with(RATIO, &[(C::SizeBytes, "128")]));
    assert_eq!(ratio.predicted(), Some(0.5));
    let delta = cells("metric=delta_ns unit=ns value=-150 lo=-200 hi=-100");
    let delta = outcome(&with(RATIO, &delta));
    assert_eq!(delta.predicted(), Some(64.0 - 256.0));
    assert_eq!(delta.status(), Status::Inside);
}

#[test]
fn both_experiments_measure_the_compared_metric() {
    let report = report(&[RATIO], |experiment| {
        assert_eq!(experiment.metric, Metric::RoundTripNs);
        size(experiment)
    });
    assert_eq!(report.outcomes()[0].status(), Status::Outside);
}

#[test]
fn a_reference_of_0_gives_no_ratio() {
    let outcome = outcome(&with(RATIO, &[(C::Base, "size_bytes=0")]));
    let reason = "reference: no ratio: its round_trip_ns is 0";
    assert_refused(&outcome, Status::Failed, reason);
}

#[test]
fn impossible_figures_fail() {
    for (value, text) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (-1.0, "-1")] {
        let report = report(&[&[]], |_| Ok(value));
        let reason =
            format!("the model returned {text} for round_trip_ns: expected a finite number from 0");
        assert_refused(&report.outcomes()[0], Status::Failed, &reason);
    }
}

#[test]
fn refusals_have_a_status_and_a_reason() {
    let unknown = Refusal::UnknownPreset {
        name: "cx33".to_owned(),
        near: vec!["cx3".to_owned(), "cx".to_owned()],
    };
    for (refusal, status, reason) in [
        (unknown, Status::Cannot, "no preset 'cx33'; near: cx3, cx"),
        (
            Refusal::UnknownProgram(Program::KvHerd),
            Status::Cannot,
            "the model does not run program kv_herd",
        ),
        (
            Refusal::Cannot("preset cx has no DC transport".to_owned()),
            Status::Cannot,
            "preset cx has no DC transport",
        ),
        (
            Refusal::Deadlock("client 0 waits for a completion".to_owned()),
            Status::Failed,
            "deadlock: client 0 waits for a completion",
        ),
        (
            Refusal::OverBudget(OverBudget::VirtualTime(Span::from_secs(2))),
            Status::Failed,
            "not done within its budget of 2.00 s of virtual time",
        ),
        (
            Refusal::OverBudget(OverBudget::Events(9000)),
            Status::Failed,
            "not done within its budget of 9000 events",
        ),
    ] {
        let report = report(&[&[]], |_| Err(refusal.clone()));
        assert_refused(&report.outcomes()[0], status, reason);
    }
}

#[test]
fn a_refused_reference_is_named() {
    let report = report(&[RATIO], |experiment| match size(experiment) {
        Ok(256.0) => Err(Refusal::Failed("no steady state".to_owned())),
        other => other,
    });
    let reason = "reference: no steady state";
    assert_refused(&report.outcomes()[0], Status::Failed, reason);
}

#[test]
fn rows_without_an_experiment_are_listed() {
    let report = report(
        &[&[(C::Program, "pings")], &[(C::Id, "R-2"), (C::Qps, "x")]],
        |_| panic!("there is nothing to predict"),
    );
    let reason = "no program 'pings'; near: ping";
    assert_refused(&report.outcomes()[0], Status::Cannot, reason);
    let reason = "rows.csv, line 3, column qps: 'x' is not a whole number up to 4294967295";
    assert_refused(&report.outcomes()[1], Status::Cannot, reason);
}

#[test]
fn a_panic_of_the_model_fails_only_its_row() {
    let report = report(
        &[&[], &[(C::Id, "R-2"), (C::SizeBytes, "2000")]],
        |e| match size(e)? {
            2000.0 => Ok(2000.0),
            bytes => panic!("cannot think of {bytes} bytes"),
        },
    );
    let reason = "a bug in the model: it panicked: cannot think of 64 bytes";
    assert_refused(&report.outcomes()[0], Status::Failed, reason);
    assert_eq!(report.outcomes()[1].status(), Status::Inside);
}

#[test]
fn a_row_ends_when_it_checks_its_budget() {
    let endless = |_: &Experiment, budget: &Budget| -> Result<f64, Refusal> {
        loop {
            budget.check()?;
            thread::yield_now();
        }
    };
    let limits = Limits {
        per_row: Duration::from_millis(20),
        ..Limits::default()
    };
    let report = validate(&endless, data(&[&[]]), &limits, |_| {});
    let outcome = &report.outcomes()[0];
    let reason = "not done within its budget of 20.0 ms of real time";
    assert_refused(outcome, Status::Failed, reason);
    assert!(outcome.took() >= Span::from_ms(20));
}

#[test]
fn a_budget_beyond_the_clock_is_unlimited() {
    let endless = Budget::from_now(Duration::MAX);
    assert_eq!(endless.check(), Ok(()));
    assert_eq!(endless.left(), None);
}

#[test]
fn a_budget_returns_the_remaining_time() {
    let spent = Budget::from_now(Duration::ZERO);
    assert!(spent.check().is_err());
    assert_eq!(spent.left(), Some(Span::ZERO));
    let hour = Budget::from_now(Duration::from_secs(3600));
    assert!(hour.left().unwrap() > Span::from_secs(3500));
    assert!(hour.left().unwrap() <= Span::from_secs(3600));
}

/// A model whose answers depend only on the row, and take different times.
fn uneven(experiment: &Experiment, _: &Budget) -> Result<f64, Refusal> {
    let text = format!("{experiment:?}");
    let sum = text.bytes().map(u64::from).sum::<u64>();
    thread::sleep(Duration::from_micros(sum * 7 % 997));
    Ok(sum as f64)
}

fn json(report: &Report) -> String {
    let mut json = Vec::new();
    report.write_json(&mut json).unwrap();
    String::from_utf8(json).unwrap()
}

#[test]
fn a_report_is_the_same_on_any_number_of_threads() {
    let with_jobs = |jobs| {
        let limits = Limits {
            jobs: NonZeroUsize::new(jobs).unwrap(),
            ..Limits::default()
        };
        validate(&uneven, Data::shipped(), &limits, |_| {})
    };
    let (one, many) = (with_jobs(1), with_jobs(7));
    assert_eq!(json(&one), json(&many));
    assert_eq!(one.scores(), many.scores());
    assert_eq!(one.rows_text(), many.rows_text());
    let ids = |report: &Report| -> Vec<String> {
        let outcomes = report.outcomes().iter();
        outcomes.map(|o| o.entry().labels.id.clone()).collect()
    };
    let data = Data::shipped();
    let rows: Vec<&str> = data.entries().iter().map(|e| &*e.labels.id).collect();
    assert_eq!(ids(&many), rows);
}

#[test]
fn progress_reports_every_row_once() {
    let mut counts = Vec::new();
    let mut ids = BTreeSet::new();
    validate(&uneven, Data::shipped(), &Limits::default(), |progress| {
        assert_eq!(progress.total, 159);
        counts.push(progress.done);
        assert!(ids.insert(progress.entry.labels.id.clone()));
    });
    assert_eq!(counts, (1..=159).collect::<Vec<_>>());
}

#[test]
fn an_empty_report_has_no_error() {
    let report = validate(&uneven, Data::default(), &Limits::default(), |_| {});
    assert!(report.outcomes().is_empty());
    assert_eq!(report.scores().overall.error, None);
}

#[test]
fn predictions_of_samples_are_intervals() {
    // The samples take 0.5 and 1.5 ns a byte.
    let model = |experiment: &Experiment, _: &Budget| {
        let factor = match experiment.sample {
            None => 1.0,
            Some(sample) => (2.0 * f64::from(sample.number) + 1.0) / f64::from(sample.of),
        };
        Ok(factor * size(experiment)?)
    };
    let bound = [(C::Id, "bound"), (C::Value, ""), (C::Hi, "")];
    let data = data(&[
        &[(C::Id, "inside"), (C::SizeBytes, "2000")],
        &[(C::Id, "meets"), (C::SizeBytes, "3800")],
        &[(C::Id, "misses"), (C::SizeBytes, "1000")],
        &bound,
    ]);
    let mut rows = 0;
    let found = intervals(&model, &data, 2, &Limits::default(), |progress| {
        rows += 1;
        assert_eq!((progress.done, progress.total), (rows, 12));
    });
    assert_eq!((found.met().inside, found.met().of), (2, 3));
    let mut json = Vec::new();
    found.write_json(&mut json).unwrap();
    let json = String::from_utf8(json).unwrap();
    let lines: Vec<&str> = json.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1].ends_with(r#""predicted_lo":1900.0,"predicted_hi":5700.0,"meets":true}"#));
    assert!(lines[2].ends_with(r#""predicted_lo":500.0,"predicted_hi":1500.0,"meets":false}"#));
    let text = found.text();
    assert!(text.contains("\nall rows       2/3  3.000\n"), "{text}");
}
