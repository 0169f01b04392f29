//! Predictions of rows, and the runner around them.

mod common;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use adverb_units::Span;
use adverb_validate::{
    Budget, Column as C, Data, Experiment, Limits, Metric, Outcome, OverBudget, Refusal, Report,
    Status, validate,
};
use common::{Changes, RATIO, data, report, with};

/// A row's outcome with a model that takes as many nanoseconds as there are bytes.
fn outcome(changes: Changes<'_>) -> Outcome {
    report(&[changes], size).outcomes()[0].clone()
}

fn size(experiment: &Experiment) -> Result<f64, Refusal> {
    let size = experiment.parameters.operation.size;
    Ok(size.unwrap_or_default().get() as f64)
}

fn refused(changes: Changes<'_>, refusal: &Refusal) -> (Status, String) {
    let report = report(&[changes], |_| Err(refusal.clone()));
    let outcome = &report.outcomes()[0];
    assert_eq!(outcome.predicted(), None);
    assert_eq!(outcome.error(), None);
    (outcome.status(), outcome.reason().unwrap().to_owned())
}

#[test]
fn a_plain_row_is_the_models_figure() {
    let inside = outcome(&[(C::SizeBytes, "2050")]);
    assert_eq!(inside.predicted(), Some(2050.0));
    assert_eq!(inside.ratio(), Some(1.025));
    assert_eq!(inside.status(), Status::Inside);
    assert_eq!(inside.reason(), None);
}

#[test]
fn ratios_and_differences_are_formed_of_two_experiments() {
    let ratio = outcome(&with(RATIO, &[(C::SizeBytes, "128")]));
    assert_eq!(ratio.predicted(), Some(0.5));
    let delta = [
        (C::Metric, "delta_ns"),
        (C::Unit, "ns"),
        (C::Value, "-150"),
        (C::Lo, "-200"),
        (C::Hi, "-100"),
    ];
    let delta = outcome(&with(RATIO, &delta));
    assert_eq!(delta.predicted(), Some(64.0 - 256.0));
    assert_eq!(delta.status(), Status::Inside);
}

#[test]
fn both_experiments_measure_what_is_compared() {
    let report = report(&[RATIO], |experiment| {
        assert_eq!(experiment.metric, Metric::RoundTripNs);
        size(experiment)
    });
    assert_eq!(report.outcomes()[0].status(), Status::Outside);
}

#[test]
fn a_reference_of_0_gives_no_ratio() {
    let outcome = outcome(&with(RATIO, &[(C::Base, "size_bytes=0")]));
    assert_eq!(outcome.status(), Status::Failed);
    assert_eq!(
        outcome.reason(),
        Some("reference: no ratio: its round_trip_ns is 0")
    );
}

#[test]
fn what_no_metric_can_be_fails() {
    for (value, text) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (-1.0, "-1")] {
        let report = report(&[&[]], |_| Ok(value));
        let outcome = &report.outcomes()[0];
        assert_eq!(outcome.status(), Status::Failed);
        assert_eq!(
            outcome.reason().unwrap(),
            format!("the model gave {text} for round_trip_ns, which is no possible figure")
        );
    }
}

#[test]
fn refusals_of_the_model_are_words_and_reasons() {
    let unknown = Refusal::UnknownPreset {
        name: "cx33".to_owned(),
        near: vec!["cx3".to_owned(), "cx".to_owned()],
    };
    let reason = "no preset 'cx33'; near: cx3, cx".to_owned();
    assert_eq!(refused(&[], &unknown), (Status::Cannot, reason));

    let program = adverb_validate::Program::KvHerd;
    let program = Refusal::UnknownProgram { program };
    let reason = "the model does not run program kv_herd".to_owned();
    assert_eq!(refused(&[], &program), (Status::Cannot, reason));

    let reason = "preset cx has no DC transport".to_owned();
    let cannot = Refusal::Cannot {
        reason: reason.clone(),
    };
    assert_eq!(refused(&[], &cannot), (Status::Cannot, reason));

    let deadlock = Refusal::Deadlock {
        report: "client 0 waits for a completion, server for a message".to_owned(),
    };
    let reason = "deadlock: client 0 waits for a completion, server for a message".to_owned();
    assert_eq!(refused(&[], &deadlock), (Status::Failed, reason));

    let long = Refusal::OverBudget(OverBudget::VirtualTime(Span::from_secs(2)));
    let reason = "not done within its budget of 2.00 s of virtual time".to_owned();
    assert_eq!(refused(&[], &long), (Status::Failed, reason));

    let much = Refusal::OverBudget(OverBudget::Events(9000));
    let reason = "not done within its budget of 9000 events".to_owned();
    assert_eq!(refused(&[], &much), (Status::Failed, reason));
}

