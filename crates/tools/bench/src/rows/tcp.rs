//! The kernel's TCP as a device: what the programs add to their socket calls.

use crate::row::{Bound, Limit, Measure, Unit};
use crate::tcp::Role;
use crate::{adverb, iperf, tcp};

/// One run after about a second: a congestion control that estimates the path (BBR) sends faster in the first tenths of
/// a second of a connection than later, and the references would be measured in that phase only.
const STREAM: &str = "blast --op send --size 1M --warmup 1500 --repetitions 1 --device tcp";

pub(crate) const ROWS: &[Bound] = &[
    Bound {
        name: "TCP, ping, 64 B",
        what: "one-way time of `adverb ping --op send --size 64 --device tcp` over that of a bare TCP ping, \
               two processes that poll their sockets",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(1.05),
        measure: Measure::Rounds(|s| {
            let reference = tcp::ping(s.cores)?;
            let ours = adverb::one_way(s, "ping --op send --size 64 --device tcp")?;
            Ok(Some((ours, reference)))
        }),
        needs: "",
    },
    Bound {
        name: "TCP, stream, 1 MiB",
        what: "bytes per second of `adverb blast --op send --size 1M --device tcp` over those of a bare TCP \
               stream, two processes that poll their sockets; both after a warm-up of about a second",
        unit: Unit::BytesPerSecond,
        limit: Limit::AtLeast(1.0 / 1.05),
        measure: Measure::Rounds(|s| {
            let reference = tcp::stream(s.cores, Role::Sink, 4)?;
            let ours = adverb::bytes_per_second(s, STREAM)?;
            Ok(Some((ours, reference)))
        }),
        needs: "",
    },
    Bound {
        name: "TCP, stream, 1 MiB, sleeping",
        what: "bytes per second of the same blast with sockets that sleep and one buffer (`--completion event \
               --buffers 1`) over those of a bare TCP stream whose calls block",
        unit: Unit::BytesPerSecond,
        limit: Limit::AtLeast(1.0 / 1.05),
        measure: Measure::Rounds(|s| {
            let reference = tcp::stream(s.cores, Role::SleepingSink, 1)?;
            let command = format!("{STREAM} --completion event --buffers 1");
            Ok(Some((adverb::bytes_per_second(s, &command)?, reference)))
        }),
        needs: "",
    },
    Bound {
        name: "TCP, stream, 1 MiB, compared with iperf3",
        what: "bytes per second of `adverb blast --op send --size 1M --device tcp`, which polls its sockets, over \
               those of one TCP stream of iperf3 (`-l 1M -O 1`), which sleeps, on the loopback device",
        unit: Unit::BytesPerSecond,
        limit: Limit::AtLeast(1.0 / 1.05),
        measure: Measure::Rounds(|s| {
            let Some(reference) = iperf::stream(s.cores, "1M")? else {
                return Ok(None);
            };
            Ok(Some((adverb::bytes_per_second(s, STREAM)?, reference)))
        }),
        needs: iperf::NEEDS,
    },
];
