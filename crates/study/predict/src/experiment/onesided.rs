//! The key-value store that clients read and lock by themselves.

use std::num::NonZero;

use adverb_hwmodel::Cluster;
use adverb_patterns::{
    Items, Job, OneSided, OneSidedClients, Posting, Puts, Remote, ServiceTally, Timing,
};
use adverb_results::LatencyRecorder;
use adverb_units::{Bytes, Span};
use adverb_validate::{Budget, Completion, Experiment, Metric, Opcode, PostList, Refusal, Share};
use adverb_verbs::{PathOptions, QpType};

use super::hosts::{placements, preset};
use super::posting::{count, transport};
use super::run::{run_service, schedule};
use super::{cannot, failed, no_metric};

/// How long a program is measured at least and at most, after half of it again to warm up.
const SHORTEST: Span = Span::from_us(500);
const LONGEST: Span = Span::from_ms(64);
/// The measured rate is steady once this many times the requests in flight have completed.
const ROUNDS: f64 = 4.0;
/// Items in the model's memory at most. Which they are changes nothing: their lines are where the
/// experiment says, and the low bits of lock words, 64 B apart, are the same as of more items.
const MOST_ITEMS: u64 = 4096;
/// Bytes of a value that a PUT brings, where none are given: HERD's, whose PUT is 50 B (schema.md).
const VALUE: u64 = 32;

/// Predicts what clients of a passive server measure.
///
/// Locks that are taken one after another queue up for milliseconds: where a short run is over before
/// they do, a longer one takes its place.
pub(super) fn predict(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let program = program(experiment)?;
    let clients = &program.clients;
    let under_way = f64::from(clients.threads * clients.qps * clients.outstanding);
    let mut window = SHORTEST;
    loop {
        let tallies = run(experiment, &program, window, budget)?;
        let done: u64 = tallies.iter().map(|tally| tally.requests).sum();
        if done as f64 >= ROUNDS * under_way || window >= LONGEST {
            return figure(experiment, &tallies);
        }
        window = window * 4;
    }
}

/// The tallies of the clients.
fn run(
    experiment: &Experiment,
    program: &OneSided,
    window: Span,
    budget: &Budget,
) -> Result<Vec<ServiceTally>, Refusal> {
    let machines = placements(experiment, program.machines());
    let mut cluster = Cluster::new(&preset(experiment)?, &machines);
    let job = Job::OneSided(program.clone(), schedule(window));
    let mut tallies = run_service(&mut cluster, &job, budget)?;
    Ok(tallies.split_off(program.owners() as usize))
}

fn program(experiment: &Experiment) -> Result<OneSided, Refusal> {
    let p = &experiment.parameters;
    let refused = |what: &str| Err(cannot(format!("{} {what}", experiment.program)));
    if p.posting.completion == Some(Completion::Event) {
        return refused("polls: no events");
    }
    if transport(experiment)? != QpType::Rc {
        return refused("without reliable connections");
    }
    let put_ratio = p.store.put_ratio.map_or(0.0, Share::get);
    let mean_reads = p.store.get_reads.unwrap_or(1.0);
    let sizes: Result<Vec<u32>, _> = p
        .store
        .get_read_bytes
        .iter()
        .map(|size| u32::try_from(size.get()))
        .collect();
    let mut records = sizes.map_err(|_| cannot("READs of more than 4 GiB"))?;
    // Sizes are those of the first READs; further ones have the last one's size.
    let last = records.last().copied().unwrap_or(64);
    records.resize(records.len().max(mean_reads.ceil() as usize), last);
    let threads = p.parties.peer_threads.unwrap_or(1).max(1);
    let items = p.store.counters.map_or(MOST_ITEMS, NonZero::get);
    Ok(OneSided {
        remote: Remote::Items(Items {
            items: items.min(MOST_ITEMS),
            records,
            mean_reads,
            put_ratio,
            puts: puts(experiment, (put_ratio, threads))?,
        }),
        clients: OneSidedClients {
            threads,
            machines: p.parties.peers.unwrap_or(1),
            qps: (p.queueing.qps.unwrap_or(threads) / threads.max(1)).max(1),
            outstanding: count(p.queueing.outstanding, 1),
            posting: match p.posting.post_list {
                Some(PostList::Of(n)) if n.get() > 1 => Posting::List(n.get()),
                Some(PostList::AllFree) => Posting::List(u32::MAX),
                _ => Posting::Single,
            },
            rd_atomic: u8::try_from(count(p.queueing.max_rd_atomic, 16)).unwrap_or(u8::MAX),
            timing: match experiment.metric {
                Metric::RoundTripNs => Timing::Each,
                _ => Timing::Whole,
            },
            seed: 1,
        },
        path: PathOptions::default(),
    })
}

/// How PUTs are carried out.
///
/// Where the server's CPU answers them, and no number of cores is given, all of a socket do.
fn puts(experiment: &Experiment, (ratio, threads): (f64, u32)) -> Result<Puts, Refusal> {
    let p = &experiment.parameters;
    if ratio <= 0.0 || p.operation.opcode == Some(Opcode::ReadAndFetchAdd) {
        return Ok(Puts::Lock);
    }
    let all = preset(experiment)?.params.cpu.cores;
    let cores = p.parties.cores.filter(|cores| *cores > 0).unwrap_or(all);
    let value = p.operation.size.map_or(VALUE, Bytes::get);
    Ok(Puts::Ask {
        cores: cores.min(threads),
        value: u32::try_from(value).map_err(|_| cannot(format!("values of {value} B")))?,
    })
}

fn figure(experiment: &Experiment, clients: &[ServiceTally]) -> Result<f64, Refusal> {
    let rate: f64 = clients.iter().filter_map(ServiceTally::per_second).sum();
    if rate <= 0.0 {
        return Err(failed("nothing completed in the measured time"));
    }
    match experiment.metric {
        Metric::OpsPerS => Ok(rate),
        Metric::NsPerOp => Ok(1e9 / rate),
        Metric::RoundTripNs => {
            let waits = clients.iter().filter_map(|tally| tally.waits.as_ref());
            let mean = LatencyRecorder::merged(waits).and_then(|waits| waits.mean_ns());
            mean.ok_or_else(|| failed("nothing was timed in the measured time"))
        }
        _ => Err(no_metric(experiment)),
    }
}
