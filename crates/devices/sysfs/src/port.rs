//! A port: its state, rate and addresses.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::Path;

use adverb_verbs::{Gid, GidType, Lid, LinkLayer, PortNum};

use crate::open::link_layer;
use crate::{NodeType, Open, PhysState, PortState, Sysfs, SysfsError, file};

/// A port of a device (`/sys/class/infiniband/DEV/ports/N`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number.
    pub number: PortNum,
    /// Logical state.
    pub state: Open<PortState>,
    /// Physical state; `None` if the driver does not report it.
    pub phys_state: Option<Open<PhysState>>,
    /// The link layer.
    pub link_layer: Open<LinkLayer>,
    /// Signalling rate; `None` if the driver does not report it.
    pub rate: Option<LinkRate>,
    /// LID; 0 where the link layer has none, or the subnet manager has not given one.
    pub lid: Lid,
    /// The table of GIDs, by index, without the empty entries.
    pub gids: Vec<GidEntry>,
    /// The network interface that sends its packets, or that IP over InfiniBand made of it; none
    /// where there is none or it is in another network namespace.
    pub netdev: Option<String>,
}

/// An entry of a port's table of GIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its place in the table.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// Packet format; `None` if it does not apply (iWARP) or is unknown.
    pub gid_type: Option<Open<GidType>>,
    /// The network interface whose address it is (RoCE); `None` if there is none, or it is in
    /// another network namespace.
    pub netdev: Option<String>,
}

/// Signalling rate of a link: `100 Gb/s (4X EDR)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRate {
    tenth_gb_per_s: u64,
    lanes: Option<String>,
}

impl LinkRate {
    /// Bits per second.
    pub fn bits_per_second(&self) -> u64 {
        self.tenth_gb_per_s * 100_000_000
    }

    /// Width and speed in the words of the specification: `4X EDR`.
    pub fn lanes(&self) -> Option<&str> {
        self.lanes.as_deref()
    }

    /// `2.5 Gb/sec (1X)`.
    fn parse(text: &str) -> Option<Self> {
        let (number, rest) = text.split_once(" Gb/sec")?;
        let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
        let whole: u64 = whole.trim().parse().ok()?;
        let tenths: u64 = tenths.parse().ok().filter(|tenths| *tenths < 10)?;
        let lanes = rest
            .trim()
            .trim_start_matches('(')
            .trim_end_matches(')')
            .trim();
        Some(LinkRate {
            tenth_gb_per_s: whole.checked_mul(10)?.checked_add(tenths)?,
            lanes: (!lanes.is_empty()).then(|| lanes.to_owned()),
        })
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, tenths) = (self.tenth_gb_per_s / 10, self.tenth_gb_per_s % 10);
        write!(f, "{whole}")?;
        if tenths != 0 {
            write!(f, ".{tenths}")?;
        }
        f.write_str(" Gb/s")?;
        self.lanes
            .iter()
            .try_for_each(|lanes| write!(f, " ({lanes})"))
    }
}

/// How much of the GID tables is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gids {
    All,
    /// Up to the first entry that names a network interface.
    UntilNetdev,
}

/// The ports of a device, by number.
pub(crate) fn ports(
    sysfs: &Sysfs,
    device: &str,
    (node, gids): (&Open<NodeType>, Gids),
) -> Result<Vec<Port>, SysfsError> {
    let dir = sysfs.infiniband().join(device).join("ports");
    let mut ports = Vec::new();
    for name in file::names(&dir)? {
        let number: u32 = name
            .parse()
            .map_err(|_| SysfsError::content(&dir, &name, "port number"))?;
        // The verbs name ports with 8 bits; the kernel has more for virtual switches only.
        if let Ok(number) = u8::try_from(number) {
            ports.push(port(sysfs, device, (node, gids), PortNum(number))?);
        }
    }
    Ok(ports)
}

