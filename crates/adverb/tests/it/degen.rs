//! `adverb degen`: programs at both ends of a path, and what it refuses.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::wire::ip;
use crate::common::{Ended, Place, end_of, not_run, records, signal, wait_for};
use insta::assert_snapshot;
use rustix::process::Signal;
use serde_json::Value;

/// Whether there can be a path here; prints why if not.
fn can_run(place: &Place) -> bool {
    let ended = place.run("degen -- true");
    let can = ended.code == Some(0);
    if !can {
        not_run("a path between two network namespaces", ended.failed(1));
    }
    can
}

/// Runs a program from the near end, with `adverb serve` at the far one, whose process is `$server`, and meanwhile the
/// shell command `then`, which waits for `$program`.
fn between(place: &Place, options: &str, line: &str, then: &str) -> Ended {
    let adverb = place.command("").get_program().to_owned();
    let adverb = adverb.to_str().unwrap();
    let far = format!(
        "echo $$ >pid; exec {adverb} serve --once --bind 10.77.0.2:0 --device soft@10.77.0.2 2>server"
    );
    let near = format!(
        "until at=$(sed -n 's/listening at \\([^,]*\\),.*/\\1/p' server) && test -n \"$at\"; do sleep 0.05; done
         {adverb} {line} --device soft@10.77.0.1 --peer $at &
         program=$! server=$(cat pid)
         {then}"
    );
    let mut command = place.command(&format!("degen {options} --far"));
    command.args([&far, "--", "sh", "-c", &near]);
    Ended::from(command.output().unwrap())
}

/// The programs of the WAN study, with the metric that each measures.
const WAN: [(&str, &str); 4] = [
    ("overlap --compute 1ms", "/metrics/overlap_ratio"),
    ("fetch", "/metrics/latency_ns/p50"),
    (
        "interference --compute 5ms --clients 2",
        "/metrics/slowdown",
    ),
    ("rendezvous --size 50000", "/metrics/one_way_ns/p50"),
];

#[test]
fn programs_of_the_wan_study_run_over_a_path_that_loses_packets() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    for (program, metric) in WAN {
        let place = Place::new();
        let line = format!("{program} --iters 20 --timeout 4ms --json");
        let ended = between(&place, "--delay 1ms --loss 2%", &line, "wait $program");
        assert!(ended.talk.contains(" lost"), "{}", ended.talk);
        let record = ended.record();
        let figure = record.pointer(metric).and_then(Value::as_f64);
        assert!(figure.is_some_and(|figure| figure > 0.0), "{record}");
        if program.starts_with("rendezvous") {
            // Both ways, with three to warm up.
            assert_eq!(record["metrics"]["checked"]["bytes"], 2 * 23 * 50_000);
        }
    }
}

#[test]
fn the_study_of_a_wan_measures_rdma_and_tcp_through_one_router() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let ended = place
        .run("study --study wan --degen --only wan3 --out wan")
        .ok();
    assert!(ended.talk.contains("far to near: "), "{}", ended.talk);
    let all = records(&place.path("wan"));
    let round_trip = |by: &str, delay_ns: f64| {
        let is_meant = |record: &&Value| {
            let params = &record["params"];
            let path = &params["impairment"];
            params["by"] == by
                && params["size_bytes"] == 1024
                && path["delay_ns"].as_f64().unwrap_or(0.0) == delay_ns
        };
        let record = all.iter().find(is_meant).unwrap();
        assert_eq!(record["params"]["routed"], true);
        let time = record.pointer("/metrics/communication_ns/p50");
        time.and_then(Value::as_f64).unwrap()
    };
    for by in ["write", "tcp"] {
        assert!(round_trip(by, 0.0) < 32e6, "{by}");
        assert!(round_trip(by, 16e6) >= 32e6, "{by}");
    }
    let report = std::fs::read_to_string(place.path("wan/report.html")).unwrap();
    assert!(report.contains("passed the same router between two network namespaces"));
    assert!(
        report.contains(
            "soft@ADDR and tcp behind degen (each cell measured once), the round trip of"
        )
    );
}

#[test]
fn the_server_of_a_killed_study_ends_with_it() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let mut child = place.spawn("study --study wan --degen --only wan9 --out wan");
    let name = format!("--parent\0{}\0", child.id());
    let servers = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let lines =
            all.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
        lines.filter(|line| line.ends_with(&name)).count()
    };
    wait_for("the server", || servers() == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the end of the server", || servers() == 0);
}

