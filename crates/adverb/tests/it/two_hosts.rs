//! `serve` and `--peer`: what two hosts do together, and what either does when the other fails it.

use std::fs;
use std::process::Stdio;

use crate::common::server::Server;
use crate::common::wire::{Wire, ip};
use crate::common::{Place, end_of, not_run, records, signal, wait_for};
use rustix::process::Signal;
use serde_json::Value;

/// A measurement that is ended by the test; it sleeps, so that other tests have the cores.
const LONG: &str = "ping --op send --completion event --duration 60s";
const SHORT: &str = "ping --op send --iters 50 --json";

fn with(args: &str, peer: &str) -> String {
    format!("{args} --peer {peer}")
}

/// That the server does its work, for one client.
#[track_caller]
fn check_serves(place: &Place, server: &Server) -> Value {
    let ended = place.run(&with(SHORT, &server.address)).ok();
    assert_eq!(ended.talk_of_itself(), "");
    let record = ended.json().remove(0);
    assert_eq!(record["status"], "ok", "{record}");
    record
}

#[test]
fn both_sides_stand_in_the_record() {
    let place = Place::new();
    let server = Server::start(&place);
    let record = check_serves(&place, &server);
    let provenance = &record["provenance"];
    assert_eq!(provenance["passive"]["host"], provenance["host"]);
    assert!(provenance["passive"]["device"]["port"].is_string());
    let core = |side: &str| record["params"][side].as_u64().unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    if cores > 1 {
        assert_ne!(core("active_core"), core("passive_core"));
    }
    for program in [
        "blast --op read --size 64..128",
        "blast --op write --verify",
    ] {
        let args = format!("{program} --iters 50");
        let ended = place.run(&with(&args, &server.address)).ok();
        assert!(ended.out.contains(", passive side at "), "{}", ended.out);
    }
    server.wait_for_line("left after 2 cells");
    assert_eq!(server.stop(), Some(0));
    assert!(place.shm_files().is_empty());
}

#[test]
fn the_active_side_runs_at_the_server() {
    let place = Place::new();
    let server = Server::start(&place);
    for program in [
        "ping --op read --verify",
        "blast --op send --verify",
        "blast --op write --bidirectional --qps 2 --verify",
    ] {
        let args = program;
        let args = format!("{args} --reversed --iters 50 --json");
        let record = place.run(&with(&args, &server.address)).record();
        assert_eq!(record["status"], "ok", "{record}");
        assert_eq!(record["params"]["reversed"], true);
        let cell = record["cell"].as_str().unwrap();
        assert!(cell.contains("/reversed"), "{cell}");
        assert!(record["metrics"]["messages_per_s"].as_f64() > Some(0.0));
        assert!(record["provenance"]["passive"]["host"].is_string());
    }
    let args = "ping --op send --reversed --iters 50 --json";
    let here = place.run(args).record();
    assert_eq!(here["params"]["reversed"], true, "{here}");
    // The server has the first core that is free: the side that runs there is the active one.
    let usual = check_serves(&place, &server);
    let args = format!("{SHORT} --reversed --cpu 0");
    let swapped = place.run(&with(&args, &server.address)).record();
    assert_eq!(swapped["params"]["passive_core"], 0, "{swapped}");
    assert_ne!(usual["cell"], swapped["cell"]);
    assert_eq!(server.stop(), Some(0));
    assert!(place.shm_files().is_empty());
}

/// It polls on a core, as other programs do that do not belong to the measurement.
#[test]
fn a_server_on_this_machine_is_no_other_work() {
    let place = Place::new();
    let server = Server::start(&place);
    let args = "ping --op send --duration 1s";
    let ended = place.run(&with(args, &server.address)).ok();
    assert_eq!(ended.talk, "");
}

