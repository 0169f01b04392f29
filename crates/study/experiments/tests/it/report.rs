//! The report of a synthetic study: what it says, what it must never say, and that it is one file.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{findings, html, of_figure, report};
use adverb_report::{Finding, Meta, Report};
use adverb_results::{Completion, DeviceKind, Metrics, Opcode, PairRecord, Record, Signaling};
use adverb_units::Bytes;
use proptest::prelude::*;

#[test]
fn the_findings_of_the_synthetic_study() {
    let sentences: Vec<String> = findings(&crate::common::study())
        .into_iter()
        .map(|f| format!("{} ({}): {}", f.id, f.figure, f.sentence))
        .collect();
    insta::assert_snapshot!(sentences.join("\n\n"));
}

/// The sentence of a finding on the study's 64 B pings, whose metrics were changed, in the order of time.
fn ranked(id: &str, change: impl Fn(usize, &mut Metrics)) -> String {
    let mut records = of_figure("rank-rtt");
    let time = |r: &PairRecord| r.metrics.as_ref().and_then(|m| m.one_way_ns.mean);
    records.sort_by(|a, b| time(a).partial_cmp(&time(b)).unwrap());
    for (place, record) in records.iter_mut().enumerate() {
        change(place, record.metrics.as_mut().unwrap());
    }
    sentence(&records, id)
}

/// The ranking of the study's 64 B pings if the interval of these places, in the order of time, is `ci95`.
fn ranked_with(ci95: f64, places: std::ops::Range<usize>) -> String {
    ranked("rank-rtt", |place, metrics| {
        if places.contains(&place) {
            metrics.one_way_ns.ci95 = Some(ci95);
        }
    })
}

/// The same with a wide interval of these places, and repetitions from a thousandth of the time to ten times.
fn ranked_with_noise(places: std::ops::Range<usize>) -> String {
    ranked("rank-rtt", |place, metrics| {
        if places.contains(&place) {
            metrics.one_way_ns.ci95 = Some(1e9);
            metrics.repetitions[0].one_way_ns /= 1000.0;
            metrics.repetitions[1].one_way_ns *= 10.0;
        }
    })
}

#[test]
fn a_wide_interval_of_a_slow_cell_leaves_two_groups() {
    insta::assert_snapshot!(ranked_with(1e9, 17..18), @"Of 14 ways to program a 64 B ping, the noise leaves 8 groups, the fastest WRITE to polled memory (inline, busy polling) at 169 ns and the slowest 4 from WRITE_IMM (inline, events) at 7.94 µs to WRITE_IMM (events) at 8.17 µs; the noise is too large to rank within a group. In shared memory, WRITE then READ has completed when it is posted: with events there is nothing to wait for, which is not ranked, and on a NIC the READ takes a round trip.");
}

#[test]
fn no_cell_leads_if_the_noise_spans_the_ranking() {
    insta::assert_snapshot!(ranked_with_noise(17..18), @"Of 14 ways to program a 64 B ping, the noise is too large to rank round trips from WRITE to polled memory (inline, busy polling) at 169 ns to WRITE_IMM (events) at 8.17 µs. In shared memory, WRITE then READ has completed when it is posted: with events there is nothing to wait for, which is not ranked, and on a NIC the READ takes a round trip.");
}

#[test]
fn no_cell_leads_if_all_are_equal() {
    insta::assert_snapshot!(ranked_with(1e9, 0..18), @"Of 14 ways to program a 64 B ping, none differs from the fastest beyond the noise: round trips range from WRITE to polled memory (inline, busy polling) at 169 ns to WRITE_IMM (events) at 8.17 µs. In shared memory, WRITE then READ has completed when it is posted: with events there is nothing to wait for, which is not ranked, and on a NIC the READ takes a round trip.");
}

#[test]
fn of_many_cells_that_lead_one_is_named() {
    insta::assert_snapshot!(ranked_with(100.0, 0..10), @"Of 14 ways to program a 64 B ping, 10 share the shortest round trip within the noise, such as WRITE to polled memory (inline, busy polling) at 169 ns; 4 share the longest within the noise, such as WRITE_IMM (events) at 8.17 µs, 48.4× as long. In shared memory, WRITE then READ has completed when it is posted: with events there is nothing to wait for, which is not ranked, and on a NIC the READ takes a round trip.");
}

