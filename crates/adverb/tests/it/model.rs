//! The model at the command line: `--device model:PRESET`, `--preset FILE`, `adverb model`.

use std::fs;

use crate::common::{Place, cpu_time_of, end_of, records, signal, wait_for};
use insta::assert_snapshot;
use rustix::process::Signal;
use serde_json::Value;

/// A preset of a user's, on line 4 with one parameter.
fn preset(line: &str) -> String {
    format!("name = \"mine\"\nextends = \"cx3\"\n[link]\n{line}\n")
}

/// All that has to be equal in equal commands: everything but the time of day.
fn timeless(mut records: Vec<Value>) -> Vec<Value> {
    for record in &mut records {
        record["provenance"]["started"] = Value::Null;
    }
    records
}

#[test]
fn a_record_of_the_model_says_what_it_is_of() {
    let args = "ping --op send --device model:cx3 --json";
    let record = &Place::new().run(args).record();
    assert_eq!(record["device"]["kind"], "model");
    assert_eq!(record["device"]["name"], "cx3");
    assert_eq!(record["provenance"]["virtual_time"], true);
    assert_eq!(record["provenance"]["device"]["preset"], "cx3");
    assert_eq!(record["params"]["active_core"], Value::Null);
    for side in ["active", "passive"] {
        let sent = record["counters"][side]["sent_messages"].as_u64().unwrap();
        let rounds = record["params"]["iters"].as_u64().unwrap();
        assert!(sent > rounds, "{side}: {sent} messages, {rounds} rounds");
    }
    let elapsed = record["metrics"]["elapsed_ns"].as_f64().unwrap();
    assert!(
        (9e6..11e6).contains(&elapsed),
        "10 ms of virtual time: {elapsed} ns"
    );
}

#[test]
fn duration_is_virtual_time() {
    let args = "blast --op write --device model:cx3 --duration 3ms --json";
    let record = &Place::new().run(args).record();
    let elapsed = record["metrics"]["elapsed_ns"].as_f64().unwrap();
    assert!((2.5e6..3.5e6).contains(&elapsed), "{elapsed} ns");
}

#[test]
fn equal_commands_give_equal_records() {
    let place = Place::new();
    let blast = "blast --op send --size 1..64K --device model:connect_ib --verify --json";
    let once = timeless(place.run(blast).ok().json());
    assert_eq!(once.len(), 17);
    assert_eq!(once, timeless(place.run(blast).ok().json()));
}

#[test]
fn a_study_of_the_model_is_ordered_and_repeatable_to_the_bit() {
    let place = Place::new();
    let study = |out| {
        let args = "study --device model:connect_ib --only fig1,rank-rtt";
        let ended = place.run(&format!("{args} --out {out}")).ok();
        assert!(
            ended.out.ends_with(&format!("{out}/report.html\n")),
            "{}",
            ended.out
        );
        timeless(records(&place.path(out)))
    };
    let records = study("one");
    assert_eq!(records, study("two"));
    let meta = fs::read_to_string(place.path("one/study.json")).unwrap();
    let meta: Value = serde_json::from_str(&meta).unwrap();
    let cells: Vec<&Value> = records.iter().map(|record| &record["cell"]).collect();
    let planned: Vec<&Value> = meta["planned"].as_array().unwrap().iter().collect();
    assert_eq!(cells, planned);
    assert!(place.shm_files().is_empty());
}

#[test]
fn a_study_goes_on_and_measures_again_what_a_changed_preset_makes_stale() {
    let place = Place::new();
    let file = place.path("mine.toml");
    fs::write(&file, preset("gbps = { value = 10, source = \"slow\" }")).unwrap();
    let study = "study --only rank-rtt --out s --json";
    let first = place.run(&format!("{study} --preset mine.toml"));
    let first = &first.record();
    let details = &records(&place.path("s"))[0]["provenance"]["device"];
    assert_eq!(details["preset"], "mine");
    assert_eq!(details["link.gbps"], "10");
    assert_eq!(details["nic.tx_ns"], Value::Null, "not changed, not named");

    let resume = "study --resume --out s --json";
    let again = &place.run(resume).record();
    assert_eq!(again["skipped"], first["ok"]);
    fs::write(&file, preset("gbps = { value = 20, source = \"faster\" }")).unwrap();
    let changed = &place.run(resume).record();
    assert_eq!(changed["ok"], first["ok"]);
    assert_eq!(changed["skipped"], 0);
}