#[test]
fn ipv6_and_one_client_only() {
    let place = Place::new();
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return not_run("ipv6_and_one_client_only", "no IPv6 here");
    }
    let args = "--bind [::1]:0 --once --no-pin --device soft";
    let server = Server::start_with(&place, args);
    assert!(server.address.starts_with("[::1]:"), "{}", server.address);
    let record = check_serves(&place, &server);
    assert_eq!(record["params"]["passive_core"], Value::Null);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn between_two_network_namespaces() {
    let wire = match Wire::new("two") {
        Ok(wire) => wire,
        Err(why) => return not_run("between_two_network_namespaces", &why),
    };
    let place = Place::new();
    let serve = place.command("serve --bind 10.77.0.1 --once");
    let server = Server::run(wire.inside(0, &serve));
    server.wait_for_line("no authentication and no encryption");
    let ping = place.command(&with(SHORT, "10.77.0.1"));
    let ended: crate::common::Ended = wire.inside(1, &ping).output().unwrap().into();
    assert_eq!(ended.record()["status"], "ok");
    server.wait_for_line("10.77.0.2:");
    assert_eq!(server.end(), Some(0));
}

/// Returns a record's detail about the connection between both sides.
fn port_of(record: &Value) -> &str {
    record["provenance"]["device"]["port"].as_str().unwrap()
}

#[test]
fn over_udp_between_two_network_namespaces() {
    let wire = match Wire::new("udp") {
        Ok(wire) => wire,
        Err(why) => return not_run("over_udp_between_two_network_namespaces", &why),
    };
    // Two memories, as two hosts have.
    let (here, there) = (Place::new(), Place::new());
    let serve = there.command("serve --bind 10.77.0.1 --device soft@10.77.0.1");
    let server = Server::run(wire.inside(0, &serve));
    let over = "--device soft@10.77.0.2 --peer 10.77.0.1";
    let run = |program: &str| -> Value {
        let ping = here.command(&format!("{program} {over}"));
        let ended = wire.inside(1, &ping).output().unwrap();
        crate::common::Ended::from(ended).record()
    };
    for program in [
        "ping --op send --iters 200 --json",
        "ping --op write --iters 200 --json",
        "ping --op read --size 5000 --iters 200 --json",
        "ping --op send --completion event --iters 200 --json",
        "blast --op write --size 64KiB --iters 500 --verify --json",
        "blast --op send --size 100 --iters 2000 --json",
    ] {
        let record = run(program);
        assert_eq!(record["status"], "ok", "{program}: {record}");
        assert!(
            port_of(&record).starts_with("UDP (RoCEv2 at 10.77.0.2:4791)"),
            "{record}"
        );
    }
    drop(server);
    assert!(here.shm_files().is_empty());
}

#[test]
fn over_udp_and_ipv6_between_two_network_namespaces() {
    let six = |wire: &Wire| {
        let [a, b] = &wire.names;
        ip(&format!("-n {a} address add fd00:77::1/64 dev va nodad"))?;
        ip(&format!("-n {b} address add fd00:77::2/64 dev vb nodad"))
    };
    let wire = match Wire::new("six").and_then(|wire| six(&wire).map(|()| wire)) {
        Ok(wire) => wire,
        Err(why) => return not_run("over_udp_and_ipv6_between_two_network_namespaces", &why),
    };
    let (here, there) = (Place::new(), Place::new());
    // It takes the address at which it is met.
    let serve = there.command("serve --bind [fd00:77::1] --once");
    let server = Server::run(wire.inside(0, &serve));
    let over = "--device soft@fd00:77::2 --peer [fd00:77::1]";
    let ping = here.command(&format!("{SHORT} {over}"));
    let ended: crate::common::Ended = wire.inside(1, &ping).output().unwrap().into();
    let record = ended.record();
    assert_eq!(record["status"], "ok", "{record}");
    assert!(
        port_of(&record).starts_with("UDP (RoCEv2 at [fd00:77::2]:4791)"),
        "{record}"
    );
    assert_eq!(server.end(), Some(0));
}

