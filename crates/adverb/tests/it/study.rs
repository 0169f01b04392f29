//! `study` and `report` on a small study: what they leave, and what interruptions leave.

use std::fs;
use std::path::Path;

use crate::common::{Place, end_of, records, sides_of, signal, signal_if_there, wait_for};
use insta::assert_snapshot;
use rustix::process::Signal;
use serde_json::Value;

/// The smallest figure.
const SMALL: &str = "study --only rank-rtt --out s";

/// Passes of a quick study on a real device.
const PASSES: usize = 3;

/// Cells that were measured in every pass.
fn cells(dir: &Path) -> Vec<String> {
    let mut runs: Vec<(String, Value)> = records(dir)
        .iter()
        .filter(|r| r["status"] == "ok")
        .map(|r| (r["cell"].as_str().unwrap().to_owned(), r["pass"].clone()))
        .collect();
    let all = runs.len();
    runs.sort_unstable_by_key(|(cell, pass)| (cell.clone(), pass.as_u64()));
    runs.dedup();
    assert_eq!(runs.len(), all, "no cell was measured twice in a pass");
    let runs = runs.chunk_by(|a, b| a.0 == b.0);
    let whole = runs.filter(|runs| runs.len() == PASSES || runs[0].1.is_null());
    whole.map(|runs| runs[0].0.clone()).collect()
}

fn planned(dir: &Path) -> Vec<String> {
    let meta = fs::read_to_string(dir.join("study.json")).unwrap();
    let meta: Value = serde_json::from_str(&meta).unwrap();
    let mut planned: Vec<String> = meta["planned"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap().to_owned())
        .collect();
    planned.sort_unstable();
    planned
}

/// Records of cells that failed.
fn failed(dir: &Path) -> Vec<Value> {
    let mut records = records(dir);
    records.retain(|r| r["status"] == "failed");
    records
}

/// Kills the passive side of a cell, and waits for its record. A cell is short: one that has just ended
/// by itself when its side is to be killed is none the worse for it, and the next one is taken.
#[track_caller]
fn kill_in_a_cell(place: &Place, study: u32) {
    let has_failed = || !failed(&place.path("s")).is_empty();
    wait_for("a killed side", || {
        let Some(sides) = sides_of(study).filter(|_| place.shm_files().len() > 4) else {
            return false;
        };
        let _ = signal_if_there(sides.1, Signal::KILL);
        wait_for("the record of the cell, or the next one", || {
            has_failed() || sides_of(study).is_some_and(|now| now != sides)
        });
        has_failed()
    });
}

#[track_caller]
fn check_report(dir: &Path) {
    let html = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(html.contains("</html>"), "cut report");
    let rows = fs::read_to_string(dir.join("results.csv")).unwrap();
    assert!(rows.lines().count() > 1, "{rows}");
}

#[test]
fn the_experiments_are_listed_with_title_source_and_figures() {
    let place = Place::new();
    let own = place.run("study --study numa --list").ok().out;
    assert!(
        own.starts_with("NUMA") && own.contains("\n  numa2") && !own.contains("fig1"),
        "{own}"
    );
    let listed = place.run("study --list").ok().out;
    for line in [
        "A performance study to guide RDMA programming decisions (P. MacArthur and R. D. Russell, HPCC 2012)",
        "  fig6      Signaling every request, or fewer",
        "What a long or lossy path costs",
        "  loss      What loss costs: goodput and ping by share of packets lost",
    ] {
        assert!(listed.lines().any(|l| l == line), "{line}: {listed}");
    }
    let all = &place.run("study --list --json").record()["experiments"];
    assert_eq!(all[1]["title"], "Ways to program a 64-byte ping");
    assert_eq!(all[1]["figures"][0]["id"], "rank-rtt");
    assert_eq!(all[2]["source"], Value::Null);
}

