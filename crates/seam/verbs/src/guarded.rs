//! Wraps a station and intercepts its waits.

use adverb_units::{Span, Time};

use crate::{
    Context, CpuLoad, CpuTime, CqId, LoadTally, MemoryAccessError, MemoryTimes, NotCounted,
    NumaPlacement, OutOfBandError, PlacementError, RoleId, Station, WaitError, Work,
    WorkCompletion,
};

/// Intercepts the waits of a [`Guarded`] station.
pub trait Guard {
    /// Waits by calling `wait` with a timeout, any number of times.
    ///
    /// # Errors
    /// Errors of `wait`, or of the guard.
    fn wait<R>(
        &self,
        timeout: Span,
        wait: impl FnMut(Span) -> Result<R, WaitError>,
    ) -> Result<R, WaitError>;

    /// Waits for another role's message in the same way.
    ///
    /// # Errors
    /// Errors of `receive`, or of the guard.
    fn receive(
        &self,
        timeout: Span,
        mut receive: impl FnMut(Span) -> Result<Vec<u8>, OutOfBandError>,
    ) -> Result<Vec<u8>, OutOfBandError> {
        receive(timeout)
    }
}

/// A station whose waits are intercepted by a guard. Everything else is forwarded, streams too.
#[derive(Debug)]
pub struct Guarded<'s, S, G> {
    station: &'s S,
    guard: G,
}

impl<'s, S: Station, G: Guard> Guarded<'s, S, G> {
    /// Wraps `station`.
    pub fn new(station: &'s S, guard: G) -> Self {
        Guarded { station, guard }
    }
}

impl<S: Station, G: Guard> Station for Guarded<'_, S, G> {
    type Context = S::Context;
    type Streams = S::Streams;

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

    fn is_virtual(&self) -> bool {
        self.station.is_virtual()
    }

    fn cpu(&self) -> CpuTime {
        self.station.cpu()
    }

    fn system_calls(&self) -> Result<u64, NotCounted> {
        self.station.system_calls()
    }

    fn secret(&self) -> u64 {
        self.station.secret()
    }

    #[inline]
    fn spin(
        &self,
        cq: &<S::Context as Context>::Cq,
        into: &mut [WorkCompletion],
        timeout: Span,
    ) -> Result<usize, WaitError> {
        self.guard
            .wait(timeout, |timeout| self.station.spin(cq, into, timeout))
    }

    #[inline]
    fn spin_memory(
        &self,
        mr: &<S::Context as Context>::Mr,
        offset: u64,
        value: u8,
        timeout: Span,
    ) -> Result<(), WaitError> {
        self.guard.wait(timeout, |timeout| {
            self.station.spin_memory(mr, offset, value, timeout)
        })
    }

    #[inline]
    fn spin_on<R>(
        &self,
        mr: &<S::Context as Context>::Mr,
        timeout: Span,
        mut look: impl FnMut() -> Result<Option<R>, MemoryAccessError>,
    ) -> Result<R, WaitError> {
        self.guard.wait(timeout, |timeout| {
            self.station.spin_on(mr, timeout, &mut look)
        })
    }

    fn wait_event(
        &self,
        channel: &<S::Context as Context>::Channel,
        timeout: Span,
    ) -> Result<CqId, WaitError> {
        self.guard
            .wait(timeout, |timeout| self.station.wait_event(channel, timeout))
    }

    fn sleep(&self, span: Span) {
        self.station.sleep(span);
    }

    fn compute(&self, span: Span) {
        self.station.compute(span);
    }

    fn execute(&self, idle: Span) {
        self.station.execute(idle);
    }

    fn account(&self, work: Work) {
        self.station.account(work);
    }

    fn bind(&self, numa: NumaPlacement) -> Result<(), PlacementError> {
        self.station.bind(numa)
    }

    fn memory_node(&self, mr: &<S::Context as Context>::Mr) -> Result<Option<u32>, PlacementError> {
        self.station.memory_node(mr)
    }

    fn under_load<R>(
        &self,
        loads: &[CpuLoad],
        mr: &<S::Context as Context>::Mr,
        body: impl FnOnce() -> R,
    ) -> Result<(R, LoadTally), PlacementError> {
        self.station.under_load(loads, mr, body)
    }

    fn memory_times(&self, cpus: u32, memory: u32) -> Result<MemoryTimes, PlacementError> {
        self.station.memory_times(cpus, memory)
    }

    fn send(&self, to: RoleId, message: &[u8]) -> Result<(), OutOfBandError> {
        self.station.send(to, message)
    }

    fn receive(&self, from: RoleId, timeout: Span) -> Result<Vec<u8>, OutOfBandError> {
        self.guard
            .receive(timeout, |timeout| self.station.receive(from, timeout))
    }

    fn streams(&self) -> &S::Streams {
        self.station.streams()
    }
}