#[test]
fn over_udp_between_two_addresses_of_the_loopback_device() {
    let (here, there) = (Place::new(), Place::new());
    // The server is met at 127.0.0.1, and takes that.
    let server = Server::start(&there);
    let over = format!("--device soft@127.0.0.2 --peer {}", server.address);
    let record = here.run(&format!("{SHORT} {over}")).record();
    assert_eq!(record["status"], "ok", "{record}");
    let passive = &record["provenance"]["passive"]["device"]["port"];
    assert!(
        passive.as_str().unwrap().contains("127.0.0.1:4791"),
        "{record}"
    );
    assert!(port_of(&record).contains("127.0.0.2:4791"), "{record}");
}

#[test]
fn a_path_mtu_is_kept_to_and_recorded_with_what_the_port_counted() {
    let (here, there) = (Place::new(), Place::new());
    let server = Server::start(&there);
    let over = format!("--device soft@127.0.0.2 --peer {}", server.address);
    let blast = |more: &str| {
        let program = "blast --op write --size 4096 --iters 100";
        let ended = here.run(&format!("{program} --json {more} {over}"));
        ended.record()
    };
    let record = blast("--mtu 512");
    assert_eq!(record["params"]["path_mtu_bytes"], 512, "{record}");
    let sent = record["counters"]["active"]["sent_pkts"].as_u64().unwrap();
    // Warm-up and five repetitions.
    assert!(sent >= 8 * 500, "{record}");
    assert!(record["counters"]["passive"]["rcvd_pkts"].as_u64() >= Some(8 * 500));
    let record = blast("");
    assert_eq!(record["params"]["path_mtu_bytes"], 4096, "{record}");
}

#[test]
fn a_path_mtu_beyond_the_wire_is_refused_on_either_side() {
    let wire = match Wire::new("mtu") {
        Ok(wire) => wire,
        Err(why) => return not_run("a_path_mtu_beyond_the_wire_is_refused_on_either_side", &why),
    };
    ip(&format!("-n {} link set va mtu 700", wire.names[0])).unwrap();
    let (here, there) = (Place::new(), Place::new());
    let serve = there.command("serve --bind 10.77.0.1");
    let server = Server::run(wire.inside(0, &serve));
    server.wait_for_line("no authentication and no encryption");
    let refusal = |program: &str, mtu: &str| {
        let over = "--device soft@10.77.0.2 --peer 10.77.0.1 --mtu";
        let ended = wire
            .inside(1, &here.command(&format!("{program} {over} {mtu}")))
            .output()
            .unwrap();
        crate::common::Ended::from(ended).refused(2).to_owned()
    };
    for program in [SHORT, "study --out s"] {
        assert_eq!(
            refusal(program, "4096"),
            "error: path MTU 4 KiB: this device's port carries packets of at most 1 KiB; choose a smaller one"
        );
        assert_eq!(
            refusal(program, "1024"),
            "error: the server at 10.77.0.1:18600: path MTU 1 KiB: this device's port carries packets of at most 512 B; choose a smaller one"
        );
    }
    assert!(!here.path("s").exists());
}

#[test]
fn an_ipv4_side_and_an_ipv6_side_are_told_apart() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return not_run(
            "an_ipv4_side_and_an_ipv6_side_are_told_apart",
            "no IPv6 here",
        );
    }
    let place = Place::new();
    let server = Server::start_with(&place, "--bind 127.0.0.1:0 --device soft@::1");
    let over = format!("--device soft@127.0.0.2 --peer {}", server.address);
    let ended = place.run(&format!("{SHORT} {over}"));
    let line = ended.refused(1).replace(&server.address, "PEER");
    assert_eq!(
        line,
        "error: the server at PEER uses soft@::1, this side soft@127.0.0.2: one is an IPv4 address, the other an IPv6 address; name addresses of one kind with --device on both sides"
    );
}

