//! How the comparison is shown.

use serde_json::{Value, json};

use crate::Setting;
use crate::row::{Definitions, Measured, Row, Verdict};
use crate::stats::{median, median_interval, sorted};

/// In the place of a verdict where none was asked for.
const UNJUDGED: &str = "not judged";

/// Prints the table, the commands, and where the definitions differ.
pub(crate) fn print(setting: &Setting, measured: &[(&Row, Measured)]) {
    let machine = adverb_host::Machine::this();
    println!(
        "device {}, {}, Linux {}, cores {:?}, adverb {}\n",
        setting.device,
        machine.cpu,
        machine.kernel,
        setting.cores,
        env!("CARGO_PKG_VERSION")
    );
    println!(
        "{:24}  {:>12}  {:>12}  {:>6}  {:>13}  {:>13}  {:>6}  within {} %",
        "",
        "adverb",
        "perftest",
        "ratio",
        "90 % interval",
        "min..max",
        "rounds",
        setting.bound * 100.0
    );
    for (row, m) in measured {
        let ratios = m.ratios();
        let (low, high) = median_interval(&ratios);
        let (ours, theirs) = medians(m);
        let show = |value: f64| format!("{value:.2} {}", m.unit);
        println!(
            "{:24}  {:>12}  {:>12}  {:>6.3}  {:>13}  {:>13}  {:>6}  {}",
            row.name,
            show(ours),
            show(theirs),
            m.ratio(),
            format!("{low:.3}..{high:.3}"),
            format!("{:.3}..{:.3}", ratios[0], ratios[ratios.len() - 1]),
            ratios.len(),
            m.verdict(setting).map_or(UNJUDGED, Verdict::word),
        );
    }
    println!("\nCompared are medians of all samples (latency) and means (bandwidth), of:");
    for (row, _) in measured {
        let (ours, theirs) = row.commands();
        println!("  {ours}\n  {theirs}");
    }
    print_definitions(measured);
}

/// Where perftest defines a figure otherwise: the same samples, both ways.
fn print_definitions(measured: &[(&Row, Measured)]) {
    let with = measured
        .iter()
        .filter_map(|(row, m)| Some((row, m.definitions.as_ref()?)));
    let mut is_first = true;
    for (row, Definitions { perftest, ours }) in with {
        if is_first {
            println!(
                "\nThe other figures of the last round, µs. perftest leaves the two largest samples out of \
                 t_typical and t_avg, calls the second largest t_max, and truncates deviations to whole µs \
                 before it squares them; \"its samples\" are the same run without that.\n"
            );
            println!(
                "{:24}  {:16}  {:>10}  {:>10}  {:>10}  {:>10}",
                "", "", "median", "mean", "largest", "deviation"
            );
            is_first = false;
        }
        let (mean, deviation) = perftest.plain();
        let line = |name: &str, who: &str, figures: [f64; 4]| {
            let [median, mean, largest, deviation] = figures;
            println!(
                "{name:24}  {who:16}  {median:>10.2}  {mean:>10.2}  {largest:>10.2}  {deviation:>10.2}"
            );
        };
        let p = perftest;
        line(
            row.name,
            "perftest says",
            [p.typical, p.average, p.max, p.deviation],
        );
        line(
            "",
            "its samples",
            [p.median(), mean, p.largest(), deviation],
        );
        line(
            "",
            "adverb",
            [ours.median, ours.mean, ours.largest, ours.deviation],
        );
    }
}

/// A row as one object.
pub(crate) fn json(setting: &Setting, row: &Row, m: &Measured) -> Value {
    let ratios = m.ratios();
    let (ours, theirs) = medians(m);
    let (command, reference) = row.commands();
    json!({
        "name": row.name,
        "figure": m.figure,
        "unit": m.unit,
        "adverb": ours,
        "perftest": theirs,
        "ratio": m.ratio(),
        "interval90": median_interval(&ratios),
        "ratios": ratios,
        "pairs": m.pairs,
        "within": m.verdict(setting).map(Verdict::word),
        "bound": setting.bound,
        "commands": { "adverb": command, "perftest": reference },
    })
}

/// Medians over the rounds.
fn medians(m: &Measured) -> (f64, f64) {
    let of = |pick: fn(&(f64, f64)) -> f64| median(&sorted(m.pairs.iter().map(pick)));
    (of(|pair| pair.0), of(|pair| pair.1))
}
