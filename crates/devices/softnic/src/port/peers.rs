//! The peers of a port: the other ports that this process has mapped.

use std::sync::Arc;
#[cfg(feature = "testing")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use adverb_verbs::Qpn;
use rustix::process::geteuid;

use super::Port;
#[cfg(feature = "testing")]
use super::PrivateReach;
use crate::shm::layout::{Header, slot_of};
use crate::shm::peer::{Peer, PeerError};
use crate::shm::quiesce;
use crate::shm::sync::lock;

/// The outcome of [`Port::watch_sender`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SenderWatch {
    /// The engine will notice its death.
    Begun,
    /// It is dead.
    Dead,
    /// Try again after the death of the slot's earlier owner, or when the process can be watched.
    NotYet,
}

/// Adds a port that was opened, in place of owners of its slot that have closed theirs.
fn remember(peers: &mut Vec<Arc<Peer>>, peer: &Arc<Peer>) {
    peers.retain(|earlier| earlier.slot != peer.slot || !earlier.has_left());
    peers.push(peer.clone());
}

impl Port {
    /// Records the process's effective user for its peers. Returns whether it is still the user who opened the port:
    /// otherwise the process cannot open files of peers.
    pub(crate) fn check_user(&self) -> bool {
        let (user, header): (_, &Header) = (geteuid(), self.mapping.at(0));
        if !self.is_inherited() {
            header.user.store(user.as_raw(), Ordering::Relaxed);
        }
        user == self.user
    }

    /// Returns the peer that has `qpn`, and maps it at first use. Both sides find the same if either process has changed
    /// its user: they share no memory.
    pub(crate) fn peer_of(&self, qpn: Qpn) -> Result<Arc<Peer>, PeerError> {
        let slot = slot_of(qpn);
        if !self.check_user() {
            return Err(PeerError::OtherUser { slot });
        }
        let peer = self.known_peer(slot)?;
        match peer.has_user(self.user) {
            true => Ok(peer),
            false => Err(PeerError::OtherUser { slot }),
        }
    }

    fn known_peer(&self, slot: u32) -> Result<Arc<Peer>, PeerError> {
        let mut peers = lock(&self.peers);
        let is_it = |peer: &&Arc<Peer>| peer.slot == slot && peer.is_usable();
        if let Some(peer) = peers.iter().find(is_it) {
            return Ok(peer.clone());
        }
        let peer = Arc::new(self.open_peer(slot)?);
        if peer.has_ended() {
            return Err(PeerError::Ended { slot });
        }
        remember(&mut peers, &peer);
        drop(peers);
        self.wake.wake(); // the engine has to watch for its death
        Ok(peer)
    }

    /// Returns the PID namespace in which the port was opened. The process may no longer find /proc (`chroot`).
    fn pid_namespace(&self) -> u64 {
        let header: &Header = self.mapping.at(0);
        header.pid_namespace.load(Ordering::Relaxed)
    }

    fn open_peer(&self, slot: u32) -> Result<Peer, PeerError> {
        #[cfg_attr(not(feature = "testing"), expect(unused_mut))]
        let mut peer = Peer::open(&self.dir, slot, self.pid_namespace())?;
        #[cfg(feature = "testing")]
        if let Some(reach) = self.private_reach.get() {
            peer.is_other_process |= *reach != PrivateReach::Directly;
            peer.refuses_copies = AtomicBool::new(*reach == PrivateReach::ByOwner);
        }
        Ok(peer)
    }

    /// Returns the peer in `slot`, whose epoch is `epoch`.
    pub(crate) fn peer_with_epoch(&self, slot: u32, epoch: u64) -> Result<Arc<Peer>, SenderWatch> {
        let is_it = |peer: &&Arc<Peer>| peer.slot == slot && peer.epoch == epoch;
        let known = || lock(&self.peers).iter().find(is_it).cloned();
        if let Some(peer) = known() {
            return Ok(peer);
        }
        let watch = self.watch_sender(slot, epoch);
        self.wake.wake(); // the engine has to watch for its death
        known().ok_or(watch)
    }

    /// Makes the engine watch for the death of the owner of `slot`, which had `epoch` when it announced that it
    /// sends datagrams to this port.
    pub(crate) fn watch_sender(&self, slot: u32, epoch: u64) -> SenderWatch {
        let mut peers = lock(&self.peers);
        let is_open = |peer: &&Arc<Peer>| peer.slot == slot && !peer.is_dead() && !peer.has_left();
        let mut open = peers.iter().filter(is_open);
        if open.clone().any(|peer| peer.epoch == epoch) {
            return SenderWatch::Begun;
        }
        if open.next().is_some() {
            // An earlier owner of the slot, whose death the engine is about to notice.
            return SenderWatch::NotYet;
        }
        match self.open_peer(slot) {
            Ok(peer) if peer.epoch == epoch => {
                remember(&mut peers, &Arc::new(peer));
                SenderWatch::Begun
            }
            // It may live: if its death went unnoticed, cells would be lost; if it were taken for dead, they would
            // be used twice.
            Err(PeerError::Watch { .. } | PeerError::System { .. }) => SenderWatch::NotYet,
            _ => SenderWatch::Dead,
        }
    }

    pub(crate) fn peers(&self) -> Vec<Arc<Peer>> {
        lock(&self.peers).clone()
    }

    pub(crate) fn forget_peer(&self, peer: &Arc<Peer>) {
        lock(&self.peers).retain(|known| !Arc::ptr_eq(known, peer));
    }

    /// Waits until all operations of peers that began before this call have ended. Returns false if one does
    /// not end within `timeout`. A stopped peer ends its operation when it continues, or dies.
    pub(crate) fn quiesce_peers(&self, timeout: Duration) -> bool {
        let qps = self.queue_pairs();
        quiesce::barrier();
        let mut peers: Vec<_> = qps.iter().filter_map(|qp| qp.connected_peer()).collect();
        // A queue pair that is being destroyed adds its operation here before it forgets its peer.
        peers.extend(lock(&self.unended).iter().cloned());
        let has_ended = |(peer, index): &(Arc<Peer>, u32)| peer.wait_idle(*index, timeout);
        let have_ended = peers.iter().all(has_ended);
        if have_ended {
            lock(&self.unended).retain(|(peer, index)| !peer.wait_idle(*index, Duration::ZERO));
        }
        have_ended
    }

    /// Records an operation that has not ended, though its queue pair is destroyed.
    pub(crate) fn note_unended(&self, operation: (Arc<Peer>, u32)) {
        lock(&self.unended).push(operation);
    }
}
