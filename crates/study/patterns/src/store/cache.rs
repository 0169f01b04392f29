//! The items of a store: keys, places of values, order of use, expiry. It holds no value: the caller owns the
//! memory, of which this gives out blocks, and reads and writes them. It reads no clock.
//!
//! A value never changes in place. A new value has a block of its own, which the caller fills before [`Cache::store`]
//! makes it the key's. A [`Pin`] keeps a block from being given out again, even after its item was replaced, deleted,
//! evicted or has expired. Whoever reads a value while others may change the cache therefore holds a pin from before
//! the first byte is read until after the last.

use std::hash::{BuildHasher, RandomState};

use adverb_units::Bytes;
use buddy_system_allocator::FrameAllocator;
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use slab::Slab;
use smallvec::SmallVec;

/// Seconds on the caller's clock.
pub type Seconds = u64;

/// Longest key, as in memcached.
pub const MAX_KEY: usize = 250;
/// Least block; blocks are powers of two.
const UNIT: u64 = 64;
/// The end of the list of items.
const NONE: usize = usize::MAX;
/// Items that a full store that does not evict searches for expired ones.
const SEARCHED: usize = 64;

/// Limits of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory for values.
    pub memory: Bytes,
    /// Largest value.
    pub max_value: Bytes,
    /// Whether the least recently used items make room for new ones.
    pub evicts: bool,
}

/// Where a value is in the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Offset of its first byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// An item's attributes.
#[derive(Clone, Debug)]
pub struct Item {
    /// Short ones are in the item, so that comparing them touches no other cache line.
    key: SmallVec<[u8; 32]>,
    hash: u64,
    /// Its value.
    pub place: Place,
    /// The client's flags.
    pub flags: u32,
    /// When it expires, if it does.
    pub expires: Option<Seconds>,
    /// Unique number of this version.
    pub cas: u64,
    /// When it was last stored, read or touched.
    pub used: Seconds,
    /// Whether it was read since it was stored.
    pub was_read: bool,
    /// Whether a client called it out of date.
    pub is_stale: bool,
    /// Whether a client was told to replace it.
    pub is_awaited: bool,
    /// The index's reference, if it is linked, and pins.
    references: u32,
    newer: usize,
    older: usize,
}

impl Item {
    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    fn is_pinned(&self) -> bool {
        self.references > 1
    }
}

/// Identifies an item until the cache is next changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(usize);

/// Keeps a block from reuse. [`Cache::unpin`] or [`Cache::store`] takes it back; a dropped pin occupies its block
/// indefinitely.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a dropped pin occupies its block indefinitely"]
pub struct Pin(usize);

/// When a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// In any case.
    Always,
    /// If the key has no item.
    Absent,
    /// If the key has an item.
    Present,
    /// If the key's item has this unique number.
    Unique(u64),
    /// As for [`Condition::Unique`], or if the item's number is greater and the value may be stored as out of date.
    UniqueOrStale(u64),
}

/// Why a value was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The value exceeds [`Limits::max_value`].
    #[error("the value is too large")]
    TooLarge,
    /// Nothing can be evicted.
    #[error("no memory for the value")]
    NoMemory,
    /// The key has an item, or none, contrary to the condition.
    #[error("the key's presence differs from the condition")]
    Presence,
    /// The item was changed: its unique number is another one.
    #[error("the item was changed")]
    Changed,
    /// There is no item to compare with.
    #[error("the key has no item")]
    Missing,
}

/// Counts of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Items stored so far.
    pub stored: u64,
    /// Items that made room for others.
    pub evictions: u64,
    /// Items that were found to have expired.
    pub expired: u64,
}

/// Items by key.
#[derive(Debug)]
pub struct Cache {
    limits: Limits,
    index: HashTable<usize>,
    hasher: RandomState,
    items: Slab<Item>,
    newest: usize,
    oldest: usize,
    space: Space,
    /// Bytes of blocks given out.
    used: u64,
    last_cas: u64,
    /// Items up to this unique number are flushed.
    flushed: u64,
    flush_at: Option<Seconds>,
    stats: Stats,
}

/// Free blocks. The largest has 2^31 units: 128 GiB.
struct Space(FrameAllocator<32>);

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Space")
    }
}

fn units(length: u32) -> usize {
    u64::from(length).div_ceil(UNIT).max(1) as usize
}

/// Returns the bytes of the block for a value.
pub fn block(length: u32) -> u64 {
    units(length).next_power_of_two() as u64 * UNIT
}

