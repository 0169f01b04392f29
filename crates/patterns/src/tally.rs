//! What a member of a service did.

use adverb_units::Span;
use serde::{Deserialize, Serialize};

use crate::checked::Handed;
use crate::samples::Samples;

/// What a member did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceTally {
    /// Requests that a core answered, or that a client saw done, in the measured time.
    pub requests: u64,
    /// The measured time.
    pub elapsed: Span,
    /// Calls of the post that the core's answers took.
    pub posts: u64,
    /// Times from post to seen answer, where they were taken.
    pub samples: Samples,
    /// The numbers that a client got, from its first request to its last.
    pub handed: Handed,
    /// Values that a client found to be right, from its first request to its last.
    pub values_checked: u64,
    /// Items that a client locked and freed, or how often the owner finds that they were.
    pub locked: u64,
}

impl ServiceTally {
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
