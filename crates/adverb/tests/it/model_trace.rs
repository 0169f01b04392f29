//! `adverb model trace`: what a message consists of.

use std::fs;

use crate::common::Place;
use insta::assert_snapshot;
use serde_json::Value;

fn trace(line: &str) -> Value {
    Place::new()
        .run(&format!("model trace {line} --json"))
        .record()
}

fn ping_ns(device: &str, line: &str) -> f64 {
    let args = format!("ping --device model:{device} {line} --json");
    let record = Place::new().run(&args).record();
    record["metrics"]["one_way_ns"]["mean"].as_f64().unwrap()
}

#[test]
fn the_steps_add_up_to_what_ping_reports() {
    for (device, line) in [
        ("cx3", "--op write --size 32 --inline"),
        ("cx3", "--op read --size 64"),
        ("connect_ib", "--op send --size 4K"),
        ("connect_ib", "--op write-imm --size 64 --completion event"),
        ("mt26428_qdr", "--op write-read --size 512"),
        ("cx5", "--op send --size 1M"),
        ("ammasso_gige", "--op write --size 1000"),
        ("connect_ib", "--op send --transport ud --size 32 --inline"),
    ] {
        let traced = trace(&format!("{device} {line}"));
        let mut sum = 0.0;
        for leg in traced["legs"].as_array().unwrap() {
            let mut end = 0.0;
            let steps = leg["steps"].as_array().unwrap().iter();
            for step in steps.filter(|step| step["on_path"] == true) {
                assert!(step["component"].is_string(), "{device} {line}: {step}");
                let start = step["start_ns"].as_f64().unwrap();
                assert!((start - end).abs() < 1e-6, "{device} {line}: {step}, {end}");
                end = start + step["duration_ns"].as_f64().unwrap();
            }
            sum += end;
        }
        let one_way = traced["one_way_ns"].as_f64().unwrap();
        assert!((sum / 2.0 - one_way).abs() < 1e-3, "{device} {line}");
        let ping = ping_ns(device, line);
        assert_eq!(traced["ping_one_way_ns"].as_f64(), Some(ping), "{device}");
        // Ping reads the clock, and now and then something differs in a round.
        let apart = (one_way / ping - 1.0).abs();
        assert!(apart < 0.015, "{device} {line}: {one_way} and {ping} ns");
    }
}

#[test]
fn a_reply_takes_what_rpc_reports() {
    for (by, transport) in [
        ("send", "rc"),
        ("write", "uc"),
        ("write-send", "ud"),
        ("read", "rc"),
    ] {
        let way = format!("--by {by} --transport {transport}");
        let traced = trace(&format!("connect_ib {way} --size 32"));
        let legs = traced["legs"].as_array().unwrap();
        assert_eq!(legs.len(), if by == "read" { 1 } else { 2 }, "{way}");
        let steps = legs.iter().flat_map(|leg| leg["steps"].as_array().unwrap());
        let all_known = steps.clone().all(|step| step["component"].is_string());
        assert!(all_known, "{way}: {traced}");
        let path = steps.filter(|step| step["on_path"] == true);
        let sum: f64 = path.map(|step| step["duration_ns"].as_f64().unwrap()).sum();
        let line = format!(
            "rpc {way} --request 32 --reply 32 --clients 1 --outstanding 1 --device model:connect_ib"
        );
        let record = Place::new().run(&format!("{line} --json")).record();
        let mean = record["metrics"]["latency_ns"]["mean"].as_f64().unwrap();
        assert!(
            (sum / mean - 1.0).abs() < 0.03,
            "{way}: {sum} and {mean} ns"
        );
        let reported = traced["rpc_latency_ns"].as_f64().unwrap();
        assert!(
            (reported / mean - 1.0).abs() < 0.01,
            "{way}: {reported} and {mean} ns"
        );
    }
}

#[test]
fn a_list_has_one_doorbell_and_its_wqes_are_read_at_once() {
    let count = |batch: u32, what: &str| {
        let traced = trace(&format!("connect_ib --op fetch-add --batch {batch}"));
        let steps = traced["legs"][0]["steps"].as_array().unwrap().clone();
        let has = |step: &&Value| step["what"].as_str().unwrap().contains(what);
        steps.iter().filter(has).count()
    };
    assert_eq!((count(2, "build WQE"), count(8, "build WQE")), (2, 8));
    assert_eq!(
        (count(2, "MMIO to the NIC"), count(8, "MMIO to the NIC")),
        (1, 1)
    );
    assert_eq!(count(8, "DMA read of WQE: 512 B"), 1);
    let datagrams = trace("connect_ib --op send --transport ud --inline --size 32 --batch 4");
    let steps = datagrams["legs"][0]["steps"].as_array().unwrap().iter();
    let is_placed = |step: &&Value| step["what"] == "DMA write of payload, 32 B";
    assert!(steps.filter(is_placed).count() >= 3, "{datagrams}");
    assert_eq!(datagrams["transport"], "ud");
    let place = Place::new();
    let refused = place.run("model trace cx3 --op write-read --batch 2");
    assert_snapshot!(refused.refused(2), @"error: --batch is for one kind of request: write-read has two");
    let refused = place.run("model trace cx3 --by read --transport ud");
    assert_snapshot!(refused.refused(2), @"error: --by read over ud: only RC has READ");
    let refused = place.run("model trace cx3 --by send --transport ud --size 5K");
    assert_snapshot!(refused.refused(2), @"error: --by send over ud: a message of 5 KiB exceeds the path MTU of 4 KiB");
    let refused = place.run("model trace cx3 --op cas --transport ud --batch 2");
    assert_snapshot!(refused.refused(2), @"error: blast cas has no transport ud: only reliable transports have RDMA READ and atomics; choose rc");
    let refused = place.run("model trace cx3 --op read --batch 2 --inline");
    assert_snapshot!(refused.refused(2), @"error: RDMA READ cannot be inline: its request carries no payload; leave inline out");
}

