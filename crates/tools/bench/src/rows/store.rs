//! The store, compared with memcached.

use crate::memcached;
use crate::row::{Bound, Limit, Measure, Unit, in_turn};

pub(crate) const ROWS: &[Bound] = &[
    Bound {
        name: "store, local port",
        what: "operations per second of `adverb store --connections 8`, whose client READs values of 67 B through \
               shared memory, over those of Debian's memcached with one thread and the same load over TCP",
        unit: Unit::PerSecond,
        limit: Limit::AtLeast(10.0),
        measure: Measure::Rounds(|s| {
            let Some(reference) = memcached::theirs(s)? else {
                return Ok(None);
            };
            Ok(Some((memcached::by_rdma(s)?, reference)))
        }),
        needs: memcached::NEEDS,
    },
    Bound {
        name: "store, TCP",
        what: "operations per second of `adverb store serve --threads 1` over those of memcached, both by the same \
               client of 8 connections over TCP",
        unit: Unit::PerSecond,
        limit: Limit::AtLeast(1.0),
        measure: Measure::All(|s| {
            let mut pairs = Vec::new();
            for round in 0..s.rounds {
                let (ours, theirs) =
                    in_turn(round, || memcached::ours(s), || memcached::theirs(s))?;
                match theirs {
                    None => return Ok(None),
                    Some(theirs) => pairs.push((ours, theirs)),
                }
            }
            Ok(Some(pairs))
        }),
        needs: memcached::NEEDS,
    },
];
