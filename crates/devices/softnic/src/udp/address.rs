//! Addresses of UDP ports: their GIDs, the UDP port of a slot, and the path MTU of an interface.
//!
//! Source: IBTA annex A17 (RoCEv2): the GID is the IP address; an IPv4 address is mapped to IPv6.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;

use adverb_units::Bytes;
use adverb_verbs::{Gid, PathMtu, Qpn};
use adverb_wire::{ROCE_PORT, bth, icrc, imm_dt, ipv4, ipv6, reth, udp};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::shm::layout::slot_of;

/// Returns the GID of an address.
pub(crate) fn gid_of(ip: IpAddr) -> Gid {
    match ip {
        IpAddr::V4(ip) => Gid::from_ipv4(ip),
        IpAddr::V6(ip) => Gid(ip.octets()),
    }
}

/// Returns the address of a GID.
pub(crate) fn ip_of(gid: Gid) -> IpAddr {
    Ipv6Addr::from(gid.0).to_canonical()
}

/// Describes an address to which a socket can be bound, but under which peers do not reach this host. `None` for
/// other addresses.
pub(super) fn not_of_one_host(ip: IpAddr) -> Option<&'static str> {
    match ip {
        _ if ip.is_unspecified() => Some("the unspecified address"),
        _ if ip.is_multicast() => {
            Some("a multicast group; attach queue pairs of the device to it instead")
        }
        IpAddr::V4(Ipv4Addr::BROADCAST) => Some("the broadcast address"),
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            Some("a link-local address, whose interface a GID does not contain")
        }
        _ => None,
    }
}

/// Returns the UDP port of a slot. Slot 0 has the standard port, the only one that other NICs send to.
pub(crate) fn udp_port(slot: u32) -> u16 {
    // There are fewer than 2^10 slots.
    ROCE_PORT + slot as u16
}

/// Returns the socket address at `ip` of the process that owns `qpn`. All members of a multicast group have the same
/// port.
pub(crate) fn socket_of(ip: IpAddr, qpn: Qpn) -> SocketAddr {
    if ip.is_multicast() {
        return SocketAddr::new(ip, ROCE_PORT);
    }
    SocketAddr::new(ip, udp_port(slot_of(qpn)))
}

/// Returns the largest path MTU whose packets fit the interface that has `ip`.
pub(crate) fn path_mtu(ip: IpAddr) -> io::Result<PathMtu> {
    let interface = interface_of(ip)?.unwrap_or_else(|| c"lo".to_owned());
    let mtu = interface_mtu(&interface)?;
    fitting(mtu, ip).ok_or_else(|| {
        let interface = interface.to_string_lossy();
        io::Error::other(format!(
            "MTU {mtu} B of interface {interface} is too small for RoCE packets of 256 B; enlarge it"
        ))
    })
}

/// Returns the largest path MTU whose longest packet has at most `mtu` bytes with its IP header.
fn fitting(mtu: u64, ip: IpAddr) -> Option<PathMtu> {
    let header = match ip {
        IpAddr::V4(_) => ipv4::LEN,
        IpAddr::V6(_) => ipv6::LEN,
    };
    let around = header + udp::LEN + bth::LEN + reth::LEN + imm_dt::LEN + icrc::LEN;
    PathMtu::up_to(Bytes::new(mtu.checked_sub(around as u64)?))
}

/// Returns the IP addresses of this host's interfaces, in the kernel's order.
///
/// # Errors
/// getifaddrs(3) fails.
pub fn host_addresses() -> io::Result<Vec<IpAddr>> {
    let interfaces = interfaces()?;
    Ok(interfaces.into_iter().map(|(ip, _)| ip).collect())
}

/// Returns the interface that has `ip`. `None` if only a route leads the address to this host, like most of
/// 127.0.0.0/8.
fn interface_of(ip: IpAddr) -> io::Result<Option<CString>> {
    let mut interfaces = interfaces()?.into_iter();
    Ok(interfaces.find_map(|(at, name)| (at == ip).then_some(name)))
}

