//! Arms a completion queue (`ibv_req_notify_cq`) without losing an event between arming and polling.
//!
//! ```text
//!   owner                          producer
//!   armed = on        (store)      publish completion        (store)
//!   full fence                     full fence
//!   poll again        (load)       armed?                    (load)
//! ```
//! The fences ensure that at least one of the two loads sees the other side's store: either the owner finds the
//! completion, or the producer finds the queue armed and raises the event. Of several producers only the one whose
//! `swap` disarms the queue raises it. If it cannot, because it has no descriptor left for the channel, it leaves that to the
//! owner's engine.

use adverb_verbs::{NotifyOn, WcStatus};

use crate::shm::sync::{AtomicU32, Ordering, fence};

const NOT_ARMED: u32 = 0;
const SOLICITED: u32 = 1;
const ANY: u32 = 2;
/// A producer disarmed the queue and could not raise the event.
const OWED: u32 = 3;

/// Whether a completion queue waits for an event, and for which.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Armed(AtomicU32);

impl Armed {
    /// Owner: arms for one event. `Any` is not weakened by a later `Solicited`.
    pub fn arm(&self, on: NotifyOn) {
        match on {
            NotifyOn::Any => self.0.store(ANY, Ordering::Relaxed),
            NotifyOn::Solicited => {
                let weaker = (NOT_ARMED, SOLICITED);
                let _ = self.0.compare_exchange(
                    weaker.0,
                    weaker.1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
            }
        }
        fence(Ordering::SeqCst);
    }

    /// Owner: disarms the queue before its first use.
    pub fn disarm(&self) {
        self.0.store(NOT_ARMED, Ordering::Relaxed);
    }

    /// Producer, after publishing a completion: disarms the queue and returns true if it has to raise the event.
    pub fn must_raise(&self, urgent: Urgency) -> bool {
        fence(Ordering::SeqCst);
        match self.0.load(Ordering::Relaxed) {
            ANY => self.0.swap(NOT_ARMED, Ordering::Relaxed) != NOT_ARMED,
            SOLICITED if urgent == Urgency::Solicited => {
                self.0.swap(NOT_ARMED, Ordering::Relaxed) != NOT_ARMED
            }
            _ => false,
        }
    }

    /// Producer, which has disarmed the queue and could not raise the event: leaves that to the owner, unless it has armed
    /// the queue again. Then it polls once more and finds the completion.
    pub fn owe(&self) {
        let _ = self
            .0
            .compare_exchange(NOT_ARMED, OWED, Ordering::Release, Ordering::Relaxed);
    }

    /// Owner: returns whether a producer left an event to it, which it has to raise now.
    pub fn take_owed(&self) -> bool {
        self.0.load(Ordering::Relaxed) == OWED
            && self
                .0
                .compare_exchange(OWED, NOT_ARMED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }
}

/// Whether a completion raises an event that waits for solicited ones only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It raises no such event.
    Usual,
    /// It raises the event: the sender asked for it, or it is an error.
    Solicited,
}

impl Urgency {
    /// Returns the urgency of a completion without a solicited event: errors raise the event anyway.
    pub fn of(status: WcStatus) -> Self {
        match status {
            WcStatus::Success => Urgency::Usual,
            _ => Urgency::Solicited,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_arming_raises_one_event() {
        let armed = Armed::default();
        assert!(!armed.must_raise(Urgency::Usual));
        armed.arm(NotifyOn::Any);
        assert!(armed.must_raise(Urgency::Usual));
        assert!(!armed.must_raise(Urgency::Usual));
    }

    #[test]
    fn an_event_that_is_owed_is_taken_once_unless_the_queue_is_armed_again() {
        let armed = Armed::default();
        assert!(!armed.take_owed());
        armed.arm(NotifyOn::Any);
        assert!(armed.must_raise(Urgency::Usual));
        armed.owe();
        assert!(!armed.must_raise(Urgency::Solicited));
        assert!(armed.take_owed() && !armed.take_owed());
        armed.arm(NotifyOn::Any);
        armed.owe();
        assert!(!armed.take_owed());
        assert!(armed.must_raise(Urgency::Usual));
    }

    #[test]
    fn solicited_ignores_usual_completions_and_does_not_weaken_any() {
        let armed = Armed::default();
        armed.arm(NotifyOn::Solicited);
        assert!(!armed.must_raise(Urgency::Usual));
        assert!(armed.must_raise(Urgency::Solicited));
        armed.arm(NotifyOn::Any);
        armed.arm(NotifyOn::Solicited);
        assert!(armed.must_raise(Urgency::Usual));
    }
}
