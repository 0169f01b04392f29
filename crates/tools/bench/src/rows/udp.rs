//! The UDP port of the user-space NIC over the loopback device.

use crate::row::{Bound, Limit, Measure, Unit};
use crate::{adverb, iperf, udp};

pub(crate) const ROWS: &[Bound] = &[
    Bound {
        name: "UDP port, send ping, 64 B",
        what: "one-way time of `adverb ping --op send --size 64` between soft@127.0.0.2 and soft@127.0.0.1 \
               over that of a bare UDP ping with as many bytes, two processes that poll busily",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(1.3),
        measure: Measure::Rounds(|s| {
            let reference = udp::ping(s.cores)?;
            let ours = adverb::one_way_over_udp(s, "ping --op send --size 64")?;
            Ok(Some((ours, reference)))
        }),
        needs: "",
    },
    Bound {
        name: "UDP port, with delayed ACKs",
        what: "median one-way time of the same ping over that without them (`ADVERB_UDP_WITHOUT=delayed_ack`)",
        unit: Unit::Nanoseconds,
        limit: Limit::None,
        measure: Measure::Rounds(|s| adverb::one_way_with_and_without(s, "delayed_ack").map(Some)),
        needs: "",
    },
    Bound {
        name: "UDP port, 32 pairs on 2 cores",
        what: "messages per second of 32 `adverb ping --op send --size 64 --device soft@127.0.0.1 --loss 0` at the \
               same time on the same two cores over those of one, each from the first start to the last end",
        unit: Unit::PerSecond,
        limit: Limit::AtLeast(0.2),
        measure: Measure::Rounds(|s| {
            let ping = "ping --op send --size 64 --device soft@127.0.0.1 --loss 0";
            adverb::of_32_and_of_one(s, ping).map(Some)
        }),
        needs: "",
    },
    Bound {
        name: "UDP port, write stream, 1 MiB",
        what: "bytes per second of `adverb blast --op write --size 1M` between the same addresses over those \
               of one TCP stream of iperf3 on the loopback device",
        unit: Unit::BytesPerSecond,
        limit: Limit::AtLeast(0.8),
        measure: Measure::Rounds(|s| {
            let Some(reference) = iperf::stream(s.cores, "128K")? else {
                return Ok(None);
            };
            let ours = adverb::bytes_per_second_over_udp(s, "blast --op write --size 1M")?;
            Ok(Some((ours, reference)))
        }),
        needs: iperf::NEEDS,
    },
];
