//! Completion queues and channels.

use std::cell::Cell;

use adverb_units::Span;
use adverb_verbs::{CompletionChannel, CompletionQueue, CqId, NotifyOn, PollError, WorkCompletion};

use crate::ids::{ChannelIndex, CqIndex, MachineId};
use crate::trace::StepKind;
use crate::world::fabric::SharedFabric;

/// Successive empty polls without a wait of the station, after which a role counts as hung: virtual time
/// advances only in waits.
const MAX_EMPTY_POLLS: u32 = 1 << 20;

/// A completion channel of the model.
pub struct ModelChannel {
    world: SharedFabric,
    pub(crate) number: ChannelIndex,
    pub(super) machine: MachineId,
}

debug_as!(ModelChannel, "channel {}", number.0);

impl ModelChannel {
    pub(super) fn new(world: &SharedFabric, number: ChannelIndex, machine: MachineId) -> Self {
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

    /// Takes an event, if there is one.
    pub(crate) fn take(&self) -> Option<CqId> {
        self.world
            .with(|fabric, _| fabric.channels[self.number].events.pop_front())
    }
}

impl CompletionChannel for ModelChannel {
    /// Takes an event, if there is one. In virtual time only the station can wait for one.
    fn get_event(&self, timeout: Span) -> std::io::Result<Option<CqId>> {
        match self.take() {
            None if timeout > Span::ZERO => Err(std::io::Error::other(
                "in virtual time a role waits through its station",
            )),
            event => Ok(event),
        }
    }
}

/// A completion queue of the model.
pub struct ModelCq {
    world: SharedFabric,
    pub(crate) number: CqIndex,
    entries: u32,
    pub(super) machine: MachineId,
    empty_polls: Cell<u32>,
}

debug_as!(ModelCq, "completion queue {}", number.0);

impl ModelCq {
    pub(super) fn new(
        world: &SharedFabric,
        (number, entries): (CqIndex, u32),
        machine: MachineId,
    ) -> Self {
        ModelCq {
            world: world.clone(),
            number,
            entries,
            machine,
            empty_polls: Cell::new(0),
        }
    }

    /// A wait of the station has let time advance.
    pub(crate) fn waited(&self) {
        self.empty_polls.set(0);
    }
}

impl CompletionQueue for ModelCq {
    fn id(&self) -> CqId {
        CqId(self.number.0)
    }

    fn entries(&self) -> u32 {
        self.entries
    }

    /// Takes the completions that are visible at the time of the role's clock.
    ///
    /// # Panics
    /// After a million empty polls without a wait of the station: only waits let time advance.
    fn poll(&self, into: &mut [WorkCompletion]) -> Result<usize, PollError> {
        let n = self.world.with(|fabric, events| {
            let now = events.clock.now();
            let polled = fabric.poll(self.number, into, now)?;
            if polled.completions > 0 && fabric.cqs[self.number].poller.is_some() {
                // Another thread has taken them.
                return Ok(polled.completions);
            }
            let host = &mut fabric.machines[self.machine];
            let copying = host.cpu.wqe_line_ns * polled.copied_lines;
            let (kind, span) = match polled.completions {
                0 => (StepKind::Look, host.cpu.poll_empty_ns),
                n => (
                    StepKind::TakeCompletion,
                    host.cpu.poll_hit_ns * n as u64 + copying,
                ),
            };
            host.work(kind, span, &mut events.clock);
            Ok(polled.completions)
        })?;
        let empty_polls = if n > 0 { 0 } else { self.empty_polls.get() + 1 };
        self.empty_polls.set(empty_polls);
        assert!(
            empty_polls < MAX_EMPTY_POLLS,
            "polled {empty_polls} times without a wait: in virtual time, wait through the station"
        );
        Ok(n)
    }

    fn req_notify(&self, on: NotifyOn) -> Result<(), PollError> {
        self.world.with(|fabric, events| {
            let host = &mut fabric.machines[self.machine];
            host.work(StepKind::Arm, host.cpu.doorbell_ns, &mut events.clock);
            fabric.arm(self.number, on, events.clock.now(), events);
        });
        Ok(())
    }

    fn ack_events(&self, _events: u32) {}
}
