//! A queue pair as its port and the engine see it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_verbs::{AsyncEvent, QpState, QpType, SrqId, WcStatus};

use super::{Path, QpInner};
use crate::port::PortQp;
use crate::shm::datagram_ring::Holder;
use crate::shm::layout::Fault;
use crate::shm::peer::Peer;

impl QpInner {
    /// Returns the fault that was reported of this generation.
    pub(super) fn reported_fault(&self) -> Option<Fault> {
        let fault = Fault(self.entry().from_peer.fault.load(Ordering::Acquire));
        let generation = self.generation.load(Ordering::Relaxed);
        fault.is_of(generation).then_some(fault)
    }
}

impl PortQp for QpInner {
    fn ask_for_wake(&self) {
        if let Some(connection) = self.send.lock().path.shared_memory() {
            connection.ask_for_wake();
        }
    }

    fn drive(&self) -> bool {
        let Some(mut send) = self.send.try_lock() else {
            return true;
        };
        if send.path.is_udp() && self.service != QpType::Ud {
            return self.drive_over_udp(&mut send);
        }
        let is_waiting = self.try_waiting(&mut send);
        if std::mem::take(&mut send.datagram_sends.needs_doorbell) {
            self.doorbell();
        }
        is_waiting
    }

    fn reclaim_datagrams(&self, is_dead: &dyn Fn(Holder) -> bool) {
        match &self.srq {
            _ if self.service != QpType::Ud => {}
            None => self.recv_cq.reclaim(&self.recv_queue, is_dead),
            Some(srq) => {
                if srq.reclaim(is_dead) {
                    self.recv_cq.raise_anyway(self.index);
                }
            }
        }
    }

    fn connected_peer(&self) -> Option<(Arc<Peer>, u32)> {
        self.peer.lock().clone()
    }

    fn has_unpolled_completions(&self) -> bool {
        let has_receives = match &self.srq {
            None => self.recv_cq.has_unpolled_receives(&self.recv_queue),
            Some(srq) => srq.has_unpolled_receives(self.qpn, self.recv_cq.index),
        };
        has_receives || self.send_cq.has_unpolled_sends(self.qpn)
    }

    fn take_reports(&self) {
        self.recv_cq.raise_owed();
        for cq in self.xrc_queues().iter().filter_map(|srq| srq.xrc_cq()) {
            cq.raise_owed();
        }
        // The queue pair may be destroyed: with the lock, this comes before the events of the queue pair are removed.
        let mut send = self.send.lock();
        if matches!(self.state(), QpState::Reset | QpState::Err) {
            return;
        }
        let generation = self.generation.load(Ordering::Relaxed);
        let from_peer = &self.entry().from_peer;
        if from_peer.established.load(Ordering::Acquire) == generation + 1
            && self.established.swap(generation + 1, Ordering::Relaxed) != generation + 1
        {
            let event = AsyncEvent::CommunicationEstablished(self.qpn);
            self.port.report(event);
        }
        if let Some(fault) = self.reported_fault() {
            if let Some(event) = fault.event(self.qpn) {
                self.port.report(event);
            }
            self.fail(&mut send);
        }
    }

    fn is_connected_to(&self, peer: &Arc<Peer>) -> bool {
        let send = self.send.lock();
        let connection = send.path.shared_memory();
        connection.is_some_and(|c| Arc::ptr_eq(&c.peer, peer))
    }

    fn receive_posted(&self, srq: SrqId) {
        let takes_from_it = self.srq.as_ref().is_some_and(|own| own.id() == srq);
        if takes_from_it || self.xrc.is_some() {
            self.wake_waiting_peer();
        }
    }

    fn fail_for_dead_peer(&self) {
        if self.service.is_reliable() {
            let mut send = self.send.lock();
            // A queue pair without outstanding requests does not notice that its peer was destroyed.
            if send.waiting.is_empty()
                && let Path::SharedMemory(connection) = &mut send.path
                && connection.peer.has_left()
            {
                return connection.detach();
            }
            match send.waiting.pop_front() {
                Some(oldest) => {
                    self.end_send(oldest.count, &oldest.request(), WcStatus::RetryExcErr);
                }
                None => send.lost_peer = self.state() != QpState::Err,
            }
            self.fail(&mut send);
        } else if let Some(srq) = &self.srq {
            srq.repost(self.index);
        }
        self.recv_cq.raise_anyway(self.index);
        for cq in self.xrc_queues().iter().filter_map(|srq| srq.xrc_cq()) {
            cq.raise_anyway(self.index);
        }
    }
}
