//! Running a cell and making its record: what was asked, what came out, where it comes from.

use adverb_host::{Machine, now_rfc3339};
use adverb_results::{DeviceRef, Outcome, Params, Provenance, Record, SCHEMA};
use adverb_studies::{CellResult, CellSpec, Length};
use serde_json::json;

use crate::device::{DeviceChoice, DeviceInfo};
use crate::interrupt::Interrupt;
use crate::pair::{self, Cores, PairEnd};
use crate::request::patience;

/// Measures cells on one device and places.
pub(crate) struct Recorder {
    choice: DeviceChoice,
    device: DeviceRef,
    details: Vec<(String, String)>,
    cores: Cores,
    machine: Machine,
}

impl Recorder {
    /// On this device, on these cores.
    pub(crate) fn new(choice: DeviceChoice, info: &DeviceInfo, cores: Cores) -> Self {
        Recorder {
            choice,
            device: info.reference.clone(),
            details: info.details.clone(),
            cores,
            machine: Machine::this(),
        }
    }

    /// The device, as in records.
    pub(crate) fn device(&self) -> &DeviceRef {
        &self.device
    }

    /// Runs a cell; none if the user interrupted it.
    pub(crate) fn measure(
        &self,
        spec: &CellSpec,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<Record>> {
        let started = now_rfc3339();
        let end = pair::run(spec, &self.choice, self.cores, patience(spec), interrupt)?;
        Ok(match end {
            PairEnd::Measured(result) => Some(self.record(spec, started, Ok(*result))),
            PairEnd::Failed(reason) => Some(self.record(spec, started, Err(reason))),
            PairEnd::Interrupted => None,
        })
    }

    fn record(&self, spec: &CellSpec, started: String, end: Result<CellResult, String>) -> Record {
        let (outcome, params, metrics) = match end {
            Ok(CellResult { params, metrics }) => (Outcome::Ok, params, Some(metrics)),
            Err(reason) => (Outcome::Failed { reason }, asked(spec), None),
        };
        Record {
            schema: SCHEMA,
            cell: spec.id.clone(),
            figures: spec.figures.iter().map(ToString::to_string).collect(),
            program: spec.program,
            device: self.device.clone(),
            params: Params {
                active_core: self.cores.active,
                passive_core: self.cores.passive,
                ..params
            },
            outcome,
            metrics,
            provenance: self.provenance(started),
        }
    }

    fn provenance(&self, started: String) -> Provenance {
        Provenance {
            adverb: env!("CARGO_PKG_VERSION").to_owned(),
            revision: crate::REVISION.map(str::to_owned),
            started,
            host: self.machine.host.clone(),
            kernel: self.machine.kernel.clone(),
            cpu: self.machine.cpu.clone(),
            cores: self.machine.cores,
            virtual_time: false,
            device: self.details.iter().cloned().collect(),
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
