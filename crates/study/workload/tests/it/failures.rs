//! A failing side notifies the other; neither hangs.
#![allow(clippy::disallowed_methods, reason = "tests run on a real machine")]

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::common::{run_each, station};
use adverb_host::Link;
use adverb_results::{Completion, Opcode};
use adverb_units::{Bytes, Span};
use adverb_verbs::{Guard, Guarded, PollError, WaitError};
use adverb_workload::pair::{
    ACTIVE, CellSpec, Fault, Length, PASSIVE, Phase, Request, RunError, Side, run_active,
    run_passive,
};

/// A station that stops delivering completions after a number of waits.
struct Failing {
    waits_left: Cell<u32>,
}

impl Failing {
    fn after(waits: u32) -> Self {
        Failing {
            waits_left: Cell::new(waits),
        }
    }
}

impl Guard for Failing {
    fn wait<R>(
        &self,
        timeout: Span,
        mut wait: impl FnMut(Span) -> Result<R, WaitError>,
    ) -> Result<R, WaitError> {
        let left = self.waits_left.get();
        self.waits_left.set(left.saturating_sub(1));
        if left > 0 {
            return wait(timeout);
        }
        Err(WaitError::Poll(PollError::Device(
            "it fell asleep".to_owned(),
        )))
    }
}

/// Runs many rounds in which one side fails after a few; returns both errors.
fn fails_in_the_middle(spec: &CellSpec, failing: Side) -> (RunError, RunError) {
    let waits = |side| if side == failing { 40 } else { u32::MAX };
    let (to_passive, to_active) = Link::pair().unwrap();
    let start = Instant::now();
    let errors = std::thread::scope(|scope| {
        let passive = scope.spawn(|| {
            let station = station(ACTIVE, to_active);
            let failing = Failing::after(waits(Side::Passive));
            run_passive(&Guarded::new(&station, failing), spec)
        });
        let station = station(PASSIVE, to_passive);
        let failing = Failing::after(waits(Side::Active));
        (
            run_active(&Guarded::new(&station, failing), spec).unwrap_err(),
            passive.join().unwrap().unwrap_err(),
        )
    });
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    errors
}

#[test]
fn a_side_that_fails_in_the_middle_tells_the_other() {
    let length = Length::Iters(1_000_000);
    let request = |op| Request {
        length,
        ..Request::new(op, Bytes::new(8))
    };
    for spec in [
        CellSpec::ping(request(Opcode::Send)),
        CellSpec::ping(request(Opcode::Write)),
        CellSpec::ping(Request {
            completion: Completion::Event,
            ..request(Opcode::WriteImm)
        }),
        CellSpec::blast(Request {
            buffers: 4,
            ..request(Opcode::Send)
        }),
    ] {
        for failing in [Side::Active, Side::Passive] {
            let (active, passive) = fails_in_the_middle(&spec, failing);
            let (own, other) = match failing {
                Side::Active => (active, passive),
                Side::Passive => (passive, active),
            };
            assert!(matches!(*own.fault, Fault::Wait(_)), "{}: {own}", spec.id);
            let reason = format!("the other side failed: {failing} side, ");
            assert!(other.to_string().contains(&reason), "{}: {other}", spec.id);
            assert!(
                other.to_string().ends_with("it fell asleep"),
                "{}: {other}",
                spec.id
            );
        }
    }
}

fn cell() -> CellSpec {
    CellSpec::ping(Request::new(Opcode::Send, Bytes::new(8)))
}

#[test]
fn sides_that_run_different_cells_both_say_so() {
    let mut other = cell();
    other.params.seed = 99;
    let (active, passive) = run_each(&cell(), &other);
    let (active, passive) = (active.unwrap_err(), passive.unwrap_err());
    assert!(active.to_string().contains("another cell"), "{active}");
    assert!(passive.to_string().contains("another cell"), "{passive}");
}

#[test]
fn a_cell_that_one_side_refuses_fails_on_both() {
    let mut bad = cell();
    bad.params.op = Opcode::Write;
    bad.params.completion = Completion::Event;
    let (active, passive) = run_each(&bad, &cell());
    assert!(matches!(*active.unwrap_err().fault, Fault::Refused(_)));
    let passive = passive.unwrap_err();
    assert_eq!(passive.phase, Phase::Connect);
    let text = passive.to_string();
    assert!(
        text.contains("the other side failed: active side, set-up: ping write has no completion"),
        "{text}"
    );
}

#[test]
fn a_peer_that_is_gone_is_named() {
    let (here, there) = Link::pair().unwrap();
    drop(there);
    let error = run_active(&station(PASSIVE, here), &cell()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "active side, connecting: the other side has ended (role 1 has ended)"
    );

    let (here, there) = Link::pair().unwrap();
    drop(there);
    let error = run_passive(&station(ACTIVE, here), &cell()).unwrap_err();
    assert!(matches!(*error.fault, Fault::PeerEnded(_)), "{error}");
}

#[test]
fn a_peer_that_talks_nonsense_is_quoted() {
    let (here, there) = Link::pair().unwrap();
    there.send(ACTIVE, b"GET / HTTP/1.1").unwrap();
    let error = run_active(&station(PASSIVE, here), &cell()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "active side, connecting: expected a greeting out of band, got GET / HTTP/1.1"
    );
}