#[test]
fn a_study_leaves_records_table_report_and_findings() {
    let place = Place::new();
    let dir = place.path("s");
    let ended = place.run(SMALL).ok();
    assert_eq!(cells(&dir), planned(&dir));
    check_report(&dir);
    assert_eq!(ended.out.lines().last(), Some("s/report.html"));
    assert!(ended.out.starts_with("- "), "{}", ended.out);
    let title = "Ways to program a 64-byte ping (R. D. Russell, OpenFabrics tutorial, 2013)\n";
    assert!(ended.talk.starts_with(title), "{}", ended.talk);
    let progress = ended.talk.lines().filter(|l| l.contains("runs, ")).count();
    assert!((2..=11).contains(&progress), "{}", ended.talk);
    assert!(place.shm_files().is_empty());
    let leftovers = fs::read_dir(&dir).unwrap().count();
    assert_eq!(
        leftovers, 4,
        "results.jsonl, results.csv, report.html, study.json"
    );

    // Resuming a finished study measures nothing and prints the same.
    let again = place.run("study --resume --out s").ok();
    assert_eq!(again.out, ended.out);
    assert_eq!(
        again.talk,
        "all 18 cells have been measured: nothing to do\n"
    );
    assert_eq!(cells(&dir), planned(&dir));

    // Without --resume it is not touched.
    let line = place.run(SMALL);
    assert_snapshot!(line.refused(2), @"error: s contains the results of an earlier study: add --resume to continue it, or choose another --out");
    // Nor does it become another study.
    let other = place.run("study --resume --out s --profile full");
    assert_snapshot!(other.refused(2), @"error: --profile full: the folder's study has --profile quick; leave out --profile, or choose another --out");

    let summary = place.run("study --resume --out s --json").ok();
    let summary = &summary.json()[0];
    assert_eq!(summary["report"], "s/report.html");
    assert_eq!(summary["skipped"], summary["planned"]);
    assert!(!summary["findings"].as_array().unwrap().is_empty());
}

#[test]
fn repetitions_are_spread_over_passes_and_shown_together() {
    let place = Place::new();
    let dir = place.path("s");
    let ended = place.run(&format!("{SMALL} --json")).ok();
    let planned = planned(&dir);
    let summary = &ended.json()[0];
    for count in ["planned", "ok"] {
        assert_eq!(summary[count], planned.len() * PASSES, "{summary}");
    }
    let records = records(&dir);
    for (number, pass) in (1..).zip(records.chunks(planned.len())) {
        for record in pass {
            assert_eq!(record["pass"], number, "a pass ends before the next begins");
            let repetitions = record["metrics"]["repetitions"].as_array().unwrap();
            assert_eq!(repetitions.len(), 1, "a start of the processes for each");
            assert_eq!(record["metrics"]["one_way_ns"]["ci95"], Value::Null);
        }
    }
    let table = fs::read_to_string(dir.join("results.csv")).unwrap();
    let mut rows = table.lines().map(|row| row.split(',').collect::<Vec<_>>());
    let names = rows.next().unwrap();
    let interval = names.iter().position(|n| *n == "one_way_mean_ci95_ns");
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), planned.len(), "one row for all passes");
    let has_interval = |row: &Vec<&str>| row[interval.unwrap()].parse::<f64>().unwrap() > 0.0;
    assert!(rows.iter().all(has_interval), "{table}");
    let same = place.run("compare s s --json").ok();
    let same = same.json();
    assert!(!same.is_empty());
    for change in same {
        assert_eq!(change["verdict"], "unchanged", "{change}");
    }
}

#[test]
fn a_study_of_one_repetition_gets_more_when_it_is_resumed() {
    let place = Place::new();
    let dir = place.path("s");
    place.run(&format!("{SMALL} --repetitions 1")).ok();
    let planned = planned(&dir);
    assert_eq!(records(&dir).len(), planned.len());
    assert!(records(&dir).iter().all(|record| record["pass"] == 1));
    place.run("study --resume --out s --repetitions 2").ok();
    assert_eq!(records(&dir).len(), 2 * planned.len());
    let model = place.run("study --device model:cx3 --repetitions 2 --out m");
    assert_snapshot!(model.refused(2), @"error: --repetitions: virtual time has no noise, so a model repeats only what loses packets; leave it out");
    assert!(!place.path("m").exists());
}

#[test]
fn a_study_of_a_model_repeats_what_loses_packets() {
    let place = Place::new();
    let dir = place.path("s");
    let repetitions = || {
        let records = records(&dir);
        let last = records.last().unwrap();
        last["metrics"]["repetitions"].as_array().unwrap().len()
    };
    let study = "study --only loss --device model:cx3 --repetitions 2 --out s";
    place.run(study).ok();
    assert_eq!(repetitions(), 2);
    place.run("study --resume --repetitions 4 --out s").ok();
    assert_eq!(repetitions(), 4);
}

