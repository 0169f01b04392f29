//! One cell in virtual time: both roles as coroutines of one simulation.

use adverb_hwmodel::{Cluster, Placement};
use adverb_sim::{Budget, Outcome, Resource};
use adverb_studies::{CellResult, CellSpec, Fault, Length, RunError, run_active, run_passive};
use adverb_units::{Span, Time};

use crate::model::Hardware;
use crate::model::hardware::SEED;
use crate::pair::{Details, PairEnd, SideDevice, SideDevices};
use crate::request::{patience, virtual_patience};

/// Virtual time that a cell of the quick study measures, where real devices take 0.27 s: noise does
/// not have to be averaged out.
const STUDY_DURATION: Span = Span::from_ms(5);
/// Events between two looks at whether the user wants the end: far below a second.
const SLICE: u64 = 200_000;

/// A cell of a study on real devices, at the pace of the model.
pub(crate) fn pace(mut spec: CellSpec) -> CellSpec {
    spec.params.length = Length::Duration(STUDY_DURATION);
    spec
}

/// Runs a cell until its end, a deadlock, the end of a budget, or until `is_over`.
pub(crate) fn run(hardware: &Hardware, spec: &CellSpec, is_over: &dyn Fn() -> bool) -> PairEnd {
    let mut cluster = cluster(hardware);
    run_in(&mut cluster, spec, is_over)
}

/// The machines of a cell: active, passive.
pub(crate) fn cluster(hardware: &Hardware) -> Cluster {
    Cluster::seeded(&hardware.preset, &[Placement::Cached; 2], SEED)
}

/// Runs a cell on the first two machines of a cluster that has no roles yet.
pub(crate) fn run_in(
    cluster: &mut Cluster,
    spec: &CellSpec,
    is_over: &dyn Fn() -> bool,
) -> PairEnd {
    let (here, there) = (cluster.machine(0), cluster.machine(1));
    let (ours, theirs) = (spec.clone(), spec.clone());
    let active = cluster.spawn(here, "active", move |station| run_active(station, &ours));
    let passive = cluster.spawn(there, "passive", move |station| {
        run_passive(station, &theirs)
    });
    let Some(outcome) = run_in_slices(cluster, spec, is_over) else {
        return PairEnd::Interrupted;
    };
    let device = |machine| SideDevice {
        counters: moved(cluster.counters(machine)),
        details: Details::new(),
    };
    let devices = SideDevices {
        active: device(here),
        passive: device(there),
    };
    match verdict(&outcome, active.take(), passive.take()) {
        Ok(result) => PairEnd::Measured(Box::new(result), devices),
        Err(reason) => PairEnd::Failed(reason, devices),
    }
}

/// None where the user wanted the end.
fn run_in_slices(
    cluster: &mut Cluster,
    spec: &CellSpec,
    is_over: &dyn Fn() -> bool,
) -> Option<Outcome> {
    let started = std::time::Instant::now();
    let real = Span::from(patience(spec));
    let slice = Budget {
        until: Some(Time::ZERO + virtual_patience(spec)),
        events: Some(SLICE),
        real: None,
    };
    loop {
        if is_over() {
            return None;
        }
        let outcome = cluster.run(&slice);
        let Outcome::Exhausted {
            budget: Resource::Events(_),
            waiting,
        } = outcome
        else {
            return Some(outcome);
        };
        let used = Span::from(started.elapsed());
        if used > real {
            let budget = Resource::RealTime(used);
            return Some(Outcome::Exhausted { budget, waiting });
        }
    }
}

/// What the roles returned, or the first cause of their not returning a result.
fn verdict(
    outcome: &Outcome,
    active: Option<Result<CellResult, RunError>>,
    passive: Option<Result<(), RunError>>,
) -> Result<CellResult, String> {
    let of_peer = |error: &RunError| matches!(*error.fault, Fault::Peer(_) | Fault::PeerEnded(_));
    match (active, passive) {
        (Some(Ok(result)), Some(Ok(()))) => Ok(result),
        (Some(Err(error)), Some(Err(cause))) if of_peer(&error) && !of_peer(&cause) => {
            Err(cause.to_string())
        }
        (Some(Err(error)), _) | (_, Some(Err(error))) => Err(error.to_string()),
        (None, _) | (_, None) => Err(outcome.to_string()),
    }
}

/// Only counters that counted something.
fn moved(mut counters: adverb_verbs::Counters) -> adverb_verbs::Counters {
    counters.retain(|_, count| *count > 0);
    counters
}
