//! The data of messages between their source and their destination.
//!
//! A short message has a copy of its data. A long one refers to the memory from which they were read, and the data are
//! copied once, to their destination. Before that memory changes or is deregistered, the message gets its copy.

use crate::host::memory::{Memory, Range};
use crate::ids::MachineId;
use crate::world::fabric::Fabric;
use crate::world::message::Lent;

/// Messages that are longer refer to memory. Datagrams never do.
const LONGEST_COPY: usize = 4096;

/// Reads the data of a message: copies them to `payload`, or returns the memory that contains them. `None` if a region was
/// deregistered.
pub(super) fn lend(
    machine: MachineId,
    memory: &Memory,
    ranges: &[Range],
    payload: &mut Vec<u8>,
) -> Option<Option<Lent>> {
    if let [range] = ranges
        && range.length > LONGEST_COPY
    {
        memory.bytes(*range)?;
        let range = *range;
        return Some(Some(Lent { machine, range }));
    }
    for range in ranges {
        payload.extend_from_slice(memory.bytes(*range)?);
    }
    Some(None)
}

impl Fabric {
    /// Must be called before a machine's memory changes or is deregistered: messages that refer to it get copies.
    #[inline]
    pub(crate) fn before_change(&mut self, machine: MachineId, ranges: &[Range]) {
        if self.messages.refers_to(machine) {
            for range in ranges {
                self.copy_overlapping(machine, *range);
            }
        }
    }

    fn copy_overlapping(&mut self, machine: MachineId, range: Range) {
        let memory = &self.machines[machine].memory;
        self.messages.own(|lent| {
            let is_hit = lent.machine == machine && lent.range.overlaps(range);
            is_hit.then(|| memory.bytes(lent.range).unwrap_or_default())
        });
    }

    /// Stores the data of a message in `ranges`, after their first `skip` bytes.
    pub(super) fn place_data(
        &mut self,
        message: u32,
        machine: MachineId,
        ranges: &[Range],
        skip: usize,
    ) {
        let is_own = |lent: &Lent| lent.machine == machine;
        if let Some(lent) = self.messages.get(message).lent.filter(is_own) {
            self.copy_overlapping(machine, lent.range);
        }
        self.before_change(machine, ranges);
        let m = self.messages.get(message);
        if let Some(lent) = m.lent {
            let [from, to] = self.machines.two(lent.machine, machine);
            // In virtual time, programs do not fill buffers whose contents nobody checks.
            let is_zero = |range: &Range| to.memory.is_zero(*range);
            if from.memory.is_zero(lent.range) && ranges.iter().all(is_zero) {
                return;
            }
            let data = from.memory.bytes(lent.range).unwrap_or_default();
            place(&mut to.memory, ranges, skip, data);
        } else {
            let memory = &mut self.machines[machine].memory;
            place(memory, ranges, skip, &m.payload);
        }
    }

    /// Copies `bytes` into `ranges`, after their first `skip` bytes.
    pub(crate) fn place(
        &mut self,
        machine: MachineId,
        ranges: &[Range],
        skip: usize,
        bytes: &[u8],
    ) {
        self.before_change(machine, ranges);
        place(&mut self.machines[machine].memory, ranges, skip, bytes);
    }
}

fn place(memory: &mut Memory, ranges: &[Range], mut skip: usize, mut rest: &[u8]) {
    for range in ranges {
        let Some(bytes) = memory.bytes_mut(*range) else {
            return;
        };
        let bytes = &mut bytes[skip.min(range.length)..];
        skip = skip.saturating_sub(range.length);
        let n = bytes.len().min(rest.len());
        bytes[..n].copy_from_slice(&rest[..n]);
        rest = &rest[n..];
    }
}
