//! When a client sends its requests.

use std::collections::VecDeque;

use adverb_units::{Span, Time};
use adverb_workload::random::{Random, mix};

use crate::rpc::{Clients, Pace};

/// An outstanding request of an echo.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Seed of its reply.
    pub(crate) seed: u64,
    /// When it was due.
    pub(crate) at: Time,
}

/// When a client sends its next requests.
pub(crate) enum Due {
    /// A time for each request that is not outstanding.
    Closed(VecDeque<Time>),
    /// The time of the next request, and the mean time between two.
    Open(Time, Span),
}

impl Due {
    pub(crate) fn new(clients: &Clients, random: &mut Random, now: Time) -> Self {
        match clients.pace {
            Pace::Closed => Due::Closed(VecDeque::from(vec![now; clients.outstanding as usize])),
            Pace::Open(mean) => Due::Open(now + random.exponential(mean), mean),
        }
    }

    /// Returns when the next request is due; `None` if all are outstanding.
    pub(crate) fn next(&self) -> Option<Time> {
        match self {
            Due::Closed(times) => times.front().copied(),
            Due::Open(next, _) => Some(*next),
        }
    }

    /// Notes that the next request was sent.
    pub(crate) fn sent(&mut self, random: &mut Random) {
        match self {
            Due::Closed(times) => drop(times.pop_front()),
            Due::Open(next, mean) => *next = *next + random.exponential(*mean),
        }
    }

    /// Notes that a request was answered, so that another one may be sent at `next`.
    pub(crate) fn answered(&mut self, next: Time) {
        if let Due::Closed(times) = self {
            times.push_back(next);
        }
    }
}

/// Returns the seed of a client's requests.
pub(crate) fn seed(clients: &Clients, client: u32) -> u64 {
    mix(clients.seed ^ u64::from(client) << 32)
}
