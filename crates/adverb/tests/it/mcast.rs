//! `mcast`: on the user-space device over UDP.

use crate::common::server::Server;
use crate::common::wire::{Lan, ip};
use crate::common::{Ended, Place, end_of, not_run, records, wait_for};
use insta::assert_snapshot;
use serde_json::Value;

#[track_caller]
fn number(figures: &Value, path: &str) -> u64 {
    let value = figures.pointer(path).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("{path} in {figures}"))
}

#[test]
fn the_models_switch_copies_each_message_and_short_receive_queues_lose_some() {
    let measured = |more: &str| {
        let command = "--device model:connect_ib --subscribers 4 --messages 2000";
        figures(&format!("{command} {more}"), 4)
    };
    let lost = |figures: &Value| number(figures, "/metrics/lost");
    let slow = measured("--rate 100k");
    assert_eq!(lost(&slow), 0, "{slow}");
    assert_eq!(number(&slow, "/metrics/received"), 4 * 2000);
    let [one, many] = ["--receives 1", "--receives 64"].map(measured);
    assert!(lost(&one) > lost(&many), "{one} {many}");
    let left = measured("--rate 1M --churn 1");
    assert!(number(&left, "/metrics/away") > 0, "{left}");
    assert_eq!(measured("--rate 1M --churn 1")["metrics"], left["metrics"]);
}

/// The record of a command that ended well, in which every message has a fate at each subscriber.
#[track_caller]
fn checked(ended: Ended, subscribers: usize) -> Value {
    let figures = ended.record();
    assert_eq!(figures["program"], "mcast");
    let roles = figures["roles"].as_array().unwrap();
    assert_eq!(roles.len(), 1 + subscribers, "{figures}");
    let sent = number(&roles[0], "/metrics/messages");
    assert_eq!(sent, number(&figures, "/params/messages"));
    for role in &roles[1..] {
        let count = |name: &str| number(role, &format!("/metrics/{name}"));
        assert!(count("messages") > 0, "{figures}");
        assert_eq!(count("messages") + count("lost") + count("away"), sent);
        assert!(role["metrics"]["join_ns"].as_f64() > Some(0.0));
    }
    figures
}

#[track_caller]
fn figures(command: &str, subscribers: usize) -> Value {
    let place = Place::new();
    let ended = place.run(&format!("mcast {command} --json"));
    assert!(!ended.talk.contains("share memory"), "{}", ended.talk);
    let figures = checked(ended, subscribers);
    assert!(place.shm_files().is_empty(), "{command}");
    figures
}

#[test]
fn subscribers_at_one_address_and_at_several_count_what_arrives() {
    for (command, subscribers) in [
        ("--device soft@127.81.0.1 --group 239.3.3.1", 2),
        (
            "--device soft@127.81.0.2 --group 239.3.3.2 --processes --subscribers 3 --completion event",
            3,
        ),
        (
            "subscribe --device soft@127.81.0.3,soft@127.81.0.4 --group 239.3.3.3 --size 1K --receives 8",
            2,
        ),
        (
            "publish --device soft@127.81.0.5,soft@127.81.0.6,soft@127.81.0.7 --group 239.3.2.1",
            2,
        ),
    ] {
        let figures = figures(
            &format!("{command} --messages 2000 --rate 20k"),
            subscribers,
        );
        assert!(figures["metrics"]["messages_per_s"].as_f64() > Some(0.0));
    }
    let alone = figures(
        "--device soft@127.81.0.8 --group 239.3.3.4 --messages 1 --subscribers 1",
        1,
    );
    assert_eq!(number(&alone, "/metrics/received"), 1);
}

#[test]
fn subscribers_leave_and_join_again() {
    let command = "--device soft@127.81.0.9 --group 239.3.3.5 --subscribers 2 --churn 1 --messages 4000 --rate 10k";
    let figures = figures(command, 2);
    assert!(number(&figures, "/roles/1/metrics/away") > 0, "{figures}");
    assert_eq!(number(&figures, "/roles/2/metrics/away"), 0, "{figures}");
}

#[test]
fn packets_that_ports_lose_are_counted() {
    let figures = figures(
        "--device soft@127.81.0.10 --group 239.3.3.6 --loss 10% --messages 2000 --rate 20k",
        2,
    );
    assert!(number(&figures, "/metrics/lost") > 0, "{figures}");
    assert_eq!(figures["params"]["impairment"]["loss"], 0.1);
}

#[test]
fn messages_of_another_publisher_to_the_group_are_not_counted() {
    let place = Place::new();
    let command = |host: u32| {
        format!(
            "mcast --device soft@127.81.1.{host} --group 239.3.2.2 --messages 2000 --rate 4k --json"
        )
    };
    let other = place.spawn(&command(1));
    checked(place.run(&command(2)), 2);
    checked(end_of(other), 2);
}

/// Runs a publisher with larger messages in the group while this one counts: their datagrams do not fit into
/// receives that are made for the own ones.
#[test]
fn larger_messages_of_another_publisher_do_not_end_a_subscriber() {
    let place = Place::new();
    let other =
        "mcast --device soft@127.81.1.3 --group 239.3.2.3 --size 4K --messages 100000000 --rate 2k";
    let mut other = place.spawn(other);
    wait_for("foreign messages", || {
        let own =
            "mcast --device soft@127.81.1.4 --group 239.3.2.3 --messages 200 --rate 1k --json";
        let figures = checked(place.run(own), 2);
        number(&figures, "/roles/1/metrics/foreign") > 0
    });
    other.kill().unwrap();
    other.wait().unwrap();
}

