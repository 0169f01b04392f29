//! Counts the requests of send queues where one in several asks for a completion.

use adverb_verbs::{SendFlags, WrId};

/// A send queue.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    /// Requests posted, without completion so far.
    outstanding: u32,
    /// Unsignaled ones since the last signaled one.
    unsignaled: u32,
}

/// Send queues of equal length.
pub(crate) struct Sends {
    depth: u32,
    /// One in this many requests of a queue is signaled.
    period: u32,
    queues: Vec<Queue>,
}

impl Sends {
    pub(crate) fn new(queues: usize, depth: u32, period: u32) -> Self {
        Sends {
            depth,
            period,
            queues: vec![Queue::default(); queues],
        }
    }

    /// Whether a queue has room for `n` requests.
    #[inline]
    pub(crate) fn has_room(&self, queue: usize, n: u32) -> bool {
        self.queues[queue].outstanding + n <= self.depth
    }

    /// Returns id and flags of the next request of a queue. The id contains the queue and the number of requests that
    /// its completion covers.
    #[inline]
    pub(crate) fn next(&mut self, queue: usize) -> (WrId, SendFlags) {
        let track = &mut self.queues[queue];
        track.outstanding += 1;
        track.unsignaled += 1;
        let name = WrId((queue as u64) << 32 | u64::from(track.unsignaled));
        if track.unsignaled < self.period {
            return (name, SendFlags::empty());
        }
        track.unsignaled = 0;
        (name, SendFlags::SIGNALED)
    }

    /// Takes the completion of a request with this id.
    pub(crate) fn completed(&mut self, name: WrId) {
        self.queues[(name.0 >> 32) as usize].outstanding -= name.0 as u32;
    }
}
