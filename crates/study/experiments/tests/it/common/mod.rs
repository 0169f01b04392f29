//! A study that never ran: a quick plan's cells with the same records every time, from a small cost model with
//! noise.
#![allow(dead_code, reason = "each test file uses its part")]

use adverb_experiments::{FigureId, Limits, Plan, Profile, chapters};
use adverb_report::{Finding, Meta, Report};
use adverb_results::{
    Completion, Counters, CpuTime, DeviceKind, DeviceRef, LatencyRecorder, Metrics, Opcode,
    Outcome, PairRecord, Params, Posting, Program, Provenance, RepetitionSample, SCHEMA, Signaling,
    Site, Usage,
};
use adverb_units::{Bytes, Span};
use adverb_verbs::random::mix;
use adverb_verbs::{DeviceCaps, Gid, Lid, LinkLayer, LinkRate, PacketMarking, PathMtu, PortCaps};
use adverb_workload::pair::CellSpec;

const ITERS: u64 = 10_000;

/// The report of these records.
pub(crate) fn report<'a>(records: &'a [PairRecord], meta: &'a Meta) -> Report<'a> {
    Report::from_records(records, meta, chapters())
}

pub(crate) fn findings(records: &[PairRecord]) -> Vec<Finding> {
    report(records, &Meta::default()).findings()
}

pub(crate) fn html(records: &[PairRecord]) -> String {
    report(records, &Meta::default()).html()
}

/// Numbers that look random (SplitMix64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        let mixed = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn op_cost(op: Opcode) -> f64 {
    match op {
        Opcode::Send | Opcode::SendImm => 45.0,
        Opcode::WriteImm => 42.0,
        Opcode::Write => 20.0,
        Opcode::Read | Opcode::FetchAdd | Opcode::Cas => 28.0,
        Opcode::WriteRead => 24.0,
    }
}

/// One-way time of the cost model, in ns.
fn one_way(program: Program, p: &Params) -> f64 {
    let cost = |is_paid: bool, ns: f64| if is_paid { ns } else { 0.0 };
    let size = p.size_bytes.get() as f64;
    let copy = size / if size > 1e6 { 5.0 } else { 11.0 };
    let signaled = 5.0 + cost(p.signal == Signaling::All, 9.0);
    let base = op_cost(p.op) + copy + cost(!p.inline, 6.0) + signaled;
    let event = cost(p.completion == Completion::Event, 3900.0);
    let buffers = f64::from(p.buffers);
    let once = cost(p.post == Posting::List, 9.0) + event + 60.0;
    match program {
        Program::Ping => base + 55.0 + event,
        Program::Blast => base + cost(p.post == Posting::Single, 9.0) + once / buffers,
    }
}

/// The cost of lost packets to a message, in ns: a twentieth of the timeout for each lost packet of 4 KiB.
fn of_loss(p: &Params) -> f64 {
    let loss = p.impairment.map_or(0.0, |i| i.loss.get());
    let timeout = p.ack_timeout.map_or(0.0, Span::as_ns_f64);
    p.size_bytes.get().div_ceil(4096) as f64 * loss * timeout / 20.0
}

/// CPU shares of both sides.
fn cpu(program: Program, p: &Params, one_way: f64) -> (f64, f64) {
    let one_sided = matches!(p.op, Opcode::Read | Opcode::WriteRead)
        || (p.op == Opcode::Write && program == Program::Blast);
    let active = match p.completion {
        Completion::Poll => 0.998,
        Completion::Event | Completion::Hybrid(_) => {
            (900.0 + op_cost(p.op) + 0.5 * one_way) / (one_way + 4000.0)
        }
    };
    let passive = if one_sided { 0.002 } else { active * 0.97 };
    (active.min(0.998), passive)
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
    let messages = (ITERS * program.messages_per_iter()) as f64;
    let samples = [(); 5].map(|()| {
        let ns = true_ns * (0.98 + 0.05 * noise.next());
        let elapsed = Span::from_secs_f64(ns * messages / 1e9);
        RepetitionSample {
            iters: ITERS,
            lost: 0,
            elapsed,
            active: share(elapsed, active),
            passive: Some(Usage {
                cpu: share(elapsed, passive),
                elapsed,
            }),
        }
    });
    let mut recorder = LatencyRecorder::new();
    let sampled = if program == Program::Ping { 4000 } else { 0 };
    for _ in 0..sampled {
        let is_rare = noise.next() > 0.99;
        let rare = if is_rare {
            40.0 * noise.next().powi(4)
        } else {
            0.0
        };
        let ns = true_ns * (0.9 + 0.2 * noise.next()) * (1.0 + rare);
        recorder.record(Span::from_secs_f64(ns / 1e9));
    }
    let latencies = (!recorder.is_empty()).then_some((&recorder, 16));
    Metrics::from_samples(program, p.size_bytes, &samples, latencies)
}

