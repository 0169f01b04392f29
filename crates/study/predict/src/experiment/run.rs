//! Runs a program on the machines of an experiment, in virtual time.

use adverb_hwmodel::{Cluster, MachineId};
use adverb_launch::{VirtualLimits, run_in_virtual_time};
use adverb_patterns::{Job, JobReport, Schedule, ServiceTally};
use adverb_sim::{Outcome, Resource};
use adverb_units::{Span, Time};
use adverb_validate::{Budget, OverBudget, Refusal};
use adverb_workload::Program;

use super::{cannot, failed};

/// Warms up for half of `window`, then measures for `window`.
pub(super) fn schedule(window: Span) -> Schedule {
    Schedule {
        warm_up: window / 2,
        measured: window,
    }
}

/// Runs a program on the machines of `cluster` in their order; returns the report of each role.
pub(super) fn run<P: Program>(
    cluster: &mut Cluster,
    program: &P,
    budget: &Budget,
) -> Result<Vec<P::Report>, Refusal> {
    let machines: Vec<_> = (0..program.hosts()).map(MachineId).collect();
    run_on(cluster, &machines, program, budget)
}

/// Runs a program whose host n is machine `machines[n]` of `cluster`.
pub(super) fn run_on<P: Program>(
    cluster: &mut Cluster,
    machines: &[MachineId],
    program: &P,
    budget: &Budget,
) -> Result<Vec<P::Report>, Refusal> {
    program.check(&cluster.caps()).map_err(cannot)?;
    let limits = VirtualLimits {
        until: None,
        real: budget.left(),
    };
    let run = run_in_virtual_time(cluster, machines, program, limits, &|| false);
    let run = run.expect("predictions are not interrupted");
    let is_missing = run.ends.iter().any(Option::is_none);
    if is_missing || !run.outcome.is_finished() {
        return Err(unfinished(&run.outcome));
    }
    run.reports().map_err(|failure| match failure.is_usage {
        true => cannot(failure.reason),
        false => failed(&failure.reason),
    })
}

/// Runs a service; returns the tally of each role.
pub(super) fn run_service(
    cluster: &mut Cluster,
    job: &Job,
    budget: &Budget,
) -> Result<Vec<ServiceTally>, Refusal> {
    let reports = run(cluster, job, budget)?.into_iter();
    let tallies = reports.filter_map(|report| match report {
        JobReport::Service(tally) => Some(tally),
        _ => None,
    });
    Ok(tallies.collect())
}

/// Why a simulation that should have finished did not.
pub(super) fn unfinished(outcome: &Outcome) -> Refusal {
    match outcome {
        Outcome::Deadlock(_) => Refusal::Deadlock(outcome.to_string()),
        Outcome::Exhausted { budget, .. } => Refusal::OverBudget(match budget {
            Resource::RealTime(span) => OverBudget::RealTime(*span),
            Resource::VirtualTime(time) => OverBudget::VirtualTime(time.since(Time::ZERO)),
            Resource::Events(events) => OverBudget::Events(*events),
        }),
        Outcome::Finished | Outcome::Panicked { .. } => failed(outcome),
    }
}
