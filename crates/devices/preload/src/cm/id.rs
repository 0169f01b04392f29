//! Ids: the C structure, and the state behind it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use adverb_abi::{ibv_pd, ibv_qp, ibv_qp_init_attr, rdma_cm_id, rdma_event_channel};
use adverb_transport::cm::ConnId;
use adverb_verbs::{Gid, PathMtu, Qpn};
use adverb_wire::cm::{PortSpace, ServiceId};

use super::agent::{Agent, random};
use super::channel::{Channel, Event, destroy_channel, drop_event};
use super::event::Kind;
use super::path::PathRecord;
use super::{address, verbs};
use crate::call::Refusal;
use crate::object::{Object, lock};

/// Local ACK timeout unless the program sets it: 67 ms.
const ACK_TIMEOUT: u8 = 14;

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

/// What a queue pair needs to know of its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) gid: Option<Gid>,
    pub(super) qpn: u32,
    /// First PSN of this side's packets, which the peer has chosen (12.7.31).
    pub(super) starting_psn: u32,
    /// First PSN of the peer's packets, which this side has chosen.
    pub(super) own_psn: u32,
    pub(super) mtu: Option<PathMtu>,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) traffic_class: u8,
    pub(super) ack_timeout: u8,
}

impl Default for Peer {
    fn default() -> Self {
        Peer {
            gid: None,
            qpn: 0,
            starting_psn: 0,
            // Known from the beginning: a program may ask for the attributes of RTR before it accepts.
            own_psn: random() & 0xff_ffff,
            mtu: None,
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 7,
            rnr_retry_count: 7,
            traffic_class: 0,
            ack_timeout: ACK_TIMEOUT,
        }
    }
}

/// A multicast group that an id has joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) ip: IpAddr,
    pub(super) is_attached: bool,
}

impl Group {
    /// Detaches the queue pair, if it is attached.
    pub(super) fn leave(&self, qp: *mut ibv_qp) {
        if self.is_attached && !qp.is_null() {
            let gid = address::gid(self.ip);
            // SAFETY: the queue pair is the id's.
            unsafe { verbs::ibv_detach_mcast(qp, &raw const gid, 0) };
        }
    }
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
    pub(super) sharing: Sharing,
    pub(super) space: PortSpace,
    pub(super) agent: Option<&'static Agent>,
    pub(super) conn: Option<ConnId>,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// The queue pair of the connection on this side.
    pub(super) qpn: Option<Qpn>,
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

/// All ids, by the addresses of C's structures.
static ALIVE: Mutex<BTreeMap<usize, Arc<Shared>>> = Mutex::new(BTreeMap::new());

type IdObject = Object<rdma_cm_id, Arc<Shared>>;

impl Shared {
    /// Returns the id behind a pointer from C. perftest passes destroyed ids after a refused connection.
    pub(super) fn of(id: *const rdma_cm_id) -> Result<Arc<Self>, Refusal> {
        let known = lock(&ALIVE).get(&id.addr()).cloned();
        known.ok_or_else(|| Refusal::invalid("the id is NULL, or was destroyed"))
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
    pub(super) fn wait_for_acknowledgements(&self) {
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
                (*addr).addr.dgid = address::gid(agent.reached_as(remote.ip()));
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

    /// Adds the event of an operation that has ended.
    pub(super) fn report(self: &Arc<Self>, kind: Kind, status: c_int) {
        self.push(Event::new(kind, status, self));
    }
}

/// With which ids an id shares its port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sharing {
    /// With others that do so, too (`RDMA_OPTION_ID_REUSEADDR`).
    pub(super) reuses_address: bool,
    /// With ids of the other IP version that do so, too (`RDMA_OPTION_ID_AFONLY`); `None`: as the kernel, with an IPv4 address.
    pub(super) only_own_version: Option<bool>,
}

impl Sharing {
    fn is_for_own_version(self, address: &SocketAddr) -> bool {
        self.only_own_version.unwrap_or(address.is_ipv4())
    }
}

/// Returns the error number of the kernel (`cma_check_port`) if an id of this process is bound to the port of `at`.
pub(super) fn conflict(at: &SocketAddr, space: PortSpace, sharing: Sharing) -> Option<c_int> {
    let all: Vec<_> = lock(&ALIVE).values().cloned().collect();
    all.iter().find_map(|other| {
        let state = lock(&other.state);
        let is_bound = matches!(
            state.phase,
            Phase::Bound | Phase::Listening | Phase::AddrResolved | Phase::RouteResolved
        );
        let own = state
            .local
            .as_ref()
            .filter(|own| is_bound && state.space == space && own.port() == at.port())?;
        let may_share = sharing.reuses_address && state.sharing.reuses_address
            || own.is_ipv4() != at.is_ipv4()
                && sharing.is_for_own_version(at)
                && state.sharing.is_for_own_version(own);
        match may_share {
            true => None,
            false if own.ip().is_unspecified() || at.ip().is_unspecified() => {
                Some(libc::EADDRNOTAVAIL)
            }
            false => (own.ip() == at.ip()).then_some(libc::EADDRINUSE),
        }
    })
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
            sharing: Sharing::default(),
            space,
            agent: None,
            conn: None,
            local: None,
            remote: None,
            qpn: None,
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
    lock(&ALIVE).insert(c.addr(), shared.clone());
    shared
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