#[test]
fn two_sides_at_one_address_are_measured_as_the_local_port_they_use() {
    let place = Place::new();
    let server = Server::start(&place);
    for peer in [format!("--peer {}", server.address), String::new()] {
        let args = format!("{SHORT} --device soft@127.0.0.1 {peer}");
        let ended = place.run(&args).ok();
        let record = ended.json().remove(0);
        assert_eq!(record["device"]["name"], "soft", "{record}");
        assert_eq!(record["params"]["path_mtu_bytes"], Value::Null);
        assert_eq!(port_of(&record), "local (shared memory)");
        assert!(
            ended
                .talk
                .starts_with("warning: both sides are at soft@127.0.0.1 and share memory"),
            "{}",
            ended.talk
        );
    }
}

#[test]
fn packets_are_impaired_on_both_sides_and_only_where_both_can() {
    let place = Place::new();
    let lossy = "blast --op send --iters 300 --json --loss 2%";
    let server = Server::start_with(&place, "--bind 127.47.0.1:0");
    let over = format!("--device soft@127.47.0.2 --peer {}", server.address);
    let record = place.run(&format!("{lossy} {over}")).record();
    for side in ["active", "passive"] {
        let lost = record["counters"][side]["impaired_lost_pkts"].as_u64();
        assert!(lost > Some(0), "{side}: {record}");
    }
    // At one address, too, where they share memory.
    let over = format!("--device soft@127.47.0.1 --peer {}", server.address);
    let record = place.run(&format!("{lossy} {over}")).record();
    assert_eq!(record["device"]["name"], "soft@127.47.0.1", "{record}");
    assert!(record["counters"]["passive"]["impaired_lost_pkts"].as_u64() > Some(0));
}

#[test]
fn an_address_of_another_host_is_refused_by_name() {
    let place = Place::new();
    let ended = place.run(&format!("{SHORT} --device soft@192.0.2.1"));
    assert_eq!(
        ended.refused(1),
        "error: cannot open device soft@192.0.2.1: 192.0.2.1 is not an address of this host and network namespace; use an address of this host; `ip address` lists them"
    );
}

#[test]
fn a_cut_wire_is_noticed_at_both_ends() {
    let wire = match Wire::new("cut") {
        Ok(wire) => wire,
        Err(why) => return not_run("a_cut_wire_is_noticed_at_both_ends", &why),
    };
    let place = Place::new();
    let serve = place.command("serve --bind 10.77.0.1 --once");
    let server = Server::run(wire.inside(0, &serve));
    let mut ping = wire.inside(1, &place.command(&with(LONG, "10.77.0.1")));
    let child = ping.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    server.side();
    wire.cut();
    let ended = end_of(child);
    let silent = "it has been silent for 5 s";
    assert!(ended.refused(1).contains(silent), "{}", ended.talk);
    assert!(server.wait_for_line("lost in cell 1").contains(silent));
    assert_eq!(server.end(), Some(0));
}

#[test]
fn soft_does_not_reach_into_another_memory() {
    let (place, other) = (Place::new(), Place::new());
    let server = Server::start(&place);
    let ended = other.run(&with(SHORT, &server.address));
    let line = ended.refused(1);
    for words in [
        "device soft cannot reach from ",
        "two shared memories (/dev/shm, ADVERB_SHM)",
        "name --device soft@ADDR on both sides",
    ] {
        assert!(line.contains(words), "{line}");
    }
    server.wait_for_line("refused: device soft cannot reach");
    check_serves(&place, &server);
}

#[test]
fn a_server_that_is_killed_ends_the_cell() {
    let place = Place::new();
    let server = Server::start(&place);
    let child = place.spawn(&with(LONG, &server.address));
    let side = server.side();
    signal(server.pid(), Signal::KILL);
    let ended = end_of(child);
    let line = ended.refused(1);
    let reason = format!("passive side: the server at {} is gone", server.address);
    assert!(line.contains(&reason), "{line}");
    wait_for("the end of the server's side", || is_gone(side));
    let again = Server::start(&place);
    check_serves(&place, &again);
    assert!(place.shm_files().is_empty());
}