/// A program of several members, too.
#[test]
fn a_program_is_measured_again_with_a_changed_preset() {
    let place = Place::new();
    let file = place.path("mine.toml");
    let line = "closed-loop --op read --preset mine.toml --out s --resume";
    for (gbps, expected) in [(10, 1), (10, 1), (20, 2)] {
        let limit = format!("gbps = {{ value = {gbps}, source = \"any\" }}");
        fs::write(&file, preset(&limit)).unwrap();
        place.run(line).ok();
        assert_eq!(records(&place.path("s")).len(), expected);
    }
}

#[test]
fn a_copy_of_a_preset_does_not_pass_for_the_original() {
    let place = Place::new();
    let copy = "name = \"cx3\"\nextends = \"cx3\"\n";
    fs::write(place.path("copy.toml"), copy).unwrap();
    let args = "ping --op send --preset copy.toml --json";
    let record = &place.run(args).record();
    assert_eq!(record["device"]["name"], "copy.toml");
}

#[test]
fn a_cell_beyond_its_budget_is_a_record_that_says_who_waits_for_what() {
    let place = Place::new();
    let cable = "cable_ns = { value = 1e9, source = \"to the moon\" }";
    fs::write(place.path("moon.toml"), preset(cable)).unwrap();
    let ended = place.run("ping --op send --iters 100 --preset moon.toml --json");
    assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.talk);
    let record = &ended.json()[0];
    assert_eq!(record["status"], "failed");
    assert_eq!(record["metrics"], Value::Null);
    let reason = record["reason"].as_str().unwrap();
    let late = "not finished after 120 s of virtual time; active waits for ";
    assert!(reason.starts_with(late), "{reason}");
    assert!(
        reason.contains(" waits for a completion in queue"),
        "{reason}"
    );
    assert!(ended.talk.contains(reason), "{}", ended.talk);
}

#[test]
fn an_interrupt_ends_a_long_cell() {
    let place = Place::new();
    let child = place.spawn("blast --op write --size 8 --device model:cx3 --duration 100s");
    wait_for("a running cell", || cpu_time_of(child.id()).own > 20);
    signal(child.id(), Signal::INT);
    let ended = end_of(child);
    assert_eq!(ended.code, Some(130), "{}", ended.talk);
    assert_eq!(ended.talk.trim_end(), "error: interrupted");
}

#[test]
fn options_without_meaning_in_virtual_time_are_refused_by_name() {
    let refused = |args: &str| Place::new().run(args).refused(2).to_owned();
    assert_snapshot!(refused("ping --op send --device model:cx3 --cpu 0,1"), @"error: --cpu 0,1: model:cx3 is a model: both sides run in virtual time in this process; leave it out");
    assert_snapshot!(refused("blast --op send --device model:cx3 --no-pin"), @"error: --no-pin: model:cx3 is a model: both sides run in virtual time in this process; leave it out");
    assert_snapshot!(refused("study --device model:cx3 --peer nodeb"), @"error: --peer nodeb:18600: model:cx3 is a model: both sides run in virtual time in this process; leave it out");
    assert_snapshot!(refused("serve --device model:cx3"), @"error: --device: model:cx3 is a model: both sides run in virtual time in one process, and nothing is served");
    assert_snapshot!(refused("doctor --device model:cx3"), @"error: --device model:cx3: a model needs nothing from this machine, so there is nothing to check");
    assert_snapshot!(refused("ping --op send --device soft --preset mine.toml"), @"error: --device cannot be used with --preset: leave out one of them");
    assert_snapshot!(refused("ping --op send --device model:cx3 --size 1K --inline"), @"error: 1 KiB inline: this device takes at most 912 B; choose a smaller size or no inline");
}

