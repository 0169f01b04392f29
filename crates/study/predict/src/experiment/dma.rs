//! Programs of a bare PCIe device: reads, writes, and writes followed by a read.

use adverb_hwmodel::{Addressing, BareDevice, Dma, Pace, Window};
use adverb_sim::Seed;
use adverb_units::Bytes;
use adverb_validate::{Experiment, Metric, Program, Refusal};

use super::hosts::{buffer, overridden};
use super::{cannot, no_metric};

/// Default range of addresses: pcie-bench's, which fits every cache.
const WINDOW: Bytes = Bytes::kib(8);

/// The kind of a program's operations, if it is one for a bare device.
pub(super) fn operation(program: Program) -> Option<Dma> {
    match program {
        Program::PcieDmaRead => Some(Dma::Read),
        Program::PcieDmaWrite => Some(Dma::Write),
        Program::PcieDmaWrrd => Some(Dma::WriteRead),
        _ => None,
    }
}

pub(super) fn transfers(experiment: &Experiment, dma: Dma) -> Result<f64, Refusal> {
    let p = &experiment.parameters;
    let program = experiment.program;
    let size = p.operation.size;
    let size = size.ok_or_else(|| cannot(format!("{program} without size_bytes")))?;
    let window = Window {
        bytes: p.placement.window.unwrap_or(WINDOW.max(lines(size))),
        placement: buffer(experiment),
        addressing: match p.host.iommu {
            Some(true) => Addressing::Translated,
            _ => Addressing::Physical,
        },
    };
    let pace = match p.queueing.outstanding {
        Some(n) if n.get() > 1 => Pace::Overlapping(n),
        _ => Pace::OneByOne,
    };
    let preset = overridden(experiment)?;
    let device = BareDevice::new(&preset, window, Seed(0));
    let mut device = device.map_err(|error| cannot(error.to_string()))?;
    let done = device
        .run(dma, size, pace)
        .map_err(|error| cannot(error.to_string()))?;
    match experiment.metric {
        Metric::DmaNs => Ok(done.mean.as_ns_f64()),
        Metric::OpsPerS => Ok(done.per_second),
        Metric::Gbps => Ok(done.per_second * size.get() as f64 * 8.0 / 1e9),
        Metric::NsPerOp => Ok(1e9 / done.per_second),
        _ => Err(no_metric(experiment)),
    }
}

/// A size rounded up to lines.
fn lines(size: Bytes) -> Bytes {
    Bytes::new(size.get().next_multiple_of(64))
}