impl Cache {
    /// Returns an empty cache.
    pub fn new(limits: Limits) -> Self {
        let mut space = FrameAllocator::new();
        space.add_frame(0, (limits.memory.get() / UNIT) as usize);
        Cache {
            limits,
            index: HashTable::new(),
            hasher: RandomState::new(),
            items: Slab::new(),
            newest: NONE,
            oldest: NONE,
            space: Space(space),
            used: 0,
            last_cas: 0,
            flushed: 0,
            flush_at: None,
            stats: Stats::default(),
        }
    }

    /// Returns the limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the counts.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the number of linked items, including expired ones that nobody has asked for.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether no item is linked.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the memory in blocks that are not free.
    pub fn used(&self) -> Bytes {
        Bytes::new(self.used)
    }

    /// Returns an item.
    pub fn item(&self, id: Id) -> &Item {
        &self.items[id.0]
    }

    /// Returns an item, to change its attributes.
    pub fn item_mut(&mut self, id: Id) -> &mut Item {
        &mut self.items[id.0]
    }

    /// Returns the place of a pinned block.
    pub fn place(&self, pin: &Pin) -> Place {
        self.items[pin.0].place
    }

    /// Returns the key of a pinned block, before or after it is stored.
    pub fn key(&self, pin: &Pin) -> &[u8] {
        &self.items[pin.0].key
    }

