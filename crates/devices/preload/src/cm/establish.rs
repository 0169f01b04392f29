//! Takes events, and connects a queue pair when the program takes the event that its peer has accepted.

use std::ffi::c_int;
use std::sync::Arc;

use adverb_abi::{rdma_cm_event, rdma_cm_id, rdma_event_channel};
use adverb_wire::cm::RejectReason;

use super::channel::{Channel, drop_event};
use super::event::Kind;
use super::id::{Phase, Shared};
use super::qp;
use crate::call::{self, Refusal};
use crate::object::lock;

impl Channel {
    /// Takes the oldest event, in C's form. An accepted connection is established now, if the id has a queue pair.
    fn take_for_program(&self) -> Option<*mut rdma_cm_event> {
        let mut event = self.take()?;
        if event.is_reply {
            (event.kind, event.status) = finish(&event.id);
        }
        if event.kind == Kind::ConnectRequest
            && let Ok((agent, conn)) = event.id.connection()
        {
            agent.with(|state, _| state.manager.taken(conn));
        }
        Some(event.hand_out())
    }

    /// Takes the oldest event, in C's form. Waits for it, unless the program has set the descriptor to non-blocking.
    fn wait_for_program(&self) -> Result<*mut rdma_cm_event, Refusal> {
        loop {
            let mut count = [0_u8; 8];
            // SAFETY: reads 8 bytes.
            if unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), 8) } < 0 {
                let error = std::io::Error::last_os_error();
                return Err(Refusal::expected(error.raw_os_error().unwrap_or(libc::EIO)));
            }
            if let Some(event) = self.take_for_program() {
                return Ok(event);
            }
        }
    }
}

impl Shared {
    /// Waits for the event of a synchronous operation.
    pub(super) fn complete(&self) -> Result<(), Refusal> {
        let (is_sync, channel) = {
            let state = lock(&self.state);
            (state.is_sync, state.channel.clone())
        };
        if !is_sync {
            return Ok(());
        }
        let c = self.c();
        // SAFETY: the id is alive, and one thread at a time operates on it.
        unsafe { drop_event(c) };
        let taken = channel.wait_for_program()?;
        // SAFETY: the channel made the event.
        let (kind, status) = unsafe {
            (*c).event = taken;
            ((*taken).event, (*taken).status)
        };
        match status {
            0 => Ok(()),
            _ if kind == Kind::Rejected as u32 => Err(Refusal::new(
                libc::ECONNREFUSED,
                format!("the peer rejected the connection: reason {status}"),
            )),
            other => Err(Refusal::new(
                other.abs(),
                format!("the operation failed: event {kind}, status {status}"),
            )),
        }
    }
}

/// Connects the queue pair of an id whose peer has accepted; returns the event for the program. Without a queue pair the
/// program does it, and calls `rdma_establish`.
fn finish(shared: &Arc<Shared>) -> (Kind, c_int) {
    // SAFETY: the program takes an event of the id, so the id is alive.
    let qp = unsafe { (*shared.c()).qp };
    if qp.is_null() {
        return (Kind::ConnectResponse, 0);
    }
    let connected = qp::connect(shared).and_then(|()| establish(shared));
    match connected {
        Ok(()) => (Kind::Established, 0),
        Err(refusal) => {
            call::refuse("rdma_get_cm_event", &refusal);
            if let Ok((agent, conn)) = shared.connection() {
                let why = (RejectReason::CONSUMER, &[][..]);
                // The peer may have given up by now.
                let _ = agent.with(|state, now| state.manager.reject(now, conn, why));
            }
            qp::to_error(qp);
            (Kind::ConnectError, -refusal.errno)
        }
    }
}

fn establish(shared: &Arc<Shared>) -> Result<(), Refusal> {
    let (agent, conn) = shared.connection()?;
    agent.with(|state, _| state.manager.establish(conn, &[]))?;
    let mut state = lock(&shared.state);
    if state.phase == Phase::Replied {
        state.phase = Phase::Connected;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    call::number("rdma_establish", || {
        let shared = Shared::of(id)?;
        // SAFETY: the id is alive.
        if !unsafe { (*id).qp }.is_null() {
            return Err(Refusal::invalid(
                "the id has a queue pair, which is established with the event",
            ));
        }
        establish(&shared)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let call = "rdma_get_cm_event";
    if channel.is_null() || event.is_null() {
        return call::number(call, || {
            Err(Refusal::invalid("the channel or the event is NULL"))
        });
    }
    // SAFETY: the program passes a channel that it has created, and the address of a pointer. The closure has nothing to
    // drop.
    unsafe {
        call::reading(call, (*channel).fd, |_: [u8; 8]| {
            let Some(taken) = Channel::of(channel).take_for_program() else {
                return Ok(false);
            };
            event.write(taken);
            Ok(true)
        })
    }
}
