//! One cell in virtual time: both roles as coroutines of one simulation.

use adverb_hwmodel::{Cluster, Placement};
use adverb_launch::{Hardware, SEED, VirtualLimits, run_in_virtual_time};
use adverb_studies::{CellSpec, Length};
use adverb_units::Span;

use crate::record::{CellEnd, SideRun};
use crate::request::{patience, virtual_patience};

/// Virtual time that a cell of the quick study measures, where real devices take 0.27 s: noise does
/// not have to be averaged out.
const STUDY_DURATION: Span = Span::from_ms(5);

/// A cell of a study on real devices, at the pace of the model.
pub(crate) fn pace(mut spec: CellSpec) -> CellSpec {
    spec.params.length = Length::Duration(STUDY_DURATION);
    spec
}

/// Runs a cell until its end, a deadlock, the end of a budget, or until `is_over`: then `None`.
pub(crate) fn run(
    hardware: &Hardware,
    spec: &CellSpec,
    is_over: &dyn Fn() -> bool,
) -> Option<CellEnd> {
    run_in(&mut cluster(hardware), spec, is_over)
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
) -> Option<CellEnd> {
    let machines = [cluster.machine(0), cluster.machine(1)];
    let limits = VirtualLimits {
        until: Some(virtual_patience(spec)),
        real: Some(patience(spec).into()),
    };
    let run = run_in_virtual_time(cluster, &machines, spec, limits, is_over)?;
    let [active, passive] = machines.map(|machine| {
        let mut counters = cluster.counters(machine);
        counters.retain(|_, count| *count > 0);
        SideRun {
            counters,
            ..SideRun::default()
        }
    });
    Some(CellEnd::new(run.reports(), active, passive))
}
