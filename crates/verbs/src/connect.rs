//! What two ends tell each other out of band before their queue pairs can talk, and how they are
//! connected then: by hand (INIT → RTR → RTS) or by a connection manager.

use std::net::SocketAddr;

use adverb_units::Span;
use serde::{Deserialize, Serialize};

use crate::caps::PathMtu;
use crate::device::QueuePair;
use crate::error::ModifyQpError;
use crate::ids::{Gid, Lid, PortNum, Psn, Qpn, Rkey};
use crate::path::{PathOptionError, PathOptions};
use crate::qp::{AddressVector, QpAttr, QpState, QpType};

/// One end of a connection: the address of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The queue pair.
    pub qpn: Qpn,
    /// The first packet it will send, where it is connected by hand.
    pub psn: Psn,
    /// Its port's GID.
    pub gid: Gid,
    /// Its port's LID; 0 where there is none.
    pub lid: Lid,
    /// Its port.
    pub port: PortNum,
    /// Where its connection manager listens; none where it does not.
    pub cm: Option<SocketAddr>,
}

/// A number for the first packet of a queue pair. Any will do, but that of an earlier connection, of
/// which packets may still be under way: `key` is that of a region of the same side, which is drawn at
/// random or was never drawn before.
pub const fn first_psn(qpn: Qpn, key: Rkey) -> Psn {
    Psn::new(qpn.get() ^ key.0 >> 8)
}

/// A connection as both sides want it. The side whose own endpoint listens is the passive one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// This side's end.
    pub local: Endpoint,
    /// The peer's.
    pub remote: Endpoint,
    /// Path MTU if `options` sets none: the largest MTU that both ports support.
    pub path_mtu: PathMtu,
    /// READs and atomics under way from this side (`initiator_depth`).
    pub max_rd_atomic: u8,
    /// READs and atomics taken from the peer at a time (`responder_resources`).
    pub max_dest_rd_atomic: u8,
    /// What the program chose for the path.
    pub options: PathOptions,
}

impl Connection {
    /// Returns the address vector of the peer, with the traffic class and service level of `options`.
    pub fn address(&self) -> AddressVector {
        AddressVector {
            traffic_class: self.options.traffic_class.unwrap_or_default(),
            service_level: self.options.service_level.unwrap_or_default(),
            ..AddressVector::new(self.remote.gid, self.remote.lid, self.local.port)
        }
    }

    /// The attributes of INIT → RTR, and those of RTR → RTS.
    pub fn attributes(&self) -> (QpAttr, QpAttr) {
        let (remote, retry) = (&self.remote, self.options.retry_params());
        let path_mtu = self.options.path_mtu.unwrap_or(self.path_mtu);
        let mut to_rtr = QpAttr::to_rtr(self.address(), remote.qpn, remote.psn, path_mtu);
        to_rtr.max_dest_rd_atomic = Some(self.max_dest_rd_atomic);
        let mut to_rts = QpAttr::to_rts(self.local.psn);
        to_rts.max_rd_atomic = Some(self.max_rd_atomic);
        to_rts.timeout = Some(retry.timeout);
        to_rts.retry_cnt = Some(retry.retry_cnt);
        (to_rtr, to_rts)
    }

    /// The same for a queue pair of another service than RC, which has no READs, timers and retries.
    fn unreliable_attributes(&self) -> (QpAttr, QpAttr) {
        let (mut to_rtr, _) = self.attributes();
        (to_rtr.max_dest_rd_atomic, to_rtr.min_rnr_timer) = (None, None);
        let mut to_rts = QpAttr::to(QpState::Rts);
        to_rts.sq_psn = Some(self.local.psn);
        (to_rtr, to_rts)
    }

    /// Connects `qp`, an RC one, by hand: it is in INIT, and in RTS then.
    ///
    /// # Errors
    /// The peer waits for a connection manager, or a transition is refused.
    pub fn by_hand<Q: QueuePair>(&self, qp: &Q) -> Result<(), ConnectError> {
        self.by_hand_as(QpType::Rc, qp)
    }

    /// Connects `qp`, of this type, by hand: it is in INIT, and in RTS then.
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

/// Why two queue pairs could not be connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A transition was refused.
    #[error(transparent)]
    Modify(#[from] ModifyQpError),
    /// The device cannot do what an option of the path asks for.
    #[error(transparent)]
    PathOption(#[from] PathOptionError),
    /// The peer listens for a connection manager, which this side does not use.
    #[error(
        "the peer waits for the connection manager at {peer}, this side connects by hand; name \
         both devices verbs+cm:NAME, or both verbs:NAME"
    )]
    OnlyPeerManaged {
        /// Where it listens.
        peer: SocketAddr,
    },
    /// The peer does not listen for the connection manager, by which this side connects.
    #[error(
        "this side connects through the connection manager, the peer by hand; name both devices \
         verbs+cm:NAME, or both verbs:NAME"
    )]
    OnlyThisManaged,
    /// The peer's connection manager refused.
    #[error("the peer at {peer} rejected the connection: {reason}")]
    Rejected {
        /// Its address.
        peer: SocketAddr,
        /// Why, in the words of the specification.
        reason: String,
    },
    /// No way to the peer was found.
    #[error(
        "no way from {from} to {peer}: {reason}; see that both have addresses of one network \
         (`ip route get {}`)", peer.ip()
    )]
    Unreachable {
        /// This side's address.
        from: SocketAddr,
        /// The peer's.
        peer: SocketAddr,
        /// What the connection manager said.
        reason: String,
    },
    /// The connection manager took another way than the one chosen.
    #[error("the connection manager uses {found}, chosen was {wanted}; {remedy}")]
    OtherWay {
        /// What it uses.
        found: String,
        /// What was chosen.
        wanted: String,
        /// What to do.
        remedy: String,
    },
    /// The peer did not answer in time.
    #[error("waited {patience} for {what}, in vain")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        patience: Span,
    },
    /// The operating system refused.
    #[error("{action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl ConnectError {
    /// Whether a failure of the peer may be behind it.
    pub fn may_be_the_peers(&self) -> bool {
        matches!(
            self,
            ConnectError::Rejected { .. } | ConnectError::TimedOut { .. }
        )
    }
}
