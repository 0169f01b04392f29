//! Prints the share of its goodput that a stream over UDP keeps while somebody forges packets, compared with
//! sending the same packets to a socket that nobody reads: the table of `docs/soft-nic.md`.
//!
//! `cargo run --release -p adverb-softnic --example flood`

#![allow(unsafe_code)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::flood::{Flood, Kind, Measured, Placement, Stream, Target};

/// Forged packets a second.
const RATES: [u64; 4] = [10, 100, 3000, 70_000];
/// Measurements of each figure, in turn with those that it is compared with.
const REPETITIONS: usize = 15;
const TIME: Duration = Duration::from_millis(100);

fn main() {
    print_row("forged packets/s", RATES.map(|rate| rate.to_string()));
    for kind in Kind::ALL {
        let shares = RATES.map(|rate| match share(kind, rate) {
            Some(share) => format!("{:.0} %", 100. * share),
            None => "ends".to_owned(),
        });
        print_row(&format!("{kind:?}"), shares);
    }
}

fn print_row(name: &str, cells: [String; RATES.len()]) {
    let cells = cells.map(|cell| format!("{cell:>10}"));
    println!("{name:<16}{}", cells.concat());
}

/// The share of its goodput that a stream keeps; none if the connection ends.
fn share(kind: Kind, rate: u64) -> Option<f64> {
    let mut stream = Stream::new(7, Placement::Pinned);
    let mut measure = |target, total: &mut Measured| {
        let flood = Flood { kind, rate, target };
        let measured = stream.run(flood, |so_far| so_far.time >= TIME);
        total.messages += measured.messages;
        total.time += measured.time;
        measured.failure.is_none().then_some(())
    };
    measure(Target::Nobody, &mut Measured::default())?;
    let (mut undisturbed, mut disturbed) = <(Measured, Measured)>::default();
    for _ in 0..REPETITIONS {
        measure(Target::Nobody, &mut undisturbed)?;
        measure(Target::Stream, &mut disturbed)?;
    }
    let rate = |total: &Measured| total.messages as f64 / total.time.as_secs_f64();
    Some(rate(&disturbed) / rate(&undisturbed))
}
