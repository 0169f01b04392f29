//! Programs that are killed, or crash, at fixed points: their peers' requests fail, nobody else is disturbed, and nothing
//! stays behind.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::{PathTo, assert_empty, compiled, ended, over_adverb};

/// The last point before the program has told its address, and the last one before it has connected.
const EARLY: u32 = 2;
const UNCONNECTED: u32 = 4;
/// Points at which a program is killed or crashes. From the fifth on it has a request in flight.
const ENDS: [(u32, i32); 8] = [
    (1, libc::SIGKILL),
    (2, libc::SIGSEGV),
    (3, libc::SIGKILL),
    (4, libc::SIGSEGV),
    (5, libc::SIGKILL),
    (6, libc::SIGSEGV),
    (20, libc::SIGKILL),
    (151, libc::SIGSEGV),
];
/// Scenes at a time.
const SCENES: usize = 4;

/// A process, and the lines between it and the test.
struct Process {
    child: Child,
    to: Option<ChildStdin>,
    lines: Receiver<String>,
    what: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the processes of a scene run.
struct Place<'a> {
    program: &'a Path,
    shared: &'a Path,
    address: String,
    transport: &'static str,
    path: PathTo,
}

impl Place<'_> {
    /// Starts a process that ends at a point; 0 for none.
    fn start(&self, (point, signal): (u32, i32)) -> Process {
        let mut child = over_adverb(self.program, self.shared)
            .args([self.transport, &point.to_string(), &signal.to_string()])
            .env("ADVERB_RUN_ADDRESS", &self.address)
            .env("ADVERB_RUN_FAULTS", self.path.faults())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            let told = from.lines().map_while(Result::ok);
            told.for_each(|line| drop(tell.send(line)));
        });
        Process {
            to: child.stdin.take(),
            child,
            lines,
            what: format!(
                "{}, {:?}, point {point}, signal {signal}",
                self.transport, self.path
            ),
        }
    }

    fn files(&self) -> Vec<String> {
        let folders = std::fs::read_dir(self.shared).unwrap().flatten();
        let files = folders.filter_map(|folder| std::fs::read_dir(folder.path()).ok());
        let names = files.flatten().flatten().map(|file| file.file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }
}

impl Process {
    /// Returns the next line that it prints.
    fn line(&self) -> String {
        let line = self.lines.recv_timeout(Duration::from_secs(60));
        line.unwrap_or_else(|error| panic!("{}: no line: {error}", self.what))
    }

    fn tell(&mut self, line: &str) {
        // A process that has ended does not read it.
        let _ = writeln!(self.to.as_mut().unwrap(), "{line}");
    }

    fn status(&mut self) -> ExitStatus {
        ended(&mut self.child, &|| self.what.clone())
    }

    /// Ends its input; it has to succeed.
    fn ends_well(mut self) {
        drop(self.to.take());
        let status = self.status();
        assert!(status.success(), "{}: {status}", self.what);
    }

    fn was_ended_by(&mut self, signal: i32) {
        let status = self.status();
        assert_eq!(status.signal(), Some(signal), "{}: {status}", self.what);
    }
}

/// A process that is connected to itself.
fn bystander(place: &Place<'_>) -> Process {
    let mut process = place.start((0, 0));
    let own = process.line();
    process.tell(&own);
    assert_eq!(process.line(), "connected");
    process
}

/// Starts a process, which takes a new slot and removes the files of dead processes.
fn next_process(place: &Place<'_>) {
    let process = place.start((0, 0));
    process.line();
    let mut slots: Vec<_> = place
        .files()
        .iter()
        .map(|name| name[..3].to_owned())
        .collect();
    slots.sort();
    slots.dedup();
    assert_eq!(
        slots.len(),
        2,
        "of the bystander and of this process: {:?}",
        place.files()
    );
    // It does not get the address of a peer.
    drop(process);
}

fn killed_early(place: &Place<'_>, end: (u32, i32)) {
    let mut victim = place.start(end);
    victim.was_ended_by(end.1);
    next_process(place);
}

/// Kills one of two processes that exchange messages. The other one's requests fail, or it never gets an address.
fn killed_connected(place: &Place<'_>, end: (u32, i32)) {
    let (mut victim, mut peer) = (place.start(end), place.start((0, 0)));
    let addresses = [victim.line(), peer.line()];
    victim.tell(&addresses[1]);
    if end.0 > UNCONNECTED {
        assert_eq!(victim.line(), "connected");
    } else {
        victim.was_ended_by(end.1);
    }
    peer.tell(&addresses[0]);
    // A peer that has ended cannot be connected to in shared memory: then Modify QP fails.
    let Ok(line) = peer.lines.recv_timeout(Duration::from_secs(60)) else {
        assert!(end.0 <= UNCONNECTED, "{}", victim.what);
        assert!(!peer.status().success(), "{}", victim.what);
        return next_process(place);
    };
    assert_eq!(line, "connected", "{}", victim.what);
    victim.tell("exchange");
    peer.tell("exchange");
    let status = peer.line();
    let expected = [
        "transport retry counter exceeded",
        "Work Request Flushed Error",
    ];
    assert!(expected.contains(&&*status), "{}: {status}", victim.what);
    victim.was_ended_by(end.1);
    peer.ends_well();
    next_process(place);
}

/// Ends a process next to a bystander, which is not disturbed.
fn check(place: &Place<'_>, end: (u32, i32)) {
    let mut other = bystander(place);
    match end.0 {
        ..=EARLY => killed_early(place, end),
        _ => killed_connected(place, end),
    }
    other.tell("once");
    assert_eq!(other.line(), "success", "{}", other.what);
    other.ends_well();
    bystander(place).ends_well();
    assert_empty(place.shared);
}

fn check_all(number: u8, (transport, path): (&'static str, PathTo)) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("ends.c", folder.path()) else {
        return;
    };
    for ends in ENDS.chunks(SCENES) {
        std::thread::scope(|scope| {
            for end in ends {
                let shared = folder.path().join(end.0.to_string());
                let address = format!("127.42.{number}.{}", end.0);
                let program = &program;
                scope.spawn(move || {
                    std::fs::create_dir(&shared).unwrap();
                    let (program, shared) = (&**program, &*shared);
                    let place = Place {
                        program,
                        shared,
                        address,
                        transport,
                        path,
                    };
                    check(&place, *end);
                });
            }
        });
    }
}

#[test]
fn a_killed_program_fails_alone_in_shared_memory() {
    check_all(1, ("rc", PathTo::SharedMemory));
}

#[test]
fn a_killed_program_fails_alone_over_udp() {
    check_all(2, ("rc", PathTo::Udp));
}

#[test]
fn a_killed_program_with_xrc_fails_alone_in_shared_memory() {
    check_all(3, ("xrc", PathTo::SharedMemory));
}

#[test]
fn a_killed_program_with_xrc_fails_alone_over_udp() {
    check_all(4, ("xrc", PathTo::Udp));
}
