//! Socket addresses of C, and the route to a peer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use adverb_abi::{ibv_ah_attr, ibv_gid};
use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::call::Refusal;

/// Reads a socket address.
///
/// # Safety
/// `address` is NULL or points to a socket address of the family that it names.
pub(crate) unsafe fn read(address: *const sockaddr) -> Result<SocketAddr, Refusal> {
    if address.is_null() {
        return Err(Refusal::invalid("the address is NULL"));
    }
    // SAFETY: the caller's; the family determines the type, and the reads need no alignment.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Ok(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Ok(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            other => Err(Refusal::invalid(format!(
                "invalid address family {other}: expected AF_INET or AF_INET6"
            ))),
        }
    }
}

/// Returns the socket address in C's form.
pub(crate) fn storage(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: all zeros is a valid address of no family.
    let mut out: sockaddr_storage = unsafe { std::mem::zeroed() };
    match address {
        SocketAddr::V4(v4) => {
            let place = (&raw mut out).cast::<sockaddr_in>();
            // SAFETY: the storage has room and alignment for every family.
            let place = unsafe { &mut *place };
            place.sin_family = libc::AF_INET as u16;
            place.sin_port = v4.port().to_be();
            place.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
        }
        SocketAddr::V6(v6) => {
            let place = (&raw mut out).cast::<sockaddr_in6>();
            // SAFETY: as above.
            let place = unsafe { &mut *place };
            place.sin6_family = libc::AF_INET6 as u16;
            place.sin6_port = v6.port().to_be();
            place.sin6_addr.s6_addr = v6.ip().octets();
            place.sin6_scope_id = v6.scope_id();
        }
    }
    out
}

/// Returns the length of a socket address in C's form.
pub(crate) const fn length(address: SocketAddr) -> libc::socklen_t {
    (match address {
        SocketAddr::V4(_) => size_of::<sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<sockaddr_in6>(),
    }) as libc::socklen_t
}

/// Returns the RoCE v2 GID of an address.
pub(super) const fn gid(ip: IpAddr) -> ibv_gid {
    let raw = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    ibv_gid { raw }
}

/// Returns the address of a host or group.
pub(super) const fn ah_attr(ip: IpAddr, traffic_class: u8) -> ibv_ah_attr {
    let mut attr = ibv_ah_attr::zeroed();
    attr.grh.dgid = gid(ip);
    attr.grh.hop_limit = 64;
    attr.grh.traffic_class = traffic_class;
    attr.is_global = 1;
    attr.port_num = 1;
    attr
}

/// Returns the address from which this host sends to `to`.
pub(super) fn source_towards(to: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    let mut to = to;
    // Connecting sends nothing, but needs a port.
    to.set_port(to.port().max(1));
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for text in ["10.1.2.3:77", "[2001:db8::7]:1", "[::]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let c = storage(address);
            // SAFETY: `c` is an address of the family that it names.
            let again = unsafe { read((&raw const c).cast()) };
            assert_eq!(again.unwrap(), address);
        }
        // SAFETY: all zeros is an address of family AF_UNSPEC.
        let none: sockaddr_storage = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let refused = unsafe { read((&raw const none).cast()) }.unwrap_err();
        assert_eq!(refused.errno, libc::EINVAL);
    }

    #[test]
    fn the_loopback_is_reached_from_itself() {
        let to = "127.0.0.1:0".parse().unwrap();
        assert_eq!(source_towards(to).unwrap(), Ipv4Addr::LOCALHOST);
    }
}
