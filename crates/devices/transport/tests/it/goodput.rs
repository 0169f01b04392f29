//! How much payload a connection carries over a link that loses packets: a table that is looked at when
//! it changes, and the arithmetic behind it. `scripts/update-docs` puts it into `docs/transport.md`.

use adverb_verbs::PathMtu;

use crate::lab::goodput::{Kind, LOSSES, Row, TIMEOUT, figures, table};

/// The mean time of a packet of a WRITE stream with go-back-N: its time on the link; if it is lost, a round
/// trip, because the next packet causes a sequence NAK; if the NAK or the retransmission is lost too, a
/// timeout, because the responder sends one NAK for a packet.
fn expected(row: &Row, lossless: f64, loss: u64) -> f64 {
    let p = loss as f64 / 1e4;
    let payload = row.size.min(row.mtu.bytes().get() as usize) as f64;
    let packet = payload * 8. / lossless / 1e3;
    let flight = crate::lab::FLIGHT.as_ns_f64() / 1e3;
    let going_back = 2. * flight + 2.5 * packet;
    let timeout = 4.096 * f64::from(1 << TIMEOUT);
    let average = packet + p * going_back + 2. * p * p / (1. - p) * timeout;
    payload * 8. / average / 1e3
}

/// The page that contains the table.
const PAGE: &str = include_str!("../../../../../docs/transport.md");

#[test]
fn losses_cost_what_going_back_costs() {
    let figures = figures();
    let table = table(&figures);
    insta::assert_snapshot!("goodput", table);
    assert!(PAGE.contains(&table), "docs/transport.md has another table");
    reads_stream_as_writes_do(&figures);
    let full = |row: &Row| row.kind == Kind::Write && row.window >= 16;
    for (row, goodput) in figures.iter().filter(|(row, _)| full(row)) {
        for (loss, seen) in LOSSES.into_iter().zip(goodput) {
            let wanted = expected(row, goodput[0], loss);
            let ratio = seen / wanted;
            assert!(
                (0.8..1.25).contains(&ratio),
                "{row:?}, {loss}: {seen}, not {wanted}"
            );
        }
    }
}

fn reads_stream_as_writes_do(figures: &[(Row, Vec<f64>)]) {
    let (writes, reads) = figures.split_at(figures.len() / 2);
    for ((row, written), (_, read)) in writes.iter().zip(reads) {
        let ratio = read[0] / written[0];
        assert!(ratio > 0.99, "{row:?}: {read:?} compared with {written:?}");
    }
}

/// A path that takes 1 ms each way: at 10 Gbit/s, it holds 610 packets of 4 KiB.
fn over_a_long_path(kind: Kind, most: u32) -> Row {
    Row {
        kind,
        mtu: PathMtu::B4096,
        window: 256,
        size: 256 << 10,
        long: Some(most),
    }
}

#[test]
fn the_window_grows_until_it_fills_a_long_path() {
    for kind in [Kind::Write, Kind::Read] {
        let [fixed, adapted] = [256, 4096].map(|most| over_a_long_path(kind, most).goodput(0));
        assert!(fixed < 4.3, "{kind:?}: {fixed}");
        assert!(adapted > 9., "{kind:?}: {adapted}");
    }
}

/// Going back by whole windows used up what reports of losses may have sent again, so that true ones were doubted.
#[test]
fn a_loss_over_a_long_path_costs_one_round_trip() {
    for kind in [Kind::Write, Kind::Read] {
        let goodput = over_a_long_path(kind, 4096).goodput(100);
        // 100 packets in 2 ms, and a timeout for each 50th loss.
        assert!((1.3..1.8).contains(&goodput), "{kind:?}: {goodput}");
    }
}
