//! The core that handles network interrupts: which roles use it, and what takes precedence there.
//!
//! What takes precedence is served in the order of its requests; interrupts do not preempt other roles that do. The kernel's
//! scheduler is fair, also to interrupts that last (they continue in ksoftirqd): a computation gets at least the share of one
//! among all threads there. What takes precedence is not delayed by that.

use adverb_units::Span;

use super::ModelStation;
use crate::trace::StepKind;

/// How a role uses the core that handles network interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterruptCore {
    /// It has another core.
    Unused,
    /// It computes there. Interrupts, and roles that sleep there, take precedence.
    Preempted,
    /// It sleeps most of the time, and takes precedence over what computes there.
    Preempts,
}

impl ModelStation<'_> {
    /// Occupies the CPU with a step for `span`, and with what takes precedence meanwhile.
    pub(super) fn busy(&self, kind: StepKind, span: Span) {
        match self.interrupt_core.get() {
            InterruptCore::Preempted => self.step_preempted(kind, span),
            InterruptCore::Preempts => self.preempt(kind, span),
            InterruptCore::Unused => self.step(kind, span),
        }
    }

    /// Occupies the CPU until `span` of it is left for the step.
    fn step_preempted(&self, kind: StepKind, span: Span) {
        let machine = self.context.machine();
        // CPU time there of everything that takes precedence, and of interrupts, so far.
        let taken = || {
            self.role.with(|fabric, events| {
                let machine = &fabric.machines[machine];
                let all = machine.interrupts.served(events.now());
                (all, machine.interrupted)
            })
        };
        let others = self
            .role
            .with(|fabric, _| u64::from(fabric.machines[machine].preempting));
        self.role.sync();
        let ((mut all, mut interrupted), mut left) = (taken(), span);
        while left > Span::ZERO {
            self.step(kind, left);
            self.role.sync();
            let (all_now, interrupted_now) = taken();
            let fair = left * others / (others + 1);
            left = all_now.saturating_sub(all).min(fair);
            let interrupts = interrupted_now.saturating_sub(interrupted).min(left);
            self.system.set(self.system.get() + interrupts);
            let preempted = left.saturating_sub(interrupts);
            self.idle.set(self.idle.get() + preempted);
            (all, interrupted) = (all_now, interrupted_now);
        }
    }

    /// Occupies the core that handles network interrupts, behind what it has to do before.
    fn preempt(&self, kind: StepKind, span: Span) {
        self.role.sync();
        let (now, machine) = (self.role.now(), self.context.machine());
        let begin = self.role.with(|fabric, _| {
            let machine = &mut fabric.machines[machine];
            let begin = machine.interrupts.begin(now, span);
            machine.worked += span;
            machine.trace.note(kind, begin, begin + span);
            begin
        });
        self.idle.set(self.idle.get() + (begin - now));
        self.role.wait_until(begin + span);
    }

    pub(super) fn step(&self, kind: StepKind, span: Span) {
        let machine = self.context.machine();
        self.role.with(|fabric, events| {
            fabric.machines[machine].work(kind, span, &mut events.clock);
        });
    }
}
