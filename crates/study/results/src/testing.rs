//! Records for the tests of this crate.

use adverb_units::{Bytes, Span};
use serde_json::json;

use crate::{CpuTime, Metrics, Outcome, Program, Record, RepetitionSample, SCHEMA};

/// A `ping` of 64 B with two equal repetitions.
pub(crate) fn record(cell: &str) -> Record {
    let sample = RepetitionSample {
        iters: 1000,
        lost: 0,
        elapsed: Span::from_us(200),
        active: CpuTime {
            user: Span::from_us(150),
            system: Span::from_us(50),
        },
        passive: None,
    };
    let metrics = Metrics::from_samples(Program::Ping, Bytes::new(64), &[sample, sample], None);
    let record = json!({
        "schema": SCHEMA, "cell": cell, "figures": ["fig1"], "status": "ok",
        "program": "ping", "device": { "kind": "soft", "name": "soft" },
        "params": {
            "op": "send", "size_bytes": 64, "inline": true, "completion": "poll", "buffers": 1,
            "post": "single", "signal": "all", "qps": 1, "verify": false, "iters": 1000,
            "warmup_iters": 100, "active_core": 0, "active_numa_node": 0, "seed": 1,
        },
        "metrics": metrics,
        "counters": { "active": {}, "passive": {} },
        "provenance": {
            "adverb": "0.1.0", "revision": null, "started": "2026-01-02T03:04:05Z",
            "virtual_time": false, "host": "testbed", "kernel": "6.1", "cpu": "Some CPU",
            "cores": 2, "device": {},
        },
    });
    serde_json::from_value(record).expect("it has all fields of a record")
}

pub(crate) fn failed(cell: &str, reason: &str) -> Record {
    let outcome = Outcome::Failed {
        reason: reason.to_owned(),
    };
    Record {
        outcome,
        metrics: None,
        ..record(cell)
    }
}
