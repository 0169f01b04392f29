//! What the requester makes of sequence errors (IBTA vol. 1, 9.7.5.2.8).
//!
//! A responder reports a sequence error for every request that is ahead of the expected one, a forged one
//! included. Nothing in the report tells whether a packet is missing, so the first one is believed: the
//! requester goes back. If what is acknowledged next was not asked for since then, the packets that were
//! sent before have arrived, and nothing was missing. From then on reports are doubted: only the packet that
//! a report names is sent again, as a *probe*, and the stream goes on. The responder acknowledges either the
//! probe alone, which confirms the report, or all that it has.

use crate::sequence::Seq;

/// What to do after a sequence error NAK, or after the response to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    None,
    Probe,
    GoBack,
}

/// The reaction to the last NAK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sent {
    /// Nothing that is still to be judged by an acknowledgement.
    #[default]
    None,
    /// Everything again. The packet, if any, is the first one that asked for an acknowledgement.
    All(Option<Seq>),
    /// Nothing yet: the probe is due.
    ProbeDue,
    Probe,
}

#[derive(Debug, Default)]
pub(super) struct SequenceErrors {
    /// The packet named by the last NAK, until the requester goes back for another reason.
    named: Option<Seq>,
    sent: Sent,
    /// The last report was false.
    is_doubted: bool,
}

impl SequenceErrors {
    /// Whether a report at `seq` is the last one again. A responder reports a packet once until it arrives,
    /// so this is a copy, or forged. If the packet is lost again, the timeout ends the wait.
    pub(super) fn is_repeated(&self, seq: Seq) -> bool {
        self.named == Some(seq)
    }

    /// The responder reports that the packet `seq` is missing. A request that `is_answered` with data is no
    /// probe, because its answer is long.
    pub(super) fn report(&mut self, seq: Seq, is_answered: bool) -> Reaction {
        // What follows a probe that was missing makes the responder report the packet after it.
        let confirms = self.sent == Sent::Probe && self.named.is_some_and(|probe| probe + 1 == seq);
        self.is_doubted &= !confirms;
        self.named = Some(seq);
        if self.is_doubted && !is_answered {
            self.sent = Sent::ProbeDue;
            return Reaction::Probe;
        }
        self.sent = Sent::All(None);
        Reaction::GoBack
    }

    /// Everything before `to` is acknowledged, when `next` was the next packet to send.
    #[inline]
    pub(super) fn acknowledged(&mut self, to: Seq, next: Seq) -> Reaction {
        match self.named {
            Some(named) if self.sent != Sent::None && named < to => self.judge(named, to, next),
            _ => Reaction::None,
        }
    }

    #[cold]
    fn judge(&mut self, named: Seq, to: Seq, next: Seq) -> Reaction {
        match std::mem::take(&mut self.sent) {
            Sent::All(asked) => {
                self.is_doubted = to > next || asked.is_none_or(|asked| to <= asked);
            }
            Sent::Probe if named + 1 == to => {
                (self.named, self.is_doubted) = (Some(to), false);
                return Reaction::GoBack;
            }
            Sent::None | Sent::Probe | Sent::ProbeDue => {}
        }
        Reaction::None
    }

    /// The packet `seq` is sent, which brings about an acknowledgement.
    #[inline]
    pub(super) fn asked(&mut self, seq: Seq) {
        if self.sent == Sent::All(None) {
            self.sent = Sent::All(Some(seq));
        }
    }

    /// Whether to send a probe.
    #[inline]
    pub(super) fn has_probe(&self) -> bool {
        self.sent == Sent::ProbeDue
    }

    /// The probe is sent.
    pub(super) fn sent_probe(&mut self) {
        self.sent = Sent::Probe;
    }

    /// The requester goes back for another reason.
    pub(super) fn forget(&mut self) {
        (self.named, self.sent) = (None, Sent::None);
    }
}
