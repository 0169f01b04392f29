//! Strangers at the other end of the control connection: noise, another version, false statements.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use crate::common::server::{Hand, Server, order};
use crate::common::{Place, wait_for};
use serde_json::{Value, json};

const SHORT: &str = "ping --op send --iters 50 --json --peer";

fn ping(peer: &str) -> String {
    format!("{SHORT} {peer}")
}

#[test]
fn noise_is_one_line_and_holds_nobody_up() {
    let place = Place::new();
    let server = Server::start(&place);
    let noises: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        &[0xff; 4],
        &[3, 0, 0, 0, b'{', b'{', b'{'],
        &[0, 0, 0, 0],
        // Half a frame, and nothing at all.
        &[200, 0, 0, 0, b'{'],
        b"",
    ];
    let mut strangers: Vec<Hand> = noises
        .iter()
        .map(|noise| {
            let mut stranger = Hand::connect(&server.address);
            stranger.0.write_all(noise).unwrap();
            stranger
        })
        .collect();
    // A client is served while the server still waits for them.
    place.run(&ping(&server.address)).ok();
    let silent = "no request within 5 s";
    let said = |words: &str| server.log().iter().filter(|l| l.contains(words)).count();
    assert_eq!(said(silent), 0, "{:?}", server.log());
    for stranger in &mut strangers {
        stranger.wait_for_end();
    }
    // Another thread reads the log: a line may arrive after the connection's end.
    for (words, times) in [
        ("it does not speak Adverb's protocol: connection closed", 4),
        (silent, 2),
    ] {
        wait_for(words, || said(words) >= times);
        assert_eq!(said(words), times, "{words}");
    }
    place.run(&ping(&server.address)).ok();
}

#[test]
fn a_crowd_that_says_nothing_leaves_room() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut crowd: Vec<TcpStream> = Vec::new();
    for _ in 0..100 {
        crowd.push(TcpStream::connect(&server.address).unwrap());
    }
    drop(crowd);
    place.run(&ping(&server.address)).ok();
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_client_of_another_version_is_named_at_the_server() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut stranger = Hand::connect(&server.address);
    stranger.greet(77);
    let greeting: Value = serde_json::from_slice(&stranger.next().unwrap()).unwrap();
    assert_eq!(greeting["adverb_protocol"], 4);
    stranger.wait_for_end();
    let line =
        server.wait_for_line("speaks protocol 77 (Adverb 9.9.9), this is protocol 4 (Adverb ");
    assert!(
        line.contains("install the same version on both hosts"),
        "{line}"
    );
    place.run(&ping(&server.address)).ok();
}

/// A server by hand: it takes one client, and does `then` with it.
fn server_by_hand(then: impl FnOnce(Hand) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || then(Hand::over(listener.accept().unwrap().0)));
    address
}

#[test]
fn a_server_of_another_version_is_named_at_the_client() {
    let address = server_by_hand(|mut hand| {
        hand.greet(77);
        hand.wait_for_end();
    });
    let ended = Place::new().run(&ping(&address));
    let line = ended.refused(1);
    let told = format!(
        "error: the server at {address} speaks protocol 77 (Adverb 9.9.9), this is protocol 4 (Adverb "
    );
    assert!(line.starts_with(&told), "{line}");
}

#[test]
fn a_server_that_is_none_is_named() {
    let place = Place::new();
    let address = server_by_hand(|mut hand| {
        hand.0.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n").unwrap();
        hand.wait_for_end();
    });
    let ended = place.run(&ping(&address));
    let told = format!("error: the server at {address} does not speak Adverb's protocol");
    assert_eq!(ended.refused(1), told);

    let address = server_by_hand(|mut hand| hand.wait_for_end());
    let ended = place.run(&ping(&address));
    assert!(
        ended.refused(1).contains("sent nothing within 5 s"),
        "{}",
        ended.talk
    );

    let address = server_by_hand(drop);
    let ended = place.run(&ping(&address));
    assert!(ended.refused(1).contains("closed"), "{}", ended.talk);
}

/// Returns a client that has a session.
fn let_in(server: &Server) -> Hand {
    let visit = |request: &Value| {
        let mut hand = Hand::connect(&server.address);
        hand.greet(4);
        hand.next().unwrap();
        hand.say(request);
        let answer = hand.word().unwrap();
        (hand, answer)
    };
    let mut nowhere = server.visit();
    nowhere["visit"]["identity"] =
        json!({"boot_id": "x", "pid_namespace": 0, "uid": 0, "memory": null});
    let (_, answer) = visit(&nowhere);
    let reason = answer["refused"]["reason"].as_str().unwrap();
    assert!(reason.contains("these are two machines"), "{reason}");
    let (hand, answer) = visit(&server.visit());
    assert!(answer["welcome"]["limits"].is_object(), "{answer}");
    hand
}

/// An order of run number `run` with a change.
fn changed(run: u32, change: impl FnOnce(&mut Value)) -> Value {
    let mut order = order(run);
    change(&mut order["run"]);
    order
}

