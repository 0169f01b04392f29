//! A study that never ran: the same records every time, from a small cost model with noise.
#![allow(dead_code, reason = "each test file uses its part")]

use adverb_results::{
    Completion, Counters, CpuTime, DeviceKind, DeviceRef, Impairment, LatencyRecorder, Metrics,
    Opcode, Outcome, PairRecord, Params, Posting, Probability, Program, Provenance,
    RepetitionSample, SCHEMA, Signaling, Site, Usage,
};
use adverb_units::{Bytes, Span};
use adverb_workload::pair::{CellSpec, Request};

const ITERS: u64 = 10_000;
const INLINE_MAX: u64 = 256;

/// Numbers that look random (SplitMix64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The parameters of a blast with one buffer; change what differs.
fn params(op: Opcode, size: u64) -> Params {
    let cell = CellSpec::blast(Request::new(op, Bytes::new(size)));
    Params {
        active_core: Some(0),
        passive_core: Some(1),
        seed: 42,
        ..cell.params(Some(ITERS), Some(1000))
    }
}

fn op_cost(op: Opcode) -> f64 {
    match op {
        Opcode::Send => 45.0,
        Opcode::WriteImm => 42.0,
        Opcode::Write => 20.0,
        Opcode::Read | Opcode::FetchAdd | Opcode::Cas => 28.0,
        Opcode::WriteRead => 24.0,
    }
}

/// One-way ns of the model.
fn one_way(program: Program, p: &Params) -> f64 {
    let size = p.size_bytes.get() as f64;
    let copy = size / if size > 1e6 { 5.0 } else { 11.0 };
    let registered = if p.inline { 0.0 } else { 6.0 };
    let signaled = if p.signal == Signaling::All {
        14.0
    } else {
        5.0
    };
    let base = op_cost(p.op) + copy + registered;
    match program {
        Program::Ping => {
            let event = if p.completion == Completion::Event {
                3900.0
            } else {
                0.0
            };
            base + 55.0 + signaled + event
        }
        Program::Blast => {
            let event = if p.completion == Completion::Event {
                3900.0 / f64::from(p.buffers)
            } else {
                0.0
            };
            let post = if p.post == Posting::List {
                9.0 / f64::from(p.buffers)
            } else {
                9.0
            };
            base + post + signaled + event + 60.0 / f64::from(p.buffers)
        }
    }
}

/// CPU shares of both sides.
fn cpu(program: Program, p: &Params, one_way: f64) -> (f64, f64) {
    let one_sided = matches!(p.op, Opcode::Read | Opcode::WriteRead)
        || (p.op == Opcode::Write && program == Program::Blast);
    let active = match p.completion {
        Completion::Poll => 0.998,
        Completion::Event => (900.0 + op_cost(p.op) + 0.5 * one_way) / (one_way + 4000.0),
    };
    (
        active.min(0.998),
        if one_sided { 0.002 } else { active * 0.97 },
    )
}

fn metrics(program: Program, p: &Params, noise: &mut Noise) -> Option<Metrics> {
    let true_ns = one_way(program, p) + of_loss(p);
    let (active, passive) = cpu(program, p, true_ns);
    let share = |elapsed: Span, part: f64| {
        let cpu = elapsed.as_secs_f64() * part;
        CpuTime {
            user: Span::from_secs_f64(cpu * 0.8),
            system: Span::from_secs_f64(cpu * 0.2),
        }
    };
    let mut samples = Vec::new();
    for _ in 0..5 {
        let ns = true_ns * (0.98 + 0.05 * noise.next());
        let elapsed = Span::from_secs_f64(ns * (ITERS * program.messages_per_iter()) as f64 / 1e9);
        samples.push(RepetitionSample {
            iters: ITERS,
            elapsed,
            active: share(elapsed, active),
            passive: Some(Usage {
                cpu: share(elapsed, passive),
                elapsed,
            }),
        });
    }
    let mut recorder = LatencyRecorder::new();
    if program == Program::Ping {
        for _ in 0..4000 {
            let rare = if noise.next() > 0.99 {
                1.0 + 40.0 * noise.next().powi(4)
            } else {
                1.0
            };
            let ns = true_ns * (0.9 + 0.2 * noise.next()) * rare;
            recorder.record(Span::from_secs_f64(ns / 1e9));
        }
    }
    let latencies = (!recorder.is_empty()).then_some((&recorder, 16));
    Metrics::from_samples(program, p.size_bytes, &samples, latencies)
}

