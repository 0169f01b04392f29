//! A server core that stops answering: its clients say so in bounded time.

mod common;

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use adverb_hwmodel::{ModelChannel, ModelContext, ModelCq, ModelMr, ModelStation};
use adverb_patterns::{
    Asking, Clients, Pace, PatternError, Posting, Rpc, Schedule, Service, Serving, Timing, run_rpc,
};
use adverb_units::{CpuTime, Span, Time};
use adverb_verbs::{
    CqId, MemoryAccessError, OutOfBandError, RoleId, Station, WaitError, Work, WorkCompletion,
};
use common::on_model;

/// A station whose role falls asleep for good after so many waits.
struct Dozing<'s, 'y> {
    station: &'s ModelStation<'y>,
    waits: Cell<u32>,
}

impl Dozing<'_, '_> {
    fn doze(&self) {
        self.waits.set(self.waits.get().saturating_sub(1));
        if self.waits.get() == 0 {
            self.station.sleep(Span::from_secs(60));
        }
    }
}

impl Station for Dozing<'_, '_> {
    type Context = ModelContext;

    fn context(&self) -> &ModelContext {
        self.station.context()
    }
    fn now(&self) -> Time {
        self.station.now()
    }
    fn clock_cost(&self) -> Span {
        self.station.clock_cost()
    }
    fn cpu(&self) -> CpuTime {
        self.station.cpu()
    }
    fn spin(
        &self,
        cq: &ModelCq,
        into: &mut [WorkCompletion],
        patience: Span,
    ) -> Result<usize, WaitError> {
        self.doze();
        self.station.spin(cq, into, patience)
    }
    fn spin_memory(
        &self,
        mr: &ModelMr,
        offset: u64,
        value: u8,
        patience: Span,
    ) -> Result<(), WaitError> {
        self.station.spin_memory(mr, offset, value, patience)
    }
    fn spin_on<R>(
        &self,
        mr: &ModelMr,
        patience: Span,
        look: impl FnMut() -> Result<Option<R>, MemoryAccessError>,
    ) -> Result<R, WaitError> {
        self.doze();
        self.station.spin_on(mr, patience, look)
    }
    fn wait_event(&self, channel: &ModelChannel, patience: Span) -> Result<CqId, WaitError> {
        self.station.wait_event(channel, patience)
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
        self.station.receive(from, patience)
    }
}

#[test]
fn a_client_whose_answers_do_not_come_says_how_many_it_misses() {
    for asking in [Asking::Write, Asking::HeaderOnly] {
        let rpc = Rpc {
            service: Service::Sequencer(asking),
            serving: Serving {
                cores: 1,
                qps_per_core: 1,
                posting: Posting::Single,
                signaled_every: 16,
            },
            clients: Clients {
                threads: 1,
                machines: 1,
                outstanding: 4,
                pace: Pace::Closed,
                timing: Timing::Whole,
                seed: 1,
            },
        };
        let (mut ended, _) = on_model("cx3", &[0, 1], move |station, role| {
            let schedule = Schedule {
                warm_up: Span::ZERO,
                measured: Span::from_ms(1),
            };
            let waits = if role == RoleId(0) { 40 } else { u32::MAX };
            let station = Dozing {
                station,
                waits: Cell::new(waits),
            };
            run_rpc(&station, &rpc, role, &AtomicU64::new(0), schedule)
        });
        match ended.remove(1) {
            Err(PatternError::Lost { missing: 4, .. }) => {}
            other => panic!("{asking:?}: {other:?}"),
        }
    }
}
