//! A listener with an agent for each connection, and its clients, written in C as librdmacm's synchronous functions are
//! taught: many clients at once.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{PathTo, assert_empty, compiled, over_adverb};

const CLIENTS: usize = 16;
const SERVICE: &str = "7471";
/// How the file of a listener at this port ends.
const SERVICE_ID: &str = ".s1061d2f";

/// Processes that are killed if the test fails.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether a process listens for the service.
fn is_listening(shared: &Path) -> bool {
    let folders = std::fs::read_dir(shared).unwrap().flatten();
    let files = folders.filter_map(|folder| std::fs::read_dir(folder.path()).ok());
    let mut names = files.flatten().flatten().map(|file| file.file_name());
    names.any(|name| name.to_string_lossy().ends_with(SERVICE_ID))
}

/// Waits until `holds`; fails after a minute.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "waited a minute until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a listener at `addresses[0]`, and clients at `addresses[1]`.
fn serve_clients(addresses: [&str; 2], path: PathTo) {
    let folder = tempfile::tempdir().unwrap();
    let server = compiled("tutorial_server.c", folder.path());
    let client = compiled("tutorial_client.c", folder.path());
    let (Some(server), Some(client)) = (server, client) else {
        return;
    };
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let start = |program: &Path, address: &str, number: usize| {
        let mut command: Command = over_adverb(program, &shared);
        command
            .args([addresses[0], SERVICE, &number.to_string()])
            .env("ADVERB_RUN_ADDRESS", address)
            .env("ADVERB_RUN_FAULTS", path.faults())
            .env("ADVERB_EXPLAIN", "1")
            .stdin(Stdio::null());
        command.spawn().unwrap()
    };
    let mut processes = Processes(vec![start(&server, addresses[0], CLIENTS)]);
    wait_until("the server listens", || {
        let ended = processes.0[0].try_wait().unwrap();
        assert!(ended.is_none(), "the server ended: {ended:?}");
        is_listening(&shared)
    });
    (processes.0).extend((1..=CLIENTS).map(|number| start(&client, addresses[1], number)));
    for (number, process) in processes.0.iter_mut().enumerate().rev() {
        let mut status = None;
        let name = match number {
            0 => "the server".to_owned(),
            number => format!("client {number}"),
        };
        wait_until(&format!("{name} ends"), || {
            status = process.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        assert!(status.success(), "{name}: {status}");
    }
    assert_empty(&shared);
}

#[test]
fn sixteen_clients_of_one_host_get_their_answers() {
    serve_clients(["127.61.0.1"; 2], PathTo::SharedMemory);
}

#[test]
fn sixteen_clients_get_their_answers_over_udp() {
    serve_clients(["127.61.0.2", "127.61.0.3"], PathTo::Udp);
}
