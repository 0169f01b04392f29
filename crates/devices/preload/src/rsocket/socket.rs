//! An rsocket: its state, and how calls wait for it.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use adverb_abi::rdma_cm_id;

use super::functions as c;
use super::options::Options;
use super::poll::milliseconds;
use super::sizes::polling_time;
use super::sleep::{Sleeper, Sleepers, event_counter};
use super::stream::Stream;
use super::table;
use crate::call::Refusal;
use crate::cm::address;
use crate::object::lock;

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
    pub(super) id: *mut rdma_cm_id,
    pub(super) stream: Option<Box<Stream>>,
    pub(super) options: Options,
    /// `SO_ERROR`.
    pub(super) error: c_int,
    /// Connections to accept. A connection in [`Phase::Connecting`] is not complete.
    pub(super) queue: VecDeque<Arc<Socket>>,
    /// The key of the rsocket that listens, for a connection that was not accepted.
    pub(super) listener: Option<usize>,
    /// When it last received something from the peer, or sent a keepalive message.
    pub(super) asked: Instant,
}

// SAFETY: ids may be used by any thread.
unsafe impl Send for State {}

impl State {
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
        loop {
            if let Some(found) = self.wait_for(blocks, None, &mut ready)? {
                return Ok(found);
            }
        }
    }

    /// The same; `None` after sleeping for `limit`.
    pub(super) fn wait_for<R>(
        &self,
        blocks: bool,
        limit: Option<Duration>,
        ready: &mut impl FnMut(&mut State) -> Option<R>,
    ) -> Result<Option<R>, Refusal> {
        if let Some(found) = self.look(ready) {
            return Ok(Some(found));
        }
        if !blocks {
            return Err(Refusal::expected(libc::EAGAIN));
        }
        let began = Instant::now();
        while began.elapsed() < polling_time() {
            std::hint::spin_loop();
            if let Some(found) = self.look(ready) {
                return Ok(Some(found));
            }
        }
        let sleeper = Sleeper::current()?;
        self.sleepers.add(&sleeper);
        let found = self.sleep(&sleeper, milliseconds(limit), ready);
        self.sleepers.remove(&sleeper);
        found
    }

    fn sleep<R>(
        &self,
        sleeper: &Arc<Sleeper>,
        timeout: c_int,
        ready: &mut impl FnMut(&mut State) -> Option<R>,
    ) -> Result<Option<R>, Refusal> {
        loop {
            let armed = self.arm();
            if let Some(found) = self.look(ready) {
                return Ok(Some(found));
            }
            let fds = [sleeper.fd(), armed.unwrap_or(-1)];
            let mut polled = fds.map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            // SAFETY: two descriptors.
            let count = unsafe { libc::poll(polled.as_mut_ptr(), 2, timeout) };
            if count < 0 {
                return Err(Refusal::expected(c::errno()));
            }
            if polled[0].revents != 0 {
                sleeper.reset();
            }
            // The event of the channel is taken before the next sleep.
            let found = self.look(ready);
            if found.is_some() || count == 0 {
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
