//! Addresses by name, and the list of opened devices.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::SocketAddr;

use adverb_abi::{IBV_QPT_RC, IBV_QPT_UD, ibv_context, rdma_addrinfo};
use adverb_wire::cm::PortSpace;

use super::address;
use super::agents::agents;
use crate::call::{self, Refusal};

/// `RAI_PASSIVE`, `RAI_NUMERICHOST` and `RAI_FAMILY`.
pub(super) const PASSIVE: c_int = 1;
const NUMERIC_HOST: c_int = 2;
const FAMILY: c_int = 8;

/// Returns zeroed memory that `free` releases.
fn allocate<T>(count: usize) -> Result<*mut T, Refusal> {
    // SAFETY: allocates memory.
    let place: *mut T = unsafe { libc::calloc(count.max(1), size_of::<T>()) }.cast();
    match place.is_null() {
        true => Err(Refusal::new(libc::ENOMEM, "no memory for an address")),
        false => Ok(place),
    }
}

/// Returns a copy of a socket address.
fn copied(address: SocketAddr) -> Result<(*mut libc::sockaddr, libc::socklen_t), Refusal> {
    let place = allocate::<libc::sockaddr_storage>(1)?;
    // SAFETY: the place is new.
    unsafe { place.write(address::storage(address)) };
    Ok((place.cast(), address::length(address)))
}

/// Looks up an address.
///
/// # Safety
/// `node` and `service` are NULL or C strings.
unsafe fn look_up(
    (node, service): (*const c_char, *const c_char),
    (flags, family): (c_int, c_int),
) -> Result<SocketAddr, c_int> {
    // SAFETY: the caller's; the list is freed.
    unsafe {
        let mut hints: libc::addrinfo = std::mem::zeroed();
        hints.ai_family = family;
        hints.ai_socktype = libc::SOCK_STREAM;
        if flags & PASSIVE != 0 {
            hints.ai_flags |= libc::AI_PASSIVE;
        }
        if flags & NUMERIC_HOST != 0 {
            hints.ai_flags |= libc::AI_NUMERICHOST;
        }
        let mut list: *mut libc::addrinfo = std::ptr::null_mut();
        let status = libc::getaddrinfo(node, service, &raw const hints, &raw mut list);
        if status != 0 {
            return Err(status);
        }
        let mut next = list;
        let mut found = None;
        while let (None, Some(entry)) = (found, next.as_ref()) {
            found = address::read(entry.ai_addr).ok();
            next = entry.ai_next;
        }
        libc::freeaddrinfo(list);
        found.ok_or(libc::EAI_FAMILY)
    }
}

/// Fills an address. `found` is the one that was looked up; `None` if the hints have only the source's.
///
/// # Safety
/// `hints` is NULL or valid.
unsafe fn fill(
    out: &mut rdma_addrinfo,
    found: Option<SocketAddr>,
    hints: Option<&rdma_addrinfo>,
) -> Result<(), Refusal> {
    let space = hints.map_or(0, |hints| hints.ai_port_space as u32);
    let qp_type = hints.map_or(0, |hints| hints.ai_qp_type as u32);
    let (space, qp_type) = match (space, qp_type) {
        (0, IBV_QPT_UD) => (PortSpace::Udp.code(), IBV_QPT_UD),
        (0, 0) => (PortSpace::Tcp.code(), IBV_QPT_RC),
        (0, other) => (PortSpace::Tcp.code(), other),
        (space, 0) if space == PortSpace::Udp.code() => (space, IBV_QPT_UD),
        (space, 0) => (space, IBV_QPT_RC),
        both => both,
    };
    out.ai_flags = hints.map_or(0, |hints| hints.ai_flags);
    out.ai_family = match found {
        Some(SocketAddr::V4(_)) => libc::AF_INET,
        Some(SocketAddr::V6(_)) => libc::AF_INET6,
        None => hints.map_or(0, |hints| hints.ai_family),
    };
    out.ai_port_space = space as c_int;
    out.ai_qp_type = qp_type as c_int;
    match found {
        Some(found) if out.ai_flags & PASSIVE != 0 => {
            (out.ai_src_addr, out.ai_src_len) = copied(found)?;
            return Ok(());
        }
        Some(found) => (out.ai_dst_addr, out.ai_dst_len) = copied(found)?,
        None => {}
    }
    if let Some(hints) = hints
        && !hints.ai_src_addr.is_null()
    {
        // SAFETY: the program's hints have a socket address.
        let source = unsafe { address::read(hints.ai_src_addr) }?;
        (out.ai_src_addr, out.ai_src_len) = copied(source)?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    let mut status = 0;
    let done = call::number("rdma_getaddrinfo", || {
        // SAFETY: the program passes NULL or C strings, NULL or hints, and the address of a pointer.
        unsafe {
            if node.is_null() && service.is_null() && hints.is_null() {
                return Err(Refusal::invalid("neither a node nor a service is given"));
            }
            let hints = hints.as_ref();
            let flags = hints.map_or(0, |hints| hints.ai_flags);
            let family = match hints {
                Some(hints) if flags & FAMILY != 0 || hints.ai_family != 0 => hints.ai_family,
                _ => libc::AF_UNSPEC,
            };
            let given = hints.filter(|_| node.is_null() && service.is_null());
            let found = match given {
                Some(hints) if hints.ai_dst_addr.is_null() => None,
                Some(hints) => Some(address::read(hints.ai_dst_addr)?),
                None => {
                    let found = look_up((node, service), (flags, family)).map_err(|code| {
                        status = code;
                        let reason = CStr::from_ptr(libc::gai_strerror(code));
                        Refusal::new(libc::EINVAL, reason.to_string_lossy().into_owned())
                    })?;
                    Some(found)
                }
            };
            let out = allocate::<rdma_addrinfo>(1)?;
            let filled = fill(&mut *out, found, hints);
            if let Err(refusal) = filled {
                rdma_freeaddrinfo(out);
                return Err(refusal);
            }
            res.write(out);
        }
        Ok(0)
    });
    // As getaddrinfo returns it.
    if status == 0 { done } else { status }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    let mut next = res;
    while !next.is_null() {
        // SAFETY: the entries and their members are from `rdma_getaddrinfo`, or NULL.
        unsafe {
            let entry = next;
            next = (*entry).ai_next;
            let members: [*mut c_void; 6] = [
                (*entry).ai_src_addr.cast(),
                (*entry).ai_dst_addr.cast(),
                (*entry).ai_src_canonname.cast(),
                (*entry).ai_dst_canonname.cast(),
                (*entry).ai_route,
                (*entry).ai_connect,
            ];
            members.into_iter().for_each(|member| libc::free(member));
            libc::free(entry.cast());
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    call::pointer("rdma_get_devices", || {
        let agents = agents()?;
        // The last pointer of the list is NULL.
        let list = allocate::<*mut ibv_context>(agents.len() + 1)?;
        for (index, agent) in agents.iter().enumerate() {
            // SAFETY: the list has room for all.
            unsafe { list.add(index).write(agent.context()) };
        }
        if !count.is_null() {
            // SAFETY: the program passes NULL or the address of a number.
            unsafe { count.write(agents.len() as c_int) };
        }
        Ok(list)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: `rdma_get_devices` allocated the list. The contexts stay open.
    unsafe { libc::free(list.cast()) };
}
