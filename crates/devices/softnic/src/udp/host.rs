//! What the UDP port knows of the device around it: its memory regions and engine ([`Host`]), and of each queue
//! pair its receives and completions ([`Endpoint`]).

use std::fmt::Debug;
use std::sync::Mutex;

use adverb_transport::{ReceiveQueue, ResponderFault};
use adverb_verbs::{AccessFlags, QpType, Qpn, Srqn};

use crate::shm::datagram_ring::{GRH_LEN, Message};
use crate::shm::layout::MrEntry;
use crate::shm::notify::Urgency;
use crate::shm::regions::RegionTable;
use crate::shm::ring::{Arrival, RecvRing};
use crate::shm::segment::Table;
use crate::shm::send_ring::Sent;
use crate::shm::tasks::{Tasks, Wake};

/// The device.
pub(crate) trait Host {
    /// The memory regions of this process, and their table entries: key, protection domain and access rights.
    fn regions(&self) -> (&Mutex<RegionTable>, &Table<MrEntry>);

    /// Wakes the engine.
    fn wake(&self) -> &Wake;

    /// Returns the UDP port of another process at this address that listens for a service of the communication manager.
    fn listener(&self, service: u64) -> Option<u16>;

    /// Runs tasks on the engine's thread, which is in the device's network namespace.
    fn tasks(&self) -> &Tasks;
}

/// A queue pair. The driver's lock is held during each call.
pub(crate) trait Endpoint: Debug + Send + Sync {
    fn qpn(&self) -> Qpn;

    fn service(&self) -> QpType;

    /// Returns its protection domain.
    fn domain(&self) -> u32;

    /// Returns the protection domain of its receives: its own, or its shared receive queue's.
    fn receive_domain(&self) -> u32;

    /// XRC: returns the protection domain of a shared receive queue; `None` if the queue pair cannot take from it.
    fn domain_of_queue(&self, srqn: Srqn) -> Option<u32>;

    /// Returns the maximum number of outstanding send requests.
    fn send_depth(&self) -> usize;

    /// Returns the access rights of the peer.
    fn peer_access(&self) -> AccessFlags;

    /// UD: returns the Q_Key that senders need.
    fn queue_key(&self) -> u32;

    /// Returns its shared receive queue, if it has one.
    fn shared_receives(&self) -> Option<ReceiveQueue>;

    /// Returns its own receive ring.
    fn receive_ring(&self) -> RecvRing<'static>;

    /// Returns the position of the first receive since RESET.
    fn first_receive(&self) -> u64;

    /// Completes the receive at `position`.
    fn complete_receive(&self, position: u64, arrival: Arrival, urgency: Urgency);

    /// UD: completes the oldest posted receive, at `from` or later, or one of the shared receive queue, with a
    /// message. Returns its position, or `None` if no receive is posted.
    fn put_datagram(
        &self,
        from: u64,
        message: Message,
        parts: (&[u8; GRH_LEN], &[u8]),
        urgency: Urgency,
    ) -> Option<u64>;

    /// Adds the completion of a send request.
    fn push_sent(&self, sent: Sent);

    /// The first request of its peer was carried out.
    fn report_established(&self);

    /// Reports why it fails as a responder.
    fn report_fault(&self, fault: ResponderFault);

    /// Moves it to the error state, after its last completion.
    fn end_in_error(&self);

    /// Moves it to the SQE state, after the last completion of a send request.
    fn stop_sending(&self);
}
