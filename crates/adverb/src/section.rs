//! Sections of a table: rows with the same columns, and the parameters that these show.

use std::collections::BTreeSet;

use adverb_report::format;
use adverb_results::{Probability, Record, Values, swept};
use serde_json::Value;

/// Rows with the same columns.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    /// Parameters that differ between the points, and their widths: columns of their own. Sizes have a column anyway.
    swept: Vec<(String, usize)>,
    /// Parameters that all points share.
    pub(crate) shared: Vec<String>,
}

impl Section {
    /// Returns the section of points with these parameters.
    pub(crate) fn of(name: &'static str, points: &[Values]) -> Self {
        let mut swept = swept(&points.iter().collect::<Vec<_>>());
        let first = points.first().into_iter().flatten();
        let shared = first.filter(|(name, _)| !swept.contains(name));
        let shared = shared.filter_map(|(name, value)| named(name, value));
        let mut shared: Vec<String> = shared.collect();
        if !name.is_empty() {
            shared.extend(said_once(points, &mut swept));
        }
        let width = |name: &str| {
            let values = points
                .iter()
                .filter_map(|point| shown(name, point.get(name)?));
            let longest = values.map(|value| value.chars().count()).max();
            format::without_unit(name)
                .len()
                .max(longest.unwrap_or(0))
                .max(NARROWEST)
        };
        Section {
            name,
            shared,
            swept: swept
                .iter()
                .map(|name| (name.clone(), width(name)))
                .collect(),
        }
    }

    pub(crate) fn header(&self, columns: &[(&str, usize)]) -> String {
        let swept = self.swept.iter();
        let swept = swept.map(|(name, width)| pad(format::without_unit(name), *width));
        let columns = columns.iter().map(|(name, width)| pad(name, *width));
        swept.chain(columns).collect::<Vec<_>>().join("  ")
    }

    pub(crate) fn row(
        &self,
        record: &Record,
        columns: &[(&str, usize)],
        values: Vec<Option<String>>,
    ) -> String {
        let params = flat(&with_program(&record.program, &record.params));
        let swept = self.swept.iter().map(|(name, width)| {
            let value = params.get(name).and_then(|value| shown(name, value));
            pad(value.as_deref().unwrap_or("-"), *width)
        });
        let values = columns.iter().zip(values);
        let values = values.map(|((_, width), value)| pad(value.as_deref().unwrap_or("-"), *width));
        swept.chain(values).collect::<Vec<_>>().join("  ")
    }
}

/// Returns the parameters of a point that differ between `points`, except for some: `clients=20`.
pub(crate) fn differences(point: &Values, points: &[&Values], except: &[&str]) -> Vec<String> {
    let points: Vec<Values> = points.iter().map(|point| flat_injected(point)).collect();
    let swept = swept(&points.iter().collect::<Vec<_>>());
    let swept = swept.iter().filter(|name| !except.contains(&name.as_str()));
    let point = flat_injected(point);
    let words = swept.filter_map(|name| named(name, point.get(name)?));
    words.collect()
}

/// `clients=20`.
fn named(name: &str, value: &Value) -> Option<String> {
    let value = shown(name, value)?;
    Some(format!("{}={value}", format::without_unit(name)))
}

/// Removes parameters that rows need not show: given in the same rows as an earlier one, with its value or always the
/// same. Returns them in words.
fn said_once(points: &[Values], swept: &mut Vec<String>) -> Vec<String> {
    let column = |name: &String| -> Vec<Option<&Value>> {
        points.iter().map(|point| point.get(name)).collect()
    };
    let mut said = Vec::new();
    for place in (1..swept.len()).rev() {
        let own = column(&swept[place]);
        let values: BTreeSet<String> = own.iter().flatten().map(ToString::to_string).collect();
        let given = own.iter().flatten().next().filter(|_| values.len() == 1);
        let words = swept[..place].iter().find_map(|earlier| {
            let other = column(earlier);
            let is_given_with_it = || {
                own.iter()
                    .zip(&other)
                    .all(|(a, b)| a.is_some() == b.is_some())
            };
            match other == own {
                true => Some(format::without_unit(earlier).to_owned()),
                false => shown(&swept[place], given?).filter(|_| is_given_with_it()),
            }
        });
        if let Some(words) = words {
            let name = swept.remove(place);
            said.insert(0, format!("{}={words}", format::without_unit(&name)));
        }
    }
    if let Some(first) = said.first_mut() {
        first.insert_str(0, "where given: ");
    }
    said
}

/// Returns the parameters of a program, with its name in front of them.
pub(crate) fn with_program(program: &str, params: &Values) -> Values {
    let program = ("program".to_owned(), Value::from(program));
    let params = params
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    std::iter::once(program).chain(params).collect()
}

/// Returns the parameters with each of the faults as one of its own: `loss`, `delay_ns`.
fn flat(params: &Values) -> Values {
    flat_with(params, |_, _| true)
}

/// The same with the faults that are injected.
pub(crate) fn flat_injected(params: &Values) -> Values {
    flat_with(params, |name, value| {
        name != "seed" && value.as_f64() != Some(0.0)
    })
}

fn flat_with(params: &Values, is_wanted: impl Fn(&str, &Value) -> bool) -> Values {
    let mut flat = params.clone();
    if let Some(Value::Object(faults)) = flat.shift_remove("impairment") {
        flat.extend(
            faults
                .into_iter()
                .filter(|(name, value)| is_wanted(name, value)),
        );
    }
    flat
}

/// Width of a column of a parameter, at least.
const NARROWEST: usize = 7;

/// Parameters that are shares of packets.
const SHARES: [&str; 4] = ["loss", "duplicate", "reorder", "corrupt"];

/// Returns a parameter's value with its unit, a share of packets in percent.
fn shown(name: &str, value: &Value) -> Option<String> {
    match serde_json::from_value(value.clone()) {
        Ok(share) if SHARES.contains(&name) => Some(Probability::to_string(&share)),
        _ => format::parameter(name, Some(value)),
    }
}

/// Right-aligned.
fn pad(text: &str, width: usize) -> String {
    format!("{text:>width$}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn section(points: &[Value]) -> (Vec<String>, Vec<String>) {
        let points: Vec<Values> = points
            .iter()
            .map(|point| point.as_object().unwrap().clone())
            .collect();
        let section = Section::of("figure", &points);
        let swept = section.swept.into_iter().map(|(name, _)| name);
        (swept.collect(), section.shared)
    }

    #[test]
    fn what_rows_share_is_said_once() {
        let row = |op: &str, server: u32| json!({ "op": op, "server": server, "memory": server, "size": 8 });
        let loaded =
            json!({ "op": "read", "server": 0, "memory": 0, "size": 8, "load": 2, "mix": 0.5 });
        let (swept, shared) = section(&[row("read", 0), row("write", 1), loaded]);
        assert_eq!(swept, ["op", "server", "load"]);
        assert_eq!(shared, ["size=8", "where given: memory=server", "mix=0.5"]);
    }
}
