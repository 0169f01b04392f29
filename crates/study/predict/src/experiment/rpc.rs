//! The sequencer and the key-value store by RPC.

use adverb_hwmodel::{Cluster, Placement};
use adverb_patterns::{
    Clients, Job, MAX_BATCH, NumberSet, Posting, RequestBy, Rpc, RpcPart, Service, ServiceTally,
    Serving, StoreLoad, Timing,
};
use adverb_results::LatencyRecorder;
use adverb_units::{Bytes, MessageRate, Span};
use adverb_validate::{
    Budget, BufferState, Completion, Experiment, Metric, PostList, Program, Refusal,
};
use adverb_verbs::{Level, PathOptions, RoleId};

use super::hosts::{placements, preset};
use super::posting::count;
use super::run::{run_service, schedule};
use super::{cannot, failed, no_metric};

/// Measured time, after a warm-up of half that time. It is lengthened up to the longest until enough requests
/// are answered.
const WINDOW: Span = Span::from_us(200);
const LONGEST: Span = Span::from_ms(100);
const ENOUGH: u64 = 64;
/// Requests in the measured time of an offered load, whose arrivals are random.
const OFFERED: f64 = 4096.0;
/// Items of a core's table. Few suffice, because the experiment determines whether their lines are cached.
const ITEMS: u64 = 4096;

/// Predicts what a server of RPCs and its clients measure.
pub(super) fn predict(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let rpc = program(experiment)?;
    let mut window = match experiment.parameters.parties.offered {
        Some(rate) => Span::from_secs_f64(OFFERED / rate.per_second()).clamp(WINDOW, LONGEST),
        None => WINDOW,
    };
    loop {
        let tallies = serve(experiment, rpc, window, budget)?;
        let answered: u64 = tallies.iter().map(|tally| tally.requests).sum();
        if answered >= ENOUGH || window >= LONGEST {
            return figure(experiment, &rpc, &tallies);
        }
        window = window * 8;
    }
}

/// Runs the service; returns the tallies of the server's cores and of the clients.
fn serve(
    experiment: &Experiment,
    rpc: Rpc,
    window: Span,
    budget: &Budget,
) -> Result<Vec<ServiceTally>, Refusal> {
    let machines = server_and_clients(experiment, rpc.machines());
    let mut cluster = Cluster::new(&preset(experiment)?, &machines);
    run_service(&mut cluster, &Job::Rpc(rpc, schedule(window)), budget)
}

/// Placements for queues and requests, which are always cached. The buffer state only concerns the table.
fn server_and_clients(experiment: &Experiment, machines: u32) -> Vec<Placement> {
    let mut queues = experiment.clone();
    queues.parameters.placement.buffer_state = None;
    placements(&queues, machines)
}

fn program(experiment: &Experiment) -> Result<Rpc, Refusal> {
    let p = &experiment.parameters;
    if p.posting.completion == Some(Completion::Event) {
        let program = experiment.program;
        return Err(cannot(format!("{program} polls: no events")));
    }
    let clients = [
        p.parties.peer_threads.unwrap_or(1),
        p.parties.peers.unwrap_or(1),
        count(p.parties.peer_outstanding, 1),
    ];
    let offered = p.parties.offered.map(MessageRate::per_second);
    Ok(Rpc {
        service: service(experiment)?,
        serving: Serving {
            cores: p.parties.cores.unwrap_or(1),
            qps_per_port: qps_per_port(experiment)?,
            posting: match p.posting.post_list {
                Some(PostList::Of(n)) if n.get() > 1 => Posting::List(n.get()),
                Some(PostList::AllFree) => Posting::List(MAX_BATCH),
                _ => Posting::Single,
            },
            signaled_every: count(p.posting.signaled_every, 64),
        },
        clients: Clients {
            timing: match experiment.metric {
                Metric::RoundTripNs => Timing::Each,
                _ => Timing::Whole,
            },
            ..Clients::new(clients, offered)
        },
        path: PathOptions::default(),
    })
}

/// Returns the queue pairs of a core at each port: requests by WRITE come from clients of all ports.
fn qps_per_port(experiment: &Experiment) -> Result<u32, Refusal> {
    let p = &experiment.parameters;
    let of_core = count(p.queueing.qps_per_core, 1);
    if p.operation.header_only == Some(true) {
        return Ok(of_core);
    }
    Ok(of_core.div_ceil(preset(experiment)?.params.link.ports))
}

fn service(experiment: &Experiment) -> Result<Service, Refusal> {
    let p = &experiment.parameters;
    let header_only = p.operation.header_only == Some(true);
    match experiment.program {
        Program::SequencerRpc if header_only => Ok(Service::Sequencer(RequestBy::HeaderOnly)),
        Program::SequencerRpc => {
            let size = p.operation.size.map_or(8, Bytes::get);
            if size != 8 {
                return Err(cannot(format!("a sequencer with numbers of {size} B")));
            }
            Ok(Service::Sequencer(RequestBy::Write))
        }
        _ if header_only => Err(cannot("a key-value store with values in immediate data")),
        _ => {
            let size = p.operation.size.map_or(0, Bytes::get);
            Ok(Service::Store(StoreLoad {
                items: ITEMS,
                level: match p.placement.buffer_state {
                    Some(BufferState::Llc) => Level::Cache,
                    Some(BufferState::Dram) | None => Level::Memory,
                },
                value: u32::try_from(size).map_err(|_| cannot(format!("values of {size} B")))?,
                put_ratio: p.store.put_ratio.map_or(0.0, adverb_validate::Share::get),
            }))
        }
    }
}

fn figure(experiment: &Experiment, rpc: &Rpc, tallies: &[ServiceTally]) -> Result<f64, Refusal> {
    let of = |wanted: fn(&RpcPart) -> bool| {
        let parts = (0..).map(|role| rpc.part(RoleId(role)));
        let with_parts = tallies.iter().zip(parts);
        with_parts.filter_map(move |(tally, part)| wanted(&part).then_some(tally))
    };
    let cores = || of(|part| matches!(part, RpcPart::Core(_)));
    let clients = || of(|part| matches!(part, RpcPart::Client(_)));
    let mut handed = NumberSet::default();
    clients().for_each(|tally| handed.merge(tally.handed));
    if !handed.is_exactly_once_from(0) {
        return Err(failed("a number was handed out twice or never"));
    }
    // Clients are counted: answers that cores have posted may still wait in queues.
    let rate: f64 = clients().filter_map(ServiceTally::per_second).sum();
    let value = match experiment.metric {
        Metric::OpsPerS => Some(rate),
        Metric::NsPerOp => (rate > 0.0).then(|| 1e9 / rate),
        Metric::RoundTripNs => {
            let waits = clients().filter_map(|tally| tally.waits.as_ref());
            LatencyRecorder::merged(waits).and_then(|waits| waits.mean_ns())
        }
        Metric::BatchMean => {
            let requests: u64 = cores().map(|tally| tally.requests).sum();
            let posts: u64 = cores().map(|tally| tally.posts).sum();
            (posts > 0).then(|| requests as f64 / posts as f64)
        }
        _ => return Err(no_metric(experiment)),
    };
    let value = value.filter(|value| *value > 0.0);
    value.ok_or_else(|| failed("nothing was answered in the measured time"))
}
