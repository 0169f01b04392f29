//! Malformed and oversized input: it gets an error, and disturbs nobody.

use adverb_cached::{Conversation, Pause};
use adverb_units::Bytes;
use adverb_workload::random::Random;

use crate::common::{Ours, store};

const WORDS: &[&str] = &[
    "get ",
    "gets ",
    "gat ",
    "gats ",
    "set ",
    "add ",
    "cas ",
    "append ",
    "prepend ",
    "incr ",
    "decr ",
    "touch ",
    "delete ",
    "flush_all",
    "stats",
    "verbosity",
    "version",
    "mg ",
    "ms ",
    "md ",
    "ma ",
    "mn",
    "me ",
    "a ",
    "b ",
    "0 ",
    "1 ",
    "5 ",
    "-1 ",
    "99999999999999999999 ",
    "noreply",
    "\r\n",
    "\n",
    " ",
    "v ",
    "N5 ",
    "T0 ",
    "MA ",
    "b ",
    "O ",
    "C1 ",
    "I ",
    "q ",
    "\0",
    "\u{ff}",
    "hello",
    "1048576 ",
    "1048577 ",
    "2147483647 ",
];

/// Bytes that look like commands, in pieces of random lengths.
#[test]
fn random_bytes_neither_panic_nor_hold_memory() {
    let shared = store(Bytes::kib(64), true);
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let mut conversation = Conversation::default();
        let (mut input, mut out) = (Vec::new(), Vec::new());
        for _ in 0..random.below(60) {
            match random.below(8) {
                0 => input.push(random.below(256) as u8),
                _ => input
                    .extend_from_slice(WORDS[random.below(WORDS.len() as u64) as usize].as_bytes()),
            }
            if !random.chance(0.5) {
                continue;
            }
            let (used, pause) = conversation.advance(&input, &mut out, &shared);
            input.drain(..used);
            assert!(input.len() <= 2048 + 64, "it keeps {} B", input.len());
            if pause == Pause::Output {
                out.clear();
            }
            if pause == Pause::Close {
                break;
            }
        }
        conversation.end(&shared);
    }
    // All blocks can be had again.
    let mut conversation = Conversation::default();
    let mut out = Vec::new();
    let value = [
        &b"flush_all\r\nset whole 0 0 65536\r\n"[..],
        &[7; 65536],
        b"\r\n",
    ]
    .concat();
    assert_eq!(
        conversation.advance(&value, &mut out, &shared).0,
        value.len()
    );
    assert_eq!(String::from_utf8_lossy(&out), "OK\r\nSTORED\r\n");
}

/// However the bytes of commands are cut, the answers are the same.
#[test]
fn commands_in_pieces_are_the_same_commands() {
    let commands = b"set a 1 0 5\r\nhello\r\nget a b  a\r\nset long 0 0 3 noreply\r\nabcX\r\nget a\r\nms a 3 c\r\nxyz\r\n\
        mg a v s\r\nadd a 0 0 9999999\r\n\r\nget nokey\r\n";
    let run = |piece: usize| {
        let shared = store(Bytes::kib(64), true);
        let mut conversation = Conversation::default();
        let (mut input, mut out) = (Vec::new(), Vec::new());
        for bytes in commands.chunks(piece) {
            input.extend_from_slice(bytes);
            let (used, _) = conversation.advance(&input, &mut out, &shared);
            input.drain(..used);
        }
        out
    };
    let whole = run(commands.len());
    assert!(
        whole.starts_with(b"STORED\r\nVALUE a 1 5\r\nhello\r\nVALUE a 1 5\r\nhello\r\nEND\r\n")
    );
    for piece in 1..40 {
        assert_eq!(run(piece), whole, "pieces of {piece} B");
    }
}

/// The second segment was kept, and nothing executed until a third one arrived.
#[test]
fn a_command_in_two_segments_is_answered() {
    let ours = Ours::start(Bytes::mib(1), true, 10);
    let mut client = ours.connect();
    client.send(b"vers");
    // Another connection's answer shows that time has passed, not that the segment was read.
    ours.connect().ask(b"");
    client.send(b"ion\r\n");
    assert!(client.until(b"\r\n").starts_with(b"VERSION 1.6"));
}

#[test]
fn a_line_without_end_is_refused_and_others_are_served() {
    let ours = Ours::start(Bytes::mib(1), true, 10);
    let (mut good, mut bad) = (ours.connect(), ours.connect());
    good.ask(b"set a 0 0 1\r\n1\r\n");
    bad.send(&[b'x'; 4000]);
    assert_eq!(bad.rest(), b"CLIENT_ERROR line too long\r\n");
    let mut many = ours.connect();
    let long = [&b"get"[..], &b" a".repeat(50_000), b"\r\n"].concat();
    assert_eq!(
        many.ask(&long).len(),
        50_000 * b"VALUE a 0 1\r\n1\r\n".len() + 5
    );
    let long = [&b"get "[..], &[b'k'; 5000], b"\r\nget a\r\n"].concat();
    assert_eq!(
        many.ask(&long),
        b"CLIENT_ERROR bad command line format\r\nVALUE a 0 1\r\n1\r\nEND\r\n"
    );
    assert_eq!(good.ask(b"get a\r\n"), b"VALUE a 0 1\r\n1\r\nEND\r\n");
}

/// It would wait for an answer indefinitely: a binary request has no end of line.
#[test]
fn a_client_of_the_binary_protocol_is_refused() {
    let ours = Ours::start(Bytes::mib(1), true, 10);
    let mut binary = ours.connect();
    let noop = [&[0x80, 0x0a][..], &[0; 22]].concat();
    binary.send(&noop);
    assert_eq!(
        binary.rest(),
        b"CLIENT_ERROR the binary protocol is not served\r\n"
    );
}

/// A client that takes no answers occupies only its socket's buffers and one of ours.
#[test]
fn a_client_that_does_not_read_disturbs_nobody() {
    let ours = Ours::start(Bytes::mib(4), true, 10);
    let mut slow = ours.connect();
    let value = [&b"set v 0 0 1000000\r\n"[..], &[b'v'; 1_000_000], b"\r\n"].concat();
    assert_eq!(slow.ask(&value), b"STORED\r\n");
    slow.0.set_nonblocking(true).unwrap();
    let gets = b"get v v v v v v v v\r\n".repeat(1000);
    let _ = std::io::Write::write(&mut slow.0, &gets);
    let mut good = ours.connect();
    for _ in 0..100 {
        assert_eq!(
            good.ask(b"set a 0 0 1\r\n1\r\nget a\r\n"),
            b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n"
        );
    }
    drop(slow);
    assert_eq!(good.ask(b"get a\r\n"), b"VALUE a 0 1\r\n1\r\nEND\r\n");
}
