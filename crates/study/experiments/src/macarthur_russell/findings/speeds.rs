//! How much of a link's speed messages use.

use std::collections::BTreeMap;

use adverb_report::cells::{Cell, Quantity};
use adverb_report::findings::{Finding, Scope, about_equal};
use adverb_report::format;
use adverb_results::Opcode;
use adverb_verbs::LinkRate;

const FIGURE: &str = "fig7";

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let cells = scope.figure(FIGURE);
    let cells = cells.filter(|r| r.params.op == Opcode::Write && !r.params.verify);
    let mut highest: BTreeMap<LinkRate, (f64, Cell<'_>)> = BTreeMap::new();
    for cell in cells.iter() {
        let reached = cell.sample(Quantity::Megabits).map(|s| s.median);
        let Some((rate, reached)) = cell.params().rate.zip(reached) else {
            continue;
        };
        let best = highest.entry(rate).or_insert((reached, cell));
        if reached > best.0 {
            *best = (reached, cell);
        }
    }
    let Some((_, (_, first))) = highest.first_key_value() else {
        return Vec::new();
    };
    let size = format::size(first.size());
    let listed = highest.iter().map(|(rate, (reached, _))| {
        let share = format::percent(100.0 * reached / f64::from(rate.usable_mbps()));
        let name = rate.to_string().to_uppercase();
        format!("{share} at {name} ({})", format::megabits(*reached))
    });
    let listed: Vec<String> = listed.collect();
    let rates = highest.values().map(|(reached, _)| *reached);
    let rates: Vec<f64> = rates.collect();
    let limit = match rates.len() > 1 && about_equal(&rates) {
        true => "; the rate is about the same at each, so the link does not limit it",
        false => "",
    };
    let sentence = format!(
        "RDMA WRITEs of {size} in lists use, of what the link leaves for packets, {}{limit}.",
        format::and(&listed)
    );
    vec![scope.finding("speeds", FIGURE, sentence, cells.iter())]
}
