//! Ids: the C structure, and the state behind it.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use adverb_abi::{
    IBV_QPT_RC, IBV_QPT_UD, ibv_pd, ibv_qp_init_attr, rdma_cm_id, rdma_event_channel,
};
use adverb_transport::cm::ConnId;
use adverb_wire::cm::{PortSpace, ServiceId};

use super::address;
use super::agent::{self, Agent};
use super::channel::{Channel, create_channel, destroy_channel};
use super::datagram::Group;
use super::event::{self, Event, Kind};
use super::qp::Peer;
use super::route::PathRecord;

use crate::call::{self, Refusal};
use crate::object::{Object, lock};

/// The state of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Bound,
    AddrResolved,
    RouteResolved,
    Listening,
    /// Active: a request was sent.
    Connecting,
    /// Passive: the program has to answer a request.
    Requested,
    /// A reply was sent, or has arrived.
    Replied,
    Connected,
    Disconnected,
}

/// Queue pair attributes for the connections of a listening endpoint.
pub(super) struct Template {
    pub(super) pd: *mut ibv_pd,
    pub(super) attr: ibv_qp_init_attr,
}

// SAFETY: the pointers are the program's, which may use its objects in any thread.
unsafe impl Send for Template {}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Template")
    }
}

/// The state of an id.
#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) channel: Arc<Channel>,
    pub(super) is_sync: bool,
    pub(super) space: PortSpace,
    pub(super) agent: Option<&'static Agent>,
    pub(super) conn: Option<ConnId>,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// What a queue pair needs to know of its peer.
    pub(super) peer: Peer,
    pub(super) services: Vec<(&'static Agent, ServiceId)>,
    pub(super) template: Option<Template>,
    pub(super) groups: Vec<Group>,
    /// Private data for the connection of an endpoint (`ai_connect`).
    pub(super) connect_data: Vec<u8>,
    path: Option<Box<PathRecord>>,
}

/// The part of an id that its events and the agent share.
#[derive(Debug)]
pub(crate) struct Shared {
    c: AtomicPtr<rdma_cm_id>,
    pub(super) state: Mutex<State>,
    /// Number of events that the program has taken and not acknowledged.
    taken: Mutex<u32>,
    acknowledged: Condvar,
}

/// The addresses of all ids.
static ALIVE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

type IdObject = Object<rdma_cm_id, Arc<Shared>>;

impl Shared {
    /// Returns the id behind a pointer from C. perftest passes destroyed ids after a refused connection.
    ///
    /// # Safety
    /// No other thread destroys the id during the call.
    pub(super) unsafe fn of(id: *const rdma_cm_id) -> Result<Arc<Self>, Refusal> {
        if !lock(&ALIVE).contains(&id.addr()) {
            return Err(Refusal::invalid("the id is NULL, or was destroyed"));
        }
        // SAFETY: the id is alive.
        Ok(unsafe { IdObject::of(id) }.own.clone())
    }

    pub(super) fn c(&self) -> *mut rdma_cm_id {
        self.c.load(Ordering::Acquire)
    }

    pub(super) fn push(&self, event: Event) {
        let channel = lock(&self.state).channel.clone();
        channel.push(event);
    }

    pub(super) fn event_taken(&self) {
        *lock(&self.taken) += 1;
    }

    pub(super) fn event_acknowledged(&self) {
        *lock(&self.taken) -= 1;
        self.acknowledged.notify_all();
    }