fn record(
    figures: &[&'static str],
    program: Program,
    params: Params,
    noise: &mut Noise,
) -> PairRecord {
    let name = |p: &Params| {
        let inline = if p.inline { "-inline" } else { "" };
        format!(
            "{program}-{}-{}{inline}-{}-{}-{}-{}",
            p.op,
            p.size_bytes.get(),
            p.completion,
            p.buffers,
            p.post,
            p.signal
        )
    };
    PairRecord {
        schema: SCHEMA,
        cell: name(&params),
        figures: figures.iter().map(|id| (*id).to_owned()).collect(),
        program,
        device: DeviceRef {
            kind: DeviceKind::Soft,
            name: "soft".to_owned(),
        },
        metrics: metrics(program, &params, noise),
        params,
        outcome: Outcome::Ok,
        counters: Counters::default(),
        provenance: provenance(),
    }
}

fn provenance() -> Provenance {
    Provenance {
        adverb: "0.1.0".to_owned(),
        revision: Some("0123abc".to_owned()),
        started: "2026-01-02T03:04:05Z".to_owned(),
        virtual_time: false,
        active: site("testbed"),
        passive: None,
    }
}

/// A host of that name.
pub(crate) fn site(host: &str) -> Site {
    Site {
        host: host.to_owned(),
        kernel: "6.1.0".to_owned(),
        cpu: "Imaginary CPU @ 2.60GHz".to_owned(),
        cores: 2,
        device: [("shm".to_owned(), "memfd".to_owned())].into(),
    }
}

fn powers(first: u32, last: u32, step: usize) -> impl Iterator<Item = u64> {
    (first..=last).step_by(step).map(|e| 1_u64 << e)
}

const WAITS: [Completion; 2] = [Completion::Poll, Completion::Event];

fn inlines(size: u64) -> &'static [bool] {
    if size <= INLINE_MAX {
        &[false, true]
    } else {
        &[false]
    }
}

/// The records of a whole study.
pub(crate) fn study() -> Vec<PairRecord> {
    let mut noise = Noise(7);
    let mut records = pings(&mut noise);
    records.extend(blasts(&mut noise));
    records.extend(signaling(&mut noise));
    records.extend(lossy(&mut noise));
    merged(records)
}

/// A cell that several figures show is measured once.
fn merged(records: Vec<PairRecord>) -> Vec<PairRecord> {
    let mut merged: Vec<PairRecord> = Vec::new();
    for record in records {
        match merged.iter_mut().find(|other| other.cell == record.cell) {
            Some(other) => other.figures.extend(record.figures),
            None => merged.push(record),
        }
    }
    merged
}

/// The same, with three cells that failed.
pub(crate) fn study_with_failures() -> Vec<PairRecord> {
    let mut records = study();
    let reasons = [
        "no space left in /dev/shm: free 512 MiB",
        "<script>alert(1)</script> & \"more\"",
        "",
    ];
    for (index, reason) in reasons.iter().enumerate() {
        let record = &mut records[40 * index + 3];
        record.outcome = Outcome::Failed {
            reason: (*reason).to_owned(),
        };
        record.metrics = None;
    }
    records
}

/// A second device with the same cells.
pub(crate) fn on_model(records: &[PairRecord]) -> Vec<PairRecord> {
    let device = DeviceRef {
        kind: DeviceKind::Model,
        name: "connect_ib".to_owned(),
    };
    records
        .iter()
        .map(|r| PairRecord {
            device: device.clone(),
            ..r.clone()
        })
        .collect()
}

