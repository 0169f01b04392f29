//! The requester's two retry counters (IBTA vol. 1, 9.9.2.1.1, 9.9.2.4.1).

use adverb_verbs::{RetryCount, RetryParams, WcStatus};

use crate::sequence::Seq;

#[derive(Debug)]
pub(super) struct RetryCounters {
    limit: u8,
    left: u8,
    /// `None`: unlimited.
    rnr_limit: Option<u8>,
    rnr_left: Option<u8>,
    /// The gap for which it last went back.
    gap: Option<Gap>,
}

/// Whether to request a missing response again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GapRetry {
    /// Request it.
    Due,
    /// It was requested, and the response may be in flight; or no retry is left.
    Pending,
}

/// A gap in the responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    at: Seq,
    /// The response or NAK after the gap that showed it. `None` while only ACKs have.
    shown_by: Option<Seq>,
}

impl Gap {
    /// Whether the response belongs to the repeated request, so that it shows a new loss. Responses are sent in order:
    /// responses to the first request that are still in flight come after the one that showed the gap.
    fn is_shown_again_by(&self, response: Option<Seq>) -> bool {
        matches!((self.shown_by, response), (Some(first), Some(now)) if now <= first)
    }
}

impl RetryCounters {
    pub(super) fn new(retry: &RetryParams) -> Self {
        let (limit, rnr_limit) = (retry.retry_cnt.get(), retry.rnr_retry.as_rnr());
        RetryCounters {
            limit,
            left: limit,
            rnr_limit,
            rnr_left: rnr_limit,
            gap: None,
        }
    }

    /// Changes the limits. `None` leaves a limit unchanged.
    pub(super) fn set_limits(&mut self, limit: Option<RetryCount>, rnr: Option<RetryCount>) {
        if let Some(limit) = limit {
            (self.limit, self.left) = (limit.get(), limit.get());
        }
        if let Some(rnr) = rnr {
            (self.rnr_limit, self.rnr_left) = (rnr.as_rnr(), rnr.as_rnr());
        }
    }

    /// Resets the counters after something was acknowledged.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.left = self.limit;
        self.rnr_left = self.rnr_limit;
    }

    /// Takes a retry after a timeout or a missing packet.
    ///
    /// # Errors
    /// No retry is left.
    pub(super) fn take(&mut self) -> Result<(), WcStatus> {
        self.left = self.left.checked_sub(1).ok_or(WcStatus::RetryExcErr)?;
        self.gap = None;
        Ok(())
    }

    /// Takes a retry after an RNR NAK. The packet arrived, so the other counter is reset: Soft-RoCE also reports each
    /// packet behind it as out of sequence, and these NAKs may arrive after the packet was sent again.
    ///
    /// # Errors
    /// No retry is left.
    pub(super) fn take_rnr(&mut self) -> Result<(), WcStatus> {
        if let Some(left) = &mut self.rnr_left {
            *left = left.checked_sub(1).ok_or(WcStatus::RnrRetryExcErr)?;
        }
        self.left = self.limit;
        Ok(())
    }

    /// Takes a retry because the response at `at` is missing (an implied NAK), unless it was requested again and nothing
    /// shows that it was lost again. `shown_by` is the response or NAK after it that has arrived; `None` for an ACK,
    /// because a responder may repeat one at any time. If no retry is left, the response may still arrive; otherwise
    /// the timeout ends the request.
    pub(super) fn retry_gap(&mut self, at: Seq, shown_by: Option<Seq>) -> GapRetry {
        if let Some(gap) = self.gap.as_mut().filter(|gap| gap.at == at)
            && !gap.is_shown_again_by(shown_by)
        {
            gap.shown_by = gap.shown_by.or(shown_by);
            return GapRetry::Pending;
        }
        if self.take().is_err() {
            return GapRetry::Pending;
        }
        self.gap = Some(Gap { at, shown_by });
        GapRetry::Due
    }
}