#[test]
fn latencies_without_a_tail_are_reported_as_such() {
    let no_tail = |_, metrics: &mut Metrics| metrics.one_way_ns.p99 = metrics.one_way_ns.p50;
    insta::assert_snapshot!(ranked("tail", no_tail), @"The 99th percentile of the one-way time is within 2 % of the median for all 18 ways.");
}

#[test]
fn an_experiment_alone_finds_the_same_as_among_all() {
    let records = crate::common::study();
    let mut each: Vec<Finding> = Vec::new();
    let of_pairs = adverb_experiments::chapters().filter(|chapter| chapter.sentences.is_none());
    for chapter in of_pairs {
        let own: Vec<&str> = chapter.figures.iter().map(|spec| spec.id).collect();
        let (title, meta) = (chapter.title, Meta::default());
        let report = Report::from_records(&records, &meta, [chapter]);
        assert!(
            report.html().contains(&format!("<h2>{title}</h2>")),
            "{title}"
        );
        for finding in report.findings() {
            assert!(own.contains(&finding.figure), "{title}: {finding:?}");
            each.push(finding);
        }
    }
    assert_eq!(each, findings(&records));
}

#[test]
fn a_chapter_names_its_source_and_is_left_out_without_records() {
    let (whole, lossy) = (html(&crate::common::study()), html(&of_figure("loss")));
    for experiment in &adverb_experiments::EXPERIMENTS {
        let head = format!("<header class=\"chapter\"><h2>{}</h2>", experiment.title);
        let source = format!("<p class=\"about\">Repeats {}.</p>", experiment.source);
        assert!(whole.contains(&head), "{head}");
        assert_eq!(whole.contains(&source), !experiment.source.is_empty());
        assert_eq!(lossy.contains(&head), experiment.id == "path", "{head}");
    }
}

#[test]
fn every_figure_has_a_finding_and_its_plots() {
    let records = crate::common::study();
    let page = html(&records);
    let shown: BTreeSet<&str> = findings(&records).iter().map(|f| f.figure).collect();
    // One device is compared with nothing.
    let figures = adverb_experiments::figures().map(|figure| figure.spec.id);
    let figures: BTreeSet<&str> = figures.filter(|id| *id != "fig8").collect();
    let silent: Vec<&&str> = figures.difference(&shown).collect();
    assert_eq!(silent, [&"table1"], "the cells of Figure 7");
    assert!(!page.contains("id=\"fig8\""));
    for figure in figures {
        assert!(page.contains(&format!("id=\"{figure}-0\"")), "{figure}");
        assert!(page.contains(&format!("href=\"#{figure}\"")), "{figure}");
    }
}

/// The study on several devices, each slower by a factor than the one before it.
fn on_devices(devices: &[(DeviceKind, &str)]) -> Vec<PairRecord> {
    let mut all = Vec::new();
    for (i, (kind, name)) in devices.iter().enumerate() {
        let factor = 10_f64.powi(i as i32);
        all.extend(crate::common::study().into_iter().map(|mut record| {
            record.device = crate::common::device(*kind, name);
            slow(record.metrics.as_mut().unwrap(), factor);
            record
        }));
    }
    all
}

