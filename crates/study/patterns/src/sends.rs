//! Counts the requests of send queues where one in several asks for a completion.

use adverb_verbs::{SendFlags, Station, WorkCompletion, WrId};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;
use adverb_workload::reap::{BATCH, Reaper};

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

    /// Waits until a queue has room for `n` requests. Only their completions are in the reaper's queue.
    ///
    /// # Errors
    /// As for [`Reaper::reap`].
    pub(crate) fn make_room<S: Station>(
        &mut self,
        (queue, n): (usize, u32),
        members: &Members<'_, S>,
        reaper: &mut Reaper<'_, S::Context>,
    ) -> Result<(), Fault> {
        while !self.has_room(queue, n) {
            let mut completions = [WorkCompletion::default(); BATCH];
            let taken = reaper.reap(members.station(), members, &mut completions)?;
            for wc in &completions[..taken] {
                self.completed(wc.wr_id);
            }
        }
        Ok(())
    }

    /// Takes the completion of a request with this id.
    pub(crate) fn completed(&mut self, name: WrId) {
        self.queues[(name.0 >> 32) as usize].outstanding -= name.0 as u32;
    }
}
