//! The command `stats`.

use adverb_verbs::Context;

use crate::conversation::Next;
use crate::shared::{Shared, put};

/// The version of memcached whose protocol this is, and ours. Clients of libmemcached refuse versions below 1.
pub(crate) const VERSION: &str = concat!("1.6.18-adverb-", env!("CARGO_PKG_VERSION"));

/// Lists counts, or resets them.
pub(crate) fn stats<C: Context>(words: &[&[u8]], shared: &Shared<C>, out: &mut Vec<u8>) -> Next {
    let mut items = shared.items();
    match words {
        [] => {}
        [b"reset"] => {
            items.counts.reset();
            put!(out, "RESET\r\n");
            return Next::Command;
        }
        [b"settings"] => {
            let limits = items.cache.limits();
            put!(out, "STAT maxbytes {}\r\n", limits.memory.get());
            put!(out, "STAT item_size_max {}\r\n", limits.max_value.get());
            let evictions = if limits.evicts { "on" } else { "off" };
            put!(out, "STAT evictions {evictions}\r\nEND\r\n");
            return Next::Command;
        }
        [name, ..] => {
            let name = String::from_utf8_lossy(name);
            put!(
                out,
                "CLIENT_ERROR stats {name}: expected nothing, settings or reset\r\n"
            );
            return Next::Command;
        }
    }
    let (cache, counts) = (&items.cache, &items.counts);
    let cached = cache.stats();
    for (name, value) in [
        ("pid", std::process::id().into()),
        ("uptime", shared.uptime()),
        ("time", shared.now()),
        ("curr_connections", counts.curr_connections),
        ("total_connections", counts.total_connections),
        ("rejected_connections", counts.rejected_connections),
        ("cmd_get", counts.cmd_get),
        ("cmd_set", counts.cmd_set),
        ("cmd_flush", counts.cmd_flush),
        ("cmd_touch", counts.cmd_touch),
        ("cmd_meta", counts.cmd_meta),
        ("get_hits", counts.get_hits),
        ("get_misses", counts.get_misses),
        ("delete_hits", counts.delete_hits),
        ("delete_misses", counts.delete_misses),
        ("limit_maxbytes", cache.limits().memory.get()),
        ("bytes", cache.used().get()),
        ("curr_items", cache.len() as u64),
        ("total_items", cached.stored),
        ("evictions", cached.evictions),
        ("reclaimed", cached.expired),
    ] {
        put!(out, "STAT {name} {value}\r\n");
    }
    put!(out, "STAT version {VERSION}\r\nEND\r\n");
    Next::Command
}
