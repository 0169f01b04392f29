//! Claims judged by made-up records: each condition, and each reason for having no answer.

use adverb_experiments::{chapters, ledgers};
use adverb_report::claims::{Answer, Assessment, Ledger, assess};
use adverb_report::{Meta, Report};
use adverb_results::{
    Completion, CpuTime, DeviceKind, DeviceRef, LinkRate, Metrics, Opcode, PairRecord, Program,
    Record, RepetitionSample, Usage,
};
use adverb_units::{Bytes, Span};
use adverb_workload::pair::{CellSpec, Request};
use serde_json::{Value, json};

/// A blast whose messages take `ns` each. A quarter of it is CPU time of each side, half of that system time.
fn blast(params: Request, ns: u64) -> PairRecord {
    let elapsed = Span::from_ns(1000 * ns);
    let cpu = CpuTime {
        user: elapsed / 8,
        system: elapsed / 8,
    };
    let sample = RepetitionSample {
        iters: 1000,
        lost: 0,
        elapsed,
        active: cpu,
        passive: Some(Usage { cpu, elapsed }),
    };
    let cell = CellSpec::blast(params);
    let template = crate::common::study().remove(0);
    PairRecord {
        cell: cell.id.clone(),
        figures: vec!["fig2".to_owned()],
        program: Program::Blast,
        params: cell.params(Some(1000), Some(10)),
        metrics: Metrics::from_samples(Program::Blast, cell.params.size, &[sample; 2], None),
        ..template
    }
}

fn sized(op: Opcode, size: u64) -> Request {
    Request::new(op, Bytes::new(size))
}

/// WRITEs of 64 B to 1 KiB, and READs that are slower, by less and less.
fn records() -> Vec<PairRecord> {
    let times = [(64, 100, 200), (256, 110, 180), (1024, 150, 151)];
    let of = times.map(|(size, write, read)| {
        [
            blast(sized(Opcode::Write, size), write),
            blast(sized(Opcode::Read, size), read),
        ]
    });
    of.into_iter().flatten().collect()
}

fn on(kind: DeviceKind, name: &str) -> Vec<PairRecord> {
    let mut records = records();
    for record in &mut records {
        record.device = crate::common::device(kind, name);
    }
    records
}

/// A claim on one-way times of blasts in a range of sizes.
fn claim(sizes: &str, holds_if: &Value) -> Value {
    json!({
        "id": "c", "at": "Figure 1", "says": "So it is.", "value": "one-way", "holds-if": holds_if,
        "cells": { "program": "blast", "size": sizes },
    })
}

/// The same of WRITEs.
fn of_writes(sizes: &str, holds_if: &Value) -> Value {
    let mut claim = claim(sizes, holds_if);
    claim["cells"]["op"] = json!("write");
    claim
}

/// The answer to a claim, with the reason.
fn judged(records: &[PairRecord], claim: &Value) -> (Answer, String) {
    let ledger = json!({ "study": "s", "source": "S", "testbed": "cx", "claim": [claim] });
    let ledger: Ledger = serde_json::from_value(ledger).unwrap();
    let records: Vec<&PairRecord> = records.iter().collect();
    let assessments = assess(&ledger, &records, &[]);
    let judgement = &assessments[0].judgements[0];
    (judgement.answer, judgement.explanation())
}

/// Asserts that one condition holds with these figures, and that another one fails with the same.
#[track_caller]
fn check(claim: impl Fn(&Value) -> Value, (good, bad): (Value, Value), figures: [&str; 2]) {
    let records = records();
    let answers = [good, bad].map(|holds_if| judged(&records, &claim(&holds_if)));
    let [holds, fails] = figures.map(str::to_owned);
    assert_eq!(answers, [(Answer::Holds, holds), (Answer::Fails, fails)]);
}

#[test]
fn a_value_is_within_bounds_at_every_place() {
    check(
        |holds_if| of_writes("64..1K", holds_if),
        (
            json!({ "within": { "most": 150.0 } }),
            json!({ "within": { "least": 105.0 } }),
        ),
        [
            "100 ns at 64 B; 110 ns at 256 B; 150 ns at 1 KiB",
            "100 ns at 64 B",
        ],
    );
}

