//! The study of design guidelines: its findings follow from the records that they name.

use std::collections::BTreeSet;

use adverb_experiments::guidelines::{Finding, findings};
use adverb_experiments::{Abilities, PROGRAM_STUDIES, Profile};
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
    let loss = "the last step, without payload, is slower: 4.00 M/s with 10 cores.";
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