    /// Returns the item of a key, without counting it as used.
    pub fn find(&mut self, key: &[u8], now: Seconds) -> Option<Id> {
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush(None);
        }
        let hash = self.hasher.hash_one(key);
        let found = self
            .index
            .find(hash, |item| *self.items[*item].key == *key)
            .copied()?;
        if self.is_alive(found, now) {
            return Some(Id(found));
        }
        self.stats.expired += 1;
        self.unlink(found);
        None
    }

    /// Returns the item of a key, which thereby becomes the most recently used one.
    pub fn get(&mut self, key: &[u8], now: Seconds) -> Option<Id> {
        let id = self.find(key, now)?;
        self.mark_used(id, now);
        self.items[id.0].was_read = true;
        Some(id)
    }

    /// Makes an item the most recently used one.
    pub fn mark_used(&mut self, id: Id, now: Seconds) {
        if self.newest != id.0 {
            self.leave(id.0);
            self.enter(id.0);
        }
        self.items[id.0].used = now;
    }

    /// Pins an item's block.
    pub fn pin(&mut self, id: Id) -> Pin {
        self.items[id.0].references += 1;
        Pin(id.0)
    }

    /// Ends a pin.
    pub fn unpin(&mut self, Pin(place): Pin) {
        self.release(place);
    }

    /// Returns a pinned block for a value, which the caller fills and then passes to [`Cache::store`], or to
    /// [`Cache::unpin`].
    ///
    /// # Errors
    /// The value is too large, or there is no memory.
    pub fn reserve(&mut self, key: &[u8], length: u64, now: Seconds) -> Result<Pin, Refusal> {
        debug_assert!(key.len() <= MAX_KEY);
        let most = self.limits.max_value.get();
        let length = u32::try_from(length).ok().filter(|n| u64::from(*n) <= most);
        let length = length.ok_or(Refusal::TooLarge)?;
        let first = self.make_room(units(length), now)?;
        self.used += block(length);
        let item = Item {
            key: key.into(),
            hash: self.hasher.hash_one(key),
            place: Place {
                offset: first as u64 * UNIT,
                length,
            },
            flags: 0,
            expires: None,
            cas: 0,
            used: now,
            was_read: false,
            is_stale: false,
            is_awaited: false,
            references: 1,
            newer: NONE,
            older: NONE,
        };
        Ok(Pin(self.items.insert(item)))
    }

    /// Makes a filled block the value of its key, in place of an earlier one. Returns the item; its unique number
    /// is greater than those of all earlier ones.
    ///
    /// # Errors
    /// The condition does not hold; the block is free again.
    pub fn store(
        &mut self,
        pin: Pin,
        (flags, expires): (u32, Option<Seconds>),
        condition: Condition,
        now: Seconds,
    ) -> Result<Id, Refusal> {
        let key = std::mem::take(&mut self.items[pin.0].key);
        let earlier = self.find(&key, now);
        let cas = earlier.map(|id| self.items[id.0].cas);
        let is_stale = match permits(condition, cas) {
            Ok(is_stale) => is_stale,
            Err(refusal) => {
                self.unpin(pin);
                return Err(refusal);
            }
        };
        if let Some(id) = earlier {
            self.unlink(id.0);
        }
        self.last_cas += 1;
        self.stats.stored += 1;
        let place = pin.0;
        let item = &mut self.items[place];
        (item.key, item.cas, item.used) = (key, self.last_cas, now);
        (item.flags, item.expires, item.is_stale) = (flags, expires, is_stale);
        // The pin becomes the reference of the index.
        let hash = item.hash;
        let items = &self.items;
        self.index
            .insert_unique(hash, place, |other| items[*other].hash);
        self.enter(place);
        Ok(Id(place))
    }

    /// Returns a unique number greater than those of all items, for an item that is changed without a new value.
    pub fn next_cas(&mut self) -> u64 {
        self.last_cas += 1;
        self.last_cas
    }

    /// Deletes an item.
    pub fn delete(&mut self, id: Id) {
        self.unlink(id.0);
    }

    /// Makes all items of the present expire: now, or at `at` all items of that time.
    pub fn flush(&mut self, at: Option<Seconds>) {
        self.flush_at = at;
        if at.is_none() {
            self.flushed = self.last_cas;
        }
    }

    /// Returns the linked items, the least recently used one first.
    #[cfg(test)]
    fn by_age(&self) -> Vec<&Item> {
        let first = self.items.get(self.oldest);
        std::iter::successors(first, |item| self.items.get(item.newer)).collect()
    }

    fn is_alive(&self, place: usize, now: Seconds) -> bool {
        let item = &self.items[place];
        item.cas > self.flushed && item.expires.is_none_or(|at| now < at)
    }

    /// Returns a block, after evicting as many of the least recently used items as it takes.
    fn make_room(&mut self, units: usize, now: Seconds) -> Result<usize, Refusal> {
        let mut next = self.oldest;
        let mut left = if self.limits.evicts {
            usize::MAX
        } else {
            SEARCHED
        };
        loop {
            if let Some(first) = self.space.0.alloc(units) {
                return Ok(first);
            }
            if next == NONE || left == 0 {
                return Err(Refusal::NoMemory);
            }
            let candidate = next;
            (next, left) = (self.items[candidate].newer, left - 1);
            let is_alive = self.is_alive(candidate, now);
            if self.items[candidate].is_pinned() || (is_alive && !self.limits.evicts) {
                continue;
            }
            match is_alive {
                true => self.stats.evictions += 1,
                false => self.stats.expired += 1,
            }
            self.unlink(candidate);
        }
    }

    /// Takes an item out of the index and of the list; its block is free when its last pin ends.
    fn unlink(&mut self, place: usize) {
        let found = self
            .index
            .find_entry(self.items[place].hash, |item| *item == place);
        found.expect("a linked item is in the index").remove();
        self.leave(place);
        self.release(place);
    }

    fn release(&mut self, place: usize) {
        let item = &mut self.items[place];
        item.references -= 1;
        if item.references == 0 {
            let Place { offset, length } = self.items.remove(place).place;
            self.space
                .0
                .dealloc((offset / UNIT) as usize, units(length));
            self.used -= block(length);
        }
    }

    fn leave(&mut self, place: usize) {
        let (newer, older) = (self.items[place].newer, self.items[place].older);
        match self.items.get_mut(newer) {
            Some(item) => item.older = older,
            None => self.newest = older,
        }
        match self.items.get_mut(older) {
            Some(item) => item.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn enter(&mut self, place: usize) {
        let older = std::mem::replace(&mut self.newest, place);
        (self.items[place].newer, self.items[place].older) = (NONE, older);
        match self.items.get_mut(older) {
            Some(item) => item.newer = place,
            None => self.oldest = place,
        }
    }
}

/// Returns whether a value is stored as out of date, given the unique number of the key's item.
fn permits(condition: Condition, cas: Option<u64>) -> Result<bool, Refusal> {
    match (condition, cas) {
        (Condition::Absent, Some(_)) | (Condition::Present, None) => Err(Refusal::Presence),
        (Condition::Unique(_) | Condition::UniqueOrStale(_), None) => Err(Refusal::Missing),
        (Condition::Unique(expected), Some(cas)) if expected != cas => Err(Refusal::Changed),
        (Condition::UniqueOrStale(expected), Some(cas)) if expected != cas => {
            match expected < cas {
                true => Ok(true),
                false => Err(Refusal::Changed),
            }
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests;