/// The figures of `mcast` on three hosts, with servers on two of them.
fn among(lan: &Lan, arguments: &str) -> Ended {
    let places = [Place::new(), Place::new(), Place::new()];
    let servers = [1, 2].map(|host| Server::on_lan(lan, host, &places[host]));
    let command = places[0].command(&format!(
        "mcast {arguments} --device soft@10.78.0.1 --peer 10.78.0.2 --peer 10.78.0.3 --messages 2000 --rate 5k --json"
    ));
    let ended: Ended = lan.inside(0, &command).output().unwrap().into();
    for server in servers {
        assert_eq!(server.stop(), Some(0));
    }
    ended
}

#[test]
fn three_hosts_share_a_group() {
    let lan = match Lan::new("mcast", 3) {
        Ok(lan) => lan,
        Err(why) => return not_run("three_hosts_share_a_group", &why),
    };
    for arguments in [
        "publish --group 239.3.3.7",
        "subscribe --group 239.3.3.7",
        "publish --group 239.3.3.7 --churn 1",
    ] {
        let figures = checked(among(&lan, arguments), 2);
        let roles = figures["roles"].as_array().unwrap().iter();
        let names: Vec<&str> = roles.map(|role| role["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["publisher", "subscriber 0", "subscriber 1"]);
    }
    // The publisher, the group's first member, determines its MTU.
    ip(&format!("-n {} link set eth0 mtu 700", lan.name(2))).unwrap();
    let refused = among(&lan, "publish --group 239.3.3.7");
    let line = refused.refused(2);
    let words = "path MTU 512 B of this port is smaller than the 1 KiB of the group, which its first member, the publisher, determined; choose --mtu 512";
    assert!(line.ends_with(words), "{line}");
    checked(among(&lan, "publish --group 239.3.3.7 --mtu 512"), 2);
}

#[test]
fn a_sweep_has_a_row_for_each_role_and_point() {
    let place = Place::new();
    let command = "mcast --device soft@127.81.0.11 --group 239.3.3.8 --messages 500 --receives 1,64 --rate 10k,20k --out loss";
    let out = place.run(command).ok().out;
    assert_eq!(out.lines().count(), 2 + 4 * 3, "{out}");
    let header = out.lines().nth(1).unwrap();
    assert!(header.contains("receives   offered  role"), "{header}");
    assert_eq!(records(&place.path("loss")).len(), 4);
    let page = std::fs::read_to_string(place.path("loss/report.html")).unwrap();
    assert!(page.contains("messages lost over receives"));
}

#[test]
fn what_cannot_be_is_one_line() {
    let refused = |command: &str| {
        let ended = Place::new().run(&format!("mcast {command}"));
        ended.refused(2).to_owned()
    };
    let at = |more: &str| refused(&format!("--device soft@127.81.0.12 {more}"));
    assert_snapshot!(at("--subscribers 0"), @"error: --subscribers 0: a publisher without subscribers; expected 1 to 64");
    assert_snapshot!(at("--subscribers 65"), @"error: --subscribers 65: expected 1 to 64");
    assert_snapshot!(at("--receives 0"), @"error: --receives 0: expected 1 to 1024");
    assert_snapshot!(at("--messages 0"), @"error: --messages 0: expected 1 to 100000000");
    assert_snapshot!(at("--churn 3"), @"error: --churn 3: expected 0 to 2");
    assert_snapshot!(at("--size 8"), @"error: --size 8 B: a message carries its number and its publisher's key in 16 B; use at least that");
    assert_snapshot!(at("--group 10.0.0.1"), @"error: --group 10.0.0.1: not a multicast address; expected 224.0.0.0 to 239.255.255.255 or ff00::/8, such as 239.193.77.1");
    assert_snapshot!(at("--group friends"), @"error: --group 'friends': invalid IP address syntax");
    assert_snapshot!(at("--retries 3"), @"error: multicast uses UD queue pairs, where nothing is acknowledged or sent again; leave --timeout and --retries out");
    assert_snapshot!(refused("shout"), @"error: invalid [SIDE] 'shout': expected publish or subscribe");
    assert_snapshot!(refused("--device tcp"), @"error: tcp: TCP connects two ends and has no multicast; use soft@ADDR, verbs:NAME or model:PRESET");
    // Any role may be the first one to refuse.
    for (command, words) in [
        (
            "--device soft@127.81.0.12 --size 8K",
            ": size 8 KiB exceeds the path MTU 4 KiB of the group, and a datagram is one packet; choose a smaller --size",
        ),
        (
            "--device soft@127.81.0.12 --size 1K --mtu 512",
            ": size 1 KiB exceeds the path MTU 512 B of the group, and a datagram is one packet; choose a smaller --size",
        ),
        (
            "--device soft",
            ": device soft has no multicast groups without a UDP port; name an address: --device soft@ADDR, such as soft@127.0.0.1",
        ),
    ] {
        let line = refused(command);
        assert!(line.ends_with(words), "{line}");
    }
    let other = Place::new().run("mcast --device soft@127.81.0.12 --group ff15::1");
    let line = other.refused(1);
    assert!(line.contains("it is not of the same IP version"), "{line}");
}

/// Eleven messages have ten intervals between them.
#[test]
fn the_rates_are_of_the_intervals_between_messages() {
    let line = "mcast --device model:connect_ib --messages 11 --rate 10k --json";
    let record = Place::new().run(line).record();
    let roles = record["roles"].as_array().unwrap().iter();
    let roles = roles.map(|role| &role["metrics"]["messages_per_s"]);
    for rate in roles.chain([&record["metrics"]["messages_per_s"]]) {
        let rate = rate.as_f64().unwrap();
        assert!((rate / 1e4 - 1.0).abs() < 0.05, "{record}");
    }
}
