//! Counts packets that reach no queue pair, by reason.

/// Why a port dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortDrop {
    /// The ICRC is wrong: the packet is damaged, or not a RoCE packet.
    Icrc,
    /// The headers are invalid.
    Malformed,
    /// No queue pair has the transport service, for example congestion notification.
    Service,
    /// Another partition.
    Partition,
    /// The queue pair does not exist or does not receive.
    UnknownQueuePair,
    /// The source address is not the peer's.
    WrongSource,
    /// Queue pair 1 has too many management datagrams that wait.
    Mailbox,
}

const NAMES: [(PortDrop, &str); 7] = [
    (PortDrop::Icrc, "drop_icrc_err"),
    (PortDrop::Malformed, "drop_malformed"),
    (PortDrop::Service, "drop_unknown_service"),
    (PortDrop::Partition, "drop_partition"),
    (PortDrop::UnknownQueuePair, "drop_unknown_queue_pair"),
    (PortDrop::WrongSource, "drop_wrong_source"),
    (PortDrop::Mailbox, "drop_mad_overrun"),
];

/// Number of dropped packets, by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drops([u64; NAMES.len()]);

impl Drops {
    pub(super) fn count(&mut self, why: PortDrop) {
        self.0[why as usize] += 1;
    }

    /// Returns the number of packets dropped for a reason.
    pub(super) fn of(&self, why: PortDrop) -> u64 {
        self.0[why as usize]
    }

    pub(super) fn by_name(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        NAMES
            .iter()
            .map(|(why, name)| ((*name).to_owned(), self.0[*why as usize]))
    }
}
