//! Samples latencies of single messages without disturbing the mean.

use adverb_results::LatencyRecorder;
use adverb_units::{Span, Time};
use adverb_verbs::Station;

use crate::random::Random;

/// Cost of recording one latency, in addition to reading the clock twice.
const RECORD_COST: Span = Span::from_ns(50);
/// Sampling and reading the clock take at most 1 / `SHARE` of the time.
const SHARE: u64 = 100;
/// Maximum number of completions between two clock readings.
const LONGEST: u32 = 256;

/// Records the latency of one message in k.
pub(crate) struct Sampler {
    pub(crate) recorder: LatencyRecorder,
    /// Mean of k, which is random, so that sampling does not align with a period of the program.
    pub(crate) every: u64,
    /// Whether k adapts to the observed messages, because no warm-up measured their speed.
    adapts: bool,
    random: Random,
    /// Time between two consecutive clock readings.
    clock_cost: Span,
}

impl Sampler {
    /// Returns a sampler for messages (or rounds) that take `mean`, with k such that sampling takes at most 1 %
    /// of the time.
    pub(crate) fn new<S: Station>(station: &S, mean: Span) -> Self {
        let mut sampler = Sampler {
            adapts: false,
            ..Sampler::adapting(station)
        };
        sampler.adapt(mean);
        sampler
    }

    /// Returns a sampler for messages of unknown speed.
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

    /// Records the time from `start` to `end`, divided by `parts` consecutive messages.
    pub(crate) fn record(&mut self, start: Time, end: Time, parts: u64) {
        let took = (end - start).saturating_sub(self.clock_cost);
        self.recorder.record(took / parts);
    }

    /// Returns the number of messages until the next timed one, with `window` in flight.
    fn distance(&mut self, window: u64) -> u64 {
        self.random.below((2 * self.every - 1).max(window))
    }
}

/// Times a single message among many in flight: from when its buffer was free, just before its batch is
/// posted, until its completion is reaped. The time that it waits for earlier posts of the batch counts, so
/// that outstanding messages = rate × mean latency (Little's law).
pub(crate) struct Watch<'a> {
    sampler: Option<&'a mut Sampler>,
    /// The next message to time; beyond all messages while one is being timed.
    next: u64,
    /// When the current batch began, if the message is in it.
    began: Time,
    /// The message that is being timed: its link, and its number there.
    open: Option<(usize, u64)>,
    /// Time of the last record, and the number of messages posted by then.
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

    /// Called before at most `room` messages are posted, after `posted`. Returns the time, if it was read.
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

    /// Called when message `number` is posted, as message `place` of a link.
    #[inline]
    pub(crate) fn posted(&mut self, number: u64, (link, place): (usize, u64)) {
        if number == self.next {
            self.open = Some((link, place));
            self.next = u64::MAX;
        }
    }

    /// Returns the message that is being timed: its link, and its number there.
    #[inline]
    pub(crate) fn open(&self) -> Option<(usize, u64)> {
        self.open
    }

    /// Called when the timed message is reaped, after `posted` messages with up to `window` in flight. Returns the time.
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

/// Decides when to read the clock, so that reading takes at most 1 % of the time.
pub struct Ticker {
    /// Completions between two readings.
    every: u32,
    left: u32,
    last: Time,
    clock_cost: Span,
}

impl Ticker {
    /// Returns a ticker that reads the clock after the first completion.
    pub fn new<S: Station>(station: &S) -> Self {
        Ticker {
            every: 1,
            left: 1,
            last: station.now(),
            clock_cost: station.clock_cost(),
        }
    }

    /// Returns the time, if the clock is due after these completions.
    #[inline]
    pub fn tick<S: Station>(&mut self, station: &S) -> Option<Time> {
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
