//! Address translations: registration, deregistration and lookups.
//!
//! The NIC caches translations of pages, and reads a missing one like a context. It executes the driver's
//! commands one at a time. To deregister a region it drains its pipeline and evicts all translations,
//! because it does not know which of them belong to the region.

use crate::host::memory::Range;
use crate::ids::MachineId;
use crate::nic::device::NicSide;
use crate::world::admission::{Refusal, Task};
use crate::world::fabric::{Event, EventQueue, Fabric};

impl Fabric {
    /// The running role registers `length` bytes, and waits for the NIC's command.
    pub(crate) fn register(&mut self, machine: MachineId, length: u64, events: &mut EventQueue) {
        let host = &mut self.machines[machine];
        events.clock.busy(host.pin(length));
        let done = host.command(events.clock.now());
        events.clock.busy_until(done);
    }

    /// The running role deregisters a region of `length` bytes, and waits for the NIC's command.
    pub(crate) fn deregister(&mut self, machine: MachineId, length: u64, events: &mut EventQueue) {
        let host = &mut self.machines[machine];
        let done = host.command(events.clock.now());
        events.schedule(done, Event::FlushTranslations { machine });
        events.clock.busy_until(done);
        events.clock.busy(host.pin(length));
    }

    pub(super) fn flush_translations(&mut self, machine: MachineId, events: &mut EventQueue) {
        let host = &mut self.machines[machine];
        let drain = host.nic.times.drain;
        host.stall(NicSide::Transmit, events.now(), drain);
        host.stall(NicSide::Receive, events.now(), drain);
        host.nic.translations.clear();
    }

    /// Looks up the translations of the memory that a request accesses.
    pub(super) fn translate_task(
        &mut self,
        machine: MachineId,
        task: &Result<Task, Refusal>,
        events: &EventQueue,
    ) {
        let ranges: &[Range] = match task {
            Ok(Task::Deliver(delivery)) => match (&delivery.place, &delivery.receive) {
                (Some(place), _) => std::slice::from_ref(place),
                (None, Some(received)) => &received.ranges,
                (None, None) => &[],
            },
            Ok(Task::Read(Some(range)) | Task::Atomic(range)) => std::slice::from_ref(range),
            Ok(Task::Read(None)) | Err(_) => &[],
        };
        let host = &mut self.machines[machine];
        host.translate(ranges, NicSide::Receive, events.now());
    }
}