#[test]
fn devices_stand_side_by_side_each_named_after_what_it_is() {
    let records = on_devices(&[
        (DeviceKind::Soft, "soft"),
        (DeviceKind::Soft, "soft@10.0.0.1"),
        (DeviceKind::Verbs, "rxe0"),
    ]);
    let page = html(&records);
    for name in [
        "soft (shared memory)",
        "soft@10.0.0.1 (RoCE over UDP, in software)",
        "verbs:rxe0 (behind libibverbs)",
    ] {
        let series = format!("data-series=\"SEND, {name}\"");
        assert!(page.contains(&series), "{series}");
    }
    let compared: Vec<String> = findings(&records)
        .into_iter()
        .filter(|f| f.figure == "fig8")
        .map(|f| format!("{}: {}", f.id, f.sentence))
        .collect();
    insta::assert_snapshot!(compared.join("\n"), @"
    devices-send-measured: A blast of SENDs of 64 B with one buffer takes, per message, 140 ns on soft (shared memory), 1.40 µs on soft@10.0.0.1 (RoCE over UDP, in software; 10.0× the time) and 14.0 µs on verbs:rxe0 (behind libibverbs; 100× the time).
    devices-write-measured: RDMA WRITEs of 64 KiB with 4 buffers in lists reach 11.0 GB/s on soft (shared memory), 1.10 GB/s on soft@10.0.0.1 (RoCE over UDP, in software; 10.0× the time) and 110 MB/s on verbs:rxe0 (behind libibverbs; 100× the time).
    ");
    let software = &records[..records.len() / 3 * 2];
    let compared = findings(software).into_iter().find(|f| f.figure == "fig8");
    let sentence = compared.unwrap().sentence;
    assert!(
        sentence.ends_with("do not compare InfiniBand with RoCE in hardware."),
        "{sentence}"
    );
}

#[test]
fn predictions_are_not_compared_with_measurements() {
    let records = on_devices(&[(DeviceKind::Soft, "soft"), (DeviceKind::Model, "cx3")]);
    let all = findings(&records);
    assert!(all.iter().all(|f| f.figure != "fig8"));
    let records = on_devices(&[(DeviceKind::Model, "cx"), (DeviceKind::Model, "cx3")]);
    let all = findings(&records);
    let compared = all.iter().find(|f| f.figure == "fig8").unwrap();
    assert!(
        compared
            .sentence
            .contains("model:cx3 (prediction; 10.0× the time)."),
        "{compared:?}"
    );
}

#[test]
fn a_figure_has_a_point_for_each_of_its_cells() {
    let mut fig4 = of_figure("fig4");
    for record in &mut fig4 {
        record.figures = vec!["fig4".to_owned()];
    }
    let points = html(&fig4).matches("class=\"pt\"").count();
    assert_eq!(points, 3 * fig4.len(), "in each of its panels");
}

#[test]
fn a_report_without_measurements_says_so() {
    let page = html(&[]);
    let (_, left_out) = page.split_once("id=\"left-out\"").unwrap();
    let left_out = left_out.split_once("</section>").unwrap().0;
    assert_eq!(
        left_out.matches("<li>").count(),
        adverb_experiments::figures().count()
    );
    assert!(!page.contains("class=\"figure\""));
    assert!(!page.contains("<svg class=\"plot\""));
    assert!(findings(&[]).is_empty());
}

#[test]
fn figures_that_a_study_left_out_are_named_once() {
    let mut records = of_figure("rank-rtt");
    for record in &mut records {
        record.figures = vec!["rank-rtt".to_owned()];
    }
    let page = html(&records);
    assert_eq!(page.matches("class=\"figure\"").count(), 1);
    let named = page.matches("Ranking: client CPU").count();
    assert_eq!(named, 1, "only as left out");
    assert_eq!(page.matches("Not measured:").count(), 1);
    let whole = html(&crate::common::study());
    let (_, left_out) = whole.split_once("id=\"left-out\"").unwrap();
    let left_out = left_out.split_once("</section>").unwrap().0;
    assert_eq!(left_out.matches("<li>").count(), 1);
    assert!(left_out.contains("it compares devices"), "{left_out}");
}

#[test]
fn a_figure_that_the_device_cannot_fill_says_why() {
    let mut records = crate::common::study();
    records.retain(|r| r.params.rate.is_none());
    let reason = "this port has no <rates>".to_owned();
    let meta = Meta {
        unfilled: vec![("fig7".to_owned(), reason)],
        ..Meta::default()
    };
    let page = report(&records, &meta).html();
    let (_, left_out) = page.split_once("id=\"left-out\"").unwrap();
    assert!(left_out.contains(": this port has no &lt;rates&gt;</li>"));
    assert!(left_out.contains("its cells are not among these records"));
}

/// A marker stood for several series of a figure.
#[test]
fn no_two_series_of_a_figure_look_alike() {
    let page = html(&crate::common::study());
    for legend in page.split("<div class=\"legend\"").skip(1) {
        let (legend, _) = legend.split_once("</div>").unwrap();
        let buttons = legend.split("data-series=\"").skip(1);
        let named = buttons.filter_map(|button| button.split_once("\">"));
        let named = named.filter_map(|(name, look)| Some((look.split_once("</svg>")?.0, name)));
        let all: Vec<(&str, &str)> = named.collect();
        let looks: BTreeMap<&str, &str> = all.iter().copied().collect();
        assert!(all.len() > 1 && looks.len() == all.len(), "{all:?}");
    }
}

/// The number of machines, which is the number of clients by default, split lines over clients into points.
#[test]
fn a_parameter_that_follows_the_axis_does_not_divide_a_sweep() {
    let template = Record::from(&crate::common::study()[0]);
    let record = |clients: u32| {
        let mut record = Record {
            figures: Vec::new(),
            cell: format!("rpc/{clients}"),
            program: "rpc".to_owned(),
            ..template.clone()
        };
        let params = serde_json::json!({ "clients": clients, "machines": clients });
        record.params = serde_json::from_value(params).unwrap();
        let metrics = serde_json::json!({ "requests_per_s": 1e6 });
        record.metrics = serde_json::from_value(metrics).unwrap();
        record
    };
    let (records, meta) = ([1, 3, 10].map(record), Meta::default());
    let page = Report::from_records(&[], &meta, []).with_sweeps(&records);
    let page = page.html();
    assert_eq!(page.matches("class=\"series\"").count(), 1);
    assert!(
        page.contains(">3</text>"),
        "a tick at a value other than a power of two"
    );
}

/// Returns the page of records of `rpc` outside figures: device, way, clients, and rate.
fn swept(points: &[(&str, &str, u32, f64)]) -> String {
    let template = Record::from(&crate::common::study()[0]);
    let record = |(device, by, clients, rate): &(&str, &str, u32, f64)| {
        let mut record = Record {
            figures: Vec::new(),
            cell: format!("rpc/{by}/{clients}"),
            program: "rpc".to_owned(),
            device: crate::common::device(DeviceKind::Model, device),
            ..template.clone()
        };
        let params = serde_json::json!({ "by": by, "clients": clients });
        record.params = serde_json::from_value(params).unwrap();
        let metrics = serde_json::json!({ "requests_per_s": rate });
        record.metrics = serde_json::from_value(metrics).unwrap();
        record
    };
    let (records, meta) = (
        points.iter().map(record).collect::<Vec<_>>(),
        Meta::default(),
    );
    Report::from_records(&[], &meta, [])
        .with_sweeps(&records)
        .html()
}

/// The sentence ended with "; ." if there was no load.
#[test]
fn a_store_without_a_load_has_a_whole_sentence() {
    let template = Record::from(&crate::common::study()[0]);
    let mut record = Record {
        figures: vec!["numa6".to_owned()],
        program: "store".to_owned(),
        ..template
    };
    let params = serde_json::json!({ "connections": 32, "numa_server": "nic" });
    record.params = serde_json::from_value(params).unwrap();
    let metrics = serde_json::json!({ "requests_per_s": 4.21e6 });
    record.metrics = serde_json::from_value(metrics).unwrap();
    let (records, meta) = ([record], Meta::default());
    let page = Report::from_records(&[], &meta, adverb_experiments::chapters());
    let page = page.with_sweeps(&records).html();
    assert!(page.contains("without load.</li>"), "{page}");
}

/// There was no plot without a number to draw over, and each device had one of its own.
#[test]
fn ways_on_several_devices_are_bars_of_one_plot() {
    let page = swept(&[
        ("cx3", "send", 4, 1e6),
        ("cx3", "write", 4, 2e6),
        ("cx7", "send", 4, 3e6),
    ]);
    assert_eq!(page.matches("<figure").count(), 1);
    for name in ["model:cx3, send", "model:cx3, write", "model:cx7, send"] {
        assert!(page.contains(name), "{name}");
    }
}

/// It named the lowest rate of a sweep over clients: the rate of one client.
#[test]
fn the_finding_of_a_sweep_names_where_more_adds_nothing() {
    let page = swept(&[
        ("cx3", "send", 1, 1e6),
        ("cx3", "send", 4, 2.98e6),
        ("cx3", "send", 16, 3e6),
        ("cx3", "write", 1, 0.9e6),
    ]);
    let finding = "rpc on model:cx3: the highest request rate is 3.00 M/s at send, clients=16, over 3 values of clients; with \
                   clients=4 it is equal within 2 %.";
    assert!(page.contains(finding), "{page}");
}

/// A report drew figures that had cells in common with the figures that were asked for.
#[test]
fn a_report_has_the_figures_that_were_asked_for() {
    let records = crate::common::study();
    let meta = Meta {
        only: vec!["rank-rtt".to_owned()],
        ..Meta::default()
    };
    let page = report(&records, &meta).html();
    let drawn = page.split("<section class=\"figure\" id=\"").skip(1);
    let drawn: Vec<_> = drawn.filter_map(|text| text.split('"').next()).collect();
    assert_eq!(drawn, ["rank-rtt"]);
    assert!(!page.contains("id=\"left-out\""));
}

#[test]
fn a_series_that_lies_under_another_is_named() {
    let mut records = crate::common::study();
    let time = |r: &PairRecord| {
        let (program, params) = (r.program, &r.params);
        (
            program,
            params.size_bytes,
            params.inline,
            params.completion,
            params.buffers,
        )
    };
    let is = |r: &PairRecord, op| r.params.op == op && r.params.signal == Signaling::All;
    let sends: Vec<PairRecord> = records
        .iter()
        .filter(|r| is(r, Opcode::Send))
        .cloned()
        .collect();
    for record in records.iter_mut().filter(|r| is(r, Opcode::WriteImm)) {
        let twin = sends.iter().find(|send| time(send) == time(record));
        if let Some(twin) = twin {
            record.metrics.clone_from(&twin.metrics);
        }
    }
    let noted = |page: &str| {
        let (_, figure) = page.split_once("id=\"fig1\"").unwrap();
        let (figure, _) = figure.split_once("</section>").unwrap();
        let notes = figure.split("SEND = WRITE_IMM (").skip(1);
        let mut panels = notes.filter_map(|rest| rest.split_once(')'));
        panels.any(|(panels, _)| panels == "all panels" || panels.contains("1b"))
    };
    assert!(noted(&html(&records)));
    assert!(!noted(&html(&crate::common::study())));
}

#[test]
fn the_report_opens_with_what_to_use() {
    let records = crate::common::study();
    let meta = Meta::default();
    let [(device, advice)] = &report(&records, &meta).advice()[..] else {
        panic!("one device")
    };
    assert_eq!(device, "soft");
    let rows: Vec<String> = advice
        .iter()
        .map(|row| {
            format!(
                "{} ({}): {}: {}",
                row.need, row.figure, row.choice, row.cost
            )
        })
        .collect();
    insta::assert_snapshot!(rows.join("\n"), @"
    Lowest latency, with a completion at the receiver (fig1): WRITE_IMM (inline, busy polling): 119 ns one way for 64 B; 100 % of a core on the active side, 97 % on the passive side
    A waiting side must not occupy a core (fig1): WRITE_IMM (inline, events): 3.97 µs one way for 64 B; 37 % of a core on the active side, 36 % on the passive side
    Least CPU at the server (fig5): WRITE (busy polling): 0.2 % of a core on the passive side (SEND: 97 %) and 150 ns per message of 1 KiB
    Highest message rate of one queue pair (fig6): WRITE, inline, one in n/2 signaled, lists, 256 buffers: 36.8 M/s of 16 B; 100 % of a core on the active side
    Large transfers (fig5): WRITE, all signaled, lists, 4 buffers, from 16 KiB per message on: 10.6 GB/s of at most 11.0 GB/s
    Lowest latency, the receiver polls its memory (rank-rtt): WRITE to polled memory (inline, busy polling): 84.4 ns one way for 64 B; 100 % of a core on the active side, 97 % on the passive side
    ");
    let page = html(&records);
    let (opening, rest) = page.split_once("<main>").unwrap();
    assert!(opening.contains("<table class=\"advice\">"));
    for row in advice {
        assert!(opening.contains(&format!("href=\"#{}\"", row.figure)));
        assert!(rest.contains(&format!("id=\"{}\"", row.figure)));
    }
    // Several devices have a column each.
    let both = html(&crate::common::on_both());
    let (_, table) = both.split_once("<table class=\"advice\">").unwrap();
    let (head, _) = table.split_once("</thead>").unwrap();
    for device in ["soft", "model:connect_ib, a prediction"] {
        assert!(
            head.contains(&format!("<th scope=\"col\">{device}</th>")),
            "{head}"
        );
    }
}

#[test]
fn in_shared_memory_no_event_of_a_one_sided_operation_is_compared() {
    let sentences = |records: &[PairRecord]| -> Vec<(String, String)> {
        let found = findings(records).into_iter();
        found.map(|f| (f.id, f.sentence)).collect()
    };
    let has = |found: &[(String, String)], id: &str| found.iter().any(|(found, _)| found == id);
    let local = sentences(&crate::common::study());
    let remote = sentences(&on_devices(&[(DeviceKind::Verbs, "rxe0")]));
    for id in ["event-price-write-read", "unsignaled-event"] {
        assert!(!has(&local, id) && has(&remote, id), "{id}");
    }
    let strategies = sentence(&crate::common::study(), "completion-write-read");
    assert!(strategies.contains("no event to wait for"), "{strategies}");
    let (_, ranking) = remote.iter().find(|(id, _)| id == "rank-rtt").unwrap();
    assert!(ranking.starts_with("Of 18 ways"), "{ranking}");
}

#[test]
fn the_page_asks_for_nothing_outside() {
    let page = html(&crate::common::study_with_failures());
    for call in [
        "http://",
        "https://",
        "//cdn",
        "@import",
        "url(",
        "fetch(",
        "XMLHttpRequest",
    ] {
        assert!(!page.contains(call), "{call}");
    }
    assert!(!page.contains(" src="), "an external script or image");
}

#[test]
fn the_same_records_give_the_same_bytes() {
    let records = crate::common::study();
    assert_eq!(html(&records), html(&records));
}

#[test]
fn failed_cells_stand_with_their_reason_and_escaped() {
    let page = html(&crate::common::study_with_failures());
    assert!(page.contains("no space left in /dev/shm: free 512 MiB"));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;more&quot;"));
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("3 cells of"));
}

#[test]
fn hostile_names_are_escaped_everywhere() {
    let evil = "\"><script>alert(1)</script>";
    let mut records = crate::common::study();
    for record in &mut records {
        record.device.name = evil.to_owned();
        record.cell.push_str(evil);
        record.provenance.active.cpu = evil.to_owned();
        record.provenance.active.host = evil.to_owned();
        record.provenance.passive = Some(crate::common::site(evil));
        record.counters.active.insert(evil.to_owned(), 1);
    }
    let mut two = crate::common::on_model(&records);
    two.extend(records);
    let meta = Meta {
        command: Some(evil.into()),
        warnings: vec![evil.into()],
        ..Meta::default()
    };
    let page = report(&two, &meta).html();
    assert!(!page.contains("<script>alert"));
    assert_eq!(page.matches("<script>").count(), 1);
}

#[test]
fn an_unfinished_study_says_so() {
    let meta = Meta {
        planned_cells: Some(9999),
        interrupted: true,
        ..Meta::default()
    };
    let records = crate::common::study();
    let unfinished = report(&records, &meta);
    let (cells, notices) = (records.len(), unfinished.notices());
    let expected = format!("The study was interrupted: {cells} of 9999 planned cells are here.");
    assert!(notices[0].starts_with(&expected), "{notices:?}");
    assert!(unfinished.html().contains(&expected));
    assert!(report(&records, &Meta::default()).notices().is_empty());
}

#[test]
fn two_devices_are_never_mixed_without_their_names() {
    let both = crate::common::on_both();
    let of_both = findings(&both);
    let soft = crate::common::study();
    let of_each = [findings(&soft), findings(&crate::common::on_model(&soft))];
    assert_eq!(of_both.len(), of_each.iter().map(Vec::len).sum::<usize>());
    for finding in of_both.iter().map(ToString::to_string) {
        let named = ["On soft: ", "On model:connect_ib: "]
            .iter()
            .any(|d| finding.starts_with(d));
        assert!(named, "{finding}");
    }
    let page = html(&both);
    for device in ["soft", "model:connect_ib"] {
        assert!(page.contains(&format!("<h3 class=\"device\">{device}</h3>")));
    }
    // A plot is of one device, which its title and each of its points name; or devices are its series.
    for plot in page.split("<figcaption>").skip(1) {
        let is_named = ["soft: ", "model:connect_ib: "].map(|name| {
            let of_series = plot.matches("class=\"series\"").count() > 0;
            let points = plot.matches("<title>").count();
            let of_device = plot.matches(&format!("<title>{name}")).count();
            plot.starts_with(name) && (!of_series || of_device == points)
        });
        let has_both = [
            ", soft (shared memory)\"",
            ", model:connect_ib (prediction)\"",
        ]
        .map(|name| plot.contains(name));
        assert!(
            is_named.contains(&true) || has_both == [true; 2],
            "{plot:.200}"
        );
    }
}

#[test]
fn one_legend_serves_the_plots_of_all_devices() {
    let legend = |records: &[PairRecord]| {
        let page = html(records);
        let (_, figure) = page
            .split_once("<section class=\"figure\" id=\"fig1\">")
            .unwrap();
        let (figure, _) = figure.split_once("</section>").unwrap();
        figure.matches("<button ").count()
    };
    let of_soft = legend(&crate::common::study());
    assert!(of_soft > 1);
    assert_eq!(legend(&crate::common::on_both()), of_soft);
}

#[test]
fn of_two_records_of_a_cell_the_last_counts() {
    let records = crate::common::study();
    let mut again = records.clone();
    crate::common::fail(&mut again[0], "first attempt");
    again.push(records[0].clone());
    assert_eq!(findings(&again), findings(&records));
    assert!(!html(&again).contains("first attempt"));
}

#[test]
fn a_single_repetition_proves_no_difference() {
    let mut records = crate::common::study();
    for metrics in records.iter_mut().filter_map(|r| r.metrics.as_mut()) {
        metrics.repetitions.truncate(1);
        metrics.one_way_ns.ci95 = None;
    }
    let compared = [
        "completion",
        "inline",
        "lists",
        "periodic",
        "unsignaled",
        "opcode",
        "event-price",
    ];
    for Finding { id, sentence, .. } in findings(&records) {
        assert!(
            !compared.iter().any(|kind| id.starts_with(kind)),
            "{sentence}"
        );
    }
}

#[test]
fn equal_series_are_not_told_apart() {
    let mut records = crate::common::study();
    let metrics: Option<Metrics> = records[0].metrics.clone();
    for record in &mut records {
        record.metrics.clone_from(&metrics);
    }
    for finding in findings(&records) {
        for claim in ["faster", "slower"] {
            assert!(!finding.sentence.contains(claim), "{}", finding.sentence);
        }
    }
}

fn slow(metrics: &mut Metrics, factor: f64) {
    let latency = &mut metrics.one_way_ns;
    latency.mean = latency.mean.map(|ns| ns * factor);
    latency.ci95 = latency.ci95.map(|ns| ns * factor);
    let repetitions = metrics.repetitions.iter_mut();
    repetitions.for_each(|r| r.one_way_ns *= factor);
}

/// The study with these cells slower by a factor.
fn study_slowed(factor: f64, pick: impl Fn(&PairRecord) -> bool) -> Vec<PairRecord> {
    let mut records = crate::common::study();
    for record in records.iter_mut().filter(|r| pick(r)) {
        slow(record.metrics.as_mut().unwrap(), factor);
    }
    records
}

/// READ with 0.0 % of a core at the server was preferred to a faster WRITE with 0.1 %.
#[test]
fn an_idle_server_is_no_reason_for_a_slower_operation() {
    let mut records = crate::common::study();
    for record in &mut records {
        if record.params.op == Opcode::Read
            && let Some(metrics) = &mut record.metrics
        {
            for repetition in &mut metrics.repetitions {
                repetition.cpu_passive.percent = Some(0.0);
            }
        }
    }
    let meta = Meta::default();
    let advice = report(&records, &meta).advice();
    let mut rows = advice[0].1.iter();
    let least = rows.find(|row| row.need == "Least CPU at the server");
    assert_eq!(least.unwrap().choice, "WRITE (busy polling)");
}

fn sentence(records: &[PairRecord], id: &str) -> String {
    findings(records)
        .into_iter()
        .find(|f| f.id == id)
        .map(|f| f.sentence)
        .unwrap_or_default()
}

#[test]
fn a_planted_crossover_of_completion_strategies_is_found() {
    let records = study_slowed(100.0, |r| {
        r.params.completion == Completion::Poll && r.params.size_bytes >= Bytes::new(256)
    });
    insta::assert_snapshot!(sentence(&records, "completion-send"), @"Ping by SEND: busy polling is faster at 1 B to 64 B, by up to 33.8× (at 1 B: 120 ns with busy polling, 4.06 µs with events); events are faster at 256 B to 1 KiB, by up to 5.32× (at 1 KiB: 21.7 µs with busy polling, 4.08 µs with events). At 1 B, polling takes 100 % of a core on the active side and 97 % on the passive side; events take 37 % of a core on the active side and 36 % on the passive side.");
}

#[test]
fn inline_data_that_hurt_are_found() {
    let records = study_slowed(1.5, |r| {
        r.params.inline && r.params.size_bytes > Bytes::new(64)
    });
    insta::assert_snapshot!(sentence(&records, "inline-ping-send"), @"Inlining makes a ping by SEND faster at 1 B to 64 B, by up to 1.06× (at 1 B: 114 ns inline, 120 ns without); it ceases to pay between 64 B and 256 B; inline is slower at 256 B, by up to 1.43× (at 256 B: 205 ns inline, 144 ns without).");
}

/// What can happen to a cell.
#[derive(Clone, Copy, Debug)]
enum CellFault {
    Missing,
    Failed,
    Empty,
    NoRepetitions,
    Absurd,
}

fn befall(mut record: PairRecord, fault: Option<CellFault>) -> Option<PairRecord> {
    let place = record.cell.len();
    match (fault, &mut record.metrics) {
        (Some(CellFault::Missing), _) => return None,
        (Some(CellFault::Failed), _) => crate::common::fail(&mut record, "why"),
        (Some(CellFault::Empty), metrics) => *metrics = None,
        (Some(CellFault::NoRepetitions), Some(metrics)) => metrics.repetitions.clear(),
        (Some(CellFault::Absurd), Some(metrics)) => {
            let absurd = [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300];
            for (i, r) in metrics.repetitions.iter_mut().enumerate() {
                r.one_way_ns = absurd[(i + place) % absurd.len()];
                r.cpu_active.percent = Some(absurd[(i + 1) % absurd.len()]);
            }
            record.params.buffers = 0;
        }
        (Some(CellFault::NoRepetitions | CellFault::Absurd) | None, _) => {}
    }
    Some(record)
}

/// A fault for each cell, chosen by a seed; most cells have none.
fn faults(mut seed: u64) -> impl Iterator<Item = Option<CellFault>> {
    use CellFault::{Absurd, Empty, Failed, Missing, NoRepetitions};
    let faults = [Missing, Missing, Failed, Empty, NoRepetitions, Absurd];
    std::iter::repeat_with(move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        faults.get((seed >> 60) as usize).copied()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn any_outcome_of_cells_gives_a_report(seed in any::<u64>()) {
        let cells = crate::common::study().into_iter().zip(faults(seed));
        let records: Vec<PairRecord> = cells.filter_map(|(record, fault)| befall(record, fault)).collect();
        let page = html(&records);
        let before_script = page.split("<script>").next().unwrap_or_default();
        prop_assert!(!before_script.contains("NaN"));
        prop_assert!(page.ends_with("</html>"));
    }

    #[test]
    fn a_finding_says_the_same_from_its_evidence_alone(seed in any::<u64>()) {
        let cells = crate::common::study().into_iter().zip(faults(seed));
        let there = cells.filter(|(_, fault)| !matches!(fault, Some(CellFault::Missing)));
        let records: Vec<PairRecord> = there.map(|(record, _)| record).collect();
        for finding in findings(&records) {
            let evidence: Vec<PairRecord> =
                records.iter().filter(|r| finding.evidence.contains(&r.cell)).cloned().collect();
            prop_assert!(!evidence.is_empty());
            let again: Vec<String> = findings(&evidence).into_iter().map(|f| f.sentence).collect();
            prop_assert!(again.contains(&finding.sentence), "{}
{:#?}", finding.sentence, again);
        }
    }
}

#[test]
fn counters_that_moved_are_summed_and_trouble_is_told_first() {
    let mut records = crate::common::study();
    let quiet = html(&records);
    assert!(!quiet.contains("What the devices counted"));
    let count = |name: &str, n| [(name.to_owned(), n)].into();
    records[0].counters.active = count("rnr_nak_retry_err", 7);
    records[1].counters.active = count("rnr_nak_retry_err", 35);
    records[2].counters.passive = count("port_rcv_packets", 1000);
    let meta = Meta::default();
    let counted = report(&records, &meta);
    let notice = &counted.notices()[0];
    assert!(notice.starts_with("In 2 cells of"), "{notice}");
    let page = counted.html();
    let trouble = page.find("rnr_nak_retry_err");
    assert!(trouble.is_some() && trouble < page.find("port_rcv_packets"));
    let row = format!(
        "<td class=\"n\">42</td><td class=\"n\">0</td><td class=\"n\">2</td><td><code>{}</code>",
        records[1].cell
    );
    assert!(page.contains(&row));
}

#[test]
fn two_hosts_are_both_named() {
    let mut records = crate::common::study();
    for record in &mut records {
        record.provenance.passive = Some(crate::common::site("faraway"));
    }
    let page = html(&records);
    assert!(page.contains("Host of the passive side") && page.contains("faraway, kernel 6.1.0"));
}
