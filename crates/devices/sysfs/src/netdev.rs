//! The network interface behind a port.

use std::fmt;
use std::path::Path;

use adverb_units::Bytes;

use crate::{Sysfs, SysfsError, file};

/// A link-layer address: 6 bytes on Ethernet, 20 on IP over InfiniBand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacAddress(pub Vec<u8>);

impl MacAddress {
    fn parse(text: &str) -> Option<Self> {
        let bytes: Result<Vec<u8>, _> = text
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16))
            .collect();
        bytes.ok().map(MacAddress)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<String> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        f.pad(&bytes.join(":"))
    }
}

/// A network interface (`/sys/class/net`). IP addresses are not in `/sys`; those that RoCE can use
/// are in the table of GIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netdev {
    /// Its name.
    pub name: String,
    /// Whether it is switched on (`IFF_UP`: `ip link set NAME up`).
    pub is_up: bool,
    /// Whether it has a carrier; `None` if the interface is down.
    pub carrier: Option<bool>,
    /// `up`, `down`, `unknown`, `lowerlayerdown` … (RFC 2863).
    pub operstate: String,
    /// Largest payload of a frame.
    pub mtu: Bytes,
    /// Its link-layer address; none for interfaces without.
    pub address: Option<MacAddress>,
}

/// `IFF_UP` of `linux/if.h`.
const IFF_UP: u32 = 1;

impl Sysfs {
    /// Returns the network interface of this name; `None` if it does not exist (or is in another
    /// network namespace).
    pub fn netdev(&self, name: &str) -> Result<Option<Netdev>, SysfsError> {
        let dir = self.class("net").join(name);
        if !dir.exists() {
            return Ok(None);
        }
        read(&dir, name).map(Some)
    }
}

fn read(dir: &Path, name: &str) -> Result<Netdev, SysfsError> {
    let flags = dir.join("flags");
    let bits = file::text(&flags)?;
    let mtu = dir.join("mtu");
    let bytes = file::text(&mtu)?;
    Ok(Netdev {
        name: name.to_owned(),
        is_up: hex(&bits)
            .ok_or_else(|| SysfsError::content(&flags, &bits, "flags in hexadecimal"))?
            & IFF_UP
            != 0,
        carrier: file::parsed(&dir.join("carrier"), "0 or 1", |t| match t {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        })?,
        operstate: file::text(&dir.join("operstate"))?,
        mtu: bytes
            .parse()
            .map(Bytes::new)
            .map_err(|_| SysfsError::content(&mtu, &bytes, "a number of bytes"))?,
        address: file::parsed(
            &dir.join("address"),
            "a link-layer address",
            MacAddress::parse,
        )?,
    })
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
