//! The agent of a device: its communication manager, and the thread that serves it.
//!
//! **Locks.** An agent's state is locked before an id's state, and this before a channel's queue. Calls of the program
//! take an agent's lock while they hold none.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use adverb_abi::{ibv_context, ibv_pd};
use adverb_softnic::{Gsi, ReceivedMad};
use adverb_transport::cm::{CmParams, ConnId, Manager};
use adverb_units::{Span, Time};
use adverb_verbs::{Context as _, DeviceCaps, PathMtu, PortNum, Qpn};
use adverb_wire::cm::ServiceId;

use super::id::Shared;
use super::verbs;
use crate::call::Refusal;
use crate::context::Context;
use crate::object::lock;

/// Interval at which dead processes of this host are looked for.
const WATCH: Duration = Duration::from_millis(200);

/// Interval at which connections are looked at that have ended with unpolled completions.
const TICK: Duration = Duration::from_millis(1);

/// The agent of a device, which lives as long as the process.
#[derive(Debug)]
pub(super) struct Agent {
    context: AtomicPtr<ibv_context>,
    /// The protection domain of queue pairs for which the program names none.
    pd: OnceLock<AtomicPtr<ibv_pd>>,
    pub(super) ip: IpAddr,
    pub(super) mtu: PathMtu,
    pub(super) guid: u64,
    pub(super) max_rd_atom: u8,
    pub(super) gsi: Gsi,
    /// The process that opened the device. A forked child has a copy, but no connections.
    process: u32,
    began: Instant,
    state: Mutex<AgentState>,
}

/// Attempts to lock an agent when the process ends, a millisecond apart: a thread that holds the lock may never run
/// again.
const TRIES: u32 = 100;
/// How long requests for a service that has just ended wait, in case the program listens again. Programs that accept one
/// connection at a time do, and their peers do not wait for it.
const LINGER: Duration = Duration::from_secs(1);
/// Maximum number of requests that wait for that.
const MAX_HELD: usize = 64;

/// Connections and listeners.
#[derive(Debug)]
pub(super) struct AgentState {
    /// Services that have just ended, and when.
    lingering: HashMap<ServiceId, Instant>,
    /// Requests for them.
    held: Vec<ReceivedMad>,
    pub(super) manager: Manager<SocketAddr>,
    pub(super) conns: HashMap<ConnId, Arc<Shared>>,
    pub(super) listeners: HashMap<ServiceId, Arc<Shared>>,
    /// Connections that the peer has ended, while messages of it have arrived that the program has not polled. The program
    /// learns it at this time at the latest.
    pub(super) ending: Vec<(ConnId, Instant)>,
    /// Connections to processes of this host: the peer's port, and the number of the process that has it.
    pub(super) peers: HashMap<ConnId, (SocketAddr, u64)>,
}

