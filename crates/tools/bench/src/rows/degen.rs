//! `degen`, and RC next to TCP behind it.

use std::time::Duration;

use adverb_units::Span;
use adverb_verbs::{Impairment, Probability};

use crate::degen;
use crate::row::{Bound, Limit, Measure, Unit};

/// A path of 10 ms in each direction.
fn long(loss: Probability) -> Impairment {
    Impairment {
        delay: Span::from_ms(10),
        loss,
        seed: 1,
        ..Impairment::default()
    }
}

pub(crate) const ROWS: &[Bound] = &[
    Bound {
        name: "degen, spacing of a burst, 8 ms",
        what: "median error of the spacing (from the first one) of 1,000 datagrams sent back to back that arrive behind \
               a delay of 8 ms, longer than the burst, after 200 others that wake the router up; the sender and the router \
               have a core each, and the receiver sleeps meanwhile; next to it a router that holds each packet before it reads the next one",
        unit: Unit::Percent,
        limit: Limit::Itself(5.0),
        measure: Measure::Rounds(|s| degen::spacing(s, Duration::from_millis(8))),
        needs: degen::NEEDS,
    },
    Bound {
        name: "degen, spacing of a burst, 1 ms",
        what: "the same with a delay of 1 ms: the router reads the end of the burst while it writes the beginning, and has \
               the sender's time of a datagram for both",
        unit: Unit::Percent,
        limit: Limit::None,
        measure: Measure::Rounds(|s| degen::spacing(s, Duration::from_millis(1))),
        needs: degen::NEEDS,
    },
    Bound {
        name: "degen, error of 1 ms",
        what: "difference between the one-way time of a datagram with a delay of 1 ms and without, over 1 ms",
        unit: Unit::Percent,
        limit: Limit::Itself(5.0),
        measure: Measure::Rounds(|_| degen::delay_error(0, Duration::from_millis(1))),
        needs: degen::NEEDS,
    },
    Bound {
        name: "degen, error of 0.1 ms",
        what: "the same with a delay of 0.1 ms",
        unit: Unit::Percent,
        limit: Limit::Itself(15.0),
        measure: Measure::Rounds(|_| degen::delay_error(0, Duration::from_micros(100))),
        needs: degen::NEEDS,
    },
    Bound {
        name: "degen, delay 0",
        what: "what the path adds to the one-way time of a datagram over the loopback device, over two wake-ups: a byte \
               that a thread passes on from one pipe to another",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(1.5),
        measure: Measure::Rounds(|_| degen::two_wake_ups(0)),
        needs: degen::NEEDS,
    },
    Bound {
        name: "degen, loss of 100,000 datagrams/s",
        what: "share of 100,000 datagrams of 64 B that are not passed on behind a delay of 1 ms; next to it the share of \
               a second that sending them took",
        unit: Unit::Percent,
        limit: Limit::Itself(0.0),
        measure: Measure::Rounds(|_| degen::loss()),
        needs: degen::NEEDS,
    },
    Bound {
        name: "RC next to TCP behind 10 ms",
        what: "bytes per second of `adverb blast --op write --size 256K` between soft@10.77.0.1 and soft@10.77.0.2, 64 \
               in flight, over those of one TCP stream of iperf3 (cubic) through the same degen, with an MTU of 4200 B",
        unit: Unit::BytesPerSecond,
        limit: Limit::AtLeast(0.9),
        measure: Measure::All(|s| {
            (0..2)
                .map(|round| degen::streams(s, round, long(Probability::ZERO), "256K"))
                .collect()
        }),
        needs: degen::NEEDS_IPERF,
    },
    Bound {
        name: "RC next to TCP behind 10 ms and 1 % loss",
        what: "the same with messages of 16 KiB and 1 % of the packets lost in each direction",
        unit: Unit::BytesPerSecond,
        limit: Limit::None,
        measure: Measure::All(|s| {
            let percent = Probability::per_million(10_000);
            (0..2)
                .map(|round| degen::streams(s, round, long(percent), "16K"))
                .collect()
        }),
        needs: degen::NEEDS_IPERF,
    },
];
