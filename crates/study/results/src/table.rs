//! Records as CSV: one row a record, units in the column names, an empty cell without a value.
//! Histograms and repetitions stay in the JSON Lines.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::io;

use serde_json::Value;

use crate::stats::Spread;
use crate::{Outcome, Record, Site, Values};

/// Columns with their values, in order.
type Row = Vec<(String, String)>;

/// Writes the records as CSV, with a header row. The columns are the union over all records: first identity
/// and outcome, then parameters, metrics and provenance. A parameter with the name of a metric is in a column `params_NAME`.
///
/// # Errors
/// `out` fails.
pub fn write_csv(records: &[Record], out: impl io::Write) -> io::Result<()> {
    let measured = [repetitions, metrics, provenance];
    let measured = measured
        .iter()
        .flat_map(|part| records.iter().flat_map(part));
    let measured: HashSet<String> = measured.map(|(name, _)| name).collect();
    let asked = |record: &Record| -> Row {
        let renamed = |(name, value)| match measured.contains(&name) {
            true => (format!("params_{name}"), value),
            false => (name, value),
        };
        params(record).into_iter().map(renamed).collect()
    };
    let parts: [&dyn Fn(&Record) -> Row; 5] =
        [&identity, &asked, &repetitions, &metrics, &provenance];
    let mut columns: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    let mut rows: Vec<BTreeMap<String, String>> = vec![BTreeMap::new(); records.len()];
    for part in parts {
        for (record, row) in records.iter().zip(&mut rows) {
            for (name, value) in part(record) {
                if known.insert(name.clone()) {
                    columns.push(name.clone());
                }
                row.insert(name, value);
            }
        }
    }
    if records.is_empty() {
        columns = ["schema", "cell", "status"].map(str::to_owned).to_vec();
    }
    let mut table = csv::Writer::from_writer(out);
    table.write_record(&columns)?;
    for row in rows {
        table.write_record(
            columns
                .iter()
                .map(|name| row.get(name).map_or("", String::as_str)),
        )?;
    }
    table.flush()
}

fn row<const N: usize>(cells: [(&str, Option<String>); N]) -> Row {
    let cells = cells.into_iter();
    cells
        .map(|(name, value)| (name.to_owned(), value.unwrap_or_default()))
        .collect()
}

#[expect(clippy::unnecessary_wraps, reason = "a cell of a row may be empty")]
fn text(value: &impl ToString) -> Option<String> {
    Some(value.to_string())
}

fn identity(r: &Record) -> Row {
    let reason = match &r.outcome {
        Outcome::Ok => None,
        Outcome::Failed { reason } => Some(reason.clone()),
    };
    row([
        ("schema", text(&r.schema)),
        ("cell", text(&r.cell)),
        ("label", r.label.clone()),
        ("figures", text(&r.figures.join(" "))),
        (
            "status",
            text(&if reason.is_some() { "failed" } else { "ok" }),
        ),
        ("failure_reason", reason),
        ("program", text(&r.program)),
        ("device_kind", text(&r.device.kind)),
        ("device_name", text(&r.device.name)),
    ])
}

fn params(r: &Record) -> Row {
    let mut row = Row::new();
    flatten(&mut row, "", &r.params);
    row
}

fn metrics(r: &Record) -> Row {
    let mut row = Row::new();
    for (name, value) in r.metrics.iter().flatten() {
        match value {
            _ if name == "histogram" || name == "repetitions" => {}
            Value::Object(parts) => flatten(&mut row, name, parts),
            value => row.push((column("", name), word(value))),
        }
    }
    row
}

fn flatten(row: &mut Row, prefix: &str, values: &Values) {
    for (name, value) in values {
        match value {
            Value::Object(parts) if name == "signal" => {
                let parts = parts.iter().map(|(name, n)| format!("{name}={n}"));
                row.push((name.clone(), parts.collect()));
            }
            Value::Object(parts) if prefix.is_empty() => flatten(row, name, parts),
            Value::Object(parts) => flatten(row, &format!("{prefix}_{name}"), parts),
            value => row.push((column(prefix, name), word(value))),
        }
    }
}

/// Returns the column of a nested value. The unit of the outer name moves to the end: `mean` in `one_way_ns` is
/// `one_way_mean_ns`.
fn column(prefix: &str, name: &str) -> String {
    match (prefix, name) {
        ("", "messages_per_s") => "message_rate_per_s".to_owned(),
        ("", "bytes_per_s") => "throughput_bytes_per_s".to_owned(),
        ("", name) => name.to_owned(),
        ("impairment", "loss" | "duplicate" | "reorder" | "corrupt") => name.to_owned(),
        (prefix, "percent") => format!("{prefix}_percent"),
        (prefix, name) if prefix.starts_with("cpu") => format!("{prefix}_{name}_percent"),
        (prefix, "ci95") if prefix.ends_with("_ns") => {
            format!("{}_mean_ci95_ns", prefix.trim_end_matches("_ns"))
        }
        (prefix, name) => match prefix.strip_suffix("_ns") {
            Some(outer) => format!("{outer}_{name}_ns"),
            None => format!("{prefix}_{name}"),
        },
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(n) if n.is_f64() => n.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    }
}