#[test]
fn an_unknown_preset_gets_the_near_one() {
    let place = Place::new();
    let run = place.run("study --device model:conect_ib");
    let line = run.refused(2);
    assert!(
        line.contains("there is no preset 'conect_ib'; did you mean connect_ib?"),
        "{line}"
    );
    let run = place.run("model show cx33");
    assert!(run.refused(2).contains("did you mean cx3?"));
    let run = place.run("model show connectx9");
    assert_snapshot!(run.refused(2), @"error: <PRESET>: there is no preset 'connectx9'; did you mean connect_ib? The newest are cx7, cx6dx and cx5_skylake; for other hardware write a file that extends one (docs/model.md)");
}

#[test]
fn a_wrong_preset_file_is_refused_with_name_value_and_line() {
    let place = Place::new();
    let refused = |text: String| {
        fs::write(place.path("mine.toml"), text).unwrap();
        let run = place.run("ping --op send --preset mine.toml");
        let line = run.refused(1).to_owned();
        let folder = format!("{}/", place.path("").canonicalize().unwrap().display());
        line.replace(&folder, "")
    };
    assert_snapshot!(refused(preset("gpbs = { value = 10, source = \"x\" }")), @"error: mine.toml:4: there is no parameter 'link.gpbs'; did you mean link.gbps?");
    assert_snapshot!(refused(preset("gbps = { value = -1, source = \"x\" }")), @"error: mine.toml:4: link.gbps = -1 is impossible: 0.01 to 10000");
    let base = "name = \"mine\"\nextends = \"cx33\"\n".to_owned();
    assert_snapshot!(refused(base), @"error: mine.toml:2: extends = 'cx33', but there is no such preset; did you mean cx3?");
    assert_snapshot!(refused(preset("mtu_bytes = { value = 4096, source = \"x\" }\nbuffer_bytes = { value = 2048, source = \"x\" }")), @"error: mine.toml: link.mtu_bytes = 4096 exceeds link.buffer_bytes = 2048, but a packet is sent when there are credits for all of it");
    let run = place.run("ping --op send --preset nowhere.toml");
    let line = run.refused(1);
    assert!(
        line.contains("cannot read the preset file") && line.contains("No such file"),
        "{line}"
    );
}

#[test]
fn presets_are_listed_with_what_supports_them() {
    let place = Place::new();
    let list = place.run("model list").ok().out;
    let of_support = |line: &&str| line.starts_with(' ');
    let list: String = list
        .split_inclusive('\n')
        .filter(|l| !of_support(l))
        .collect();
    let names = place.run("model list --json").ok().json();
    assert_eq!(list.lines().count(), names.len());
    let devices = place.run("devices").ok().out;
    let nics: String = list
        .split_inclusive('\n')
        .filter(|l| l.starts_with("model:"))
        .collect();
    assert!(devices.ends_with(&nics), "{devices}");
    for (line, preset) in list.lines().zip(&names) {
        let name = preset["name"].as_str().unwrap();
        let start = match preset["kind"].as_str() {
            Some("nic") => format!("model:{name} "),
            _ => format!("{name} "),
        };
        assert!(line.starts_with(&start), "{line}");
    }
    let limits = place.run("devices --device model:cx3").ok().out;
    assert!(limits.contains("max_inline_data"), "{limits}");
}

#[test]
fn a_preset_is_shown_with_units_and_sources() {
    let place = Place::new();
    let text = place.run("model show cx3").ok().out;
    assert!(text.starts_with("model:cx3\nConnectX-3"), "{text}");
    assert!(
        text.contains("\nnic.tx_ns = ") && text.contains("\n    source: "),
        "{text}"
    );
    let shown = &place.run("model show cx3 --json").record();
    for parameter in shown["parameters"].as_array().unwrap() {
        assert!(parameter["value"].is_number(), "{parameter}");
        assert!(
            !parameter["source"].as_str().unwrap().is_empty(),
            "{parameter}"
        );
    }
}

#[test]
fn no_verbs_run_on_a_bare_device() {
    let place = Place::new();
    let run = place.run("ping --op send --device model:nfp6000_hsw");
    assert_snapshot!(run.refused(1), @"error: nfp6000_hsw is a bare PCIe device, without queue pairs: no verbs run on it, only the DMA programs of `adverb model validate`");
    let text = place.run("model show nfp6000_hsw").ok().out;
    assert!(
        text.contains("\ndevice.issue_ns = ") && !text.contains("nic."),
        "{text}"
    );
}

