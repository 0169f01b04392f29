//! The kernel's TCP as a device: what the programs add to their socket calls.

use crate::row::{Bound, Limit, Measure, Unit};
use crate::{adverb, iperf, tcp};

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
               stream, two processes that poll their sockets",
        unit: Unit::BytesPerSecond,
        limit: Limit::AtLeast(1.0 / 1.05),
        measure: Measure::Rounds(|s| {
            let reference = tcp::stream(s.cores)?;
            let ours = adverb::bytes_per_second(s, "blast --op send --size 1M --device tcp")?;
            Ok(Some((ours, reference)))
        }),
        needs: "",
    },
    Bound {
        name: "TCP, stream, 1 MiB, compared with iperf3",
        what: "bytes per second of the same blast with sockets that sleep (`--completion event`) over those \
               of one TCP stream of iperf3 on the loopback device",
        unit: Unit::BytesPerSecond,
        limit: Limit::AtLeast(1.0 / 1.05),
        measure: Measure::Rounds(|s| {
            let Some(reference) = iperf::stream(s.cores)? else {
                return Ok(None);
            };
            let command = "blast --op send --size 1M --completion event --device tcp";
            Ok(Some((adverb::bytes_per_second(s, command)?, reference)))
        }),
        needs: iperf::NEEDS,
    },
];