/// It measures each cell once, and has no noise.
#[test]
fn a_study_of_a_model_compares_its_cells() {
    let place = Place::new();
    let study = "study --device model:mt26428_qdr --only fig1,fig3 --out s";
    let out = place.run(study).ok().out;
    for finding in [
        "busy polling is faster",
        "Inlining makes",
        "Posting lists makes",
    ] {
        assert!(out.contains(finding), "no '{finding}' in {out}");
    }
}

#[test]
fn a_study_goes_on_in_the_middle_of_a_pass() {
    let place = Place::new();
    let dir = place.path("s");
    let child = place.spawn(SMALL);
    wait_for("the second pass", || {
        records(&dir).iter().any(|r| r["pass"] == 2)
    });
    signal(child.id(), Signal::INT);
    let ended = end_of(child);
    let last = ended.talk.lines().last().unwrap();
    assert!(last.contains(" of 54 runs left: "), "{last}");
    let before = records(&dir).len();
    assert!(
        last.contains(&format!(" {} of ", 54 - before)),
        "{last}: {before} are there"
    );
    check_report(&dir);
    place.run("study --resume --out s").ok();
    assert_eq!(cells(&dir), planned(&dir));
    assert_eq!(records(&dir).len(), 54);

    // A record of all repetitions, as earlier versions wrote, needs no passes.
    let mut lines: Vec<Value> = records(&dir);
    lines.retain_mut(|record| {
        let is_first = record["pass"] == 1;
        record.as_object_mut().unwrap().remove("pass");
        is_first
    });
    let lines: Vec<String> = lines.iter().map(|record| format!("{record}\n")).collect();
    fs::write(dir.join("results.jsonl"), lines.concat()).unwrap();
    let again = place.run("study --resume --out s").ok();
    assert!(again.talk.contains("nothing to do"), "{}", again.talk);
}

#[test]
fn figures_can_be_added_to_a_study() {
    let place = Place::new();
    let dir = place.path("s");
    let child = place.spawn(SMALL);
    wait_for("a cell", || !records(&dir).is_empty());
    signal(child.id(), Signal::INT);
    end_of(child);
    let rank = planned(&dir);

    let child = place.spawn("study --resume --out s --only fig3");
    let blast = |r: &Value| r["program"] == "blast";
    wait_for("a cell of the other figure", || {
        records(&dir).iter().any(blast)
    });
    signal(child.id(), Signal::INT);
    end_of(child);
    let both = planned(&dir);
    assert!(both.len() > rank.len());
    assert!(rank.iter().all(|cell| both.contains(cell)));
    assert_eq!(
        records(&dir).iter().filter(|r| !blast(r)).count(),
        1,
        "only those asked for"
    );
}

