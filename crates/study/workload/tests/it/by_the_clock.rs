//! Runs keep their duration whatever the warm-up measured; both sides agree on where a run ends.

use std::cell::Cell;

use crate::common::station;
use adverb_host::{HostStation, Link};
use adverb_results::{Completion, Opcode, Signaling};
use adverb_softnic::{SoftChannel, SoftContext, SoftCq, SoftMr};
use adverb_units::{Bytes, CpuTime, Span, Time};
use adverb_verbs::{
    CqId, MemoryAccessError, OutOfBandError, RoleId, Station, WaitError, WorkCompletion,
};
use adverb_workload::pair::{
    ACTIVE, CellResult, CellSpec, Length, PASSIVE, Request, run_active, run_passive,
};

/// A station with a fake clock: a fixed duration of the warm-up, then a fixed step per reading.
struct Clocked {
    station: HostStation<SoftContext>,
    pace: Pace,
    now: Cell<Time>,
    /// What was sent out of band: greeting, connection, and then begin and end of each run.
    sent: Cell<u32>,
}

#[derive(Clone, Copy)]
struct Pace {
    warm_up: Span,
    step: Span,
}

/// Sent when the warm-up begins, and when the first repetition does.
const WARM_UP: u32 = 3;
const REPETITION: u32 = 5;

impl Station for Clocked {
    type Context = SoftContext;
    type Streams = HostStation<SoftContext>;

    fn context(&self) -> &SoftContext {
        self.station.context()
    }
    fn now(&self) -> Time {
        let now = self.now.get();
        self.now.set(match self.sent.get() {
            // The second reading is its end; a wait may read the clock, too.
            WARM_UP if now == Time::ZERO => now + Span::from_ps(1),
            WARM_UP => Time::ZERO + Span::from_ps(1) + self.pace.warm_up,
            sent if sent >= REPETITION => now + self.pace.step,
            _ => now,
        });
        self.now.get()
    }
    fn clock_cost(&self) -> Span {
        Span::ZERO
    }
    fn cpu(&self) -> CpuTime {
        self.station.cpu()
    }
    fn secret(&self) -> u64 {
        self.station.secret()
    }
    fn spin(
        &self,
        cq: &SoftCq,
        into: &mut [WorkCompletion],
        timeout: Span,
    ) -> Result<usize, WaitError> {
        self.station.spin(cq, into, timeout)
    }
    fn spin_memory(
        &self,
        mr: &SoftMr,
        offset: u64,
        value: u8,
        timeout: Span,
    ) -> Result<(), WaitError> {
        self.station.spin_memory(mr, offset, value, timeout)
    }
    fn spin_on<R>(
        &self,
        mr: &SoftMr,
        timeout: Span,
        look: impl FnMut() -> Result<Option<R>, MemoryAccessError>,
    ) -> Result<R, WaitError> {
        self.station.spin_on(mr, timeout, look)
    }
    fn wait_event(&self, channel: &SoftChannel, timeout: Span) -> Result<CqId, WaitError> {
        self.station.wait_event(channel, timeout)
    }
    fn sleep(&self, span: Span) {
        self.station.sleep(span);
    }
    fn compute(&self, span: Span) {
        self.station.compute(span);
    }
    fn send(&self, to: RoleId, message: &[u8]) -> Result<(), OutOfBandError> {
        self.sent.set(self.sent.get() + 1);
        self.station.send(to, message)
    }
    fn receive(&self, from: RoleId, timeout: Span) -> Result<Vec<u8>, OutOfBandError> {
        self.station.receive(from, timeout)
    }
    fn streams(&self) -> &HostStation<SoftContext> {
        self.station.streams()
    }
}

/// Runs a cell whose active side uses such a clock.
fn run(spec: &CellSpec, pace: Pace) -> CellResult {
    let (to_passive, to_active) = Link::pair().unwrap();
    std::thread::scope(|scope| {
        let passive = scope.spawn(|| run_passive(&station(ACTIVE, to_active), spec));
        let clocked = Clocked {
            station: station(PASSIVE, to_passive),
            pace,
            now: Cell::new(Time::ZERO),
            sent: Cell::new(0),
        };
        let result = run_active(&clocked, spec);
        let passive = passive.join().unwrap();
        match (result, passive) {
            (Ok(result), Ok(())) => result,
            ends => panic!("{}: {ends:?}", spec.id),
        }
    })
}

const WANTED: Span = Span::from_ms(10);

fn request(op: Opcode) -> Request {
    Request {
        verify: true,
        length: Length::Duration(WANTED * 3),
        repetitions: 3,
        warmup: Some(20),
        ..Request::new(op, Bytes::new(64))
    }
}

/// Returns cells for all ways of taking part.
fn cells() -> Vec<CellSpec> {
    let mut cells = vec![CellSpec::ping(request(Opcode::Write))];
    for op in [
        Opcode::Send,
        Opcode::WriteImm,
        Opcode::WriteRead,
        Opcode::Read,
    ] {
        let hybrid = Completion::Hybrid(Span::from_us(5));
        for completion in [Completion::Poll, Completion::Event, hybrid] {
            let asked = request(op);
            cells.push(CellSpec::ping(Request {
                completion,
                ..asked
            }));
            if op != Opcode::WriteRead {
                cells.push(CellSpec::blast(Request {
                    completion,
                    buffers: 7,
                    signal: Signaling::Every(3),
                    ..request(op)
                }));
            }
        }
    }
    cells
}

/// Runs all cells; each must measure for about the requested duration, apart from clock readings in waits on a
/// busy machine.
fn keep_to_the_duration(pace: Pace, planned: u64) -> Vec<CellResult> {
    let results = cells().into_iter().map(|spec| {
        let result = run(&spec, pace);
        // A repetition holds at least 16 messages or rounds, and four for each buffer.
        let least = u64::from(spec.params.buffers * 4).max(16);
        assert_eq!(result.params.iters, Some(planned.max(least)), "{}", spec.id);
        assert!(!result.metrics.few_messages, "{}", spec.id);
        for repetition in &result.metrics.repetitions {
            let elapsed = repetition.elapsed;
            assert!(
                elapsed >= WANTED / 2 && elapsed < WANTED * 10,
                "{}: {elapsed}",
                spec.id
            );
        }
        result
    });
    results.collect()
}

fn iters(results: Vec<CellResult>) -> impl Iterator<Item = u64> {
    let repetitions = results.into_iter().flat_map(|r| r.metrics.repetitions);
    repetitions.map(|repetition| repetition.iters)
}

#[test]
fn a_run_that_takes_longer_than_the_warm_up_told_ends_in_time() {
    let results = keep_to_the_duration(
        Pace {
            warm_up: Span::from_us(1),
            step: Span::from_ms(2),
        },
        200_000,
    );
    assert!(iters(results).all(|iters| iters < 50_000));
}

#[test]
fn a_repetition_that_is_done_sooner_than_the_warm_up_told_goes_on() {
    let results = keep_to_the_duration(
        Pace {
            warm_up: Span::from_secs(1),
            step: Span::from_us(20),
        },
        1,
    );
    assert!(iters(results).all(|iters| iters > 20));
}
