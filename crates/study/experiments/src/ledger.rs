//! The claims of the studies: one file `claims.toml` in the folder of each experiment.

use std::sync::LazyLock;

use adverb_report::claims::Ledger;
use serde_json::Value;
use toml_edit::{ImDocument, Item, Table};

use crate::{EXPERIMENTS, PROGRAM_STUDIES};

/// The ledgers, each with the id of its experiment.
static LEDGERS: LazyLock<Vec<(&'static str, Ledger)>> = LazyLock::new(|| {
    let with_claims = EXPERIMENTS.iter().filter(|e| !e.claims.is_empty());
    let of_experiments = with_claims.map(|e| (e.id, e.claims));
    let all = of_experiments.chain(PROGRAM_STUDIES.iter().map(|study| (study.id, study.claims)));
    all.map(|(id, claims)| (id, read(claims))).collect()
});

/// Returns the ledgers of all experiments that repeat a publication.
pub fn ledgers() -> impl Iterator<Item = &'static Ledger> {
    LEDGERS.iter().map(|(_, ledger)| ledger)
}

/// Returns the ledger of an experiment; `None` if it repeats no publication.
pub(crate) fn of(experiment: &str) -> Option<&'static Ledger> {
    let own = LEDGERS.iter().find(|(id, _)| *id == experiment);
    own.map(|(_, ledger)| ledger)
}

/// Reads a file that is part of the program.
fn read(text: &str) -> Ledger {
    let document = ImDocument::parse(text).unwrap_or_else(|e| panic!("claims.toml: {e}"));
    let read = serde_json::from_value(of_table(document.as_table()));
    read.unwrap_or_else(|e| panic!("claims.toml: {e}"))
}

fn of_table(table: &Table) -> Value {
    let entries = table
        .iter()
        .map(|(name, item)| (name.to_owned(), of_item(item)));
    Value::Object(entries.collect())
}

fn of_item(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => of_value(value),
        Item::Table(table) => of_table(table),
        Item::ArrayOfTables(tables) => tables.iter().map(of_table).collect(),
    }
}

fn of_value(value: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::String(text) => text.value().as_str().into(),
        Toml::Integer(n) => (*n.value()).into(),
        Toml::Float(x) => (*x.value()).into(),
        Toml::Boolean(is) => (*is.value()).into(),
        Toml::Datetime(time) => time.value().to_string().into(),
        Toml::Array(values) => values.iter().map(of_value).collect(),
        Toml::InlineTable(table) => of_table(&table.clone().into_table()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use adverb_report::claims::{Claim, Predicate};

    use super::*;

    #[test]
    fn ids_are_unique_and_every_claim_has_its_source() {
        let mut ids = BTreeSet::new();
        for claim in ledgers().flat_map(|ledger| &ledger.claims) {
            assert!(ids.insert(&claim.id), "{} is there twice", claim.id);
            assert!(
                !claim.at.is_empty() && claim.says.ends_with('.'),
                "{}",
                claim.id
            );
            let has_one = claim.found.is_none() || claim.rows.is_empty();
            assert!(has_one, "{} has rows, so its text was at hand", claim.id);
        }
        assert!(ids.len() > 80, "{} claims", ids.len());
    }

    #[test]
    fn every_claim_names_its_cells_and_has_one_range_at_most() {
        let claims = ledgers().flat_map(|ledger| &ledger.claims);
        let is_of_cells = |claim: &&Claim| !matches!(claim.holds_if, Predicate::Records(_));
        for claim in claims.filter(is_of_cells) {
            let own = claim.holds_if.series();
            let all = own.iter().map(|pick| claim.cells.with(pick));
            let all = all.chain(own.is_empty().then(|| claim.cells.clone()));
            for pick in all {
                assert!(pick.is_whole(), "{}: {pick}", claim.id);
            }
        }
    }
}