fn port(
    sysfs: &Sysfs,
    device: &str,
    (node, wanted): (&Open<NodeType>, Gids),
    number: PortNum,
) -> Result<Port, SysfsError> {
    let dir = sysfs.port_dir(device, number);
    let layer = link_layer(&file::text(&dir.join("link_layer"))?, node);
    let gids = gids(&dir, layer.known(), wanted)?;
    let first = gids.iter().find_map(|entry| entry.netdev.clone());
    let netdev = match first {
        Some(name) => Some(name),
        None => parent_netdev(&sysfs.infiniband().join(device), number)?,
    };
    Ok(Port {
        number,
        state: Open::from(file::text(&dir.join("state"))?.as_str()),
        phys_state: file::optional(&dir.join("phys_state"))?.map(|t| Open::from(t.as_str())),
        link_layer: layer,
        rate: file::parsed(
            &dir.join("rate"),
            "a rate such as 100 Gb/sec (4X EDR)",
            LinkRate::parse,
        )?,
        lid: file::parsed(&dir.join("lid"), "a LID", lid)?.unwrap_or_default(),
        gids,
        netdev,
    })
}

fn lid(text: &str) -> Option<Lid> {
    let number = u16::from_str_radix(text.strip_prefix("0x")?, 16);
    number.ok().map(Lid)
}

fn gids(port: &Path, layer: Option<LinkLayer>, wanted: Gids) -> Result<Vec<GidEntry>, SysfsError> {
    let (table, attrs) = (port.join("gids"), port.join("gid_attrs"));
    let mut gids = Vec::new();
    for name in file::names(&table)? {
        let index: u32 = name
            .parse()
            .map_err(|_| SysfsError::content(&table, &name, "index of a GID"))?;
        let gid = file::parsed(&table.join(&name), "a GID", gid)?;
        let Some(gid) = gid.filter(|gid| !is_empty(*gid)) else {
            continue;
        };
        let gid_type = file::optional(&attrs.join("types").join(&name))?;
        let netdev = file::optional(&attrs.join("ndevs").join(&name))?;
        let is_last = wanted == Gids::UntilNetdev && netdev.is_some();
        gids.push(GidEntry {
            index,
            gid,
            gid_type: gid_type.and_then(|text| kind(&text, layer)),
            netdev,
        });
        if is_last {
            break;
        }
    }
    Ok(gids)
}

/// Eight groups of four digits, none left out.
fn gid(text: &str) -> Option<Gid> {
    text.parse::<Ipv6Addr>()
        .ok()
        .map(|address| Gid(address.octets()))
}

/// Whether an entry is empty: zero, or on InfiniBand the default prefix without a GUID.
fn is_empty(gid: Gid) -> bool {
    let (prefix, interface) = gid.0.split_at(8);
    interface == [0; 8] && (prefix == [0; 8] || prefix == [0xfe, 0x80, 0, 0, 0, 0, 0, 0])
}

/// Parses a GID type. The kernel writes `IB/RoCE v1` for both and for iWARP, so the link layer decides.
fn kind(text: &str, layer: Option<LinkLayer>) -> Option<Open<GidType>> {
    Some(match (text, layer) {
        ("RoCE v2", _) => Open::Known(GidType::RoceV2),
        ("IB/RoCE v1", Some(LinkLayer::Ethernet)) => Open::Known(GidType::RoceV1),
        ("IB/RoCE v1", Some(LinkLayer::InfiniBand)) => Open::Known(GidType::InfiniBand),
        ("IB/RoCE v1", Some(LinkLayer::Iwarp)) => return None,
        _ => Open::Other(text.to_owned()),
    })
}

/// The interface of a port without GIDs: the one that Soft-RoCE was put on (`parent`), or the one of
/// the same PCI device and port (`dev_port` counts from 0).
fn parent_netdev(device: &Path, port: PortNum) -> Result<Option<String>, SysfsError> {
    if let Some(parent) = file::optional(&device.join("parent"))? {
        return Ok(Some(parent));
    }
    let net = device.join("device/net");
    for name in file::names(&net)? {
        let dev_port = file::parsed(&net.join(&name).join("dev_port"), "a port", |t| {
            t.parse::<u32>().ok()
        });
        if dev_port? == u32::from(port.0).checked_sub(1) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_the_kernel_writes_them() {
        let rate = LinkRate::parse("100 Gb/sec (4X EDR)").unwrap();
        assert_eq!(rate.bits_per_second(), 100_000_000_000);
        assert_eq!(rate.to_string(), "100 Gb/s (4X EDR)");
        let rate = LinkRate::parse("2.5 Gb/sec (1X SDR)").unwrap();
        assert_eq!(rate.to_string(), "2.5 Gb/s (1X SDR)");
        assert_eq!(LinkRate::parse("8 Gb/sec").unwrap().lanes(), None);
        assert_eq!(LinkRate::parse("fast"), None);
    }
}
