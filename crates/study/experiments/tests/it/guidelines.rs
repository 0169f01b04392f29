//! The study of design guidelines: its findings follow from the records that they name.

use std::collections::BTreeSet;

use adverb_experiments::guidelines::{Finding, findings};
use adverb_experiments::{Abilities, PROGRAM_STUDIES, Profile, ledgers};
use adverb_results::{DeviceKind, Record};
use proptest::prelude::*;
use serde_json::json;

const ABILITIES: Abilities = Abilities {
    cpus: 28,
    switches: 1,
    ..Abilities::MODEL
};

/// Returns a record of each cell, with these rates in turn.
fn records(rates: &[f64]) -> Vec<Record> {
    let study = PROGRAM_STUDIES
        .iter()
        .find(|study| study.id == "guidelines");
    let points = (study.unwrap().plan)(Profile::Quick, ABILITIES).into_iter();
    let pair = crate::common::of_figure("fig1").remove(0);
    let record = |(point, rate): (adverb_experiments::Point, &f64)| {
        let mut record = Record::from(&pair);
        record.device = crate::common::device(DeviceKind::Model, "connect_ib");
        record.cell = format!("{} {}", point.program, point.params);
        record.program = point.program.to_owned();
        record.figures = point.figures.iter().map(|id| (*id).to_owned()).collect();
        record.params = point.params.as_object().unwrap().clone();
        let metrics = json!({
            "requests_per_s": rate,
            "batch_mean": 1.0 + rate / 1e9,
            "latency_ns": { "mean": 1e12 / rate },
            "utilization_percent": { "CPU writing to the NIC": 100.0 * rate / 2e8 },
            "busiest": { "resource": "port", "host": "machine 0", "percent": 100.0 * rate / 2e8 },
        });
        record.metrics = metrics.as_object().cloned();
        record
    };
    points.zip(rates.iter().cycle()).map(record).collect()
}

fn of_evidence(records: &[Record], finding: &Finding) -> Vec<Record> {
    let is_evidence = |record: &&Record| finding.evidence.contains(&record.cell);
    records.iter().filter(is_evidence).cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Of any records, whatever was measured.
    #[test]
    fn a_finding_is_the_same_from_its_evidence_alone(
        rates in prop::collection::vec(1e5..2e8_f64, 60..120),
        kept in prop::collection::vec(prop::bool::weighted(0.9), 50..90),
    ) {
        let kept = kept.iter().cycle();
        let records = records(&rates).into_iter().zip(kept);
        let records: Vec<Record> = records.filter(|(_, kept)| **kept).map(|(r, _)| r).collect();
        for finding in findings(&records) {
            let alone = of_evidence(&records, &finding);
            prop_assert!(alone.len() < records.len());
            prop_assert!(findings(&alone).contains(&finding), "{finding:?}");
        }
    }
}

#[test]
fn every_guideline_has_a_finding() {
    let all = findings(&records(&[1e6, 2e6, 3e6, 5e6, 7e6]));
    for guideline in [
        "avoiding contention in the NIC",
        "reducing MMIO",
        "using the NIC's parallelism",
        "reducing DMA",
    ] {
        let found = all
            .iter()
            .find(|finding| finding.sentence.contains(guideline));
        assert!(
            found.is_some_and(|finding| finding.evidence.len() > 1),
            "{guideline}"
        );
    }
    let distinct: BTreeSet<&str> = all
        .iter()
        .map(|finding| finding.sentence.as_str())
        .collect();
    assert_eq!(distinct.len(), all.len());
}

/// The last step was called the top of the ladder although it was slower than the one before it.
#[test]
fn the_ladder_names_its_best_step() {
    let mut records = records(&[5e6]);
    for record in &mut records {
        let is_last = record.params.get("by") == Some(&"rpc-imm".into());
        let rate = if is_last { 4e6 } else { 5e6 };
        let metrics = record.metrics.as_mut().unwrap();
        metrics.insert("requests_per_s".to_owned(), rate.into());
        let is_atomic = record.params.get("by") == Some(&"atomics".into());
        if is_atomic {
            metrics.insert("requests_per_s".to_owned(), 1e6.into());
        }
    }
    let all = findings(&records);
    let mut sentences = all.iter().map(|finding| &finding.sentence);
    let ladder = sentences.find(|sentence| sentence.contains("the steps from FETCH_ADD to"));
    let ladder = ladder.unwrap();
    assert!(ladder.contains("from 1.00 M/s to 5.00 M/s"), "{ladder}");
    let loss =
        "the last step, without payload and with more cores, is slower: 4.00 M/s with 10 cores.";
    assert!(ladder.ends_with(loss), "{ladder}");
}

