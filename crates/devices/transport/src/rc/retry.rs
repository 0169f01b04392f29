//! The requester's two retry counters (IBTA vol. 1, 9.9.2.1.1, 9.9.2.4.1).

use adverb_verbs::{RetryCount, RetryParams, WcStatus};

use crate::sequence::Seq;

#[derive(Debug)]
pub(super) struct RetryCounters {
    limit: u8,
    left: u8,
    /// None is without end.
    rnr_limit: Option<u8>,
    rnr_left: Option<u8>,
    /// The packet that it last went back to.
    gap: Option<Gap>,
}

/// Whether a missing response has been requested again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    /// It is to be.
    Due,
    /// It was, and the answer may be on its way.
    Done,
}

/// A response is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    at: Seq,
    /// The answer or refusal behind it that showed it; none while only acknowledgements have.
    shown_by: Option<Seq>,
}

impl Gap {
    /// Whether this response is one to the repeated request. They keep their order: what is in flight of
    /// the first request is behind the one that showed the gap.
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

    /// Changes the limits; none leaves one as it is.
    pub(super) fn set_limits(&mut self, limit: Option<RetryCount>, rnr: Option<RetryCount>) {
        if let Some(limit) = limit {
            (self.limit, self.left) = (limit.get(), limit.get());
        }
        if let Some(rnr) = rnr {
            (self.rnr_limit, self.rnr_left) = (rnr.as_rnr(), rnr.as_rnr());
        }
    }

    /// Something was acknowledged.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.left = self.limit;
        self.rnr_left = self.rnr_limit;
    }

    /// One retry after a timeout or a missing packet.
    ///
    /// # Errors
    /// None was left.
    pub(super) fn take(&mut self) -> Result<(), WcStatus> {
        self.left = self.left.checked_sub(1).ok_or(WcStatus::RetryExcErr)?;
        self.gap = None;
        Ok(())
    }

    /// One retry after receiver-not-ready. The packet arrived, so the retries after timeouts and missing packets
    /// begin anew: Soft-RoCE reports the packets behind it as out of sequence each time, which may come after the
    /// packet was sent again.
    ///
    /// # Errors
    /// None was left.
    pub(super) fn take_rnr(&mut self) -> Result<(), WcStatus> {
        if let Some(left) = &mut self.rnr_left {
            *left = left.checked_sub(1).ok_or(WcStatus::RnrRetryExcErr)?;
        }
        self.left = self.limit;
        Ok(())
    }

    /// One retry because the response at `at` is missing (an implied NAK), unless it was asked for again
    /// already and nothing shows that it was lost again. `shown_by` is the answer or refusal behind it that
    /// has come; none for an acknowledgement, which does not say when: a responder gives the same one
    /// several times. If no retry is left the answer may still come; else the timeout ends the request.
    pub(super) fn take_for_gap(&mut self, at: Seq, shown_by: Option<Seq>) -> Asking {
        if let Some(gap) = self.gap.as_mut().filter(|gap| gap.at == at)
            && !gap.is_shown_again_by(shown_by)
        {
            gap.shown_by = gap.shown_by.or(shown_by);
            return Asking::Done;
        }
        if self.take().is_err() {
            return Asking::Done;
        }
        self.gap = Some(Gap { at, shown_by });
        Asking::Due
    }
}