#[test]
fn a_claim_that_another_repetition_would_answer_otherwise_is_not_judged() {
    let within = of_writes("64..1K", &json!({ "within": { "most": 150.0 } }));
    let growth = of_writes("64..1K", &json!({ "growth": { "most": 1.6 } }));
    let mut records = records();
    assert_eq!(judged(&records, &within).0, Answer::Holds);
    let noisy = records
        .iter_mut()
        .find(|record| record.params.size_bytes == Bytes::kib(1));
    noisy.unwrap().metrics.as_mut().unwrap().repetitions[0].one_way_ns = 170.0;
    for claim in [within, growth] {
        let (answer, why) = judged(&records, &claim);
        assert_eq!(answer, Answer::CannotTell);
        assert!(why.starts_with("the noise is too large: "), "{why}");
    }
}

#[test]
fn each_of_several_series_is_within_bounds() {
    let each = |bounds: Value| json!({ "each": { "of": [{ "op": "write" }, { "op": "read" }], "is": bounds } });
    check(
        |holds_if| claim("64", holds_if),
        (
            each(json!({ "most": 200.0 })),
            each(json!({ "most": 150.0 })),
        ),
        ["write: 100 ns, read: 200 ns"; 2],
    );
}

#[test]
fn a_claim_about_a_link_speed_takes_only_records_of_that_speed() {
    let mut records = records();
    let mut slow = records[0].clone();
    slow.params.rate = Some(LinkRate::Sdr);
    slow.metrics = blast(sized(Opcode::Write, 64), 400).metrics;
    records.push(slow);
    let rates = json!({ "ratio": { "of": { "rate": "sdr" }, "to": {}, "is": { "least": 4.0 } } });
    let answer = (Answer::Holds, "4.00× (400 ns against 100 ns)".to_owned());
    assert_eq!(judged(&records, &of_writes("64", &rates)), answer);
    let missing = json!({ "ratio": { "of": { "rate": "qdr" }, "to": {}, "is": { "least": 4.0 } } });
    let answer = (
        Answer::NotMeasured,
        "no record of blast write, 64 B, QDR".to_owned(),
    );
    assert_eq!(judged(&records, &of_writes("64", &missing)), answer);
}

/// A claim about three generations was judged on each alone, and held on two of them.
#[test]
fn a_claim_about_several_devices_is_judged_once_by_the_records_of_all() {
    let batching = ledgers().flat_map(|ledger| &ledger.claims);
    let batching = batching.filter(|claim| claim.id == "guide-generations-batching");
    let claims: Vec<Value> = batching.map(|claim| json!(claim)).collect();
    assert_eq!(claims.len(), 1);
    let ledger = json!({ "study": "s", "source": "S", "testbed": "cx", "claim": claims });
    let ledger: Ledger = serde_json::from_value(ledger).unwrap();
    let of = |name: &str, batch: u32, rate: f64| {
        let mut record = Record::from(&records()[0]);
        record.device = crate::common::device(DeviceKind::Model, name);
        record.program = "sequencer".to_owned();
        let qps = if batch == 1 { 1 } else { 3 };
        let params = json!({ "by": "rpc", "batch": batch, "qps": qps, "server_cores": 1 });
        record.params = params.as_object().unwrap().clone();
        let metrics = json!({ "requests_per_s": rate });
        record.metrics = metrics.as_object().cloned();
        record
    };
    let on = |name: &str, gain: f64| [of(name, 1, 5e6), of(name, 32, 5e6 * gain)];
    let judged = |records: &[Record]| {
        let assessments = assess(&ledger, &[], records);
        let answers = assessments.iter().map(|assessment| {
            let judgement = &assessment.judgements[0];
            (
                assessment.device.name.clone(),
                judgement.answer,
                judgement.why.clone(),
            )
        });
        answers.collect::<Vec<_>>()
    };
    let alone = judged(&on("connect_ib", 2.0));
    assert_eq!(alone[0].1, Answer::NotMeasured);
    let needs = "it needs the records of model:connect_ib, model:cx3 and model:cx: model:cx3: no record of ";
    assert!(alone[0].2.starts_with(needs), "{alone:?}");
    for (gain, answer, figures) in [
        (
            0.5,
            Answer::Fails,
            "model:cx: 0.50× (2.50 M/s against 5.00 M/s)",
        ),
        (
            1.5,
            Answer::Holds,
            "model:connect_ib: 2.00× (10.0 M/s against 5.00 M/s); model:cx3: 2.00× (10.0 M/s against 5.00 M/s); model:cx: 1.50× \
             (7.50 M/s against 5.00 M/s)",
        ),
    ] {
        let all = [on("connect_ib", 2.0), on("cx3", 2.0), on("cx", gain)].concat();
        for (name, is, why) in judged(&all) {
            match name.as_str() {
                "connect_ib" => assert_eq!((is, why.as_str()), (answer, figures)),
                _ => {
                    assert_eq!(is, Answer::CannotTell);
                    assert!(
                        why.ends_with("it is judged once, on model:connect_ib"),
                        "{why}"
                    );
                }
            }
        }
    }
}

