//! The key-value store that clients access by READs and atomics.

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

/// Shortest measured time, after a warm-up of half that time.
const SHORTEST: Span = Span::from_us(500);
/// Largest number of items in the model's memory. More would change nothing: the experiment determines
/// whether their lines are cached, and the low bits of lock words, 64 B apart, repeat.
const MOST_ITEMS: u64 = 4096;
/// Default size of the value of a PUT: HERD's, whose PUT is 50 B (schema.md).
const VALUE: u64 = 32;

/// Predicts what clients of a passive server measure.
///
/// Queues for locks take milliseconds to build up: if a run is too short for that, a longer one replaces it.
pub(super) fn predict(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let program = program(experiment)?;
    let owners = program.owners() as usize;
    let machines = placements(experiment, program.machines());
    let mut job = Job::OneSided(program, schedule(SHORTEST));
    loop {
        let mut cluster = Cluster::new(&preset(experiment)?, &machines);
        let clients = run_service(&mut cluster, &job, budget)?.split_off(owners);
        let done = clients.iter().map(|tally| tally.requests).sum();
        match job.lengthened(done, None) {
            Some(longer) => job = longer,
            None => return figure(experiment, &clients),
        }
    }
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
    let mut records = sizes.map_err(|_| cannot("READs above 4 GiB"))?;
    // Further READs have the size of the last one that is given.
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

/// How PUTs are executed. If the server's CPU does it and the number of cores is not given, all cores of a
/// socket do.
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
