//! Published experiments on the model: hardware by preset, programs by role.
//!
//! Pings run the program of `adverb ping`, services run `adverb sequencer` and `adverb kv`, and all other
//! loads are patterns. All run on the load engine of `adverb-workload`, started by `adverb-launch`. Parameters
//! that the model lacks are refused by name: a prediction never ignores a parameter.

mod dma;
mod forwarding;
mod hosts;
mod load;
mod measuring;
mod onesided;
mod pairs;
mod patterns;
mod posting;
mod rpc;
mod run;
mod tenants;

use adverb_hwmodel::names;
use adverb_patterns::{CLIENT_SPIN, Timing};
use adverb_units::{Bytes, Span};
use adverb_validate::{Budget, Experiment, Interferer, Program, Refusal, Transport, near};
use adverb_workload::pair::CellSpec;
pub(crate) use hosts::{placements, preset};

/// Predicts what an experiment would measure.
///
/// # Errors
/// If the model lacks the hardware, the program or a parameter, or the program does not end.
pub fn predict(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    check(experiment)?;
    if let Some(dma) = dma::operation(experiment.program) {
        return dma::transfers(experiment, dma);
    }
    match experiment.program {
        Program::Ping | Program::WriteReadPing => pairs::ping(experiment, budget),
        Program::BlastOutbound => {
            patterns::outbound(experiment, (Span::ZERO, Timing::Whole), budget)
        }
        Program::SharedNic => tenants::victim(experiment, budget),
        Program::NumaOpenLoop | Program::NumaServerLoad => {
            patterns::outbound(experiment, (CLIENT_SPIN, Timing::Whole), budget)
        }
        Program::ClosedLoop => patterns::outbound(experiment, (Span::ZERO, Timing::Each), budget),
        Program::NumaClosedLoop => {
            patterns::outbound(experiment, (CLIENT_SPIN, Timing::Each), budget)
        }
        Program::BlastInbound => patterns::inbound(experiment, budget),
        Program::Symmetric => patterns::symmetric(experiment, budget),
        Program::Atomics | Program::SequencerAtomics => patterns::atomics(experiment, budget),
        Program::CpuInterference => patterns::interference(experiment, budget),
        Program::DdioForward => forwarding::hits(experiment),
        Program::SequencerRpc | Program::KvHerd => rpc::predict(experiment, budget),
        Program::KvOnesided => onesided::predict(experiment, budget),
        program => Err(Refusal::UnknownProgram(program)),
    }
}

/// Returns the cell of a study that is equivalent to an experiment, if there is one; a refusal if the cell is
/// impossible.
pub(crate) fn cell(experiment: &Experiment) -> Option<Result<CellSpec, Refusal>> {
    match experiment.program {
        Program::Ping | Program::WriteReadPing => Some(pairs::ping_cell(experiment)),
        Program::BlastOutbound if pairs::is_one_pair(experiment) => {
            Some(pairs::blast_cell(experiment))
        }
        _ => None,
    }
}

fn cannot(reason: impl Into<String>) -> Refusal {
    Refusal::Cannot(reason.into())
}

fn no_metric(experiment: &Experiment) -> Refusal {
    let (metric, program) = (experiment.metric, experiment.program);
    cannot(format!("{program} does not measure {metric} on the model"))
}

/// Refuses unknown hardware, and parameters that the model has no mechanism for.
fn check(experiment: &Experiment) -> Result<(), Refusal> {
    if !names().contains(&experiment.preset.as_str()) {
        return Err(Refusal::UnknownPreset {
            name: experiment.preset.clone(),
            near: near(&experiment.preset, names()),
        });
    }
    let p = &experiment.parameters;
    let threads = p.parties.cores.max(p.parties.peer_threads);
    let lacks = [
        (
            threads.is_some_and(|threads| threads > 4096),
            "more than 4096 threads",
        ),
        (
            p.parties.peers.is_some_and(|peers| peers > 1024),
            "more than 1024 peers",
        ),
        (
            p.operation.inline_recv == Some(true) && experiment.program != Program::BlastInbound,
            "inline receive",
        ),
        (
            p.host.iommu == Some(true) && dma::operation(experiment.program).is_none(),
            "an IOMMU",
        ),
        (
            p.load.threads.is_some_and(|n| n > 0) && !load::takes_load(experiment.program),
            "load on the responder's CPUs",
        ),
        (
            p.parties.offered.is_some() && !is_rpc(experiment.program),
            "an offered load",
        ),
        (
            p.parties.peer_window.is_some() && !has_peer_threads(experiment.program),
            "a window of each peer machine, unless its threads are on peers",
        ),
        (
            p.queueing.dc_target.is_some() && p.operation.transport != Some(Transport::Dc),
            "a dc_target, except over DC",
        ),
        (
            p.interferer
                .is_some_and(|tenant| tenant != Interferer::None)
                && experiment.program != Program::SharedNic,
            "a second tenant of the NIC, except shared_nic",
        ),
    ];
    match lacks.into_iter().find(|(is_asked, _)| *is_asked) {
        Some((_, what)) => Err(cannot(format!("the model runs no program with {what}"))),
        None => check_datagram(experiment),
    }
}

/// Refuses datagrams of more than a packet, before buffers are allocated for them.
fn check_datagram(experiment: &Experiment) -> Result<(), Refusal> {
    let operation = &experiment.parameters.operation;
    let (Some(Transport::Ud), Some(size)) = (operation.transport, operation.size) else {
        return Ok(());
    };
    let mtu = Bytes::new(preset(experiment)?.params.link.mtu_bytes.get().into());
    if size <= mtu {
        return Ok(());
    }
    Err(cannot(format!(
        "datagram of {size} exceeds the path MTU {mtu}"
    )))
}

/// Whether the posting threads are on the peers.
fn has_peer_threads(program: Program) -> bool {
    matches!(
        program,
        Program::BlastInbound | Program::Atomics | Program::SequencerAtomics
    )
}

/// Whether clients send requests to a server's cores.
fn is_rpc(program: Program) -> bool {
    matches!(program, Program::SequencerRpc | Program::KvHerd)
}

fn failed(reason: &(impl ToString + ?Sized)) -> Refusal {
    Refusal::Failed(reason.to_string())
}
