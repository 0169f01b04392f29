//! Hosts, RDMA NICs and the links between them, in virtual time.
//!
//! A [`Cluster`] is created from a [`Preset`]. Roles, which are plain functions over a station, run on its
//! machines unchanged. The cost of an operation results from mechanisms: what the CPU writes to the NIC
//! and what the NIC has to fetch, PCIe packets and round trips, processing units, the NIC's transmit and
//! receive side, caches of contexts and WQEs, locks of atomic operations, packets on links.
//! `docs/model-internals.md` describes them.
//!
//! The model moves payload and checks requests as a real device does: keys, ranges, access rights, states,
//! receive buffers, immediate data, flushes.
//!
//! Times are types of [`adverb_units`]. Names of parameters end with their unit.

mod cluster;
mod counters;
mod host;
mod ids;
mod machine;
mod nic;
mod objects;
pub mod params;
mod preset;
mod rate;
mod resource;
mod station;
mod streams;
pub mod trace;
mod utilization;
mod world;

pub use cluster::Cluster;
pub use host::bare::{Addressing, BareDevice, BareDeviceError, Dma, Pace, Transferred, Window};
pub use host::forward::{ForwardError, Forwarded, Lookups, forward};
pub use host::placement::Placement;
pub use ids::MachineId;
pub use objects::{
    ModelAh, ModelChannel, ModelContext, ModelCq, ModelMr, ModelPd, ModelQp, ModelSrq,
};
pub use preset::{Driver, EntryProblem, Kind, Preset, PresetError, Support, names};
pub use station::ModelStation;
pub use streams::{ModelListener, ModelStream};
pub use utilization::{MMIO, Usage, Utilization};
