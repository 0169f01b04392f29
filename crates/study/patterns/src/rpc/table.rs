//! A hash table as in MICA: an index of buckets of one cache line each, and the items.
//!
//! A batch of lookups has two steps, all buckets and then all items, so that their loads overlap.

use adverb_workload::pattern::PatternError;
use adverb_workload::random::mix;

use super::slots::KEY;
use super::{MAX_BATCH, StoreLoad};

/// Entries of a bucket: one line.
const ENTRIES: usize = 8;
/// Bits of an entry for the item's number, from 1; the others are the key's tag.
const ITEM_BITS: u32 = 40;
/// Longest value.
const MAX_VALUE: u32 = 4096;

/// A key.
pub(crate) type Key = [u8; KEY];

/// Refuses parameters beyond the limits of a table.
pub(super) fn check(store: &StoreLoad) -> Result<(), PatternError> {
    if store.value > MAX_VALUE {
        return Err(PatternError::Count {
            what: "bytes of a value",
            given: store.value,
            max: MAX_VALUE,
        });
    }
    let max = 1 << 28;
    if !(1..=max).contains(&store.items) {
        return Err(PatternError::Count {
            what: "items",
            given: u32::try_from(store.items).unwrap_or(u32::MAX),
            max: max as u32,
        });
    }
    Ok(())
}

/// Returns the key of item `item`.
pub(crate) fn key(item: u64) -> Key {
    let mut key = Key::default();
    key[..8].copy_from_slice(&item.to_le_bytes());
    key[8..].copy_from_slice(&mix(!item).to_le_bytes());
    key
}

/// Fills `value` with the value of item `item` in version `version`, which is its first byte.
pub(crate) fn fill(value: &mut [u8], item: u64, version: u8) {
    let pattern = mix(item << 8 | u64::from(version)).to_le_bytes();
    for (place, byte) in value.iter_mut().enumerate() {
        *byte = if place == 0 {
            version
        } else {
            pattern[place % 8]
        };
    }
}

/// Whether `value` is a complete value of item `item` in any version.
pub(crate) fn is_right(value: &[u8], item: u64) -> bool {
    let Some(version) = value.first() else {
        return true;
    };
    let pattern = mix(item << 8 | u64::from(*version)).to_le_bytes();
    let mut rest = value.iter().enumerate().skip(1);
    rest.all(|(place, byte)| *byte == pattern[place % 8])
}

fn hash(key: &Key) -> u64 {
    let half = |at| u64::from_le_bytes(std::array::from_fn(|i| key[at + i]));
    mix(half(0) ^ mix(half(8)))
}

/// A core's items.
pub(super) struct Table {
    /// The buckets; their number is a power of two.
    buckets: Vec<[u64; ENTRIES]>,
    /// Key and value of each item.
    items: Vec<u8>,
    value: usize,
}

/// Returns the number of buckets of a table.
fn buckets(items: u64) -> usize {
    (items as usize / (ENTRIES / 2)).next_power_of_two()
}

/// Returns the memory of a table.
pub(super) fn bytes(items: u64, value: u32) -> u64 {
    (buckets(items) * size_of::<[u64; ENTRIES]>()) as u64 + items * (KEY as u64 + u64::from(value))
}

/// The state of a lookup of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lookup {
    hash: u64,
    /// The first entry of the bucket with the key's tag.
    first: u64,
}

impl Table {
    /// Returns a table with the items `0..items` in version 0.
    pub(super) fn new(items: u64, value: u32) -> Self {
        let value = value as usize;
        let mut table = Table {
            buckets: vec![[0; ENTRIES]; buckets(items)],
            items: vec![0; items as usize * (KEY + value)],
            value,
        };
        (0..items).for_each(|item| table.insert(item));
        table
    }

