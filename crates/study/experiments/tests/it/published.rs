//! Published values next to the model's, and what is reported for a device without noise.

use crate::common::{findings, html, of_figure, on_model, report, study};
use adverb_report::Meta;
use adverb_results::{PairRecord, PublishedPoint, PublishedQuantity};

const SOURCE: &str = "A & B, HPCC 2012";

fn page(records: &[PairRecord], published: &[PublishedPoint]) -> String {
    let meta = Meta::default();
    report(records, &meta).with_published(published).html()
}

/// A published value of a blast that figure 3 shows.
fn point(value: Option<f64>) -> PublishedPoint {
    let records = of_figure("fig3");
    let shown = |r: &&PairRecord| r.params.buffers == 16 && r.params.size_bytes.get() == 64;
    let cell = records.iter().find(shown).unwrap();
    PublishedPoint {
        id: "AB-1".to_owned(),
        source: SOURCE.to_owned(),
        preset: "connect_ib".to_owned(),
        program: cell.program,
        params: cell.params.clone(),
        quantity: PublishedQuantity::OneWay,
        value,
        low: 250.0,
        high: 400.0,
    }
}

/// Names of the series of published values, once for each panel.
fn marks(page: &str) -> Vec<&str> {
    let series = page.split("<g class=\"series\" data-series=\"").skip(1);
    series
        .filter_map(|rest| rest.split('"').next())
        .filter(|name| name.contains("published"))
        .collect()
}

#[test]
fn published_values_are_marks_with_their_source_beside_the_same_series() {
    let model = on_model(&study());
    let page = page(&model, &[point(Some(300.0))]);
    let name = "64 B, published: A &amp; B, HPCC 2012";
    // Time and throughput of single posts; nothing where lists are shown, or another figure.
    assert_eq!(marks(&page), [name, name]);
    assert!(
        page.contains("16 buffers: 300 ns (250 ns to 400 ns), as published (AB-1)"),
        "a time"
    );
    assert!(
        page.contains("16 buffers: 1707 Mb/s (1280 Mb/s to 2048 Mb/s), as published (AB-1)"),
        "a throughput"
    );
    assert_eq!(page.matches("Crosses are published values").count(), 1);
}

#[test]
fn bounds_are_no_value() {
    let model = on_model(&study());
    let page = page(&model, &[point(None)]);
    assert!(page.contains("16 buffers: 250 ns to 400 ns, as published (AB-1)"));
    assert_eq!(marks(&page).len(), 2);
}

#[test]
fn published_values_stand_only_beside_a_model_of_the_same_hardware() {
    let value = point(Some(300.0));
    let other = PublishedPoint {
        preset: "cx3".to_owned(),
        ..value.clone()
    };
    assert!(
        marks(&page(&study(), std::slice::from_ref(&value))).is_empty(),
        "soft"
    );
    assert!(
        marks(&page(&on_model(&study()), &[other])).is_empty(),
        "another NIC"
    );
    let page = page(&crate::common::on_both(), &[value]);
    for plot in page.split("<figcaption>").skip(1) {
        let is_of_model = plot.starts_with("model:connect_ib: ");
        assert!(is_of_model || marks(plot).is_empty(), "{plot:.200}");
    }
    assert_eq!(marks(&page).len(), 2);
    assert!(page.contains("measurements and predictions"));
}

#[test]
fn a_hostile_source_is_escaped() {
    let evil = PublishedPoint {
        source: "\"><script>alert(1)</script>".to_owned(),
        id: "<b>".to_owned(),
        ..point(Some(300.0))
    };
    let page = page(&on_model(&study()), &[evil]);
    assert!(!page.contains("<script>alert") && !page.contains("(<b>)"));
}

#[test]
fn no_finding_comes_of_published_values() {
    let model = on_model(&study());
    let meta = Meta::default();
    let points = [point(Some(1.0))];
    let with = report(&model, &meta).with_published(&points).findings();
    assert_eq!(with, findings(&model));
}

/// A model's study: repetitions are equal.
fn noiseless() -> Vec<PairRecord> {
    let mut records = on_model(&study());
    for metrics in records.iter_mut().filter_map(|r| r.metrics.as_mut()) {
        let first = metrics.repetitions[0].clone();
        metrics.one_way_ns.ci95 = Some(0.0);
        metrics.one_way_ns.mean = Some(first.one_way_ns);
        metrics.repetitions.fill(first);
    }
    records
}

#[test]
fn of_a_model_nothing_is_said_about_noise_but_that_it_has_none() {
    let records = noiseless();
    let findings = findings(&records);
    assert!(findings.iter().any(|f| f.figure == "fig1"));
    for finding in &findings {
        let noisy = finding.sentence.replace("(the model has no noise)", "");
        assert!(!noisy.contains("noise"), "{}", finding.sentence);
    }
    let told = findings.iter().filter(|f| f.sentence.contains("2 %"));
    assert!(told.count() > 0, "{findings:?}");
    let page = html(&records);
    assert!(page.contains("The model has no noise where no packets are lost"));
    assert!(page.contains("How to use RDMA verbs: a prediction"));
    assert!(page.contains(", predicted</title>"), "points say so");
    assert!(!page.contains(" repetitions)</title>"));
}

/// The crosses of the rankings, with their titles.
fn on_bars(page: &str) -> Vec<&str> {
    let bars = page.split("class=\"plot bars\"").skip(1);
    let plots = bars.filter_map(|rest| rest.split("</svg>").next());
    let titles = plots.flat_map(|plot| plot.split("<title>").skip(1));
    titles
        .filter_map(|rest| rest.split("</title>").next())
        .filter(|title| title.contains("as published"))
        .collect()
}

#[test]
fn published_values_are_crosses_on_the_bars_of_the_same_ping() {
    let model = on_model(&study());
    let ranked = |r: &&PairRecord| r.figures.contains(&"rank-cpu".to_owned());
    let cell = model.iter().find(ranked).unwrap();
    let of = |quantity, figure: f64| PublishedPoint {
        program: cell.program,
        params: cell.params.clone(),
        quantity,
        low: 0.9 * figure,
        high: 1.1 * figure,
        ..point(Some(figure))
    };
    let points = [
        of(PublishedQuantity::OneWay, 2000.0),
        of(PublishedQuantity::CpuActive, 50.0),
        of(PublishedQuantity::CpuActivePerRound, 1500.0),
        of(PublishedQuantity::CpuPassive, 30.0),
    ];
    let page = self::page(&model, &points);
    let crosses = on_bars(&page);
    for words in [
        "64 B: 4.00 µs (3.60 µs to 4.40 µs), as published (AB-1), A &amp; B, HPCC 2012",
        "64 B: 50 % (45 % to 55 %), as published",
        "64 B: 1.50 µs (1.35 µs to 1.65 µs), as published",
    ] {
        assert!(
            crosses.iter().any(|title| title.contains(words)),
            "{words}: {crosses:?}"
        );
    }
    // The round trip stands in two panels where the ping polls; nobody ranks the passive side.
    assert!(crosses.iter().all(|title| !title.contains("30 %")));
    let source = "published: A &amp; B, HPCC 2012</text>";
    assert!(page.contains(source), "the source stands below the bars");
    // Another size is another cell.
    let mut other = of(PublishedQuantity::OneWay, 2000.0);
    other.params.size_bytes = adverb_units::Bytes::new(65);
    assert!(on_bars(&self::page(&model, &[other])).is_empty());
}
