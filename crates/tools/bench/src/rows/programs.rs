//! Programs on the local port, compared with each other: they share one engine.

use crate::row::{Bound, Limit, Measure, Unit};
use crate::{adverb, polls};

const CLIENTS: &str = "closed-loop --op write --inline --size 32 --clients 8";
/// Bound on a poll with many queue pairs, relative to one.
const FLAT: Limit = Limit::AtMost(1.5);

pub(crate) const ROWS: &[Bound] = &[
    Bound {
        name: "closed loop, one READ",
        what: "requests per second of `adverb closed-loop --op read --size 8 --clients 1 --qps 1 --outstanding 1` \
               over those of `adverb blast --op read --size 8 --buffers 1`",
        unit: Unit::PerSecond,
        limit: Limit::AtLeast(0.9),
        measure: Measure::Rounds(|s| {
            let closed = "closed-loop --op read --size 8 --clients 1 --qps 1 --outstanding 1";
            let ours = adverb::requests_per_second(s, closed)?;
            let blast = "blast --op read --size 8 --buffers 1";
            Ok(Some((ours, adverb::messages_per_second(s, blast)?)))
        }),
        needs: "",
    },
    Bound {
        name: "open loop, READs",
        what: "requests per second of `adverb open-loop --op read --size 64 --clients 1` over those of `adverb blast \
               --op read --size 64 --buffers 64`",
        unit: Unit::PerSecond,
        limit: Limit::None,
        measure: Measure::Rounds(|s| {
            let open = "open-loop --op read --size 64 --clients 1";
            let ours = adverb::requests_per_second(s, open)?;
            let blast = "blast --op read --size 64 --buffers 64";
            Ok(Some((ours, adverb::messages_per_second(s, blast)?)))
        }),
        needs: "",
    },
    Bound {
        name: "open loop, one cache line",
        what: "requests per second of `adverb open-loop --op write --size 8 --slots packed --clients 1` while a worker \
               writes the same word over those without it",
        unit: Unit::PerSecond,
        limit: Limit::None,
        measure: Measure::Rounds(|s| {
            let open = "open-loop --op write --size 8 --slots packed --clients 1";
            let ours =
                adverb::requests_per_second(s, &format!("{open} --workers 1 --worker-mix 0:1"))?;
            Ok(Some((ours, adverb::requests_per_second(s, open)?)))
        }),
        needs: "",
    },
    Bound {
        name: "closed loop, processes",
        what: "requests per second of `adverb closed-loop --op write --inline --size 32 --clients 8`, each role a \
               process, over those with threads",
        unit: Unit::PerSecond,
        limit: Limit::Near(0.1),
        measure: Measure::Rounds(|s| {
            let ours = adverb::requests_per_second(s, &format!("{CLIENTS} --processes"))?;
            Ok(Some((ours, adverb::requests_per_second(s, CLIENTS)?)))
        }),
        needs: "",
    },
    Bound {
        name: "closed loop, served",
        what: "the same with the machine at `adverb serve`, over those with threads",
        unit: Unit::PerSecond,
        limit: Limit::Near(0.1),
        measure: Measure::Rounds(|s| {
            let ours = adverb::requests_per_second_served(s, CLIENTS)?;
            Ok(Some((ours, adverb::requests_per_second(s, CLIENTS)?)))
        }),
        needs: "",
    },
    Bound {
        name: "poll, 16 queue pairs",
        what: "time of a poll that finds nothing, with 16 connected queue pairs of the completion queue that wait \
               for messages, over that with one",
        unit: Unit::Nanoseconds,
        limit: FLAT,
        measure: Measure::Rounds(|s| polls::pair(s.cores[0], 16).map(Some)),
        needs: "",
    },
    Bound {
        name: "poll, 256 queue pairs",
        what: "the same with 256",
        unit: Unit::Nanoseconds,
        limit: FLAT,
        measure: Measure::Rounds(|s| polls::pair(s.cores[0], 256).map(Some)),
        needs: "",
    },
    Bound {
        name: "poll, 1000 queue pairs",
        what: "the same with 1000",
        unit: Unit::Nanoseconds,
        limit: FLAT,
        measure: Measure::Rounds(|s| polls::pair(s.cores[0], 1000).map(Some)),
        needs: "",
    },
];
