//! Layout of the owner's memory: questions, then either a counter, or records by level and lock words.

use adverb_verbs::{MemoryAccessError, MemoryRegion};

use adverb_workload::pattern::PatternError;
use adverb_workload::random::mix;

use super::Remote;

/// Bytes from one lock word to the next.
const LOCK_STRIDE: u64 = 64;
/// Longest record.
const MAX_RECORD: u32 = 1 << 20;
/// Increment of the lock count in a lock word. The upper half counts how often it was freed.
pub(super) const LOCKED: u64 = 1;
pub(super) const FREED: u64 = 1 << 32;

/// Refuses invalid parameters.
pub(super) fn check(remote: &Remote) -> Result<(), PatternError> {
    let Remote::Items(items) = remote else {
        return Ok(());
    };
    if !(1..=1 << 28).contains(&items.items) {
        return Err(PatternError::Count {
            what: "items",
            given: u32::try_from(items.items).unwrap_or(u32::MAX),
            max: 1 << 28,
        });
    }
    let needed = items.mean_reads.ceil();
    if items.mean_reads < 1.0 || needed > items.records.len() as f64 {
        return Err(PatternError::Count {
            what: "READs of a GET",
            given: needed as u32,
            max: items.records.len().max(1) as u32,
        });
    }
    let bad = items
        .records
        .iter()
        .find(|size| !(8..=MAX_RECORD).contains(*size));
    match bad {
        // A record begins with the position of the next one, 8 B.
        Some(size) => Err(PatternError::Record {
            given: *size,
            max: MAX_RECORD,
        }),
        None => Ok(()),
    }
}

/// One level of records.
#[derive(Clone, Copy, Debug)]
struct Records {
    offset: u64,
    size: u32,
    stride: u64,
}

/// Offsets in the owner's memory.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    items: u64,
    records: Vec<Records>,
    locks: u64,
    /// Bytes of a question.
    question: u64,
}

impl Layout {
    /// Returns the layout with room for `questions` bytes of questions.
    pub(super) fn new(remote: &Remote, questions: u64) -> Self {
        let Remote::Items(items) = remote else {
            return Layout {
                items: 0,
                records: Vec::new(),
                locks: questions,
                question: 0,
            };
        };
        let mut offset = questions;
        let records = items.records.iter().map(|size| {
            let stride = u64::from(*size).next_multiple_of(64);
            let records = Records {
                offset,
                size: *size,
                stride,
            };
            offset += stride * items.items;
            records
        });
        Layout {
            items: items.items,
            records: records.collect(),
            locks: offset,
            question: items.puts.question().unwrap_or(0).into(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.locks + self.items.max(1) * LOCK_STRIDE
    }

    /// Returns the bytes of a question.
    pub(super) fn question(&self) -> u64 {
        self.question
    }

    /// Returns the size of a buffer for any step.
    pub(super) fn widest(&self) -> u64 {
        let strides = self.records.iter().map(|records| records.stride);
        let widest = strides.max().unwrap_or(0).max(64);
        widest.max(self.question.next_multiple_of(64))
    }

    /// Returns offset and length of a record.
    #[inline]
    pub(super) fn record(&self, level: usize, place: u64) -> (u64, u32) {
        let records = &self.records[level];
        (records.offset + place * records.stride, records.size)
    }

    /// Returns the offset of an item's lock word, or of the counter if there are no items.
    #[inline]
    pub(super) fn lock(&self, item: u64) -> u64 {
        self.locks + item * LOCK_STRIDE
    }

    /// Returns the position of the next record.
    fn next(&self, level: usize, place: u64) -> u64 {
        mix(place ^ (level as u64 + 1) << 48) % self.items
    }

    fn write(&self, level: usize, place: u64, record: &mut [u8]) {
        let next = self.next(level, place);
        let pattern = mix(next ^ mix(place)).to_le_bytes();
        let (head, rest) = record.split_at_mut(8);
        head.copy_from_slice(&next.to_le_bytes());
        for (byte, value) in rest.iter_mut().zip(pattern.iter().cycle()) {
            *byte = *value;
        }
    }

    /// Returns the position of the next record, if this one is valid.
    pub(super) fn follow(
        &self,
        level: usize,
        place: u64,
        record: &[u8],
    ) -> Result<u64, PatternError> {
        let (head, rest) = record.split_at(8);
        let next = self.next(level, place);
        let pattern = mix(next ^ mix(place)).to_le_bytes();
        let mut pairs = rest.iter().zip(pattern.iter().cycle());
        if head == next.to_le_bytes() && pairs.all(|(byte, value)| byte == value) {
            return Ok(next);
        }
        Err(PatternError::Wrong("a record of another item"))
    }

    /// Writes all records.
    pub(super) fn fill<M: MemoryRegion>(&self, mr: &M) -> Result<(), MemoryAccessError> {
        for level in 0..self.records.len() {
            let mut record = vec![0; self.records[level].size as usize];
            for place in 0..self.items {
                self.write(level, place, &mut record);
                mr.write(self.record(level, place).0, &record)?;
            }
        }
        Ok(())
    }

    /// Rewrites an item and counts the change.
    pub(super) fn renew<M: MemoryRegion>(
        &self,
        mr: &M,
        item: u64,
        record: &mut Vec<u8>,
    ) -> Result<(), PatternError> {
        if item >= self.items {
            return Err(PatternError::Wrong("a PUT of an item that is not there"));
        }
        let (offset, length) = self.record(0, item);
        record.resize(length as usize, 0);
        self.write(0, item, record);
        mr.write(offset, record)?;
        let mut word = [0; 8];
        mr.read(self.lock(item), &mut word)?;
        let times = u64::from_ne_bytes(word) + LOCKED + FREED;
        Ok(mr.write(self.lock(item), &times.to_ne_bytes())?)
    }

    /// Returns how often items were locked or changed, and checks that each lock is free.
    pub(super) fn locked<M: MemoryRegion>(&self, mr: &M) -> Result<u64, PatternError> {
        let mut all = 0;
        for item in 0..self.items {
            let mut word = [0; 8];
            mr.read(self.lock(item), &mut word)?;
            let word = u64::from_ne_bytes(word);
            let (locked, freed) = (word % FREED, word / FREED);
            if locked != freed {
                return Err(PatternError::Wrong("a lock that is not free at the end"));
            }
            all += locked;
        }
        Ok(all)
    }
}