    fn insert(&mut self, item: u64) {
        let key = key(item);
        let place = item as usize * (KEY + self.value);
        let bytes = &mut self.items[place..place + KEY + self.value];
        bytes[..KEY].copy_from_slice(&key);
        fill(&mut bytes[KEY..], item, 0);
        let hash = hash(&key);
        let entry = tag(hash) | (item + 1);
        // Half of the entries stay free, so a bucket with room is near.
        let mut bucket = self.bucket(hash);
        loop {
            if let Some(free) = self.buckets[bucket].iter_mut().find(|entry| **entry == 0) {
                *free = entry;
                return;
            }
            bucket = (bucket + 1) & (self.buckets.len() - 1);
        }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// First step: the bucket.
    #[inline]
    pub(super) fn begin(&self, key: &Key) -> Lookup {
        let hash = hash(key);
        let tag = tag(hash);
        let bucket = &self.buckets[self.bucket(hash)];
        let same = bucket
            .iter()
            .find(|entry| *entry >> ITEM_BITS == tag >> ITEM_BITS);
        Lookup {
            hash,
            first: same.copied().unwrap_or(0),
        }
    }

    /// Second step: the item's value.
    #[inline]
    pub(super) fn value(&mut self, lookup: Lookup, key: &Key) -> Option<&mut [u8]> {
        let place = match self.item(lookup.first, key) {
            Some(place) => place,
            None => self.search(lookup.hash, key)?,
        };
        Some(&mut self.items[place + KEY..place + KEY + self.value])
    }

    /// Returns the offset of an entry's item, if it has the key.
    fn item(&self, entry: u64, key: &Key) -> Option<usize> {
        let number = (entry & ((1 << ITEM_BITS) - 1)).checked_sub(1)?;
        let place = number as usize * (KEY + self.value);
        (self.items[place..place + KEY] == *key).then_some(place)
    }

    /// Handles two keys with the same tag, or an overflowed bucket.
    #[cold]
    fn search(&self, hash: u64, key: &Key) -> Option<usize> {
        let mut bucket = self.bucket(hash);
        loop {
            let entries = &self.buckets[bucket];
            let found = entries.iter().find_map(|entry| self.item(*entry, key));
            if found.is_some() || entries.contains(&0) {
                return found;
            }
            bucket = (bucket + 1) & (self.buckets.len() - 1);
        }
    }

    /// Returns the number of lines that a lookup loads.
    pub(super) fn lines(&self) -> u32 {
        1 + (KEY + self.value).div_ceil(64) as u32
    }
}

/// Returns the upper bits of a hash; the lower ones choose the bucket. A free entry has no item, so that it
/// matches no tag.
fn tag(hash: u64) -> u64 {
    hash >> ITEM_BITS << ITEM_BITS
}

/// Lookups of a batch.
pub(super) type Lookups = [Lookup; MAX_BATCH as usize];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_found_and_no_other() {
        for items in [1, 7, 1000, 50_000] {
            let mut table = Table::new(items, 32);
            for item in 0..items {
                let key = key(item);
                let lookup = table.begin(&key);
                let value = table.value(lookup, &key).unwrap();
                assert!(is_right(value, item), "{item} of {items}");
                fill(value, item, 9);
            }
            for item in 0..items + 100 {
                let key = key(item);
                let lookup = table.begin(&key);
                match table.value(lookup, &key) {
                    Some(value) => {
                        assert!(item < items && value[0] == 9 && is_right(value, item));
                    }
                    None => assert!(item >= items, "{item} of {items}"),
                }
            }
        }
    }

    #[test]
    fn a_torn_or_foreign_value_is_wrong() {
        let mut value = [0; 32];
        fill(&mut value, 5, 3);
        assert!(is_right(&value, 5));
        assert!(!is_right(&value, 6));
        value[17] ^= 1;
        assert!(!is_right(&value, 5));
        let (mut old, mut new) = ([0; 32], [0; 32]);
        fill(&mut old, 5, 3);
        fill(&mut new, 5, 4);
        old[16..].copy_from_slice(&new[16..]);
        assert!(!is_right(&old, 5));
    }
}