#[test]
fn a_study_behind_degen_refuses_what_does_not_cross_it() {
    let refused = |line: &str| Place::new().run(line).refused(2).to_owned();
    assert_snapshot!(refused("study --degen"), @"error: --degen: only --study wan runs there; other programs run behind `adverb degen`");
    assert_snapshot!(refused("study --study numa --degen"), @"error: --degen: only --study wan runs there; other programs run behind `adverb degen`");
    assert_snapshot!(refused("study --study wan --degen --device model:cx3"), @"error: --degen: model:cx3 is not at an end of the path; use --device soft@10.77.0.1 or tcp, or leave out --device for both");
    assert_snapshot!(refused("study --study wan --degen --peer nodeb"), @"error: --degen cannot be used with --peer: leave out one of them");
}

#[test]
fn a_program_whose_peer_is_killed_behind_a_path_ends_with_one_line() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    for (program, _) in WAN {
        let place = Place::new();
        let line = format!("{program} --iters 5000 --timeout 4ms --retries 3");
        // The eleventh column is the number of packets sent.
        let then = "while kill -0 $program && awk '/degen0/ {sent = $11} END {exit sent >= 100}' /proc/net/dev; do sleep 0.01; done
                    kill -9 $server; wait $program";
        let ended = between(&place, "--delay 1ms", &line, then);
        assert_eq!(ended.code, Some(1), "{}", ended.talk);
        let errors: Vec<_> = (ended.talk.lines())
            .filter(|line| line.starts_with("error: "))
            .collect();
        let gone =
            |line: &str| line.ends_with("is gone: the connection was closed by the other end");
        assert!(matches!(errors[..], [line] if gone(line)), "{}", ended.talk);
    }
}

#[test]
fn programs_at_both_ends_exchange_packets_through_the_router() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let line = "ping --op send --iters 20 --json";
    let ended = between(&place, "--delay 2ms", line, "wait $program");
    assert!(
        ended
            .talk
            .contains("near 10.77.0.1, far 10.77.0.2, MTU 1500: delay 2.00 ms"),
        "{}",
        ended.talk
    );
    assert!(ended.talk.contains("near to far: "), "{}", ended.talk);
    let record = ended.record();
    assert!(
        record["metrics"]["one_way_ns"]["mean"].as_f64().unwrap() >= 2e6,
        "{record}"
    );
}

#[test]
fn the_far_end_is_reached_by_a_prefix() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let mut command = place.command("degen -- sh -c");
    let script = "ip -o -4 address show dev degen0; $ADVERB_FAR ip -o -4 address show dev degen0";
    let ended = Ended::from(command.arg(script).output().unwrap());
    let peers: Vec<_> = ended
        .out
        .lines()
        .filter_map(|line| line.split(" inet ").nth(1))
        .collect();
    assert!(
        peers[0].starts_with("10.77.0.1 peer 10.77.0.2/32"),
        "{}",
        ended.out
    );
    assert!(
        peers[1].starts_with("10.77.0.2 peer 10.77.0.1/32"),
        "{}",
        ended.out
    );
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let mut command = place.command("degen -- sh -c");
    let ended = command.arg("exit 42").output().unwrap();
    assert_eq!(ended.status.code(), Some(42));
    let mut command = place.command("degen -- sh -c");
    let ended = command.arg("kill -TERM $$").output().unwrap();
    assert_eq!(ended.status.code(), Some(128 + 15));
    assert_eq!(place.run("degen -- no-such-program").code, Some(127));
    assert_eq!(place.run("degen -- /dev/null").code, Some(126));
    let without_far_end = place.run("degen --far false -- sleep 0.3").ok();
    let far = "--far ended before COMMAND: exit status: 1";
    assert!(
        without_far_end.talk.contains(far),
        "{}",
        without_far_end.talk
    );
}

