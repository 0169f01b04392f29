//! The requester's two timers: the retransmit timer (IBTA vol. 1, 9.7.6.1.3) and the RNR timer (9.7.5.2.8).

use adverb_units::{Span, Time};
use adverb_verbs::AckTimeout;

#[derive(Debug)]
pub(super) struct Timers {
    /// `None`: infinite.
    timeout: Option<Span>,
    acknowledgement: Option<Time>,
    receiver: Option<Time>,
}

impl Timers {
    pub(super) fn new(timeout: AckTimeout) -> Self {
        Timers {
            timeout: timeout.span(),
            acknowledgement: None,
            receiver: None,
        }
    }

    /// Changes the retransmit timeout, from the next start on.
    pub(super) fn set_timeout(&mut self, timeout: AckTimeout) {
        self.timeout = timeout.span();
    }

    /// Returns the next deadline.
    pub(super) fn deadline(&self) -> Option<Time> {
        match (self.acknowledgement, self.receiver) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        }
    }

    /// Starts the retransmit timer when a packet is sent, unless it runs.
    #[inline]
    pub(super) fn sent(&mut self, now: Time) {
        if self.acknowledgement.is_none() {
            self.restart(now);
        }
    }

    /// Restarts the retransmit timer.
    #[inline]
    pub(super) fn restart(&mut self, now: Time) {
        self.acknowledgement = self.timeout.map(|span| now + span);
    }

    /// Stops the retransmit timer.
    #[inline]
    pub(super) fn stop(&mut self) {
        self.acknowledgement = None;
    }

    /// Starts the RNR timer and stops the retransmit timer.
    pub(super) fn wait_for_receiver(&mut self, now: Time, span: Span) {
        self.acknowledgement = None;
        self.receiver = Some(now + span);
    }

    /// Whether the RNR timer runs, so that nothing may be sent.
    #[inline]
    pub(super) fn waits_for_receiver(&mut self, now: Time) -> bool {
        if self.receiver.is_some_and(|until| until <= now) {
            self.receiver = None;
        }
        self.receiver.is_some()
    }

    /// Whether the retransmit timer has expired; stops it then.
    pub(super) fn is_overdue(&mut self, now: Time) -> bool {
        let overdue = self.acknowledgement.is_some_and(|deadline| deadline <= now);
        if overdue {
            self.acknowledgement = None;
        }
        overdue
    }

    /// Stops all timers.
    pub(super) fn clear(&mut self) {
        self.acknowledgement = None;
        self.receiver = None;
    }
}
