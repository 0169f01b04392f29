//! Runs the rows on all cores.

use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use adverb_units::Span;

use crate::data::{Data, Entry};
use crate::model::{Budget, Model};
use crate::predict;
use crate::report::{Outcome, Report, Verdict};
use crate::words::Status;
use crate::{Experiment, Sample, intervals::Intervals};

/// The resources that a validation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of rows that run concurrently.
    pub jobs: NonZeroUsize,
    /// Real time for each row, including both experiments of a comparison.
    pub per_row: Duration,
}

impl Default for Limits {
    /// One row per available CPU, and five minutes each: many times the longest row, so that a busy machine
    /// does not lose predictions.
    fn default() -> Self {
        Limits {
            jobs: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            per_row: Duration::from_secs(300),
        }
    }
}

/// A row is done.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Number of finished rows, including this one.
    pub done: usize,
    /// Number of all rows.
    pub total: usize,
    /// The row.
    pub entry: &'a Entry,
    /// How the row ended.
    pub status: Status,
}

/// Lets the model predict every row, and compares predictions with published values.
///
/// Rows run concurrently. `progress` is called on the caller's thread, in the order in which rows end; the
/// report has the order of the data. If the model panics, only its row fails.
///
/// # Panics
/// If `progress` panics, or the system cannot start a thread.
pub fn validate(
    model: &Model<'_>,
    data: Data,
    limits: &Limits,
    mut progress: impl FnMut(&Progress<'_>),
) -> Report {
    let entries = data.into_entries();
    let total = entries.len();
    let mut verdicts: Vec<Option<(Verdict, Span)>> = vec![None; total];
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (sender, done) = mpsc::channel();
        for _ in 0..limits.jobs.get().min(total) {
            let (sender, next, entries) = (sender.clone(), &next, &entries);
            scope.spawn(move || {
                while let Some((n, entry)) = claim(next, entries) {
                    // The receiver is gone if `progress` panicked.
                    if sender.send((n, timed(model, entry, limits))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (count, (n, verdict)) in done.into_iter().enumerate() {
            let entry = &entries[n];
            progress(&Progress {
                done: count + 1,
                total,
                entry,
                status: verdict.0.status(entry),
            });
            verdicts[n] = Some(verdict);
        }
    });
    let outcomes = entries.into_iter().zip(verdicts).map(|(entry, verdict)| {
        let (verdict, took) = verdict.expect("every row is claimed once, and sent");
        Outcome::new(entry, verdict, took)
    });
    Report::new(outcomes.collect())
}

/// Lets the model predict every row with the values of its presets, and with `samples` samples of what is estimated in
/// them: a prediction is the interval of these figures.
///
/// # Panics
/// As [`validate`].
pub fn intervals(
    model: &Model<'_>,
    data: &Data,
    samples: u32,
    limits: &Limits,
    mut progress: impl FnMut(&Progress<'_>),
) -> Intervals {
    let mut part = 0;
    let mut run = |model: &Model<'_>| {
        let report = validate(model, data.clone(), limits, |row| {
            let total = row.total * (samples as usize + 1);
            let done = row.done + row.total * part;
            progress(&Progress {
                done,
                total,
                ..*row
            });
        });
        part += 1;
        report
    };
    let report = run(model);
    let sampled = (0..samples).map(|number| {
        run(&|experiment: &Experiment, budget: &Budget| {
            let sample = Some(Sample {
                number,
                of: samples,
            });
            let experiment = Experiment {
                sample,
                ..experiment.clone()
            };
            model(&experiment, budget)
        })
    });
    let sampled = sampled.collect();
    Intervals::new(report, sampled)
}

/// Claims the next row for a thread. `Relaxed` suffices: only the uniqueness of the numbers matters, and the
fn claim<'a>(next: &AtomicUsize, entries: &'a [Entry]) -> Option<(usize, &'a Entry)> {
    let n = next.fetch_add(1, Ordering::Relaxed);
    entries.get(n).map(|entry| (n, entry))
}

fn timed(model: &Model<'_>, entry: &Entry, limits: &Limits) -> (Verdict, Span) {
    let start = Instant::now();
    let verdict = match &entry.row {
        Ok(row) => {
            let budget = Budget::from_now(limits.per_row);
            // `AssertUnwindSafe`: later calls of the model use it by shared reference, for other rows.
            panic::catch_unwind(AssertUnwindSafe(|| predict::verdict(model, row, &budget)))
                .unwrap_or_else(|payload| Verdict::Failed(panicked(&*payload)))
        }
        Err(refused) => {
            let faults: Vec<String> = refused.faults.iter().map(ToString::to_string).collect();
            Verdict::Cannot(format!("{}, {}", refused.place, faults.join("; ")))
        }
    };
    (verdict, start.elapsed().into())
}

fn panicked(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    format!("a bug in the model: it panicked: {text}")
}
