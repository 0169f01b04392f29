//! The report of a synthetic study: what it says, what it must never say, and that it is one file.

mod common;

use std::collections::BTreeSet;

use adverb_report::{Finding, Meta, Report};
use adverb_results::{Completion, DeviceKind, DeviceRef, Metrics, Outcome, PairRecord};
use adverb_units::Bytes;
use proptest::prelude::*;

fn findings(records: &[PairRecord]) -> Vec<Finding> {
    Report::from_records(records, &Meta::default(), adverb_experiments::chapters()).findings()
}

fn html(records: &[PairRecord], meta: &Meta) -> String {
    Report::from_records(records, meta, adverb_experiments::chapters()).html()
}

#[test]
fn the_findings_of_the_synthetic_study() {
    let sentences: Vec<String> = findings(&common::study())
        .into_iter()
        .map(|f| format!("{} ({}): {}", f.id, f.figure, f.sentence))
        .collect();
    insta::assert_snapshot!(sentences.join("\n\n"));
}

/// The sentence of a finding on the study's 64 B pings, whose metrics were changed, in the order of time.
fn ranked(id: &str, change: impl Fn(usize, &mut Metrics)) -> String {
    let is_ranked = |r: &PairRecord| r.figures.iter().any(|f| f == "rank-rtt");
    let mut records: Vec<PairRecord> = common::study().into_iter().filter(is_ranked).collect();
    let time = |r: &PairRecord| r.metrics.as_ref().and_then(|m| m.one_way_ns.mean);
    records.sort_by(|a, b| time(a).partial_cmp(&time(b)).unwrap());
    for (place, record) in records.iter_mut().enumerate() {
        change(place, record.metrics.as_mut().unwrap());
    }
    let found = findings(&records).into_iter().find(|f| f.id == id);
    found.unwrap().sentence
}

const ANYTHING: Option<f64> = Some(1e9);

#[test]
fn nobody_leads_where_the_noise_spans_the_ranking() {
    let slowest_may_be_fastest = |place: usize, metrics: &mut Metrics| {
        if place == 15 {
            metrics.one_way_ns.ci95 = ANYTHING;
        }
    };
    insta::assert_snapshot!(ranked("rank-rtt", slowest_may_be_fastest), @"Of 16 ways to program a 64 B ping, the noise is too large to rank round trips from WRITE to polled memory (inline, busy polling) at 189 ns to WRITE_IMM (inline, events) at 8.19 µs.");
}

#[test]
fn nobody_leads_where_all_are_alike() {
    let all_alike = |_, metrics: &mut Metrics| metrics.one_way_ns.ci95 = ANYTHING;
    insta::assert_snapshot!(ranked("rank-rtt", all_alike), @"Of 16 ways to program a 64 B ping, none differs from the fastest beyond the noise: round trips range from WRITE to polled memory (inline, busy polling) at 189 ns to WRITE_IMM (inline, events) at 8.19 µs.");
}

#[test]
fn of_many_that_lead_alike_one_is_named() {
    let polling_alike = |place, metrics: &mut Metrics| {
        if place < 9 {
            metrics.one_way_ns.ci95 = Some(100.0);
        }
    };
    insta::assert_snapshot!(ranked("rank-rtt", polling_alike), @"Of 16 ways to program a 64 B ping, 9 share the shortest round trip within the noise, such as WRITE to polled memory (inline, busy polling) at 189 ns; 7 share the longest within the noise, such as WRITE_IMM (inline, events) at 8.19 µs, 43.4× as long.");
}

#[test]
fn latencies_without_a_tail_are_said_to_have_none() {
    let no_tail = |_, metrics: &mut Metrics| metrics.one_way_ns.p99 = metrics.one_way_ns.p50;
    insta::assert_snapshot!(ranked("tail", no_tail), @"The 99th percentile of the one-way time is within 2 % of the median for all 16 ways.");
}

