//! Runs the rows, on all cores.

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
use crate::report::{Outcome, Report, Status, Verdict};

/// How much of this machine a validation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows at a time.
    pub jobs: NonZeroUsize,
    /// Real time for each row, both experiments of a comparison together.
    pub per_row: Duration,
}

impl Default for Limits {
    /// A row on every CPU that this process may use, five minutes each: many times what the
    /// longest takes, since a busy machine is no reason to predict nothing.
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
    /// Rows done, this one among them.
    pub done: usize,
    /// All rows.
    pub total: usize,
    /// The row.
    pub entry: &'a Entry,
    /// What became of it.
    pub status: Status,
}

/// Lets the model predict every row and holds it against what was published.
///
/// Rows run at the same time and end in any order, in which `progress` hears of them on the
/// caller's thread; the report has them in the order of the data. A model that panics fails its row
/// and no other.
///
/// # Panics
/// If `progress` does, or where the system starts no thread.
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
                    // Nobody listens where `progress` panicked: the other rows are not needed.
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

/// The next row that no thread has.
fn claim<'a>(next: &AtomicUsize, entries: &'a [Entry]) -> Option<(usize, &'a Entry)> {
    let n = next.fetch_add(1, Ordering::Relaxed);
    entries.get(n).map(|entry| (n, entry))
}

fn timed(model: &Model<'_>, entry: &Entry, limits: &Limits) -> (Verdict, Span) {
    let start = Instant::now();
    let verdict = match &entry.row {
        Ok(row) => {
            let budget = Budget::from_now(limits.per_row);
            // The model is only asked again for other rows, and by shared reference.
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
