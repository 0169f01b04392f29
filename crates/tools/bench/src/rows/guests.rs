//! Comparisons that need a kernel with Soft-RoCE, in virtual machines.

use crate::guests::{Cell, NEEDS, NEEDS_PERFTEST, against_bare_udp, over_the_link, perftest};
use crate::row::{Bound, Limit, Measure, Unit};

const PING: Cell = Cell {
    command: "ping --op send --size 64 --duration 1s",
    figure: "/metrics/one_way_ns/p50",
};

/// Longer than a ping: code is translated as it first runs, which counts in a mean and not in a median.
const STREAM: Cell = Cell {
    command: "blast --op write --size 64K --duration 2s",
    figure: "/metrics/bytes_per_s",
};

const LONG_STREAM: Cell = Cell {
    command: "blast --op write --size 1M --duration 2s",
    figure: "/metrics/bytes_per_s",
};

/// Adverb is to measure what perftest measures.
const LIKE_PERFTEST: Limit = Limit::Near(0.03);

pub(crate) const ROWS: &[Bound] = &[
    Bound {
        name: "over a link, send ping, 64 B",
        what: "median one-way time of `adverb ping --op send --size 64` between the UDP ports of two user-space \
               NICs over that between two Soft-RoCE devices of the kernel, on the same network cards",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(1.0),
        measure: Measure::All(|s| over_the_link(s, PING)),
        needs: NEEDS,
    },
    Bound {
        name: "over a link, write stream, 64 KiB",
        what: "bytes per second of `adverb blast --op write --size 64K` over the same devices",
        unit: Unit::BytesPerSecond,
        limit: Limit::AtLeast(1.0),
        measure: Measure::All(|s| over_the_link(s, STREAM)),
        needs: NEEDS,
    },
    Bound {
        name: "over a link, write stream, 1 MiB",
        what: "the same with messages of 1 MiB",
        unit: Unit::BytesPerSecond,
        limit: Limit::AtLeast(1.0),
        measure: Measure::All(|s| over_the_link(s, LONG_STREAM)),
        needs: NEEDS,
    },
    Bound {
        name: "over a link, ping compared with bare UDP",
        what: "median one-way time of the user-space NICs over that of UDP sockets on the same link, which \
               exchange as many packets: a message and the acknowledgement of the last one each way, both \
               awaited by a process that polls busily",
        unit: Unit::Nanoseconds,
        limit: Limit::None,
        measure: Measure::All(|s| against_bare_udp(s, PING, ["echo", "ping"])),
        needs: NEEDS,
    },
    Bound {
        name: "over a link, stream compared with bare UDP",
        what: "bytes per second of `adverb blast --op write --size 64K` over those of UDP sockets on the same \
               link, with packets of the same length, as many under way and as often acknowledged, and no \
               ICRC: the most that a program makes of that link with a socket",
        unit: Unit::BytesPerSecond,
        limit: Limit::None,
        measure: Measure::All(|s| against_bare_udp(s, STREAM, ["sink", "stream"])),
        needs: NEEDS,
    },
    Bound {
        name: "as perftest: send latency, 64 B",
        what: "median of `adverb ping` over that of `ib_send_lat` on one Soft-RoCE device, by \
               `adverb-bench perftest`, which checks the parameters",
        unit: Unit::Nanoseconds,
        limit: LIKE_PERFTEST,
        measure: Measure::All(|s| perftest(s, "send latency")),
        needs: NEEDS_PERFTEST,
    },
    Bound {
        name: "as perftest: write latency, 64 B",
        what: "the same of `ib_write_lat`",
        unit: Unit::Nanoseconds,
        limit: LIKE_PERFTEST,
        measure: Measure::All(|s| perftest(s, "write latency")),
        needs: NEEDS_PERFTEST,
    },
    Bound {
        name: "as perftest: read latency, 64 B",
        what: "the same of `ib_read_lat`, whole rounds",
        unit: Unit::Nanoseconds,
        limit: LIKE_PERFTEST,
        measure: Measure::All(|s| perftest(s, "read latency")),
        needs: NEEDS_PERFTEST,
    },
    Bound {
        name: "as perftest: send bandwidth, 64 KiB",
        what: "mean of `adverb blast` over that of `ib_send_bw`",
        unit: Unit::BytesPerSecond,
        limit: LIKE_PERFTEST,
        measure: Measure::All(|s| perftest(s, "send bandwidth")),
        needs: NEEDS_PERFTEST,
    },
    Bound {
        name: "as perftest: write bandwidth, 64 KiB",
        what: "the same of `ib_write_bw`",
        unit: Unit::BytesPerSecond,
        limit: LIKE_PERFTEST,
        measure: Measure::All(|s| perftest(s, "write bandwidth")),
        needs: NEEDS_PERFTEST,
    },
    Bound {
        name: "as perftest: read bandwidth, 64 KiB",
        what: "the same of `ib_read_bw`",
        unit: Unit::BytesPerSecond,
        limit: LIKE_PERFTEST,
        measure: Measure::All(|s| perftest(s, "read bandwidth")),
        needs: NEEDS_PERFTEST,
    },
];