/// Whether a process has ended.
fn is_gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn a_server_that_is_stopped_says_so() {
    for signal_name in [Signal::INT, Signal::TERM] {
        let place = Place::new();
        let server = Server::start(&place);
        let child = place.spawn(&with(LONG, &server.address));
        let side = server.side();
        signal(server.pid(), signal_name);
        let address = server.address.clone();
        assert_eq!(server.end(), Some(0));
        let ended = end_of(child);
        let reason = format!("passive side: the server at {address} was stopped");
        assert!(ended.refused(1).contains(&reason), "{}", ended.talk);
        assert!(is_gone(side));
        assert!(place.shm_files().is_empty(), "{:?}", place.shm_files());
    }
}

#[test]
fn a_frozen_server_is_noticed_and_serves_again_when_it_thaws() {
    let place = Place::new();
    let server = Server::start(&place);
    let child = place.spawn(&with(LONG, &server.address));
    server.side();
    signal(server.pid(), Signal::STOP);
    let ended = end_of(child);
    assert!(
        ended.refused(1).contains("it has been silent for 5 s"),
        "{}",
        ended.talk
    );
    signal(server.pid(), Signal::CONT);
    server.wait_for_line("lost in cell 1");
    check_serves(&place, &server);
}

#[test]
fn a_client_that_is_killed_makes_room_for_the_next() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut child = place.spawn(&with(LONG, &server.address));
    let side = server.side();
    child.kill().unwrap();
    child.wait().unwrap();
    server.wait_for_line("lost in cell 1: the connection was closed");
    wait_for("the end of its side", || is_gone(side));
    check_serves(&place, &server);
    assert!(place.shm_files().is_empty());
}

#[test]
fn a_frozen_client_makes_room_for_the_next() {
    let place = Place::new();
    let server = Server::start(&place);
    let child = place.spawn(&with(LONG, &server.address));
    server.side();
    signal(child.id(), Signal::STOP);
    server.wait_for_line("lost in cell 1: it has been silent for 5 s");
    check_serves(&place, &server);
    signal(child.id(), Signal::CONT);
    assert!(end_of(child).refused(1).contains("is gone"));
}

#[test]
fn ctrl_c_at_the_client_ends_both_sides() {
    let place = Place::new();
    let server = Server::start(&place);
    let child = place.spawn(&with(LONG, &server.address));
    let side = server.side();
    signal(child.id(), Signal::INT);
    assert_eq!(end_of(child).refused(130), "error: interrupted");
    wait_for("the end of the server's side", || is_gone(side));
    server.wait_for_line("left after 1 cell");
    check_serves(&place, &server);
}

#[test]
fn a_side_that_dies_is_named_and_the_connection_lives() {
    let place = Place::new();
    let server = Server::start(&place);
    for times in 1..=2 {
        let child = place.spawn(&with(LONG, &server.address));
        let side = server.side();
        wait_for("both ports", || place.shm_files().len() > 4);
        signal(side, Signal::KILL);
        let ended = end_of(child);
        let line = ended.refused(1);
        assert!(line.contains("passive side: killed by signal 9"), "{line}");
        wait_for("a farewell", || {
            let left = |line: &&String| line.contains("left after 1 cell");
            server.log().iter().filter(left).count() == times
        });
    }
    check_serves(&place, &server);
    assert!(place.shm_files().is_empty());
}

