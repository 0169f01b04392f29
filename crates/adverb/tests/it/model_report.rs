//! Reports of studies on models: published values, and comparisons of several devices.

use std::fs;

use crate::common::Place;
use insta::assert_snapshot;

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
        assert!(page.contains(&format!("{device}: 3a: time per message, single posts")));
    }
    assert!(
        page.contains(mark),
        "the published value, next to its own model"
    );
    assert!(page.contains("The records are from several studies, in qdr, cx3."));
}

#[test]
fn two_devices_stand_in_one_figure_of_one_study() {
    let place = Place::new();
    let devices = "--device model:mt26428_qdr --device model:mt26428_roce10";
    let line = format!("study --only fig1b,fig8a {devices} --out s");
    place.run(&line).ok();
    let records = crate::common::records(&place.path("s"));
    let of = |device: &str| {
        let own = records.iter().filter(|r| r["device"]["name"] == device);
        let figures = own.map(|r| r["figures"].to_string());
        figures.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(of("mt26428_qdr").len(), 2, "{records:?}");
    // A model has all figures.
    assert_eq!(of("mt26428_roce10"), of("mt26428_qdr"));
    let page = fs::read_to_string(place.path("s/report.html")).unwrap();
    for series in ["mt26428_qdr", "mt26428_roce10"] {
        let name = format!("data-series=\"SEND, model:{series} (prediction)\"");
        assert!(page.contains(&name), "{name}");
    }
    let again = place.run("study --resume --out s").ok();
    assert!(again.talk.contains("nothing to do"), "{}", again.talk);
    let other = place.run("study --resume --out s --device model:mt26428_qdr --device model:cx");
    assert_snapshot!(other.refused(2), @"error: --device model:cx: not a device of the folder's study; choose another --out, and make one report of both");

    let alone = place.run("study --only fig1 --device model:mt26428_qdr --device soft --out t");
    assert_snapshot!(alone.refused(2), @"error: --device soft: further devices are for figures that compare devices (fig8), and none of these was asked for; leave it out");
}

#[test]
fn speeds_are_what_if_on_a_model_and_refused_by_name_elsewhere() {
    let place = Place::new();
    let line = "study --only fig7,table1 --rates sdr,xdr --device model:mt26428_qdr --out s";
    place.run(line).ok();
    let page = fs::read_to_string(place.path("s/report.html")).unwrap();
    for words in ["4x SDR", "8 Gb/s", "4x XDR", "what-if 7b: throughput"] {
        assert!(page.contains(words), "{words}");
    }
    let rate = |name: &str| {
        let line = format!("blast --op write --size 64K --buffers 16 --rate {name}");
        let record = place
            .run(&format!("{line} --device model:mt26428_qdr --json"))
            .record();
        assert_eq!(record["params"]["rate"], name);
        record["metrics"]["bytes_per_s"].as_f64().unwrap() * 8e-9
    };
    // The payload of packets of 4 KiB is 99 % of the usable 8 and 16 Gb/s.
    let (sdr, ddr) = (rate("sdr"), rate("ddr"));
    assert!(
        (7.6..8.0).contains(&sdr) && (15.2..16.0).contains(&ddr),
        "{sdr} {ddr}"
    );

    let soft = place.run("study --only fig7 --rates qdr --out t");
    assert_snapshot!(soft.refused(2), @"error: --rates: rate qdr: this device's port (shared memory) has no InfiniBand rates to choose from; leave it out");
    let roce = place.run("blast --op write --rate qdr --device model:mt26428_roce10");
    assert_snapshot!(roce.refused(2), @"error: rate qdr: this device's port (Ethernet) has no InfiniBand rates to choose from; leave it out");
    let twice = place.run("ping --op send --device soft --device model:cx");
    assert_snapshot!(twice.refused(2), @"error: --device model:cx: a device was named before; only `adverb study`, `adverb connect` and `adverb rpc` compare several");
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
