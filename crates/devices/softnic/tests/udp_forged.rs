//! A stream over UDP under packets forged with its peer's address and port: all messages arrive as they were sent, nothing
//! fails, and the number of its retransmissions is bounded by the numbers of forged packets and of go-backs. No time is
//! measured.

#![allow(unsafe_code)]

mod common;

use common::flood::{Flood, Kind, Placement, Stream, Target};

/// Forged packets of each kind, and how many a second.
const FORGED: u64 = 2000;
const RATE: u64 = 4000;
/// Messages to stream, at least.
const MESSAGES: u64 = 200;
/// Packets that a go-back sends again, at most.
const WINDOW: u64 = 256;

#[test]
fn forged_packets_cost_a_stream_no_more_than_they_are() {
    let mut stream = Stream::new(47, Placement::Anywhere);
    if !stream.spoofs_port() {
        common::not_run("forged packets from the peer's port: a raw socket requires CAP_NET_RAW");
    }
    for (kind, byte) in Kind::ALL.into_iter().zip(1..) {
        stream.fill(byte);
        let flood = Flood {
            kind,
            rate: RATE,
            target: Target::Stream,
        };
        let before = stream.counters();
        let measured = stream.run(flood, |so_far| {
            so_far.forged >= FORGED && so_far.messages >= MESSAGES
        });
        assert_eq!(measured.failure, None, "{kind:?}: {measured:?}");
        assert!(stream.has_arrived(byte), "{kind:?}: {measured:?}");
        let after = stream.counters();
        let counted = |end: usize, name: &str| after[end][name] - before[end][name];
        let told = format!("{kind:?}: {before:?} {after:?}");
        // How often it goes back is for the tests of the transport, in virtual time: a busy machine may starve an
        // end until a timer expires or its receive buffer is full.
        let went_back = counted(0, "went_back_retry");
        let resent = counted(0, "resent_pkts_retry");
        assert!(resent <= went_back * WINDOW + measured.forged, "{told}");
        let (end, name) = kind.counter();
        // Some are on their way still, and some may be taken for others of the stream's own.
        assert!(counted(end, name) >= FORGED / 4, "{name}: {told}");
    }
}
