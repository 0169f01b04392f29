//! Servers, slots and caches. A server keeps the time at which it is free instead of a queue of requests.

use adverb_units::{Span, Time};

/// Serves one request at a time, first come, first served.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Server {
    free: Time,
    /// How long all services took together.
    busy: Span,
}

impl Server {
    /// Serves a request that arrives at `at` for `span`; returns when its service begins.
    #[inline]
    pub(crate) fn begin(&mut self, at: Time, span: Span) -> Time {
        let start = at.max(self.free);
        self.busy += span;
        self.free = start + span;
        start
    }

    #[inline]
    pub(crate) fn free(&self) -> Time {
        self.free
    }

    /// Returns how long all services took together.
    pub(crate) fn busy(&self) -> Span {
        self.busy
    }

    /// Returns how long services took until `at`, without those that wait at that time.
    pub(crate) fn served(&self, at: Time) -> Span {
        self.busy.saturating_sub(self.free - self.free.min(at))
    }

    /// As [`Server::begin`], but returns when the service ends.
    #[inline]
    pub(crate) fn serve(&mut self, at: Time, span: Span) -> Time {
        self.begin(at, span) + span
    }
}

/// Serves a fixed number of requests at a time, first come, first served.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    free: Box<[Time]>,
    next: usize,
}

impl Slots {
    pub(crate) fn new(slots: usize) -> Self {
        Slots {
            free: vec![Time::ZERO; slots.max(1)].into_boxed_slice(),
            next: 0,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.free.len()
    }

    /// When a slot is free for a request that arrives at `at`.
    #[inline]
    pub(crate) fn admit(&self, at: Time) -> Time {
        at.max(self.free[self.next])
    }

    /// Occupies the slot of the last [`Slots::admit`] until `end`.
    #[inline]
    pub(crate) fn occupy(&mut self, end: Time) {
        self.free[self.next] = end;
        self.next = (self.next + 1) % self.free.len();
    }
}

/// A fully associative cache of small numbers with random replacement.
///
/// Which entry real NICs evict is not known. With random replacement the hit rate falls with the ratio of
/// entries to numbers in use, for random and for cyclic accesses.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// Capacity in half entries, and how many are occupied.
    room: usize,
    taken: usize,
    kept: Vec<(u32, Room)>,
    /// Place of each number in `kept`, plus 1; 0 if it is not cached.
    places: Vec<u32>,
    random: u64,
}

/// The room that an entry takes in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Half = 1,
    Whole = 2,
}

impl Cache {
    /// An empty cache; `random` is the seed of its replacement.
    pub(crate) fn new(entries: usize, random: u64) -> Self {
        Cache {
            room: Room::Whole as usize * entries.max(1),
            taken: 0,
            kept: Vec::new(),
            places: Vec::new(),
            // xorshift maps 0 to 0.
            random: random | 1,
        }
    }

    /// Looks up `key`, and caches it; returns whether it was a hit.
    #[inline]
    pub(crate) fn access(&mut self, key: u32) -> bool {
        self.access_in(key, Room::Whole)
    }

    /// As [`Cache::access`], for a key that always takes `room`.
    #[inline]
    pub(crate) fn access_in(&mut self, key: u32, room: Room) -> bool {
        let is_there = self
            .places
            .get(key as usize)
            .is_some_and(|place| *place != 0);
        if !is_there {
            self.keep(key, room);
        }
        is_there
    }

    fn keep(&mut self, key: u32, room: Room) {
        let index = key as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, 0);
        }
        let mut place = self.kept.len();
        while self.taken + room as usize > self.room {
            self.close(place);
            place = xorshift(&mut self.random, self.kept.len());
            let (gone, left) = self.kept[place];
            self.places[gone as usize] = 0;
            self.taken -= left as usize;
        }
        if place == self.kept.len() {
            self.kept.push((key, room));
        } else {
            self.kept[place] = (key, room);
        }
        self.taken += room as usize;
        self.places[index] = place as u32 + 1;
    }

    /// Removes the entry at `place`; the last entry moves there.
    fn close(&mut self, place: usize) {
        if place < self.kept.len() {
            self.kept.swap_remove(place);
            if let Some((moved, _)) = self.kept.get(place) {
                self.places[*moved as usize] = place as u32 + 1;
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        for (key, _) in self.kept.drain(..) {
            self.places[key as usize] = 0;
        }
        self.taken = 0;
    }
}

/// Returns a random number below `choices` by xorshift64 (Marsaglia 2003), which maps the state 0 to 0.
pub(crate) fn xorshift(state: &mut u64, choices: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    ((u128::from(*state) * choices as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_serves_one_after_another() {
        let mut server = Server::default();
        let ns = Span::from_ns;
        assert_eq!(
            server.serve(Time::ZERO + ns(5), ns(10)),
            Time::ZERO + ns(15)
        );
        assert_eq!(
            server.serve(Time::ZERO + ns(6), ns(10)),
            Time::ZERO + ns(25)
        );
        assert_eq!(server.served(Time::ZERO + ns(20)), ns(15));
        assert_eq!(
            server.begin(Time::ZERO + ns(40), ns(1)),
            Time::ZERO + ns(40)
        );
        assert_eq!(server.served(Time::ZERO + ns(50)), ns(21));
    }

    #[test]
    fn a_request_waits_for_a_free_slot() {
        let at = |ns| Time::ZERO + Span::from_ns(ns);
        let mut slots = Slots::new(2);
        for (ask, begin) in [(0, 0), (0, 0), (1, 10), (1, 10), (50, 50)] {
            assert_eq!(slots.admit(at(ask)), at(begin));
            slots.occupy(at(begin + 10));
        }
    }

    #[test]
    fn a_cleared_cache_is_empty() {
        let mut cache = Cache::new(2, 7);
        assert!(!cache.access(5) && !cache.access(9) && cache.access(5));
        cache.clear();
        assert!(!cache.access(5) && cache.access(5));
    }

    #[test]
    fn half_size_keys_fit_twice_as_often_and_next_to_whole_ones() {
        let mut cache = Cache::new(100, 7);
        let half = |cache: &mut Cache, key| cache.access_in(key, Room::Half);
        assert!((0..200).all(|key| !half(&mut cache, key)));
        assert!((0..200).all(|key| half(&mut cache, key)));
        // A whole entry replaces two halves; all other entries are still found.
        assert!(!cache.access(1_000) && cache.access(1_000));
        assert_eq!((cache.kept.len(), cache.taken), (199, 200));
        let there = |key: &u32| cache.places[*key as usize] != 0;
        assert_eq!((0..200).filter(there).count(), 198);
        for (place, (key, _)) in cache.kept.iter().enumerate() {
            assert_eq!(cache.places[*key as usize] as usize, place + 1);
        }
    }

    #[test]
    fn the_hit_rate_follows_the_ratio_of_entries_to_keys() {
        let hits = |keys: u32| {
            let mut cache = Cache::new(100, 7);
            let accesses = (0..200 * keys).map(|i| cache.access(i % keys));
            f64::from(accesses.map(u32::from).sum::<u32>()) / f64::from(200 * keys)
        };
        assert!(hits(100) > 0.99);
        // For cyclic accesses the hit rate x solves x = exp(-(1 - x) / (C / N)).
        assert!((0.15..0.35).contains(&hits(200)), "{}", hits(200));
        assert!(hits(1_000) < 0.05);
    }
}
