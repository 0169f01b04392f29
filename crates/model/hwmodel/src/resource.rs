//! Things that serve one request after another, as next-free times instead of queues.

use adverb_units::{Span, Time};

/// Serves one request at a time, in the order of asking.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Server {
    free: Time,
}

impl Server {
    /// Serves for `span`, from `at` on at the earliest; returns when it begins.
    #[inline]
    pub(crate) fn begin(&mut self, at: Time, span: Span) -> Time {
        let start = at.max(self.free);
        self.free = start + span;
        start
    }

    /// When it is free.
    #[inline]
    pub(crate) fn free(&self) -> Time {
        self.free
    }

    /// The same; returns when it ends.
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

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.free.len()
    }

    /// When a slot is free for a request that comes at `at`.
    #[inline]
    pub(crate) fn admit(&self, at: Time) -> Time {
        at.max(self.free[self.next])
    }

    /// The slot that [`Slots::admit`] named is used until `end`.
    #[inline]
    pub(crate) fn occupy(&mut self, end: Time) {
        self.free[self.next] = end;
        self.next = (self.next + 1) % self.free.len();
    }
}

/// A cache of small numbers, any in any place; a full one lets a random entry go.
///
/// Which entry real NICs evict is not known. With random replacement the share of hits falls with
/// the ratio of entries to numbers in use, whether they come at random or in turn.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// Room in half entries, and what of it is taken.
    room: usize,
    taken: usize,
    kept: Vec<(u32, Room)>,
    /// Place of each number in `kept`, plus 1; 0 is nowhere.
    places: Vec<u32>,
    random: u64,
}

/// The room that something takes in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Half of an entry.
    Half = 1,
    /// A whole one.
    Whole = 2,
}

impl Cache {
    /// `random` is a seed.
    pub(crate) fn new(entries: usize, random: u64) -> Self {
        Cache {
            room: Room::Whole as usize * entries.max(1),
            taken: 0,
            kept: Vec::new(),
            places: Vec::new(),
            // The generator never leaves zero.
            random: random | 1,
        }
    }

    /// Looks `key` up and keeps it; whether it was there.
    #[inline]
    pub(crate) fn access(&mut self, key: u32) -> bool {
        self.access_in(key, Room::Whole)
    }

    /// The same of a key that takes so much room, each time the same.
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

    /// Takes in a key that is not there.
    fn keep(&mut self, key: u32, room: Room) {
        let index = key as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, 0);
        }
        let mut place = self.kept.len();
        while self.taken + room as usize > self.room {
            self.close(place);
            place = self.choose();
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

    /// Nothing is kept at a place any more: what is kept last moves there.
    fn close(&mut self, place: usize) {
        if place < self.kept.len() {
            self.kept.swap_remove(place);
            if let Some((moved, _)) = self.kept.get(place) {
                self.places[*moved as usize] = place as u32 + 1;
            }
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        for (key, _) in self.kept.drain(..) {
            self.places[key as usize] = 0;
        }
        self.taken = 0;
    }

    /// xorshift64 (Marsaglia 2003).
    fn choose(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((u128::from(self.random) * self.kept.len() as u128) >> 64) as usize
    }
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
        assert_eq!(
            server.begin(Time::ZERO + ns(40), ns(1)),
            Time::ZERO + ns(40)
        );
    }

    #[test]
    fn slots_are_admitted_as_they_become_free() {
        let at = |ns| Time::ZERO + Span::from_ns(ns);
        let mut slots = Slots::new(2);
        for (ask, begin) in [(0, 0), (0, 0), (1, 10), (1, 10), (50, 50)] {
            assert_eq!(slots.admit(at(ask)), at(begin));
            slots.occupy(at(begin + 10));
        }
    }

    #[test]
    fn a_cleared_cache_has_nothing() {
        let mut cache = Cache::new(2, 7);
        assert!(!cache.access(5) && !cache.access(9) && cache.access(5));
        cache.clear();
        assert!(!cache.access(5) && cache.access(5));
    }

    #[test]
    fn keys_of_half_the_room_fit_twice_as_often_and_beside_others() {
        let mut cache = Cache::new(100, 7);
        let half = |cache: &mut Cache, key| cache.access_in(key, Room::Half);
        assert!((0..200).all(|key| !half(&mut cache, key)));
        assert!((0..200).all(|key| half(&mut cache, key)));
        // A whole one takes the place of two; what else is kept can still be found.
        assert!(!cache.access(1_000) && cache.access(1_000));
        assert_eq!((cache.kept.len(), cache.taken), (199, 200));
        let there = |key: &u32| cache.places[*key as usize] != 0;
        assert_eq!((0..200).filter(there).count(), 198);
        for (place, (key, _)) in cache.kept.iter().enumerate() {
            assert_eq!(cache.places[*key as usize] as usize, place + 1);
        }
    }

    #[test]
    fn a_cache_hits_all_that_fit_and_else_the_share_that_does() {
        let hits = |keys: u32| {
            let mut cache = Cache::new(100, 7);
            let accesses = (0..200 * keys).map(|i| cache.access(i % keys));
            f64::from(accesses.map(u32::from).sum::<u32>()) / f64::from(200 * keys)
        };
        assert!(hits(100) > 0.99);
        // In turn, random replacement keeps x of what is used, where x = exp(-(1 - x) / (C / N)).
        assert!((0.15..0.35).contains(&hits(200)), "{}", hits(200));
        assert!(hits(1_000) < 0.05);
    }
}
