//! Results of a member of a service.

use adverb_results::LatencyRecorder;
use adverb_units::{CpuTime, Span, Time};
use adverb_workload::pattern::{Meter, Tally, Timing};
use serde::{Deserialize, Serialize};

use crate::checked::NumberSet;

/// Results of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceTally {
    /// Requests that a core answered, or that completed at a client, in the measured time.
    pub requests: u64,
    /// Those in the first half of the measured time, which need not end after a whole one.
    pub requests_first: f64,
    /// The measured time.
    pub elapsed: Span,
    /// Number of posts for the answers of a core.
    pub posts: u64,
    /// What [`Self::batch_mean`] returns.
    pub(crate) batch: Option<f64>,
    /// CPU time used.
    pub cpu: CpuTime,
    /// The time over which `cpu` was used.
    pub cpu_over: Span,
    /// Begin and end of the measured time on the clock of its host, if the member reached both.
    pub window: Option<[Time; 2]>,
    /// Times from free slot to polled answer, if requests are timed.
    pub waits: Option<LatencyRecorder>,
    /// The numbers that a client received in all of its requests.
    pub handed: NumberSet,
    /// Numbers handed out by all cores of the process, as a core found after all clients had ended.
    pub handed_out: u64,
    /// Values that a client checked in all of its requests.
    pub values_checked: u64,
    /// GETs of a key that the store does not have (any more).
    pub misses: u64,
    /// Items that a store evicted.
    pub evicted: u64,
    /// Accesses of the threads that load a server's machine.
    pub load_accesses: u64,
    /// NUMA node of the member's memory, if all of it is on one.
    pub memory_node: Option<u32>,
    /// Items that a client locked and freed, or locks that the owner counts.
    pub locked: u64,
}

impl ServiceTally {
    /// Returns an empty tally, which records times if requests are timed.
    pub(crate) fn timed(timing: Timing) -> Self {
        ServiceTally {
            waits: (timing == Timing::Each).then(LatencyRecorder::new),
            ..ServiceTally::default()
        }
    }

    /// Adds the counts of the meter.
    pub(crate) fn measured_by(self, meter: &Meter) -> Self {
        let Tally {
            completed,
            completed_first,
            elapsed,
            cpu,
            cpu_over,
            window,
            ..
        } = meter.tally();
        ServiceTally {
            requests: completed,
            requests_first: completed_first,
            elapsed,
            cpu,
            cpu_over,
            window,
            ..self
        }
    }

    /// Returns requests per second; `None` if nothing was measured.
    pub fn per_second(&self) -> Option<f64> {
        let elapsed = self.elapsed.as_secs_f64();
        (elapsed > 0.0 && self.requests > 0).then(|| self.requests as f64 / elapsed)
    }

    /// Returns the mean number of answers per post; `None` for a client.
    pub fn batch_mean(&self) -> Option<f64> {
        self.batch
    }
}
