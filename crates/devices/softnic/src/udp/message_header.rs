//! The C structures that `sendmmsg` and `recvmsg` take: message headers, socket addresses and control messages.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// An empty buffer.
pub(super) const EMPTY: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// Returns a message header with one buffer and room for an address and control messages.
pub(super) fn header(
    name: &mut SocketName,
    piece: &mut libc::iovec,
    control: &mut Control,
) -> libc::msghdr {
    // SAFETY: all of a header's fields may be 0.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut *name).cast();
    header.msg_namelen = size_of::<SocketName>() as libc::socklen_t;
    header.msg_iov = &raw mut *piece;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut *control).cast();
    // `size_t` with glibc, `socklen_t` with musl.
    header.msg_controllen = size_of::<Control>() as _;
    header
}

/// A socket address of either IP version.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union SocketName {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Default for SocketName {
    fn default() -> Self {
        // SAFETY: all fields of all variants may be 0.
        unsafe { std::mem::zeroed() }
    }
}

impl SocketName {
    /// Converts an address; returns it with its length.
    pub(super) fn of(address: SocketAddr) -> (Self, libc::socklen_t) {
        let mut name = Self::default();
        let length = match address {
            SocketAddr::V4(address) => {
                name.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from(*address.ip()).to_be(),
                    },
                    sin_zero: [0; 8],
                };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(address) => {
                name.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: address.ip().octets(),
                    },
                    sin6_scope_id: address.scope_id(),
                };
                size_of::<libc::sockaddr_in6>()
            }
        };
        (name, length as libc::socklen_t)
    }

    /// Returns the address that the kernel wrote, of `length` bytes. `None` if it is not a whole IP address.
    pub(super) fn address(&self, length: libc::socklen_t) -> Option<SocketAddr> {
        let length = length as usize;
        // SAFETY: every bit pattern is a valid family. The other variants consist of integers, and are only read if
        // the kernel wrote that many bytes.
        unsafe {
            match i32::from(self.family) {
                libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
                    let ip = Ipv4Addr::from(u32::from_be(self.v4.sin_addr.s_addr));
                    Some((ip, u16::from_be(self.v4.sin_port)).into())
                }
                libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
                    let name = &self.v6;
                    let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
                    let port = u16::from_be(name.sin6_port);
                    let scope = name.sin6_scope_id;
                    Some(SocketAddrV6::new(ip, port, name.sin6_flowinfo, scope).into())
                }
                _ => None,
            }
        }
    }
}

/// Room for control messages.
#[repr(C, align(8))]
pub(super) struct Control([u8; 64]);

impl Default for Control {
    fn default() -> Self {
        Control([0; 64])
    }
}

impl Control {
    /// Returns the segment size of a GRO buffer. `None` for a single datagram.
    pub(super) fn segment(&self, header: &libc::msghdr) -> Option<usize> {
        // SAFETY: the kernel wrote `msg_controllen` bytes of whole messages to `self`, to which the header points;
        // the macros stay within them.
        unsafe {
            let mut message = libc::CMSG_FIRSTHDR(header);
            while let Some(head) = message.as_ref() {
                if (head.cmsg_level, head.cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO) {
                    let each = libc::CMSG_DATA(message).cast::<libc::c_int>();
                    return usize::try_from(each.read_unaligned()).ok();
                }
                message = libc::CMSG_NXTHDR(header, message);
            }
        }
        None
    }
}