/// Each packet of 4 KiB that is lost costs a twentieth of the timeout.
fn lossy(noise: &mut Noise) -> Vec<PairRecord> {
    let mut records = Vec::new();
    for loss in [0, 100, 1_000, 10_000, 50_000].map(Probability::per_million) {
        let impairment = Some(Impairment {
            loss,
            seed: 1,
            ..Impairment::default()
        });
        for (timeout, size) in [(8, 4 << 10), (8, 64 << 10), (8, 1 << 20), (14, 64 << 10)] {
            for (program, op, buffers) in [
                (Program::Blast, Opcode::Write, 16),
                (Program::Ping, Opcode::Send, 1),
            ] {
                let is_ping = program == Program::Ping;
                let p = Params {
                    buffers,
                    impairment,
                    ack_timeout: Some(Span::from_ns(4096 << timeout)),
                    ..params(op, if is_ping { 64 } else { size })
                };
                let mut lossy = record(&["loss"], program, p, noise);
                lossy.cell += &format!("-{timeout}-{loss}");
                records.push(lossy);
            }
        }
    }
    records
}

/// What lost packets cost a message, in ns.
fn of_loss(p: &Params) -> f64 {
    let loss = p.impairment.map_or(0.0, |i| i.loss.get());
    let timeout = p.ack_timeout.map_or(0.0, Span::as_ns_f64);
    p.size_bytes.get().div_ceil(4096) as f64 * loss * timeout / 20.0
}

fn pings(noise: &mut Noise) -> Vec<PairRecord> {
    let mut records = Vec::new();
    for op in [
        Opcode::Send,
        Opcode::WriteImm,
        Opcode::Write,
        Opcode::WriteRead,
    ] {
        for size in powers(0, 26, 2) {
            for completion in WAITS {
                if op == Opcode::Write && completion == Completion::Event {
                    continue;
                }
                for inline in inlines(size) {
                    let p = Params {
                        completion,
                        inline: *inline,
                        ..params(op, size)
                    };
                    let mut figures = vec!["fig1"];
                    if op == Opcode::WriteRead && !inline {
                        figures.push("fig6");
                    }
                    if size == 64 {
                        figures.extend(["rank-rtt", "rank-cpu", "latency"]);
                    }
                    records.push(record(&figures, Program::Ping, p, noise));
                }
            }
        }
    }
    records
}

fn blasts(noise: &mut Noise) -> Vec<PairRecord> {
    let mut records = Vec::new();
    let mut add =
        |figure: &'static str, p: Params| records.push(record(&[figure], Program::Blast, p, noise));
    for op in [Opcode::Send, Opcode::WriteImm, Opcode::Write, Opcode::Read] {
        for completion in WAITS {
            for size in powers(0, 20, 2) {
                for inline in inlines(size).iter().filter(|i| !**i || op != Opcode::Read) {
                    add(
                        "fig2",
                        Params {
                            completion,
                            inline: *inline,
                            ..params(op, size)
                        },
                    );
                }
            }
            for size in powers(6, 24, 3) {
                add(
                    "fig5",
                    Params {
                        completion,
                        buffers: 4,
                        ..params(op, size)
                    },
                );
            }
        }
    }
    for buffers in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
        for size in [1, 16, 64, 256] {
            for post in [Posting::Single, Posting::List] {
                let p = params(Opcode::Write, size);
                add(
                    "fig3",
                    Params {
                        buffers,
                        post,
                        inline: true,
                        ..p
                    },
                );
            }
        }
        for size in powers(10, 22, 3) {
            for completion in WAITS {
                add(
                    "fig4",
                    Params {
                        buffers,
                        completion,
                        ..params(Opcode::Write, size)
                    },
                );
            }
        }
    }
    records
}

fn signaling(noise: &mut Noise) -> Vec<PairRecord> {
    let mut records = Vec::new();
    for signal in [Signaling::All, Signaling::Periodic] {
        for post in [Posting::Single, Posting::List] {
            for buffers in [2, 4, 8, 16, 32, 64, 128, 256] {
                let p = Params {
                    signal,
                    post,
                    buffers,
                    inline: true,
                    ..params(Opcode::Write, 16)
                };
                records.push(record(&["fig6"], Program::Blast, p, noise));
            }
        }
    }
    for completion in WAITS {
        for size in powers(0, 26, 2) {
            let signal = Signaling::WriteUnsignaled;
            let p = Params {
                signal,
                completion,
                ..params(Opcode::WriteRead, size)
            };
            let mut figures = vec!["fig6"];
            if size == 64 {
                figures.extend(["rank-rtt", "rank-cpu", "latency"]);
            }
            records.push(record(&figures, Program::Ping, p, noise));
        }
    }
    records
}
