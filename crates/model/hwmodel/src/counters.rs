//! The counters of a machine, like the performance counters of a real one.

use adverb_verbs::Counters;

use crate::machine::Machine;

pub(crate) fn of(machine: &Machine) -> Counters {
    let traffic = &machine.pcie.traffic;
    let counts = &machine.nic.counts;
    [
        ("mmio_write_lines", traffic.mmio_writes),
        ("doorbell_lines", traffic.doorbells),
        ("pcie_read_lines", traffic.read_lines),
        ("pcie_write_lines", traffic.write_lines),
        ("completion_lines", traffic.completions),
        ("context_cache_hits", counts.context_hits),
        ("context_cache_misses", counts.context_misses),
        ("translation_cache_misses", counts.translation_misses),
        ("wqe_cache_misses", counts.wqe_misses),
        ("rnr_naks_sent", counts.rnr_naks),
        ("retransmissions", counts.retransmissions),
        ("dropped_messages", counts.dropped_datagrams),
        ("sent_messages", counts.sent_messages),
        ("received_messages", counts.received_messages),
        ("posted_requests", counts.posted_requests),
        ("completed_requests", counts.completed_requests),
    ]
    .into_iter()
    .map(|(name, count)| (name.to_owned(), count))
    .collect()
}
