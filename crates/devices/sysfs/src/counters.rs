//! Counters of devices and ports.
//!
//! `ports/N/counters` are counters of the specification (IBTA vol. 1, 16.1.3.5), `hw_counters` (of the device
//! and of the port) the driver's own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use adverb_verbs::{Counters, PortNum};

use crate::{Sysfs, SysfsError, file};

/// Not a counter: for how many ms the kernel keeps the driver's counters before it asks again.
const LIFESPAN: &str = "lifespan";

impl Sysfs {
    /// Returns the counters of a device and one of its ports. A name that several folders have gets the folder
    /// in front: `counters/x`, `hw_counters/x`, `device/hw_counters/x`.
    pub fn counters(&self, device: &str, port: PortNum) -> Result<Counters, SysfsError> {
        let dir = self.port_dir(device, port);
        let of_device = self.infiniband().join(device).join("hw_counters");
        Ok(merged(&[
            folder("counters", &dir.join("counters"))?,
            folder("hw_counters", &dir.join("hw_counters"))?,
            folder("device/hw_counters", &of_device)?,
        ]))
    }

    pub(crate) fn port_dir(&self, device: &str, port: PortNum) -> PathBuf {
        let ports = self.infiniband().join(device).join("ports");
        ports.join(port.to_string())
    }
}

struct Folder {
    label: &'static str,
    counters: Counters,
}

/// The files of a folder that hold a number. Others are left out: the port may not support a counter
/// (the kernel then returns `N/A (no PMA)` or an error), or reading may be for root only.
fn folder(label: &'static str, dir: &Path) -> Result<Folder, SysfsError> {
    let number = |name: &String| -> Option<u64> {
        let text = fs::read_to_string(dir.join(name)).ok()?;
        text.trim().parse().ok()
    };
    let names = file::names(dir)?
        .into_iter()
        .filter(|name| name != LIFESPAN);
    let counters = names.filter_map(|name| number(&name).map(|n| (name, n)));
    Ok(Folder {
        label,
        counters: counters.collect(),
    })
}

fn merged(folders: &[Folder]) -> Counters {
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for name in folders.iter().flat_map(|folder| folder.counters.keys()) {
        *uses.entry(name).or_default() += 1;
    }
    let all = folders.iter().flat_map(|folder| {
        let named = folder.counters.iter();
        named.map(|(name, value)| (folder.label, name, *value))
    });
    all.map(|(label, name, value)| {
        if uses[name.as_str()] == 1 {
            (name.clone(), value)
        } else {
            (format!("{label}/{name}"), value)
        }
    })
    .collect()
}
