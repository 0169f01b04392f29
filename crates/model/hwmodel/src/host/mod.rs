//! The host's side of a machine: CPU costs and memory, and the path between a device and memory (PCIe, root
//! complex, DDIO and caches, IOMMU, cache-line contention). Nothing here depends on the NIC.

pub(crate) mod bare;
pub(crate) mod contention;
pub(crate) mod cores;
pub(crate) mod demand;
pub(crate) mod forward;
pub(crate) mod interconnect;
pub(crate) mod iommu;
pub(crate) mod llc;
pub(crate) mod memory;
mod pages;
pub(crate) mod pcie;
pub(crate) mod placement;
pub(crate) mod root;
mod share;
pub(crate) mod tcp;
