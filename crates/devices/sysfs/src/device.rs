//! A device: its identity, bus and driver.

use std::fmt;
use std::path::Path;

use crate::port::{Gids, ports};
use crate::{NodeType, Open, PciAddress, PciLink, Port, Sysfs, SysfsError, file};

/// An RDMA device (`/sys/class/infiniband/DEV`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Its name: `mlx5_0`.
    pub name: String,
    /// Its role in the network.
    pub node_type: Open<NodeType>,
    /// Its GUID, as the kernel writes it: `0c42:a103:00a5:0e1c`. Zero for some software devices.
    pub node_guid: String,
    /// Firmware version; `None` for software devices.
    pub fw_version: Option<String>,
    /// The board's part number or PSID.
    pub board_id: Option<String>,
    /// Its driver; `None` if unknown.
    pub driver: Option<Driver>,
    /// Its PCI address; `None` for software devices.
    pub pci: Option<PciAddress>,
    /// Its PCI Express link; `None` if unknown.
    pub pci_link: Option<PciLink>,
    /// The NUMA node it is attached to; `None` if the machine has none or the firmware does not report it.
    pub numa_node: Option<u32>,
    /// Its character device for programs: `uverbs0` (`/dev/infiniband/uverbs0`); `None` if
    /// `ib_uverbs` is not loaded.
    pub uverbs: Option<String>,
    /// Its ports, by number.
    pub ports: Vec<Port>,
}

/// Driver of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// Hardware: the driver of its bus device (`mlx5_core`, `ice`).
    Hardware(String),
    /// Soft-RoCE: the kernel module `rdma_rxe`.
    Rxe,
    /// Soft-iWARP: the kernel module `siw`.
    Siw,
}

impl Driver {
    /// Whether the kernel sends the packets through an ordinary network interface.
    pub fn is_software(&self) -> bool {
        matches!(self, Driver::Rxe | Driver::Siw)
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Driver::Hardware(name) => name,
            Driver::Rxe => "rdma_rxe",
            Driver::Siw => "siw",
        })
    }
}

impl RdmaDevice {
    /// The port of this number.
    pub fn port(&self, number: adverb_verbs::PortNum) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    pub(crate) fn read(sysfs: &Sysfs, name: &str, gids: Gids) -> Result<Self, SysfsError> {
        let dir = sysfs.infiniband().join(name);
        let node_type = Open::from(file::text(&dir.join("node_type"))?.as_str());
        let driver = driver(&dir, name, &node_type)?;
        // Soft-iWARP appears below its network interface's hardware, which is not its own.
        let software = driver.as_ref().is_some_and(Driver::is_software);
        let bus = if software {
            None
        } else {
            file::resolved(&dir.join("device"))?
        };
        let pci = bus.as_deref().and_then(PciAddress::in_path);
        Ok(RdmaDevice {
            name: name.to_owned(),
            node_guid: file::text(&dir.join("node_guid"))?,
            fw_version: file::optional(&dir.join("fw_ver"))?,
            board_id: file::optional(&dir.join("board_id"))?,
            pci,
            pci_link: bus.as_deref().map_or(Ok(None), PciLink::read)?,
            numa_node: bus.as_deref().map_or(Ok(None), numa_node)?,
            uverbs: uverbs(sysfs, name)?,
            ports: ports(sysfs, name, (&node_type, gids))?,
            node_type,
            driver,
        })
    }
}

/// Software devices are not known by a driver of a bus: Soft-RoCE alone has the file `parent`;
/// Soft-iWARP is known as `libibverbs` knows it, by its name, or as an RNIC on no bus.
pub(crate) fn driver(
    dir: &Path,
    name: &str,
    node: &Open<NodeType>,
) -> Result<Option<Driver>, SysfsError> {
    if dir.join("parent").exists() {
        return Ok(Some(Driver::Rxe));
    }
    let bus = file::link_name(&dir.join("device/driver"))?;
    if node.is(NodeType::Rnic) && (name.starts_with("siw") || bus.is_none()) {
        return Ok(Some(Driver::Siw));
    }
    Ok(bus.map(Driver::Hardware))
}

/// Reads a device's NUMA node; -1 means none.
fn numa_node(bus: &Path) -> Result<Option<u32>, SysfsError> {
    let path = bus.join("numa_node");
    let node = file::parsed(&path, "a NUMA node", |text| text.parse::<i32>().ok())?;
    Ok(node.and_then(|node| u32::try_from(node).ok()))
}

fn uverbs(sysfs: &Sysfs, name: &str) -> Result<Option<String>, SysfsError> {
    let class = sysfs.class("infiniband_verbs");
    // The folder also contains a file of the class, `abi_version`.
    let entries = file::names(&class)?.into_iter();
    for entry in entries.filter(|name| name.starts_with("uverbs")) {
        if file::optional(&class.join(&entry).join("ibdev"))?.as_deref() == Some(name) {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}
