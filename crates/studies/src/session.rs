//! Stub.
use adverb_results::{Metrics, Params};
use adverb_verbs::{RoleId, Station};
use serde::{Deserialize, Serialize};

use crate::error::{Fault, Phase, RunError, Side};
use crate::spec::CellSpec;

/// The role that starts transfers.
pub const ACTIVE: RoleId = RoleId(0);
/// The other role.
pub const PASSIVE: RoleId = RoleId(1);

/// What a cell measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// Parameters as run: iterations and warm-up as they were; cores are for the caller to fill in.
    pub params: Params,
    /// The figures.
    pub metrics: Metrics,
}

/// Runs the active side of a cell; the passive side runs as role 1 at the same time.
pub fn run_active<S: Station>(station: &S, spec: &CellSpec) -> Result<CellResult, RunError> {
    let _ = (station, spec);
    Err(RunError {
        side: Side::Active,
        phase: Phase::SetUp,
        fault: Box::new(Fault::NothingMeasured),
    })
}

/// Runs the passive side of a cell; the active side runs as role 0 at the same time.
pub fn run_passive<S: Station>(station: &S, spec: &CellSpec) -> Result<(), RunError> {
    let _ = (station, spec);
    Err(RunError {
        side: Side::Passive,
        phase: Phase::SetUp,
        fault: Box::new(Fault::NothingMeasured),
    })
}