#[test]
fn a_refused_reference_says_so() {
    let report = report(&[RATIO], |experiment| match size(experiment) {
        Ok(256.0) => Err(Refusal::Failed {
            reason: "no steady state".to_owned(),
        }),
        other => other,
    });
    assert_eq!(
        report.outcomes()[0].reason(),
        Some("reference: no steady state")
    );
}

#[test]
fn rows_without_an_experiment_are_listed() {
    let report = report(
        &[&[(C::Program, "pings")], &[(C::Id, "R-2"), (C::Qps, "x")]],
        |_| panic!("there is nothing to predict"),
    );
    let [program, unreadable] = report.outcomes() else {
        panic!("two rows")
    };
    assert_eq!(program.status(), Status::Cannot);
    assert_eq!(program.reason(), Some("no program 'pings'; near: ping"));
    assert_eq!(unreadable.status(), Status::Cannot);
    assert_eq!(
        unreadable.reason(),
        Some("rows.csv, line 3, column qps: 'x' is not a whole number up to 4294967295")
    );
}

#[test]
fn a_panic_of_the_model_fails_its_row_only() {
    let report = report(
        &[&[], &[(C::Id, "R-2"), (C::SizeBytes, "2000")]],
        |e| match size(e)? {
            2000.0 => Ok(2000.0),
            bytes => panic!("cannot think of {bytes} bytes"),
        },
    );
    let [first, second] = report.outcomes() else {
        panic!("two rows")
    };
    assert_eq!(first.status(), Status::Failed);
    assert_eq!(
        first.reason(),
        Some("a bug in the model: it panicked: cannot think of 64 bytes")
    );
    assert_eq!(second.status(), Status::Inside);
}

#[test]
fn a_budget_ends_a_row_that_asks() {
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
    assert_eq!(outcome.status(), Status::Failed);
    assert_eq!(
        outcome.reason(),
        Some("not done within its budget of 20.0 ms of real time")
    );
    assert!(outcome.took() >= Span::from_ms(20));
}

#[test]
fn a_budget_beyond_all_clocks_is_none() {
    let endless = Budget::from_now(Duration::MAX);
    assert_eq!(endless.check(), Ok(()));
    assert_eq!(endless.left(), None);
}

#[test]
fn a_budget_says_what_is_left() {
    let spent = Budget::from_now(Duration::ZERO);
    assert!(spent.check().is_err());
    assert_eq!(spent.left(), Some(Span::ZERO));
    let hour = Budget::from_now(Duration::from_secs(3600));
    assert!(hour.left().unwrap() > Span::from_secs(3500));
    assert!(hour.left().unwrap() <= Span::from_secs(3600));
}

/// A model whose answers depend on the row only, and take different times.
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
fn progress_hears_of_every_row_once() {
    let mut counts = Vec::new();
    let mut ids = BTreeSet::new();
    validate(&uneven, Data::shipped(), &Limits::default(), |progress| {
        assert_eq!(progress.total, 155);
        counts.push(progress.done);
        assert!(ids.insert(progress.entry.labels.id.clone()));
    });
    assert_eq!(counts, (1..=155).collect::<Vec<_>>());
}

#[test]
fn no_rows_are_no_work() {
    let report = validate(&uneven, Data::default(), &Limits::default(), |_| {});
    assert!(report.outcomes().is_empty());
    assert_eq!(report.scores().overall.error, None);
}
