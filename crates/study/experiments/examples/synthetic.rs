//! Prints the report of the tests' synthetic study, to look at it:
//! `cargo run -p adverb-experiments --example synthetic > /tmp/report.html`
#![allow(clippy::disallowed_macros, reason = "a program, not the library")]

#[path = "../tests/it/common/mod.rs"]
mod common;

use adverb_report::Meta;

fn main() {
    let mut records = common::study_with_failures();
    if std::env::args().any(|arg| arg == "--two-devices") {
        records.extend(common::on_model(&common::study()));
    }
    let meta = Meta {
        command: Some("adverb study --profile quick --out study".to_owned()),
        profile: Some("quick".to_owned()),
        planned_cells: Some(records.len() + 12),
        interrupted: true,
        generated: Some("2026-01-02T04:00:00Z".to_owned()),
        warnings: Vec::new(),
        ..Meta::default()
    };
    println!("{}", common::report(&records, &meta).html());
}