/// The user-space NIC is a program on the requester's core.
#[test]
fn of_a_device_without_a_nic_no_guideline_is_stated() {
    let mut records = records(&[1e6, 2e6, 3e6, 5e6, 7e6]);
    for record in &mut records {
        record.device = crate::common::device(DeviceKind::Soft, "soft");
    }
    let all = findings(&records);
    assert!(!all.is_empty());
    let names_one =
        |finding: &Finding| finding.sentence.contains("pays") || finding.sentence.contains("NIC's");
    assert!(!all.iter().any(names_one), "{all:?}");
}

/// Returns the finding with these words.
fn finding(records: &[Record], words: &str) -> String {
    let all = findings(records);
    let mut sentences = all.into_iter().map(|finding| finding.sentence);
    sentences.find(|sentence| sentence.contains(words)).unwrap()
}

fn set(record: &mut Record, metric: &str, value: serde_json::Value) {
    let metrics = record.metrics.as_mut().unwrap();
    metrics.insert(metric.to_owned(), value);
}

/// "Reducing DMA pays" compared the designs on the only number of cores on which it does, and named the lines that the NIC
/// reads although these are more.
#[test]
fn reducing_dma_is_judged_on_equal_cores_and_names_the_lines_that_it_saves() {
    let all = |pays_with: &[u64]| {
        let mut records = records(&[5e6]);
        for record in &mut records {
            let cores = record
                .params
                .get("server_cores")
                .and_then(serde_json::Value::as_u64);
            let is_header_only = record.params.get("by") == Some(&"rpc-imm".into());
            let rate = match (is_header_only, cores) {
                (true, Some(cores)) if pays_with.contains(&cores) => 6e6,
                (true, _) => 4e6,
                _ => 5e6,
            };
            set(record, "requests_per_s", rate.into());
            let (mmio, reads) = if is_header_only {
                (0.1, 2.0)
            } else {
                (0.4, 1.3)
            };
            let lines = json!({
                "wqe_writes": 0.0, "doorbells": mmio, "dma_reads": reads, "data_writes": 0.5, "completions": 0.5,
            });
            set(record, "pcie_lines_per_request", lines);
        }
        finding(&records, "reducing DMA")
    };
    let some = all(&[14]);
    assert!(
        some.contains("reducing DMA pays with 14 cores, not with 1, 2, 3, 4, 6, 8 and 10 cores: "),
        "{some}"
    );
    assert!(
        some.contains("the best rate from 5.00 M/s to 6.00 M/s (1.20×) with 14 cores; "),
        "{some}"
    );
    let saved = "for an RPC to 14 cores, what is saved: the CPU writes 0.10 lines instead of 0.40; what is not: the NIC reads \
                 2.00 lines instead of 1.30 and the NIC writes 1.00 lines instead of 1.00";
    assert!(some.contains(saved), "{some}");
    assert!(all(&[]).contains("reducing DMA does not pay: "));
    assert!(all(&[1, 2, 3, 4, 6, 8, 10, 14]).contains("reducing DMA pays: "));
}

/// Two sentences named different resources for one rate: both were busy all the time.
#[test]
fn resources_that_are_busy_all_the_time_are_named_together() {
    let mut records = records(&[5e6]);
    for record in &mut records {
        let busiest = json!({ "resource": "port", "host": "machine 0", "percent": 100.0 });
        set(record, "busiest", busiest);
        let used = json!({ "CPU writing to the NIC": 100.0, "port": 100.0, "CPU cores": 99.9, "link": 98.0 });
        set(record, "utilization_percent", used);
    }
    let ladder = finding(&records, "the steps from FETCH_ADD to");
    let both = "; the busiest resources are then the CPU cores and port of the server (100 %)";
    assert!(ladder.contains(both), "{ladder}");
}

