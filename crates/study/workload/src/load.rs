//! The load of a requester: its requests and how many are outstanding.

use adverb_results::Opcode;
use adverb_units::Span;
use adverb_verbs::{QpType, RemoteAddress};
use serde::{Deserialize, Serialize};

/// Longest list in which each position has a separate place in memory.
const MAX_LIST: u32 = 32;
/// Maximum memory of a link whose list positions have separate places.
const PLACES: u32 = 4096;

/// Transport of a pattern's queue pairs. `Dci` means DC: posting members have initiators, and each member has
/// one target.
pub type Transport = QpType;

/// How requests are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Posting {
    /// One request per call.
    Single,
    /// This many requests per call.
    List(u32),
}

impl Posting {
    /// Returns how `requests` are posted per call.
    pub const fn of(requests: u32) -> Self {
        match requests {
            1 => Posting::Single,
            n => Posting::List(n),
        }
    }

    /// Returns the number of requests per call.
    pub const fn requests(self) -> u32 {
        match self {
            Posting::Single => 1,
            Posting::List(n) => n,
        }
    }
}

/// When new requests are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refill {
    /// As soon as there is room.
    Continuous,
    /// A whole window, then waits for all of it.
    Window,
    /// As many as have completed since, in one call.
    List,
}

/// Maximum numbers of outstanding requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// On one queue pair.
    pub per_qp: u32,
    /// On all queue pairs of the member.
    pub per_member: u32,
    /// Outstanding READs and atomics of one queue pair.
    pub rd_atomic: u8,
}

impl Limits {
    /// Returns limits of each queue pair, without one of the whole member.
    pub const fn of_each_qp(per_qp: u32, rd_atomic: u8) -> Self {
        Limits {
            per_qp,
            per_member: u32::MAX,
            rd_atomic,
        }
    }
}

/// The places in the peer's memory that requests access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Places {
    /// Each link has a separate place, at this distance in bytes from the next. For short READs and WRITEs that
    /// are posted in lists, each position in the list has one.
    Own(u64),
    /// Each message in flight has a separate place and a separate local buffer, at this distance in bytes.
    Buffers(u64),
    /// Uniformly random.
    Random {
        /// Alignment.
        align: u64,
        /// Range.
        within: u64,
    },
}

/// The targets of DC initiators among a member's peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Aim {
    /// Always the peer with this number, modulo the number of peers.
    Fixed(u32),
    /// Any except the previous one.
    Other,
    /// Any.
    Random,
}

/// How a member uses the dynamically connected transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dc {
    /// Initiators that it posts to in turn.
    pub initiators: u32,
    /// The targets.
    pub aim: Aim,
}

/// How a requester detects the end of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen {
    /// By completions of signaled requests.
    Completion,
    /// For READs: polls the destination memory, in the order of posting. Completions only indicate room in
    /// the queue.
    Memory,
}

/// Whether each request is timed, which needs clock readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Timing {
    /// Only the whole run is timed.
    Whole,
    /// Each signaled request is timed, from its post to its completion.
    Each,
}

/// What a requester does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Operation of the requests.
    pub op: Opcode,
    /// Payload in bytes.
    pub size: u32,
    /// Payload is inline.
    pub inline: bool,
    /// One in this many requests is signaled.
    pub signaled_every: u32,
    /// Singly or in lists.
    pub posting: Posting,
    /// When to post the next requests.
    pub refill: Refill,
    /// Maximum numbers of outstanding requests.
    pub limits: Limits,
    /// Local and remote memory of the requests.
    pub places: Places,
    /// Number of the first link's place, if each link has one.
    pub first_place: u64,
    /// Each request uses a random link instead of the next one.
    pub random_link: bool,
    /// Initiators and their targets, if the transport is DC.
    pub dc: Dc,
    /// Computing before each post.
    pub think: Span,
    /// How the end of a request is detected.
    pub seen: Seen,
    /// What is timed.
    pub timing: Timing,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Load {
    /// Returns a load of `op` with a payload of `size`: one request outstanding, singly posted, each signaled.
    pub fn new(op: Opcode, size: u32) -> Self {
        Load {
            op,
            size,
            inline: false,
            signaled_every: 1,
            posting: Posting::Single,
            refill: Refill::Continuous,
            limits: Limits::of_each_qp(1, 16),
            places: Places::Own(64),
            first_place: 0,
            random_link: false,
            dc: Dc {
                initiators: 1,
                aim: Aim::Fixed(0),
            },
            think: Span::ZERO,
            seen: Seen::Completion,
            timing: Timing::Whole,
            seed: 1,
        }
    }

    /// Returns the bytes that a request carries or fetches.
    pub(crate) fn payload(&self) -> u32 {
        match self.op {
            op if op.is_atomic() => 8,
            _ => self.size,
        }
    }

    /// The place of request `place` of a list, or of buffer `place`, over link `link`.
    pub(crate) fn place(&self, there: RemoteAddress, link: usize, place: usize) -> RemoteAddress {
        let (link, place) = (link as u64, place as u64);
        match self.places {
            Places::Own(distance) => {
                let places = self.places_a_link();
                there.at(((self.first_place + link) * places + place % places) * distance)
            }
            Places::Buffers(_) if self.op.is_atomic() => there,
            Places::Buffers(distance) => {
                let buffers = u64::from(self.limits.per_qp);
                there.at((link * buffers + place % buffers) * distance)
            }
            Places::Random { .. } => there,
        }
    }

    /// Whether each message in flight has a buffer of its own.
    #[inline]
    pub(crate) fn has_buffers(&self) -> bool {
        matches!(self.places, Places::Buffers(_))
    }

    /// Returns the maximum length of a list: one longer than the window would never be posted.
    pub(crate) fn list(&self) -> u32 {
        let room = self.limits.per_qp.min(self.limits.per_member).max(1);
        match self.refill {
            Refill::List => self.limits.per_qp,
            _ => self.posting.requests().clamp(1, room),
        }
    }

    /// Returns the number of [`Places::Own`] of a link. Atomics use a single word, and long messages a single
    /// place.
    #[must_use]
    pub fn places_a_link(&self) -> u64 {
        let list = match self.op {
            Opcode::Read | Opcode::Write | Opcode::WriteImm => self.posting.requests(),
            _ => 1,
        };
        let fit = PLACES / self.size.max(64);
        list.clamp(1, MAX_LIST).min(fit.max(1)).into()
    }

    /// Returns the signaling period, limited so that completions arrive before the queue is full.
    pub(crate) fn signal_every(&self) -> u32 {
        let room = match self.seen {
            Seen::Completion => self.limits.per_qp.min(self.limits.per_member),
            Seen::Memory => self.limits.per_qp,
        };
        let half = room.div_ceil(2).max(1);
        match (self.refill, self.places) {
            (Refill::Window, _) | (_, Places::Buffers(_)) => {
                self.signaled_every.clamp(1, room.max(1))
            }
            _ => self.signaled_every.clamp(1, half),
        }
    }
}
