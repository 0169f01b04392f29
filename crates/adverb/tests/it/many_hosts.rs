//! Programs of many roles on several hosts: where their roles run, and that all of them do their work.

use std::io::Read;
use std::net::TcpStream;
use std::process::{Child, Stdio};

use crate::common::server::Server;
use crate::common::wire::Lan;
use crate::common::{Ended, Place, end_of, not_run, wait_for};
use serde_json::Value;

/// Programs of many roles, and what they count if they did their work.
const PROGRAMS: [(&str, &str); 5] = [
    ("sequencer --by rpc", "/metrics/checked/numbers"),
    ("sequencer --by atomics", "/metrics/checked/numbers"),
    ("kv --items 1000", "/metrics/checked/values"),
    (
        "kv --by memory --items 1000 --put 0.5",
        "/metrics/checked/values",
    ),
    ("closed-loop --op read --clients 3", "/metrics/requests"),
];

#[track_caller]
fn check(program: &str, ended: Ended, count: &str) {
    let figures = ended.record();
    let counted = figures.pointer(count).and_then(Value::as_u64);
    assert!(counted > Some(0), "{program}: {figures}");
}

#[test]
fn every_program_runs_between_two_and_three_hosts() {
    let lan = match Lan::new("lan", 3) {
        Ok(lan) => lan,
        Err(why) => return not_run("every_program_runs_between_two_and_three_hosts", &why),
    };
    // Each has a memory of its own, as hosts have.
    let places = [Place::new(), Place::new(), Place::new()];
    let servers = [1, 2].map(|host| Server::on_lan(&lan, host, &places[host]));
    for peers in ["--peer 10.78.0.2", "--peer 10.78.0.2 --peer 10.78.0.3"] {
        let more = format!("--device soft@10.78.0.1 --duration 200ms --json {peers}");
        for (program, count) in PROGRAMS {
            let command = places[0].command(&format!("{program} {more}"));
            let ended = lan.inside(0, &command).output().unwrap().into();
            check(&format!("{program} {peers}"), ended, count);
        }
    }
    for server in servers {
        wait_for("farewells", || {
            let left = |line: &&String| line.contains(": left after 1 cell");
            server.log().iter().filter(left).count() >= PROGRAMS.len()
        });
        assert_eq!(server.stop(), Some(0));
    }
    assert!(places.iter().all(|place| place.shm_files().is_empty()));
}

#[test]
fn every_program_runs_in_processes_and_between_two_addresses_of_one_host() {
    let place = Place::new();
    for device in ["soft", "soft@127.62.0.1,soft@127.62.0.2"] {
        for (program, count) in PROGRAMS {
            let more = format!("--device {device} --duration 100ms --json --processes");
            let ended = place.run(&format!("{program} {more}"));
            assert!(!ended.talk.contains("share memory"), "{}", ended.talk);
            check(&format!("{program} {device}"), ended, count);
        }
    }
    assert!(place.shm_files().is_empty());
}

#[test]
fn hundreds_of_queue_pairs_connect_over_every_channel() {
    let place = Place::new();
    let server = Server::start(&place);
    let peer = format!("--peer {}", server.address);
    for device in ["soft", "soft@127.62.0.3"] {
        for channel in ["", "--processes", &peer] {
            for (program, count) in [
                ("blast --op write --qps 1024", "/params/qps"),
                (
                    "sequencer --by atomics --qps 512",
                    "/metrics/checked/numbers",
                ),
                (
                    "kv --by memory --items 1000 --qps 512",
                    "/metrics/checked/values",
                ),
            ] {
                let line = format!("{program} --device {device} --duration 50ms --json {channel}");
                check(&line, place.run(&line), count);
            }
        }
    }
    assert_eq!(server.stop(), Some(0));
    assert!(place.shm_files().is_empty());
}

#[test]
fn too_little_memory_and_too_few_descriptors_for_queue_pairs_are_named_with_the_remedy() {
    let place = Place::new();
    let line = "sequencer --by atomics --qps 512 --device soft --duration 50ms";
    if let Some(ended) = place.run_on_tmpfs("2m", line) {
        let error = ended.refused(1);
        assert!(error.contains("No space left on device"), "{error}");
        assert!(error.contains("enlarge it"), "{error}");
    }
    let ended = place.run_with_limit("-n 16", line);
    let error = ended.refused(1);
    assert!(error.contains("Too many open files"), "{error}");
    assert!(
        error.contains("; raise the maximum of open files"),
        "{error}"
    );
}

