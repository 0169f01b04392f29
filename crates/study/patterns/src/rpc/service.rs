//! Executes a batch of requests: numbers or values.

use std::sync::atomic::{AtomicU64, Ordering};

use adverb_verbs::{Level, MemoryRegion, Station, Work};

use adverb_workload::pattern::PatternError;

use super::slots::{Call, KEY, Kind, Slots};
use super::table::{Key, Lookups, Table};
use super::{COUNTER, RequestBy, Rpc, Service, StoreLoad};

/// A core's service.
pub(super) enum Backend<'c> {
    /// Numbers, from a counter that the cores share.
    Sequencer {
        counter: &'c AtomicU64,
        /// The batch's first number.
        first: u64,
        answer: [u8; 8],
    },
    /// Values, from the core's own table.
    Store(Box<Store>),
}

/// A table with a batch of lookups.
pub(super) struct Store {
    table: Table,
    load: StoreLoad,
    slots: Slots,
    lookups: Lookups,
    keys: [Key; super::MAX_BATCH as usize],
    /// The value of a PUT.
    value: Vec<u8>,
}

impl<'c> Backend<'c> {
    pub(super) fn new(rpc: &Rpc, counter: &'c AtomicU64) -> Self {
        match rpc.service {
            Service::Sequencer(_) => Backend::Sequencer {
                counter,
                first: 0,
                answer: [0; 8],
            },
            Service::Store(load) => Backend::Store(Box::new(Store {
                table: Table::new(load.items, load.value),
                load,
                slots: Slots::of(rpc),
                lookups: Lookups::default(),
                keys: Default::default(),
                value: vec![0; load.value as usize],
            })),
        }
    }

    /// Starts a batch: one atomic addition for all numbers, or the loads of all lookups.
    pub(super) fn begin<S: Station, M: MemoryRegion>(
        &mut self,
        station: &S,
        region: &M,
        calls: &[Call],
    ) -> Result<(), PatternError> {
        match self {
            Backend::Sequencer { counter, first, .. } => {
                station.account(Work::Atomic { word: COUNTER });
                *first = counter.fetch_add(calls.len() as u64, Ordering::Relaxed);
                Ok(())
            }
            Backend::Store(store) => store.begin(station, region, calls),
        }
    }

    /// Returns the number that answers request `place` of the batch; `None` for a store.
    pub(super) fn number(&self, place: usize) -> Option<u64> {
        match self {
            Backend::Sequencer { first, .. } => Some(first + place as u64),
            Backend::Store(_) => None,
        }
    }

    /// Writes the payload that answers request `place` of the batch.
    pub(super) fn answer<M: MemoryRegion>(
        &mut self,
        region: &M,
        place: usize,
        call: &Call,
    ) -> Result<&[u8], PatternError> {
        match self {
            Backend::Sequencer { first, answer, .. } => {
                *answer = (*first + place as u64).to_le_bytes();
                Ok(answer)
            }
            Backend::Store(store) => store.answer(region, place, call),
        }
    }
}

impl Store {
    fn begin<S: Station, M: MemoryRegion>(
        &mut self,
        station: &S,
        region: &M,
        calls: &[Call],
    ) -> Result<(), PatternError> {
        let keys = calls.len() as u32;
        station.account(Work::Load {
            lines: keys * self.table.lines(),
            from: self.load.level,
        });
        station.account(Work::Lookup { keys });
        for (call, (key, lookup)) in calls
            .iter()
            .zip(self.keys.iter_mut().zip(&mut self.lookups))
        {
            let end = self.slots.end(call.client, call.number);
            region.read(end - 1 - KEY as u64, key)?;
            *lookup = self.table.begin(key);
        }
        Ok(())
    }

    /// Answers a GET with its value, and a PUT without payload.
    fn answer<M: MemoryRegion>(
        &mut self,
        region: &M,
        place: usize,
        call: &Call,
    ) -> Result<&[u8], PatternError> {
        let key = &self.keys[place];
        let value = self.table.value(self.lookups[place], key);
        let value = value.ok_or(PatternError::Wrong("a key that the store has not"))?;
        if call.kind == Kind::Put {
            let end = self.slots.end(call.client, call.number);
            let begin = end - 1 - KEY as u64 - 1 - self.value.len() as u64;
            region.read(begin, &mut self.value)?;
            value.copy_from_slice(&self.value);
            return Ok(&[]);
        }
        Ok(value)
    }
}

/// Accounts for loading the lines of requests.
pub(crate) fn loaded<S: Station>(station: &S, requests: usize) {
    let requests = requests as u32;
    station.account(Work::Load {
        lines: requests,
        from: Level::Cache,
    });
    station.account(Work::Decode { requests });
}

/// Returns the bytes of the longest answer.
pub(super) fn answer_bytes(service: &Service) -> u32 {
    match service {
        Service::Sequencer(RequestBy::Write) => 8,
        Service::Sequencer(RequestBy::HeaderOnly) => 0,
        Service::Store(store) => store.value,
    }
}
