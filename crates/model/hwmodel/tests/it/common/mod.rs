//! Runs cells of the studies on the model.

pub(crate) mod two;

use adverb_hwmodel::{Cluster, Placement, Preset};
use adverb_results::{Opcode, Program};
use adverb_sim::{Budget, Outcome};
use adverb_units::{Bytes, Span, Time};
use adverb_workload::pair::{CellResult, CellSpec, Length, Request, run_active, run_passive};

/// A budget that no test exhausts.
pub(crate) const BUDGET: Budget = Budget {
    until: Some(Time::from_ps(100_000_000_000_000)),
    events: None,
    real: Some(Span::from_secs(120)),
};

/// A cell that checks its payload.
pub(crate) fn cell(program: Program, op: Opcode, size: u64) -> CellSpec {
    CellSpec {
        id: format!("{program}/{op}/{size}"),
        figures: Vec::new(),
        program,
        params: Request {
            verify: true,
            length: Length::Iters(200),
            ..Request::new(op, Bytes::new(size))
        },
    }
}

/// Two machines of a preset.
pub(crate) fn pair(preset: &Preset) -> Cluster {
    Cluster::new(preset, &[Placement::Cached; 2])
}

/// Runs a cell.
pub(crate) fn run_on(preset: &Preset, spec: &CellSpec) -> CellResult {
    run_in(&mut pair(preset), spec)
}

/// Runs a cell on two machines.
pub(crate) fn run_in(cluster: &mut Cluster, spec: &CellSpec) -> CellResult {
    let (here, there) = (cluster.machine(0), cluster.machine(1));
    let (active, passive) = (spec.clone(), spec.clone());
    let result = cluster.spawn(here, "active", move |station| run_active(station, &active));
    let peer = cluster.spawn(there, "passive", move |station| {
        run_passive(station, &passive)
    });
    let outcome = cluster.run(&BUDGET);
    assert_eq!(outcome, Outcome::Finished, "{}: {outcome}", spec.id);
    if let Some(Err(error)) = peer.take() {
        panic!("{}: passive: {error}", spec.id);
    }
    match result.take() {
        Some(Ok(result)) => result,
        other => panic!("{}: {other:?}", spec.id),
    }
}

/// Runs a cell on a preset by name.
pub(crate) fn run(preset: &str, spec: &CellSpec) -> CellResult {
    run_on(&Preset::built_in(preset).expect("a preset"), spec)
}
