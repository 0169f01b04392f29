//! Outcomes as JSON Lines: one object per row.

use std::io;

use serde::Serialize;

use crate::report::{Outcome, Report};

/// A row's object. Values are in the unit of `metric`; an open end of `lo..hi` is null.
#[derive(Serialize)]
pub(crate) struct Object<'a> {
    id: &'a str,
    preset: &'a str,
    program: &'a str,
    curve: &'a str,
    metric: &'a str,
    published: Option<f64>,
    lo: Option<f64>,
    hi: Option<f64>,
    predicted: Option<f64>,
    error: Option<f64>,
    status: &'a str,
    reason: Option<&'a str>,
}

impl<'a> Object<'a> {
    pub(crate) fn of(outcome: &'a Outcome) -> Self {
        let labels = &outcome.entry().labels;
        let published = outcome.row().map(|row| row.published);
        let finite = |end: f64| Some(end).filter(|end| end.is_finite());
        Object {
            id: &labels.id,
            preset: &labels.preset,
            program: &labels.program,
            curve: &labels.curve,
            metric: &labels.metric,
            published: published.and_then(|p| p.value()),
            lo: published.and_then(|p| finite(p.interval().lo())),
            hi: published.and_then(|p| finite(p.interval().hi())),
            predicted: outcome.predicted(),
            error: outcome.error(),
            status: outcome.status().as_str(),
            reason: outcome.reason(),
        }
    }
}

impl Report {
    /// Writes one JSON object per line for each row, in order: `id`, `preset`, `program`, `curve`, `metric`,
    /// `published` (null for a bound), `lo`, `hi`, `predicted` (null if there is none), `error`, `status`,
    /// `reason` (null if there is a prediction). The same predictions give the same bytes.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn write_json(&self, mut out: impl io::Write) -> io::Result<()> {
        for outcome in self.outcomes() {
            serde_json::to_writer(&mut out, &Object::of(outcome))?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}