/// Returns each address of this host with its interface.
fn interfaces() -> io::Result<Vec<(IpAddr, CString)>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is a place for the list's head.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: `next` is null or an entry of the list, which is freed below; a name is a C string.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: an address is null or a valid `sockaddr` of its family, for the list's life.
        if let Some(ip) = unsafe { ip_at(entry.ifa_addr) } {
            // SAFETY: the entry's name is a C string, valid as long as the list.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found.push((ip, name.to_owned()));
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs` and is not used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Returns the IP address in a socket address.
///
/// # Safety
/// `address` is null or points to a socket address of the family that it names.
unsafe fn ip_at(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller promises an address of the family that it names, which determines its length. The reads need
    // no alignment.
    unsafe {
        let family = address.as_ref()?.sa_family;
        match i32::from(family) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                let bits = u32::from_be(address.sin_addr.s_addr);
                Some(IpAddr::V4(Ipv4Addr::from_bits(bits)))
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)))
            }
            _ => None,
        }
    }
}

/// Returns the index of the interface that has `ip`.
///
/// # Errors
/// The interfaces cannot be listed, or the interface has just been removed.
pub fn interface_index(ip: IpAddr) -> io::Result<u32> {
    let interface = interface_of(ip)?.unwrap_or_else(|| c"lo".to_owned());
    // SAFETY: the name is a C string.
    match unsafe { libc::if_nametoindex(interface.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Returns the index of the interface that has `ip`, if it carries an IPv6 group.
///
/// # Errors
/// As for [`interface_index`]; `NetworkUnreachable` if the interface has no route to groups, as the loopback interface:
/// what is sent to a group there is lost.
pub(super) fn interface_to_group(ip: IpAddr, group: IpAddr) -> io::Result<u32> {
    let interface = interface_index(ip)?;
    if let IpAddr::V6(group) = group {
        let probe = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
        sockopt::set_ipv6_multicast_if(&probe, interface)?;
        probe.connect(SocketAddrV6::new(group, ROCE_PORT, 0, interface))?;
    }
    Ok(interface)
}

fn interface_mtu(name: &CStr) -> io::Result<u64> {
    let dgram = |family| socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let socket = dgram(AddressFamily::INET).or_else(|_| dgram(AddressFamily::INET6))?;
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.to_bytes()) {
        *to = *from as libc::c_char;
    }
    // SAFETY: SIOCGIFMTU takes an `ifreq`, whose name ends in 0.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: SIOCGIFMTU stores the MTU there.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(u64::try_from(mtu).unwrap_or(0))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shm::layout::{MAX_SLOTS, qpn_of};

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    #[test]
    fn addresses_round_trip_through_gids() {
        for text in ["10.0.0.1", "127.0.0.2", "2001:db8::7", "::1"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(ip_of(gid_of(ip)), ip);
        }
    }

    #[test]
    fn all_members_of_a_group_have_the_same_port() {
        let group: IpAddr = "239.1.2.3".parse().unwrap();
        assert_eq!(socket_of(group, Qpn::MULTICAST), (group, 4791).into());
        assert_eq!(socket_of(V4, qpn_of(2, 5)), (V4, 4793).into());
    }

    #[test]
    fn the_path_mtu_leaves_room_for_headers() {
        assert_eq!(fitting(1500, V4), Some(PathMtu::B1024));
        assert_eq!(fitting(4160, V4), Some(PathMtu::B4096));
        assert_eq!(fitting(4160, V6), Some(PathMtu::B2048));
        assert_eq!(fitting(319, V4), None);
    }

    #[test]
    fn the_loopback_takes_the_largest_packets() {
        assert_eq!(path_mtu(V4).unwrap(), PathMtu::B4096);
        assert_eq!(
            path_mtu("127.0.0.2".parse().unwrap()).unwrap(),
            PathMtu::B4096
        );
    }

    #[test]
    fn each_slot_has_its_own_udp_port() {
        assert_eq!(socket_of(V4, qpn_of(3, 77)), SocketAddr::new(V4, 4794));
        let last = qpn_of(MAX_SLOTS - 1, 77);
        assert_eq!(u32::from(socket_of(V4, last).port()), 4790 + MAX_SLOTS);
        assert_eq!(socket_of(V6, qpn_of(0, 17)).port(), ROCE_PORT);
    }

    #[test]
    fn queue_pair_numbers_of_other_nics_map_to_the_standard_udp_port() {
        // Soft-RoCE has numbers from 16 to 2^17, adapters larger ones.
        for number in [16, 1 << 14, (1 << 17) - 1, 0x12_3456, (1 << 23) - 1] {
            let qpn = Qpn::new(number).unwrap();
            assert_eq!(socket_of(V4, qpn).port(), ROCE_PORT, "{qpn}");
        }
    }
}
