//! An rsocket's connection: binds, listens, accepts, connects, shuts down and closes.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::Arc;

use super::functions as c;
use super::socket::{Phase, Socket, State};
use super::table;
use crate::call::{Refusal, SLICE};
use crate::cm::address;

/// Timeout of address and route resolution, which take no time here.
pub(super) const RESOLVE_MS: c_int = 2000;
/// Maximum number of connections that wait to be accepted.
const MAX_BACKLOG: usize = 1024;

impl Socket {
    pub(super) fn bind(&self, wanted: SocketAddr) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.phase != Phase::New {
            return Err(Refusal::invalid("the rsocket has an address"));
        }
        let mut addr = address::storage(wanted);
        // SAFETY: the id is alive.
        if unsafe { c::rdma_bind_addr(state.id, (&raw mut addr).cast()) } != 0 {
            return Err(Refusal::expected(match c::errno() {
                libc::ENODEV => libc::EADDRNOTAVAIL,
                errno => errno,
            }));
        }
        state.phase = Phase::Bound;
        Ok(())
    }

    pub(super) fn listen(&self, backlog: c_int) -> Result<(), Refusal> {
        let mut state = self.lock();
        match state.phase {
            Phase::New | Phase::Bound => {}
            Phase::Listening => return Ok(()),
            _ => return Err(Refusal::invalid("the rsocket is connected")),
        }
        // SAFETY: the id is alive.
        if unsafe { c::rdma_listen(state.id, backlog) } != 0 {
            return Err(Refusal::expected(c::errno()));
        }
        state.phase = Phase::Listening;
        Ok(())
    }

    /// Takes a connection; `None` if there is none within [`SLICE`].
    pub(super) fn accept(&self) -> Result<Option<Arc<Socket>>, Refusal> {
        if self.lock().phase != Phase::Listening {
            return Err(Refusal::invalid("the rsocket does not listen"));
        }
        let mut accepted = |state: &mut State| match state.phase {
            Phase::Listening => state.next_accepted().map(Ok),
            _ => Some(Err(Refusal::expected(libc::EBADF))),
        };
        let child = self.wait_for(self.blocks(0), Some(SLICE), &mut accepted)?;
        let child = child.transpose()?;
        Ok(child.inspect(|child| child.lock().listener = None))
    }

    /// Whether another connection may wait to be accepted.
    pub(super) fn has_room(state: &State) -> bool {
        state.phase == Phase::Listening && state.queue.len() < MAX_BACKLOG
    }

    pub(super) fn connect(&self, to: SocketAddr) -> Result<(), Refusal> {
        let blocks = self.blocks(0);
        {
            let mut state = self.lock();
            match state.phase {
                Phase::New | Phase::Bound => {}
                Phase::Connecting if blocks => {}
                Phase::Connecting => return Err(Refusal::expected(libc::EALREADY)),
                Phase::Connected => return Err(Refusal::expected(libc::EISCONN)),
                Phase::Listening => {
                    return Err(Refusal::new(libc::EOPNOTSUPP, "the rsocket listens"));
                }
                Phase::Failed | Phase::Closed => {
                    return Err(Refusal::invalid(
                        "connecting has failed: create another rsocket",
                    ));
                }
            }
            if state.phase != Phase::Connecting {
                let mut addr = address::storage(to);
                let addr = (&raw mut addr).cast();
                // SAFETY: the id is alive; it has a source address if it is bound.
                let begun = unsafe { c::rdma_resolve_addr(state.id, null_mut(), addr, RESOLVE_MS) };
                if begun != 0 {
                    return Err(Refusal::expected(c::errno()));
                }
                state.phase = Phase::Connecting;
            }
        }
        let connected = self.wait(blocks, |state| match state.phase {
            Phase::Connecting => None,
            Phase::Connected => Some(Ok(())),
            _ => {
                let errno = std::mem::take(&mut state.error);
                Some(Err(Refusal::expected(match errno {
                    0 => libc::ECONNABORTED,
                    errno => errno,
                })))
            }
        });
        match connected {
            Err(refusal) if refusal.errno == libc::EAGAIN => {
                Err(Refusal::expected(libc::EINPROGRESS))
            }
            other => other?,
        }
    }

    /// Ends reading, writing or both.
    pub(super) fn shut_down(&self, reads: bool, writes: bool) -> Result<(), Refusal> {
        if self.lock().phase != Phase::Connected {
            return Err(Refusal::expected(libc::ENOTCONN));
        }
        let done = self.wait(self.blocks(0), |state| {
            let stream = state.stream.as_mut()?;
            stream
                .can_control()
                .then(|| stream.shut_down(reads, writes))
        });
        self.sleepers.wake_others();
        done
    }

    /// Disconnects, after all that was sent has arrived, and frees what the rsocket has.
    pub(super) fn close(&self) {
        let is_open = |state: &State| state.stream.as_ref().is_some_and(|s| s.is_connected);
        let is_connected = {
            let state = self.lock();
            state.phase == Phase::Connected && is_open(&state)
        };
        if is_connected {
            // If a signal interrupts it, the peer learns from the connection manager that the connection has ended.
            let _ = self.wait(true, |state| {
                let stream = state.stream.as_mut()?;
                stream.can_control().then(|| stream.shut_down(true, true))
            });
        }
        let _ = self.wait(true, |state| {
            let drained = state.stream.as_ref().is_none_or(|s| s.has_drained());
            (state.phase != Phase::Connected || drained).then_some(())
        });
        let (id, stream, queue) = {
            let mut state = self.lock();
            state.phase = Phase::Closed;
            let id = std::mem::replace(&mut state.id, null_mut());
            (id, state.stream.take(), std::mem::take(&mut state.queue))
        };
        self.sleepers.wake_others();
        drop(stream);
        queue.iter().for_each(|child| child.close());
        if !id.is_null() {
            // SAFETY: the id was the rsocket's, and has no queue pair any more.
            unsafe { c::rdma_destroy_id(id) };
        }
        table::leave(self.key);
    }
}