/// The records on a modelled device with this link layer, with a delay of each message.
fn over(name: &str, link_layer: &str, delay: u64) -> Vec<PairRecord> {
    let mut records = on(DeviceKind::Model, name);
    for record in &mut records {
        let details = &mut record.provenance.active.device;
        details.insert("link layer".to_owned(), link_layer.to_owned());
        details.insert("hardware".to_owned(), format!("NIC A, {link_layer}"));
        let ns = record.metrics.as_ref().unwrap().one_way_ns.mean.unwrap() as u64 + delay;
        record.metrics = blast(sized(record.params.op, record.params.size_bytes.get()), ns).metrics;
    }
    records
}

#[test]
fn an_infiniband_device_is_compared_with_the_only_roce_device_of_its_adapter() {
    let (of, to) = (
        json!({ "link": "ethernet" }),
        json!({ "link": "infiniband" }),
    );
    let ratio = json!({ "ratio": { "of": of, "to": to, "is": { "least": 1.5 } } });
    let claim = of_writes("64", &ratio);
    let ledger = json!({ "study": "s", "source": "S", "testbed": "cx", "claim": [claim] });
    let ledger: Ledger = serde_json::from_value(ledger).unwrap();
    let answers = |records: &[PairRecord]| {
        let records: Vec<&PairRecord> = records.iter().collect();
        let judged = assess(&ledger, &records, &[])
            .into_iter()
            .map(|assessment| {
                let judgement = &assessment.judgements[0];
                (
                    assessment.device.name.clone(),
                    judgement.answer,
                    judgement.why.clone(),
                )
            });
        judged.collect::<Vec<_>>()
    };
    let why = |name: &str, answer, why: &str| (name.to_owned(), answer, why.to_owned());

    let infiniband = over("ib", "InfiniBand", 0);
    let roce = over("roce", "Ethernet", 100);
    let there = "the claim compares InfiniBand with RoCE: it is judged on the InfiniBand device";
    assert_eq!(
        answers(&[infiniband.clone(), roce.clone()].concat()),
        [
            why("ib", Answer::Holds, "2.00× (200 ns against 100 ns)"),
            why("roce", Answer::CannotTell, there),
        ]
    );
    let reason = "no record of a RoCE port of the same adapter (NIC A)";
    let alone = why("ib", Answer::NotMeasured, reason);
    assert_eq!(answers(&infiniband), std::slice::from_ref(&alone));
    let mut other = roce.clone();
    for record in &mut other {
        let details = &mut record.provenance.active.device;
        details.insert("hardware".to_owned(), "NIC B".to_owned());
    }
    assert_eq!(answers(&[infiniband.clone(), other].concat())[0], alone);
    let real = on(DeviceKind::Verbs, "mlx5_0")
        .into_iter()
        .map(|mut record| {
            record.provenance.clone_from(&roce[0].provenance);
            record
        });
    let real: Vec<PairRecord> = real.collect();
    assert_eq!(
        answers(&[infiniband.clone(), real].concat())[1],
        alone,
        "a measurement is not compared with a prediction"
    );
    let several = [infiniband, roce, over("roce25", "Ethernet", 50)].concat();
    let reason = "records of several RoCE devices: model:roce and model:roce25";
    assert_eq!(answers(&several)[0], why("ib", Answer::NotMeasured, reason));
    let unnamed = "the records do not name the link layer";
    let old = on(DeviceKind::Model, "old");
    assert_eq!(answers(&old), [why("old", Answer::NotMeasured, unnamed)]);
}

