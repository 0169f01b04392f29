//! Limits and state of a device before a program runs on it.

use adverb_host::{Machine, TcpDevice};
use adverb_results::{DeviceRef, Site};
use adverb_verbs::{Context, Device, DeviceCaps, PortCaps, PortNum};

use crate::device::DeviceChoice;
use crate::hardware::Hardware;

/// Limits and state of a device.
pub struct DeviceInfo {
    /// Its kind and name.
    pub reference: DeviceRef,
    /// Its limits.
    pub caps: DeviceCaps,
    /// Number of its port.
    pub port_num: PortNum,
    /// Capabilities of the port.
    pub port: PortCaps,
    /// NUMA node that it is attached to, if known.
    pub numa_node: Option<u32>,
    /// This host, and the device's details for a record's provenance.
    pub site: Site,
}

impl DeviceInfo {
    /// Queries the device.
    pub fn query(device: &DeviceChoice) -> anyhow::Result<Self> {
        match device {
            DeviceChoice::Soft(address) => Self::of(device, &address.device()?.open()?),
            DeviceChoice::Verbs(verbs) => Self::of(device, &verbs.open()?),
            DeviceChoice::Model(preset) => Self::of_model(&Hardware::load(preset)?),
            DeviceChoice::Tcp(_) => Self::of(device, &TcpDevice.open()?),
        }
    }

    /// Returns the limits of a model, which do not depend on this host.
    pub fn of_model(hardware: &Hardware) -> anyhow::Result<Self> {
        let limits = hardware.limits()?;
        Ok(DeviceInfo {
            reference: hardware.reference(),
            caps: limits.caps,
            port_num: limits.port_num,
            port: limits.port,
            numa_node: None,
            site: site(hardware.details()),
        })
    }

    fn of<C: Context>(device: &DeviceChoice, context: &C) -> anyhow::Result<Self> {
        let port_num = context.port_num();
        Ok(DeviceInfo {
            reference: device.reference(),
            caps: context.caps().clone(),
            port_num,
            port: context.port(port_num)?,
            numa_node: context.numa_node(),
            site: site(context.provenance()),
        })
    }
}

/// Returns this host, with these details of a device.
fn site(device: Vec<(String, String)>) -> Site {
    let machine = Machine::this();
    Site {
        host: machine.host,
        kernel: machine.kernel,
        cpu: machine.cpu,
        cores: machine.cores,
        device: device.into_iter().collect(),
    }
}
