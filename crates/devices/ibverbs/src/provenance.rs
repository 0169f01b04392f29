//! The description of a device in the records of measurements.

use adverb_abi as abi;
use adverb_sysfs::Sysfs;
use adverb_verbs::PortNum;

use crate::handle::Handle;

/// Returns names and values, in the order in which a report shows them.
pub(crate) fn of(handle: &Handle) -> Vec<(String, String)> {
    let mut all = of_system(&handle.raw.name(), handle.port);
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            all.push((name.to_owned(), value));
        }
    };
    let (vendor, part) = handle.attr.vendor;
    if vendor == abi::ADVERB_VENDOR {
        let driver = "adverb (the user-space NIC, loaded by `adverb run`)";
        add("driver", driver.to_owned());
    }
    add("vendor and part", format!("{vendor:#06x}, {part}"));
    add("firmware", handle.attr.firmware.clone());
    add("link layer", handle.layer.to_string());
    add("port", handle.port.to_string());
    add("GID index", handle.gid.index.to_string());
    add("GID", handle.gid.gid.to_string());
    let gid_type = handle.gid.gid_type;
    add(
        "GID type",
        gid_type.map_or_else(String::new, |t| t.to_string()),
    );
    if let Ok(attr) = handle.raw.query_port(handle.port) {
        let bytes = 128_u32.checked_shl(attr.active_mtu).unwrap_or(0);
        add("active MTU", format!("{bytes} B"));
    }
    let caps = &handle.caps;
    add("atomics", caps.atomics.to_string());
    add("READs and atomics taken", caps.max_qp_rd_atom.to_string());
    let initiated = handle.attr.max_qp_init_rd_atom;
    add("READs and atomics begun", initiated.to_string());
    let connected_by = match handle.manager {
        Some(_) => "librdmacm",
        None => "exchange of queue pair numbers",
    };
    add("connected by", connected_by.to_owned());
    add("posting interface", handle.posting.to_string());
    add("polling interface", handle.polling.to_string());
    add("memory", handle.pages.words());
    all
}

/// Returns what sysfs contains about the device; absent values are left out.
fn of_system(name: &str, port: PortNum) -> Vec<(String, String)> {
    let Ok(Some(device)) = Sysfs::default().device_without_gids(name) else {
        return Vec::new();
    };
    let rate = device.port(port).and_then(|port| port.rate.as_ref());
    let netdev = device.port(port).and_then(|port| port.netdev.clone());
    let values = [
        ("driver", device.driver.as_ref().map(ToString::to_string)),
        ("node GUID", Some(device.node_guid.clone())),
        ("board", device.board_id.clone()),
        ("PCI address", device.pci.map(|pci| pci.to_string())),
        ("NUMA node", device.numa_node.map(|node| node.to_string())),
        ("link", rate.map(ToString::to_string)),
        ("network interface", netdev),
    ];
    values
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}
