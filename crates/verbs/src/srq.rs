//! Shared receive queues: receive requests that several queue pairs take from, in the order of
//! their posting; and the asynchronous events that belong to them.
//!
//! A receive that a queue pair has taken is that queue pair's: it completes into its completion
//! queue, and if the queue pair fails it is flushed there. What nobody has taken stays posted for
//! the others: a failing queue pair flushes none of it.
//!
//! Events are polled ([`Context::async_event`](crate::Context::async_event)), not waited for: they
//! are rare, a program looks for them between its polls, and in virtual time a poll needs no place
//! of its own to yield at.
//!
//! Sources: IBTA vol. 1, 10.2.9 (shared receive queues), 11.6.3 (asynchronous events);
//! ibv_create_srq(3), ibv_modify_srq(3), ibv_get_async_event(3).

use crate::caps::DeviceCaps;
use crate::error::{CreateError, ModifySrqError, PostError, QuerySrqError, Unsupported};
use crate::ids::{Qpn, SrqId};
use crate::work::RecvRequest;

/// Sizes of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqCaps {
    /// Receive requests outstanding.
    pub max_wr: u32,
    /// Pieces of a receive request.
    pub max_sge: u32,
}

impl SrqCaps {
    /// Holds the sizes against the limits of `device`.
    ///
    /// # Errors
    /// [`CreateError::Unsupported`] where it has no shared receive queues,
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
    /// Sizes, at least those that were asked for.
    pub caps: SrqCaps,
    /// With fewer requests posted than this the event is raised; 0: not armed.
    pub srq_limit: u32,
}

/// A shared receive queue (`ibv_srq`). It lives as long as it or a queue pair that takes from it
/// is kept.
pub trait SharedReceiveQueue {
    /// Its name in asynchronous events.
    fn id(&self) -> SrqId;

    /// Posts a list of receive requests in one call (`ibv_post_srq_recv`). On an error those
    /// before [`PostError::index`] are posted.
    ///
    /// # Errors
    /// The queue is full, or a request has more pieces than the queue was made for.
    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError>;

    /// Arms the limit (`ibv_modify_srq` with `IBV_SRQ_LIMIT`): one
    /// [`AsyncEvent::SrqLimitReached`] is raised when a receive is taken and fewer than `srq_limit`
    /// are left; that ends the arming. 0 ends it, too.
    ///
    /// # Errors
    /// The limit is beyond the queue's size.
    fn arm(&self, srq_limit: u32) -> Result<(), ModifySrqError>;

    /// Its sizes and its limit (`ibv_query_srq`).
    ///
    /// # Errors
    /// The driver refuses it.
    fn query(&self) -> Result<SrqAttr, QuerySrqError>;
}

/// What a device reports beside completions (`ibv_async_event`), as far as programs act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A shared receive queue had fewer receives left than its limit when one was taken.
    SrqLimitReached(SrqId),
    /// A queue pair with a shared receive queue is in the error state and takes no more receives:
    /// all that it took have completed.
    LastWqeReached(Qpn),
}

/// That a device has no shared receive queues.
pub(crate) fn no_srq(device: &str) -> Unsupported {
    Unsupported {
        feature: "shared receive queues",
        device: device.to_owned(),
    }
}

/// The shared receive queue of a device that has none: there is no value of it.
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
