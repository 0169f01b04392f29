//! End-to-end flow control on the requester's side (IBTA vol. 1, 9.7.7.2): how many messages the
//! responder has receive requests for.

use adverb_wire::aeth;

/// Messages are numbered from 1; the responder counts those that it completed (MSN).
#[derive(Debug, Default)]
pub(super) struct CreditLimit {
    /// The last message that may be sent; `None`: no limit.
    last: Option<u64>,
}

const MSN_BITS: u32 = 24;

impl CreditLimit {
    /// An acknowledgement said so; `completed` messages are completed as far as is known here.
    #[inline]
    pub(super) fn update(&mut self, msn: u32, credits: aeth::Credits, completed: u64) {
        self.last = credits.receives().map(|receives| {
            let last = extend(msn, completed) + u64::from(receives);
            // Posted receive requests are never taken back, so an older ACK can only report fewer.
            self.last.map_or(last, |known| known.max(last))
        });
    }

    /// Whether a receive request is posted for message number `message`.
    #[inline]
    pub(super) fn covers(&self, message: u64) -> bool {
        self.last.is_none_or(|last| message <= last)
    }
}

/// The count near `near` whose low 24 bits are `msn`.
fn extend(msn: u32, near: u64) -> u64 {
    const CIRCLE: u64 = 1 << MSN_BITS;
    let ahead = u64::from(msn).wrapping_sub(near) & (CIRCLE - 1);
    if ahead < CIRCLE / 2 {
        near + ahead
    } else {
        (near + ahead).saturating_sub(CIRCLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_wire::Credits;

    #[test]
    fn the_limit_is_what_is_completed_and_what_is_posted() {
        let mut limit = CreditLimit::default();
        assert!(limit.covers(1_000_000));
        limit.update(5, Credits::for_receives(2), 4);
        assert!(limit.covers(7) && !limit.covers(8));
        limit.update(3, Credits::for_receives(1), 4);
        assert!(limit.covers(7), "an old word took credits back");
        limit.update(6, Credits::NONE, 6);
        assert!(limit.covers(1_000_000));
    }

    #[test]
    fn counts_wrap_at_24_bits() {
        assert_eq!(extend(0, (1 << 24) - 1), 1 << 24);
        assert_eq!(extend(0xff_ffff, 1 << 24), (1 << 24) - 1);
        assert_eq!(extend(3, 3), 3);
    }
}
