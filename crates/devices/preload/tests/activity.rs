//! What `--stats` prints and `--record` writes about a program whose requests the test knows.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use adverb_results::{Activity, ReadOutcome, read_records};
use common::{PathTo, compiled, over_adverb};

/// The program, with folders for its shared memory and its records.
struct Observed {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Observed {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let program = compiled("counted.c", folder.path())?;
        for name in ["shared", "records"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Some(Observed { folder, program })
    }

    fn command(&self, ending: &str, path: PathTo) -> Command {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let address = format!("127.41.1.{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut command = over_adverb(&self.program, &self.folder.path().join("shared"));
        command
            .arg(ending)
            .env("ADVERB_RUN_ADDRESS", address)
            .env("ADVERB_RUN_FAULTS", path.faults())
            .env("ADVERB_RUN_STATS", "table")
            .env("ADVERB_RUN_RECORD", self.records());
        command
    }

    fn ended(&self, ending: &str) -> (Output, String) {
        let output = self.command(ending, PathTo::SharedMemory).output().unwrap();
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        (output, text)
    }

    fn records(&self) -> PathBuf {
        self.folder.path().join("records")
    }

    /// What the processes did that have written records.
    fn activities(&self) -> Vec<Activity> {
        let files = std::fs::read_dir(self.records()).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let records = files.filter(|file| file.extension().is_some_and(|e| e == "jsonl"));
        records.filter_map(|file| activity(&file)).collect()
    }
}

fn activity(file: &Path) -> Option<Activity> {
    let ReadOutcome { records, .. } = read_records(file).ok()?;
    Activity::of(records.first()?)
}

/// The table without what differs between runs.
fn lasting(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("  polls: "));
    let lines = lines.map(|line| match line.split_once(" (process") {
        Some((name, rest)) => format!("{name}, until {}", rest.split_once("until ").unwrap().1),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

const TABLE: &str = "  adverb0: 2 RC queue pairs
    path: 2 shared memory
    operation                 requests       bytes   inline  signaled
    RDMA_READ                        1        16 B      0 %     100 %
    RDMA_WRITE                       2       8 KiB      0 %     100 %
    SEND                             2        32 B    100 %      50 %
    posts: 5 requests in 4 calls (1.2 each)
    receives: 2 requests in 2 calls (1.0 each)
    received: 2 messages, 32 B
    completions: 1 remote access error, 5 success
  memory: 64 KiB registered at most, in 1 call";

#[test]
fn a_program_that_exits_prints_what_it_did() {
    let Some(observed) = Observed::new() else {
        return;
    };
    let (output, text) = observed.ended("exit");
    assert!(output.status.success(), "{text}");
    assert_eq!(
        lasting(&text),
        format!("adverb: counted, until exit\n{TABLE}")
    );
    let activities = observed.activities();
    let [sender, receiver] = &activities[0].queue_pairs[..] else {
        panic!("{activities:?}");
    };
    assert_eq!(sender.operations["SEND"].sizes, [(16, 2)].into());
    assert_eq!(sender.sends.lengths, [(1, 3), (2, 1)].into());
    assert_eq!((sender.max_outstanding, receiver.max_outstanding), (2, 0));
    assert_eq!(receiver.received.bytes, 32);
    let cq = activities[0].completion_queues[0];
    assert!(cq.polls >= 7 && cq.empty_polls >= 1, "{cq:?}");
    assert_eq!(cq.completions, 6);
}

#[test]
fn a_program_that_a_signal_ends_prints_it_too_and_ends_by_the_signal() {
    let Some(observed) = Observed::new() else {
        return;
    };
    let (output, text) = observed.ended("term");
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{text}");
    assert_eq!(
        lasting(&text),
        format!("adverb: counted, until signal 15\n{TABLE}")
    );
    assert_eq!(observed.activities()[0].written_at, "signal 15");
}

#[test]
fn a_child_reports_what_it_did_itself() {
    let Some(observed) = Observed::new() else {
        return;
    };
    let (output, text) = observed.ended("fork");
    assert!(output.status.success(), "{text}");
    let child = "adverb: counted, until exit\n  memory: 64 KiB registered at most, in 1 call";
    let parent = format!("adverb: counted, until exit\n{TABLE}");
    assert_eq!(lasting(&text), format!("{child}\n{parent}"));
    assert_eq!(observed.activities().len(), 2);
}

#[test]
fn the_record_of_a_killed_program_has_what_it_did_before() {
    let Some(observed) = Observed::new() else {
        return;
    };
    let mut command = observed.command("wait", PathTo::SharedMemory);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    let is_complete = |activity: &Activity| {
        let qps = &activity.queue_pairs;
        qps.first().is_some_and(|qp| qp.completions.len() == 2)
    };
    while !observed.activities().iter().any(is_complete) {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "the record is not complete: {:?}",
            observed.activities()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(observed.activities()[0].written_at, "interval");
}

#[test]
fn a_record_that_cannot_be_written_is_reported_once() {
    let Some(observed) = Observed::new() else {
        return;
    };
    let mut command = observed.command("wait", PathTo::SharedMemory);
    command.env("ADVERB_RUN_RECORD", observed.records().join("missing"));
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    child.kill().unwrap();
    let text = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert_eq!(text.matches("cannot write to").count(), 1, "{text}");
}

/// An empty file stayed.
#[test]
fn a_record_that_a_full_disk_does_not_take_leaves_no_file() {
    let Some(observed) = Observed::new() else {
        return;
    };
    let program = observed.command("exit", PathTo::SharedMemory);
    let records = observed.records();
    // The file takes the only page of the file system.
    let script = "mount -t tmpfs -o size=4k tmpfs \"$1\" && echo >\"$1/page\" || exit 77
        env LD_PRELOAD=\"$2\" \"$3\" exit; ls \"$1\"";
    let mut command = Command::new("unshare");
    command
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
        ])
        .args([&records, &common::library(), &observed.program]);
    for (name, value) in program.get_envs().filter(|(name, _)| *name != "LD_PRELOAD") {
        command.env(name, value.unwrap());
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) {
        return common::not_run("a record on a full disk", &text);
    }
    assert!(text.contains("No space left on device"), "{text}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "page\n");
}

#[test]
fn packets_are_counted_and_the_reason_for_udp_is_named() {
    let Some(observed) = Observed::new() else {
        return;
    };
    let output = observed.command("exit", PathTo::Udp).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("path: 2 UDP: --udp-only or injected faults"),
        "{text}"
    );
    assert!(text.contains("UDP port of adverb0: "), "{text}");
    assert!(text.contains(" sent_pkts"), "{text}");
}
