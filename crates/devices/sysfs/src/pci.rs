//! PCI address and link of a device.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::{SysfsError, file};

/// Domain, bus, device and function: `0000:3b:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain; above 16 bits behind some host bridges.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, 5 bits.
    pub device: u8,
    /// Function, 3 bits.
    pub function: u8,
}

impl PciAddress {
    /// Returns the PCI device in a path of `/sys/devices`: the last part that is an address.
    pub(crate) fn in_path(path: &Path) -> Option<Self> {
        let parts = path.components().rev();
        parts
            .filter_map(|part| part.as_os_str().to_str())
            .find_map(|part| part.parse().ok())
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!(
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        ))
    }
}

impl FromStr for PciAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let hex = |digits: &str| u32::from_str_radix(digits, 16).map_err(drop);
        let byte = |digits: &str| u8::from_str_radix(digits, 16).map_err(drop);
        let (domain, rest) = text.split_once(':').ok_or(())?;
        let (bus, rest) = rest.split_once(':').ok_or(())?;
        let (device, function) = rest.split_once('.').ok_or(())?;
        Ok(PciAddress {
            domain: hex(domain)?,
            bus: byte(bus)?,
            device: byte(device)?,
            function: byte(function)?,
        })
    }
}

/// Speed of a PCI Express lane, in units of 0.1 GT/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkSpeed(u32);

impl LinkSpeed {
    /// `16.0 GT/s PCIe`, older kernels `8 GT/s`; none for `Unknown`.
    fn parse(text: &str) -> Option<Self> {
        let number = text.split_whitespace().next()?;
        let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
        let whole: u32 = whole.parse().ok()?;
        let tenths: u32 = tenths.get(..1)?.parse().ok()?;
        Some(LinkSpeed(whole.checked_mul(10)?.checked_add(tenths)?))
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{} GT/s", self.0 / 10, self.0 % 10))
    }
}

/// The PCI Express link to a device, as it is and as the device could have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciLink {
    /// Speed of a lane.
    pub speed: LinkSpeed,
    /// Speed that the device can.
    pub max_speed: LinkSpeed,
    /// Lanes.
    pub width: u32,
    /// Lanes that the device has.
    pub max_width: u32,
}

impl PciLink {
    /// The link of the PCI device in `dir`; `None` if the kernel does not know it (a virtual
    /// function, a device in the root complex).
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>, SysfsError> {
        let speed =
            |name: &str| Ok(file::optional(&dir.join(name))?.and_then(|t| LinkSpeed::parse(&t)));
        let width = |name: &str| {
            let lanes = file::parsed(&dir.join(name), "a number of lanes", |t| t.parse().ok());
            // 0 and 255 mean "unknown".
            lanes.map(|n| n.filter(|n| (1..=64).contains(n)))
        };
        let (speed, max_speed) = (speed("current_link_speed")?, speed("max_link_speed")?);
        let (width, max_width) = (width("current_link_width")?, width("max_link_width")?);
        Ok(match (speed, max_speed, width, max_width) {
            (Some(speed), Some(max_speed), Some(width), Some(max_width)) => Some(PciLink {
                speed,
                max_speed,
                width,
                max_width,
            }),
            _ => None,
        })
    }

    /// Whether the link is slower or narrower than the device can.
    pub fn is_reduced(&self) -> bool {
        self.speed < self.max_speed || self.width < self.max_width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_a_path() {
        let path = Path::new("/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1/ice.roce.0");
        assert_eq!(
            PciAddress::in_path(path).unwrap().to_string(),
            "0000:3b:00.1"
        );
        assert_eq!(
            PciAddress::in_path(Path::new("/sys/devices/virtual/x")),
            None
        );
    }

    #[test]
    fn speeds_of_old_and_new_kernels_are_read() {
        assert_eq!(
            LinkSpeed::parse("8 GT/s"),
            LinkSpeed::parse("8.0 GT/s PCIe")
        );
        assert_eq!(
            LinkSpeed::parse("2.5 GT/s PCIe").unwrap().to_string(),
            "2.5 GT/s"
        );
        assert!(LinkSpeed::parse("5.0 GT/s PCIe") < LinkSpeed::parse("16.0 GT/s PCIe"));
        assert_eq!(LinkSpeed::parse("Unknown"), None);
    }
}
