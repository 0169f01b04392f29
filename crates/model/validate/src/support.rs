//! How well the rows support each preset, as a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::report::{Outcome, Report};

impl Report {
    /// Returns CSV with a line for each preset: its published values to which no parameter was fitted, those to which
    /// some were, and the median and the largest |prediction / published value - 1| of the former in percent. Bounds, rows
    /// of grade 0 and rows without a prediction are left out.
    pub fn support_csv(&self) -> String {
        let mut presets: BTreeMap<&str, (Vec<f64>, usize)> = BTreeMap::new();
        for outcome in self.outcomes().iter().filter(|o| o.entry().counts()) {
            let Some(ratio) = outcome.ratio() else {
                continue;
            };
            let (deviations, fitted) = presets.entry(preset(outcome)).or_default();
            match outcome.entry().is_fitted() {
                true => *fitted += 1,
                false => deviations.push(100.0 * (ratio - 1.0).abs()),
            }
        }
        let mut csv = "preset,values,fitted,typical_percent,worst_percent\n".to_owned();
        for (name, (mut deviations, fitted)) in presets {
            deviations.sort_by(f64::total_cmp);
            let (values, worst) = (deviations.len(), deviations.last().unwrap_or(&0.0));
            let typical = match values {
                0 => 0.0,
                n => f64::midpoint(deviations[(n - 1) / 2], deviations[n / 2]),
            };
            let line = writeln!(csv, "{name},{values},{fitted},{typical:.1},{worst:.1}");
            line.expect("a string grows");
        }
        csv
    }
}

fn preset(outcome: &Outcome) -> &str {
    &outcome.entry().labels.preset
}
