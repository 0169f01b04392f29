//! The retry logic of a queue pair: RNR pauses and the retransmission timer (IBTA vol. 1, 9.7.5.1, 9.9.2).

use adverb_units::{Span, Time};
use adverb_verbs::{AckTimeout, QpAttr, RetryCount};

/// What the requester does when its retransmission timer fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// An answer has restarted the timer: it fires again at this time.
    Later(Time),
    /// It resends all requests from the first unanswered one (go-back-N).
    Resend,
    /// `retry_cnt` is used up.
    Exhausted,
}

/// Retry counters and timers of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    /// `None`: never.
    timeout: Option<Span>,
    retry_cnt: u8,
    /// `None`: unlimited.
    rnr_retry: Option<u8>,
    retries_left: u8,
    rnr_retries_left: Option<u8>,
    /// Whether an event for the timer is scheduled.
    is_timer_running: bool,
    last_answer: Time,
    /// Whether the send queue pauses after an RNR NAK.
    is_paused: bool,
    /// The gap in the responses for which requests were last sent again: the request whose response was missing, and the
    /// one whose response showed that.
    gap: Option<(u64, u64)>,
}

impl Retry {
    pub(super) fn reset(&mut self) {
        (self.is_paused, self.is_timer_running) = (false, false);
        self.gap = None;
    }

    pub(super) fn apply(&mut self, attr: &QpAttr) {
        if let Some(timeout) = attr.timeout {
            self.timeout = AckTimeout::span(timeout);
        }
        if let Some(count) = attr.retry_cnt {
            self.retry_cnt = count.get();
            self.retries_left = count.get();
        }
        if let Some(count) = attr.rnr_retry {
            self.rnr_retry = RetryCount::as_rnr(count);
            self.rnr_retries_left = self.rnr_retry;
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// An answer other than an RNR NAK has arrived: all retries are available again.
    #[inline]
    pub(crate) fn answered(&mut self, now: Time) {
        self.last_answer = now;
        self.rnr_retries_left = self.rnr_retry;
        self.restore();
    }

    /// An RNR NAK has arrived. It restarts the timer, but does not renew the retries.
    pub(crate) fn not_ready(&mut self, now: Time) {
        self.last_answer = now;
    }

    /// A DC initiator has connected: all retransmissions are available again.
    pub(crate) fn restore(&mut self) {
        self.retries_left = self.retry_cnt;
    }

    /// Returns whether to send request `missing` again, because the response to `shown_by` arrives without its own: unless
    /// it was sent again, and nothing shows that its response was lost again. Responses to what was first sent come after
    /// the one that showed the gap.
    pub(crate) fn is_due(&mut self, missing: u64, shown_by: u64) -> bool {
        if let Some((gap, first)) = self.gap
            && gap == missing
            && shown_by > first
        {
            return false;
        }
        self.gap = Some((missing, shown_by));
        true
    }

    /// Pauses the send queue after an RNR NAK; returns false if `rnr_retry` is used up.
    pub(crate) fn pause(&mut self) -> bool {
        match &mut self.rnr_retries_left {
            Some(0) => return false,
            Some(left) => *left -= 1,
            None => {}
        }
        self.is_paused = true;
        true
    }

    pub(crate) fn resume(&mut self) {
        self.is_paused = false;
    }

    /// Starts the timer unless it runs; returns when it fires.
    pub(crate) fn start_timer(&mut self, now: Time) -> Option<Time> {
        let timeout = self.timeout.filter(|_| !self.is_timer_running)?;
        self.is_timer_running = true;
        Some(now + timeout)
    }

    pub(crate) fn timer_fired(&mut self) {
        self.is_timer_running = false;
    }

    /// Returns what to do after the timer has fired while a request is unanswered.
    pub(crate) fn expire(&mut self, now: Time) -> Expiry {
        let due = self
            .timeout
            .map_or(now, |timeout| self.last_answer + timeout);
        if due > now {
            self.is_timer_running = true;
            return Expiry::Later(due);
        }
        if self.retries_left == 0 {
            return Expiry::Exhausted;
        }
        self.retries_left -= 1;
        self.gap = None;
        Expiry::Resend
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_verbs::QpState;

    fn retry() -> Retry {
        let mut attr = QpAttr::to(QpState::Rts);
        attr.timeout = AckTimeout::new(14);
        (attr.retry_cnt, attr.rnr_retry) = (RetryCount::new(1), RetryCount::new(1));
        let mut retry = Retry::default();
        retry.apply(&attr);
        retry
    }

    #[test]
    fn an_answer_restarts_the_timer_and_restores_the_retries() {
        let mut retry = retry();
        let due = retry.start_timer(Time::ZERO).unwrap();
        assert_eq!(retry.start_timer(Time::ZERO), None, "it runs");
        retry.timer_fired();
        assert_eq!(retry.expire(due), Expiry::Resend);
        assert_eq!(retry.expire(due), Expiry::Exhausted);
        retry.answered(due);
        let later = due + due.since(Time::ZERO);
        assert_eq!(retry.expire(due), Expiry::Later(later));
        assert_eq!(retry.expire(later), Expiry::Resend);
    }

    #[test]
    fn a_missing_response_is_requested_once_until_it_is_lost_again() {
        let mut retry = Retry::default();
        assert!(retry.is_due(5, 7));
        assert!(!retry.is_due(5, 8) && !retry.is_due(5, 9));
        assert!(retry.is_due(5, 6), "a response to the repeated request");
        assert!(retry.is_due(6, 7), "another gap");
        retry.retry_cnt = 1;
        retry.restore();
        assert_eq!(retry.expire(Time::ZERO), Expiry::Resend);
        assert!(retry.is_due(6, 9), "all was sent again");
    }

    #[test]
    fn an_rnr_nak_uses_up_rnr_retries_only() {
        let mut retry = retry();
        assert!(retry.pause() && retry.is_paused());
        retry.not_ready(Time::ZERO);
        assert!(!retry.pause(), "one retry was allowed");
        retry.answered(Time::ZERO);
        assert!(retry.pause());
    }
}
