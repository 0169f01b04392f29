//! Records for the tests of this crate.

use std::collections::BTreeMap;

use adverb_units::{Bytes, Span};

use crate::{
    Completion, Counters, CpuTime, DeviceKind, DeviceRef, Metrics, Opcode, Outcome, PairRecord,
    Params, Posting, Program, Provenance, Record, RepetitionSample, SCHEMA, Signaling, Site,
    Traffic,
};

pub(crate) fn record(cell: &str) -> Record {
    (&pair(cell)).into()
}

fn pair(cell: &str) -> PairRecord {
    let sample = RepetitionSample {
        iters: 1000,
        elapsed: Span::from_us(200),
        active: CpuTime {
            user: Span::from_us(150),
            system: Span::from_us(50),
        },
        passive: None,
    };
    let size = Bytes::new(64);
    PairRecord {
        schema: SCHEMA,
        cell: cell.to_owned(),
        figures: vec!["fig1".to_owned()],
        program: Program::Ping,
        device: DeviceRef {
            kind: DeviceKind::Soft,
            name: "soft".to_owned(),
        },
        params: Params {
            op: Opcode::Send,
            size_bytes: size,
            inline: true,
            completion: Completion::Poll,
            buffers: 1,
            post: Posting::Single,
            signal: Signaling::All,
            traffic: Traffic::default(),
            path_mtu_bytes: None,
            ack_timeout: None,
            retry_cnt: None,
            impairment: None,
            verify: false,
            iters: Some(1000),
            warmup_iters: Some(100),
            active_core: Some(0),
            passive_core: None,
            active_numa_node: Some(0),
            passive_numa_node: None,
            seed: 1,
        },
        outcome: Outcome::Ok,
        metrics: Metrics::from_samples(Program::Ping, size, &[sample, sample], None),
        counters: Counters::default(),
        provenance: Provenance {
            adverb: "0.1.0".to_owned(),
            revision: None,
            started: "2026-01-02T03:04:05Z".to_owned(),
            virtual_time: false,
            active: Site {
                host: "testbed".to_owned(),
                kernel: "6.1".to_owned(),
                cpu: "Some CPU".to_owned(),
                cores: 2,
                device: BTreeMap::default(),
            },
            passive: None,
        },
    }
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
