//! The runs of a study: which are done, and which remain.
//!
//! A run is one cell in one pass. On a real device every repetition of a cell is a pass of its own, so that the
//! confidence interval contains the differences between starts of the processes. The model has no such noise:
//! one pass holds all repetitions.

use std::collections::{HashMap, HashSet};
use std::fmt;

use adverb_results::{Outcome, PairRecord, Record};
use adverb_workload::pair::CellSpec;

use crate::folder::Ending;
use crate::pairs::Recorder;

/// Why a study ended before all of its runs.
pub enum Cut {
    /// By the user.
    Interrupted,
    /// The server of the passive side cannot be reached any more, for this reason.
    NoPeer(String),
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cut::Interrupted => f.write_str("interrupted"),
            Cut::NoPeer(reason) => write!(f, "{reason}: ended"),
        }
    }
}

/// One pass over the plan.
pub struct Pass {
    /// From 1; `None` if it is the only one.
    pub number: Option<u32>,
    /// The cells that are not measured yet.
    pub cells: Vec<CellSpec>,
}

/// Runs that are already on disk, with the number of repetitions of each.
pub struct Done<'a>(HashMap<(&'a str, Option<u32>), usize>);

impl<'a> Done<'a> {
    /// Returns the runs of these records that were measured on the recorder's device.
    pub fn of(earlier: &'a [Record], recorder: &Recorder) -> Self {
        let measured = earlier
            .iter()
            .filter(|record| record.outcome == Outcome::Ok && recorder.is_of(record));
        let run = |r: &'a Record| ((r.cell.as_str(), r.pass), r.repetition_count());
        Done(measured.map(run).collect())
    }

    /// Whether a cell was measured in this pass; a record without a pass holds all repetitions, if it has as many as
    /// are asked for.
    fn has(&self, cell: &'a CellSpec, pass: Option<u32>) -> bool {
        let repetitions = |pass| self.0.get(&(cell.id.as_str(), pass)).copied();
        let asked = match pass {
            Some(_) => 0,
            None => cell.params.repetitions as usize,
        };
        repetitions(None).is_some_and(|all| all >= asked)
            || pass.is_some() && repetitions(pass).is_some()
    }
}

/// Counts of runs by outcome.
#[derive(Default)]
pub struct Tally {
    /// Runs of all requested cells.
    pub planned: usize,
    /// Runs that earlier invocations measured.
    pub skipped: usize,
    to_do: usize,
    /// Runs that were measured.
    pub ok: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Cell and reason of the first one.
    pub first_failure: Option<String>,
    /// Cells that do not fit into memory.
    pub not_run: Vec<String>,
    /// Why the study ended before all runs.
    pub cut: Option<Cut>,
}

impl Tally {
    /// Returns the cells of the requested figures that are not measured yet in every pass.
    pub fn cells_to_do(
        &mut self,
        mut cells: Vec<CellSpec>,
        asked: &HashSet<String>,
        (numbers, done): (&[Option<u32>], &Done<'_>),
    ) -> Vec<CellSpec> {
        cells.retain(|spec| asked.contains(&spec.id));
        self.planned += cells.len() * numbers.len();
        let done_passes = |spec: &CellSpec| {
            let done = numbers.iter().filter(|pass| done.has(spec, **pass));
            done.count()
        };
        self.skipped += cells.iter().map(done_passes).sum::<usize>();
        cells.retain(|spec| done_passes(spec) < numbers.len());
        cells
    }

    /// Returns the passes over these cells, without the runs that are done.
    pub fn passes(
        &mut self,
        cells: &[CellSpec],
        numbers: &[Option<u32>],
        done: &Done<'_>,
    ) -> Vec<Pass> {
        let pass = |number: &Option<u32>| {
            let cells = cells.iter().filter(|cell| !done.has(cell, *number));
            Pass {
                number: *number,
                cells: cells.cloned().collect(),
            }
        };
        let passes: Vec<Pass> = numbers.iter().map(pass).collect();
        self.to_do += passes.iter().map(|pass| pass.cells.len()).sum::<usize>();
        passes
    }

    /// Counts a run that ended.
    pub fn count(&mut self, record: &PairRecord) {
        match &record.outcome {
            Outcome::Ok => self.ok += 1,
            Outcome::Failed { reason } => {
                self.failed += 1;
                let first = || format!("{}: {reason}", record.cell);
                self.first_failure.get_or_insert_with(first);
            }
        }
    }

    /// Returns how the measurement ended.
    pub const fn ending(&self) -> Ending {
        match self.cut {
            Some(_) => Ending::Cut,
            None => Ending::Whole,
        }
    }

    /// Returns the number of runs of this invocation that were not started.
    pub fn missing(&self) -> usize {
        self.to_do - self.ok - self.failed
    }
}