/// Delivers the events of the manager, with the agent locked.
type Deliver = fn(&'static Agent, &mut AgentState, Time);

impl AgentState {
    pub(super) fn new() -> Self {
        AgentState {
            lingering: HashMap::new(),
            held: Vec::new(),
            manager: Manager::new(CmParams::default(), random()),
            conns: HashMap::new(),
            listeners: HashMap::new(),
            ending: Vec::new(),
            peers: HashMap::new(),
        }
    }

    /// Passes a message to the manager, or holds it.
    fn take(&mut self, now: Time, mad: ReceivedMad) {
        let service = mad.requested_service().map(ServiceId);
        let lingers = service.is_some_and(|service| self.lingering.contains_key(&service));
        if !lingers {
            self.manager.handle_mad(now, mad.from, &mad.bytes[..]);
        } else if self.held.len() < MAX_HELD {
            self.held.push(mad);
        }
    }
}

impl Agent {
    /// Returns the address at which the device reaches a host: of this host its own, even if the program uses a loopback
    /// address, unless devices are at such addresses, too.
    pub(super) const fn reached_as(&self, ip: IpAddr) -> IpAddr {
        let is_of_devices = self.ip.is_loopback() && self.ip.is_ipv4() == ip.is_ipv4();
        match ip.is_loopback() && !is_of_devices {
            true => self.ip,
            false => ip,
        }
    }

    /// Makes the agent of an open device. Its thread calls `deliver` for the events of the manager.
    pub(super) fn start(
        context: *mut ibv_context,
        deliver: Deliver,
    ) -> Result<&'static Self, Refusal> {
        // SAFETY: the context was just opened, and is never closed.
        let own: &'static Context = unsafe { Context::of(context) };
        let gsi = own.soft.open_gsi()?;
        let port = own.soft.port(PortNum::ONE)?;
        let DeviceCaps { max_qp_rd_atom, .. } = *own.soft.caps();
        let agent: &'static Agent = Box::leak(Box::new(Agent {
            context: AtomicPtr::new(context),
            pd: OnceLock::new(),
            ip: gsi.own().ip(),
            mtu: port.active_mtu,
            guid: u64::from_be(own.device.guid()),
            max_rd_atom: max_qp_rd_atom,
            gsi,
            process: std::process::id(),
            began: Instant::now(),
            state: Mutex::new(AgentState::new()),
        }));
        std::thread::Builder::new()
            .name("adverb-cm".into())
            .spawn(move || agent.serve(deliver))?;
        Ok(agent)
    }

    pub(super) fn context(&self) -> *mut ibv_context {
        self.context.load(Ordering::Relaxed)
    }

    /// Returns the protection domain of queue pairs for which the program names none.
    pub(super) fn default_pd(&self) -> *mut ibv_pd {
        let make = || {
            // SAFETY: the context is open.
            AtomicPtr::new(unsafe { verbs::ibv_alloc_pd(self.context()) })
        };
        self.pd.get_or_init(make).load(Ordering::Relaxed)
    }

    fn now(&self) -> Time {
        Time::ZERO + Span::from(self.began.elapsed())
    }

    /// Operates the manager, and sends its messages. Events are delivered by the agent's thread.
    pub(super) fn with<R>(&self, operate: impl FnOnce(&mut AgentState, Time) -> R) -> R {
        let mut state = lock(&self.state);
        let result = operate(&mut state, self.now());
        self.transmit(&mut state);
        drop(state);
        self.gsi.wake();
        result
    }

    fn transmit(&self, state: &mut AgentState) {
        while let Some((to, mad)) = state.manager.poll_transmit() {
            self.gsi.send(to, &mad);
        }
    }

    /// Serves the manager as long as the process lives.
    fn serve(&'static self, deliver: Deliver) {
        block_signals();
        let mut watched = Instant::now();
        loop {
            let mad = self.gsi.wait(Some(self.timeout()));
            if let Some(mad) = &mad
                && self.is_for_another(mad)
            {
                continue;
            }
            let is_due = watched.elapsed() >= WATCH;
            if is_due && self.needs_standard_port(&lock(&self.state)) {
                // If another process has it, requests go there.
                self.gsi.take_standard_port();
            }
            let mut state = lock(&self.state);
            let now = self.now();
            if let Some(mad) = mad {
                state.take(now, mad);
            }
            state.manager.handle_timeout(now);
            if is_due {
                watched = Instant::now();
                self.look_for_dead_peers(&mut state, now);
                self.end_lingering(&mut state, now);
            }
            deliver(self, &mut state, now);
            self.transmit(&mut state);
        }
    }

    /// Whether the program has not polled all completions of a queue pair.
    pub(super) fn has_unpolled_completions(&self, qpn: Qpn) -> bool {
        // SAFETY: the agent's context is never closed.
        let context = unsafe { Context::of(self.context()) };
        context.soft.has_unpolled_completions(qpn)
    }

    /// Returns how long the thread may wait for a message.
    fn timeout(&self) -> Duration {
        let state = lock(&self.state);
        let timer = state.manager.poll_timeout();
        let timer = timer.map(|at| Duration::from(at.since(self.now())) + Duration::from_micros(1));
        let is_watching = !state.peers.is_empty()
            || !state.lingering.is_empty()
            || self.needs_standard_port(&state);
        let watch = is_watching.then_some(WATCH);
        let ending = (!state.ending.is_empty()).then_some(TICK);
        let longest = Duration::from_secs(3600);
        let all = timer.into_iter().chain(watch).chain(ending);
        all.min().unwrap_or(longest)
    }

    /// Whether other hosts reach this process's services only by way of another process, which may end.
    fn needs_standard_port(&self, state: &AgentState) -> bool {
        !state.listeners.is_empty() && !self.gsi.has_standard_port()
    }

    /// Forwards a request to the process at this address that listens for its service; returns false if this process
    /// answers it.
    fn is_for_another(&self, mad: &ReceivedMad) -> bool {
        let Some(service) = mad.requested_service() else {
            return false;
        };
        let state = lock(&self.state);
        let service_id = ServiceId(service);
        let is_here =
            state.manager.is_listening(service_id) || state.lingering.contains_key(&service_id);
        drop(state);
        !is_here && self.gsi.forward(mad, service)
    }

    /// Whether another id, or another process at this address, listens for a service.
    pub(super) fn is_taken(&self, service: ServiceId) -> bool {
        let lingers = lock(&self.state).lingering.contains_key(&service);
        !lingers && self.gsi.is_announced(service.0)
    }

    /// Listens for a service.
    ///
    /// # Errors
    /// `AddrInUse` if another process does; the shared directory cannot be written.
    pub(super) fn listen(
        &self,
        service: ServiceId,
        (shared, backlog): (&Arc<Shared>, usize),
    ) -> std::io::Result<()> {
        self.with(|state, now| {
            if state.lingering.remove(&service).is_none() {
                self.gsi.announce(service.0)?;
            }
            state.manager.listen(service, backlog);
            state.listeners.insert(service, shared.clone());
            let held = std::mem::take(&mut state.held);
            held.into_iter().for_each(|mad| state.take(now, mad));
            Ok(())
        })
    }

    /// Ends a service. Other processes may listen for it a second later.
    pub(super) fn unlisten(&self, service: ServiceId) {
        self.with(|state, _| {
            state.manager.unlisten(service);
            state.listeners.remove(&service);
            state.lingering.insert(service, Instant::now());
        });
    }

    fn end_lingering(&self, state: &mut AgentState, now: Time) {
        let is_over = |since: &Instant| since.elapsed() >= LINGER;
        let over = state.lingering.iter().filter(|(_, since)| is_over(since));
        let over: Vec<_> = over.map(|(service, _)| *service).collect();
        if over.is_empty() {
            return;
        }
        for service in over {
            state.lingering.remove(&service);
            self.gsi.withdraw(service.0);
        }
        let held = std::mem::take(&mut state.held);
        held.into_iter().for_each(|mad| state.take(now, mad));
    }

    /// A process that is killed sends no DREQ. The kernel would send it.
    fn look_for_dead_peers(&self, state: &mut AgentState, now: Time) {
        let peers = state.peers.iter();
        let dead = peers.filter(|(_, (peer, process))| self.gsi.has_ended(*peer, *process));
        let dead: Vec<_> = dead.map(|(id, _)| *id).collect();
        for id in dead {
            state.peers.remove(&id);
            state.manager.lose(now, id);
        }
    }

    /// Sends the peers of all connections a DREQ when the process ends, which nobody repeats.
    pub(super) fn say_goodbye(&self) {
        if self.process != std::process::id() {
            return;
        }
        let mut tries = 0..TRIES;
        let state = tries.find_map(|_| {
            let state = self.state.try_lock().ok();
            if state.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            state
        });
        if let Some(mut state) = state {
            let now = self.now();
            let all: Vec<_> = state.manager.connections().collect();
            for id in all {
                state.manager.destroy(now, id);
            }
            self.transmit(&mut state);
        }
    }
}

/// The program's signal handlers run on its own threads.
pub(crate) fn block_signals() {
    // SAFETY: an all-zero set is filled before it is used.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// Returns a random number, for names that an earlier process did not use.
pub(super) fn random() -> u32 {
    let mut bytes = [0; 4];
    // SAFETY: writes at most 4 bytes. Without random numbers names begin at 0, which only matters after a crash.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u32::from_ne_bytes(bytes)
}
