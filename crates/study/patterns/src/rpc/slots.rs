//! The request region: slots that clients write to and a core polls.
//!
//! A request ends with the last byte of its slot, which is written last. It has the kind of the request and a
//! mark that distinguishes it from the previous request in the slot.

use adverb_verbs::{Context, MemoryAccessError, MemoryRegion, Station};
use adverb_workload::attend::{Awaited, Members, attentively};
use adverb_workload::error::Fault;

use super::{Rpc, Service};

/// Kind of a request, in the two upper bits of its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The next number, or the value of a key.
    Get,
    /// A new value for a key.
    Put,
    /// The client announces its end.
    Bye,
}

/// Bits of the last byte that are the mark.
const MARK_BITS: u32 = 6;
/// Number of marks; 0, the content of a new slot, is none of them.
const MARKS: u64 = (1 << MARK_BITS) - 1;
/// Bytes of a key.
pub(crate) const KEY: usize = 16;

/// Returns the last byte of request `number` of a client with `slots` slots.
pub(crate) fn last_byte(kind: Kind, number: u64, slots: u32) -> u8 {
    let kind = match kind {
        Kind::Get => 0,
        Kind::Put => 1,
        Kind::Bye => 2,
    };
    kind << MARK_BITS | mark(number, slots)
}

fn mark(number: u64, slots: u32) -> u8 {
    (number / u64::from(slots) % MARKS) as u8 + 1
}

/// Returns the kind in a last byte, if it belongs to request `number`.
#[inline]
pub(crate) fn read_byte(byte: u8, number: u64, slots: u32) -> Option<Kind> {
    if byte & MARKS as u8 != mark(number, slots) {
        return None;
    }
    match byte >> MARK_BITS {
        0 => Some(Kind::Get),
        1 => Some(Kind::Put),
        2 => Some(Kind::Bye),
        _ => None,
    }
}

/// Sizes of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    /// Slots of a client.
    pub(crate) each: u32,
    /// Bytes from one to the next.
    pub(crate) stride: u32,
}

impl Slots {
    pub(crate) fn of(rpc: &Rpc) -> Self {
        Slots {
            each: rpc.clients.outstanding,
            stride: match rpc.service {
                Service::Sequencer(_) => 8,
                Service::Store(store) => {
                    let put = request_bytes(&rpc.service, Kind::Put);
                    debug_assert!(put > store.value);
                    put.next_multiple_of(64)
                }
            },
        }
    }

    /// Returns the bytes of the slots of a client.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.each) * u64::from(self.stride)
    }

    /// Returns the end of the slot of request `number` of client `client`.
    #[inline]
    pub(crate) fn end(&self, client: u32, number: u64) -> u64 {
        let slot = number % u64::from(self.each);
        u64::from(client) * self.bytes() + (slot + 1) * u64::from(self.stride)
    }
}

/// Returns the bytes of a request: a GET has key and last byte, a PUT value, its length, key and last byte.
pub(crate) fn request_bytes(service: &Service, kind: Kind) -> u32 {
    match (service, kind) {
        (Service::Sequencer(_), _) => 8,
        (Service::Store(_), Kind::Get | Kind::Bye) => KEY as u32 + 1,
        (Service::Store(store), Kind::Put) => store.value + 1 + KEY as u32 + 1,
    }
}

/// A request that a core has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Index of the client among the clients of its core.
    pub(crate) client: u32,
    /// Its number, from 0 for each client.
    pub(crate) number: u64,
    /// Kind of the request.
    pub(crate) kind: Kind,
}

/// The slot of each client's next request.
pub(crate) struct Scan {
    slots: Slots,
    next: Vec<u64>,
    cursor: usize,
}

impl Scan {
    pub(crate) fn new(slots: Slots, clients: usize) -> Self {
        Scan {
            slots,
            next: vec![0; clients],
            cursor: 0,
        }
    }

    /// Waits for requests: polls the slots of all clients until there is one, and takes up to `batch`.
    pub(crate) fn wait<S: Station>(
        &mut self,
        members: &Members<'_, S>,
        region: &<S::Context as Context>::Mr,
        batch: usize,
        calls: &mut Vec<Call>,
    ) -> Result<(), Fault> {
        calls.clear();
        attentively(members, Awaited::Message, |timeout| {
            members.station().spin_on(region, timeout, || {
                self.take(region, batch, calls)?;
                Ok((!calls.is_empty()).then_some(()))
            })
        })
    }

    /// Takes requests, one of each client in turn, until `batch` are taken or no client has another.
    pub(crate) fn take<M: MemoryRegion>(
        &mut self,
        region: &M,
        batch: usize,
        calls: &mut Vec<Call>,
    ) -> Result<(), MemoryAccessError> {
        let clients = self.next.len();
        let mut fruitless = 0;
        while calls.len() < batch && fruitless < clients {
            let client = self.cursor;
            self.cursor = if client + 1 == clients { 0 } else { client + 1 };
            let number = self.next[client];
            let byte = region.load(self.slots.end(client as u32, number) - 1)?;
            match read_byte(byte, number, self.slots.each) {
                Some(kind) => {
                    self.next[client] += 1;
                    fruitless = 0;
                    calls.push(Call {
                        client: client as u32,
                        number,
                        kind,
                    });
                }
                None => fruitless += 1,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_not_taken_for_its_slots_former_one() {
        for slots in [1, 2, 32] {
            assert_eq!(read_byte(0, 0, slots), None, "a fresh slot");
            for number in 0..1000 {
                for kind in [Kind::Get, Kind::Put, Kind::Bye] {
                    let byte = last_byte(kind, number, slots);
                    assert_eq!(read_byte(byte, number, slots), Some(kind));
                    let next = number + u64::from(slots);
                    assert_eq!(read_byte(byte, next, slots), None, "{number} of {slots}");
                }
            }
        }
    }
}
