use std::collections::HashMap;

use adverb_workload::random::Random;

use super::*;

/// A cache with the memory that it gives out.
struct Store {
    cache: Cache,
    memory: Vec<u8>,
}

/// An item of the model: a map that holds everything, with the number of its last use.
struct Known {
    value: Vec<u8>,
    flags: u32,
    expires: Option<Seconds>,
    cas: u64,
    use_number: u64,
}

impl Store {
    fn new(memory: u64, evicts: bool) -> Self {
        let limits = Limits {
            memory: Bytes::new(memory),
            max_value: Bytes::new(4096),
            evicts,
        };
        Store {
            cache: Cache::new(limits),
            memory: vec![0; memory as usize],
        }
    }

    fn bytes(&self, place: Place) -> &[u8] {
        &self.memory[place.offset as usize..][..place.length as usize]
    }

    fn fill(&mut self, pin: &Pin, value: &[u8]) {
        let place = self.cache.place(pin);
        self.memory[place.offset as usize..][..value.len()].copy_from_slice(value);
    }

    fn set(
        &mut self,
        key: &[u8],
        value: &[u8],
        attributes: (u32, Option<Seconds>),
        (condition, now): (Condition, Seconds),
    ) -> Result<u64, Refusal> {
        let pin = self.cache.reserve(key, value.len() as u64, now)?;
        self.fill(&pin, value);
        let id = self.cache.store(pin, attributes, condition, now)?;
        Ok(self.cache.item(id).cas)
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<u64, Refusal> {
        self.set(key.as_bytes(), value, (0, None), (Condition::Always, 0))
    }

    fn value(&mut self, key: &str, now: Seconds) -> Option<Vec<u8>> {
        let id = self.cache.get(key.as_bytes(), now)?;
        Some(self.bytes(self.cache.item(id).place).to_vec())
    }
}

#[test]
fn random_operations_agree_with_a_map() {
    for seed in 0..8 {
        agree(seed);
    }
}

/// Runs random operations on a cache and on a map. The cache may have lost an item only by eviction, and then none that
/// was used before it was kept, unless a reader holds it.
fn agree(seed: u64) {
    let mut random = Random::new(seed);
    let mut store = Store::new(1 << 14, true);
    let mut model: HashMap<Vec<u8>, Known> = HashMap::new();
    let mut readers: Vec<(Pin, Vec<u8>)> = Vec::new();
    let mut now = 100;
    for number in 0..20_000 {
        now += u64::from(random.chance(0.02));
        model.retain(|_, known| known.expires.is_none_or(|at| now < at));
        let key = format!("key {}", random.below(120)).into_bytes();
        match random.below(10) {
            0..=3 => {
                let condition = match random.below(6) {
                    0 => Condition::Absent,
                    1 => Condition::Present,
                    2 => Condition::Unique(model.get(&key).map_or(7, |known| known.cas)),
                    3 => Condition::Unique(random.below(number + 1)),
                    _ => Condition::Always,
                };
                let value = vec![random.below(256) as u8; random.below(600) as usize];
                let expires = random.chance(0.3).then(|| now + random.below(6));
                let flags = random.below(1 << 32) as u32;
                let pin = store.cache.reserve(&key, value.len() as u64, now).unwrap();
                store.fill(&pin, &value);
                evicted(&store, &mut model, now);
                let cas = model.get(&key).map(|known| known.cas);
                let stored = store.cache.store(pin, (flags, expires), condition, now);
                match permits(condition, cas) {
                    Err(refusal) => assert_eq!(stored, Err(refusal)),
                    Ok(_) => {
                        let known = Known {
                            value,
                            flags,
                            expires,
                            cas: store.cache.item(stored.unwrap()).cas,
                            use_number: number,
                        };
                        assert!(cas.is_none_or(|earlier| earlier < known.cas));
                        model.insert(key, known);
                    }
                }
            }
            4..=7 => match (store.cache.get(&key, now), model.get_mut(&key)) {
                (None, None) => {}
                (Some(id), Some(known)) => {
                    let item = store.cache.item(id);
                    assert_eq!(store.bytes(item.place), known.value);
                    assert_eq!(
                        (item.flags, item.expires, item.cas),
                        (known.flags, known.expires, known.cas)
                    );
                    known.use_number = number;
                    if readers.len() < 8 && random.chance(0.5) {
                        readers.push((store.cache.pin(id), known.value.clone()));
                    }
                }
                (found, known) => panic!("{found:?}, but known: {}", known.is_some()),
            },
            8 => {
                let found = store.cache.find(&key, now);
                assert_eq!(found.is_some(), model.remove(&key).is_some());
                found.into_iter().for_each(|id| store.cache.delete(id));
            }
            _ if !readers.is_empty() => {
                let reader = random.below(readers.len() as u64) as usize;
                let (pin, value) = readers.swap_remove(reader);
                assert_eq!(store.bytes(store.cache.place(&pin)), value, "a read value");
                store.cache.unpin(pin);
            }
            _ => {}
        }
    }
    assert!(store.cache.stats().evictions > 100 && store.cache.stats().expired > 100);
    readers
        .into_iter()
        .for_each(|(pin, _)| store.cache.unpin(pin));
    store.cache.flush(None);
    let whole = store.cache.reserve(b"whole", 4096, now).unwrap();
    let rest: Vec<_> = (1..4)
        .map(|_| store.cache.reserve(b"rest", 4096, now))
        .collect();
    assert!(rest.iter().all(Result::is_ok) && store.cache.is_empty());
    assert_eq!(store.cache.reserve(b"more", 0, now), Err(Refusal::NoMemory));
    store.cache.unpin(whole);
    rest.into_iter()
        .for_each(|pin| store.cache.unpin(pin.unwrap()));
    assert_eq!(store.cache.used(), Bytes::new(0));
}

/// Removes what was evicted from the model.
fn evicted(store: &Store, model: &mut HashMap<Vec<u8>, Known>, now: Seconds) {
    let kept: HashMap<&[u8], bool> = store
        .cache
        .by_age()
        .into_iter()
        .filter(|item| item.expires.is_none_or(|at| now < at))
        .map(|item| (item.key(), item.is_pinned()))
        .collect();
    let unpinned = model
        .iter()
        .filter(|(key, _)| kept.get(&key[..]) == Some(&false));
    let oldest = unpinned.map(|(_, known)| known.use_number).min();
    model.retain(|key, known| {
        let is_kept = kept.contains_key(&key[..]);
        assert!(is_kept || oldest.is_none_or(|oldest| known.use_number < oldest));
        is_kept
    });
}

#[test]
fn a_value_that_is_being_read_is_not_overwritten() {
    let mut store = Store::new(4096, true);
    store.put("read", &[1; 1000]).unwrap();
    let id = store.cache.get(b"read", 0).unwrap();
    let pin = store.cache.pin(id);
    store.put("read", &[2; 1000]).unwrap();
    for other in 0..100 {
        store.put(&other.to_string(), &[3; 1000]).unwrap();
    }
    assert_eq!(store.bytes(store.cache.place(&pin)), [1; 1000]);
    store.cache.unpin(pin);
    assert_eq!(store.cache.used(), Bytes::new(3072));
}

#[test]
fn a_full_store_that_does_not_evict_refuses_and_keeps_all() {
    let mut store = Store::new(4096, false);
    for key in ["a", "b", "c", "d"] {
        store.put(key, &[key.as_bytes()[0]; 1024]).unwrap();
    }
    assert_eq!(store.put("e", &[0; 1024]), Err(Refusal::NoMemory));
    assert_eq!(store.put("e", &[0; 4097]), Err(Refusal::TooLarge));
    for key in ["a", "b", "c", "d"] {
        assert_eq!(store.value(key, 0), Some(vec![key.as_bytes()[0]; 1024]));
    }
    let id = store.cache.find(b"b", 0).unwrap();
    store.cache.delete(id);
    store.put("e", &[5; 1000]).unwrap();
    store.cache.item_mut(id).expires = Some(3);
    store
        .set(b"f", &[6; 1000], (0, None), (Condition::Always, 4))
        .unwrap();
    assert_eq!(store.value("e", 4), None, "it made room, expired");
}

#[test]
fn a_flush_spares_what_is_stored_later() {
    let mut store = Store::new(4096, true);
    store.put("a", b"1").unwrap();
    store.cache.flush(None);
    store.put("b", b"2").unwrap();
    assert_eq!(
        (store.value("a", 0), store.value("b", 0)),
        (None, Some(b"2".to_vec()))
    );
    store.cache.flush(Some(10));
    assert_eq!(store.value("b", 9), Some(b"2".to_vec()));
    store
        .set(b"c", b"3", (0, None), (Condition::Always, 10))
        .unwrap();
    assert_eq!(
        (store.value("b", 10), store.value("c", 10)),
        (None, Some(b"3".to_vec()))
    );
}
