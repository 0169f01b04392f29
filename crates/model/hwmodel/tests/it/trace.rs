//! The steps of a round add up to its duration, and to what ping measures.

use crate::common::{cell, pair};
use adverb_hwmodel::trace::{Component, Link, Step, StepKind, chain};
use adverb_hwmodel::{Kind, MachineId, Preset, names};
use adverb_results::{Completion, Opcode, Program};
use adverb_units::Span;
use adverb_workload::pair::{CellSpec, Request};

const CLIENT: MachineId = MachineId(0);

/// The steps of a ping, and its one-way time in nanoseconds.
fn traced(preset: &Preset, spec: &CellSpec) -> (Vec<Step>, f64) {
    let mut cluster = pair(preset);
    cluster.trace();
    let metrics = crate::common::run_in(&mut cluster, spec).metrics;
    (cluster.steps(), metrics.one_way_ns.mean.unwrap())
}

fn posts(steps: &[Step]) -> Vec<&Step> {
    let is_post = |step: &&Step| step.machine == CLIENT && step.kind == StepKind::BuildWqe;
    steps.iter().filter(is_post).collect()
}

/// The steps of a round in the middle of the run.
fn round(steps: &[Step], posts_in_round: usize) -> Vec<Step> {
    let posts = posts(steps);
    let first = posts.len() / posts_in_round / 2 * posts_in_round;
    let (from, to) = (posts[first].begin, posts[first + posts_in_round].begin);
    let links = chain(steps, from, (CLIENT, to));
    let step = |link: Link| match link {
        Link::Step(index) => steps[index],
        Link::Gap(from, to) => panic!("nothing noted for {}: {links:?}", to - from),
    };
    links.iter().map(|link| step(*link)).collect()
}

#[test]
fn the_steps_of_a_round_add_up_to_twice_what_ping_measures() {
    let presets = names()
        .into_iter()
        .map(|name| Preset::built_in(name).unwrap());
    for preset in presets.filter(|preset| preset.kind == Kind::Nic) {
        for op in [
            Opcode::Send,
            Opcode::Write,
            Opcode::WriteImm,
            Opcode::Read,
            Opcode::WriteRead,
        ] {
            for (size, inline) in [(16, true), (16, false), (3_000, false), (200_000, false)] {
                let mut spec = cell(Program::Ping, op, size);
                spec.params = Request {
                    inline: inline && op != Opcode::Read,
                    verify: false,
                    ..spec.params
                };
                check(&preset, &spec);
            }
        }
    }
}

fn check(preset: &Preset, spec: &CellSpec) {
    let what = format!("{} {}, {:?}", preset.name, spec.id, spec.params.inline);
    let (steps, one_way) = traced(preset, spec);
    let posts_in_round = if spec.params.op == Opcode::WriteRead {
        2
    } else {
        1
    };
    let round = round(&steps, posts_in_round);
    let sum: Span = round.iter().map(Step::span).sum();
    let half = sum.as_ns_f64() / 2.0;
    // Ping's time includes reading the clock, and unsignaled rounds.
    let difference = (half / one_way - 1.0).abs();
    assert!(difference < 0.03, "{what}: {half} ns, ping: {one_way} ns");
    for component in [Component::Cpu, Component::Nic, Component::Wire] {
        let there = round.iter().any(|step| step.kind.component() == component);
        assert!(there, "{what}: nothing at {component}: {round:?}");
    }
}

#[test]
fn waits_for_events_sleep() {
    let preset = Preset::built_in("mt26428_qdr").unwrap();
    let mut spec = cell(Program::Ping, Opcode::Send, 64);
    spec.params.completion = Completion::Event;
    let (steps, one_way) = traced(&preset, &spec);
    let round = round(&steps, 1);
    let woken = round
        .iter()
        .filter(|step| step.kind == StepKind::Wake)
        .count();
    assert!(woken >= 2, "each side once: {round:?}");
    let sum: Span = round.iter().map(Step::span).sum();
    let half = sum.as_ns_f64() / 2.0;
    assert!(
        (half / one_way - 1.0).abs() < 0.03,
        "{half} ns, {one_way} ns"
    );
}

#[test]
fn only_payload_that_is_not_inline_is_read() {
    let preset = Preset::built_in("cx3").unwrap();
    let reads = |inline| {
        let mut spec = cell(Program::Ping, Opcode::Write, 64);
        spec.params.inline = inline;
        spec.params.verify = false;
        let round = round(&traced(&preset, &spec).0, 1);
        let reads = |step: &&Step| matches!(step.kind, StepKind::ReadRequest(_));
        round.iter().filter(reads).count()
    };
    assert_eq!(reads(true), 0);
    assert_eq!(reads(false), 2, "each side reads its payload");
}

#[test]
fn the_upstream_driver_writes_only_reads_and_inline_requests_by_mmio() {
    let preset = Preset::built_in("mt26428_qdr").unwrap();
    let by_mmio = |op| {
        let mut spec = cell(Program::Ping, op, 64);
        spec.params.verify = false;
        let round = round(&traced(&preset, &spec).0, 1);
        let kinds = |wanted: fn(&StepKind) -> bool| round.iter().any(|step| wanted(&step.kind));
        let rings = kinds(|kind| *kind == StepKind::RingDoorbell);
        let writes = kinds(|kind| matches!(kind, StepKind::WriteMmio(_)));
        assert!(rings != writes, "{op:?}: {round:?}");
        writes
    };
    assert!(by_mmio(Opcode::Read));
    assert!(!by_mmio(Opcode::Write));
}

#[test]
fn tracing_does_not_change_a_run() {
    let preset = Preset::built_in("connect_ib").unwrap();
    let spec = cell(Program::Ping, Opcode::Read, 64);
    let (_, noted) = traced(&preset, &spec);
    let plain = crate::common::run_on(&preset, &spec)
        .metrics
        .one_way_ns
        .mean;
    assert_eq!(Some(noted), plain);
}
