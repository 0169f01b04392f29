//! Connecting queue pairs: the endpoints that two sides exchange out of band, and the transitions to
//! RTS by the program (INIT → RTR → RTS) or by a connection manager.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

use adverb_units::Span;
use serde::{Deserialize, Serialize};

use crate::caps::{PathMtu, PortCaps};
use crate::device::QueuePair;
use crate::error::ModifyQpError;
use crate::ids::{Gid, Lid, PortNum, Psn, Qpn};
use crate::path::{PathOptionError, PathOptions};
use crate::qp::{AddressVector, QpAttr, QpState, QpType};

/// One end of a connection: the address of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The queue pair.
    pub qpn: Qpn,
    /// PSN of its first packet, if the program connects it.
    pub psn: Psn,
    /// GID of its port.
    pub gid: Gid,
    /// LID of its port; 0 if there is none.
    pub lid: Lid,
    /// Its port.
    pub port: PortNum,
    /// Address on which its connection manager listens; `None` without one.
    pub cm: Option<SocketAddr>,
}

impl Endpoint {
    /// Returns the endpoint of a queue pair at a port, without a connection manager. [`first_psn`] gives its
    /// first PSN.
    pub fn new(qpn: Qpn, secret: u64, (port, caps): (PortNum, &PortCaps)) -> Self {
        Endpoint {
            qpn,
            psn: first_psn(qpn, secret),
            gid: caps.gid,
            lid: caps.lid,
            port,
            cm: None,
        }
    }
}

/// Returns a PSN for the first packet of a queue pair. Any PSN works, unless an earlier connection used
/// it and its packets may still be in flight. With [`Station::secret`](crate::Station::secret) that is unlikely, and a
/// peer that knows some of the PSNs can derive neither the others nor the secret.
pub fn first_psn(qpn: Qpn, secret: u64) -> Psn {
    let mut hasher = DefaultHasher::new();
    (secret, qpn).hash(&mut hasher);
    Psn::new((hasher.finish() >> 40) as u32)
}

/// The parameters of a connection. The side whose own endpoint listens is the passive one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The endpoint of this side.
    pub local: Endpoint,
    /// The endpoint of the peer.
    pub remote: Endpoint,
    /// Path MTU if `options` sets none: the largest MTU that both ports support.
    pub path_mtu: PathMtu,
    /// Outstanding READs and atomics as the requester (`initiator_depth`).
    pub max_rd_atomic: u8,
    /// Outstanding READs and atomics as the responder (`responder_resources`).
    pub max_dest_rd_atomic: u8,
    /// Options of the path.
    pub options: PathOptions,
}

impl Connection {
    /// Returns the address vector of the peer, with the traffic class, service level and rate of `options`.
    pub fn address(&self) -> AddressVector {
        AddressVector {
            traffic_class: self.options.traffic_class.unwrap_or_default(),
            service_level: self.options.service_level.unwrap_or_default(),
            static_rate: self.options.rate,
            ..AddressVector::new(self.remote.gid, self.remote.lid, self.local.port)
        }
    }

    /// Returns the attributes of INIT → RTR and of RTR → RTS.
    pub fn attributes(&self) -> (QpAttr, QpAttr) {
        let (remote, retry) = (&self.remote, self.options.retry_params());
        let path_mtu = self.options.path_mtu.unwrap_or(self.path_mtu);
        let mut to_rtr = QpAttr::to_rtr(self.address(), remote.qpn, remote.psn, path_mtu);
        to_rtr.max_dest_rd_atomic = Some(self.max_dest_rd_atomic);
        let mut to_rts = QpAttr::to_rts(self.local.psn);
        to_rts.max_rd_atomic = Some(self.max_rd_atomic);
        to_rts.timeout = Some(retry.timeout);
        to_rts.retry_cnt = Some(retry.retry_cnt);
        to_rts.rnr_retry = Some(retry.rnr_retry);
        (to_rtr, to_rts)
    }

