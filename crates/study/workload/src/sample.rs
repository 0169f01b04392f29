//! Timing single messages without disturbing the mean.

use adverb_results::LatencyRecorder;
use adverb_units::{Span, Time};
use adverb_verbs::Station;

use crate::random::Random;

/// What counting one latency costs, in addition to reading the clock twice.
const RECORD_COST: Span = Span::from_ns(50);
/// Sampling, and looking at the clock, takes at most one part in this many of the time.
const SHARE: u64 = 100;
/// Completions between two looks at the clock at most.
const LONGEST: u32 = 256;

/// Records single latencies, of one message in k.
pub(crate) struct Sampler {
    pub(crate) recorder: LatencyRecorder,
    /// k, on average: at random, so that no period of the program is always sampled at the same place.
    pub(crate) every: u64,
    /// Whether k follows from the messages that it has seen, as no warm-up told their speed.
    adapts: bool,
    random: Random,
    /// Time between two readings of the clock with nothing in between.
    clock_cost: Span,
}

impl Sampler {
    /// For messages (or rounds) that take `mean`: k is such that sampling takes at most 1 % of the
    /// time.
    pub(crate) fn new<S: Station>(station: &S, mean: Span) -> Self {
        let mut sampler = Sampler {
            adapts: false,
            ..Sampler::adapting(station)
        };
        sampler.adapt(mean);
        sampler
    }

    /// For messages of a speed that shows while it samples them.
    pub(crate) fn adapting<S: Station>(station: &S) -> Self {
        Sampler {
            recorder: LatencyRecorder::new(),
            every: 1,
            adapts: true,
            random: Random::new(1),
            clock_cost: station.clock_cost(),
        }
    }

    fn adapt(&mut self, mean: Span) {
        let cost = self.clock_cost * 2 + RECORD_COST;
        self.every = (cost * SHARE).as_ps().div_ceil(mean.as_ps().max(1)).max(1);
    }

    /// Records what took from `start` to `end`, by `parts` messages one after the other.
    pub(crate) fn record(&mut self, start: Time, end: Time, parts: u64) {
        let took = (end - start).saturating_sub(self.clock_cost);
        self.recorder.record(took / parts);
    }

    /// Messages until the next one to be timed, of a window of `window`.
    fn distance(&mut self, window: u64) -> u64 {
        self.random.below((2 * self.every - 1).max(window))
    }
}

/// Times one message at a time among many in flight: from when its buffer was free, which is just before
/// the posts that it is one of, until its completion is reaped. So the time that a message waits for those
/// that are posted before it counts, and outstanding messages are rate × mean latency.
pub(crate) struct Watch<'a> {
    sampler: Option<&'a mut Sampler>,
    /// The message to be timed; beyond all while one is in flight.
    next: u64,
    /// When the present posts began, if the message is one of them.
    began: Time,
    /// The message that is timed, by its link and its number there.
    open: Option<(usize, u64)>,
    /// When the last one was recorded, and how many messages had been posted then.
    last: Option<(Time, u64)>,
}

impl<'a> Watch<'a> {
    /// Times messages from number `first` on, if there is a sampler.
    pub(crate) fn new(sampler: Option<&'a mut Sampler>, first: u64) -> Self {
        Watch {
            next: if sampler.is_some() { first } else { u64::MAX },
            sampler,
            began: Time::ZERO,
            open: None,
            last: None,
        }
    }

    /// At most `room` messages are posted now, after `posted`. Returns the time, if it was read.
    #[inline]
    pub(crate) fn posting<S: Station>(
        &mut self,
        station: &S,
        (posted, room): (u64, u64),
    ) -> Option<Time> {
        (self.next < posted + room).then(|| {
            self.began = station.now();
            self.began
        })
    }

    /// Message `number` is posted, as message `place` of a link.
    #[inline]
    pub(crate) fn posted(&mut self, number: u64, (link, place): (usize, u64)) {
        if number == self.next {
            self.open = Some((link, place));
            self.next = u64::MAX;
        }
    }

    /// The link whose message is timed, and the number of that message there.
    #[inline]
    pub(crate) fn open(&self) -> Option<(usize, u64)> {
        self.open
    }

    /// The timed message is reaped, after `posted` messages with `window` in flight at most. Returns the time.
    pub(crate) fn reaped<S: Station>(&mut self, station: &S, posted: u64, window: u64) -> Time {
        let now = station.now();
        self.open = None;
        if let Some(sampler) = &mut self.sampler {
            sampler.record(self.began, now, 1);
            if let Some((before, then)) = self.last
                && sampler.adapts
            {
                sampler.adapt((now - before) / (posted - then).max(1));
            }
            self.next = posted + sampler.distance(window);
        }
        self.last = Some((now, posted));
        now
    }
}

/// Says when to look at the clock next, so that looking takes at most 1 % of the time.
pub(crate) struct Ticker {
    /// Completions between two looks.
    every: u32,
    left: u32,
    last: Time,
    clock_cost: Span,
}

impl Ticker {
    pub(crate) fn new<S: Station>(station: &S) -> Self {
        Ticker {
            every: 1,
            left: 1,
            last: station.now(),
            clock_cost: station.clock_cost(),
        }
    }

    /// The time, if it is to be looked at after this reaping of completions.
    #[inline]
    pub(crate) fn tick<S: Station>(&mut self, station: &S) -> Option<Time> {
        self.left -= 1;
        (self.left == 0).then(|| self.look(station.now()))
    }

    #[cold]
    fn look(&mut self, now: Time) -> Time {
        let took = now - self.last;
        if took < self.clock_cost * SHARE {
            self.every = (self.every * 2).min(LONGEST);
        } else if took > self.clock_cost * SHARE * 4 {
            self.every = (self.every / 2).max(1);
        }
        (self.left, self.last) = (self.every, now);
        now
    }
}
