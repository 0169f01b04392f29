//! Running a cell and making its record: what was asked, what came out, where it comes from.

use adverb_host::{Machine, now_rfc3339, numa_node};
use adverb_results::{DeviceRef, Outcome, Params, Provenance, Record, SCHEMA, Site};
use adverb_studies::{CellResult, CellSpec, Length};
use anyhow::{Context, bail};
use serde_json::json;

use crate::device::{DeviceChoice, DeviceInfo};
use crate::interrupt::Interrupt;
use crate::model::{self, Hardware, Stop, run_cell};
use crate::pair::{Pair, PairEnd, SideCounters};
use crate::request::patience;
use crate::terminal;

/// What cells run on.
pub(crate) enum Bed {
    /// Two processes on a real device.
    Pair(Box<Pair>),
    /// Two roles in virtual time.
    Model(Box<Hardware>),
}

/// Measures cells on one device and places.
pub(crate) struct Recorder {
    device: DeviceRef,
    site: Site,
    bed: Bed,
}

/// What came of a cell.
pub(crate) enum Measured {
    /// It ended, well or not.
    Record(Box<Record>),
    /// The user interrupted it.
    Interrupted,
    /// It could not begin: the server of the passive side cannot be reached any more.
    NoPeer(String),
}

impl Recorder {
    /// At these places; the device is asked once more, as it is met there.
    ///
    /// # Errors
    /// Of the device, which cannot be opened.
    pub(crate) fn new(bed: Bed) -> anyhow::Result<Self> {
        let info = match &bed {
            Bed::Pair(pair) if pair.is_within_memory() => {
                let device = pair.device();
                terminal::warn(&format!(
                    "both sides are at {device} and share memory: this measures the local port, as device soft; for UDP, run `adverb serve` at another address and name it with --peer"
                ));
                DeviceInfo::query(&DeviceChoice::SOFT)?
            }
            Bed::Pair(pair) => DeviceInfo::query(&pair.device())?,
            Bed::Model(hardware) => DeviceInfo::of_model(hardware)?,
        };
        Ok(Recorder {
            device: info.reference,
            site: info.site,
            bed,
        })
    }

    /// Whether a record is of this device; of a model, also with the same parameters.
    pub(crate) fn is_of(&self, record: &Record) -> bool {
        let is_same = match self.bed {
            Bed::Pair(_) => true,
            Bed::Model(_) => record.provenance.active.device == self.site.device,
        };
        is_same && record.device == self.device
    }

    /// Runs cells: on a real device one after another, on a model ahead and on all cores. `body` gets
    /// what came of them one a call, in their order.
    ///
    /// # Errors
    /// Those of `body`. What it calls fails where the processes of a cell cannot even be started or
    /// watched.
    pub(crate) fn in_order<T>(
        &mut self,
        cells: &[CellSpec],
        interrupt: &Interrupt,
        body: impl FnOnce(&mut dyn FnMut() -> anyhow::Result<Measured>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        if let Bed::Model(hardware) = &self.bed {
            let work = |spec: &CellSpec, stop: &Stop| {
                let is_over = || interrupt.raised() || stop.is_set();
                let started = now_rfc3339();
                Ok(self.measured(spec, started, run_cell(hardware, spec, &is_over)))
            };
            return model::in_order(cells, work, body);
        }
        let mut cells = cells.iter();
        body(&mut || {
            let spec = cells.next().context("there are no more cells to run")?;
            self.measure(spec, interrupt)
        })
    }

    /// Runs a cell on two processes.
    fn measure(&mut self, spec: &CellSpec, interrupt: &Interrupt) -> anyhow::Result<Measured> {
        let started = now_rfc3339();
        let Bed::Pair(pair) = &mut self.bed else {
            bail!("{} has no processes", self.device);
        };
        let end = pair.run(spec, patience(spec), interrupt)?;
        Ok(self.measured(spec, started, end))
    }

    /// What came of a cell that ended so.
    fn measured(&self, spec: &CellSpec, started: String, end: PairEnd) -> Measured {
        let (end, counters) = match end {
            PairEnd::Measured(result, counters) => (Ok(*result), counters),
            PairEnd::Failed(reason, counters) => (Err(reason), counters),
            PairEnd::Interrupted => return Measured::Interrupted,
            PairEnd::NoPeer(reason) => return Measured::NoPeer(reason),
        };
        Measured::Record(Box::new(self.record(spec, started, end, counters)))
    }

    /// Where cells run; none in virtual time, which is nowhere.
    fn pair(&self) -> Option<&Pair> {
        match &self.bed {
            Bed::Pair(pair) => Some(pair),
            Bed::Model(_) => None,
        }
    }

    fn record(
        &self,
        spec: &CellSpec,
        started: String,
        end: Result<CellResult, String>,
        counters: SideCounters,
    ) -> Record {
        let (outcome, mut params, metrics) = match end {
            Ok(CellResult { params, metrics }) => (Outcome::Ok, params, Some(metrics)),
            Err(reason) => (Outcome::Failed { reason }, asked(spec), None),
        };
        self.place(&mut params);
        Record {
            schema: SCHEMA,
            cell: spec.id.clone(),
            figures: spec.figures.iter().map(ToString::to_string).collect(),
            program: spec.program,
            device: self.device.clone(),
            params,
            outcome,
            metrics,
            counters,
            provenance: self.provenance(started),
        }
    }

    /// Adds where the sides ran.
    fn place(&self, params: &mut Params) {
        let Some(pair) = self.pair() else {
            return;
        };
        let cores = pair.cores();
        let passive_numa_node = match pair.welcome() {
            Some(welcome) => welcome.numa_node,
            None => cores.passive.and_then(numa_node),
        };
        params.active_core = cores.active;
        params.passive_core = cores.passive;
        params.active_numa_node = cores.active.and_then(numa_node);
        params.passive_numa_node = passive_numa_node;
    }

    /// Where the passive side runs, if with a peer; with its device's name, if that is another one.
    fn passive_site(&self) -> Option<Site> {
        let welcome = self.pair()?.welcome()?;
        let mut site = welcome.site.clone();
        if welcome.device != self.device {
            let name = welcome.device.to_string();
            site.device.insert("name".to_owned(), name);
        }
        Some(site)
    }

    fn provenance(&self, started: String) -> Provenance {
        Provenance {
            adverb: env!("CARGO_PKG_VERSION").to_owned(),
            revision: crate::REVISION.map(str::to_owned),
            started,
            virtual_time: matches!(self.bed, Bed::Model(_)),
            active: self.site.clone(),
            passive: self.passive_site(),
        }
    }
}

/// What was asked of a cell that did not get so far as to choose the rest.
fn asked(spec: &CellSpec) -> Params {
    let iters = match spec.params.length {
        Length::Iters(n) => Some(n),
        Length::Duration(_) => None,
    };
    spec.params(iters, spec.params.warmup)
}

/// This machine, for `study.json`.
pub(crate) fn machine_json() -> serde_json::Value {
    let machine = Machine::this();
    json!({
        "host": machine.host,
        "kernel": machine.kernel,
        "cpu": machine.cpu,
        "cores": machine.cores,
    })
}