    /// Waits until the program has acknowledged all events.
    fn wait_for_acknowledgements(&self) {
        let taken = lock(&self.taken);
        let all = self.acknowledged.wait_while(taken, |taken| *taken > 0);
        drop(all.unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the agent, if the id is bound to a device.
    pub(super) fn agent(&self) -> Result<&'static Agent, Refusal> {
        let agent = lock(&self.state).agent;
        agent.ok_or_else(|| Refusal::invalid("the id is not bound to a device"))
    }

    /// Returns agent and connection.
    pub(super) fn connection(&self) -> Result<(&'static Agent, ConnId), Refusal> {
        let state = lock(&self.state);
        let both = state.agent.zip(state.conn);
        both.ok_or_else(|| Refusal::invalid("the id has no connection"))
    }

    /// Binds the id to a device: sets the members of C's structure that depend on it.
    pub(super) fn bind_to(
        &self,
        agent: &'static Agent,
        (local, remote): (SocketAddr, Option<SocketAddr>),
    ) {
        let mut state = lock(&self.state);
        state.agent = Some(agent);
        state.local = Some(local);
        state.remote = remote;
        let c = self.c();
        // SAFETY: the id is alive, and its members are written by the thread that operates on it.
        unsafe {
            (*c).verbs = agent.context();
            (*c).port_num = 1;
            if (*c).pd.is_null() {
                (*c).pd = agent.default_pd();
            }
            let addr = &raw mut (*c).route.addr;
            (*addr).src_storage = address::storage(local);
            (*addr).addr.sgid = address::gid(agent.ip);
            (*addr).addr.pkey = 0xffff;
            if let Some(remote) = remote {
                (*addr).dst_storage = address::storage(remote);
                (*addr).addr.dgid = address::gid(remote.ip());
            }
        }
    }

    /// Sets the path of C's structure.
    pub(super) fn set_path(&self, record: PathRecord) {
        let mut record = Box::new(record);
        let c = self.c();
        // SAFETY: as in `bind_to`; the record lives as long as the id.
        unsafe {
            (*c).route.path_rec = (&raw mut *record).cast::<c_void>();
            (*c).route.num_paths = 1;
        }
        lock(&self.state).path = Some(record);
    }

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
        let taken = channel.take()?.hand_out();
        // SAFETY: `hand_out` made the event.
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

/// Acknowledges the event that a synchronous id keeps.
///
/// # Safety
/// `c` is alive, and no other thread operates on it.
pub(super) unsafe fn drop_event(c: *mut rdma_cm_id) {
    // SAFETY: the caller's; the event was taken and not acknowledged.
    unsafe {
        if !(*c).event.is_null() {
            event::acknowledge((*c).event);
            (*c).event = std::ptr::null_mut();
        }
    }
}

/// What an id is created from.
pub(super) struct Origin {
    pub(super) c_channel: *mut rdma_event_channel,
    pub(super) channel: Arc<Channel>,
    pub(super) context: *mut c_void,
    pub(super) space: PortSpace,
    pub(super) qp_type: u32,
    pub(super) phase: Phase,
}

/// Creates an id.
pub(super) fn create(origin: Origin) -> Arc<Shared> {
    let Origin {
        c_channel,
        channel,
        context,
        space,
        qp_type,
        phase,
    } = origin;
    let shared = Arc::new(Shared {
        c: AtomicPtr::default(),
        state: Mutex::new(State {
            phase,
            channel,
            is_sync: false,
            space,
            agent: None,
            conn: None,
            local: None,
            remote: None,
            peer: Peer::default(),
            services: Vec::new(),
            template: None,
            groups: Vec::new(),
            connect_data: Vec::new(),
            path: None,
        }),
        taken: Mutex::default(),
        acknowledged: Condvar::new(),
    });
    let mut c = rdma_cm_id::zeroed();
    c.channel = c_channel;
    c.context = context;
    c.ps = space.code();
    c.qp_type = qp_type;
    let c = Object::create(c, shared.clone());
    shared.c.store(c, Ordering::Release);
    lock(&ALIVE).insert(c.addr());
    shared
}

/// Creates an id for the program. Without a channel it gets its own, and its operations wait for their events.
pub(super) fn create_for_program(
    c_channel: *mut rdma_event_channel,
    context: *mut c_void,
    (space, qp_type): (PortSpace, u32),
) -> Result<Arc<Shared>, Refusal> {
    agent::agents()?;
    let is_sync = c_channel.is_null();
    let c_channel = match is_sync {
        true => create_channel()?,
        false => c_channel,
    };
    let shared = create(Origin {
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

/// Destroys an id: its connection, its service, its groups and its events.
pub(super) fn destroy(shared: &Arc<Shared>) {
    let c = shared.c();
    let (connection, services, groups, channel, is_sync) = {
        let mut state = lock(&shared.state);
        (
            state.agent.zip(state.conn.take()),
            std::mem::take(&mut state.services),
            std::mem::take(&mut state.groups),
            state.channel.clone(),
            state.is_sync,
        )
    };
    for (agent, service) in services {
        agent.unlisten(service);
    }
    if let Some((agent, conn)) = connection {
        agent.with(|state, now| {
            state.manager.destroy(now, conn);
            state.conns.remove(&conn);
            state.peers.remove(&conn);
        });
    }
    // SAFETY: the id is alive.
    groups
        .iter()
        .for_each(|group| unsafe { group.leave((*c).qp) });
    for event in channel.remove_of(shared) {
        if event.kind == Kind::ConnectRequest && !Arc::ptr_eq(&event.id, shared) {
            destroy(&event.id);
        }
    }
    // SAFETY: the id is alive; a synchronous id's event is its own.
    unsafe { drop_event(c) };
    shared.wait_for_acknowledgements();
    // SAFETY: nothing refers to the id any more; a synchronous id's channel is its own.
    unsafe {
        let own_channel = (*c).channel;
        lock(&ALIVE).remove(&c.addr());
        IdObject::destroy(c);
        if is_sync {
            destroy_channel(own_channel);
        }
    }
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
        let qp_type = match space {
            PortSpace::Tcp | PortSpace::Ib => IBV_QPT_RC,
            PortSpace::Udp | PortSpace::Ipoib => IBV_QPT_UD,
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
        // SAFETY: the program destroys an id that it has, once.
        destroy(&unsafe { Shared::of(id) }?);
        Ok(0)
    })
}

/// Binds an id to a local address.
pub(super) fn bind(shared: &Shared, wanted: SocketAddr) -> Result<(), Refusal> {
    let (phase, space) = {
        let state = lock(&shared.state);
        (state.phase, state.space)
    };
    if phase != Phase::New {
        return Err(Refusal::invalid("the id has an address"));
    }
    let is_any = wanted.ip().to_canonical().is_unspecified();
    let agents = match is_any {
        true => agent::agents()?.to_vec(),
        false => vec![agent::at(wanted.ip().to_canonical())?],
    };
    let port = match wanted.port() {
        0 => free_port(&agents, space),
        port => port,
    };
    let service = ServiceId::of(space, port);
    if wanted.port() != 0 && agents.iter().any(|agent| agent.is_taken(service)) {
        return Err(Refusal::new(
            libc::EADDRINUSE,
            format!("{wanted}: a process listens there"),
        ));
    }
    let local = SocketAddr::new(wanted.ip(), port);
    match is_any {
        true => {
            // SAFETY: the id is alive.
            unsafe { (*shared.c()).route.addr.src_storage = address::storage(local) };
            lock(&shared.state).local = Some(local);
        }
        false => shared.bind_to(agents[0], (local, None)),
    }
    lock(&shared.state).phase = Phase::Bound;
    Ok(())
}

/// Returns a random port of the range that Linux uses, for which no process listens.
pub(super) fn free_port(agents: &[&Agent], space: PortSpace) -> u16 {
    loop {
        let port = 32768 + (agent::random() % 28232) as u16;
        let service = ServiceId::of(space, port);
        if !agents.iter().any(|agent| agent.is_taken(service)) {
            return port;
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int {
    call::number("rdma_bind_addr", || {
        // SAFETY: the program passes an id and a socket address.
        let (shared, address) = unsafe { (Shared::of(id)?, address::read(addr)?) };
        bind(&shared, address)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    call::number("rdma_listen", || {
        // SAFETY: the program passes an id.
        let shared = unsafe { Shared::of(id) }?;
        if lock(&shared.state).phase == Phase::New {
            bind(&shared, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
        }
        listen(&shared, backlog)?;
        Ok(0)
    })
}

/// Backlog if the program asks for none or more, as the kernel's.
const MAX_BACKLOG: usize = 1024;

fn listen(shared: &Arc<Shared>, backlog: c_int) -> Result<(), Refusal> {
    let (phase, local, space, bound) = {
        let state = lock(&shared.state);
        (state.phase, state.local, state.space, state.agent)
    };
    let (Phase::Bound, Some(local)) = (phase, local) else {
        return Err(Refusal::invalid(format!(
            "an id that is {phase:?} cannot listen"
        )));
    };
    let backlog = match usize::try_from(backlog) {
        Ok(n @ 1..=MAX_BACKLOG) => n,
        _ => MAX_BACKLOG,
    };
    let service = ServiceId::of(space, local.port());
    let agents = match bound {
        Some(agent) => vec![agent],
        None => agent::agents()?.to_vec(),
    };
    for agent in agents {
        let listening = agent.listen(service, (shared, backlog));
        listening.map_err(|error| {
            let errno = match error.kind() {
                std::io::ErrorKind::AddrInUse => libc::EADDRINUSE,
                _ => error.raw_os_error().unwrap_or(libc::EIO),
            };
            Refusal::new(errno, format!("cannot listen at {local}: {error}"))
        })?;
        lock(&shared.state).services.push((agent, service));
    }
    lock(&shared.state).phase = Phase::Listening;
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    call::number("rdma_migrate_id", || {
        // SAFETY: the program passes an id.
        migrate(&unsafe { Shared::of(id) }?, channel)?;
        Ok(0)
    })
}

/// Moves an id and its events to another channel; without one, to its own.
pub(super) fn migrate(
    shared: &Arc<Shared>,
    c_channel: *mut rdma_event_channel,
) -> Result<(), Refusal> {
    let is_sync = c_channel.is_null();
    let c_channel = match is_sync {
        true => create_channel()?,
        false => c_channel,
    };
    // SAFETY: the program passes a channel that it has created, or it was created above.
    let channel = unsafe { Channel::of(c_channel) };
    let c = shared.c();
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

/// Returns the port of an address in C's form, in network order.
fn port_of(address: &libc::sockaddr_storage) -> u16 {
    // SAFETY: a storage is an address of the family that it names.
    let address = unsafe { address::read(std::ptr::from_ref(address).cast()) };
    address.map_or(0, |address| address.port().to_be())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the program passes an id.
    port_of(unsafe { &(*id).route.addr.src_storage })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the program passes an id.
    port_of(unsafe { &(*id).route.addr.dst_storage })
}

/// `RDMA_OPTION_ID` and its options.
const OPTION_ID: c_int = 0;
const OPTION_TOS: c_int = 0;
const OPTION_REUSEADDR: c_int = 1;
const OPTION_AFONLY: c_int = 2;
const OPTION_ACK_TIMEOUT: c_int = 3;

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: usize,
) -> c_int {
    call::number("rdma_set_option", || {
        // SAFETY: the program passes an id.
        let shared = unsafe { Shared::of(id) }?;
        let mut state = lock(&shared.state);
        // SAFETY: the program passes a value of `length` bytes.
        let first = || unsafe { value.cast::<u8>().read() };
        match (level, name, length) {
            (OPTION_ID, OPTION_TOS, 1) => state.peer.traffic_class = first(),
            (OPTION_ID, OPTION_ACK_TIMEOUT, 1) if first() < 32 => {
                state.peer.ack_timeout = first();
            }
            // Addresses are reusable once nobody listens, and an IPv6 device takes no IPv4 requests.
            (OPTION_ID, OPTION_REUSEADDR | OPTION_AFONLY, 4) => {}
            (OPTION_ID, OPTION_ACK_TIMEOUT, 1) => {
                return Err(Refusal::invalid(format!(
                    "invalid ACK timeout {}: expected 0 to 31",
                    first()
                )));
            }
            (OPTION_ID, OPTION_TOS..=OPTION_ACK_TIMEOUT, _) => {
                return Err(Refusal::invalid(format!(
                    "a value of {length} B does not fit option {name}"
                )));
            }
            _ => {
                return Err(Refusal::new(
                    libc::ENOSYS,
                    format!("option {name} of level {level} is not supported"),
                ));
            }
        }
        Ok(0)
    })
}

/// Tells the program that an operation has ended.
pub(super) fn report(shared: &Arc<Shared>, kind: Kind, status: c_int) {
    shared.push(Event::new(kind, status, shared));
}

/// The addresses of an id as IPs: an unspecified one is its device's.
pub(super) fn own_ip(local: Option<SocketAddr>) -> Option<IpAddr> {
    let ip = local?.ip().to_canonical();
    (!ip.is_unspecified()).then_some(ip)
}