/// "3 queue pairs pay" does not hold for the next step, on several cores.
#[test]
fn cores_that_need_fewer_queue_pairs_are_named() {
    let mut records = records(&[5e6]);
    for record in &mut records {
        let is = |name: &str, value: u64| record.params.get(name) == Some(&value.into());
        if is("server_cores", 6) && is("qps", 1) && is("batch", 32) {
            set(record, "requests_per_s", 6e6.into());
        }
    }
    let queues = finding(&records, "using the NIC's parallelism");
    let fewer = "; with 1 queue pair at each port these cores reach 6.00 M/s";
    assert!(queues.contains(fewer), "{queues}");
}

/// Cells whose second half differs from the first one were not mentioned.
#[test]
fn cells_that_are_not_of_a_steady_state_are_counted() {
    let mut records = records(&[5e6]);
    for (record, drift) in records.iter_mut().zip([12.0, -31.0, 9.0]) {
        set(record, "drift_percent", drift.into());
    }
    let worst = &records[1].cell;
    let drift = finding(&records, "halves of the measured time");
    let end = format!(
        "differ by more than 10 % in 2 cells, which are not of a steady state; most by 31 %, in {worst}."
    );
    assert!(drift.ends_with(&end), "{drift}");
}

/// The latency beyond what the server answers depends on the measured time.
#[test]
fn lines_of_latency_end_where_the_server_does_not_keep_up() {
    let study = PROGRAM_STUDIES
        .iter()
        .find(|study| study.id == "guidelines")
        .unwrap();
    let offered = study
        .figures
        .iter()
        .find(|figure| figure.id == "offered")
        .unwrap();
    let adverb_report::Plots::Records(panels, _) = offered.plots else {
        panic!("a figure of records")
    };
    let mut records = records(&[5e6]);
    let record = records
        .iter_mut()
        .find(|record| record.offered() == Some(40e6))
        .unwrap();
    let shown = |record: &Record| {
        panels
            .iter()
            .map(|panel| (panel.shows)(record))
            .collect::<Vec<_>>()
    };
    assert_eq!(shown(record), [false, false, true]);
    set(record, "requests_per_s", 39.5e6.into());
    assert_eq!(shown(record), [true; 3]);
}

/// FETCH_ADD had 4,096 requests in flight in the ladder, and RPCs 2,240.
#[test]
fn all_designs_of_the_ladder_have_as_many_requests_in_flight() {
    let mut under_load = 0;
    for record in records(&[5e6]) {
        let number = |name: &str| record.params.get(name).and_then(serde_json::Value::as_u64);
        let is_ladder = record.figures.iter().any(|id| id == "ladder");
        if !is_ladder || number("clients") == Some(1) {
            continue;
        }
        let is_atomic = record.params.get("by") == Some(&"atomics".into());
        let queues = number("qps").filter(|_| is_atomic).unwrap_or(1);
        let in_flight = number("clients").unwrap() * number("outstanding").unwrap() * queues;
        assert_eq!(in_flight, 2240, "{}", record.cell);
        under_load += 1;
    }
    assert!(under_load > 5, "{under_load}");
}

/// Cells that were added for one figure met the conditions of claims about another one, which then did not hold.
#[test]
fn each_claim_is_about_one_cell() {
    let ledger = ledgers()
        .find(|ledger| ledger.study == "guidelines")
        .expect("the study has a ledger");
    let records = records(&[1e6]);
    let mut count = 0;
    for claim in &ledger.claims {
        let reading = &json!(claim)["holds-if"]["records"];
        for side in ["of", "to"] {
            let of = &reading[side];
            let (Some(params), false) = (of["params"].as_object(), of["largest"] == true) else {
                continue;
            };
            let has = |record: &&Record| {
                let is =
                    |(name, value): (&String, &serde_json::Value)| match record.params.get(name) {
                        None | Some(serde_json::Value::Null) => value == "none",
                        Some(found) => found == value,
                    };
                record.program == of["program"] && params.iter().all(is)
            };
            let cells: Vec<&str> = records
                .iter()
                .filter(has)
                .map(|r| r.cell.as_str())
                .collect();
            assert_eq!(cells.len(), 1, "{}: {side}: {cells:#?}", claim.id);
            count += 1;
        }
    }
    assert!(count > 30, "{count} selections of records");
}
