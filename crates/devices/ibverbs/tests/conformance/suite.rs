//! All cases on one device, and the table of verdicts.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use adverb_conformance::known::{Judgement, Kind, Known};
use adverb_ibverbs::{VerbsDevice, devices};
use adverb_verbs::{Context, Device};

use crate::args::{Peer, Subject};
use crate::boundaries;
use crate::known::known;
use crate::mixed;
use crate::runner::Runner;

/// How long a case may take; the suite's own waits are bounded by 5 s each.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a case may take that is known to depart from the rules. Most of them wait for a completion that
/// never comes; a device that has learned the rule passes in a fraction of this.
const KNOWN_LIMIT: Duration = Duration::from_secs(2);

/// Runs the cases on the device whose names have one of `filters`, all where there is none; fails
/// if one ends otherwise than is known.
pub(crate) fn run(subject: &Subject, filters: &[String]) -> ExitCode {
    let device = match subject.device() {
        Ok(device) => device,
        Err(error) => return refused(&error),
    };
    let driver = match show(&device) {
        Ok(driver) => driver,
        Err(error) => return refused(&error),
    };
    if subject.peer != Peer::Itself
        && let Err(error) = mixed::prepare()
    {
        return refused(&error);
    }
    let names = names(subject.peer);
    let mut known = known(&driver, subject);
    if subject.peer != Peer::Itself {
        known.retain(|known| names.iter().any(|name| name == known.case));
    }
    let mut count = [0; 5];
    let mut runner = Runner::new(subject);
    let wanted = |name: &&String| filters.is_empty() || filters.iter().any(|f| name.contains(f));
    for name in names.iter().filter(wanted) {
        let of_case = known.iter().find(|known| known.case == *name);
        let begin = Instant::now();
        let verdict = match of_case {
            Some(known) if known.kind == Kind::Stalls => Judgement::NotRun(known.reason),
            Some(Known {
                kind: Kind::Departs,
                ..
            }) => Judgement::of(runner.run(name, KNOWN_LIMIT), of_case),
            _ => Judgement::of(runner.run(name, LIMIT), of_case),
        };
        println!(
            "{name:66} {:5.1} s  {verdict}",
            begin.elapsed().as_secs_f64()
        );
        if let Judgement::NotRun(reason) = verdict {
            eprintln!("NOT RUN: {name} on {driver}: {reason}");
        }
        count[match verdict {
            Judgement::Passed => 0,
            Judgement::Lacks(_) => 1,
            Judgement::Departs(_) => 2,
            Judgement::NotRun(_) => 3,
            _ => 4,
        }] += 1;
    }
    let [passed, lacking, departing, left_out, failed] = count;
    println!(
        "{} cases on {device} ({driver}, {} interface{}): {passed} passed, {lacking} lack something, \
         {departing} depart from the rules as known, {left_out} not run, {failed} FAILED",
        count.iter().sum::<i32>(),
        subject.interface,
        match subject.peer {
            Peer::Itself => String::new(),
            Peer::Soft(first) => format!(", with the user-space NIC, {} first", first.name()),
        }
    );
    let is_gone = |known: &&Known| !names.iter().any(|name| name == known.case);
    let gone = known.iter().filter(is_gone);
    let mut stale = 0;
    for known in gone {
        println!("FAILED: {} is listed, but does not exist", known.case);
        stale += 1;
    }
    ExitCode::from(u8::from(failed + stale > 0))
}

/// The modules that say something of what two ends tell each other; what a device tells its own
/// program does not depend on the peer.
const OF_TWO: [&str; 11] = [
    "data",
    "order",
    "rnr",
    "access",
    "atomics",
    "unreliable",
    "datagram",
    "dropped_datagram",
    "states",
    "lost_peer",
    "objects",
];

/// Thousands of single round trips between five NICs: minutes on an emulated processor.
const TOO_LONG: &str = "atomics::additions_of_many_requesters_all_count";

/// The cases that apply to these two ends.
fn names(peer: Peer) -> Vec<String> {
    let all = adverb_conformance::names().into_iter();
    let module = |name: &'static str| name.split("::").next().unwrap_or(name);
    let of_two = |name: &'static str| OF_TWO.contains(&module(name)) && name != TOO_LONG;
    let wanted = |name: &&'static str| peer == Peer::Itself || of_two(name);
    let of_suite = all.filter(wanted).map(str::to_owned);
    match peer {
        Peer::Itself => of_suite.collect(),
        Peer::Soft(_) => of_suite.chain(boundaries::names()).collect(),
    }
}

fn refused(error: &str) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}

/// Prints what the suite runs on; returns the name of its driver.
fn show(device: &VerbsDevice) -> Result<String, String> {
    let there = devices().map_err(|e| e.to_string())?;
    let there: Vec<_> = there.iter().map(ToString::to_string).collect();
    println!("devices: {}", there.join(", "));
    let context = device.open().map_err(|e| e.to_string())?;
    println!("{}", context.name());
    let provenance = context.provenance();
    for (name, value) in &provenance {
        println!("  {name:28} {value}");
    }
    println!("  {:28} {:?}", "limits", context.caps());
    println!("  {:28} {} counters", "counts", context.counters().len());
    let driver = provenance.into_iter().find(|(name, _)| name == "driver");
    Ok(driver.map_or_else(String::new, |(_, driver)| driver))
}
