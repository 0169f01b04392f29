//! Endpoints: ids that are created with addresses and a queue pair; and requests to listening ones.

use std::ffi::c_int;
use std::sync::Arc;

use adverb_abi::{ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_id};
use adverb_wire::cm::PortSpace;

use super::channel::drop_event;
use super::event::Kind;
use super::id::{self, Shared, Template};
use super::info::PASSIVE;
use super::{address, create, listen, qp, route, srq};
use crate::call::{self, Refusal};
use crate::object::lock;

/// Creates an endpoint, which is a synchronous id.
///
/// # Safety
/// `res` is from `rdma_getaddrinfo`; `pd` and `attr` are NULL or valid.
unsafe fn create(
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<Arc<Shared>, Refusal> {
    let space = PortSpace::from_code(res.ai_port_space as u32);
    let space = space
        .ok_or_else(|| Refusal::invalid(format!("invalid port space {:#x}", res.ai_port_space)))?;
    let kinds = (space, res.ai_qp_type as u32);
    let shared = create::create_for_program(std::ptr::null_mut(), std::ptr::null_mut(), kinds)?;
    // SAFETY: the caller's.
    let prepared = unsafe { prepare(&shared, res, (pd, attr)) };
    if let Err(refusal) = prepared {
        id::destroy(&shared);
        return Err(refusal);
    }
    Ok(shared)
}

/// # Safety
/// As for [`create()`].
unsafe fn prepare(
    shared: &Arc<Shared>,
    res: &rdma_addrinfo,
    (pd, attr): (*mut ibv_pd, *mut ibv_qp_init_attr),
) -> Result<(), Refusal> {
    // SAFETY: the caller's.
    unsafe {
        let source = match res.ai_src_addr.is_null() {
            true => None,
            false => Some(address::read(res.ai_src_addr)?),
        };
        if res.ai_flags & PASSIVE != 0 {
            let source =
                source.ok_or_else(|| Refusal::invalid("the address to bind is missing"))?;
            listen::bind(shared, source)?;
            if let Some(attr) = attr.as_ref() {
                let mut attr = *attr;
                attr.qp_type = res.ai_qp_type as u32;
                lock(&shared.state).template = Some(Template { pd, attr });
            }
            if !pd.is_null() {
                (*shared.c()).pd = pd;
            }
            return Ok(());
        }
        if res.ai_dst_addr.is_null() {
            return Err(Refusal::invalid("the address to connect to is missing"));
        }
        route::resolve_addr(shared, source, address::read(res.ai_dst_addr)?)?;
        shared.complete()?;
        route::resolve_route(shared)?;
        shared.complete()?;
        if let Some(attr) = attr.as_mut() {
            attr.qp_type = res.ai_qp_type as u32;
            qp::create_plain(shared.c(), pd, attr)?;
        }
        if !res.ai_connect.is_null() {
            let data = std::slice::from_raw_parts(res.ai_connect.cast::<u8>(), res.ai_connect_len);
            lock(&shared.state).connect_data = data.to_vec();
        }
        drop_event(shared.c());
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    call::number("rdma_create_ep", || {
        // SAFETY: the program passes an address, and NULL or a protection domain and attributes.
        unsafe {
            let res = res.as_ref();
            let res = res.ok_or_else(|| Refusal::invalid("the address is NULL"))?;
            id.write(create(res, pd, attr)?.c());
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: the program destroys an endpoint that it has, once.
    unsafe {
        if let Ok(shared) = Shared::of(id) {
            qp::destroy(id);
            srq::destroy(id);
            id::destroy(&shared);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    let call = "rdma_get_request";
    // SAFETY: the program passes a listening id.
    let fd = call::number(call, || unsafe {
        let listener = Shared::of(listen)?;
        let state = lock(&listener.state);
        if !state.is_sync {
            return Err(Refusal::invalid(
                "the id has an event channel, from which requests are taken",
            ));
        }
        let fd = state.channel.fd();
        drop(state);
        drop_event(listen);
        Ok(fd)
    });
    if fd < 0 {
        return -1;
    }
    // SAFETY: the program passes a listening id, whose channel it does not change, and the address of a pointer. The closure
    // has nothing to drop.
    unsafe {
        call::reading(call, fd, |_: [u8; 8]| {
            let listener = Shared::of(listen)?;
            let channel = lock(&listener.state).channel.clone();
            let Some(event) = channel.take() else {
                return Ok(false);
            };
            if event.kind != Kind::ConnectRequest {
                let refusal = Refusal::invalid(format!("{:?} is not a request", event.kind));
                event.discard();
                return Err(refusal);
            }
            let shared = event.id.clone();
            // Later events come to the id's own channel.
            if let Err(refusal) = create::migrate(&shared, std::ptr::null_mut()) {
                event.discard();
                return Err(refusal);
            }
            let taken = event.hand_out();
            (*shared.c()).event = taken;
            let template = {
                let state = lock(&listener.state);
                state.template.as_ref().map(|t| (t.pd, t.attr))
            };
            if let Some((pd, mut attr)) = template
                && let Err(refusal) = qp::create_plain(shared.c(), pd, &mut attr)
            {
                id::destroy(&shared);
                return Err(refusal);
            }
            id.write(shared.c());
            Ok(true)
        })
    }
}
