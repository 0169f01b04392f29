//! Limits what is sent again because of packets that anybody may have sent, to a share of what is sent anyway. Losses need
//! less, unless a network loses about one packet in ten, where timeouts dominate.

/// Cost of a packet that is sent again, in packets that are acknowledged.
const COST: i64 = 4;
/// The maximum of the balance, in packets.
const MAX_BALANCE: i64 = 256;
/// Packets that are sent again for free: with this many in flight, one has requested an acknowledgement, which shows
/// whether the report of a loss was false, so that the next one is doubted.
const MANY: u64 = 64;

/// A balance of packets. While it is negative, nothing more may be sent again.
#[derive(Debug)]
pub(super) struct Budget {
    balance: i64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            balance: MAX_BALANCE,
        }
    }
}

impl Budget {
    /// Whether packets may be sent again.
    pub(super) const fn is_open(&self) -> bool {
        self.balance >= 0
    }

    /// Records packets that were acknowledged.
    #[inline]
    pub(super) fn earn(&mut self, packets: u64) {
        self.balance = MAX_BALANCE.min(self.balance + packets as i64);
    }

    /// Records packets that are sent again.
    #[inline]
    pub(super) const fn spend(&mut self, packets: u64) {
        if packets < MANY {
            self.balance -= COST * packets as i64;
        }
    }

    /// Allows the next repetition, after evidence that nobody can forge.
    pub(super) fn open(&mut self) {
        self.balance = self.balance.max(0);
    }

    /// Sets the balance to its maximum.
    pub(super) const fn fill(&mut self) {
        self.balance = MAX_BALANCE;
    }
}
