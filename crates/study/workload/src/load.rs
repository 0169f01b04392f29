//! What a requester posts, and how much of it at a time.

use adverb_results::Opcode;
use adverb_units::Span;
use adverb_verbs::{QpType, RemoteAddress};
use serde::{Deserialize, Serialize};

/// Longest list whose positions have places of their own.
const MAX_LIST: u32 = 32;
/// Memory of a link whose positions in a list have places of their own, at most.
const PLACES: u32 = 4096;

/// Transport of a pattern's queue pairs. `Dci` stands for the whole of DC: members that post have
/// initiators, and each member has one target.
pub type Transport = QpType;

/// How requests are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Posting {
    /// Each in a call of its own.
    Single,
    /// So many in a call.
    List(u32),
}

/// When new requests are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refill {
    /// As soon as there is room.
    Continuous,
    /// A whole window, then waits for all of it.
    Window,
    /// All that have completed meanwhile, in one call.
    List,
}

/// How many requests may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// On one queue pair.
    pub per_qp: u32,
    /// On all of the member's together.
    pub per_member: u32,
    /// READs and atomics of one queue pair on the wire.
    pub rd_atomic: u8,
}

/// Which places of the peer's memory requests go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Places {
    /// Each link has its own, next to those of the others, at this distance in bytes. Of
    /// short READs and WRITEs that are posted in lists of a given length each position in the list has.
    Own(u64),
    /// Each message in flight has its own, and a buffer of its own on this side, too, at this distance.
    Buffers(u64),
    /// Uniformly random, aligned to this, in so many bytes.
    Random {
        /// Alignment.
        align: u64,
        /// Range.
        within: u64,
    },
}

/// Which of a member's peers the requests of DC initiators go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Aim {
    /// Always the same: the one of this number, of as many as there are.
    Fixed(u32),
    /// Any but the one before.
    Other,
    /// Any.
    Random,
}

/// How a member uses the dynamically connected transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dc {
    /// Initiators that it posts to in turn.
    pub initiators: u32,
    /// Whom it addresses.
    pub aim: Aim,
}

/// How a requester learns that its requests are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen {
    /// By the completions of those that are signaled.
    Completion,
    /// READs: it polls the memory that their data come to, in the order of posting. Completions only
    /// say that a queue has room.
    Memory,
}

/// Whether each request is timed, which costs looks at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Timing {
    /// Only the whole is.
    Whole,
    /// Each signaled request is, from its post to its completion.
    Each,
}

/// What a requester does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Operation of the requests.
    pub op: Opcode,
    /// Payload in bytes.
    pub size: u32,
    /// Payload goes into the request.
    pub inline: bool,
    /// One request of so many asks for a completion.
    pub signaled_every: u32,
    /// Singly or in lists.
    pub posting: Posting,
    /// When.
    pub refill: Refill,
    /// How many.
    pub limits: Limits,
    /// Where to.
    pub places: Places,
    /// Number of the place that the first link has, where each has its own.
    pub first_place: u64,
    /// Each request goes over a random link, and not over one after the other.
    pub random_link: bool,
    /// Initiators and whom they address, where queue pairs are such.
    pub dc: Dc,
    /// Computing before each post.
    pub think: Span,
    /// How it is seen that a request is done.
    pub seen: Seen,
    /// What is timed.
    pub timing: Timing,
    /// Seed of what is random.
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
            limits: Limits {
                per_qp: 1,
                per_member: u32::MAX,
                rd_atomic: 16,
            },
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

    /// Bytes that a request carries or asks for.
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

    /// Requests posted at a time at most: a list longer than may be under way would never be posted.
    pub(crate) fn list(&self) -> u32 {
        let room = self.limits.per_qp.min(self.limits.per_member).max(1);
        match (self.posting, self.refill) {
            (_, Refill::List) => self.limits.per_qp,
            (Posting::List(n), _) => n.clamp(1, room),
            (Posting::Single, _) => 1,
        }
    }

    /// Places of [`Places::Own`] that a link has. Atomics of a link stay with one word, and long messages
    /// with one place.
    #[must_use]
    pub fn places_a_link(&self) -> u64 {
        let list = match (self.op, self.posting) {
            (Opcode::Read | Opcode::Write | Opcode::WriteImm, Posting::List(n)) => n,
            _ => 1,
        };
        let fit = PLACES / self.size.max(64);
        list.clamp(1, MAX_LIST).min(fit.max(1)).into()
    }

    /// One of so many is signaled, so that completions come before the queue is full.
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
