//! Translations: which addresses of memory are where, and how the NIC is told.
//!
//! The NIC keeps translations of pages that it uses. A missing one it reads as it reads a context. The
//! driver's commands go one after another; after the one that deregisters a region the NIC lets pass what
//! it has taken up, and forgets what it has kept, for it does not know which translations are the
//! region's.

use adverb_sim::Agenda;
use adverb_units::{Span, Time};

use super::admission::{Refusal, Task};
use super::machine::Machine;
use super::memory::Range;
use super::{Event, Fabric};

/// A side of the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NicSide {
    Sending,
    Receiving,
}

impl Machine {
    /// The translations of `ranges` are needed, at `at`, by a side, which stands still for those that
    /// are missing.
    #[inline]
    pub(super) fn translate(&mut self, ranges: &[Range], side: NicSide, at: Time) {
        let mut missing = 0;
        for range in ranges.iter().filter(|range| range.length > 0) {
            for page in self.memory.pages(*range) {
                missing += u64::from(!self.nic.translations.access(page));
            }
        }
        if missing > 0 {
            self.nic.counts.translation_misses += missing;
            self.pcie.traffic.read_lines += missing;
            self.stop(side, at, self.nic.times.context_miss * missing);
        }
    }

    /// A side of the NIC does nothing else for `span`.
    pub(super) fn stop(&mut self, side: NicSide, at: Time, span: Span) {
        let side = match side {
            NicSide::Sending => &mut self.nic.tx,
            NicSide::Receiving => &mut self.nic.rx,
        };
        side.serve(at, span);
    }

    /// A command of the driver's, given at `at`; returns when it has been carried out.
    fn command(&mut self, at: Time) -> Time {
        self.nic.commands.serve(at, self.nic.times.command)
    }

    /// Pinning, or letting go, the host's pages of a region.
    fn pin(&self, length: u64) -> Span {
        const PAGE: u64 = 4096;
        self.cpu.syscall + self.cpu.pin_page * length.div_ceil(PAGE)
    }
}

impl Fabric {
    /// The running role registers `length` bytes: it waits until the NIC knows.
    pub(crate) fn tell_registered(
        &mut self,
        machine: u32,
        length: u64,
        agenda: &mut Agenda<Event>,
    ) {
        let host = &mut self.machines[machine as usize];
        agenda.clock.busy(host.pin(length));
        let known = host.command(agenda.clock.now());
        agenda.clock.busy_until(known);
    }

    /// The running role deregisters a region of `length` bytes: it waits until the NIC has forgotten it.
    pub(crate) fn tell_deregistered(
        &mut self,
        machine: u32,
        length: u64,
        agenda: &mut Agenda<Event>,
    ) {
        let host = &mut self.machines[machine as usize];
        let forgotten = host.command(agenda.clock.now());
        agenda.schedule(forgotten, Event::Forget { machine });
        agenda.clock.busy_until(forgotten);
        agenda.clock.busy(host.pin(length));
    }

    /// The NIC forgets translations.
    pub(super) fn forget(&mut self, machine: u32, agenda: &mut Agenda<Event>) {
        let host = &mut self.machines[machine as usize];
        let drain = host.nic.times.drain;
        host.stop(NicSide::Sending, agenda.now(), drain);
        host.stop(NicSide::Receiving, agenda.now(), drain);
        host.nic.translations.clear();
    }

    /// The responder needs the translations of the memory that a request goes to.
    pub(super) fn translate_task(
        &mut self,
        machine: u32,
        task: &Result<Task, Refusal>,
        agenda: &Agenda<Event>,
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
        let host = &mut self.machines[machine as usize];
        host.translate(ranges, NicSide::Receiving, agenda.now());
    }
}
