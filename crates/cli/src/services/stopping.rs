//! A station whose waits end when the user wants the end.

use std::sync::atomic::{AtomicBool, Ordering};

use adverb_units::{CpuTime, Span, Time};
use adverb_verbs::{
    Context, CqId, MemoryAccessError, OutOfBandError, RoleId, Station, WaitError, Work,
    WorkCompletion,
};

/// Between two looks at whether the user wants the end.
const SLICE: Span = Span::from_ms(50);

/// A station that looks, at each wait, whether it is to stop.
pub(super) struct Stoppable<'s, S> {
    station: &'s S,
    stop: &'s AtomicBool,
}

impl<'s, S: Station> Stoppable<'s, S> {
    pub(super) fn new(station: &'s S, stop: &'s AtomicBool) -> Self {
        Stoppable { station, stop }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits in slices.
    #[inline]
    fn wait<T>(
        &self,
        patience: Span,
        mut wait: impl FnMut(Span) -> Result<T, WaitError>,
    ) -> Result<T, WaitError> {
        let mut left = patience;
        loop {
            let slice = left.min(SLICE);
            let result = if self.is_over() {
                let what = "more: the user wants the end";
                return Err(WaitError::TimedOut { what, patience });
            } else {
                wait(slice)
            };
            left = left.saturating_sub(slice);
            match result {
                Err(WaitError::TimedOut { .. }) if left > Span::ZERO => {}
                Err(WaitError::TimedOut { what, .. }) => {
                    return Err(WaitError::TimedOut { what, patience });
                }
                other => return other,
            }
        }
    }
}

impl<S: Station> Station for Stoppable<'_, S> {
    type Context = S::Context;

    fn context(&self) -> &S::Context {
        self.station.context()
    }

    #[inline]
    fn now(&self) -> Time {
        self.station.now()
    }

    fn clock_cost(&self) -> Span {
        self.station.clock_cost()
    }

    fn cpu(&self) -> CpuTime {
        self.station.cpu()
    }

    #[inline]
    fn spin(
        &self,
        cq: &<S::Context as Context>::Cq,
        into: &mut [WorkCompletion],
        patience: Span,
    ) -> Result<usize, WaitError> {
        self.wait(patience, |slice| self.station.spin(cq, into, slice))
    }

    #[inline]
    fn spin_memory(
        &self,
        mr: &<S::Context as Context>::Mr,
        offset: u64,
        value: u8,
        patience: Span,
    ) -> Result<(), WaitError> {
        self.wait(patience, |slice| {
            self.station.spin_memory(mr, offset, value, slice)
        })
    }

    #[inline]
    fn spin_on<R>(
        &self,
        mr: &<S::Context as Context>::Mr,
        patience: Span,
        mut look: impl FnMut() -> Result<Option<R>, MemoryAccessError>,
    ) -> Result<R, WaitError> {
        self.wait(patience, |slice| self.station.spin_on(mr, slice, &mut look))
    }

    fn wait_event(
        &self,
        channel: &<S::Context as Context>::Channel,
        patience: Span,
    ) -> Result<CqId, WaitError> {
        self.wait(patience, |slice| self.station.wait_event(channel, slice))
    }

    fn sleep(&self, span: Span) {
        self.station.sleep(span);
    }

    fn compute(&self, span: Span) {
        self.station.compute(span);
    }

    fn account(&self, work: Work) {
        self.station.account(work);
    }

    fn send(&self, to: RoleId, message: &[u8]) -> Result<(), OutOfBandError> {
        self.station.send(to, message)
    }

    fn receive(&self, from: RoleId, patience: Span) -> Result<Vec<u8>, OutOfBandError> {
        let mut left = patience;
        loop {
            let slice = left.min(SLICE);
            let result = self.station.receive(from, slice);
            left = left.saturating_sub(slice);
            match result {
                Err(OutOfBandError::TimedOut { role, .. }) if left == Span::ZERO => {
                    return Err(OutOfBandError::TimedOut { role, patience });
                }
                Err(OutOfBandError::TimedOut { .. }) if !self.is_over() => {}
                other => return other,
            }
        }
    }
}