    /// Returns the attributes for UC, which has no READs, timers and retries.
    fn unreliable_attributes(&self) -> (QpAttr, QpAttr) {
        let (mut to_rtr, _) = self.attributes();
        (to_rtr.max_dest_rd_atomic, to_rtr.min_rnr_timer) = (None, None);
        let mut to_rts = QpAttr::to(QpState::Rts);
        to_rts.sq_psn = Some(self.local.psn);
        (to_rtr, to_rts)
    }

    /// Moves `qp`, an RC queue pair in INIT, to RTS.
    ///
    /// # Errors
    /// The peer waits for a connection manager, or a transition is refused.
    pub fn by_hand<Q: QueuePair>(&self, qp: &Q) -> Result<(), ConnectError> {
        self.by_hand_as(QpType::Rc, qp)
    }

    /// Moves `qp`, a queue pair of this type in INIT, to RTS.
    ///
    /// # Errors
    /// The peer waits for a connection manager, or a transition is refused.
    pub fn by_hand_as<Q: QueuePair>(&self, qp_type: QpType, qp: &Q) -> Result<(), ConnectError> {
        if let Some(peer) = self.remote.cm {
            return Err(ConnectError::OnlyPeerManaged { peer });
        }
        let (to_rtr, to_rts) = match qp_type {
            QpType::Rc => self.attributes(),
            _ => self.unreliable_attributes(),
        };
        qp.modify(&to_rtr)?;
        qp.modify(&to_rts)?;
        Ok(())
    }
}

/// Two queue pairs could not be connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A transition was refused.
    #[error(transparent)]
    Modify(#[from] ModifyQpError),
    /// The device does not support an option of the path.
    #[error(transparent)]
    PathOption(#[from] PathOptionError),
    /// The peer listens for a connection manager, which this side does not use.
    #[error(
        "the peer waits for the connection manager at {peer}, this side connects by hand; name \
         both devices verbs+cm:NAME, or both verbs:NAME"
    )]
    OnlyPeerManaged {
        /// Address on which it listens.
        peer: SocketAddr,
    },
    /// This side connects through the connection manager, but the peer does not listen for it.
    #[error(
        "this side connects through the connection manager, the peer by hand; name both devices \
         verbs+cm:NAME, or both verbs:NAME"
    )]
    OnlyThisManaged,
    /// The peer's connection manager rejected the connection.
    #[error("the peer at {peer} rejected the connection: {reason}")]
    Rejected {
        /// Its address.
        peer: SocketAddr,
        /// The reason, in the words of the specification.
        reason: String,
    },
    /// The peer's address or route could not be resolved.
    #[error(
        "no route from {from} to {peer}: {reason}; check that both have addresses of the same network \
         (`ip route get {}`)", peer.ip()
    )]
    Unreachable {
        /// This side's address.
        from: SocketAddr,
        /// The address of the peer.
        peer: SocketAddr,
        /// The error of the connection manager.
        reason: String,
    },
    /// The connection manager uses another device, port or GID than the chosen one.
    #[error("the connection manager uses {found} instead of {wanted}; {remedy}")]
    OtherWay {
        /// What it uses.
        found: String,
        /// What was chosen.
        wanted: String,
        /// The remedy.
        remedy: String,
    },
    /// The peer did not answer in time.
    #[error("timed out after {timeout} waiting for {what}")]
    TimedOut {
        /// The awaited event.
        what: String,
        /// The timeout.
        timeout: Span,
    },
    /// The operating system refused.
    #[error("{action}: {source}")]
    System {
        /// The failed action.
        action: String,
        /// The system's error.
        source: std::io::Error,
    },
}

impl ConnectError {
    /// Whether a failure of the peer may be the cause.
    pub fn may_be_the_peers(&self) -> bool {
        matches!(
            self,
            ConnectError::Rejected { .. } | ConnectError::TimedOut { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first PSN was the number of the queue pair XOR the upper bits of a memory key.
    #[test]
    fn first_psns_depend_on_the_secret_and_on_the_queue_pair() {
        let qpn = |number| Qpn::new(number).unwrap();
        assert_eq!(first_psn(qpn(1), 7), first_psn(qpn(1), 7));
        assert_ne!(first_psn(qpn(1), 7), first_psn(qpn(2), 7));
        assert_ne!(first_psn(qpn(1), 7), first_psn(qpn(1), 8));
    }
}
