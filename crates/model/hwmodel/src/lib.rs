//! Hosts, RDMA NICs and the links between them, in virtual time.
//!
//! A [`Cluster`] is made of a [`Preset`]; roles, plain functions over a station of the verbs seam, run
//! on its machines unchanged. What an operation costs comes out of mechanisms: what the CPU writes
//! to the NIC and what the NIC has to fetch, PCIe packets and round trips, processing units, the
//! NIC's two sides, caches of contexts and requests, locks of atomic operations, packets on links.
//! `docs/model-internals.md` describes them.
//!
//! Payload is moved and checked as by a real device: keys, ranges, rights, states, receive
//! buffers, immediate data, flushes.
//!
//! All times are in [`adverb_units`]; parameters are in the units that their names end with.

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
mod socket;
mod station;
pub mod trace;
mod world;

pub use cluster::Cluster;
pub use host::bare::{Addressing, BareDevice, BareDeviceError, Dma, Pace, Transferred, Window};
pub use host::forward::{ForwardError, Forwarded, Lookups, forward};
pub use host::llc;
pub use host::load::{Access, CpuLoad, Node, Work};
pub use host::placement::Placement;
pub use ids::MachineId;
pub use objects::{
    ModelAh, ModelChannel, ModelContext, ModelCq, ModelMr, ModelPd, ModelQp, ModelSrq,
};
pub use preset::{Driver, Kind, Preset, PresetError, names};
pub use socket::Socket;
pub use station::ModelStation;
