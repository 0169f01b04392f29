//! Progress: of a study a bar on a terminal, otherwise a line every 10 %; of other commands a bar on a terminal.

use std::fmt;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::terminal::say;

const TEMPLATE: &str = "{bar:24} {pos}/{len} runs  {prefix}  {wide_msg}";
/// Number of lines per study without a bar.
const LINES: usize = 10;

/// Progress over runs (one cell in one pass each), weighed by the time that each is expected to take.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// Expected seconds of each run.
    expected: Vec<f64>,
    done: usize,
    started: Instant,
    lines: usize,
}

impl Progress {
    /// Returns the progress over runs that are expected to take these times, in seconds.
    pub(crate) fn new(expected: Vec<f64>) -> Self {
        let total = expected.len();
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(TEMPLATE)
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(total as u64).with_style(style)
        });
        Progress {
            bar,
            expected,
            done: 0,
            started: Instant::now(),
            lines: 0,
        }
    }

    /// A run of `cell` begins.
    pub(crate) fn begin(&self, cell: &dyn fmt::Display) {
        if let Some(bar) = &self.bar {
            bar.set_message(cell.to_string());
            bar.set_prefix(self.left());
            // No background thread draws the bar: it would disturb the measurement.
            bar.tick();
        }
    }

    /// A run ended.
    pub(crate) fn end(&mut self) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
            return;
        }
        let total = self.expected.len();
        let line = self.done * LINES / total;
        if line > self.lines {
            self.lines = line;
            say(&format!("{}/{total} runs, {}", self.done, self.left()));
        }
    }

    /// Prints a line between two runs.
    pub(crate) fn note(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| crate::terminal::warn(line)),
            None => crate::terminal::warn(line),
        }
    }

    /// No more runs.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    /// Remaining time, in words.
    fn left(&self) -> String {
        let left = remaining(
            &self.expected,
            self.done,
            self.started.elapsed().as_secs_f64(),
        );
        format!(
            "{} left",
            HumanDuration(Duration::from_secs_f64(left.round()))
        )
    }
}

/// Shows on a terminal which point of a command is measured, until it is dropped.
pub(crate) struct Measuring(ProgressBar);

impl Measuring {
    /// Shows point number `place`, from 0 on, of `points`.
    pub(crate) fn point(place: usize, points: usize, what: &dyn fmt::Display) -> Self {
        // Without a terminal, indicatif draws nothing.
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} points  {wide_msg}");
        let bar = ProgressBar::new(points as u64)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_position(place as u64)
            .with_message(what.to_string());
        // As for a study, no thread draws it.
        bar.tick();
        Measuring(bar)
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Returns the expected time of the remaining runs, in seconds, scaled by how long the ended runs took.
fn remaining(expected: &[f64], done: usize, elapsed: f64) -> f64 {
    let (before, after) = expected.split_at(done.min(expected.len()));
    let (before, after): (f64, f64) = (before.iter().sum(), after.iter().sum());
    if before > 0.0 {
        after * elapsed / before
    } else {
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_follows_the_measured_times() {
        let expected = [1.0, 1.0, 2.0];
        assert_eq!(remaining(&expected, 0, 0.0), 4.0);
        assert_eq!(remaining(&expected, 2, 4.0), 4.0);
        assert_eq!(remaining(&expected, 3, 9.0), 0.0);
    }
}
