//! `ping` over kernel TCP, with which RDMA is compared.

use adverb_hwmodel::{Cluster, ModelStation, Socket};
use adverb_units::{CpuTime, Span};
use adverb_validate::{Budget, Experiment, Metric, Opcode, Refusal, Side};
use adverb_verbs::Station;

use super::hosts::{placements, preset};
use super::run::unfinished;
use super::{cannot, no_metric};

/// Warm-up rounds and measured rounds.
const ROUNDS: (u32, u32) = (20, 200);

/// Elapsed and CPU time of the measured rounds.
#[derive(Clone, Copy)]
struct Rounds {
    elapsed: Span,
    cpu: CpuTime,
}

pub(super) fn ping(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let operation = &experiment.parameters.operation;
    if !matches!(operation.opcode, Some(Opcode::Send) | None) {
        return Err(cannot("sockets only send"));
    }
    let bytes = operation.size.map_or(1, |size| size.get().max(1));
    let preset = preset(experiment)?;
    let mut cluster = Cluster::new(&preset, &placements(experiment, 2));
    let (here, there) = (cluster.machine(0), cluster.machine(1));
    let (ours, theirs) = cluster.connect(here, there);
    let client = cluster.spawn(here, "client", move |station| {
        rounds(station, || {
            ours.send(station, bytes);
            ours.receive(station, bytes);
        })
    });
    let server = cluster.spawn(there, "server", move |station| {
        rounds(station, || answer(station, &theirs, bytes))
    });
    let outcome = cluster.run(&adverb_sim::Budget {
        real: budget.left(),
        ..adverb_sim::Budget::NONE
    });
    let (Some(client), Some(server)) = (client.take(), server.take()) else {
        return Err(unfinished(&outcome));
    };
    let round = client.elapsed.as_ns_f64() / f64::from(ROUNDS.1);
    let measured = match experiment.parameters.measured_at {
        Some(Side::Responder) => server,
        _ => client,
    };
    let cpu = measured.cpu.user + measured.cpu.system;
    let share = cpu.as_ns_f64() / measured.elapsed.as_ns_f64();
    match experiment.metric {
        Metric::OneWayNs => Ok(round / 2.0),
        Metric::RoundTripNs => Ok(round),
        Metric::CpuPercent => Ok(share * 100.0),
        Metric::CpuNsPerOp => Ok(share * round),
        _ => Err(no_metric(experiment)),
    }
}

fn answer(station: &ModelStation<'_>, socket: &Socket, bytes: u64) {
    socket.receive(station, bytes);
    socket.send(station, bytes);
}

fn rounds(station: &ModelStation<'_>, mut round: impl FnMut()) -> Rounds {
    (0..ROUNDS.0).for_each(|_| round());
    let (start, before) = (station.now(), station.cpu());
    (0..ROUNDS.1).for_each(|_| round());
    Rounds {
        cpu: station.cpu().since(before),
        elapsed: station.now() - start,
    }
}
