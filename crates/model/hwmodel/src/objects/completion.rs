//! Completion queues and channels.

use std::cell::Cell;

use adverb_units::Span;
use adverb_verbs::{CompletionChannel, CompletionQueue, CqId, NotifyOn, PollError, WorkCompletion};

use crate::ids::{ChannelIndex, CqIndex, MachineId};
use crate::trace::Act;
use crate::world::fabric::World;

/// Fruitless polls in a row, without a wait of the station's, after which a role is a bug: time goes
/// on only in waits.
const PATIENCE: u32 = 1 << 20;

/// A completion channel of the model.
pub struct ModelChannel {
    world: World,
    pub(crate) number: ChannelIndex,
    pub(super) machine: MachineId,
}

impl std::fmt::Debug for ModelChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "channel {}", self.number.0)
    }
}

impl ModelChannel {
    pub(super) fn new(world: &World, number: ChannelIndex, machine: MachineId) -> Self {
        ModelChannel {
            world: world.clone(),
            number,
            machine,
        }
    }

    pub(crate) fn condition(&self) -> adverb_sim::Condition {
        self.world
            .with(|fabric, _| fabric.channels[self.number].condition)
    }

    /// An event that has come.
    pub(crate) fn take(&self) -> Option<CqId> {
        self.world
            .with(|fabric, _| fabric.channels[self.number].events.pop_front())
    }
}

impl CompletionChannel for ModelChannel {
    /// An event that has come. In virtual time only the station can wait for one.
    fn get_event(&self, patience: Span) -> std::io::Result<Option<CqId>> {
        match self.take() {
            None if patience > Span::ZERO => Err(std::io::Error::other(
                "in virtual time a role waits through its station",
            )),
            event => Ok(event),
        }
    }
}

/// A completion queue of the model.
pub struct ModelCq {
    world: World,
    pub(crate) number: CqIndex,
    entries: u32,
    pub(super) machine: MachineId,
    fruitless: Cell<u32>,
}

impl std::fmt::Debug for ModelCq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "completion queue {}", self.number.0)
    }
}

impl ModelCq {
    pub(super) fn new(
        world: &World,
        (number, entries): (CqIndex, u32),
        machine: MachineId,
    ) -> Self {
        ModelCq {
            world: world.clone(),
            number,
            entries,
            machine,
            fruitless: Cell::new(0),
        }
    }

    /// A wait of the station's has let time go on.
    pub(crate) fn waited(&self) {
        self.fruitless.set(0);
    }
}

impl CompletionQueue for ModelCq {
    fn id(&self) -> CqId {
        CqId(self.number.0)
    }

    fn entries(&self) -> u32 {
        self.entries
    }

    /// Completions that the CPU can see at its own time, as far as the world has come.
    ///
    /// # Panics
    /// After a million fruitless polls without a wait: time goes on only in waits of the station's.
    fn poll(&self, into: &mut [WorkCompletion]) -> Result<usize, PollError> {
        let n = self.world.with(|fabric, events| {
            let now = events.clock.now();
            let polled = fabric.poll(self.number, into, now)?;
            let host = &mut fabric.machines[self.machine];
            let copying = host.cpu.wqe_line * polled.copied_lines;
            let (act, span) = match polled.completions {
                0 => (Act::Look, host.cpu.poll_empty),
                n => (Act::TakeCompletion, host.cpu.poll_hit * n as u64 + copying),
            };
            events.clock.busy(span);
            host.trace.note(act, now, events.clock.now());
            Ok(polled.completions)
        })?;
        let fruitless = if n > 0 { 0 } else { self.fruitless.get() + 1 };
        self.fruitless.set(fruitless);
        assert!(
            fruitless < PATIENCE,
            "polled {fruitless} times without a wait: in virtual time, wait through the station"
        );
        Ok(n)
    }

    fn req_notify(&self, on: NotifyOn) -> Result<(), PollError> {
        self.world.with(|fabric, events| {
            let host = &mut fabric.machines[self.machine];
            let began = events.clock.now();
            events.clock.busy(host.cpu.doorbell);
            let now = events.clock.now();
            host.trace.note(Act::Arm, began, now);
            fabric.arm(self.number, on, now, events);
        });
        Ok(())
    }

    fn ack_events(&self, _events: u32) {}
}
