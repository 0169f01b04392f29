//! Packets that reach no queue pair, and why.

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drop {
    /// Damaged on the way, or no RoCE packet.
    Icrc,
    /// Headers that cannot be.
    Malformed,
    /// Of a service that no queue pair has, such as a congestion notification.
    Service,
    /// Of another partition.
    Partition,
    /// To a queue pair that is not connected here.
    UnknownQueuePair,
    /// Not from the address that the queue pair is connected to.
    WrongSource,
}

const NAMES: [(Drop, &str); 6] = [
    (Drop::Icrc, "drop_icrc_err"),
    (Drop::Malformed, "drop_malformed"),
    (Drop::Service, "drop_unknown_service"),
    (Drop::Partition, "drop_partition"),
    (Drop::UnknownQueuePair, "drop_unknown_queue_pair"),
    (Drop::WrongSource, "drop_wrong_source"),
];

/// How many, by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drops([u64; NAMES.len()]);

impl Drops {
    pub(super) fn count(&mut self, why: Drop) {
        self.0[why as usize] += 1;
    }

    /// How many of those that a filter of the socket may drop.
    pub(super) fn unserved(&self) -> u64 {
        let reasons = [Drop::Service, Drop::Partition, Drop::UnknownQueuePair];
        reasons.iter().map(|why| self.0[*why as usize]).sum()
    }

    pub(super) fn by_name(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        NAMES
            .iter()
            .map(|(why, name)| ((*name).to_owned(), self.0[*why as usize]))
    }
}