fn record(cell: &CellSpec, noise: &mut Noise) -> PairRecord {
    let params = Params {
        active_core: Some(0),
        passive_core: Some(1),
        ..cell.params(Some(ITERS), Some(1000))
    };
    PairRecord {
        schema: SCHEMA,
        cell: cell.id.clone(),
        figures: cell.figures.clone(),
        program: cell.program,
        device: device(DeviceKind::Soft, "soft"),
        metrics: metrics(cell.program, &params, noise),
        params,
        outcome: Outcome::Ok,
        counters: Counters::default(),
        provenance: Provenance {
            adverb: "0.1.0".to_owned(),
            revision: Some("0123abc".to_owned()),
            started: "2026-01-02T03:04:05Z".to_owned(),
            virtual_time: false,
            active: site("testbed"),
            passive: None,
        },
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

pub(crate) fn device(kind: DeviceKind, name: &str) -> DeviceRef {
    let name = name.to_owned();
    DeviceRef { kind, name }
}

/// Limits of the device.
pub(crate) fn caps() -> DeviceCaps {
    DeviceCaps::MODEST
}

/// A port that lets everything through.
pub(crate) fn port() -> PortCaps {
    PortCaps {
        link_layer: LinkLayer::InfiniBand,
        active_mtu: PathMtu::B4096,
        max_msg_sz: Bytes::mib(1024),
        lid: Lid(1),
        gid: Gid::default(),
        gid_index: 0,
        gid_type: None,
        marking: PacketMarking::None,
        max_rate_mbps: Some(u32::MAX),
    }
}

/// The plan of these figures, or of all, on such a device whose ports inject faults.
pub(crate) fn plan(profile: Profile, only: &[FigureId], caps: &DeviceCaps) -> Plan {
    let limits = Limits {
        caps,
        port: &port(),
        no_faults: None,
        rates: &LinkRate::ALL,
        sockets: true,
    };
    Plan::study(profile, only, limits)
}

/// The records of a whole study.
pub(crate) fn study() -> Vec<PairRecord> {
    let mut noise = Noise(7);
    let plan = plan(Profile::Quick, &[], &caps());
    let cells = plan.cells.iter();
    cells.map(|cell| record(cell, &mut noise)).collect()
}

/// The records of a study's cells that a figure shows.
pub(crate) fn of_figure(figure: &str) -> Vec<PairRecord> {
    let mut records = study();
    records.retain(|r| r.figures.iter().any(|id| id == figure));
    records
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
        fail(&mut records[40 * index + 3], reason);
    }
    records
}

pub(crate) fn fail(record: &mut PairRecord, reason: &str) {
    let reason = reason.to_owned();
    record.outcome = Outcome::Failed { reason };
    record.metrics = None;
}

/// A second device with the same cells.
pub(crate) fn on_model(records: &[PairRecord]) -> Vec<PairRecord> {
    let mut records = records.to_vec();
    for record in &mut records {
        record.device = device(DeviceKind::Model, "connect_ib");
    }
    records
}

/// The study on `soft` and on a model.
pub(crate) fn on_both() -> Vec<PairRecord> {
    let soft = study();
    [on_model(&soft), soft].concat()
}