#[test]
fn killed_and_resumed() {
    let place = Place::new();
    let dir = place.path("s");
    let mut child = place.spawn(SMALL);
    wait_for("three cells", || records(&dir).len() >= 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = records(&dir);
    assert!(before.len() < planned(&dir).len());

    place.run("study --resume --out s").ok();
    assert_eq!(cells(&dir), planned(&dir));
    assert_eq!(
        records(&dir)[..before.len()],
        before,
        "earlier records stay as they were"
    );
    check_report(&dir);
}

#[test]
fn ctrl_c_leaves_a_report_and_says_how_to_go_on() {
    let place = Place::new();
    let dir = place.path("s");
    let child = place.spawn(SMALL);
    wait_for("two cells", || records(&dir).len() >= 2);
    signal(child.id(), Signal::INT);
    let ended = end_of(child);
    assert_eq!(ended.code, Some(130));
    let last = ended.talk.lines().last().unwrap();
    assert!(last.starts_with("error: interrupted with "), "{last}");
    assert!(
        last.ends_with("continue with `adverb study --resume --out s`"),
        "{last}"
    );
    check_report(&dir);
    assert!(place.shm_files().is_empty(), "{:?}", place.shm_files());
}

/// The report names the figures that the device cannot fill, and how to measure the others again.
#[test]
fn a_study_of_programs_is_resumed_with_the_parameters_in_its_folder() {
    let place = Place::new();
    let dir = place.path("s");
    let line = "study --study numa --only numa2,numa5d,sync --device model:cx7 --out s";
    let child = place.spawn(line);
    wait_for("two cells", || records(&dir).len() >= 2);
    signal(child.id(), Signal::INT);
    let ended = end_of(child);
    assert_eq!(ended.code, Some(130));
    assert_eq!(
        ended.talk.lines().last(),
        Some("error: interrupted: continue with `adverb study --resume --out s`")
    );
    let kept = records(&dir).len();
    let planned = planned(&dir);
    let report = || fs::read_to_string(place.path("s/report.html")).unwrap();
    let missing = format!("{kept} of {} planned cells are here", planned.len());
    assert!(report().contains(&missing), "{missing}");

    let again = place.run("study --resume --out s --json").ok().record();
    assert_eq!(again["skipped"], kept);
    assert_eq!(cells(&dir), planned);
    let report = report();
    assert!(report.contains("Memory and caches of this machine, by node: it is measured"));
    assert!(report.contains(&format!("adverb {line}")));
    assert!(!report.contains("planned cells are here"));

    let refused = |more: &str| {
        let ended = place.run(&format!("study --resume --out s {more}"));
        ended.refused(2).to_owned()
    };
    assert_snapshot!(refused("--study wan"), @"error: --study wan: the folder's study is another one; choose another --out");
    assert_snapshot!(refused("--profile full"), @"error: --profile full: the folder's study has --profile quick; leave out --profile, or choose another --out");
    assert_snapshot!(refused("--device model:cx3"), @"error: --device model:cx3: the folder's study has --device model:cx7; leave out --device, or choose another --out");
}

#[test]
fn a_study_of_several_addresses_is_resumed_at_all_of_them() {
    let place = Place::new();
    let dir = place.path("s");
    let child = place.spawn(
        "study --study guidelines --only ladder --device soft@127.48.2.1,soft@127.48.2.2 --out s",
    );
    wait_for("a cell", || !records(&dir).is_empty());
    signal(child.id(), Signal::INT);
    assert_eq!(end_of(child).code, Some(130));

    place.run("study --resume --out s").ok();
    let records = records(&dir);
    assert_eq!(cells(&dir), planned(&dir));
    for record in records {
        let mut roles = record["roles"].as_array().unwrap().iter();
        let is_at_both = roles.any(|role| role["device"] == "soft@127.48.2.2");
        assert!(is_at_both, "{record}");
    }
    let other = "study --resume --out s --device soft@127.48.2.1,soft@127.48.2.3";
    let refused = place.run(other).refused(2).to_owned();
    assert_snapshot!(refused, @"error: --device soft@127.48.2.1,soft@127.48.2.3: the folder's study has --device soft@127.48.2.1,soft@127.48.2.2; leave out --device, or choose another --out");
}

/// As far as the first cell that has lost packets, which is a fraction of the whole. Small
/// packets are many, so that a small share of them is some.
#[test]
fn a_study_of_loss_loses_packets_and_reports_what_that_costs() {
    let place = Place::new();
    let dir = place.path("s");
    let child = place.spawn("study --only loss --device soft@127.48.0.1 --mtu 256 --out s");
    let share = |r: &Value| r["params"]["impairment"]["loss"].as_f64().unwrap();
    let lost = |r: &Value| {
        let sides = ["active", "passive"].map(|side| &r["counters"][side]["impaired_lost_pkts"]);
        sides.iter().filter_map(|count| count.as_u64()).sum::<u64>()
    };
    let is_measured = |r: &Value| r["status"] == "ok";
    wait_for("a cell that has lost packets", || {
        let done = records(&dir);
        done.iter().filter(|r| is_measured(r)).any(|r| lost(r) > 0)
    });
    signal(child.id(), Signal::INT);
    let ended = end_of(child);
    assert_eq!(ended.code, Some(130), "{}", ended.talk);

    let planned = planned(&dir);
    for share in ["0", "0.0001", "0.001", "0.01", "0.05"] {
        let cells = planned
            .iter()
            .filter(|id| id.ends_with(&format!("/loss={share}")));
        assert_eq!(cells.count(), planned.len() / 5, "{planned:?}");
    }
    let done = records(&dir);
    let whole = |r: &&Value| is_measured(r) && share(r) == 0.0;
    assert!(done.iter().any(|r| whole(&r)), "nothing to compare with");
    assert!(done.iter().filter(whole).all(|r| lost(r) == 0));
    check_report(&dir);
    let page = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("id=\"loss\""), "no figure of it");
}

