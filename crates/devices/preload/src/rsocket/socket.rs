//! An rsocket: its state, its connection, and how calls wait for it.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use adverb_abi::rdma_cm_id;

use super::functions as c;
use super::options::Options;
use super::sizes::polling_time;
use super::sleep::{Sleeper, Sleepers, event_counter};
use super::stream::Stream;
use super::{service, table};
use crate::call::Refusal;
use crate::cm::address;
use crate::object::lock;

/// `RDMA_PS_TCP`.
const PORT_SPACE_TCP: u32 = 0x0106;
/// Resolving takes no time, but the functions want a limit.
pub(super) const RESOLVE_MS: c_int = 2000;
/// Most connections that wait to be accepted.
const MAX_BACKLOG: usize = 1024;

/// How far an rsocket has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Bound,
    Listening,
    /// Connecting, or (passive) waiting for the end of the handshake.
    Connecting,
    /// Connected, now or before: the stream knows.
    Connected,
    /// Connecting has failed.
    Failed,
    Closed,
}

/// What the lock of an rsocket protects.
pub(super) struct State {
    pub(super) phase: Phase,
    id: *mut rdma_cm_id,
    pub(super) stream: Option<Box<Stream>>,
    pub(super) options: Options,
    /// `SO_ERROR`.
    pub(super) error: c_int,
    /// Connections to accept, of which those in [`Phase::Connecting`] are not complete.
    pub(super) queue: VecDeque<Arc<Socket>>,
    /// The key of the rsocket that listens, for a connection that was not accepted.
    pub(super) listener: Option<usize>,
    /// When it last heard from the peer or asked for a sign of life.
    pub(super) asked: Instant,
}

// SAFETY: ids may be used by any thread.
unsafe impl Send for State {}

impl State {
    pub(super) fn id(&self) -> *mut rdma_cm_id {
        self.id
    }

    /// Takes the completions of the connection; returns whether there were any.
    pub(super) fn progress(&mut self) -> bool {
        let Some(stream) = &mut self.stream else {
            return false;
        };
        let any = stream.progress();
        if any && let Some(errno) = stream.lost {
            self.error = errno;
        }
        any
    }

    /// Returns the next connection to accept.
    pub(super) fn next_accepted(&mut self) -> Option<Arc<Socket>> {
        let is_complete = |child: &Arc<Socket>| child.lock().phase != Phase::Connecting;
        let at = self.queue.iter().position(is_complete)?;
        self.queue.remove(at)
    }

    /// Takes the error by which the connection was lost, which one call reports.
    pub(super) fn take_error(&mut self) -> Option<Refusal> {
        let lost = self.stream.as_mut()?.lost.take()?;
        self.error = 0;
        Some(Refusal::expected(lost))
    }
}

/// An rsocket.
pub(super) struct Socket {
    /// By which the events of its id find it.
    pub(super) key: usize,
    /// Reserves the number by which the program names the rsocket, once it has it.
    fd: OnceLock<OwnedFd>,
    pub(super) family: c_int,
    state: Mutex<State>,
    pub(super) sleepers: Sleepers,
    pub(super) is_nonblocking: AtomicBool,
}

impl Socket {
    /// Creates an rsocket with an id of its own.
    pub(super) fn create(family: c_int) -> Result<Arc<Self>, Refusal> {
        let service = service::start()?;
        let mut id = null_mut();
        // SAFETY: the channel is the service's, and `id` a place for the pointer. The id is new.
        unsafe {
            match c::rdma_create_id(service.channel(), &raw mut id, null_mut(), PORT_SPACE_TCP) {
                0 => Ok(Self::of_id(id, family, Options::default())),
                _ => Err(c::failed("an id")),
            }
        }
    }

    /// Creates an rsocket with an id, which is its from now on.
    ///
    /// # Safety
    /// `id` is alive, and no other rsocket's.
    pub(super) unsafe fn of_id(id: *mut rdma_cm_id, family: c_int, options: Options) -> Arc<Self> {
        let key = table::new_key();
        // SAFETY: the caller's.
        unsafe { (*id).context = std::ptr::without_provenance_mut(key) };
        let socket = Arc::new(Socket {
            key,
            fd: OnceLock::new(),
            family,
            state: Mutex::new(State {
                phase: Phase::New,
                id,
                stream: None,
                options,
                error: 0,
                queue: VecDeque::new(),
                listener: None,
                asked: Instant::now(),
            }),
            sleepers: Sleepers::default(),
            is_nonblocking: AtomicBool::new(false),
        });
        table::enter(&socket);
        socket
    }

