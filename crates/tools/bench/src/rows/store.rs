//! Services on the local port, compared with services over TCP: the store and kv with memcached, the sequencer with
//! a bare program.

use crate::row::{Bound, Limit, Measure, Unit, in_turn};
use crate::{adverb, memcached, tcp};

pub(crate) const ROWS: &[Bound] = &[
    Bound {
        name: "sequencer, local port",
        what: "numbers per second of `adverb sequencer --by rpc --clients 1` over those of a bare sequencer over TCP, \
               whose client has as many requests outstanding, 8, and whose sides transfer all they can by one call",
        unit: Unit::PerSecond,
        limit: Limit::AtLeast(1.0),
        measure: Measure::Rounds(|s| {
            let reference = tcp::sequencer(s.cores)?;
            let command = format!(
                "sequencer --by rpc --clients 1 --outstanding {}",
                tcp::OUTSTANDING
            );
            Ok(Some((adverb::served_per_second(s, &command)?, reference)))
        }),
        needs: "",
    },
    Bound {
        name: "kv, local port",
        what: "operations per second of `adverb kv --by rpc --clients 1 --outstanding 8 --value 67 --put 0.1 --items \
               10000` over those of Debian's memcached with one thread, 8 connections over TCP and the same load",
        unit: Unit::PerSecond,
        limit: Limit::AtLeast(1.0),
        measure: Measure::Rounds(|s| {
            let Some(reference) = memcached::theirs(s)? else {
                return Ok(None);
            };
            let command =
                "kv --by rpc --clients 1 --outstanding 8 --value 67 --put 0.1 --items 10000";
            Ok(Some((adverb::served_per_second(s, command)?, reference)))
        }),
        needs: memcached::NEEDS,
    },
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