/// Compares all rows: about 40 s of one core.
#[test]
fn the_list_says_what_validation_prints_of_each_preset() {
    let place = Place::new();
    let table = include_str!("../../../model/hwmodel/presets/support.csv");
    let printed = place.run("model validate --support").ok().out;
    assert_eq!(
        printed, table,
        "if the model has changed: adverb model validate --support >presets/support.csv"
    );
    let list = place.run("model list").ok().out;
    let supported = "1 published value, 30.1 % off";
    assert!(
        list.contains(&format!("\n{:22}{supported}\n", "")),
        "{list}"
    );
    let ended = place
        .run("ping --op send --iters 50 --device model:cx5")
        .ok();
    let talk = format!("model:cx5 is a model: {supported}\n");
    assert_eq!(ended.talk, talk);
}

#[test]
fn published_values_are_predicted_row_by_row() {
    let place = Place::new();
    let rows = place.run("model validate --only program=ping --json");
    let rows = rows.ok().json();
    let predicted = rows
        .iter()
        .filter(|row| row["predicted"].is_number())
        .count();
    assert!(predicted >= 10, "{predicted} of {} rows", rows.len());
    for row in &rows {
        let is_predicted = row["predicted"].is_number();
        assert_eq!(row["reason"].is_null(), is_predicted, "{row}");
    }
    let args = "model validate --only program=ping --worst 3";
    let text = place.run(args).ok().out;
    assert!(text.contains("\nscore of "), "{text}");
    let run = place.run("model validate --only preset=cx5 --intervals 3");
    let text = run.ok().out;
    assert!(text.contains("\nintervals of  meet  width\n"), "{text}");
    let run = place.run("model validate --only pong");
    assert!(run.refused(2).starts_with("error: --only: no row has "));
}

#[test]
fn headlines_are_told_in_words_and_as_json() {
    let place = Place::new();
    let text = place.run("model validate --headlines").ok().out;
    for words in [
        "A sequencer: 2.2, 7, 16.6, 27.4, 97.2, 122 M/s",
        "  FETCH_ADD: the NIC counts ",
        "inside, fitted",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let rows = place.run("model validate --headlines --json").ok().json();
    let told = text.lines().skip(1).filter(|line| line.starts_with("  "));
    assert_eq!(told.count(), rows.len(), "{text}");
    let run = place.run("model validate --headlines --worst 3");
    assert!(run.refused(2).contains("--headlines"), "{}", run.talk);
}

#[test]
fn rows_are_drawn_into_a_file_that_needs_no_other() {
    let place = Place::new();
    let args = "model validate --only program=ping --svg ping.svg --json";
    let rows = place.run(args).ok().json();
    let svg = fs::read_to_string(place.path("ping.svg")).unwrap();
    assert!(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>"));
    assert!(!svg.contains("href"), "refers to nothing");
    let graded = rows.iter().filter(|row| row["status"] != "ungraded");
    assert_eq!(svg.matches("class=\"pt\"").count(), graded.count());
    let run = place.run("model validate --only program=ping --svg nowhere/ping.svg");
    assert!(run.refused(1).contains("cannot write nowhere/ping.svg"));
}

#[test]
fn a_row_with_a_bad_number_is_named_by_line_and_column() {
    let place = Place::new();
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../model/validate/data/calibration.csv"
    );
    let text = fs::read_to_string(shipped).unwrap();
    let bad = text.replacen(",ns_per_op,300,", ",ns_per_op,fast,", 1);
    assert_ne!(bad, text);
    fs::write(place.path("bad.csv"), bad).unwrap();
    let args = "model validate --data bad.csv --only MAC-04 --json";
    // A row's name is not a selection; its curve is.
    assert!(place.run(args).refused(2).contains("no row has"));
    let args = args.replace("MAC-04", "Fig3a");
    let row = &place.run(&args).record();
    assert_eq!(row["status"], "cannot");
    assert_eq!(
        row["reason"],
        "bad.csv, line 2, column value: 'fast' is not a number"
    );
    let cut = text.replacen(",ns_per_op,300,ns,", ",ns_per_op,300,", 1);
    fs::write(place.path("cut.csv"), cut).unwrap();
    let run = place.run("model validate --data cut.csv");
    assert_snapshot!(run.refused(1), @"error: cut.csv, line 2 has 61 cells where the header has 62; quote a cell that holds a comma");
}

#[test]
fn a_data_file_is_a_users_own() {
    let place = Place::new();
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../model/validate/data/calibration.csv"
    );
    let text = fs::read_to_string(shipped).unwrap();
    fs::write(
        place.path("mine.csv"),
        text.replace(",mlx4_westmere,", ",mlx4_eastmere,"),
    )
    .unwrap();
    let rows = place.run("model validate --data mine.csv --only ping --json");
    let reasons = rows.ok().out;
    assert!(
        reasons.contains("no preset 'mlx4_eastmere'; near: mlx4_westmere"),
        "{reasons}"
    );
    let args = "model validate --data mine.csv --only ping --worst 1";
    let worst = place.run(args).ok().out;
    assert!(
        worst.contains("cannot: no preset 'mlx4_eastmere'"),
        "{worst}"
    );

    fs::write(
        place.path("cut.csv"),
        text.replacen("outstanding,", "outstandin,", 1),
    )
    .unwrap();
    let run = place.run("model validate --data cut.csv");
    let line = run.refused(1);
    assert!(
        line.starts_with("error: cut.csv has no column 'outstanding' (is 'outstandin' it?)"),
        "{line}"
    );
}

