//! Events of connections.

use adverb_wire::cm::{Rej, RejectReason, Rep, Req, ServiceId, SidrRep, SidrReq};

/// Name of a connection or SIDR request at its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u32);

/// What has happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "events are few and short-lived")]
pub enum CmEvent<P> {
    /// A peer requests a connection.
    Request {
        /// The new connection.
        id: ConnId,
        /// The peer.
        peer: P,
        /// The request.
        req: Req,
    },
    /// A peer asks for the queue pair of a UD service.
    SidrRequest {
        /// The new request.
        id: ConnId,
        /// The peer.
        peer: P,
        /// The request.
        req: SidrReq,
    },
    /// The peer accepts: the program answers with an RTU.
    Replied {
        /// The connection.
        id: ConnId,
        /// The reply.
        rep: Rep,
    },
    /// The peer has answered the reply.
    Established {
        /// The connection.
        id: ConnId,
    },
    /// The peer refuses; the connection is gone.
    Rejected {
        /// The connection.
        id: ConnId,
        /// Reason in the REJ.
        reason: RejectReason,
        /// Private data.
        private_data: [u8; Rej::PRIVATE],
    },
    /// The peer has not answered in time; the connection is gone.
    Unreachable {
        /// The connection.
        id: ConnId,
    },
    /// The connection has ended. It is in TimeWait.
    Disconnected {
        /// The connection.
        id: ConnId,
    },
    /// The name of an ended connection is free.
    TimewaitExit {
        /// The connection.
        id: ConnId,
    },
    /// The answer to a SIDR_REQ; the request is gone.
    SidrReplied {
        /// The request.
        id: ConnId,
        /// The answer.
        rep: SidrRep,
    },
}

impl<P> CmEvent<P> {
    /// Returns the connection.
    pub const fn conn(&self) -> ConnId {
        match self {
            CmEvent::Request { id, .. }
            | CmEvent::SidrRequest { id, .. }
            | CmEvent::Replied { id, .. }
            | CmEvent::Established { id }
            | CmEvent::Rejected { id, .. }
            | CmEvent::Unreachable { id }
            | CmEvent::Disconnected { id }
            | CmEvent::TimewaitExit { id }
            | CmEvent::SidrReplied { id, .. } => *id,
        }
    }

    /// Returns the service that a peer requests, with the new connection.
    pub const fn request(&self) -> Option<(ServiceId, ConnId)> {
        match self {
            CmEvent::Request { id, req, .. } => Some((req.service, *id)),
            CmEvent::SidrRequest { id, req, .. } => Some((req.service, *id)),
            _ => None,
        }
    }
}
