//! Timing single messages without disturbing the mean.

use adverb_results::LatencyRecorder;
use adverb_units::{Span, Time};
use adverb_verbs::Station;

use crate::pair::limit::Limit;

/// What counting one latency costs beside reading the clock, about.
const RECORD_COST: Span = Span::from_ns(50);
/// Share of the time that sampling may take: one in so many.
const SHARE: u64 = 100;

/// Records single latencies, of every k-th message.
pub(crate) struct Sampler {
    pub(crate) recorder: LatencyRecorder,
    /// k.
    pub(crate) every: u64,
    /// Between two readings of the clock with nothing in between, so much time passes.
    clock_cost: Span,
}

impl Sampler {
    /// For messages (or rounds) that take `mean`: k is such that sampling takes at most 1 % of the
    /// time.
    pub(crate) fn new<S: Station>(station: &S, mean: Span) -> Self {
        let clock_cost = station.clock_cost();
        let cost = clock_cost * 2 + RECORD_COST;
        Sampler {
            recorder: LatencyRecorder::new(),
            every: (cost * SHARE).as_ps().div_ceil(mean.as_ps().max(1)).max(1),
            clock_cost,
        }
    }

    /// Records what took from `start` to `end`, by `parts` messages one after the other.
    pub(crate) fn record(&mut self, start: Time, end: Time, parts: u64) {
        let took = (end - start).saturating_sub(self.clock_cost);
        self.recorder.record(took / parts);
    }
}

/// Times one message at a time among many in flight, from its post to its reaped completion.
pub(crate) struct Watch<'a> {
    sampler: Option<&'a mut Sampler>,
    /// The first message that may be timed next; beyond all while one is.
    next: u64,
    /// The message to be timed, chosen but not yet posted.
    chosen: Option<u64>,
    open: Option<(u64, Time)>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(sampler: Option<&'a mut Sampler>, first: u64) -> Self {
        let next = if sampler.is_some() { first } else { u64::MAX };
        Watch {
            sampler,
            next,
            chosen: None,
            open: None,
        }
    }

    /// `message` is about to be posted, signaled.
    #[inline]
    pub(crate) fn choose(&mut self, message: u64) {
        if message >= self.next {
            self.chosen = Some(message);
            self.next = u64::MAX;
        }
    }

    /// The chosen message, if any, is posted now.
    #[inline]
    pub(crate) fn posting<S: Station>(&mut self, station: &S) {
        if let Some(message) = self.chosen.take() {
            self.open = Some((message, station.now()));
        }
    }

    /// All messages before `completed` are reaped. Whether the clock was read, at which `limit` looked, too.
    #[inline]
    pub(crate) fn reaped<S: Station>(
        &mut self,
        station: &S,
        completed: u64,
        limit: &Limit,
    ) -> bool {
        let is_reaped = self.open.is_some_and(|(message, _)| message < completed);
        if is_reaped {
            let now = station.now();
            self.close(now);
            limit.look(now);
        }
        is_reaped
    }

    fn close(&mut self, end: Time) {
        if let (Some((message, posted)), Some(sampler)) = (self.open.take(), self.sampler.as_mut())
        {
            sampler.record(posted, end, 1);
            self.next = message.saturating_add(sampler.every);
        }
    }
}
