//! Creates and destroys ids and event channels, and moves ids between channels.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use adverb_abi::{IBV_QPT_RC, IBV_QPT_UD, rdma_cm_id, rdma_event_channel};
use adverb_wire::cm::PortSpace;

use super::agents::agents;
use super::channel::{Channel, create_channel, destroy_channel, drop_event};
use super::id::{self, Origin, Phase, Shared};
use crate::call::{self, Refusal};
use crate::object::lock;

#[unsafe(no_mangle)]
extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    call::pointer("rdma_create_event_channel", || {
        agents()?;
        create_channel()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    if !channel.is_null() {
        // SAFETY: the program destroys a channel that it has created, once.
        unsafe { destroy_channel(channel) };
    }
}

/// Creates an id for the program. Without a channel it gets its own, and its operations wait for their events.
pub(super) fn create_for_program(
    c_channel: *mut rdma_event_channel,
    context: *mut c_void,
    (space, qp_type): (PortSpace, u32),
) -> Result<Arc<Shared>, Refusal> {
    agents()?;
    let is_sync = c_channel.is_null();
    let c_channel = match is_sync {
        true => create_channel()?,
        false => c_channel,
    };
    let shared = id::create(Origin {
        c_channel,
        // SAFETY: the program passes a channel that it has created, or it was created above.
        channel: unsafe { Channel::of(c_channel) },
        context,
        space,
        qp_type,
        phase: Phase::New,
    });
    lock(&shared.state).is_sync = is_sync;
    Ok(shared)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    call::number("rdma_create_id", || {
        let space = PortSpace::from_code(ps)
            .ok_or_else(|| Refusal::invalid(format!("invalid port space {ps:#x}")))?;
        let qp_type = match space.is_datagram() {
            true => IBV_QPT_UD,
            false => IBV_QPT_RC,
        };
        let shared = create_for_program(channel, context, (space, qp_type))?;
        // SAFETY: the program passes the address of a pointer.
        unsafe { id.write(shared.c()) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    call::number("rdma_destroy_id", || {
        id::destroy(&Shared::of(id)?);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    call::number("rdma_migrate_id", || {
        let shared = Shared::of(id)?;
        migrate(&shared, channel)?;
        // Afterwards no other thread handles an event of the old channel (rdma_migrate_id(3)).
        shared.wait_for_acknowledgements();
        Ok(0)
    })
}

/// Moves an id and its events to another channel; without one, to its own.
pub(super) fn migrate(
    shared: &Arc<Shared>,
    c_channel: *mut rdma_event_channel,
) -> Result<(), Refusal> {
    let c = shared.c();
    let is_sync = c_channel.is_null();
    // SAFETY: the id is alive.
    if !is_sync && unsafe { (*c).channel } == c_channel {
        return Ok(());
    }
    let c_channel = match is_sync {
        true => create_channel()?,
        false => c_channel,
    };
    // SAFETY: the program passes a channel that it has created, or it was created above.
    let channel = unsafe { Channel::of(c_channel) };
    let (old, was_sync) = {
        let mut state = lock(&shared.state);
        let was_sync = std::mem::replace(&mut state.is_sync, is_sync);
        (
            std::mem::replace(&mut state.channel, channel.clone()),
            was_sync,
        )
    };
    old.remove_of(shared)
        .into_iter()
        .for_each(|event| channel.push(event));
    // SAFETY: the id is alive; a synchronous id's channel is its own.
    unsafe {
        let old = std::mem::replace(&mut (*c).channel, c_channel);
        if was_sync {
            drop_event(c);
            destroy_channel(old);
        }
    }
    Ok(())
}
