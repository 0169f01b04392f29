//! The steps of both sides of a connection.
//!
//! ```text
//! active                                       passive
//!   rdma_resolve_addr, rdma_resolve_route         rdma_bind_addr, rdma_listen
//!   rdma_connect ----- REQ --------------------> CONNECT_REQUEST
//!                                                 RTR, RTS
//!   CONNECT_RESPONSE <------------------ REP ---- rdma_accept
//!   RTR, RTS
//!   rdma_establish --- RTU --------------------> ESTABLISHED
//! ```
//! On iWARP the adapters move the queue pairs to RTS themselves, and both sides get ESTABLISHED.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr;
use std::time::Duration;

use adverb_abi as abi;
use adverb_units::Span;
use adverb_verbs::{
    AckTimeout, ConnectError, Connection, LinkLayer, QpState, RetryCount, RnrTimer,
};

use super::Manager;
use super::address::to_c;
use super::event::{Event, end_of};
use super::id::{Id, Listener};
use super::reason::{errno_words, rejection};
use crate::address::Source;
use crate::modify::{modify_raw, mtu_code};
use crate::raw_qp::RawQp;

/// Timeout for resolving an address or a route.
const RESOLVE: Span = Span::from_secs(3);
/// Timeout for the answer of the peer.
const ANSWER: Span = Span::from_secs(10);

/// Connects `qp` to the peer, which listens.
pub(crate) fn active(
    qp: &RawQp,
    manager: &Manager,
    connection: &Connection,
) -> Result<Id, ConnectError> {
    let peer = connection.remote.cm.ok_or(ConnectError::OnlyThisManaged)?;
    let addresses = Addresses {
        from: manager.address,
        peer: scoped_as(peer, manager.address),
    };
    let id = Id::new(manager.library)?;
    addresses.resolve(&id)?;
    check_device(qp, &id)?;
    let mut param = conn_param(qp, connection);
    id.call(&format!("connect to {peer}"), |library, id| {
        // SAFETY: the id is not destroyed yet, and the structure is exclusive.
        unsafe { (library.rdma_connect)(id, &raw mut param) }
    })?;
    let answers = [
        abi::RDMA_CM_EVENT_CONNECT_RESPONSE,
        abi::RDMA_CM_EVENT_ESTABLISHED,
    ];
    let event = addresses.wait(&id, &answers, ANSWER)?;
    if event.kind == abi::RDMA_CM_EVENT_ESTABLISHED {
        qp.set_modified_to(QpState::Rts);
        return Ok(id);
    }
    ready(qp, &id, connection)?;
    id.call("establish the connection", |library, id| {
        // SAFETY: the id is not destroyed yet.
        unsafe { (library.rdma_establish)(id) }
    })?;
    Ok(id)
}

/// Accepts the connection of the peer at `listener`.
pub(crate) fn passive(
    qp: &RawQp,
    listener: &Listener,
    connection: &Connection,
) -> Result<Id, ConnectError> {
    let id = request(qp, listener, connection)?;
    check_device(qp, &id)?;
    ready(qp, &id, connection)?;
    let mut param = conn_param(qp, connection);
    id.call("accept the connection", |library, id| {
        // SAFETY: the id is not destroyed yet, and the structure is exclusive.
        unsafe { (library.rdma_accept)(id, &raw mut param) }
    })?;
    let addresses = Addresses {
        from: listener.address,
        peer: id.peer().unwrap_or(listener.address),
    };
    addresses.wait(&id, &[abi::RDMA_CM_EVENT_ESTABLISHED], ANSWER)?;
    qp.set_modified_to(QpState::Rts);
    Ok(id)
}

/// Waits for the connection request of the peer and returns its id. Rejects requests of others.
fn request(qp: &RawQp, listener: &Listener, connection: &Connection) -> Result<Id, ConnectError> {
    let end = end_of(ANSWER);
    loop {
        let event = listener.id().next(end, || ConnectError::TimedOut {
            what: format!("the peer's connection request to {}", listener.address),
            timeout: ANSWER,
        })?;
        let Some(id) = listener.id().requested(&event) else {
            continue;
        };
        // On iWARP the request does not contain the queue pair number.
        let is_iwarp = qp.handle().layer == LinkLayer::Iwarp;
        if is_iwarp || event.qp_num == connection.remote.qpn.get() {
            return Ok(id);
        }
        id.call("reject a foreign request", |library, id| {
            // SAFETY: the id is not destroyed yet.
            unsafe { (library.rdma_reject)(id, ptr::null(), 0) }
        })?;
    }
}

