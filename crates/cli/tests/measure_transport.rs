//! `ping` and `blast` over UC and UD: what they measure, what they refuse, and what a lost message does.

mod common;

use common::Place;

#[test]
fn the_transport_is_recorded() {
    let place = Place::new();
    for (args, transport) in [
        ("ping --op send --size 100 --verify", "uc"),
        (
            "ping --op send --size 100 --verify --completion event",
            "ud",
        ),
        (
            "ping --op write-imm --device soft@127.46.0.7 --loss 0",
            "uc",
        ),
        (
            "ping --op send --device soft@127.46.0.8 --loss 0 --verify",
            "ud",
        ),
        ("ping --op send --device model:connect_ib", "ud"),
        ("ping --op write --device model:connect_ib", "uc"),
        ("blast --op write --size 8K", "uc"),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let more = ["--transport", transport, "--iters", "50", "--json"];
        let record = place
            .run(&[&args[..], &more].concat())
            .ok()
            .json()
            .remove(0);
        let params = &record["params"];
        assert_eq!(params["transport"], transport, "{record}");
        assert!(params["retry_cnt"].is_null(), "{record}");
        let cell = record["cell"].as_str().unwrap();
        assert!(cell.contains(&format!("/{transport}")), "{cell}");
    }
    let args = ["ping", "--op", "send", "--iters", "50", "--json"];
    let usual = place.run(&args).ok().json().remove(0);
    assert_eq!(usual["params"].get("transport"), None, "{usual}");
}

#[test]
fn what_a_transport_lacks_is_refused() {
    let place = Place::new();
    for (args, why) in [
        ("ping --op read --transport uc", "only reliable transports"),
        ("ping --op write --transport ud", "a datagram is a SEND"),
        (
            "ping --op send --transport ud --size 64K",
            "exceeds the path MTU",
        ),
        ("blast --op send --transport uc", "find no receive are lost"),
        (
            "ping --op send --transport uc --retries 3",
            "leave --timeout",
        ),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let end = place.run(&args);
        let line = end.refused(2);
        assert!(line.contains(why), "{line}");
    }
}

#[test]
fn a_lost_message_ends_the_run_with_a_word_about_it() {
    let place = Place::new();
    let device = ["--device", "soft@127.46.0.9", "--loss", "50%"];
    for transport in ["uc", "ud"] {
        let args = ["ping", "--op", "send", "--transport", transport];
        let end = place.run(&[&args[..], &device, &["--iters", "1000"]].concat());
        let line = end.refused(1);
        let said = format!("{transport} sends nothing again");
        assert!(line.contains(&said), "{line}");
    }
}
