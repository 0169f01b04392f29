//! What a member of a service did.

use adverb_results::LatencyRecorder;
use adverb_units::{CpuTime, Span};
use adverb_workload::pattern::{Meter, Tally, Timing};
use serde::{Deserialize, Serialize};

use crate::checked::Handed;

/// What a member did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceTally {
    /// Requests that a core answered, or that a client saw done, in the measured time.
    pub requests: u64,
    /// The measured time.
    pub elapsed: Span,
    /// Calls of the post that the core's answers took.
    pub posts: u64,
    /// CPU time.
    pub cpu: CpuTime,
    /// Over this time.
    pub cpu_over: Span,
    /// Times from free slot to seen answer, if they were taken.
    pub waits: Option<LatencyRecorder>,
    /// The numbers that a client got, from its first request to its last.
    pub handed: Handed,
    /// Numbers that a core found to be handed out by all cores of its process, once all clients had ended.
    pub handed_out: u64,
    /// Values that a client found to be right, from its first request to its last.
    pub values_checked: u64,
    /// Items that a client locked and freed, or how often the owner finds that they were.
    pub locked: u64,
}

impl ServiceTally {
    /// An empty tally, which records times if requests are timed.
    pub(crate) fn timed(timing: Timing) -> Self {
        ServiceTally {
            waits: (timing == Timing::Each).then(LatencyRecorder::new),
            ..ServiceTally::default()
        }
    }

    /// With what the meter counted.
    pub(crate) fn measured_by(self, meter: &Meter) -> Self {
        let Tally {
            completed,
            elapsed,
            cpu,
            cpu_over,
            ..
        } = meter.tally();
        ServiceTally {
            requests: completed,
            elapsed,
            cpu,
            cpu_over,
            ..self
        }
    }

    /// Requests a second; none where nothing was measured.
    pub fn per_second(&self) -> Option<f64> {
        let elapsed = self.elapsed.as_secs_f64();
        (elapsed > 0.0 && self.requests > 0).then(|| self.requests as f64 / elapsed)
    }

    /// Answers in one call of the post, on average; none of a client.
    pub fn batch_mean(&self) -> Option<f64> {
        (self.posts > 0).then(|| self.requests as f64 / self.posts as f64)
    }
}