/// The two addresses of a connection.
struct Addresses {
    from: SocketAddr,
    peer: SocketAddr,
}

impl Addresses {
    /// Resolves the peer's address and route, which binds `id` to a device.
    fn resolve(&self, id: &Id) -> Result<(), ConnectError> {
        // Shorter than the timeout of the wait, so that the library's error with its reason arrives first.
        let timeout = Duration::from(RESOLVE / 2).as_millis() as c_int;
        let (mut from, mut to) = (to_c(self.from), to_c(self.peer));
        let resolve_addr = id.call("resolve", |library, id| {
            let (from, to) = ((&raw mut from).cast(), (&raw mut to).cast());
            // SAFETY: the id is not destroyed yet; the addresses have the layouts of their families.
            unsafe { (library.rdma_resolve_addr)(id, from, to, timeout) }
        });
        resolve_addr.map_err(|error| self.not_resolved(error))?;
        self.wait(id, &[abi::RDMA_CM_EVENT_ADDR_RESOLVED], RESOLVE)?;
        let resolve_route = id.call("resolve", |library, id| {
            // SAFETY: the id is not destroyed yet, and its address is resolved.
            unsafe { (library.rdma_resolve_route)(id, timeout) }
        });
        resolve_route.map_err(|error| self.not_resolved(error))?;
        self.wait(id, &[abi::RDMA_CM_EVENT_ROUTE_RESOLVED], RESOLVE)?;
        Ok(())
    }

    /// Adds the addresses to the error of a call that failed immediately.
    fn not_resolved(&self, error: ConnectError) -> ConnectError {
        match error {
            ConnectError::System { source, .. } => self.unreachable(source.to_string()),
            other => other,
        }
    }

    fn unreachable(&self, reason: String) -> ConnectError {
        ConnectError::Unreachable {
            from: self.from,
            peer: self.peer,
            reason,
        }
    }

    /// Waits for one of the `wanted` events.
    fn wait(&self, id: &Id, wanted: &[u32], timeout: Span) -> Result<Event, ConnectError> {
        let end = end_of(timeout);
        loop {
            let event = id.next(end, || ConnectError::TimedOut {
                what: format!("the connection manager at {}", self.peer),
                timeout,
            })?;
            if wanted.contains(&event.kind) && event.status == 0 {
                return Ok(event);
            }
            if let Some(error) = self.failure(&event) {
                return Err(error);
            }
            // A request that another program sent to the listener: dropping its id rejects it.
            drop(id.requested(&event));
        }
    }

    /// Returns the error for an unexpected event; `None` if the connection is unaffected.
    fn failure(&self, event: &Event) -> Option<ConnectError> {
        let peer = self.peer;
        match event.kind {
            abi::RDMA_CM_EVENT_REJECTED => Some(ConnectError::Rejected {
                peer,
                reason: rejection(event.status),
            }),
            abi::RDMA_CM_EVENT_DISCONNECTED => Some(ConnectError::Rejected {
                peer,
                reason: "disconnected at once".to_owned(),
            }),
            abi::RDMA_CM_EVENT_ADDR_ERROR
            | abi::RDMA_CM_EVENT_ROUTE_ERROR
            | abi::RDMA_CM_EVENT_UNREACHABLE
            | abi::RDMA_CM_EVENT_CONNECT_ERROR
            | abi::RDMA_CM_EVENT_DEVICE_REMOVAL => {
                Some(self.unreachable(errno_words(event.status)))
            }
            _ => None,
        }
    }
}

/// Gives a link-local peer the scope (network interface) of the own address.
fn scoped_as(peer: SocketAddr, own: SocketAddr) -> SocketAddr {
    match (peer, own) {
        (SocketAddr::V6(mut peer), SocketAddr::V6(own)) if peer.ip().is_unicast_link_local() => {
            peer.set_scope_id(own.scope_id());
            peer.into()
        }
        _ => peer,
    }
}

