//! The metrics of the programs.

use adverb_results::{CpuShare, LatencyRecorder, Values};
use serde_json::{Value, json};

use super::{Task, Wan, WanTally};
use crate::outcome::{Outcome, RoleOutcome, latency};

impl Wan {
    /// Returns the metrics over all roles. The first role is the one that measures.
    pub(crate) fn outcome(&self, tallies: &[&WanTally]) -> Outcome {
        let first = tallies.first().copied();
        let metrics = first.map(|first| match self.task {
            Task::Overlap { .. } => overlap(first),
            Task::Fetch { .. } => fetch(first),
            Task::Interference { .. } => interference(first, tallies),
            Task::Rendezvous { .. } => self.rendezvous(first, tallies),
        });
        let role = |tally: &&WanTally| RoleOutcome {
            cpu: CpuShare::of(tally.cpu, tally.elapsed),
            metrics: Values::new(),
        };
        let metrics = metrics.unwrap_or_default();
        Outcome {
            metrics: metrics.as_object().cloned().unwrap_or_default(),
            roles: tallies.iter().map(role).collect(),
        }
    }

    fn rendezvous(&self, first: &WanTally, tallies: &[&WanTally]) -> Value {
        let requests: u64 = tallies.iter().map(|tally| tally.traffic.all()).sum();
        let transfers: u64 = tallies.iter().map(|tally| tally.checked).sum();
        let per_transfer = (!self.is_stream()).then(|| requests as f64 / transfers as f64);
        let bytes = transfers * self.size.get();
        json!({
            "transfers": 2 * u64::from(self.iters),
            "one_way_ns": latency(&first.whole),
            "requests_per_transfer": per_transfer,
            "checked": { "bytes": bytes },
            "repetitions": [{ "iters": self.iters, "one_way_ns": first.whole.mean_ns() }],
            "histogram": first.whole.to_histogram(1),
        })
    }
}

fn fetch(client: &WanTally) -> Value {
    json!({
        "requests": client.whole.len(),
        "latency_ns": latency(&client.whole),
        "checked": { "messages": client.checked },
        "repetitions": [{ "requests": client.whole.len(), "latency_ns": client.whole.mean_ns() }],
        "histogram": client.whole.to_histogram(1),
    })
}

/// The overlap ratio is the time of the computation alone, as a share of the time of the exchange with it.
fn overlap(client: &WanTally) -> Value {
    let mut metrics = fetch(client);
    metrics["communication_ns"] = latency(&client.communication);
    metrics["computation_ns"] = latency(&client.computation);
    metrics["overlap_ratio"] = ratio(&client.computation, &client.whole).into();
    metrics
}

/// The slowdown is the time of the computation under load, divided by its time alone.
fn interference(server: &WanTally, tallies: &[&WanTally]) -> Value {
    let clients = || tallies.iter().skip(1);
    let messages: u64 = clients().map(|client| client.messages).sum();
    let rate = |count: fn(&WanTally) -> u64| -> f64 {
        let of = |client: &&WanTally| count(client) as f64 / client.elapsed.as_secs_f64();
        clients().map(of).filter(|rate| rate.is_finite()).sum()
    };
    let slowdown = ratio(&server.whole, &server.computation);
    json!({
        "messages": messages,
        "messages_per_s": rate(|client| client.messages),
        "bytes_per_s": rate(|client| client.bytes),
        "loaded_computation_ns": latency(&server.whole),
        "computation_ns": latency(&server.computation),
        "slowdown": slowdown,
        "repetitions": [{ "slowdown": slowdown }],
    })
}

/// Divides medians: on a real machine other work delays a few of the repetitions.
fn ratio(times: &LatencyRecorder, by: &LatencyRecorder) -> Option<f64> {
    let ratio = times.quantile_ns(0.5)? / by.quantile_ns(0.5)?;
    ratio.is_finite().then_some(ratio)
}
