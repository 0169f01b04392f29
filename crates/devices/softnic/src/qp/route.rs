//! The route that the messages of a queue pair take, for counters.

use adverb_verbs::{AhRef, Gid};

use super::{Path, SoftQp};
use crate::udp::is_udp_handle;

/// How messages reach a peer, and why if they take UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// They do not.
    Unconnected,
    /// Through shared memory.
    SharedMemory,
    /// Over UDP: the peer has another address.
    UdpToOtherAddress,
    /// Over UDP: the peer has this address, but its files are not in this process's directory of shared memory.
    UdpUnshared,
    /// Over UDP: the port uses it for all messages.
    UdpForAll,
}

impl Route {
    /// Returns how datagrams to an address handle are sent. To this port's own address they are sent through shared
    /// memory if the receiver is there.
    pub fn of_handle(ah: AhRef<'_>) -> Self {
        match is_udp_handle(ah) {
            true => Route::UdpToOtherAddress,
            false => Route::SharedMemory,
        }
    }
}

impl SoftQp {
    /// Returns how messages reach the peer at `peer`, to which the queue pair is connected.
    pub fn route(&self, peer: Gid) -> Route {
        let port = &self.inner.port;
        match &self.inner.send.lock().path {
            Path::Unconnected => Route::Unconnected,
            Path::SharedMemory(_) => Route::SharedMemory,
            Path::Udp if port.uses_udp_for_all() => Route::UdpForAll,
            Path::Udp if peer != port.gid => Route::UdpToOtherAddress,
            Path::Udp => Route::UdpUnshared,
        }
    }
}
