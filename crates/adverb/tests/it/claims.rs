//! `adverb claims`: the ledger as documentation, and judged by the records of a study.

use std::fs;

use crate::common::Place;
use adverb_experiments::ledgers;
use adverb_validate::Data;
use insta::assert_snapshot;

#[test]
fn the_document_is_what_the_command_prints() {
    let path = format!("{}/../../docs/claims.md", env!("CARGO_MANIFEST_DIR"));
    let printed = Place::new().run("claims").ok().out;
    let document = fs::read_to_string(path).unwrap();
    assert!(printed == document, "run `adverb claims >docs/claims.md`");
}

#[test]
fn every_row_that_a_claim_names_is_published() {
    let data = Data::shipped();
    let known: Vec<&str> = data
        .entries()
        .iter()
        .map(|e| e.labels.id.as_str())
        .collect();
    for claim in ledgers().flat_map(|ledger| &ledger.claims) {
        for row in &claim.rows {
            assert!(known.contains(&row.as_str()), "{}: {row}", claim.id);
        }
    }
}

#[test]
fn a_study_of_the_model_answers_claims() {
    let place = Place::new();
    let study = place
        .run("study --device model:mt26428_qdr --only fig3 --out qdr")
        .ok();
    let all = ledgers().next().unwrap().claims.len();
    let summary = format!("- Of {all} claims of P. MacArthur and R. D. Russell");
    assert!(study.out.contains(&summary), "{}", study.out);
    assert!(
        study.out.contains("  `adverb claims qdr` lists them.\n"),
        "{}",
        study.out
    );

    let one = place.run("claims qdr --only mac-3a-300ns").ok().out;
    assert!(
        one.contains("mac-3a-300ns (Figure 3a): An inline WRITE of 64 B"),
        "{one}"
    );
    let objects = place.run("claims qdr --study macarthur --json").ok().json();
    assert_eq!(objects.len(), all);
    let ids = ["id", "device", "answer", "why"];
    assert!(
        ids.iter().all(|name| !objects[0][name].is_null()),
        "{}",
        objects[0]
    );

    let other = place.run("claims qdr --study russell");
    assert_snapshot!(other.refused(2), @"error: qdr: records of figure fig3, which no claim of russell is about: name a folder that `adverb study` wrote for it");
}

/// MacArthur and Russell's ping is a cell of the tutorial's figures, too.
#[test]
fn cells_answer_claims_of_all_studies_whichever_figure_they_are_of() {
    let place = Place::new();
    let study = place.run("study --device model:cx3 --only rank-rtt --out s");
    let study = study.ok().out;
    assert!(study.contains("claims of P. MacArthur"), "{study}");
    let all = place.run("claims s --json").ok().json();
    let of = |name: &str| all.iter().filter(|claim| claim["study"] == name).count();
    assert!(of("macarthur") > 0 && of("russell") > 0);
    let own = place.run("claims s --study macarthur --json").ok().json();
    assert_eq!(own.len(), of("macarthur"));
    let one = place.run("claims s --only numa-5d-write-64 --json").ok();
    assert_eq!(one.json()[0]["answer"], "not measured");
}

/// The study names the device of Figure 8 that the first one is compared with as a further `--device`.
#[test]
fn a_study_of_both_ports_answers_the_claims_on_link_speeds_and_roce() {
    let place = Place::new();
    let devices = "--device model:mt26428_qdr --device model:mt26428_roce10";
    let line = format!("study {devices} --only fig7,fig8 --rates sdr,ddr,qdr --out ports");
    place.run(&line).ok();
    let objects = place
        .run("claims ports --study macarthur --json")
        .ok()
        .json();
    let is_new = |id: &str| {
        ["mac-t1-", "mac-7-", "mac-8"]
            .iter()
            .any(|own| id.starts_with(own))
    };
    let own = objects
        .iter()
        .filter(|object| is_new(object["id"].as_str().unwrap()));
    let (first, second): (Vec<_>, Vec<_>) =
        own.partition(|object| object["device"]["name"] == "mt26428_qdr");
    assert_eq!(first.len(), 16);
    for object in first {
        assert_eq!(object["answer"], "holds", "{object}");
        let id = object["id"].as_str().unwrap();
        let is_bound = id.starts_with("mac-t1-") || id == "mac-8d-10g";
        assert_eq!(object["by_construction"].is_string(), is_bound, "{object}");
    }
    let of_both = second
        .iter()
        .filter(|object| object["id"].as_str().unwrap().starts_with("mac-8"));
    for object in of_both {
        assert_eq!(object["answer"], "this device cannot tell", "{object}");
    }
}

#[test]
fn the_ledger_is_data_too() {
    let place = Place::new();
    let all = place.run("claims --json").ok().json();
    assert_eq!(
        all.len(),
        ledgers().map(|ledger| ledger.claims.len()).sum::<usize>()
    );
    let one = place.run("claims --only mac-3a-300ns --json").ok().json();
    assert_snapshot!(one[0].to_string(), @r#"{"study":"macarthur","id":"mac-3a-300ns","at":"Figure 3a","says":"An inline WRITE of 64 B takes about 300 ns with 8 or 16 buffers.","rows":["MAC-04"],"found":null,"testbeds":[],"about":["testbed","fitted"],"cells":{"program":"blast","op":"write","size":"64","inline":true,"buffers":"8..16"},"value":"one-way","holds-if":{"within":{"least":270.0,"most":330.0}},"model":null}"#);
}

#[test]
fn missing_records_and_unknown_claims_are_named() {
    let place = Place::new();
    let refused = |line: &str, code| place.run(line).refused(code).to_owned();
    assert_snapshot!(refused("claims --only mac-9", 2), @"error: --only: invalid claim 'mac-9': `adverb claims` lists all ids");
    assert_snapshot!(refused("claims --study kalia", 2), @"error: --study: invalid study 'kalia': expected macarthur, russell, wan, numa or guidelines");
    assert_snapshot!(refused("claims nowhere", 1), @"error: folder nowhere does not exist: name one that `adverb study` wrote");
    let kv = "sequencer --device model:cx5 --clients 2 --duration 1ms --out s";
    place.run(kv).ok();
    assert_snapshot!(refused("claims s --study macarthur", 2), @"error: s: records of sequencer, which no claim of macarthur is about: name a folder that `adverb study` wrote for it");
}