/// In virtual time, which is over sooner: a folder is the same on every device.
#[test]
fn a_cut_results_file_is_shown_and_completed() {
    let place = Place::new();
    let dir = place.path("s");
    place.run(&format!("{SMALL} --device model:cx3")).ok();
    let whole = planned(&dir);
    let path = dir.join("results.jsonl");
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..text.len() - 100]).unwrap();

    let shown = place.run("report s").ok();
    assert_eq!(shown.out, "s/report.html\n");
    assert!(
        shown.talk.starts_with("warning: s/results.jsonl:"),
        "{}",
        shown.talk
    );
    assert!(shown.talk.contains("was cut"), "{}", shown.talk);

    let resumed = place.run("study --resume --out s").ok();
    assert!(resumed.talk.contains("measured again"), "{}", resumed.talk);
    assert_eq!(cells(&dir), whole);
}

#[test]
fn a_cell_that_fails_is_recorded_and_the_study_goes_on() {
    let place = Place::new();
    let dir = place.path("s");
    let child = place.spawn(SMALL);
    kill_in_a_cell(&place, child.id());
    let ended = end_of(child);
    let line = ended.failed(1);
    assert!(line.contains("1 of 54 runs failed"), "{line}");
    let failed = failed(&dir);
    assert_eq!(failed.len(), 1, "{}", ended.talk);
    let reason = failed[0]["reason"].as_str().unwrap();
    assert_eq!(reason, "passive side: killed by signal 9");
    assert_eq!(failed[0]["metrics"], Value::Null);
    assert_eq!(cells(&dir).len() + 1, planned(&dir).len());
    let html = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(html.contains(reason), "the report names the reason");
    assert!(place.shm_files().is_empty());

    // Tried again, it is there.
    place.run("study --resume --out s").ok();
    assert_eq!(cells(&dir), planned(&dir));
    let html = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(!html.contains(reason), "the later record counts");
}

#[test]
fn folders_that_cannot_be() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    let out = |dir| place.run(&format!("study --only fig1 --out {dir}"));
    assert_snapshot!(out("file").refused(1), @"error: cannot make the folder file: choose another one with --out: File exists (os error 17)");
    assert_snapshot!(out("/proc/study").refused(1), @"error: cannot make the folder /proc/study: choose another one with --out: No such file or directory (os error 2)");
    let resume = |dir| place.run(&format!("study --resume --out {dir}"));
    assert_snapshot!(resume("nowhere").refused(1), @"error: folder nowhere does not exist, so there is nothing to resume: leave out --resume");
    fs::create_dir(place.path("empty")).unwrap();
    assert_snapshot!(resume("empty").refused(1), @"error: empty contains no study to resume: leave out --resume: No such file or directory (os error 2)");

    let report = |dir| place.run(&format!("report {dir}"));
    assert_snapshot!(report("nowhere").refused(1), @"error: folder nowhere does not exist: name one that `adverb study` wrote");
    assert_snapshot!(report("empty").refused(1), @"error: no results in empty/results.jsonl: run `adverb study --out empty` first");
    fs::write(place.path("empty/results.jsonl"), "").unwrap();
    assert_snapshot!(report("empty").refused(1), @"error: empty/results.jsonl contains no record: run `adverb study --out empty` first");
    fs::write(place.path("empty/results.jsonl"), "{}\n{}\n").unwrap();
    assert_snapshot!(report("empty").refused(1), @"error: empty/results.jsonl:1: not a record (no schema): delete that line to keep the others");
}

