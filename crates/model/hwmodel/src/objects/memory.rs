//! Memory regions.

use adverb_units::Bytes;
use adverb_verbs::{Lkey, MemoryAccessError, MemoryRegion, Rkey, Sge};

use crate::host::memory::{Range, Region};
use crate::ids::MachineId;
use crate::world::fabric::SharedFabric;

/// A memory region of the model, with its memory. Dropping it deregisters.
pub struct ModelMr {
    world: SharedFabric,
    machine: MachineId,
    index: u32,
    addr: u64,
    key: u32,
    length: u64,
}

impl std::fmt::Debug for ModelMr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} B at {:#x}, key {:#x}",
            self.length, self.addr, self.key
        )
    }
}

impl ModelMr {
    pub(super) fn new(
        world: &SharedFabric,
        machine: MachineId,
        index: u32,
        region: &Region,
    ) -> Self {
        ModelMr {
            world: world.clone(),
            machine,
            index,
            addr: region.addr,
            key: region.key,
            length: region.bytes.len() as u64,
        }
    }

    fn check(&self, offset: u64, length: u64) -> Result<usize, MemoryAccessError> {
        let end = offset.checked_add(length);
        if end.is_some_and(|end| end <= self.length) {
            return Ok(offset as usize);
        }
        Err(MemoryAccessError {
            offset,
            length,
            region: Bytes::new(self.length),
        })
    }

    fn range(&self, offset: usize, length: usize) -> Range {
        Range {
            region: self.index,
            offset,
            length,
        }
    }

    fn look<T>(&self, range: Range, look: impl FnOnce(&[u8]) -> T) -> T {
        self.world.with(|fabric, _| {
            let memory = &fabric.machines[self.machine].memory;
            look(memory.bytes(range).expect("a region has its bytes"))
        })
    }

    /// The condition that is signaled when the NIC writes to the region.
    pub(crate) fn changed(&self) -> adverb_sim::Condition {
        self.world.with(|fabric, events| {
            let memory = &mut fabric.machines[self.machine].memory;
            let region = memory.region(self.index);
            let name = || format!("a change of memory at {:#x}", self.addr);
            *region
                .changed
                .get_or_insert_with(|| events.condition(name()))
        })
    }
}

impl Drop for ModelMr {
    fn drop(&mut self) {
        self.world.with(|fabric, events| {
            fabric.before_change(self.machine, &[self.range(0, self.length as usize)]);
            let memory = &mut fabric.machines[self.machine].memory;
            memory.deregister(self.index);
            fabric.deregister(self.machine, self.length, events);
        });
    }
}

impl MemoryRegion for ModelMr {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn length(&self) -> Bytes {
        Bytes::new(self.length)
    }

    fn lkey(&self) -> Lkey {
        Lkey(self.key)
    }

    fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MemoryAccessError> {
        let first = self.check(offset, into.len() as u64)?;
        self.look(self.range(first, into.len()), |bytes| {
            into.copy_from_slice(bytes);
        });
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MemoryAccessError> {
        let first = self.check(offset, from.len() as u64)?;
        let range = self.range(first, from.len());
        self.world
            .with(|fabric, _| fabric.place(self.machine, &[range], 0, from));
        Ok(())
    }

    fn load(&self, offset: u64) -> Result<u8, MemoryAccessError> {
        let place = self.check(offset, 1)?;
        Ok(self.look(self.range(place, 1), |bytes| bytes[0]))
    }

    #[allow(unsafe_code)]
    fn sge(&self, offset: u64, length: u32) -> Result<Sge<'_>, MemoryAccessError> {
        self.check(offset, length.into())?;
        // SAFETY: the model looks the address up in its own table and never uses it as a pointer. The region
        // lives as long as the borrow.
        Ok(unsafe { Sge::from_raw(self.addr + offset, length, Lkey(self.key)) })
    }
}
