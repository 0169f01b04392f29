//! Who else may be on the other end of the control connection: noise, another version, a liar.

mod common;

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use common::server::{Hand, Server};
use common::{Place, wait_for};
use serde_json::{Value, json};

const SHORT: [&str; 7] = ["ping", "--op", "send", "--iters", "50", "--json", "--peer"];

fn ping(peer: &str) -> Vec<&str> {
    [&SHORT[..], &[peer]].concat()
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
    let silent = "it did not say within 5 s what it wants";
    let said = |words: &str| server.log().iter().filter(|l| l.contains(words)).count();
    assert_eq!(said(silent), 0, "{:?}", server.log());
    for stranger in &mut strangers {
        stranger.wait_for_end();
    }
    // The log is read beside this thread: a line may arrive after the connection's end.
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
    assert_eq!(greeting["adverb_protocol"], 3);
    stranger.wait_for_end();
    let line =
        server.wait_for_line("speaks protocol 77 (Adverb 9.9.9), this is protocol 3 (Adverb ");
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
        "error: the server at {address} speaks protocol 77 (Adverb 9.9.9), this is protocol 3 (Adverb "
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
        ended.refused(1).contains("said nothing within 5 s"),
        "{}",
        ended.talk
    );

    let address = server_by_hand(drop);
    let ended = place.run(&ping(&address));
    assert!(ended.refused(1).contains("closed"), "{}", ended.talk);
}

/// What a client says to be let in; the server's own identity is taken from its welcome.
fn let_in(server: &Server) -> Hand {
    let visit = |identity: &Value| {
        let mut hand = Hand::connect(&server.address);
        hand.greet(3);
        hand.next().unwrap();
        hand.say(
            &json!({"visit": {"host": "liar\u{1b}[2J", "device": "soft", "identity": identity}}),
        );
        let answer = hand.word().unwrap();
        (hand, answer)
    };
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let nowhere = json!({"boot_id": "x", "pid_namespace": 0, "uid": 0, "memory": null});
    let (_, answer) = visit(&nowhere);
    let reason = answer["refused"]["reason"].as_str().unwrap();
    assert!(reason.contains("these are two machines"), "{reason}");
    let here = json!({
        "boot_id": boot_id.trim(),
        "pid_namespace": inode("/proc/self/ns/pid").1,
        "uid": rustix::process::geteuid().as_raw(),
        "memory": inode(server.memory.to_str().unwrap()),
    });
    let (hand, answer) = visit(&here);
    assert!(answer["welcome"]["limits"].is_object(), "{answer}");
    hand
}

fn inode(path: &str) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path).unwrap();
    (meta.dev(), meta.ino())
}

fn order(cell: u32, change: impl FnOnce(&mut Value)) -> Value {
    let mut order = json!({"order": {
        "cell": cell,
        "spec": {
            "id": "blast/write/64/plain/poll/b1/single/all",
            "figures": [],
            "program": "blast",
            "params": {
                "op": "write", "size": 64, "inline": false, "completion": "poll", "buffers": 1,
                "post": "single", "signal": "all", "path_mtu": null,
                "ack_timeout": null, "retries": null, "impairment": null,
                "verify": false,
                "length": {"iters": 10}, "repetitions": 1, "warmup": null, "seed": 1,
            },
        },
        "shares_core": false,
    }});
    change(&mut order["order"]);
    order
}

#[test]
fn orders_that_cannot_be_are_refused_and_the_client_stays() {
    let place = Place::new();
    let server = Server::start(&place);
    let mut hand = let_in(&server);
    hand.say(&order(1, |o| {
        o["spec"]["params"]["buffers"] = json!(1_000_000);
    }));
    let ended = &hand.word().unwrap()["side_ended"];
    assert_eq!(ended["cell"], 1);
    let reason = ended["end"]["answered"]["failed"]["reason"]
        .as_str()
        .unwrap();
    assert!(reason.contains("1000000 buffers are outside"), "{reason}");
    // More memory than the server gives.
    hand.say(&order(2, |o| {
        o["spec"]["params"]["size"] = json!(256 << 20);
        o["spec"]["params"]["buffers"] = json!(256);
    }));
    let ended = &hand.word().unwrap()["side_ended"];
    let reason = ended["end"]["answered"]["failed"]["reason"]
        .as_str()
        .unwrap();
    assert!(
        reason.contains("of the passive side need") || reason.contains("of the active side need"),
        "{reason}"
    );
    // A good one, ended before the other side ever spoke.
    hand.say(&order(3, |_| {}));
    server.side();
    hand.say(&json!({"abort": {"cell": 3}}));
    assert_eq!(hand.word().unwrap()["side_ended"]["cell"], 3);
    // Words for a role that is not there are dropped.
    hand.send(&[b"P", &7_u32.to_le_bytes()[..], b"to nobody"].concat());
    // A role that is told nonsense says so.
    hand.say(&order(4, |_| {}));
    let mut nonsense = b"P\x04\x00\x00\x00".to_vec();
    nonsense.extend([4, 0, 0, 0, b'n', b'o', b'p', b'e']);
    hand.send(&nonsense);
    let ended = &hand.word().unwrap()["side_ended"];
    assert_eq!(ended["cell"], 4);
    let reason = ended["end"]["answered"]["failed"]["reason"]
        .as_str()
        .unwrap();
    assert!(
        reason.contains("was expected out of band, got nope"),
        "{reason}"
    );
    drop(hand);
    let line = server.wait_for_line("left after 4 cells");
    assert!(line.contains("(liar [2J)"), "{line}");
    place.run(&ping(&server.address)).ok();
    assert!(place.shm_files().is_empty());
}

#[test]
fn what_is_not_in_the_protocol_ends_the_visit() {
    let place = Place::new();
    let server = Server::start(&place);
    for nonsense in [
        order(1, |o| o["spec"]["params"]["encrypt"] = json!(true)),
        order(1, |o| o["command"] = json!("reboot")),
        json!({"visit": {}}),
        json!({"side_ended": {}}),
        json!([]),
    ] {
        let mut hand = let_in(&server);
        hand.say(&nonsense);
        hand.wait_for_end();
    }
    // Two cells at once, frames of no kind, of no cell and of nothing, and one that is too long.
    let mut hand = let_in(&server);
    hand.say(&order(1, |_| {}));
    hand.say(&order(2, |_| {}));
    hand.wait_for_end();
    for bytes in [&b"X"[..], b"P\x01", b""] {
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
            hand.greet(3);
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