/// They ran on.
#[test]
fn the_commands_of_a_killed_degen_end() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let mut command = place.command("degen --far");
    let sleeps = |end: &str| format!("echo $$ >{end}.new; mv {end}.new {end}; exec sleep 1000");
    command.args([&*sleeps("far"), "--", "sh", "-c", &sleeps("near")]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let pids = ["near", "far"].map(|end| {
        wait_for("the command", || place.path(end).exists());
        std::fs::read_to_string(place.path(end)).unwrap()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    for pid in pids {
        // A process that has ended has no command line, also while nobody has waited for it.
        let line = format!("/proc/{}/cmdline", pid.trim());
        let has_ended = || std::fs::read(&line).is_ok_and(|line| line.is_empty());
        wait_for("the end of the command", || {
            has_ended() || !Path::new(&line).exists()
        });
    }
}

#[test]
fn existing_namespaces_are_connected_until_a_signal() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let names = ["a", "b"].map(|end| format!("adverb-degen-{end}-{}", std::process::id()));
    if let Err(why) = ip(&format!("netns add {}", names[0])) {
        return not_run("degen between existing namespaces", &why);
    }
    ip(&format!("netns add {}", names[1])).unwrap();
    let [a, b] = &names;
    let child = place.spawn(&format!(
        "degen --addresses 10.9.0.1 10.9.0.2 --between {a} {b}"
    ));
    let pid = child.id();
    wait_for("the interface", || {
        ip(&format!("-n {b} link show dev degen0")).is_ok()
    });
    signal(pid, Signal::INT);
    let ended = end_of(child);
    for name in &names {
        ip(&format!("netns delete {name}")).unwrap();
    }
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    assert!(ended.talk.contains("far to near: "), "{}", ended.talk);
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let place = Place::new();
    let refused = |line: &str| place.run(line).refused(2).to_owned();
    assert_snapshot!(refused("degen"), @"error: <COMMAND>... is missing: see `adverb degen --help`");
    assert_snapshot!(refused("degen --delay 11s -- true"), @"error: --delay '11s': 11.0 s exceeds the longest delay, 10.0 s");
    // It was an unknown argument '-1'.
    let negative = "error: --delay: invalid duration '-1ms': expected a number and a unit, such as 2s, 500ms, 20us or 100ns";
    for line in [
        "degen --delay -1ms -- true",
        "overlap --delay=-1ms",
        "study --study wan --delay -1ms",
    ] {
        assert_eq!(refused(line), negative, "{line}");
    }
    // They were unknown arguments '-5' and '-1'.
    assert_snapshot!(refused("degen --link-rate -5Mbit -- true"), @"error: --link-rate: invalid rate '-5Mbit': expected a number and a unit, such as 10Gbit/s, 2.5Gbit or 100Mbit");
    assert_snapshot!(refused("interference --size -1K"), @"error: --size: invalid size '-1K': expected bytes, or a number with K, M or G (binary), such as 8, 4K, 1M");
    assert_snapshot!(refused("degen --loss 0 --rate 0 -- true"), @"error: --rate: invalid rate '0': expected a number and a unit, such as 10Gbit/s, 2.5Gbit or 100Mbit");
    assert_snapshot!(refused("rpc --rate -5k"), @"error: --rate: invalid rate '-5k': expected a number per second, 1 or more, such as 5000, 100k or 2M");
    // No packet passed the router.
    assert_snapshot!(refused("degen --addresses 127.0.0.1 127.0.0.2 -- true"), @"error: --addresses: packets to 127.0.0.1 do not leave their host: use another range, such as 10.77.0.0/24");
    assert_snapshot!(refused("degen --rate 1Gbit --queue 0 -- true"), @"error: --queue: invalid count '0': expected a whole number from 1 to 1000000");
    assert_snapshot!(refused("degen --mtu 100 -- true"), @"error: --mtu: invalid count '100': expected a whole number from 576 to 65535");
    assert_snapshot!(refused("degen --addresses 10.0.0.1 10.0.0.1 -- true"), @"error: --addresses: both ends have the address 10.0.0.1: give each one of its own");
    assert_snapshot!(refused("degen --between a b -- true"), @"error: --between cannot be used with [COMMAND]...: leave out one of them");
    if can_run(&place) {
        assert_snapshot!(place.run("degen --between no-such b").failed(1), @"error: network namespace 'no-such': /run/netns/no-such: No such file or directory (os error 2); `ip netns` lists names");
    }
}

#[test]
fn without_tun_or_namespaces_the_reason_is_named() {
    let place = Place::new();
    if let Some(ended) = place.run_after("mount -t tmpfs tmpfs /dev/net", "degen -- true") {
        assert_snapshot!(ended.failed(1), @"error: cannot open /dev/net/tun: No such file or directory (os error 2); load the module (`modprobe tun`), or pass the device to the container (`--device /dev/net/tun`)");
    }
    if !can_run(&place) {
        return;
    }
    let mut command = Command::new("unshare");
    let script = "echo 0 >/proc/sys/user/max_net_namespaces || exit 77; exec \"$0\" degen -- true";
    command.args(["--user", "--map-root-user", "sh", "-c", script]);
    let ended = Ended::from(
        command
            .arg(place.command("").get_program())
            .output()
            .unwrap(),
    );
    match ended.code {
        Some(77) => not_run("degen without namespaces", &ended.talk),
        _ => {
            assert_snapshot!(ended.failed(1), @"error: cannot make network namespaces: No space left on device (os error 28); run as root, or allow user namespaces (sysctl user.max_user_namespaces, user.max_net_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)");
        }
    }
}