/// Number of repetitions, and the spread of what they measured.
fn repetitions(r: &Record) -> Row {
    let all = r.metrics.as_ref().and_then(|m| m.get("repetitions"));
    let count = all
        .and_then(Value::as_array)
        .map(|all| all.len().to_string());
    let mut row: Row = count
        .map(|n| ("repetitions".to_owned(), n))
        .into_iter()
        .collect();
    for (metric, outer, unit) in [
        ("one_way_ns", "one_way", "_ns"),
        ("requests_per_s", "requests", "_per_s"),
    ] {
        let Some(spread) = Spread::of(&r.repetitions(metric)) else {
            continue;
        };
        for (what, value) in [
            ("median", spread.median),
            ("min", spread.min),
            ("max", spread.max),
        ] {
            row.push((
                format!("{outer}_{what}_of_repetitions{unit}"),
                value.to_string(),
            ));
        }
    }
    row
}

fn provenance(r: &Record) -> Row {
    let p = &r.provenance;
    let passive = p.passive.as_ref();
    let mut cells = row([
        ("started", text(&p.started)),
        ("host", text(&p.active.host)),
        ("machine", text(&machine(&p.active))),
        ("device_details", details(&p.active.device)),
        ("passive_host", passive.map(|site| site.host.clone())),
        ("passive_machine", passive.map(machine)),
        (
            "passive_device_details",
            passive.and_then(|site| details(&site.device)),
        ),
    ]);
    let counters = r.counters.iter();
    cells.extend(counters.map(|(role, counted)| {
        (
            format!("{role}_counters"),
            details(counted).unwrap_or_default(),
        )
    }));
    cells.extend(row([
        ("adverb", text(&p.adverb)),
        ("revision", p.revision.clone()),
    ]));
    cells
}

fn machine(site: &Site) -> String {
    format!("{}; {} cores; {}", site.cpu, site.cores, site.kernel)
}

/// Names and values in one cell; `None` if there are none.
fn details<V: Display>(of: &BTreeMap<String, V>) -> Option<String> {
    let words = of.iter().map(|(name, value)| format!("{name}={value}"));
    (!of.is_empty()).then(|| words.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{failed, record};

    fn rows(records: &[Record]) -> Vec<std::collections::HashMap<String, String>> {
        let mut bytes = Vec::new();
        write_csv(records, &mut bytes).unwrap();
        csv::Reader::from_reader(bytes.as_slice())
            .deserialize()
            .map(Result::unwrap)
            .collect()
    }

    #[test]
    fn a_row_has_units_provenance_and_empty_cells() {
        let row = &rows(&[record("a")])[0];
        assert_eq!(row["one_way_mean_ns"], "100");
        assert_eq!(row["one_way_mean_ci95_ns"], "0");
        assert_eq!(row["one_way_median_of_repetitions_ns"], "100");
        assert_eq!(row["message_rate_per_s"], "10000000");
        assert_eq!(row["op"], "send");
        assert_eq!(row["cpu_active_user_percent"], "75");
        assert_eq!(row["cpu_active_percent"], "100");
        assert_eq!(row["cpu_passive_percent"], "");
        assert_eq!(row["one_way_p99_ns"], "");
        assert_eq!(row["host"], "testbed");
        assert_eq!(row["status"], "ok");
        assert_eq!(row["failure_reason"], "");
    }

    #[test]
    fn programs_share_a_table_with_the_columns_of_all() {
        let mut other = record("k");
        other.program = "kv".to_owned();
        let metrics = serde_json::json!({ "requests_per_s": 5.5, "latency_ns": { "p99": 7.0 } });
        other.metrics = metrics.as_object().cloned();
        let rows = rows(&[record("a"), other]);
        assert_eq!(rows[1]["requests_per_s"], "5.5");
        assert_eq!(rows[1]["latency_p99_ns"], "7");
        assert_eq!(rows[1]["one_way_mean_ns"], "");
        assert_eq!(rows[0]["requests_per_s"], "");
    }

    #[test]
    fn a_parameter_and_a_metric_of_the_same_name_are_two_columns() {
        let mut store = record("s");
        store.params.insert("requests".to_owned(), 1000.into());
        let metrics = serde_json::json!({ "requests": 3000 });
        store.metrics = metrics.as_object().cloned();
        let row = &rows(&[store])[0];
        assert_eq!(
            (&row["params_requests"][..], &row["requests"][..]),
            ("1000", "3000")
        );
    }

    #[test]
    fn a_failed_cell_has_its_reason_and_no_figure() {
        let row = &rows(&[failed("a", "no \"space\", sorry\nreally")])[0];
        assert_eq!(row["status"], "failed");
        assert_eq!(row["failure_reason"], "no \"space\", sorry\nreally");
        assert!(!row.contains_key("one_way_mean_ns"));
    }

    #[test]
    fn no_record_is_a_table_of_names() {
        let mut bytes = Vec::new();
        write_csv(&[], &mut bytes).unwrap();
        assert_eq!(bytes.iter().filter(|b| **b == b'\n').count(), 1);
    }
}
