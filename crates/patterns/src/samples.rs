//! Waiting times: their sum, and a uniform sample of them.

use adverb_units::Span;

use adverb_workload::pattern::random::Random;
use serde::{Deserialize, Serialize};

/// Times that are kept; of more, each has the same chance (Vitter 1985, algorithm R).
const KEPT: usize = 1 << 15;

/// Times from post to answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// How many were taken.
    pub count: u64,
    /// Their sum.
    pub sum: Span,
    /// A uniform sample of them, in no order.
    pub kept: Vec<Span>,
}

impl Samples {
    /// One more.
    #[inline]
    pub(crate) fn add(&mut self, span: Span, random: &mut Random) {
        self.count += 1;
        self.sum += span;
        if self.kept.len() < KEPT {
            self.kept.push(span);
        } else if let place = random.below(self.count) as usize
            && place < KEPT
        {
            self.kept[place] = span;
        }
    }

    /// The mean; none where there are none.
    pub fn mean(&self) -> Option<Span> {
        (self.count > 0).then(|| self.sum / self.count)
    }

    /// The sample, in order.
    pub fn sorted(mut self) -> Vec<Span> {
        self.kept.sort_unstable();
        self.kept
    }
}