    /// Gives the rsocket a descriptor, by which the program names it; returns it.
    pub(super) fn name(self: &Arc<Self>) -> Result<c_int, Refusal> {
        let fd = event_counter()?;
        let fd = self.fd.get_or_init(|| fd).as_raw_fd();
        table::name(self, fd);
        Ok(fd)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Locks it, unless another thread has.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    /// Whether a call with these flags waits.
    pub(super) fn blocks(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT == 0 && !self.is_nonblocking.load(Ordering::Relaxed)
    }

    /// Looks whether a condition holds, after taking completions.
    pub(super) fn look<R>(&self, ready: &mut impl FnMut(&mut State) -> Option<R>) -> Option<R> {
        let mut state = self.lock();
        let any = state.progress();
        let found = ready(&mut state);
        drop(state);
        if any {
            self.sleepers.wake_others();
        }
        found
    }

    /// Waits until `ready` returns a result: polls for a while, then sleeps.
    pub(super) fn wait<R>(
        &self,
        blocks: bool,
        mut ready: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Refusal> {
        if let Some(found) = self.look(&mut ready) {
            return Ok(found);
        }
        if !blocks {
            return Err(Refusal::expected(libc::EAGAIN));
        }
        let began = Instant::now();
        while began.elapsed() < polling_time() {
            std::hint::spin_loop();
            if let Some(found) = self.look(&mut ready) {
                return Ok(found);
            }
        }
        let sleeper = Sleeper::current()?;
        self.sleepers.add(&sleeper);
        let found = self.sleep(&sleeper, &mut ready);
        self.sleepers.remove(&sleeper);
        found
    }

    fn sleep<R>(
        &self,
        sleeper: &Arc<Sleeper>,
        ready: &mut impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Refusal> {
        loop {
            let armed = self.arm();
            if let Some(found) = self.look(ready) {
                return Ok(found);
            }
            let fds = [sleeper.fd(), armed.unwrap_or(-1)];
            let mut polled = fds.map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            // SAFETY: two descriptors.
            if unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) } < 0 {
                return Err(Refusal::expected(c::errno()));
            }
            if polled[0].revents != 0 {
                sleeper.reset();
            }
            // The event of the channel is taken before the next sleep.
            if let Some(found) = self.look(ready) {
                return Ok(found);
            }
        }
    }

    /// Takes the events of the completion channel, and makes the next completion raise one; returns the descriptor to
    /// wait for. Completions that arrived before have to be looked for after this.
    pub(super) fn arm(&self) -> Option<c_int> {
        let state = self.lock();
        let stream = state.stream.as_ref()?;
        let any = stream.take_events();
        stream.arm();
        let fd = stream.fd();
        drop(state);
        if any {
            self.sleepers.wake_others();
        }
        Some(fd)
    }

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

    pub(super) fn accept(&self) -> Result<Arc<Socket>, Refusal> {
        if self.lock().phase != Phase::Listening {
            return Err(Refusal::invalid("the rsocket does not listen"));
        }
        let child = self.wait(self.blocks(0), |state| match state.phase {
            Phase::Listening => state.next_accepted().map(Ok),
            _ => Some(Err(Refusal::expected(libc::EBADF))),
        })??;
        child.lock().listener = None;
        Ok(child)
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

    /// Returns the local or the remote address; `None` if it has none.
    pub(super) fn address(&self, is_remote: bool) -> Option<SocketAddr> {
        let state = self.lock();
        if state.id.is_null() {
            return None;
        }
        // SAFETY: the id is alive; its addresses are NULL-like (family 0) or valid.
        let found = unsafe {
            let addr = &raw const (*state.id).route.addr;
            match is_remote {
                true => address::read((&raw const (*addr).dst_storage).cast()),
                false => address::read((&raw const (*addr).src_storage).cast()),
            }
        };
        found.ok().map(|found| self.in_family(found))
    }

    /// Returns an address as rsockets of this family name it.
    fn in_family(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(v4) if self.family == libc::AF_INET6 => {
                let ip = match v4.is_unspecified() {
                    true => Ipv6Addr::UNSPECIFIED,
                    false => v4.to_ipv6_mapped(),
                };
                SocketAddr::new(ip.into(), address.port())
            }
            _ => address,
        }
    }

    /// The address of an rsocket that has none.
    pub(super) fn unspecified(&self) -> SocketAddr {
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        self.in_family(any)
    }
}
