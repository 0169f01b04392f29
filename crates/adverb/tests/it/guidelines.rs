//! `adverb study --study guidelines`: designs of a sequencer and of a key-value store, and what limits them.

use insta::assert_snapshot;

use crate::common::{Place, records};

fn refused(line: &str) -> String {
    Place::new().run(line).refused(2).to_owned()
}

/// The ladder of a model has the rate of each design and what limits it, and its claims are judged.
#[test]
fn the_ladder_of_a_model_names_the_resource_that_limits_each_design() {
    let place = Place::new();
    let line = "study --study guidelines --only ladder --device model:connect_ib --out ladder";
    let out = place.run(line).ok().out;
    assert!(
        out.contains("avoiding contention") || out.contains("reducing MMIO"),
        "{out}"
    );
    let all = records(&place.path("ladder"));
    assert_eq!(all.len(), 11);
    for record in &all {
        assert_eq!(record["status"], "ok");
        let busiest = &record["metrics"]["busiest"];
        let share = busiest["percent"].as_f64().unwrap();
        let is_loaded = record["params"]["clients"].as_u64() > Some(1);
        assert!(!is_loaded || share > 80.0, "{}: {busiest}", record["cell"]);
    }
    let report = std::fs::read_to_string(place.path("ladder/report.html")).unwrap();
    assert!(report.contains("+ doorbell batching") && report.contains("lock of an atomic word"));
    let judged = place.run("claims ladder --study guidelines").ok().out;
    assert!(judged.contains("guide-7-batching"), "{judged}");
    // Without a study, the folder says which ones.
    assert_eq!(place.run("claims ladder").ok().out, judged);
}

#[test]
fn json_ends_with_a_summary_and_says_what_was_measured_before() {
    let place = Place::new();
    let line = "study --study guidelines --only queues --device model:connect_ib --out q --json";
    let [first, again] = ["", " --resume"].map(|more| {
        let ended = place.run(&format!("{line}{more}")).ok();
        ended.record()
    });
    assert_eq!(
        (&first["ok"], &first["skipped"]),
        (&first["planned"], &0.into())
    );
    assert_eq!(
        (&again["ok"], &again["skipped"]),
        (&0.into(), &first["planned"])
    );
    assert_eq!(first["report"], "q/report.html");
    assert!(
        first["claims"]
            .as_array()
            .is_some_and(|claims| !claims.is_empty())
    );
}

/// On a real device every number is handed out once, and the report does not name a limit.
#[test]
fn the_ladder_runs_on_a_real_device() {
    let place = Place::new();
    let line = "study --study guidelines --only ladder,queues --device soft --out soft";
    let run = place.run(line).ok();
    assert!(
        run.talk
            .contains("left out: the resource that limits each design"),
        "{}",
        run.talk
    );
    for record in &records(&place.path("soft")) {
        assert!(record["metrics"]["checked"]["numbers"].as_u64() > Some(0));
        assert!(record["metrics"]["busiest"].is_null());
    }
}

#[test]
fn figures_of_other_studies_are_refused() {
    assert_snapshot!(refused("study --study guidelines --only fig1"), @"error: --only fig1: not a figure of --study guidelines, which has ladder, cores, offered, queues, answers, atomics, units, sends, inbound, windows, kv, herd, generations, pcie");
    assert_snapshot!(refused("study --only ladder"), @"error: --only ladder: a figure of another study; add --study guidelines");
    assert_snapshot!(refused("study --study guidelines --only wan3"), @"error: --only wan3: not a figure of --study guidelines, which has ladder, cores, offered, queues, answers, atomics, units, sends, inbound, windows, kv, herd, generations, pcie");
}