#[test]
fn several_clients_are_served_at_once_and_one_that_is_killed_disturbs_nobody() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut killed = place.spawn(&with(LONG, &server.address));
    server.side();
    let busy = "ping --op send --completion event --duration 2s --json";
    let others: Vec<_> = (0..3)
        .map(|_| place.spawn(&with(busy, &server.address)))
        .collect();
    wait_for("all clients", || {
        let welcome = |line: &&String| line.contains(": welcome, on ");
        server.log().iter().filter(welcome).count() == 4
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    server.wait_for_line("lost in cell 1: the connection was closed");
    check_serves(&place, &server);
    for other in others {
        let record = end_of(other).record();
        assert_eq!(record["status"], "ok", "{record}");
    }
    wait_for("the end of all sides", || place.shm_files().is_empty());
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_peer_that_is_not_there_is_named() {
    let place = Place::new();
    let refused = |peer| place.run(&with(SHORT, peer)).refused(1).to_owned();
    let line = refused("adverb.invalid");
    let unknown = "error: --peer: cannot find the host adverb.invalid: ";
    assert!(line.starts_with(unknown), "{line}");
    let line = refused("127.0.0.1:1");
    let closed = "error: cannot reach a server at 127.0.0.1:1: Connection refused";
    assert!(
        line.starts_with(closed) && line.contains("start `adverb serve"),
        "{line}"
    );
    let ended = place.run("study --out s --peer 127.0.0.1:1");
    assert!(ended.refused(1).starts_with(closed), "{}", ended.talk);
    assert!(
        !place.path("s").exists(),
        "no folder for a study that never began"
    );
    let ended = place.run("serve --bind 192.0.2.1");
    let line = ended.refused(1);
    assert!(
        line.starts_with("error: cannot listen at 192.0.2.1:18600"),
        "{line}"
    );
}

const STUDY: &str = "study --only rank-rtt --out s";

/// Cells that were measured and cells that failed.
fn tally(place: &Place) -> (usize, usize) {
    let records = records(&place.path("s"));
    let ok = records.iter().filter(|r| r["status"] == "ok").count();
    (ok, records.len() - ok)
}

#[test]
fn a_study_goes_on_when_its_server_comes_back() {
    let place = Place::new();
    let server = Server::start_at_lasting_port(&place);
    let child = place.spawn(&with(STUDY, &server.address));
    wait_for("a cell", || tally(&place).0 > 0);
    server.side();
    let address = server.address.clone();
    signal(server.pid(), Signal::KILL);
    drop(server);
    let server = Server::start_with(&place, &format!("--bind {address}"));
    let lost = || {
        let records = records(&place.path("s"));
        let failed = records.into_iter().find(|r| r["status"] == "failed");
        failed.map(|r| r["cell"].as_str().unwrap().to_owned())
    };
    wait_for("the cell that was lost", || lost().is_some());
    let before = tally(&place).0;
    wait_for("a cell after it", || tally(&place).0 > before);
    signal(child.id(), Signal::INT);
    let ended = end_of(child);
    assert!(ended.talk.contains("is gone"), "{}", ended.talk);
    assert_eq!(tally(&place).1, 1, "{}", ended.talk);
    let all = records(&place.path("s"));
    assert!(all.iter().all(|r| r["provenance"]["passive"].is_object()));
    // The cell that failed is tried again, with the same peer.
    let child = place.spawn("study --resume --out s");
    let lost = lost().unwrap();
    wait_for("the cell that was lost", || {
        let records = records(&place.path("s"));
        let mut ok = records.iter().filter(|r| r["status"] == "ok");
        ok.any(|r| r["cell"] == lost.as_str())
    });
    signal(child.id(), Signal::INT);
    end_of(child);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_study_whose_server_is_gone_can_be_resumed_elsewhere() {
    let place = Place::new();
    let server = Server::start(&place);
    let child = place.spawn(&with(STUDY, &server.address));
    wait_for("a cell", || tally(&place).0 > 0);
    server.side();
    assert_eq!(server.stop(), Some(0));
    let ended = end_of(child);
    assert_eq!(ended.code, Some(1));
    let last = ended.talk.lines().last().unwrap();
    assert!(last.contains("cannot reach a server at "), "{last}");
    assert!(
        last.ends_with("continue with `adverb study --resume --out s`"),
        "{last}"
    );
    assert!(place.path("s/report.html").exists());

    let server = Server::start(&place);
    let measured = tally(&place).0;
    let resume = "study --resume --out s";
    let child = place.spawn(&with(resume, &server.address));
    wait_for("another cell", || tally(&place).0 > measured);
    signal(child.id(), Signal::INT);
    end_of(child);
    let meta = fs::read_to_string(place.path("s/study.json")).unwrap();
    let meta: Value = serde_json::from_str(&meta).unwrap();
    assert_eq!(meta["peer"], Value::from(server.address.as_str()));
}