#[test]
fn a_ratio_and_a_difference_compare_two_series() {
    let ratio = |bounds: Value| json!({ "ratio": { "of": { "op": "write" }, "to": { "op": "read" }, "is": bounds } });
    check(
        |holds_if| claim("64..256", holds_if),
        (
            ratio(json!({ "most": 0.98 })),
            ratio(json!({ "most": 0.5 })),
        ),
        [
            "0.50× at 64 B (100 ns against 200 ns); 0.61× at 256 B (110 ns against 180 ns)",
            "0.61× at 256 B (110 ns against 180 ns)",
        ],
    );
    let difference = |bounds: Value| json!({ "difference": { "of": { "op": "write" }, "to": { "op": "read" }, "is": bounds } });
    check(
        |holds_if| claim("64", holds_if),
        (
            difference(json!({ "most": -99.0 })),
            difference(json!({ "least": 0.0 })),
        ),
        ["-100 ns (100 ns - 200 ns)"; 2],
    );
}

#[test]
fn a_gain_compares_two_ratios() {
    let at = |size: u64, op: &str| json!({ "size": size, "op": op });
    let small = [at(64, "write"), at(64, "read")];
    let large = [at(1024, "write"), at(1024, "read")];
    let gain = |one: &[Value; 2], other: &[Value; 2]| json!({ "gain": [one[0], one[1], other[0], other[1]] });
    check(
        |holds_if| claim("64", holds_if),
        (gain(&small, &large), gain(&large, &small)),
        ["0.50× against 0.99×", "0.99× against 0.50×"],
    );
}

#[test]
fn a_range_is_flat_or_grows() {
    check(
        |holds_if| of_writes("64..1K", holds_if),
        (
            json!({ "flat": { "most": 1.5 } }),
            json!({ "growth": { "most": 1.4 } }),
        ),
        ["1.50× (150 ns at 1 KiB against 100 ns at 64 B)"; 2],
    );
}

#[test]
fn an_order_has_ranks() {
    let (write, read) = (json!([{ "op": "write" }]), json!([{ "op": "read" }]));
    check(
        |holds_if| claim("64", holds_if),
        (
            json!({ "order": [write, read] }),
            json!({ "order": [read, write] }),
        ),
        ["write: 100 ns, read: 200 ns", "read: 200 ns, write: 100 ns"],
    );
    // A difference of less than 2 % is none.
    let order = claim(
        "1K",
        &json!({ "order": [[{ "op": "write" }], [{ "op": "read" }]] }),
    );
    assert_eq!(judged(&records(), &order).0, Answer::Fails);
}

#[test]
fn a_crossover_lies_between_two_places() {
    let crossover = |up_to: u64, from: u64| {
        let (of, to) = (json!({ "op": "write" }), json!({ "op": "read" }));
        json!({ "crossover": { "of": of, "to": to, "up-to": up_to, "from": from } })
    };
    check(
        |holds_if| claim("64..1K", holds_if),
        (crossover(64, 1024), crossover(64, 256)),
        [
            "0.50× at 64 B (100 ns against 200 ns); 0.99× at 1 KiB (150 ns against 151 ns)",
            "0.61× at 256 B (110 ns against 180 ns)",
        ],
    );
    let one_sided = claim("64..1K", &crossover(1024, 4096));
    let answer = (
        Answer::NotMeasured,
        "no records on both sides of the crossover of blast write, 64 B to 1 KiB".to_owned(),
    );
    assert_eq!(judged(&records(), &one_sided), answer);
}

#[test]
fn a_claim_without_its_cells_is_not_measured() {
    let unmeasured = |claim: Value, reason: &str| {
        let answer = (Answer::NotMeasured, reason.to_owned());
        assert_eq!(judged(&records(), &claim), answer);
    };
    let most = || json!({ "within": { "most": 1.0 } });
    unmeasured(of_writes("2K", &most()), "no record of blast write, 2 KiB");
    unmeasured(
        of_writes("64", &json!({ "flat": { "most": 1.0 } })),
        "a single record of blast write, 64 B",
    );
    let mut by_events = of_writes("64", &most());
    by_events["cells"]["completion"] = json!("event");
    unmeasured(by_events, "no record of blast write, 64 B, event");
    let few = records().into_iter().map(|mut record| {
        record.metrics.as_mut().unwrap().few_messages = true;
        record
    });
    let few: Vec<PairRecord> = few.collect();
    let ledger = ledgers().next().unwrap();
    assert!(
        assess(ledger, &few.iter().collect::<Vec<_>>(), &[]).is_empty(),
        "too few messages"
    );
}