#[test]
fn roles_run_where_they_are_placed_or_the_choice_is_named() {
    let place = Place::new();
    let server = Server::start(&place);
    let run = |more: &str| {
        let more = format!("--duration 50ms --json --peer {} {more}", server.address);
        place.run(&format!("kv --items 1000 {more}"))
    };
    check(
        "kv",
        run("--place server=0,client=1"),
        "/metrics/checked/values",
    );
    assert_eq!(
        run("--place sever=1").refused(2),
        "error: role 'sever=1' has no place: expected ROLE=HOST with ROLE one of server core, client, HOST 0 to 1"
    );
    let ended = run("--place nowhere");
    let line = ended.refused(2);
    assert!(
        line.starts_with("error: --place: invalid placement 'nowhere'"),
        "{line}"
    );
    let one = "ping --op send --peer a --peer b";
    assert_eq!(
        place.run(one).refused(2),
        "error: --peer b:18600: there are two sides, and one of them runs here; name one peer"
    );
}

/// Programs with one client, and what they count if they did their work.
const CLIENTS: [(&str, &str); 2] = [
    ("kv --items 1000 --clients 1", "/metrics/checked/values"),
    ("closed-loop --op read --clients 1", "/metrics/requests"),
];

/// Runs the programs `clients` times in all, each as one session of the server; kills the first one.
fn check_sessions(server: &Server, clients: usize, start: impl Fn(usize, &str) -> Child) {
    let programs = || CLIENTS.iter().cycle().take(clients).enumerate();
    let started = programs().map(|(client, (program, _))| start(client, program));
    let mut sessions: Vec<Child> = started.collect();
    wait_for("all clients", || {
        let welcome = |line: &&String| line.contains(": welcome, on ");
        server.log().iter().filter(welcome).count() == clients
    });
    let mut killed = sessions.remove(0);
    killed.kill().unwrap();
    killed.wait().unwrap();
    for (session, (_, (program, count))) in sessions.into_iter().zip(programs().skip(1)) {
        check(program, end_of(session), count);
    }
}

#[test]
fn clients_of_one_server_do_not_disturb_each_other() {
    let place = Place::new();
    let server = Server::start(&place);
    check_sessions(&server, 5, |_, program| {
        let more = format!("--duration 1s --json --peer {}", server.address);
        place.spawn(&format!("{program} {more}"))
    });
    wait_for("the end of all roles", || place.shm_files().is_empty());
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn forty_hosts_are_clients_of_one_server() {
    const HOSTS: usize = 40;
    let lan = match Lan::new("forty", HOSTS + 1) {
        Ok(lan) => lan,
        Err(why) => return not_run("forty_hosts_are_clients_of_one_server", &why),
    };
    // What the killed one leaves is not the server's to remove.
    let [place, clients] = [Place::new(), Place::new()];
    let at_server = format!("serve --bind 10.78.0.{}", HOSTS + 1);
    let server = Server::run(lan.inside(HOSTS, &place.command(&at_server)));
    check_sessions(&server, HOSTS, |host, program| {
        let device = format!("--device soft@10.78.0.{}", host + 1);
        let more = format!("--duration 1s --json --peer {}", server.address);
        let command = clients.command(&format!("{program} {device} {more}"));
        let mut inside = lan.inside(host, &command);
        inside.stdout(Stdio::piped()).stderr(Stdio::piped());
        inside.spawn().unwrap()
    });
    wait_for("the end of all roles", || place.shm_files().is_empty());
    assert_eq!(server.stop(), Some(0));
}

/// A server closed the connections of clients that came while sixteen others had not sent their request.
#[test]
fn connections_beyond_the_maximum_wait_until_others_give_way() {
    let place = Place::new();
    let server = Server::start(&place);
    let connect = |_| TcpStream::connect(&server.address).unwrap();
    let silent: Vec<TcpStream> = (0..300).map(connect).collect();
    for (at, mut connection) in silent.into_iter().enumerate() {
        let greeted = connection.read(&mut [0]).unwrap();
        assert_eq!(greeted, 1, "connection {at} was closed");
    }
    assert_eq!(server.stop(), Some(0));
}
