//! Delays an ACK until the program's reply, so that both are sent in one system call.
//!
//! An RC request carries no acknowledgement, so a message and its reply cost each side two packets, an ACK and a
//! request, to the same peer. Sent as one batch, they cost one system call instead of two on either side, and system
//! calls are most of a ping's latency. So if the program replied to the last message before it polled again, the
//! next ACK is delayed until its reply, at most until the next poll. If packets to the peer cannot be batched,
//! a delay would gain nothing, and no ACK is delayed. This saves a quarter of a ping's latency;
//! `ADVERB_UDP_WITHOUT=delayed_ack` turns it off, so that `make bench` can show what it saves.

/// Environment variable that names the optimization to turn off.
const SWITCH: &str = "ADVERB_UDP_WITHOUT";

/// Whether a port delays ACKs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelayedAcks {
    On,
    Off,
}

impl DelayedAcks {
    /// Reads the environment.
    ///
    /// # Errors
    /// The variable names something else.
    pub(super) fn from_env() -> Result<Self, String> {
        let value = std::env::var_os(SWITCH).unwrap_or_default();
        Self::parse(&value.to_string_lossy())
    }

    fn parse(value: &str) -> Result<Self, String> {
        match value {
            "" => Ok(DelayedAcks::On),
            "delayed_ack" => Ok(DelayedAcks::Off),
            _ => Err(format!("invalid {SWITCH} '{value}': expected delayed_ack")),
        }
    }
}

/// What the driver is called from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A poll, which returns to the program with what has arrived.
    Poller,
    /// A post, which only sends.
    Poster,
    /// A thread that may not call again soon, such as the engine.
    Other,
}

/// Whether the ACKs of a queue pair are delayed: what its program did with recent messages.
#[derive(Debug, Default)]
pub(super) struct DelayedAck {
    /// The program replied to the last message before it polled again.
    replies_at_once: bool,
    due: Due,
}

/// The last ACK that a reply could have accompanied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Due {
    #[default]
    None,
    /// Sent in this turn of the driver.
    Sent(u64),
    Delayed,
}

impl DelayedAck {
    /// Returns false if [`DelayedAck::delays`] would return false: a cheap first check.
    #[inline]
    pub(super) fn may_delay(&self, caller: Caller) -> bool {
        caller != Caller::Poster || self.due == Due::Delayed
    }

    /// Decides, in turn number `turn`, whether an ACK that is all the queue pair has to send is delayed.
    pub(super) fn delays(&mut self, caller: Caller, turn: u64) -> bool {
        let (due, delays) = match (caller, self.due) {
            // Another queue pair's post: this one's reply may still follow.
            (Caller::Poster, Due::Delayed) => return true,
            (Caller::Poster | Caller::Other, _) => (Due::None, false),
            (Caller::Poller, Due::Delayed) => {
                self.replies_at_once = false;
                (Due::None, false)
            }
            (Caller::Poller, _) if self.replies_at_once => (Due::Delayed, true),
            (Caller::Poller, _) => (Due::Sent(turn), false),
        };
        self.due = due;
        delays
    }

    /// Records that the program has posted a request after turn number `turn`.
    pub(super) fn posted(&mut self, turn: u64) {
        self.replies_at_once |= std::mem::take(&mut self.due) == Due::Sent(turn);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn delayed_acks_are_turned_off_by_name() {
        assert_eq!(DelayedAcks::parse(""), Ok(DelayedAcks::On));
        assert_eq!(DelayedAcks::parse("delayed_ack"), Ok(DelayedAcks::Off));
        let wrong = "invalid ADVERB_UDP_WITHOUT 'gso': expected delayed_ack";
        assert_eq!(DelayedAcks::parse("gso"), Err(wrong.to_owned()));
    }

    #[test]
    fn acks_of_a_program_that_replies_at_once_are_delayed() {
        let mut acks = DelayedAck::default();
        assert!(!acks.delays(Caller::Poller, 1), "nothing is known of it");
        acks.posted(1);
        assert!(acks.delays(Caller::Poller, 2));
        assert!(acks.delays(Caller::Poster, 2), "another one's request");
        acks.posted(2);
        assert!(!acks.delays(Caller::Poster, 2), "its own");
        assert!(acks.delays(Caller::Poller, 3));
    }

    #[test]
    fn an_ack_is_delayed_by_one_turn_at_most() {
        for next in [Caller::Poller, Caller::Other] {
            let mut acks = DelayedAck::default();
            acks.delays(Caller::Poller, 1);
            acks.posted(1);
            assert!(acks.delays(Caller::Poller, 2));
            assert!(!acks.delays(next, 3), "{next:?}");
        }
    }

    #[test]
    fn a_request_after_another_turn_is_not_a_reply() {
        let mut acks = DelayedAck::default();
        acks.delays(Caller::Poller, 1);
        acks.posted(2);
        assert!(!acks.delays(Caller::Poller, 3));
        // Nor is a request that was posted too late for a delayed ACK.
        acks.posted(3);
        assert!(acks.delays(Caller::Poller, 4));
        assert!(!acks.delays(Caller::Poller, 5));
        acks.posted(5);
        assert!(!acks.delays(Caller::Poller, 6));
    }
}