#[test]
fn a_device_that_lacks_what_a_claim_is_about_cannot_tell() {
    let about = |aspect: &str, (kind, name): (DeviceKind, &str)| {
        let mut claim = of_writes("64", &json!({ "within": { "most": 100.0 } }));
        claim["about"] = json!([aspect]);
        judged(&on(kind, name), &claim)
    };
    use DeviceKind::{Model, Soft, Tcp, Verbs};
    for (aspect, device) in [
        ("nic", (Soft, "soft")),
        ("nic", (Soft, "soft@::1")),
        ("testbed", (Soft, "soft")),
        ("testbed", (Model, "cx5")),
        ("pending", (Soft, "soft")),
        ("offload", (Soft, "soft@::1")),
        ("link", (Soft, "soft")),
        ("link", (Soft, "soft@::1")),
        ("polling", (Tcp, "tcp")),
    ] {
        let (answer, reason) = about(aspect, device);
        assert_eq!(
            answer,
            Answer::CannotTell,
            "{aspect} on {device:?}: {reason}"
        );
        assert!(!reason.is_empty());
    }
    for (aspect, device) in [
        ("nic", (Verbs, "mlx5_0")),
        ("testbed", (Model, "cx")),
        ("pending", (Soft, "soft@::1")),
        ("offload", (Soft, "soft")),
        ("link", (Model, "cx")),
        ("rate", (Verbs, "mlx5_0")),
        ("polling", (Soft, "soft")),
    ] {
        let (answer, why) = about(aspect, device);
        assert_eq!(
            (answer, why.as_str()),
            (Answer::Holds, "100 ns"),
            "{aspect} on {device:?}"
        );
    }
    let (answer, why) = about("offload", (Model, "cx"));
    assert_eq!(answer, Answer::Holds);
    assert_eq!(
        why,
        "100 ns; by construction: the model runs no program there"
    );
}

#[test]
fn a_known_cause_is_named_where_the_model_fails() {
    let mut claim = of_writes("64", &json!({ "within": { "most": 1.0 } }));
    claim["model"] = json!("the model has no such cost");
    let on_model = judged(&on(DeviceKind::Model, "cx"), &claim);
    assert_eq!(
        on_model,
        (
            Answer::Fails,
            "100 ns; the model has no such cost".to_owned()
        )
    );
    assert_eq!(
        judged(&records(), &claim),
        (Answer::Fails, "100 ns".to_owned())
    );
}

#[test]
fn each_device_is_judged_by_its_own_records() {
    let records = crate::common::on_both();
    let records: Vec<&PairRecord> = records.iter().collect();
    for ledger in ledgers() {
        let devices = assess(ledger, &records, &[]);
        let devices: Vec<String> = devices.iter().map(|a| a.device.to_string()).collect();
        assert_eq!(devices, ["soft", "model:connect_ib"]);
    }
}

#[test]
fn a_report_has_a_chapter_about_the_claims_that_its_records_answer() {
    let (records, meta) = (crate::common::study(), Meta::default());
    let report = Report::from_records(&records, &meta, chapters());
    let page = report.html();
    assert!(page.contains("<section id=\"claims\"><h2>What the studies found, and here</h2>"));
    assert!(page.contains("href=\"#claims\""));
    // The claims of `wan` are about other programs.
    let expected = ledgers().filter(|ledger| ledger.is_about("ping"));
    let (assessments, expected) = (report.claims(), expected.count());
    assert_eq!(assessments.len(), expected);
    for assessment in &assessments {
        assert!(
            page.contains(&assessment.summary().replace('&', "&amp;")),
            "{}",
            assessment.summary()
        );
        let answers = Answer::ALL.map(|answer| assessment.count(answer));
        assert_eq!(
            answers.iter().sum::<usize>(),
            assessment.ledger.claims.len()
        );
    }
    let events =
        |r: &PairRecord| r.params.completion == Completion::Event && r.program == Program::Ping;
    let records: Vec<PairRecord> = records.into_iter().filter(|r| !events(r)).collect();
    let fewer = Report::from_records(&records, &meta, chapters()).claims();
    assert!(fewer[0].count(Answer::NotMeasured) > assessments[0].count(Answer::NotMeasured));
    let lossy = crate::common::of_figure("loss");
    let page = Report::from_records(&lossy, &meta, chapters()).html();
    assert!(
        !page.contains("id=\"claims\""),
        "records of no study with claims"
    );
}

