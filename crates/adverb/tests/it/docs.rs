//! Checks lists in the documents against the code.

use crate::common::Place;
use adverb_experiments::{Limits, Plan, Profile};
use adverb_launch::DeviceInfo;
use adverb_verbs::LinkRate;
use serde_json::Value;

fn document(name: &str) -> String {
    let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn every_figure_is_described() {
    let programs = document("docs/programs.md");
    for figure in adverb_experiments::figures() {
        let (id, title) = (figure.spec.id, figure.spec.title);
        let [quick, paper, full] = cells_of(id);
        let row = format!("| `{id}` | {title} | {quick} | {paper} | {full} |");
        assert!(programs.contains(&row), "docs/programs.md lacks: {row}");
    }
}

/// Cells of a figure in the profiles quick, paper and full.
fn cells_of(figure: &str) -> [usize; 3] {
    let device = match figure {
        "loss" => "soft@127.0.0.1",
        _ => "model:mt26428_qdr",
    };
    let info = DeviceInfo::query(&device.parse().unwrap()).unwrap();
    let limits = Limits {
        caps: &info.caps,
        port: &info.port,
        no_faults: None,
        rates: &LinkRate::ALL,
        sockets: device.starts_with("model:"),
    };
    let only = [figure.parse().unwrap()];
    let profiles = [Profile::Quick, Profile::Paper, Profile::Full];
    profiles.map(|profile| Plan::study(profile, &only, limits).cells.len())
}

#[test]
fn every_field_of_a_record_is_described() {
    let place = Place::new();
    let record = &place.run("ping --op send --iters 50 --json").record();
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
        let help = place.run(&format!("{program} -h")).ok().out;
        let flags = help.split_whitespace().filter(|w| w.starts_with("--"));
        for flag in flags {
            let flag = flag.trim_end_matches([',', ')', ']', ':']);
            let mut common = "--help --version --color --device --json --op --size".split(' ');
            if common.all(|known| known != flag) {
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
    for target in ["study", "install", "test", "bench", "lint"] {
        assert!(makefile.contains(&format!("\n{target}: ## ")), "{target}");
    }
}

/// Names of the commands in the list that `adverb --help` shows.
fn commands(place: &Place) -> Vec<String> {
    let help = place.run("-h").ok().out;
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let list = list.take_while(|line| !line.is_empty());
    // A description that needs a second line continues far right.
    let names = list.filter(|line| !line.starts_with("    "));
    names
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect()
}

#[test]
fn every_command_has_completions_and_a_manual_page() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&format!("completions {shell}")).ok().out;
        for name in commands(&place) {
            assert!(script.contains(&name), "{shell}: {name}");
        }
        assert!(!script.contains("Roles of a program"), "{shell}");
    }
    let dir = place.path("man1");
    std::fs::create_dir(&dir).unwrap();
    place.run(&format!("man {}", dir.to_str().unwrap())).ok();
    for name in commands(&place) {
        let page = std::fs::read_to_string(dir.join(format!("adverb-{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    assert!(dir.join("adverb.1").exists());
    assert!(!dir.join("adverb-role.1").exists());
}

#[test]
fn manual_pages_need_an_existing_folder() {
    let refused = Place::new().run("man /nowhere");
    insta::assert_snapshot!(refused.refused(1), @"error: cannot write /nowhere/adverb.1: No such file or directory (os error 2)");
}