/// Its rounds are longer than a short run.
#[test]
fn a_long_reply_has_a_whole_round() {
    let long = trace("cx --by read --size 1M");
    assert!(long["round_ns"].as_f64().unwrap() > 5e5, "{long}");
}

#[test]
fn a_message_is_drawn_in_lanes_from_one_cpu_to_the_other() {
    let place = Place::new();
    let args = "model trace cx3 --op write --size 32 --inline --svg write.svg";
    let text = place.run(args).ok().out;
    let lanes: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once('│'))
        .map(|(name, _)| name.trim())
        .collect();
    let expected = [
        "client CPU",
        "client PCIe",
        "client NIC",
        "wire",
        "server NIC",
        "server PCIe",
        "server CPU",
    ];
    assert_eq!(lanes, expected, "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 120),
        "{text}"
    );
    for what in [
        "build WQE",
        "MMIO, 128 B",
        "tx",
        "rx",
        "DMA write of payload, 32 B",
    ] {
        assert!(text.contains(what), "{what}: {text}");
    }
    let svg = fs::read_to_string(place.path("write.svg")).unwrap();
    assert!(svg.starts_with("<svg xmlns="), "{svg}");
    assert!(svg.contains("prefers-color-scheme: dark"), "{svg}");
    for lane in expected {
        assert!(svg.contains(&format!(">{lane}</text>")), "{lane}: {svg}");
    }
}

#[test]
fn runs_that_cannot_be_traced_are_refused_by_name() {
    let refused = |args: &str| {
        Place::new()
            .run(&format!("model trace {args}"))
            .refused(2)
            .to_owned()
    };
    assert_snapshot!(refused("--op send"), @"error: which hardware? Name a preset, such as cx3 (`adverb model list`)");
    assert_snapshot!(refused("--device soft --op send"), @"error: --device soft: only a model can be traced; name one, such as model:cx3");
    assert_snapshot!(refused("cx3 --op read --inline"), @"error: RDMA READ cannot be inline: its request carries no payload; leave inline out");
    assert_snapshot!(refused("cx3 --op write --completion event"), @"error: ping write has no completion events: an RDMA WRITE raises none at its target, which therefore polls its memory; choose poll, or write-imm");
    assert_snapshot!(refused("cx3 --device model:cx3 --op send"), @"error: [PRESET] cannot be used with --device: leave out one of them");
    assert!(refused("cx33 --op send").contains("did you mean cx3?"));
}

#[test]
fn a_trace_that_cannot_be_written_is_one_line() {
    let place = Place::new();
    let run = place.run("model trace cx3 --op send --svg nowhere/x.svg");
    let line = run.refused(1);
    assert!(
        line.starts_with("error: cannot write nowhere/x.svg: "),
        "{line}"
    );
}

#[test]
fn a_wrong_preset_is_shown_with_name_value_and_line() {
    let place = Place::new();
    let shown = |line: &str| {
        let text = format!("name = \"mine\"\nextends = \"cx3\"\n[nic]\n{line}\n");
        fs::write(place.path("mine.toml"), text).unwrap();
        let run = place.run("model show mine.toml");
        let line = run.refused(1).to_owned();
        let folder = format!("{}/", place.path("").canonicalize().unwrap().display());
        line.replace(&folder, "")
    };
    assert_snapshot!(shown("tx_n = { value = 1, source = \"x\" }"), @"error: mine.toml:4: there is no parameter 'nic.tx_n'; did you mean nic.tx_ns?");
    assert_snapshot!(shown("tx_ns = { value = \"fast\", source = \"x\" }"), @r#"error: mine.toml:4: nic.tx_ns = { value = "fast", source = "x" } is impossible: write { value = NUMBER, source = "WHERE FROM" }"#);
    assert_snapshot!(shown("tx_ns = { value = 1e9, source = \"x\" }"), @"error: mine.toml:4: nic.tx_ns = 1000000000 is impossible: 0 to 100000");
    assert_snapshot!(shown("tx_ns = { value = 7 }"), @r#"error: mine.toml:4: nic.tx_ns = { value = 7 } is impossible: write { value = NUMBER, source = "WHERE FROM" }"#);
    assert_snapshot!(shown("tx_ns = 7"), @r#"error: mine.toml:4: nic.tx_ns = 7 is impossible: write { value = NUMBER, source = "WHERE FROM" }"#);
}

#[test]
fn a_bare_device_is_shown_and_is_no_device_of_verbs() {
    let show = Place::new().run("model show netfpga_hsw").ok();
    assert!(show.out.starts_with("netfpga_hsw\n"), "{}", show.out);
    let run = Place::new().run("model trace netfpga_hsw --op send");
    let line = run.refused(1);
    assert!(line.contains("netfpga_hsw is a bare PCIe device"), "{line}");
}

#[test]
fn the_columns_of_published_values_are_explained() {
    let run = Place::new().run("model validate --columns").ok();
    for column in [
        "| id |",
        "| preset |",
        "| outstanding |",
        "**blast_outbound**",
    ] {
        assert!(run.out.contains(column), "{column}: {}", run.out);
    }
    let run = Place::new().run("model validate --columns --json");
    assert_snapshot!(run.refused(2), @"error: --columns cannot be used with --json: leave out one of them");
}
