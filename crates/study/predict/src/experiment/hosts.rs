//! The machines of an experiment: a preset with the row's overrides, and the placement of buffers.

use adverb_hwmodel::{Kind, Placement, Preset};
use adverb_units::Bytes;
use adverb_validate::{BufferState, Ddio, Experiment, Network, Node, Refusal, Sample, Side};
use adverb_verbs::LinkLayer;

use super::{cannot, failed};

/// Largest path MTU (IBTA vol. 1, 14.2.5.6).
const LARGEST_PATH_MTU: u64 = 4096;

/// Returns the preset with the row's overrides, which must be of a NIC.
pub(crate) fn preset(experiment: &Experiment) -> Result<Preset, Refusal> {
    let preset = overridden(experiment)?;
    match preset.kind {
        Kind::Nic => Ok(preset),
        Kind::BareDevice => Err(cannot(format!(
            "{} is a bare PCIe device: it runs no {}",
            preset.name, experiment.program
        ))),
    }
}

/// Returns the preset with the row's overrides.
pub(super) fn overridden(experiment: &Experiment) -> Result<Preset, Refusal> {
    let mut preset = Preset::built_in(&experiment.preset).map_err(|e| failed(&e))?;
    if let Some(Sample { number, of }) = experiment.sample {
        preset = preset.sample(number, of);
    }
    let mut overrides = network(&experiment.parameters.network, &preset);
    let host = &experiment.parameters.host;
    let ways = match host.ddio {
        Some(Ddio::Off) => Some(0.0),
        _ => host.ddio_ways.map(f64::from),
    };
    overrides.extend(ways.map(|ways| ("memory.ddio_ways", ways)));
    // The row is to blame for an impossible value, not the model.
    preset
        .with(&overrides)
        .map_err(|error| cannot(error.to_string()))
}

fn network(network: &Network, preset: &Preset) -> Vec<(&'static str, f64)> {
    let link = &preset.params.link;
    let mut overrides = Vec::new();
    let mtu = network.mtu.map(|mtu| path_mtu(mtu, preset.link_layer));
    overrides.extend(mtu.map(|mtu| ("link.mtu_bytes", mtu)));
    let gbps = network.rate.map(|rate| rate.bytes_per_second() * 8.0 / 1e9);
    overrides.extend(gbps.map(|gbps| ("link.gbps", gbps)));
    // In session B the testbed had one switch less than in the preset (schema.md).
    let is_nearer = network.session.as_deref() == Some("B");
    let switches = f64::from(link.switches.saturating_sub(is_nearer.into()));
    if is_nearer {
        overrides.push(("link.switches", switches));
    }
    let cables = switches + 1.0;
    let delay = network.added_delay.map(|delay| delay.as_ns_f64() / cables);
    overrides.extend(delay.map(|delay| ("link.cable_ns", link.cable_ns.as_ns_f64() + delay)));
    overrides
}

/// Returns the path MTU. An Ethernet row may give the frame payload: then the largest path MTU that fits.
fn path_mtu(mtu: Bytes, layer: LinkLayer) -> f64 {
    let bytes = mtu.get();
    let path = match layer {
        LinkLayer::InfiniBand => bytes,
        _ => 1 << bytes.max(1).ilog2().min(LARGEST_PATH_MTU.ilog2()),
    };
    path as f64
}

/// Returns the placement of each machine's buffers. Machine 0 is the measured one; all others are on the
/// other side.
pub(crate) fn placements(experiment: &Experiment, machines: u32) -> Vec<Placement> {
    let responder = buffer(experiment);
    let requester = placed(experiment.parameters.placement.requester, None);
    let (first, others) = match experiment.parameters.measured_at {
        Some(Side::Responder) => (responder, requester),
        _ => (requester, responder),
    };
    (0..machines)
        .map(|machine| if machine == 0 { first } else { others })
        .collect()
}

pub(super) fn buffer(experiment: &Experiment) -> Placement {
    let placement = &experiment.parameters.placement;
    placed(placement.buffer, placement.buffer_state)
}

fn placed(node: Option<Node>, state: Option<BufferState>) -> Placement {
    match (node, state) {
        (Some(Node::NicRemote), Some(BufferState::Dram)) => Placement::RemoteMemory,
        (Some(Node::NicRemote), _) => Placement::RemoteCached,
        (_, Some(BufferState::Dram)) => Placement::Memory,
        (_, _) => Placement::Cached,
    }
}
