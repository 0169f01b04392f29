//! Packets that were not taken, and why.

use std::fmt;

macro_rules! reasons {
    ($($name:ident = $text:literal;)*) => {
        /// Why a packet was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DropReason {
            $(#[doc = $text] $name,)*
        }

        impl DropReason {
            /// All of them.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name),*];

            /// In words.
            pub const fn text(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }
        }
    };
}

reasons! {
    WrongService = "of another transport service";
    WrongQueuePair = "to another queue pair";
    QueuePairInError = "the queue pair is in the error state";
    OutOfSequence = "requests before it are missing";
    StaleDuplicate = "a duplicate whose answer is no longer kept";
    ReceiverNotReady = "no receive request is posted";
    InvalidRequest = "an opcode, order or length that may not be";
    UnknownOpcode = "an opcode that does not exist";
    RemoteAccess = "key, range or right refused";
    LocalFault = "the receive request's memory refused";
    StaleResponse = "a response to what is completed";
    UnsentResponse = "a response to what was not sent";
    ResponseGap = "responses before it are missing";
    BadResponse = "a response that does not fit its request";
    BrokenMessage = "a part of a message of which packets are missing";
    TooLong = "longer than the receive request's memory";
    WrongQkey = "under another queue key";
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// Counters of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Packets given to the driver.
    pub sent: u64,
    /// Of these, requests sent again.
    pub resent: u64,
    /// Packets taken.
    pub taken: u64,
    /// Requests taken that had been carried out before (answered again).
    pub duplicates: u64,
    /// Timeouts of this side's requests.
    pub timeouts: u64,
    /// Times that this side went back because packets of its own or responses were missing.
    pub went_back: u64,
    /// Times that the peer had no receive request posted.
    pub rnr_naks: u64,
    drops: [u64; DropReason::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            sent: 0,
            resent: 0,
            taken: 0,
            duplicates: 0,
            timeouts: 0,
            went_back: 0,
            rnr_naks: 0,
            drops: [0; DropReason::ALL.len()],
        }
    }
}

impl Counters {
    /// Packets dropped for this reason.
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Packets dropped.
    pub fn dropped_in_all(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Counts what became of a packet.
    #[inline]
    pub(crate) fn count(&mut self, taken: Result<(), DropReason>) {
        match taken {
            Ok(()) => self.taken += 1,
            Err(reason) => self.drops[reason as usize] += 1,
        }
    }
}