/// Why role 1 of a run failed; the run has ended then.
#[track_caller]
fn failure_of(run: u32, hand: &mut Hand) -> String {
    let ended = &hand.word().unwrap()["role_ended"];
    assert_eq!(
        (&ended["run"], &ended["ended"]["role"]),
        (&json!(run), &json!(1))
    );
    let end = ended["ended"]["end"].clone();
    assert_eq!(hand.word().unwrap(), json!({"run_ended": {"run": run}}));
    let reason = &end["failed"]["reason"];
    reason
        .as_str()
        .unwrap_or_else(|| panic!("{end}"))
        .to_owned()
}

/// A message of role 0 to role 1.
fn message(run: u32, bytes: &[u8]) -> Vec<u8> {
    let head = [run, 0, 1].map(u32::to_le_bytes);
    [b"M", head.as_flattened(), bytes].concat()
}

#[test]
fn orders_that_cannot_be_are_refused_and_the_client_stays() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut hand = let_in(&server);
    let mut number = 0;
    let mut refused = |change: &dyn Fn(&mut Value)| {
        number += 1;
        hand.say(&changed(number, change));
        failure_of(number, &mut hand)
    };
    let reason = refused(&|o| o["params"]["params"]["buffers"] = json!(1_000_000));
    assert!(reason.contains("1000000 buffers are outside"), "{reason}");
    let reason = refused(&|o| o["params"]["params"]["encrypt"] = json!(true));
    assert!(
        reason.contains("fields that this version does not know"),
        "{reason}"
    );
    let reason = refused(&|o| o["program"] = json!("sh"));
    assert!(reason.contains("unknown program 'sh'"), "{reason}");
    // More memory than the server gives.
    let reason = refused(&|o| {
        o["params"]["params"]["size"] = json!(256 << 20);
        o["params"]["params"]["buffers"] = json!(256);
    });
    assert!(
        reason.contains("of the passive side need") || reason.contains("of the active side need"),
        "{reason}"
    );
    hand.say(&changed(5, |o| o["roles"] = json!([2])));
    assert_eq!(hand.word().unwrap()["role_ended"]["ended"]["role"], 2);
    hand.word().unwrap();
    // A good one, ended before the other side ever spoke.
    hand.say(&order(6));
    server.side();
    hand.say(&json!({"abort": {"run": 6}}));
    let ended = &hand.word().unwrap()["role_ended"];
    assert_eq!(ended["ended"]["end"], "stopped");
    assert_eq!(hand.word().unwrap(), json!({"run_ended": {"run": 6}}));
    // Messages for a role that is not there are dropped.
    hand.send(&message(7, b"to nobody"));
    // A role reports invalid messages.
    hand.say(&order(8));
    hand.send(&message(8, b"nope"));
    let reason = failure_of(8, &mut hand);
    assert!(reason.contains("out of band, got nope"), "{reason}");
    drop(hand);
    let line = server.wait_for_line("left after 7 cells");
    assert!(line.contains("(liar [2J)"), "{line}");
    place.run(&ping(&server.address)).ok();
    assert!(place.shm_files().is_empty());
}

#[test]
fn frames_outside_the_protocol_end_the_session() {
    let place = Place::new();
    let server = Server::start(&place);
    for nonsense in [
        changed(1, |o| o["command"] = json!("reboot")),
        changed(1, |o| o["roles"] = json!([])),
        changed(1, |o| o["roles"] = json!(vec![1; 1000])),
        json!({"visit": {}}),
        json!({"role_ended": {}}),
        json!([]),
    ] {
        let mut hand = let_in(&server);
        hand.say(&nonsense);
        hand.wait_for_end();
    }
    // Two runs at once, an unknown kind of frame, a malformed message, an empty frame, and one that is too long.
    let mut hand = let_in(&server);
    hand.say(&order(1));
    hand.say(&order(2));
    hand.wait_for_end();
    for bytes in [&b"X"[..], b"M\x01", b""] {
        let mut hand = let_in(&server);
        hand.send(bytes);
        hand.wait_for_end();
    }
    let mut hand = let_in(&server);
    hand.0.write_all(&u32::MAX.to_le_bytes()).unwrap();
    hand.wait_for_end();
    place.run(&ping(&server.address)).ok();
}

#[test]
fn a_welcome_that_cannot_be_is_one_line() {
    for answer in [
        json!({"refused": {"reason": "go\u{1b}[2J\naway"}}),
        json!({"welcome": {"site": 1}}),
        json!("stopped"),
    ] {
        let address = server_by_hand(move |mut hand| {
            hand.greet(4);
            hand.next().unwrap();
            hand.next().unwrap();
            hand.say(&answer);
            hand.wait_for_end();
        });
        let ended = Place::new().run(&ping(&address));
        assert_eq!(ended.code, Some(1));
        let line = ended.talk.lines().last().unwrap();
        assert!(
            line.starts_with(&format!("error: the server at {address}")),
            "{line}"
        );
        assert!(!line.contains('\u{1b}'), "{line}");
    }
}
