//! Translations: which addresses of memory are where, and how the NIC is told.
//!
//! The NIC keeps translations of pages that it uses. A missing one it reads as it reads a context. The
//! driver's commands go one after another; after the one that deregisters a region the NIC lets pass what
//! it has taken up, and forgets what it has kept, for it does not know which translations are the
//! region's.

use crate::host::memory::Range;
use crate::ids::MachineId;
use crate::nic::device::NicSide;
use crate::world::admission::{Refusal, Task};
use crate::world::fabric::{Event, EventQueue, Fabric};

impl Fabric {
    /// The running role registers `length` bytes: it waits until the NIC knows.
    pub(crate) fn tell_registered(
        &mut self,
        machine: MachineId,
        length: u64,
        events: &mut EventQueue,
    ) {
        let host = &mut self.machines[machine];
        events.clock.busy(host.pin(length));
        let known = host.command(events.clock.now());
        events.clock.busy_until(known);
    }

    /// The running role deregisters a region of `length` bytes: it waits until the NIC has forgotten it.
    pub(crate) fn tell_deregistered(
        &mut self,
        machine: MachineId,
        length: u64,
        events: &mut EventQueue,
    ) {
        let host = &mut self.machines[machine];
        let forgotten = host.command(events.clock.now());
        events.schedule(forgotten, Event::Forget { machine });
        events.clock.busy_until(forgotten);
        events.clock.busy(host.pin(length));
    }

    /// The NIC forgets translations.
    pub(super) fn forget(&mut self, machine: MachineId, events: &mut EventQueue) {
        let host = &mut self.machines[machine];
        let drain = host.nic.times.drain;
        host.stop(NicSide::Sending, events.now(), drain);
        host.stop(NicSide::Receiving, events.now(), drain);
        host.nic.translations.clear();
    }

    /// The responder needs the translations of the memory that a request goes to.
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
        host.translate(ranges, NicSide::Receiving, events.now());
    }
}
