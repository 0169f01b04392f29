//! The IP address of a port for the connection manager, and conversion of socket addresses.

use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::{io, mem, ptr};

use adverb_sysfs::Sysfs;
use adverb_verbs::{LinkLayer, OpenError, PortNum};

use crate::choice::{GidChoice, VerbsDevice};
use crate::gid::{GidTableEntry, ip_of};
use crate::raw::RawContext;

/// Returns the address of a port: on RoCE its GID, otherwise an address of its network interface.
pub(super) fn of(
    device: &VerbsDevice,
    raw: &RawContext,
    (port, layer): (PortNum, LinkLayer),
    gid: GidTableEntry,
) -> Result<SocketAddr, OpenError> {
    let netdev = netdev(&raw.name(), port);
    if layer == LinkLayer::Ethernet {
        return Ok(with_scope(ip_of(gid.gid), netdev.as_deref()));
    }
    let netdev = netdev.ok_or_else(|| {
        let reason = format!("port {port} has no network interface for the connection manager");
        device.unavailable(reason, remedy(layer))
    })?;
    let there = addresses(&netdev).map_err(|e| device.system("list the host's addresses", e))?;
    let address = nearest(&there, device.gid).ok_or_else(|| {
        let reason = format!("{netdev}, the network interface of port {port}, has no IP address");
        device.unavailable(
            reason,
            format!("`ip address add ADDRESS/PREFIX dev {netdev}`"),
        )
    })?;
    Ok(with_scope(address, Some(&netdev)))
}

fn remedy(layer: LinkLayer) -> &'static str {
    match layer {
        LinkLayer::InfiniBand => {
            "load IP over InfiniBand (`modprobe ib_ipoib`) and give its interface an address, or \
             connect by hand: verbs:NAME"
        }
        _ => "set the network interface of the adapter up and give it an address",
    }
}

fn netdev(name: &str, port: PortNum) -> Option<String> {
    let device = Sysfs::default().device_without_gids(name).ok().flatten()?;
    device.port(port)?.netdev.clone()
}

/// Returns the requested address if it is one of these, otherwise an IPv4 address before IPv6, and
/// link-local last.
fn nearest(there: &[IpAddr], choice: GidChoice) -> Option<IpAddr> {
    let wanted = match choice {
        GidChoice::Address(address) | GidChoice::Nearest(address) => Some(address.to_canonical()),
        _ => None,
    };
    let of_choice = there.iter().find(|address| Some(**address) == wanted);
    let order = |address: &&IpAddr| match address {
        IpAddr::V4(_) => 0,
        IpAddr::V6(address) if !address.is_unicast_link_local() => 1,
        IpAddr::V6(_) => 2,
    };
    of_choice
        .or_else(|| there.iter().min_by_key(order))
        .copied()
}

/// Adds the interface to a link-local address, which is ambiguous without.
fn with_scope(address: IpAddr, netdev: Option<&str>) -> SocketAddr {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, 0, 0, netdev.map_or(0, index_of)).into()
        }
        _ => SocketAddr::new(address, 0),
    }
}

fn index_of(netdev: &str) -> u32 {
    let name = CString::new(netdev).unwrap_or_default();
    // SAFETY: the name is a C string; the result for an unknown name is 0.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// Returns the IP addresses of a network interface (getifaddrs(3)).
fn addresses(netdev: &str) -> io::Result<Vec<IpAddr>> {
    let mut list = ptr::null_mut();
    // SAFETY: `list` is exclusive; the result is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: an entry points to the next one, or to null if it is the last.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: the name of an entry is a C string.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
        if name.to_bytes() == netdev.as_bytes() {
            // SAFETY: the address is null or a socket address of its family.
            found.extend(unsafe { from_c(entry.ifa_addr) }.map(|address| address.ip()));
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list is freed once, after its last use.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// Converts from C; `None` if the family is not IPv4 or IPv6.
///
/// # Safety
/// `address` is null or a socket address of its family.
pub(super) unsafe fn from_c(address: *const libc::sockaddr) -> Option<SocketAddr> {
    // SAFETY: the caller guarantees that the address is null or has the layout of its family.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Converts to C.
pub(super) fn to_c(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: a zeroed `sockaddr_storage` is valid.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let place = &raw mut storage;
    // SAFETY: the storage has size and alignment for an address of any family.
    unsafe {
        match address {
            SocketAddr::V4(v4) => place.cast::<libc::sockaddr_in>().write(in_of(v4)),
            SocketAddr::V6(v6) => place.cast::<libc::sockaddr_in6>().write(in6_of(v6)),
        }
    }
    storage
}

fn in_of(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.ip().octets()),
        },
        sin_zero: [0; 8],
    }
}

fn in6_of(address: SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as u16,
        sin6_port: address.port().to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr {
            s6_addr: address.ip().octets(),
        },
        sin6_scope_id: address.scope_id(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_c() {
        for text in ["192.0.2.7:4791", "[2001:db8::1]:18515"] {
            let address: SocketAddr = text.parse().expect("an address");
            let c = to_c(address);
            // SAFETY: it was made as an address of its family.
            let back = unsafe { from_c((&raw const c).cast()) };
            assert_eq!(back, Some(address));
        }
    }

    #[test]
    fn loopback_has_its_addresses() {
        let there = addresses("lo").expect("a list");
        assert!(there.iter().all(IpAddr::is_loopback), "{there:?}");
        let nowhere = addresses("no such interface").expect("a list");
        assert!(nowhere.is_empty(), "{nowhere:?}");
    }

    #[test]
    fn the_address_that_the_peer_knows_comes_first() {
        let there = ["fe80::1", "2001:db8::1", "192.0.2.7"].map(|a| a.parse().expect("an address"));
        let of = |choice| nearest(&there, choice);
        assert_eq!(of(GidChoice::Automatic), Some(there[2]));
        assert_eq!(of(GidChoice::Nearest(there[1])), Some(there[1]));
        let other = "127.0.0.1".parse().expect("an address");
        assert_eq!(of(GidChoice::Nearest(other)), Some(there[2]));
        assert_eq!(nearest(&[], GidChoice::Automatic), None);
    }
}
