//! Checks of arguments before anything runs: numbers that do not fit together, too much memory,
//! options of another program.

use adverb_launch::Usage;
use adverb_patterns::{Posting, StoreLoad};
use adverb_units::{Bytes, Span};

use super::words::word;
use crate::args::{ClientArgs, KvArgs, PostingArgs, RunsArgs, ServerArgs};

/// Maximum memory that the sizes of a program may ask for.
const MOST_MEMORY: Bytes = Bytes::mib(2048);
/// Default maximum length of a list.
const DEFAULT_BATCH: u32 = 16;
/// Why a list cannot be longer.
pub(super) const AS_OUTSTANDING: &str = "the number of --outstanding requests";

/// Refuses options that only `--by memory` has.
pub(super) fn check_by_rpc(args: &KvArgs) -> Result<(), Usage> {
    let refused = match (args.puts.as_ref().map(word), args.reads) {
        (Some(puts), _) => format!("--puts {puts}: by RPC the server's cores change items"),
        (_, Some(reads)) => format!("--reads {reads}: by RPC the server's cores look keys up"),
        (None, None) => return Ok(()),
    };
    Err(Usage(format!("{refused}; it is for --by memory")))
}

/// Refuses more server cores than clients.
pub(super) fn check_cores(cores: u32, clients: u32) -> Result<(), Usage> {
    if cores <= clients {
        return Ok(());
    }
    Err(Usage(format!(
        "--cores {cores} exceeds --clients {clients}: a client is served by one core"
    )))
}

pub(super) fn check_counts(clients: &ClientArgs, posts: PostingArgs) -> Result<(), Usage> {
    if posts.qps().saturating_mul(clients.clients) > 1 << 16 {
        let (qps, threads) = (posts.qps(), clients.clients);
        return Err(Usage(format!(
            "{threads} clients with {qps} queue pairs exceed the maximum of 65536 queue pairs"
        )));
    }
    check_duration(&clients.runs)
}

pub(super) fn check_duration(runs: &RunsArgs) -> Result<(), Usage> {
    if runs.duration == Some(Span::ZERO) {
        return Err(Usage(
            "--duration 0: nothing can be measured in no time".to_owned(),
        ));
    }
    Ok(())
}

/// Refuses sizes whose product is more memory than a command should take.
pub(super) fn check_memory(what: &str, factors: &[u64]) -> Result<(), Usage> {
    let product = |all: u64, factor: &u64| all.checked_mul(*factor);
    let needed = factors.iter().try_fold(1, product);
    if needed.is_some_and(|bytes| bytes <= MOST_MEMORY.get()) {
        return Ok(());
    }
    Err(Usage(format!(
        "{what} would take more than {MOST_MEMORY} of memory; choose fewer or smaller ones"
    )))
}

/// Refuses tables, requests and answers that need too much memory.
pub(super) fn check_store(
    store: &StoreLoad,
    server: &ServerArgs,
    clients: &ClientArgs,
) -> Result<(), Usage> {
    // Key, value and half of a bucket.
    let (item, cores) = (u64::from(store.value) + 64, u64::from(server.cores));
    check_memory("these items", &[store.items, item, cores])?;
    let outstanding = u64::from(clients.clients) * u64::from(clients.outstanding);
    check_memory("these requests", &[outstanding, item, 4])?;
    let answers = u64::from(server.posting.qps()) * 256;
    check_memory("these answers", &[answers, item, cores])
}

/// Returns how requests are posted. A list longer than `most` would never be posted.
pub(super) fn posting(posts: PostingArgs, most: u32, what: &str) -> Result<Posting, Usage> {
    let batch = posts.batch.unwrap_or(DEFAULT_BATCH.min(most));
    if !(1..=most).contains(&batch) {
        return Err(Usage(format!(
            "--batch {batch}: expected 1 to {most}, {what}"
        )));
    }
    Ok(Posting::of(batch))
}

/// Refuses options of a server's cores.
pub(super) fn passive(server: &ServerArgs, rather: &str) -> Result<(), Usage> {
    let refused = match server {
        ServerArgs { rate: Some(_), .. } => "--rate",
        ServerArgs { cores: 2.., .. } => "--cores",
        _ => return Ok(()),
    };
    Err(Usage(format!(
        "{refused} is for {rather}: here the server's CPU does nothing"
    )))
}
