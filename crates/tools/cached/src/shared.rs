//! What all connections of a server share: the items, their memory, the clock, and the counts.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use adverb_patterns::store::cache::{Cache, Condition, Id, Limits, Pin, Place, Refusal, Seconds};
use adverb_patterns::store::session::dropped;
use adverb_verbs::{Context, MemoryRegion};

use crate::rdma::Rdma;

/// Times to live up to this are relative, longer ones are Unix times.
const RELATIVE: i64 = 30 * 24 * 3600;
/// Values up to this are copied under the lock.
const SHORT: u32 = 4096;

/// Counts of commands, as `stats` names them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) cmd_get: u64,
    pub(crate) cmd_set: u64,
    pub(crate) cmd_flush: u64,
    pub(crate) cmd_touch: u64,
    pub(crate) cmd_meta: u64,
    pub(crate) get_hits: u64,
    pub(crate) get_misses: u64,
    pub(crate) delete_hits: u64,
    pub(crate) delete_misses: u64,
    pub(crate) curr_connections: u64,
    pub(crate) total_connections: u64,
    pub(crate) rejected_connections: u64,
}

impl Counts {
    /// Sets all counts to 0, except the number of connections.
    pub(crate) fn reset(&mut self) {
        *self = Counts {
            curr_connections: self.curr_connections,
            ..Counts::default()
        };
    }
}

/// Items and counts.
#[derive(Debug)]
pub(crate) struct Items {
    pub(crate) cache: Cache,
    pub(crate) counts: Counts,
}

/// The store of a server.
pub struct Shared<C: Context> {
    items: Mutex<Items>,
    memory: C::Mr,
    pub(crate) rdma: Option<Rdma<C>>,
    /// The server's start, as Unix time and on the monotonic clock.
    began: (Duration, Instant),
}

/// A value's attributes.
pub(crate) type Attributes = (u32, Option<Seconds>);

impl<C: Context> Shared<C> {
    /// Returns a store of items whose values are in the first bytes of `memory`, and that RDMA clients can use, too.
    pub fn new(limits: Limits, memory: C::Mr, rdma: Option<Rdma<C>>) -> Self {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Shared {
            items: Mutex::new(Items {
                cache: Cache::new(limits),
                counts: Counts::default(),
            }),
            memory,
            rdma,
            began: (unix.unwrap_or_default(), Instant::now()),
        }
    }

    /// Locks the items. A panic while they were locked was a defect of one operation; the others go on.
    pub(crate) fn items(&self) -> MutexGuard<'_, Items> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the region of the values.
    pub(crate) fn memory(&self) -> &C::Mr {
        &self.memory
    }

    /// Returns the Unix time in seconds; it does not jump when the system's clock is set.
    pub(crate) fn now(&self) -> Seconds {
        (self.began.0 + self.began.1.elapsed()).as_secs()
    }

    /// Returns the seconds since the server began.
    pub(crate) fn uptime(&self) -> Seconds {
        self.began.1.elapsed().as_secs()
    }

    /// Returns when an item with this time to live expires.
    pub(crate) fn expires(&self, exptime: i64) -> Option<Seconds> {
        match exptime {
            0 => None,
            ..0 => Some(0),
            1..=RELATIVE => Some(self.now() + exptime as u64),
            _ => Some(exptime as u64),
        }
    }

    /// Appends a value to the output, and ends the lock. A long value is pinned and copied after it.
    pub(crate) fn copy(&self, mut items: MutexGuard<'_, Items>, id: Id, out: &mut Vec<u8>) {
        let place = items.cache.item(id).place;
        if place.length <= SHORT {
            return self.copy_place(place, out);
        }
        let pin = items.cache.pin(id);
        drop(items);
        self.copy_place(place, out);
        self.items().cache.unpin(pin);
    }

    fn copy_place(&self, place: Place, out: &mut Vec<u8>) {
        let begin = out.len();
        out.resize(begin + place.length as usize, 0);
        let read = self.memory.read(place.offset, &mut out[begin..]);
        read.expect("the cache gives out places in its memory");
    }

    /// Returns a value.
    pub(crate) fn value(&self, place: Place) -> Vec<u8> {
        let mut value = Vec::new();
        self.copy_place(place, &mut value);
        value
    }

    /// Writes to a reserved block.
    pub(crate) fn fill(&self, place: Place, offset: u32, bytes: &[u8]) {
        debug_assert!(u64::from(offset) + bytes.len() as u64 <= u64::from(place.length));
        let written = self.memory.write(place.offset + u64::from(offset), bytes);
        written.expect("the cache gives out places in its memory");
    }

    /// Stores a short value.
    pub(crate) fn store(
        &self,
        items: &mut Items,
        (key, value): (&[u8], &[u8]),
        attributes: Attributes,
        condition: Condition,
    ) -> Result<Id, Refusal> {
        let now = self.now();
        let pin = items.cache.reserve(key, value.len() as u64, now)?;
        self.fill(items.cache.place(&pin), 0, value);
        items.cache.store(pin, attributes, condition, now)
    }

    /// Reserves a block for a value that a client sends.
    pub(crate) fn reserve(
        &self,
        key: &[u8],
        length: u64,
        condition: Condition,
    ) -> Result<(Pin, Place), Refusal> {
        let (mut items, now) = (self.items(), self.now());
        items.counts.cmd_set += 1;
        let cache = &mut items.cache;
        match cache.reserve(key, length, now) {
            Ok(pin) => {
                let place = cache.place(&pin);
                Ok((pin, place))
            }
            Err(refusal) => Err(dropped((key, condition), refusal, (cache, now))),
        }
    }

    /// Stores a filled block, or the item's value with the block's before or after it.
    pub(crate) fn commit(
        &self,
        items: &mut Items,
        pin: Pin,
        (how, condition): (How, Condition),
        attributes: Attributes,
    ) -> Result<Id, Refusal> {
        let now = self.now();
        let cache = &mut items.cache;
        if how == How::Whole {
            return cache.store(pin, attributes, condition, now);
        }
        let key = cache.key(&pin).to_vec();
        let joined = match cache.find(&key, now) {
            None => Err(match condition {
                Condition::Unique(_) | Condition::UniqueOrStale(_) => Refusal::Missing,
                _ => Refusal::Presence,
            }),
            Some(id) => {
                let item = cache.item(id);
                let attributes = (item.flags, item.expires);
                let parts = [self.value(item.place), self.value(cache.place(&pin))];
                let value = match how {
                    How::After => parts.concat(),
                    _ => [&parts[1][..], &parts[0]].concat(),
                };
                let condition = match condition {
                    Condition::Always => Condition::Present,
                    other => other,
                };
                Ok((value, attributes, condition))
            }
        };
        cache.unpin(pin);
        let (value, attributes, condition) = joined?;
        // Making room may evict the item. Then there is none to append to.
        self.store(items, (&key, &value), attributes, condition)
    }

    /// Releases a block whose value will not be stored.
    pub(crate) fn abandon(&self, pin: Pin) {
        self.items().cache.unpin(pin);
    }
}

/// Where a new value goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// In place of the former one.
    Whole,
    /// After it.
    After,
    /// Before it.
    Before,
}

/// Reads a whole number.
pub(crate) fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(word).ok()?.parse().ok())?
}

/// Appends formatted text.
macro_rules! put {
    ($out:expr, $($text:tt)*) => {{
        use std::io::Write;
        write!($out, $($text)*).expect("a vector takes all bytes");
    }};
}
pub(crate) use put;
