//! The requester's two retry counters (IBTA vol. 1, 9.9.2.1.1, 9.9.2.4.1).

use adverb_verbs::{RetryCount, WcStatus};

use crate::sequence::Seq;

#[derive(Debug)]
pub(super) struct Retries {
    limit: u8,
    left: u8,
    /// None is without end.
    rnr_limit: Option<u8>,
    rnr_left: Option<u8>,
    /// Where it went back last because of a gap in the responses.
    gap: Option<Seq>,
}

impl Retries {
    pub(super) fn new(limit: RetryCount, rnr: RetryCount) -> Self {
        Retries {
            limit: limit.get(),
            left: limit.get(),
            rnr_limit: rnr.as_rnr(),
            rnr_left: rnr.as_rnr(),
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

    /// One retry after receiver-not-ready.
    ///
    /// # Errors
    /// None was left.
    pub(super) fn take_rnr(&mut self) -> Result<(), WcStatus> {
        if let Some(left) = &mut self.rnr_left {
            *left = left.checked_sub(1).ok_or(WcStatus::RnrRetryExcErr)?;
        }
        Ok(())
    }

    /// Whether responses missing from `at` on are a reason to go back: once, because those that were
    /// under way meanwhile show the same gap. If that does not help, the timeout does.
    pub(super) fn is_new_gap(&mut self, at: Seq) -> bool {
        self.gap.replace(at) != Some(at)
    }
}
