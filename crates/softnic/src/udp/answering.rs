//! Whether an acknowledgement waits for the program's answer to the message.
//!
//! A request of RC acknowledges nothing, so a message that is answered by a message costs each side two
//! packets. Both to the same peer, they leave in one batch if they leave together: one system call
//! instead of two on either side, which is what a ping costs. So where a program answered the last
//! message before it polled again, the next acknowledgement is kept for its answer; the next turn
//! sends it if none comes. Where packets leave singly all the same, keeping one would only have the peer
//! wait for it.

/// Who takes a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Somebody who polls, and goes back to the program with what has come.
    Poller,
    /// Somebody who has posted, and only sends.
    Poster,
    /// Somebody who may not come back soon.
    Other,
}

/// What a queue pair's program is known to do with messages.
#[derive(Debug, Default)]
pub(super) struct Answering {
    /// It answered the last one before it polled again.
    is_usual: bool,
    due: Due,
}

/// An acknowledgement that could have gone with an answer, by the number of its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Due {
    #[default]
    None,
    Sent(u64),
    Kept,
}

impl Answering {
    /// Whether [`Answering::keeps`] is worth a question.
    #[inline]
    pub(super) fn may_keep(&self, by: By) -> bool {
        by != By::Poster || self.due == Due::Kept
    }

    /// An acknowledgement is all that the queue pair has to send in turn number `turn`: whether it
    /// waits.
    pub(super) fn keeps(&mut self, by: By, turn: u64) -> bool {
        let (due, keeps) = match (by, self.due) {
            // Another queue pair's request.
            (By::Poster, Due::Kept) => return true,
            (By::Poster | By::Other, _) => (Due::None, false),
            (By::Poller, Due::Kept) => {
                self.is_usual = false;
                (Due::None, false)
            }
            (By::Poller, _) if self.is_usual => (Due::Kept, true),
            (By::Poller, _) => (Due::Sent(turn), false),
        };
        self.due = due;
        keeps
    }

    /// The program has posted a request; the last turn was number `turn`.
    pub(super) fn posted(&mut self, turn: u64) {
        self.is_usual |= std::mem::take(&mut self.due) == Due::Sent(turn);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_answers_at_once_has_its_acknowledgements_kept() {
        let mut answering = Answering::default();
        assert!(!answering.keeps(By::Poller, 1), "nothing is known of it");
        answering.posted(1);
        assert!(answering.keeps(By::Poller, 2));
        assert!(answering.keeps(By::Poster, 2), "another one's request");
        answering.posted(2);
        assert!(!answering.keeps(By::Poster, 2), "its own");
        assert!(answering.keeps(By::Poller, 3));
    }

    #[test]
    fn an_acknowledgement_waits_for_one_turn_at_most() {
        for next in [By::Poller, By::Other] {
            let mut answering = Answering::default();
            answering.keeps(By::Poller, 1);
            answering.posted(1);
            assert!(answering.keeps(By::Poller, 2));
            assert!(!answering.keeps(next, 3), "{next:?}");
        }
    }

    #[test]
    fn a_request_after_another_turn_is_no_answer() {
        let mut answering = Answering::default();
        answering.keeps(By::Poller, 1);
        answering.posted(2);
        assert!(!answering.keeps(By::Poller, 3));
        // Nor is one that came too late for an acknowledgement that was kept.
        answering.posted(3);
        assert!(answering.keeps(By::Poller, 4));
        assert!(!answering.keeps(By::Poller, 5));
        answering.posted(5);
        assert!(!answering.keeps(By::Poller, 6));
    }
}
