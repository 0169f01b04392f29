//! Runs the cells of all pairs, and keeps their records.

use adverb_launch::{Interrupt, Usage};
use adverb_measure::{AllPairs, Hosts, PairCell};
use adverb_results::{Outcome, Record};
use anyhow::bail;

use super::Point;
use crate::args::LengthArgs;
use crate::progress::Progress;
use crate::sink::Sink;
use crate::terminal;

/// Measures between hosts.
pub(super) struct Bench {
    pairs: AllPairs,
    progress: Progress,
    failed: Vec<String>,
    all: usize,
}

impl Bench {
    pub(super) fn new(pairs: AllPairs, points: &[Point]) -> Self {
        let within = pairs.within_memory();
        if within > 0 {
            terminal::warn(&format!(
                "{within} of {} pairs are at one address and share memory instead of using UDP; name an address for each host",
                pairs.hosts().pairs().count()
            ));
        }
        let cells = points.iter().flat_map(|point| cells(point, pairs.hosts()));
        let expected = cells.map(|cell| cell.spec.estimate().as_secs_f64());
        let expected: Vec<f64> = expected.collect();
        Bench {
            all: expected.len(),
            progress: Progress::new(expected),
            pairs,
            failed: Vec::new(),
        }
    }

    /// Says which records of a resumed folder are kept.
    ///
    /// # Errors
    /// More repetitions are asked for than a record has.
    pub(super) fn reuse(
        &self,
        points: &[Point],
        sink: &mut Sink<()>,
        length: &LengthArgs,
    ) -> Result<(), Usage> {
        let cells = points.iter().flat_map(|p| cells(p, self.pairs.hosts()));
        let kept = cells.filter_map(|cell| self.earlier(&cell, sink));
        let kept: Vec<Record> = kept.collect();
        sink.reuse_of_length(&kept, length)
    }

    /// Returns the record that a resumed folder has of a cell.
    fn earlier(&self, cell: &PairCell<'_>, sink: &Sink<()>) -> Option<Record> {
        let (id, device) = (self.pairs.id(cell), self.pairs.device(cell));
        let earlier = sink.earlier(|r| r.cell == id && r.device == device);
        earlier.cloned()
    }

    /// Measures all pairs at one point, and returns their records. A pair that fails does not end it.
    ///
    /// # Errors
    /// The user interrupted it, or the system failed.
    pub(super) fn measure(
        &mut self,
        point: &Point,
        sink: &mut Sink<()>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Vec<Record>> {
        let mut records = Vec::new();
        for cell in cells(point, self.pairs.hosts()) {
            if let Some(record) = self.earlier(&cell, sink) {
                records.push(record);
                self.progress.end();
                continue;
            }
            self.progress.begin(&self.pairs.id(&cell));
            let mut record = self.pairs.run(&cell, interrupt)?;
            if let Outcome::Failed { reason } = &record.outcome {
                let name = format!("{} {} → {}", cell.spec.program, cell.from, cell.to);
                self.progress.note(&format!("{name}: {reason}"));
                self.failed.push(name);
            }
            self.progress.end();
            sink.keep(&mut record)?;
            records.push(record);
        }
        Ok(records)
    }

    /// Ends the measurement of all pairs.
    ///
    /// # Errors
    /// Some pairs failed.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.progress.finish();
        match self.failed.len() {
            0 => Ok(()),
            n => bail!(
                "{n} of {} measurements failed: {}",
                self.all,
                self.failed.join(", ")
            ),
        }
    }
}

/// The cells of all pairs at one point, in the order in which they are measured.
fn cells<'p>(point: &'p Point, hosts: &Hosts) -> Vec<PairCell<'p>> {
    let of_pair = |(one, other): (u32, u32)| {
        let cell = |spec, from, to| PairCell { spec, from, to };
        [
            cell(&point.ping, one, other),
            cell(&point.blast, one, other),
            cell(&point.blast, other, one),
        ]
    };
    hosts.pairs().flat_map(of_pair).collect()
}
