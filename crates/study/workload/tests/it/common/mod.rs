//! Both sides of a cell, as two threads over the user-space device.

use adverb_host::{HostStation, Link};
use adverb_softnic::{SoftContext, SoftDevice};
use adverb_verbs::{Device, RoleId};
use adverb_workload::pair::{
    ACTIVE, CellResult, CellSpec, PASSIVE, RunError, run_active, run_passive,
};

/// A station with a context of its own. Tests run concurrently: no role has a core of its own.
pub(crate) fn station(peer: RoleId, link: Link) -> HostStation<SoftContext> {
    let context = SoftDevice::new().open().expect("the soft device opens");
    HostStation::new(context, [(peer, link)]).sharing_core(true)
}

/// Runs the two sides, each with its own idea of the cell.
pub(crate) fn run_each(
    active: &CellSpec,
    passive: &CellSpec,
) -> (Result<CellResult, RunError>, Result<(), RunError>) {
    let (to_passive, to_active) = Link::pair().expect("a socket pair");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run_passive(&station(ACTIVE, to_active), passive));
        let result = run_active(&station(PASSIVE, to_passive), active);
        (
            result,
            other.join().expect("the passive side does not panic"),
        )
    })
}

/// Runs a cell that is to succeed.
pub(crate) fn run(spec: &CellSpec) -> CellResult {
    match run_each(spec, spec) {
        (Ok(result), Ok(())) => result,
        (active, passive) => panic!("{}: {active:?}, {passive:?}", spec.id),
    }
}
