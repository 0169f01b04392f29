//! Reports of studies on models: published values, and comparisons of several devices.

mod common;

use std::fs;

use common::Place;

fn study(place: &Place, device: &str, only: &str, out: &str) {
    let line = format!("study --device {device} --only {only} --out {out}");
    place.run(&line).ok();
}

#[test]
fn a_model_stands_beside_published_values_and_another_model() {
    let place = Place::new();
    study(&place, "model:mt26428_qdr", "fig3", "qdr");
    let page = fs::read_to_string(place.path("qdr/report.html")).unwrap();
    // Blast of inline WRITEs of 64 B with 8 buffers: "only about 300 ns".
    let mark = "8 buffers: 300 ns (270 ns to 330 ns), as published (MAC-04)";
    assert!(page.contains(mark), "the published value");
    assert!(page.contains("64 B, published: MacArthur &amp; Russell, HPCC 2012"));
    assert!(page.contains("How to use RDMA verbs: a prediction"));

    study(&place, "model:cx3", "fig3", "cx3");
    assert_eq!(
        place.run("report qdr cx3 --out both.html").ok().out,
        "both.html\n"
    );
    let page = fs::read_to_string(place.path("both.html")).unwrap();
    for device in ["model:mt26428_qdr", "model:cx3"] {
        assert!(page.contains(&format!("{device}: Message rate, single posts")));
    }
    assert!(
        page.contains(mark),
        "the published value, next to its own model"
    );
    assert!(page.contains("The records are from several studies, in qdr, cx3."));
}

#[test]
fn bars_of_a_ranking_bear_published_values_of_the_same_ping() {
    let place = Place::new();
    study(&place, "model:qdr_switch", "rank-cpu", "qdr");
    let page = fs::read_to_string(place.path("qdr/report.html")).unwrap();
    // A round of SENDs by events: 18.1 % of 21.1 us.
    let mark = "64 B: 3.82 µs (3.74 µs to 3.90 µs), as published (RUS-04)";
    assert!(page.contains(mark), "the published value");
    assert!(page.contains(">published: Russell, "), "and its source");
}

#[test]
fn a_report_of_several_folders_needs_a_file() {
    let place = Place::new();
    study(&place, "model:cx3", "rank-rtt", "one");
    let run = place.run("report one one");
    assert_eq!(
        run.refused(2),
        "error: one report of 2 folders: name the file to write with --out"
    );
    let run = place.run("report one two --out x.html");
    assert!(
        run.refused(1)
            .starts_with("error: folder two does not exist")
    );
    let twice = place.run("report one one --out x.html").ok();
    assert!(
        twice.talk.contains("are in several folders"),
        "{}",
        twice.talk
    );
}
