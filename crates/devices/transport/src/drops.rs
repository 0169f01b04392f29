//! Counters of a queue pair, and why packets are dropped.

use std::fmt;

macro_rules! reasons {
    ($($name:ident = $text:literal;)*) => {
        /// Why a packet was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DropReason {
            $(#[doc = $text] $name,)*
        }

        impl DropReason {
            /// All reasons.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name),*];

            /// Returns a description.
            pub const fn text(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }
        }
    };
}

reasons! {
    WrongService = "another transport service";
    WrongQueuePair = "another queue pair";
    QueuePairInError = "the queue pair is in the error state";
    OutOfSequence = "requests before it are missing";
    StaleDuplicate = "a repeated request whose result is no longer stored";
    ReceiverNotReady = "no receive request is posted";
    InvalidRequest = "an invalid opcode, order or length";
    UnknownOpcode = "an unknown opcode";
    RemoteAccess = "the key, the range or the access is not allowed";
    LocalFault = "the receive request's memory is not accessible";
    StaleResponse = "a response to a completed request";
    UnsentResponse = "a response to a packet that was not sent";
    ResponseGap = "responses before it are missing";
    BadResponse = "a response that does not match its request";
    BrokenMessage = "a part of a message with missing packets";
    TooLong = "longer than the receive request's memory";
    WrongQkey = "another Q_Key";
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// Counters of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Packets passed to the driver.
    pub sent: u64,
    /// Request packets sent again.
    pub resent: u64,
    /// Packets accepted.
    pub taken: u64,
    /// Accepted requests that had been carried out before.
    pub duplicates: u64,
    /// Timeouts of requests.
    pub timeouts: u64,
    /// Times that the requester went back (go-back-N).
    pub go_backs: u64,
    /// RNR NAKs received.
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
            go_backs: 0,
            rnr_naks: 0,
            drops: [0; DropReason::ALL.len()],
        }
    }
}

impl Counters {
    /// Returns the number of packets dropped for this reason.
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Returns the number of dropped packets.
    pub fn dropped_in_all(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Counts an accepted or dropped packet.
    #[inline]
    pub(crate) fn count(&mut self, taken: Result<(), DropReason>) {
        match taken {
            Ok(()) => self.taken += 1,
            Err(reason) => self.drops[reason as usize] += 1,
        }
    }
}