#[test]
fn an_experiment_alone_finds_the_same_as_among_all() {
    let records = common::study();
    let mut each: Vec<Finding> = Vec::new();
    for chapter in adverb_experiments::chapters() {
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
    let is_lossy = |r: &PairRecord| r.figures.iter().any(|f| f == "loss");
    let lossy: Vec<PairRecord> = common::study().into_iter().filter(is_lossy).collect();
    for experiment in &adverb_experiments::EXPERIMENTS {
        let head = format!("<header class=\"chapter\"><h2>{}</h2>", experiment.title);
        let source = format!("<p class=\"about\">Repeats {}.</p>", experiment.source);
        let whole = html(&common::study(), &Meta::default());
        assert!(whole.contains(&head), "{head}");
        assert_eq!(whole.contains(&source), !experiment.source.is_empty());
        let is_shown = html(&lossy, &Meta::default()).contains(&head);
        assert_eq!(is_shown, experiment.id == "loss", "{head}");
    }
}

#[test]
fn every_figure_has_a_finding_and_its_plots() {
    let records = common::study();
    let page = html(&records, &Meta::default());
    let shown: BTreeSet<&str> = findings(&records).iter().map(|f| f.figure).collect();
    // One device has nothing beside it.
    let figures = adverb_experiments::figures().map(|figure| figure.spec.id);
    let figures: BTreeSet<&str> = figures.filter(|id| *id != "fig8").collect();
    assert_eq!(shown, figures);
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
        all.extend(common::study().into_iter().map(|mut record| {
            let name = (*name).to_owned();
            record.device = DeviceRef { kind: *kind, name };
            if let Some(metrics) = &mut record.metrics {
                let slower = |value: &mut Option<f64>| *value = value.map(|ns| ns * factor);
                slower(&mut metrics.one_way_ns.mean);
                slower(&mut metrics.one_way_ns.ci95);
                for repetition in &mut metrics.repetitions {
                    repetition.one_way_ns *= factor;
                }
            }
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
    let page = html(&records, &Meta::default());
    for name in [
        "soft (shared memory)",
        "soft@10.0.0.1 (RoCE over UDP, in software)",
        "verbs:rxe0 (behind libibverbs)",
    ] {
        assert!(page.contains(&format!("data-series=\"{name}\"")), "{name}");
    }
    let compared: Vec<String> = findings(&records)
        .into_iter()
        .filter(|f| f.figure == "fig8")
        .map(|f| format!("{}: {}", f.id, f.sentence))
        .collect();
    insta::assert_snapshot!(compared.join("\n"), @"
    devices-ping-measured: A SEND of 64 B takes one way 128 ns on soft (shared memory), 1.28 µs on soft@10.0.0.1 (RoCE over UDP, in software; 10.0× the time) and 12.8 µs on verbs:rxe0 (behind libibverbs; 100× the time).
    devices-blast-measured: Four outstanding RDMA WRITEs of 16 MiB reach 4.97 GB/s on soft (shared memory), 497 MB/s on soft@10.0.0.1 (RoCE over UDP, in software; 10.0× the time) and 49.7 MB/s on verbs:rxe0 (behind libibverbs; 100× the time).
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
    let records = common::study();
    let fig4: Vec<PairRecord> = records
        .into_iter()
        .filter(|r| r.figures.iter().any(|f| f == "fig4"))
        .map(|r| PairRecord {
            figures: vec!["fig4".to_owned()],
            ..r
        })
        .collect();
    let page = html(&fig4, &Meta::default());
    assert_eq!(page.matches("class=\"pt\"").count(), fig4.len());
}

#[test]
fn nothing_measured_is_said_and_not_drawn() {
    let page = html(&[], &Meta::default());
    let (_, left_out) = page.split_once("id=\"left-out\"").unwrap();
    let left_out = left_out.split_once("</section>").unwrap().0;
    assert_eq!(
        left_out.matches("<li>").count(),
        adverb_experiments::figures().count() - 1
    );
    assert!(!page.contains("class=\"figure\""));
    assert!(!page.contains("<svg class=\"plot\""));
    assert!(findings(&[]).is_empty());
}

#[test]
fn figures_that_a_study_left_out_are_named_once() {
    let ranked = |r: &PairRecord| r.figures.iter().any(|f| f == "rank-rtt");
    let of_rank = |r| PairRecord {
        figures: vec!["rank-rtt".to_owned()],
        ..r
    };
    let records = common::study().into_iter().filter(ranked).map(of_rank);
    let page = html(&records.collect::<Vec<_>>(), &Meta::default());
    assert_eq!(page.matches("class=\"figure\"").count(), 1);
    assert_eq!(
        page.matches("Ranking: client CPU").count(),
        1,
        "only as left out"
    );
    assert_eq!(page.matches("No cell of these was measured").count(), 1);
    let whole = html(&common::study(), &Meta::default());
    assert!(!whole.contains("id=\"left-out\""));
}

#[test]
fn the_page_asks_for_nothing_outside() {
    let page = html(&common::study_with_failures(), &Meta::default());
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
    let records = common::study();
    assert_eq!(
        html(&records, &Meta::default()),
        html(&records, &Meta::default())
    );
}

#[test]
fn failed_cells_stand_with_their_reason_and_escaped() {
    let page = html(&common::study_with_failures(), &Meta::default());
    assert!(page.contains("no space left in /dev/shm: free 512 MiB"));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;more&quot;"));
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("3 cells of"));
}

#[test]
fn hostile_names_are_escaped_everywhere() {
    let evil = "\"><script>alert(1)</script>";
    let mut records = common::study();
    for record in &mut records {
        record.device.name = evil.to_owned();
        record.cell.push_str(evil);
        record.provenance.active.cpu = evil.to_owned();
        record.provenance.active.host = evil.to_owned();
        record.provenance.passive = Some(common::site(evil));
        record.counters.active.insert(evil.to_owned(), 1);
    }
    let mut two = common::on_model(&records);
    two.extend(records);
    let meta = Meta {
        command: Some(evil.into()),
        warnings: vec![evil.into()],
        ..Meta::default()
    };
    let page = html(&two, &meta);
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
    let records = common::study();
    let report = Report::from_records(&records, &meta, adverb_experiments::chapters());
    let expected = format!(
        "The study was interrupted: {} of 9999 planned cells are here.",
        records.len()
    );
    assert!(
        report.notices()[0].starts_with(&expected),
        "{:?}",
        report.notices()
    );
    assert!(report.html().contains(&expected));
    assert!(
        Report::from_records(&records, &Meta::default(), adverb_experiments::chapters())
            .notices()
            .is_empty()
    );
}

#[test]
fn two_devices_are_never_mixed_without_their_names() {
    let soft = common::study();
    let mut both = soft.clone();
    both.extend(common::on_model(&soft));
    let of_both = findings(&both);
    assert_eq!(of_both.len(), 2 * findings(&soft).len());
    for finding in of_both.iter().map(ToString::to_string) {
        let named = ["On soft: ", "On model:connect_ib: "]
            .iter()
            .any(|d| finding.starts_with(d));
        assert!(named, "{finding}");
    }
    let page = html(&both, &Meta::default());
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
        let has_both = ["soft (shared memory)\"", "model:connect_ib (prediction)\""]
            .map(|name| plot.contains(&format!("data-series=\"{name}")));
        assert!(
            is_named.contains(&true) || has_both == [true; 2],
            "{plot:.200}"
        );
    }
}

#[test]
fn one_legend_serves_the_plots_of_all_devices() {
    let soft = common::study();
    let mut both = soft.clone();
    both.extend(common::on_model(&soft));
    let legend = |records: &[PairRecord]| {
        let page = html(records, &Meta::default());
        let figure = page
            .split("<section class=\"figure\" id=\"fig1\">")
            .nth(1)
            .unwrap();
        let figure = figure.split("</section>").next().unwrap();
        figure.matches("<button ").count()
    };
    assert!(legend(&soft) > 1);
    assert_eq!(legend(&both), legend(&soft));
}

#[test]
fn of_two_records_of_a_cell_the_last_counts() {
    let records = common::study();
    let mut again = records.clone();
    again[0].outcome = Outcome::Failed {
        reason: "first attempt".into(),
    };
    again[0].metrics = None;
    again.push(records[0].clone());
    assert_eq!(findings(&again), findings(&records));
    assert!(!html(&again, &Meta::default()).contains("first attempt"));
}

#[test]
fn a_single_repetition_proves_no_difference() {
    let mut records = common::study();
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
    for finding in findings(&records) {
        assert!(
            !compared.iter().any(|id| finding.id.starts_with(id)),
            "{}",
            finding.sentence
        );
    }
}

#[test]
fn equal_series_are_not_told_apart() {
    let mut records = common::study();
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

/// Makes the cells that are picked slower by a factor.
fn slow(records: &mut [PairRecord], factor: f64, pick: impl Fn(&PairRecord) -> bool) {
    for metrics in records
        .iter_mut()
        .filter(|r| pick(r))
        .filter_map(|r| r.metrics.as_mut())
    {
        let latency = &mut metrics.one_way_ns;
        latency.mean = latency.mean.map(|ns| ns * factor);
        latency.ci95 = latency.ci95.map(|ns| ns * factor);
        metrics
            .repetitions
            .iter_mut()
            .for_each(|r| r.one_way_ns *= factor);
    }
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
    let mut records = common::study();
    slow(&mut records, 3.0, |r| {
        r.params.completion == Completion::Poll && r.params.size_bytes >= Bytes::mib(1)
    });
    let found = sentence(&records, "completion-send");
    assert!(
        found.contains("busy polling is faster at 1 B to 256 KiB, by up to"),
        "{found}"
    );
    assert!(
        found.contains("events are faster at 1 MiB to 64 MiB, by up to"),
        "{found}"
    );
    assert!(!found.contains("beyond the noise"), "{found}");
}

#[test]
fn inline_data_that_hurt_are_found() {
    let mut records = common::study();
    slow(&mut records, 1.5, |r| {
        r.params.inline && r.params.size_bytes > Bytes::new(64)
    });
    let found = sentence(&records, "inline-ping-send");
    assert!(found.contains("faster at 1 B to 64 B"), "{found}");
    assert!(
        found.contains("beyond 64 B they no longer pay; they make it slower at 256 B"),
        "{found}"
    );
}

/// What can befall a cell.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Whole,
    Missing,
    Failed,
    Empty,
    NoRepetitions,
    Absurd,
}

fn befall(record: &PairRecord, fate: Fate) -> Option<PairRecord> {
    let mut record = record.clone();
    match fate {
        Fate::Whole => {}
        Fate::Missing => return None,
        Fate::Failed => {
            record.outcome = Outcome::Failed {
                reason: "why".into(),
            };
            record.metrics = None;
        }
        Fate::Empty => record.metrics = None,
        Fate::NoRepetitions => record
            .metrics
            .iter_mut()
            .for_each(|m| m.repetitions.clear()),
        Fate::Absurd => {
            let absurd = [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300];
            for (i, r) in record
                .metrics
                .iter_mut()
                .flat_map(|m| &mut m.repetitions)
                .enumerate()
            {
                r.one_way_ns = absurd[(i + record.cell.len()) % absurd.len()];
                r.cpu_active.percent = Some(absurd[(i + 1) % absurd.len()]);
            }
            record.params.buffers = 0;
        }
    }
    Some(record)
}

/// A fate for each cell, told by a seed.
fn fates(mut seed: u64) -> impl Iterator<Item = Fate> {
    let fates = [
        Fate::Missing,
        Fate::Missing,
        Fate::Failed,
        Fate::Empty,
        Fate::NoRepetitions,
        Fate::Absurd,
    ];
    std::iter::repeat_with(move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        fates
            .get((seed >> 60) as usize)
            .copied()
            .unwrap_or(Fate::Whole)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn whatever_happens_to_cells_there_is_a_report(seed in any::<u64>()) {
        let study = common::study();
        let records: Vec<PairRecord> = study
            .iter()
            .zip(fates(seed))
            .filter_map(|(record, fate)| befall(record, fate))
            .collect();
        let page = html(&records, &Meta::default());
        let before_script = page.split("<script>").next().unwrap_or_default();
        prop_assert!(!before_script.contains("NaN"));
        prop_assert!(page.ends_with("</html>"));
    }

    #[test]
    fn a_finding_says_the_same_from_its_evidence_alone(seed in any::<u64>()) {
        let study = common::study();
        let records: Vec<PairRecord> = study
            .iter()
            .zip(fates(seed))
            .filter(|(_, fate)| !matches!(fate, Fate::Missing))
            .map(|(record, _)| record.clone())
            .collect();
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
    let mut records = common::study();
    let quiet = html(&records, &Meta::default());
    assert!(!quiet.contains("What the devices counted"));
    let count = |name: &str, n| [(name.to_owned(), n)].into();
    records[0].counters.active = count("rnr_nak_retry_err", 7);
    records[1].counters.active = count("rnr_nak_retry_err", 35);
    records[2].counters.passive = count("port_rcv_packets", 1000);
    let meta = Meta::default();
    let report = Report::from_records(&records, &meta, adverb_experiments::chapters());
    let notice = &report.notices()[0];
    assert!(notice.starts_with("In 2 cells of"), "{notice}");
    let page = report.html();
    let (trouble, traffic) = (
        page.find("rnr_nak_retry_err"),
        page.find("port_rcv_packets"),
    );
    assert!(trouble.is_some() && trouble < traffic);
    let row = format!(
        "<td class=\"n\">42</td><td class=\"n\">0</td><td class=\"n\">2</td><td><code>{}</code>",
        records[1].cell
    );
    assert!(page.contains(&row));
}

#[test]
fn two_hosts_are_both_named() {
    let mut records = common::study();
    for record in &mut records {
        record.provenance.passive = Some(common::site("faraway"));
    }
    let page = html(&records, &Meta::default());
    assert!(page.contains("Host of the passive side") && page.contains("faraway, kernel 6.1.0"));
}
