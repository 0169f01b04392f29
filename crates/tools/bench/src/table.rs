//! How comparisons are shown: tables, and one JSON object for each row.

use serde_json::{Value, json};

use crate::row::{Row, Setting};
use crate::stats::{median, median_interval};

/// Prints the machine that was measured.
pub(crate) fn print_machine(setting: &Setting) {
    let machine = adverb_host::Machine::this();
    println!(
        "{}, Linux {}, cores {:?}, adverb {}",
        machine.cpu,
        machine.kernel,
        setting.cores,
        env!("CARGO_PKG_VERSION")
    );
}

/// Prints a table whose first column has this width.
pub(crate) fn print(title: &str, reference: &str, rows: &[Row], width: usize) {
    println!("\n{title}");
    println!(
        "{:width$}  {:>12}  {reference:>12}  {:>7}  {:>15}  {:>15}  {:>6}  bound",
        "", "adverb", "ratio", "90 % interval", "min..max", "rounds",
    );
    for row in rows {
        let summary = match row.summary() {
            Ok(summary) => summary,
            Err(needs) => {
                println!("{:width$}  NOT RUN: {needs}", row.name);
                continue;
            }
        };
        let ratios = &summary.ratios;
        let range = |(low, high): (f64, f64)| format!("{low:.3}..{high:.3}");
        println!(
            "{:width$}  {:>12}  {:>12}  {:>7.3}  {:>15}  {:>15}  {:>6}  {}",
            row.name,
            row.unit.show(summary.medians.0),
            row.unit.show(summary.medians.1),
            median(ratios),
            range(median_interval(ratios)),
            range((ratios[0], ratios[ratios.len() - 1])),
            ratios.len(),
            row.bound_words(summary.verdict),
        );
    }
}

/// A row as one object.
pub(crate) fn json(row: &Row) -> Value {
    match row.summary() {
        Ok(summary) => json!({
            "name": row.name,
            "what": row.what,
            "unit": row.unit.name(),
            "adverb": summary.medians.0,
            "reference": summary.medians.1,
            "ratio": median(&summary.ratios),
            "interval90": median_interval(&summary.ratios),
            "ratios": summary.ratios,
            "pairs": row.pairs.as_deref().unwrap_or_default(),
            "bound": row.bound_words(summary.verdict),
        }),
        Err(needs) => json!({ "name": row.name, "not_run": needs }),
    }
}
