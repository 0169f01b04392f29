//! `--resume` of programs: what a folder keeps, and what is added to it.

use serde_json::Value;

use crate::common::{Place, records};

fn repetitions(record: &Value) -> usize {
    record["metrics"]["repetitions"].as_array().unwrap().len()
}

#[test]
fn repetitions_that_a_point_lacks_are_added() {
    let place = Place::new();
    let line = "kv --duration 20ms --out s";
    place.run(&format!("{line} --repetitions 2")).ok();
    let more = format!("{line} --resume --repetitions 3");
    let ended = place.run(&more).ok();
    assert!(!ended.talk.contains("kept"), "{}", ended.talk);
    let ended = place.run(&more).ok();
    let kept = "1 point was measured before and is kept";
    assert!(
        ended.talk.lines().any(|line| line == kept),
        "{}",
        ended.talk
    );
    let records = records(&place.path("s"));
    let found: Vec<usize> = records.iter().map(repetitions).collect();
    assert_eq!(found, [2, 3]);
    // The first two are kept.
    let first = |record: &Value| record["metrics"]["repetitions"][0].clone();
    assert_eq!(first(&records[0]), first(&records[1]));
}

#[test]
fn a_study_of_programs_gets_more_repetitions_where_packets_are_lost() {
    let place = Place::new();
    let study = "study --study wan --only beyond --device model:ammasso_gige --out s";
    place.run(study).ok();
    let before = records(&place.path("s"));
    let loss = |record: &&Value| record["params"]["impairment"]["loss"].as_f64();
    let lossy = before.iter().filter(|record| loss(record) > Some(0.0));
    let lossy = lossy.count();
    assert!(lossy > 0);
    place.run("study --resume --out s --repetitions 2").ok();
    let after = records(&place.path("s"));
    assert_eq!(after.len(), before.len() + lossy);
    let added = &after[before.len()..];
    assert!(added.iter().all(|record| repetitions(record) == 2));
}

#[test]
fn another_length_than_the_folder_has_is_named() {
    let place = Place::new();
    let again = |first: &str, second: &str| {
        let out = first.replace(' ', "_");
        place.run(&format!("{first} --out {out}")).ok();
        place.run(&format!("{second} --out {out} --resume"))
    };
    let jobs = "kv --device model:cx3";
    let ended = again(
        &format!("{jobs} --duration 100us"),
        &format!("{jobs} --duration 300us"),
    );
    let talk = ended.ok().talk;
    assert!(
        talk.contains("warning: --duration 300 µs: kv/")
            && talk.contains("with 100 µs and is kept"),
        "{talk}"
    );
    let pair = "ping --op send --device model:cx3";
    let ended = again(
        &format!("{pair} --iters 50 --warmup 5"),
        &format!("{pair} --iters 60 --warmup 6"),
    );
    let talk = ended.ok().talk;
    for asked in [
        "--iters 60: ping/send/64/plain/poll/all was measured with 50",
        "--warmup 6: ",
    ] {
        assert!(talk.contains(asked), "{talk}");
    }
    let ended = again(
        &format!("{pair} --iters 70 --repetitions 3"),
        &format!("{pair} --iters 70 --repetitions 4"),
    );
    assert_eq!(
        ended.refused(2),
        "error: --repetitions 4: ping/send/64/plain/poll/all has 3 in the folder; leave it out, or choose another --out"
    );
}

#[test]
fn points_that_are_kept_are_checked_against_the_limits() {
    let place = Place::new();
    for line in ["kv --device model:cx3", "ping --op send --device model:cx3"] {
        let out = line.split(' ').next().unwrap();
        place.run(&format!("{line} --out {out}")).ok();
        let again = format!("{line} --out {out} --resume");
        place.run(&format!("{again} --min-rate 1k")).ok();
        let ended = place.run(&format!("{again} --min-rate 1000M"));
        assert_eq!(ended.failed(1), "error: 1 point is outside the limits");
    }
}

#[test]
fn measurements_with_different_labels_are_apart_in_a_report() {
    let place = Place::new();
    let line = "ping --op send --device model:cx3 --iters 50 --out s --resume";
    for label in ["quiet", "busy"] {
        place.run(&format!("{line} --label {label}")).ok();
    }
    let page = std::fs::read_to_string(place.path("s/report.html")).unwrap();
    for device in ["model:cx3 (quiet)", "model:cx3 (busy)"] {
        assert!(page.contains(device), "{device}");
    }
}