/// Checks that the connection manager uses the device and port of the queue pair: several may share a
/// network interface.
pub(super) fn check_device(qp: &RawQp, id: &Id) -> Result<(), ConnectError> {
    let handle = qp.handle();
    let wanted = (handle.raw.name(), handle.port);
    match id.device() {
        Some(found) if found == wanted => Ok(()),
        found => Err(ConnectError::OtherWay {
            found: found.map_or("no device".to_owned(), |(name, port)| {
                format!("device {name} port {port}")
            }),
            wanted: format!("device {} port {}", wanted.0, wanted.1),
            remedy: "choose that one, or another address of this port (NAME:PORT:ADDRESS)".into(),
        }),
    }
}

fn conn_param(qp: &RawQp, connection: &Connection) -> abi::rdma_conn_param {
    let (_, to_rts) = connection.attributes();
    abi::rdma_conn_param {
        responder_resources: connection.max_dest_rd_atomic,
        initiator_depth: initiator_depth(qp, connection),
        retry_count: to_rts.retry_cnt.map_or(0, RetryCount::get),
        rnr_retry_count: to_rts.rnr_retry.map_or(0, RetryCount::get),
        qp_num: qp.qpn().get(),
        ..abi::rdma_conn_param::zeroed()
    }
}

/// Returns `max_rd_atomic`, limited to what the device supports as the requester.
fn initiator_depth(qp: &RawQp, connection: &Connection) -> u8 {
    let most = qp.handle().attr.max_qp_init_rd_atom.clamp(0, 255) as u8;
    connection.max_rd_atomic.min(most)
}

/// Moves the queue pair to RTS with the attributes of the connection manager.
///
/// Attributes that the program chose override what the manager chose, because its timers do not suit
/// measurements (its RNR timer is 655 ms).
fn ready(qp: &RawQp, id: &Id, connection: &Connection) -> Result<(), ConnectError> {
    let (to_rtr, to_rts) = connection.attributes();
    let is_iwarp = qp.handle().layer == LinkLayer::Iwarp;
    if !is_iwarp {
        let (mut attr, mask) = id.attributes(QpState::Init)?;
        // The program has set the access flags already.
        modify_raw(qp, &mut attr, mask & !abi::IBV_QP_ACCESS_FLAGS)?;
    }
    let (mut attr, mask) = id.attributes(QpState::Rtr)?;
    check_gid(qp, &attr)?;
    let (source, options) = (Source::of(qp.handle()), &connection.options);
    source.choose(&mut attr.ah_attr, (&connection.address(), options));
    attr.path_mtu = attr.path_mtu.min(to_rtr.path_mtu.map_or(0, mtu_code));
    attr.max_dest_rd_atomic = connection.max_dest_rd_atomic;
    attr.min_rnr_timer = to_rtr.min_rnr_timer.map_or(0, RnrTimer::code);
    modify_raw(qp, &mut attr, mask)?;
    let (mut attr, mask) = id.attributes(QpState::Rts)?;
    attr.timeout = to_rts.timeout.map_or(0, AckTimeout::code);
    attr.retry_cnt = to_rts.retry_cnt.map_or(0, RetryCount::get);
    attr.rnr_retry = to_rts.rnr_retry.map_or(0, RetryCount::get);
    attr.max_rd_atomic = initiator_depth(qp, connection);
    modify_raw(qp, &mut attr, mask)?;
    Ok(())
}

/// Checks that on RoCE packets are sent from the GID that the records report.
fn check_gid(qp: &RawQp, attr: &abi::ibv_qp_attr) -> Result<(), ConnectError> {
    let handle = qp.handle();
    let found = u32::from(attr.ah_attr.grh.sgid_index);
    if handle.layer != LinkLayer::Ethernet || found == handle.gid.index {
        return Ok(());
    }
    Err(ConnectError::OtherWay {
        found: format!("GID index {found}"),
        wanted: format!("GID index {}", handle.gid.index),
        remedy: format!(
            "choose index {found} on this side (NAME:PORT:{found}), or set the connection \
             manager's version of RoCE (`cma_roce_mode`)"
        ),
    })
}
