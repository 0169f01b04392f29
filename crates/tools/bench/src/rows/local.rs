//! The user-space NIC between processes of one host.

use crate::row::{Bound, Limit, Measure, Unit};
use crate::{adverb, machine, seam, ucx};

const PING: &str = "ping --op send --size 8 --inline";
const WRITE_PING: &str = "ping --op write --size 8 --inline";
const EVENT_PING: &str = "ping --op send --size 8 --inline --completion event";

/// Bound on the messages of 32 pairs on two cores, relative to one pair.
const CROWDED: Limit = Limit::AtLeast(0.2);

pub(crate) const ROWS: &[Bound] = &[
    Bound {
        name: "write ping, 8 B",
        what: "one-way time of `adverb ping --op write --size 8 --inline` over that of a bare flag in \
               a shared cache line, two threads",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(1.5),
        measure: Measure::Rounds(|s| {
            let reference = machine::flag_ping_pong(s.cores)?;
            let ours = adverb::one_way(s, WRITE_PING)?;
            Ok(Some((ours, reference)))
        }),
        needs: "",
    },
    Bound {
        name: "send ping, 8 B",
        what: "one-way time of `adverb ping --op send --size 8 --inline` over that of \
               `ucx_perftest -t tag_lat -s 8`, UCX_TLS=posix,self",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(1.0),
        measure: Measure::Rounds(|s| {
            let Some(reference) = ucx::latency(s.cores, 8)? else {
                return Ok(None);
            };
            let ours = adverb::one_way(s, PING)?;
            Ok(Some((ours, reference)))
        }),
        needs: ucx::NEEDS,
    },
    Bound {
        name: "32 pairs on 2 cores",
        what: "messages per second of 32 `adverb ping --op send --size 8 --inline` at the same time on the same two \
               cores over those of one, each from the first start to the last end",
        unit: Unit::PerSecond,
        limit: CROWDED,
        measure: Measure::Rounds(|s| adverb::of_32_and_of_one(s, PING).map(Some)),
        needs: "",
    },
    Bound {
        name: "32 pairs, write",
        what: "the same of `adverb ping --op write --size 8 --inline`, which polls memory",
        unit: Unit::PerSecond,
        limit: CROWDED,
        measure: Measure::Rounds(|s| adverb::of_32_and_of_one(s, WRITE_PING).map(Some)),
        needs: "",
    },
    Bound {
        name: "write rate, 16 B",
        what: "messages per second of `adverb blast --op write --size 16 --inline --buffers 16` over \
               those of `ucx_perftest -t tag_bw -s 16`, UCX_TLS=posix,self",
        unit: Unit::PerSecond,
        limit: Limit::AtLeast(1.5),
        measure: Measure::Rounds(|s| {
            let Some(reference) = ucx::message_rate(s.cores, 16)? else {
                return Ok(None);
            };
            let blast = "blast --op write --size 16 --inline --buffers 16";
            Ok(Some((adverb::messages_per_second(s, blast)?, reference)))
        }),
        needs: ucx::NEEDS,
    },
    Bound {
        name: "write throughput, 64 KiB",
        what: "bytes per second of `adverb blast --op write --size 64K --buffers 4` over those of \
               memcpy between four 64 KiB buffers of two shared mappings",
        unit: Unit::BytesPerSecond,
        limit: Limit::AtLeast(0.9),
        measure: Measure::Rounds(|s| {
            let reference = machine::memcpy_between_mappings(s.cores[0], 64 << 10, 4)?;
            let blast = "blast --op write --size 64K --buffers 4";
            Ok(Some((adverb::bytes_per_second(s, blast)?, reference)))
        }),
        needs: "",
    },
    Bound {
        name: "event ping CPU, active",
        what: "CPU of the active side of `adverb ping --op send --size 8 --inline --completion event` \
               compared with that of two threads that wake each other through pipes",
        unit: Unit::Percent,
        limit: Limit::Itself(25.0),
        measure: Measure::Rounds(|s| {
            let reference = machine::pipe_ping_pong(s.cores)?.active_cpu_percent;
            Ok(Some((
                adverb::cpu_percent(s, EVENT_PING, "active")?,
                reference,
            )))
        }),
        needs: "",
    },
    Bound {
        name: "event ping CPU, passive",
        what: "the same of the passive sides",
        unit: Unit::Percent,
        limit: Limit::Itself(25.0),
        measure: Measure::Rounds(|s| {
            let reference = machine::pipe_ping_pong(s.cores)?.passive_cpu_percent;
            Ok(Some((
                adverb::cpu_percent(s, EVENT_PING, "passive")?,
                reference,
            )))
        }),
        needs: "",
    },
    Bound {
        name: "event ping latency",
        what: "one-way time of the same pings",
        unit: Unit::Nanoseconds,
        limit: Limit::None,
        measure: Measure::Rounds(|s| {
            let reference = machine::pipe_ping_pong(s.cores)?.one_way_ns;
            Ok(Some((adverb::one_way(s, EVENT_PING)?, reference)))
        }),
        needs: "",
    },
    Bound {
        name: "price of events",
        what: "one-way time of the same ping, with events over polling",
        unit: Unit::Nanoseconds,
        limit: Limit::None,
        measure: Measure::Rounds(|s| {
            let poll = adverb::one_way(s, PING)?;
            Ok(Some((adverb::one_way(s, EVENT_PING)?, poll)))
        }),
        needs: "",
    },
    Bound {
        name: "seam, ns per call",
        what: "post_send and poll of one inline 16 B WRITE through the seam (a function generic over \
               the device), compared with the same calls on the device's own types",
        unit: Unit::Nanoseconds,
        limit: Limit::Above(5.0),
        measure: Measure::Rounds(|s| seam::pair(s.cores[0]).map(Some)),
        needs: "",
    },
];
