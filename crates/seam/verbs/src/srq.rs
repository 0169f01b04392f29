//! Shared receive queues, from which several queue pairs take receives in the order of posting, and
//! their asynchronous events.
//!
//! A receive belongs to the queue pair that has taken it: it completes into the completion queue of
//! that queue pair, and is flushed there if it fails. Receives that no queue pair has taken stay
//! posted; a failing queue pair does not flush them.
//!
//! Events are polled ([`Context::async_event`](crate::Context::async_event)): they are rare, programs
//! check for them between polls, and polling does not yield in virtual time.
//!
//! Sources: IBTA vol. 1, 10.2.9 (shared receive queues), 11.6.3 (asynchronous events);
//! ibv_create_srq(3), ibv_modify_srq(3), ibv_get_async_event(3).

use crate::caps::DeviceCaps;
use crate::error::{CreateError, ModifySrqError, PostError, QuerySrqError, Unsupported};
use crate::ids::{CqId, Qpn, SrqId};
use crate::work::RecvRequest;

/// Sizes of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqCaps {
    /// Receive requests outstanding.
    pub max_wr: u32,
    /// SGEs of a receive request.
    pub max_sge: u32,
}

impl SrqCaps {
    /// Checks the sizes against the limits of `device`.
    ///
    /// # Errors
    /// [`CreateError::Unsupported`] if it has no shared receive queues,
    /// [`CreateError::OutOfRange`] for the first size that is out of its range.
    pub fn check(&self, limits: &DeviceCaps, device: &str) -> Result<(), CreateError> {
        if limits.max_srq == 0 {
            return Err(no_srq(device).into());
        }
        let sizes = [
            ("max_wr", self.max_wr, 1, limits.max_srq_wr),
            ("max_sge", self.max_sge, 0, limits.max_srq_sge),
        ];
        let wrong = sizes
            .into_iter()
            .find(|(_, asked, min, max)| !(min..=max).contains(&asked));
        match wrong {
            None => Ok(()),
            Some((what, value, min, max)) => Err(CreateError::OutOfRange {
                what,
                value: value.into(),
                min: min.into(),
                max: max.into(),
            }),
        }
    }
}

/// State of a shared receive queue (`ibv_srq_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttr {
    /// Sizes, at least the requested ones.
    pub caps: SrqCaps,
    /// The event is raised when fewer requests than this are posted; 0 if not armed.
    pub srq_limit: u32,
}

/// A shared receive queue (`ibv_srq`). It is destroyed when it and all queue pairs that use it are
/// dropped.
pub trait SharedReceiveQueue {
    /// Returns its id in asynchronous events.
    fn id(&self) -> SrqId;

    /// Posts a list of receive requests in one call (`ibv_post_srq_recv`). On an error the requests
    /// before [`PostError::index`] are posted.
    ///
    /// # Errors
    /// The queue is full, or a request has too many SGEs.
    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError>;

    /// Arms the limit (`ibv_modify_srq` with `IBV_SRQ_LIMIT`): one
    /// [`AsyncEvent::SrqLimitReached`] is raised when a receive is taken and fewer than `srq_limit`
    /// are left, which disarms it. 0 disarms it, too.
    ///
    /// # Errors
    /// The limit exceeds the size of the queue.
    fn arm(&self, srq_limit: u32) -> Result<(), ModifySrqError>;

    /// Queries the sizes and the limit (`ibv_query_srq`).
    ///
    /// # Errors
    /// The driver refuses the query.
    fn query(&self) -> Result<SrqAttr, QuerySrqError>;
}

/// An asynchronous event (`ibv_async_event`) that programs act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A shared receive queue had fewer receives left than its limit when one was taken.
    SrqLimitReached(SrqId),
    /// A queue pair with a shared receive queue is in the error state and takes no more receives:
    /// all that it took have completed.
    LastWqeReached(Qpn),
    /// A completion queue had more completions than entries (`CQ_ERR`); some are lost.
    CqError(CqId),
    /// A peer's request violated the access rights of a region or queue pair, which has failed (`QP_ACCESS_ERR`).
    QpAccessError(Qpn),
    /// A peer's request was invalid, and the queue pair has failed (`QP_REQ_ERR`).
    QpRequestError(Qpn),
    /// The first packet of the peer arrived while the queue pair was in RTR (`COMM_EST`).
    CommunicationEstablished(Qpn),
}

impl AsyncEvent {
    /// Returns the queue pair that the event is about.
    #[must_use]
    pub const fn qpn(self) -> Option<Qpn> {
        match self {
            AsyncEvent::LastWqeReached(qpn)
            | AsyncEvent::QpAccessError(qpn)
            | AsyncEvent::QpRequestError(qpn)
            | AsyncEvent::CommunicationEstablished(qpn) => Some(qpn),
            AsyncEvent::SrqLimitReached(_) | AsyncEvent::CqError(_) => None,
        }
    }
}

/// Returns the error that a device has no shared receive queues.
pub(crate) fn no_srq(device: &str) -> Unsupported {
    Unsupported {
        feature: "shared receive queues",
        device: device.to_owned(),
    }
}

/// The type of shared receive queues of a device without any: it has no values.
#[derive(Clone, Copy, Debug)]
pub enum NoSrq {}

impl SharedReceiveQueue for NoSrq {
    fn id(&self) -> SrqId {
        match *self {}
    }

    fn post_recv(&self, _requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        match *self {}
    }

    fn arm(&self, _srq_limit: u32) -> Result<(), ModifySrqError> {
        match *self {}
    }

    fn query(&self) -> Result<SrqAttr, QuerySrqError> {
        match *self {}
    }
}
