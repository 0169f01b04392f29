//! `adverb serve` among more connections and sessions than it has places for: its clients are served.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::server::{Hand, Server, order};
use crate::common::{Place, wait_for};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use serde_json::{Value, json};

/// Sessions of a server.
const SESSIONS: usize = 64;

/// A crowd that goes on until it is dropped, also by a test that fails.
struct Until<'s>(&'s AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Connects from an address of this host.
fn connect_from(source: &str, to: &str) -> Option<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).ok()?;
    let source = SocketAddr::new(source.parse().unwrap(), 0);
    bind(&socket, &source).ok()?;
    connect(&socket, &to.parse::<SocketAddr>().unwrap()).ok()?;
    Some(socket.into())
}

#[track_caller]
fn ping(place: &Place, server: &Server) {
    let ended = place.run(&format!(
        "ping --op send --iters 50 --json --peer {}",
        server.address
    ));
    assert_eq!(ended.code, Some(0), "{}\n{:?}", ended.talk, server.log());
}

/// Silent connections kept all places for callers, so that no client was greeted within its timeout.
#[test]
fn silent_connections_that_reconnect_at_once_keep_no_client_out() {
    const CROWD: usize = 300;
    for source in ["127.0.0.1", "127.9.9.9"] {
        let place = Place::new();
        let (over, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            let server = Server::start(&place);
            let _until = Until(&over);
            for _ in 0..CROWD {
                let (address, over, calls) = (server.address.clone(), &over, &calls);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        if let Some(mut silent) = connect_from(source, &address) {
                            calls.fetch_add(1, Ordering::Relaxed);
                            // Ends when the server closes it.
                            let _ = silent.read_to_end(&mut Vec::new());
                        }
                    }
                });
            }
            wait_for("crowd", || calls.load(Ordering::Relaxed) > CROWD);
            for _ in 0..3 {
                ping(&place, &server);
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(server.stop(), Some(0));
        });
    }
}

/// Requests a session; `None` if the server has ended.
fn request(address: &str, visit: &Value) -> Option<Hand> {
    let mut hand = Hand::over(TcpStream::connect(address).ok()?);
    hand.greet(4);
    hand.next()?;
    hand.say(visit);
    Some(hand)
}

/// Sessions whose clients only said "alive" kept all places: every other client was refused.
#[test]
fn sessions_that_run_nothing_and_come_again_keep_no_client_out() {
    let place = Place::new();
    let (over, evicted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let welcomed = AtomicUsize::new(0);
    let idle = |address: &str, visit: &Value| {
        let mut hand = request(address, visit)?;
        loop {
            let frame = hand.next()?;
            let word: Value = serde_json::from_slice(&frame[1..]).unwrap();
            if word["welcome"].is_object() {
                welcomed.fetch_add(1, Ordering::Relaxed);
            } else if word == "evicted" {
                evicted.fetch_add(1, Ordering::Relaxed);
                return Some(());
            }
            hand.say(&json!("alive"));
        }
    };
    thread::scope(|scope| {
        let server = Server::start(&place);
        let _until = Until(&over);
        for _ in 0..SESSIONS + 4 {
            let (address, visit) = (server.address.clone(), server.visit());
            let (over, idle) = (&over, &idle);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let _ended = idle(&address, &visit);
                }
            });
        }
        wait_for("sessions", || welcomed.load(Ordering::Relaxed) > SESSIONS);
        for _ in 0..3 {
            ping(&place, &server);
        }
        assert!(evicted.load(Ordering::Relaxed) > 0);
        server.wait_for_line("session ended, because another client needs its place");
        over.store(true, Ordering::Relaxed);
        assert_eq!(server.stop(), Some(0));
    });
}

#[test]
fn the_session_that_is_idle_longest_gives_way_and_one_in_a_run_never() {
    let place = Place::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = Server::start(&place);
        let _until = Until(&over);
        let enter = || {
            let mut hand = request(&server.address, &server.visit()).unwrap();
            let answer = hand.word().unwrap();
            assert!(
                answer["welcome"].is_object(),
                "{answer}\n{:?}",
                server.log()
            );
            hand
        };
        let mut hands: Vec<Hand> = (0..SESSIONS).map(|_| enter()).collect();
        let mut streams: Vec<TcpStream> = Vec::new();
        streams.extend(hands.iter().map(|hand| hand.0.try_clone().unwrap()));
        hands[0].say(&order(1));
        server.side();
        let over = &over;
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for stream in &streams {
                    Hand(stream.try_clone().unwrap()).say(&json!("alive"));
                }
                thread::sleep(Duration::from_millis(200));
            }
        });
        let mut newcomers = Vec::new();
        for longest in &mut hands[1..4] {
            newcomers.push(enter());
            assert_eq!(longest.word().unwrap(), "evicted");
            longest.wait_for_end();
        }
        hands[0].say(&json!({"abort": {"run": 1}}));
        let ended = hands[0].word().unwrap();
        assert_eq!(ended["role_ended"]["ended"]["end"], "stopped", "{ended}");
        over.store(true, Ordering::Relaxed);
        assert_eq!(server.stop(), Some(0));
    });
}

#[test]
fn forty_clients_that_come_at_once_from_one_address_are_served() {
    let place = Place::new();
    let server = Server::start(&place);
    let visit = server.visit();
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let mut hand = request(&server.address, &visit).unwrap();
                let answer = hand.word().unwrap();
                assert!(answer["welcome"].is_object(), "{answer}");
            });
        }
    });
    assert_eq!(server.stop(), Some(0));
}