#[test]
fn two_studies_do_not_share_a_folder() {
    let place = Place::new();
    let mut child = place.spawn(SMALL);
    wait_for("a cell", || !records(&place.path("s")).is_empty());
    let second = place.run("study --resume --out s");
    assert_snapshot!(second.refused(1), @"error: another `adverb study` is writing s: wait for it, or choose another --out");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_model_next_to_another_device_gets_all_cells() {
    let place = Place::new();
    let study = "study --device model:cx3 --device model:mt26428_qdr --only latency --out two";
    place.run(study).ok();
    let records = records(&place.path("two"));
    let of = |device: &str| {
        let records = records.iter();
        records.filter(|r| r["device"]["name"] == device).count()
    };
    assert_eq!((of("cx3"), of("mt26428_qdr")), (18, 18));
    let page = std::fs::read_to_string(place.path("two/report.html")).unwrap();
    assert!(page.contains("36 predicted, 0 failed"));
}

#[test]
fn a_browser_that_is_not_there_is_named() {
    let place = Place::new();
    let dir = place.path("s");
    let child = place.spawn(SMALL);
    wait_for("a cell", || !records(&dir).is_empty());
    signal(child.id(), Signal::INT);
    end_of(child);
    let predicted = "study --device model:cx3 --only latency --out m --open";
    for (command, report) in [("report s --open", "s"), (predicted, "m")] {
        let shown = place.command(command).env("PATH", "").output();
        let shown: crate::common::Ended = shown.unwrap().into();
        assert_eq!(shown.code, Some(1));
        let path = format!("{report}/report.html\n");
        assert!(shown.out.ends_with(&path), "{}", shown.out);
        let refusal = "cannot start xdg-open";
        assert!(shown.talk.contains(refusal), "{}", shown.talk);
    }
}

#[test]
fn a_report_says_that_the_machine_was_busy() {
    let place = Place::new();
    let study = "study --device model:cx3 --only latency --out s";
    place.run(study).ok();
    let path = place.path("s/study.json");
    let mut meta: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(meta["busy"], Value::Null, "virtual time does not mind");
    meta["busy"] = serde_json::json!({ "load": 9.5, "cores": 2 });
    fs::write(&path, meta.to_string()).unwrap();
    let ended = place.run("report s").ok();
    let busy = "The machine was busy when this was measured (load 9.5 on 2 cores)";
    assert!(ended.talk.contains(busy), "{}", ended.talk);
    let page = fs::read_to_string(place.path("s/report.html")).unwrap();
    assert!(page.contains(busy));
}

#[test]
fn a_study_keeps_to_its_timeout_and_retries_when_it_goes_on() {
    let place = Place::new();
    let timers = "--timeout 1ms --retries 3";
    place.run(&format!("{SMALL} {timers}")).ok();
    let records = records(&place.path("s"));
    for params in records.iter().map(|record| &record["params"]) {
        assert_eq!(params["ack_timeout_ns"], 1_048_576.0, "{params}");
        assert_eq!(params["retry_cnt"], 3, "{params}");
    }
    let resume = "study --resume --out s";
    let ended = place.run(resume).ok();
    assert!(ended.talk.contains("nothing to do"), "{}", ended.talk);
    let other = place.run(&format!("{resume} --retries 4"));
    assert_snapshot!(other.refused(2), @"error: --retries 4: the folder's study has --retries 3; leave out --retries, or choose another --out");
    let other = place.run(&format!("{resume} --timeout 2ms"));
    assert_snapshot!(other.refused(2), @"error: --timeout 2.10 ms (4.096 µs × 2^9): the folder's study has --timeout 1.05 ms (4.096 µs × 2^8); leave out --timeout, or choose another --out");
}

/// It told that all records were in the folder.
#[test]
fn a_study_whose_folder_is_deleted_says_that_its_records_are_lost() {
    let place = Place::new();
    let study = place.spawn("study --only fig5 --out s");
    let results = place.path("s/results.jsonl");
    wait_for("the first record", || {
        std::fs::metadata(&results).is_ok_and(|file| file.len() > 0)
    });
    std::fs::remove_dir_all(place.path("s")).unwrap();
    let ended = end_of(study);
    assert_snapshot!(ended.failed(1), @"error: s/results.jsonl was deleted while its records were measured, and they are lost: measure again");
}

/// A signal ended it without a word.
#[test]
fn a_file_size_limit_is_one_line_and_the_earlier_records_are_kept() {
    let place = Place::new();
    let study = "study --device model:mt26428_qdr --only fig5 --out s";
    let ended = place.run_with_limit("-f 64", study);
    assert_snapshot!(ended.failed(1), @"error: s/results.jsonl has reached the limit of file sizes (ulimit -f) and keeps the earlier records: raise it, then run the same command with `--resume --out s`");
    assert!(!crate::common::records(&place.path("s")).is_empty());
}

#[test]
fn a_full_disk_is_one_line_and_the_earlier_records_are_kept() {
    let place = Place::new();
    let out = place.shm().join("s");
    let study = format!(
        "study --device model:mt26428_qdr --only fig5 --out {}",
        out.display()
    );
    if let Some(ended) = place.run_on_tmpfs("32K", &study) {
        let line = ended.failed(1);
        let expected = "results.jsonl, which keeps the earlier records: free some, then ";
        assert!(line.contains(expected), "{line}");
    }
}
