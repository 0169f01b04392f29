//! Debian's libmemcached-tools, unmodified.

use std::process::{Command, Output};

use adverb_units::Bytes;

use crate::common::Ours;

/// Runs a program of libmemcached-tools; `None`, said on stderr, if it is not installed.
fn run(program: &str, ours: &Ours, args: &[&str]) -> Option<Output> {
    let servers = format!("--servers={}", ours.address);
    match Command::new(program).arg(servers).args(args).output() {
        Ok(output) => Some(output),
        Err(_) => {
            eprintln!("NOT RUN: {program} as a client: libmemcached-tools is not installed");
            None
        }
    }
}

#[test]
fn files_are_stored_read_and_removed() {
    let ours = Ours::start(Bytes::mib(16), true, 100);
    let dir = std::env::temp_dir().join(format!("adverb-cached-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("stored");
    let content: String = (0..50_000).map(|line| format!("{line}\n")).collect();
    std::fs::write(&file, &content).unwrap();
    let Some(stored) = run("memccp", &ours, &[file.to_str().unwrap()]) else {
        return;
    };
    assert!(stored.status.success(), "{stored:?}");
    let read = run("memccat", &ours, &["stored"]).unwrap();
    let read = String::from_utf8(read.stdout).unwrap();
    assert_eq!(read.trim_end(), content.trim_end());
    assert!(
        run("memcexist", &ours, &["stored"])
            .unwrap()
            .status
            .success()
    );
    assert!(run("memcrm", &ours, &["stored"]).unwrap().status.success());
    assert!(
        !run("memcexist", &ours, &["stored"])
            .unwrap()
            .status
            .success()
    );
    assert!(run("memcflush", &ours, &[]).unwrap().status.success());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// libmemcached's test of servers. It prints a line for each test, and the number of failed ones.
#[test]
fn memccapable_finds_nothing_wrong() {
    let ours = Ours::start(Bytes::mib(16), true, 100);
    let port = ours.address.port().to_string();
    let args = ["-h", "127.0.0.1", "-p", &port, "-a"];
    let Ok(done) = Command::new("memccapable").args(args).output() else {
        eprintln!("NOT RUN: memccapable as a client: libmemcached-tools is not installed");
        return;
    };
    let (out, talk) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    assert!(
        out.contains("All tests passed") && !out.contains("FAIL"),
        "{out}{talk}"
    );
}

#[test]
fn memcslap_and_memcstat_run() {
    let ours = Ours::start(Bytes::mib(16), true, 100);
    for test in ["set", "get", "mget"] {
        let args = [
            &format!("--test={test}")[..],
            "--concurrency=4",
            "--execute-number=2000",
        ];
        let Some(done) = run("memcslap", &ours, &args) else {
            return;
        };
        let (out, talk) = (
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr),
        );
        assert!(
            done.status.success() && !talk.contains("rror"),
            "{test}: {out} {talk}"
        );
    }
    let stat = run("memcstat", &ours, &[]).unwrap();
    let listed = String::from_utf8_lossy(&stat.stdout);
    assert!(
        listed.contains("curr_items") && listed.contains("get_hits"),
        "{listed}"
    );
}
