//! The table of unmodified programs (scripts/compatibility), through shared memory, over UDP, and between two network
//! namespaces.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{PathTo, library, namespaces::Wire, not_run};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// A row of the table.
struct Row {
    program: String,
    result: String,
    line: String,
}

/// Returns the rows of a Markdown table.
fn rows(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let program = cells.next()?.trim_end_matches('`').to_owned();
        Some(Row {
            program,
            result: cells.nth(1)?.to_owned(),
            line: line.to_owned(),
        })
    };
    text.lines().filter_map(row).collect()
}

/// Runs the programs whose command lines contain `words`; returns how many worked. Reports missing programs.
fn table(words: &str, configure: impl FnOnce(&mut Command)) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(repository().join("scripts/compatibility"));
    command.args(words.split_whitespace());
    command.env("QUICK", "1").env("ADVERB_SHM", folder.path());
    configure(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = rows(&text);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!rows.is_empty(), "{}: {text}{errors}", output.status);
    let (missing, tried): (Vec<_>, Vec<_>) =
        (rows.iter()).partition(|row| row.result == "not installed");
    for row in missing {
        not_run(&row.program, "it is not installed");
    }
    let failed: Vec<_> = tried.iter().filter(|row| row.result != "works").collect();
    let lines = failed.iter().map(|row| format!("{}\n", row.line));
    assert!(failed.is_empty(), "{}{errors}", lines.collect::<String>());
    tried.len()
}

/// Returns a command that preloads the library.
fn over_adverb(settings: &str) -> String {
    format!("env LD_PRELOAD={} {settings}", library().display())
}

/// Writes a line to the summary of scripts/test.
fn report(count: usize, path: &str) {
    let _ = writeln!(
        std::io::stderr(),
        "\nok: unmodified programs of scripts/compatibility: {count} pairs {path}"
    );
}

/// Not at the same time as the others: a pair keeps two cores busy.
#[test]
fn each_program_of_the_table_works() {
    for (path, port, name) in [
        (PathTo::SharedMemory, "18700", "in shared memory"),
        (PathTo::Udp, "19700", "over UDP"),
    ] {
        let settings = format!("ADVERB_RUN_FAULTS={}", path.faults());
        let count = table("", |command| {
            let side = over_adverb(&settings);
            command.env("SERVER", &side).env("CLIENT", side);
            command.env("PORT", port);
        });
        report(count, name);
    }
    if let Some(count) = between_namespaces() {
        report(count, "between two network namespaces");
    }
}

/// Runs some programs between two network namespaces.
fn between_namespaces() -> Option<usize> {
    let wire = match Wire::new("programs") {
        Ok(wire) => wire,
        Err(reason) => {
            not_run(
                "unmodified programs between two network namespaces",
                &reason,
            );
            return None;
        }
    };
    let side = |host: usize| {
        let settings = over_adverb(&format!("ADVERB_RUN_ADDRESS={}", Wire::ADDRESSES[host]));
        format!("ip netns exec {} {settings}", wire.names[host])
    };
    let programs = [
        "ibv_rc_pingpong -g 0 -e",
        "ib_write_lat -n 100 -c UC",
        "ib_send_bw -n 1000 -q 4",
        "ib_read_bw -n 1000 -q 4",
        "rping",
    ];
    let counts = programs.map(|words| {
        table(words, |command| {
            command.env("SERVER", side(0)).env("CLIENT", side(1));
            command.env("HOST", Wire::ADDRESSES[0]);
        })
    });
    Some(counts.into_iter().sum())
}

#[test]
fn the_table_in_the_documentation_lists_the_programs_of_the_script() {
    let script = std::fs::read_to_string(repository().join("scripts/compatibility")).unwrap();
    let (_, list) = script.split_once("cat <<'LIST'\n").unwrap();
    let (list, _) = list.split_once("LIST\n").unwrap();
    let listed = list.lines().map(|line| line.trim_start_matches("long "));
    let page = std::fs::read_to_string(repository().join("docs/compatibility.md")).unwrap();
    let shown: Vec<_> = rows(&page).into_iter().map(|row| row.program).collect();
    assert_eq!(shown, listed.collect::<Vec<_>>());
}
