//! The documents say what the program does: lists in them are held against the code.

mod common;

use common::Place;
use serde_json::Value;

fn document(name: &str) -> String {
    let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn every_figure_is_described() {
    let programs = document("docs/programs.md");
    for figure in adverb_experiments::drawings() {
        let row = format!("| `{}` | {} |", figure.id, figure.title);
        assert!(programs.contains(&row), "docs/programs.md lacks: {row}");
    }
}

#[test]
fn every_field_of_a_record_is_described() {
    let place = Place::new();
    let ping = ["ping", "--op", "send", "--iters", "50", "--json"];
    let record = &place.run(&ping).ok().json()[0];
    let fields = document("docs/records.md");
    let mut names = Vec::new();
    collect(record, &mut names);
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        assert!(fields.contains(&name), "docs/records.md lacks {name}");
    }
}

/// Names of all fields but those that a device chooses.
fn collect(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            names.push(name.clone());
            if name != "device" || value.get("kind").is_some() {
                collect(value, names);
            }
        }),
        Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
        _ => {}
    }
}

#[test]
fn every_flag_of_a_program_is_described() {
    let place = Place::new();
    let programs = document("docs/programs.md") + &document("docs/two-hosts.md");
    for program in ["ping", "blast"] {
        let help = place.run(&[program, "-h"]).ok().out;
        let flags = help.split_whitespace().filter(|w| w.starts_with("--"));
        for flag in flags {
            let flag = flag.trim_end_matches([',', ')', ']', ':']);
            let common = [
                "--help",
                "--version",
                "--color",
                "--device",
                "--json",
                "--op",
                "--size",
            ];
            if !common.contains(&flag) {
                assert!(
                    programs.contains(flag),
                    "docs/programs.md and docs/two-hosts.md lack {flag}"
                );
            }
        }
    }
}

#[test]
fn the_commands_of_the_readme_are_there() {
    let makefile = document("Makefile");
    for target in ["study", "test", "bench", "lint"] {
        assert!(makefile.contains(&format!("\n{target}: ## ")), "{target}");
    }
}
