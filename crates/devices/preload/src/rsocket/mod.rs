//! rsockets: the interface of sockets over the user-space NIC, with the protocol of librdmacm.
//!
//! ```text
//!  rsend ──► Socket ── Stream ── queue pair ═══ peer          rpoll ──► Sleepers
//!  rconnect ──► Socket ◄── service ◄── events of cm ═══ peer      ▲ wake
//! ```
//! `table` has the rsockets by descriptor and key, `socket` their state, `connection` what begins and ends it, `stream`
//! the data path, `service` the thread that takes the events of connections. `io`, `poll`, `sockopt` and `iomap` have
//! the functions for data, waiting, options and direct placement; this file has the others. `wire` has what peers
//! exchange, `sizes` the defaults.
//!
//! The functions behave as rsocket(7) promises, and otherwise as the functions of TCP sockets do, with these limits:
//! * An rsocket is known to these functions only. Others, such as `epoll_ctl`, get a descriptor without events.
//! * A child process has no use of its parent's rsockets.
//! * Datagrams (`SOCK_DGRAM`) are refused.
//!
//! What peers exchange follows rdma-core: `wire` and `sizes` name the source of each fact.

mod connection;
mod functions;
mod io;
mod iomap;
mod keepalive;
mod mapping;
mod options;
mod pieces;
mod poll;
mod service;
mod sizes;
mod sleep;
mod socket;
mod sockopt;
mod stream;
mod table;
mod wire;

use std::ffi::c_int;
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};

use self::socket::Phase;
use crate::call::{self, Refusal};
use crate::cm::address;

/// Writes a socket address to the program's memory, as much as it has room for, and its length.
///
/// # Safety
/// `addr` has room for `*length` bytes.
unsafe fn put_address(
    address: SocketAddr,
    addr: *mut sockaddr,
    length: *mut socklen_t,
) -> Result<(), Refusal> {
    if length.is_null() {
        return Err(Refusal::new(
            libc::EFAULT,
            "the length of the address is NULL",
        ));
    }
    let storage = address::storage(address);
    let full = address::length(address);
    // SAFETY: the caller's.
    unsafe {
        let count = full.min(*length) as usize;
        if !addr.is_null() {
            std::ptr::copy_nonoverlapping((&raw const storage).cast::<u8>(), addr.cast(), count);
        }
        *length = full;
    }
    Ok(())
}

/// Checks the arguments of `rsocket`. This comes before everything else: librspreload.so passes on each socket that a
/// thread of this library creates, and makes an ordinary one if it is refused.
fn check_kind(domain: c_int, kind: c_int, protocol: c_int) -> Result<(), Refusal> {
    if domain != libc::AF_INET && domain != libc::AF_INET6 {
        return Err(Refusal::new(
            libc::EAFNOSUPPORT,
            format!("address family {domain} is not supported: only AF_INET and AF_INET6"),
        ));
    }
    if kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
        // librdmacm does not support them either. Without a reason, because this library's own sockets have them.
        return Err(Refusal::expected(libc::EOPNOTSUPP));
    }
    match (kind, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Ok(()),
        (libc::SOCK_DGRAM, _) => Err(Refusal::unsupported(
            "datagrams (SOCK_DGRAM) are not supported: only SOCK_STREAM",
        )),
        _ => Err(Refusal::unsupported(format!(
            "socket type {kind} with protocol {protocol} is not supported: only SOCK_STREAM"
        ))),
    }
}

#[unsafe(no_mangle)]
extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    call::number("rsocket", || {
        check_kind(domain, kind, protocol)?;
        let socket = service::create(domain)?;
        socket.name().inspect_err(|_| socket.close())
    })
}

/// Reads an address that the program passes with its length.
///
/// # Safety
/// `addr` is NULL or has `length` bytes.
unsafe fn given(addr: *const sockaddr, length: socklen_t) -> Result<SocketAddr, Refusal> {
    if !addr.is_null() && (length as usize) < size_of::<libc::sockaddr_in>() {
        return Err(Refusal::invalid(format!(
            "an address of {length} B is too short"
        )));
    }
    // SAFETY: the caller's.
    let found = unsafe { address::read(addr) }?;
    match found {
        SocketAddr::V6(_) if (length as usize) < size_of::<libc::sockaddr_in6>() => Err(
            Refusal::invalid(format!("an IPv6 address of {length} B is too short")),
        ),
        found => Ok(found),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rbind(socket: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
    call::number("rbind", || {
        // SAFETY: the program passes an address of this length.
        let wanted = unsafe { given(addr, addrlen) };
        table::get(socket)?.bind(wanted?)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    call::number("rlisten", || {
        table::get(socket)?.listen(backlog)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn raccept(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    let accept = || {
        let Some(child) = table::get(socket)?.accept()? else {
            return Ok(None);
        };
        let fd = child.name().inspect_err(|_| child.close())?;
        if let Some(peer) = child.address(true).filter(|_| !addr.is_null()) {
            // SAFETY: the program passes room for an address, and its size.
            unsafe { put_address(peer, addr, addrlen) }?;
        }
        Ok(Some(fd))
    };
    // SAFETY: the closure has nothing to drop.
    unsafe { call::in_slices("raccept", accept) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rconnect(socket: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
    call::number("rconnect", || {
        // SAFETY: the program passes an address of this length.
        let to = unsafe { given(addr, addrlen) };
        table::get(socket)?.connect(to?)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    call::number("rshutdown", || {
        let (reads, writes) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => {
                return Err(Refusal::invalid(format!(
                    "invalid direction {how}: expected SHUT_RD, SHUT_WR or SHUT_RDWR"
                )));
            }
        };
        table::get(socket)?.shut_down(reads, writes)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn rclose(socket: c_int) -> c_int {
    call::number("rclose", || {
        let removed = table::remove(socket).ok_or_else(|| {
            Refusal::new(
                libc::EBADF,
                format!("descriptor {socket} is not an rsocket"),
            )
        })?;
        match table::check_not_child() {
            Ok(()) => removed.close(),
            Err(_) => {
                // The connection is the parent's.
                std::mem::forget(removed);
                // SAFETY: the descriptor was the rsocket's, and nothing in this process uses it.
                unsafe { libc::close(socket) };
            }
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    call::number("rgetpeername", || {
        let socket = table::get(socket)?;
        let is_connected = socket.lock().phase == Phase::Connected;
        let peer = socket.address(true).filter(|_| is_connected);
        let peer = peer.ok_or_else(|| Refusal::expected(libc::ENOTCONN))?;
        // SAFETY: the program passes room for an address, and its size.
        unsafe { put_address(peer, addr, addrlen) }?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    call::number("rgetsockname", || {
        let socket = table::get(socket)?;
        let own = socket
            .address(false)
            .unwrap_or_else(|| socket.unspecified());
        // SAFETY: the program passes room for an address, and its size.
        unsafe { put_address(own, addr, addrlen) }?;
        Ok(0)
    })
}
