//! Hosts, RDMA NICs and the links between them, in virtual time.
//!
//! A [`Cluster`] is made of a [`Preset`]; roles, plain functions over a station of the verbs seam, run
//! on its machines unchanged. What an operation costs comes out of mechanisms: what the CPU writes
//! to the NIC and what the NIC has to fetch, PCIe packets and round trips, processing units, the
//! NIC's two sides, caches of contexts and requests, locks of atomic operations, packets on links.
//! `docs/model.md` describes them.
//!
//! Payload is moved and checked as by a real device: keys, ranges, rights, states, receive
//! buffers, immediate data, flushes.
//!
//! All times are in [`adverb_units`]; parameters are in the units that their names end with.

mod bare;
mod cluster;
mod cores;
mod counters;
mod forward;
mod iommu;
pub mod llc;
mod load;
mod objects;
pub mod params;
mod pcie;
mod preset;
mod rate;
mod resource;
mod socket;
mod station;
pub mod trace;
mod world;

pub use bare::{Addressing, BareDevice, BareDeviceError, Dma, Pace, Transferred, Window};
pub use cluster::{Cluster, MachineId};
pub use forward::{ForwardError, Forwarded, Lookups, forward};
pub use load::{Access, CpuLoad, Node, Work};
pub use objects::{
    ModelAh, ModelChannel, ModelContext, ModelCq, ModelMr, ModelPd, ModelQp, ModelSrq,
};
pub use preset::{Driver, Kind, Preset, PresetError, names};
pub use socket::Socket;
pub use station::ModelStation;
pub use world::machine::Placement;
