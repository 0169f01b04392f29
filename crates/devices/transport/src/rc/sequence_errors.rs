//! The requester's reaction to sequence errors (IBTA vol. 1, 9.7.5.2.8).
//!
//! A responder reports a sequence error for every request that is ahead of the expected one, even a forged one. The NAK
//! does not show whether a packet is missing, so the requester believes the first one: it goes back. If the next
//! acknowledgement is not one that it has requested since, the packets sent before have arrived, and none was missing.
//! From then on it doubts such NAKs: it sends only the packet that the NAK names again, as a *probe*, and does not
//! interrupt the stream. If packet and probe have both arrived, the responder acknowledges everything that has arrived. If
//! only the probe has, it reports the packet after it as soon as another packet arrives, which confirms the loss. An ACK
//! of the probe alone confirms it only if no other packet follows: the named packet may have requested that ACK itself.
//!
//! If few packets are in flight, nothing shows that a NAK was false. So NAKs are also doubted while too large a share of
//! the stream was sent again because of them.

use super::budget::Budget;
use crate::sequence::Seq;

/// What to do after a sequence error NAK, or after the response to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    None,
    Probe,
    GoBack,
    /// Go back if no more packets are sent now, whose reports would show whether packets are missing.
    GoBackIfLast,
}

/// The reaction to the last NAK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sent {
    /// Nothing that the next acknowledgement has to confirm.
    #[default]
    None,
    /// Everything again. Contains the first packet since that requested an ACK.
    All(Option<Seq>),
    /// Nothing yet; the probe is due.
    ProbeDue,
    Probe,
}

#[derive(Debug, Default)]
pub(super) struct SequenceErrors {
    /// The packet that the last NAK named, until the requester goes back for another reason.
    named: Option<Seq>,
    sent: Sent,
    /// The last NAK was false.
    is_doubted: bool,
    /// Limits what unconfirmed NAKs have sent again. While it is exhausted, NAKs are doubted.
    budget: Budget,
}

impl SequenceErrors {
    /// Whether a NAK for `seq` repeats the last one. A responder sends one NAK for a packet until it arrives, so this is a
    /// copy or forged. (If the packet is lost again, there is a timeout.)
    pub(super) fn is_repeated(&self, seq: Seq) -> bool {
        self.named == Some(seq)
    }

    /// Records a NAK for packet `seq` when `next` is the next packet to send. A request whose response carries data is not
    /// sent as a probe, because the response may be long.
    pub(super) fn report(&mut self, seq: Seq, next: Seq, is_answered: bool) -> Reaction {
        // If a probe was missing, packets behind it make the responder send a NAK for the packet after it.
        if self.sent == Sent::Probe && self.named.is_some_and(|probe| probe + 1 == seq) {
            self.confirm(seq);
        } else if (self.is_doubted || !self.budget.is_open()) && !is_answered {
            (self.named, self.sent) = (Some(seq), Sent::ProbeDue);
            return Reaction::Probe;
        } else {
            self.named = Some(seq);
            self.budget.spend(next.since(seq));
        }
        self.sent = Sent::All(None);
        Reaction::GoBack
    }

    /// Records that the packets from `from` to before `to` were acknowledged when `next` was the next packet to send.
    #[inline]
    pub(super) fn acknowledged(&mut self, from: Seq, to: Seq, next: Seq) -> Reaction {
        self.budget.earn(to.since(from));
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
                self.sent = Sent::Probe;
                return Reaction::GoBackIfLast;
            }
            Sent::None | Sent::Probe | Sent::ProbeDue => {}
        }
        Reaction::None
    }

    /// Records that the loss of the probe's packet is confirmed: everything from `seq` on is sent again.
    pub(super) fn confirm(&mut self, seq: Seq) {
        (self.named, self.sent) = (Some(seq), Sent::None);
        self.is_doubted = false;
        self.budget.open();
    }

    /// Records that packet `seq` was sent, which requests an ACK.
    #[inline]
    pub(super) fn requested_ack(&mut self, seq: Seq) {
        if self.sent == Sent::All(None) {
            self.sent = Sent::All(Some(seq));
        }
    }

    /// Whether to send a probe.
    #[inline]
    pub(super) fn has_probe(&self) -> bool {
        self.sent == Sent::ProbeDue
    }

    /// Records that the probe was sent.
    pub(super) fn sent_probe(&mut self) {
        self.sent = Sent::Probe;
    }

    /// Forgets the last NAK, when the requester goes back for another reason, which nobody can forge.
    pub(super) fn forget(&mut self) {
        (self.named, self.sent) = (None, Sent::None);
        self.budget.fill();
    }
}
