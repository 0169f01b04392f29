//! `ddio_forward`: a core forwards Ethernet frames through the last-level cache.

use adverb_hwmodel::forward;
use adverb_sim::Seed;
use adverb_validate::{Experiment, Metric, Opcode, Refusal};

use super::hosts::preset;
use super::{cannot, failed, no_metric};

/// Predicts the hit rate of the NIC's writes or reads.
pub(super) fn hits(experiment: &Experiment) -> Result<f64, Refusal> {
    let p = &experiment.parameters;
    let lacks = |column| cannot(format!("{} without {column}", experiment.program));
    let size = p.operation.size.ok_or_else(|| lacks("size_bytes"))?;
    let descriptors = p.host.rx_descriptors;
    let descriptors = descriptors.ok_or_else(|| lacks("rx_descriptors"))?;
    if p.parties.cores.is_some_and(|cores| cores != 1) {
        return Err(cannot("frames are forwarded by one core"));
    }
    let found = forward(&preset(experiment)?, size, descriptors, Seed(0));
    let found = found.map_err(|error| cannot(error.to_string()))?;
    let lookups = match p.operation.opcode {
        Some(Opcode::PcieRead) => found.reads,
        Some(Opcode::PcieWrite) => found.writes,
        Some(other) => return Err(cannot(format!("{} with {other}", experiment.program))),
        None => return Err(lacks("an opcode")),
    };
    match experiment.metric {
        Metric::HitPercent => lookups
            .percent()
            .ok_or_else(|| failed("no frame was forwarded")),
        _ => Err(no_metric(experiment)),
    }
}