#[test]
fn rows_go_on_or_say_why_they_cannot() {
    let place = Place::new();
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../model/validate/data/calibration.csv"
    );
    let text = fs::read_to_string(shipped).unwrap();
    let changed = |id: &str, from: &str, to: &str| {
        let row = text.lines().find(|line| line.starts_with(id)).unwrap();
        let changed = row.replacen(from, to, 1);
        assert_ne!(changed, row);
        changed
    };
    let rows = [
        // A window that no whole number of lists fills.
        changed(
            "K16-020,",
            ",16,continuous,16,4,127,,",
            ",16,window,16,4,127,100,",
        ),
        changed("K16-015,", ",SEND,UD,32,", ",SEND,UD,8192,"),
        changed("RB-ATOM-1,", ",FETCH_ADD,", ",SEND,"),
        changed("RBS-apt11R-S32-V1", ",READ,RC,", ",SEND,RC,"),
        changed("MAC-04,", ",8,,,1,1,", ",8,,,1,65536,"),
    ];
    let header = text.lines().next().unwrap();
    fs::write(
        place.path("mine.csv"),
        format!("{header}\n{}\n", rows.join("\n")),
    )
    .unwrap();
    let run = place.run("model validate --data mine.csv --json");
    let rows = run.ok().json();
    assert!(
        rows[0]["predicted"].as_f64().is_some_and(|rate| rate > 1e6),
        "{}",
        rows[0]
    );
    let reasons: Vec<_> = rows[1..]
        .iter()
        .map(|row| row["reason"].as_str().unwrap())
        .collect();
    assert_snapshot!(reasons.join("\n"), @"
    datagram of 8 KiB exceeds the path MTU 4 KiB
    atomics with SEND, which is not an atomic operation
    symmetric with SEND over RC: its threads post no receives
    the model runs no program with more than 1024 peers
    ");
}

#[test]
fn a_preset_of_this_host_is_measured_and_can_be_used() {
    let place = Place::new();
    place
        .run("model calibrate --nic cx6dx --out mine.toml")
        .ok();
    let shown = place.run("model show mine.toml").ok().out;
    assert!(shown.contains("source: measured on "), "{shown}");
    let record = place
        .run("ping --op send --json --preset mine.toml")
        .record();
    let name = record["provenance"]["device"]["preset"].as_str().unwrap();
    assert!(name.starts_with("cx6dx_"), "{name}");
}

#[test]
fn a_calibration_refuses_what_is_no_nic() {
    for (nic, reason) in [
        ("cx66", "there is no preset 'cx66'"),
        (
            "netfpga_hsw",
            "--nic: netfpga_hsw is a bare PCIe device, not a NIC",
        ),
    ] {
        let run = Place::new().run(&format!("model calibrate --nic {nic}"));
        assert!(run.refused(2).contains(reason), "{nic}");
    }
}