/// A record of `connect` on a device, whose set-up takes `ns`.
fn connect(device: DeviceRef, params: Value, ns: f64) -> Record {
    let mut record = Record::from(&records()[0]);
    record.program = "connect".to_owned();
    record.device = device;
    record.params = serde_json::from_value(params).unwrap();
    record.metrics =
        serde_json::from_value(json!({ "active": { "setup_ns": { "p50": ns } } })).unwrap();
    record
}

/// Claims on records of other programs ignored their repetitions.
#[test]
fn a_claim_on_any_program_that_another_repetition_would_answer_otherwise_is_not_judged() {
    let rate = json!({ "program": "rpc", "metric": "requests_per_s" });
    let claim = json!({
        "id": "c", "at": "Slide 1", "says": "So it is.",
        "holds-if": { "records": { "of": rate, "is": { "least": 2.0 } } },
    });
    let ledger = json!({ "study": "s", "source": "S", "testbed": "cx", "claim": [claim] });
    let ledger: Ledger = serde_json::from_value(ledger).unwrap();
    let judged = |rates: [f64; 3]| {
        let mut record = Record::from(&records()[0]);
        record.program = "rpc".to_owned();
        let repetitions = rates.map(|rate| json!({ "requests_per_s": rate }));
        let metrics = json!({ "requests_per_s": 3.0, "repetitions": repetitions });
        record.metrics = serde_json::from_value(metrics).unwrap();
        assess(&ledger, &[], &[record])[0].judgements[0].answer
    };
    assert_eq!(judged([2.5, 3.0, 3.5]), Answer::Holds);
    assert_eq!(judged([1.5, 3.0, 4.5]), Answer::CannotTell);
}

/// Claims were judged by records of `ping` and `blast` only.
#[test]
fn a_claim_is_judged_by_records_of_any_program() {
    let (own, tcp) = (
        crate::common::device(DeviceKind::Soft, "soft@10.0.0.1"),
        crate::common::device(DeviceKind::Tcp, "tcp"),
    );
    let setup = |params: Value| json!({ "program": "connect", "params": params, "metric": "active.setup_ns.p50" });
    let claim = json!({
        "id": "c", "at": "Slide 1", "says": "So it is.",
        "holds-if": { "records": {
            "of": setup(json!({ "transport": "none", "size_bytes": 4096 })),
            "to": setup(json!({ "transport": "tcp" })),
            "is": { "least": 2.0 },
        } },
    });
    let ledger = json!({ "study": "s", "source": "S", "testbed": "cx", "claim": [claim] });
    let ledger: Ledger = serde_json::from_value(ledger).unwrap();
    assert!(ledger.is_about("connect") && !ledger.is_about("ping"));
    let judged = |records: &[Record]| {
        let assessments = assess(&ledger, &[], records);
        let of_device = |assessment: &Assessment<'_>| {
            let judgement = &assessment.judgements[0];
            (
                assessment.device.name.clone(),
                judgement.answer,
                judgement.explanation(),
            )
        };
        assessments.iter().map(of_device).collect::<Vec<_>>()
    };
    let mut records = vec![
        connect(own.clone(), json!({ "size_bytes": 4096 }), 3000.0),
        connect(own, json!({ "size_bytes": 65536 }), 1.0),
    ];
    let missing = "no record of active.setup_ns.p50 of connect transport=tcp".to_owned();
    let not_yet = ("soft@10.0.0.1".to_owned(), Answer::NotMeasured, missing);
    assert_eq!(judged(&records), [not_yet]);
    records.push(connect(tcp, json!({ "transport": "tcp" }), 1000.0));
    let holds = (Answer::Holds, "3.00× (3.00 µs against 1.00 µs)".to_owned());
    let tcp = (Answer::CannotTell, "the claim is about RDMA".to_owned());
    let expected = [("soft@10.0.0.1", holds), ("tcp", tcp)];
    let expected = expected.map(|(device, (answer, why))| (device.to_owned(), answer, why));
    assert_eq!(judged(&records), expected);
    records[2].metrics = records[0].metrics.clone();
    assert_eq!(judged(&records)[0].1, Answer::Fails);
    // Records of bad paths were taken for claims that name none.
    let delayed = json!({ "loss": 0.0, "seed": 1, "delay_ns": 1e7 });
    let (params, name) = (&mut records[2].params, "impairment".to_owned());
    params.insert(name, delayed);
    assert_eq!(judged(&records)[0].1, Answer::NotMeasured);
}
