//! Posts requests, and carries out waiting requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_verbs::{
    MAX_MESSAGE, PostError, PostErrorCause, QpState, QpType, RecvRequest, SendFlags, SendRequest,
    WcStatus,
};

use super::{Path, QpInner, RecvProducer, SendQueue};
use crate::requester::{Attempt, WaitingRequest};
use crate::shm::notify::Urgency;
use crate::shm::send_ring::Sent;

impl QpInner {
    /// Tries to carry out the waiting requests of a queue pair whose peer is in shared memory.
    pub(super) fn try_waiting(&self, send: &mut SendQueue) -> bool {
        let is_drained = self.state() == QpState::Sqd;
        let SendQueue {
            waiting,
            path,
            datagram_sends,
            ..
        } = &mut *send;
        let mut failed = false;
        while let Some(oldest) = waiting.front_mut() {
            if is_drained && !oldest.has_begun {
                return true;
            }
            oldest.has_begun = true;
            if oldest.operation.is_local() {
                let status = self.end_local(oldest.count, &oldest.request());
                waiting.pop_front();
                failed = !status.is_success();
                if failed {
                    break;
                }
                continue;
            }
            let status = match (self.service.is_reliable(), &mut *path) {
                (true, Path::SharedMemory(connection)) => {
                    let attempt = connection.attempt_apart(self.entry(), &oldest.request());
                    match oldest.outcome(attempt, connection) {
                        Some(status) => status,
                        None => return true,
                    }
                }
                (true, _) => return false,
                (false, path) => match self.transmit((path, datagram_sends), &oldest.request()) {
                    Some(status) => status,
                    None => return true,
                },
            };
            self.end_send(oldest.count, &oldest.request(), status);
            waiting.pop_front();
            if !status.is_success() {
                failed = true;
                break;
            }
        }
        if failed {
            self.fail_as_requester(send);
        }
        false
    }

    /// [`QpInner::complete_send`], outlined to keep the path of connections in RTS small.
    #[inline(never)]
    pub(super) fn end_send(&self, count: u64, request: &SendRequest<'_>, status: WcStatus) {
        self.complete_send(count, request, status);
    }

    /// Ends a send request, with a completion if it is signaled or has failed.
    #[inline(always)]
    fn complete_send(&self, count: u64, request: &SendRequest<'_>, status: WcStatus) {
        if status.is_success() && !request.flags.contains(SendFlags::SIGNALED) {
            return;
        }
        self.sent.push(Sent {
            wr_id: request.wr_id.0,
            status,
            opcode: request.operation.completion_opcode(),
            byte_len: request.length() as u32,
            count,
        });
        self.send_cq.added(Some(self.index), Urgency::of(status));
    }

    /// Counts a send request as posted, or returns why it cannot be posted.
    #[inline]
    pub(super) fn count_send(
        &self,
        send: &mut SendQueue,
        request: &SendRequest<'_>,
    ) -> Result<(), PostErrorCause> {
        self.check_send(send.posted, request)?;
        send.posted += 1;
        Ok(())
    }

    /// Checks that all of `requests` can be posted; otherwise returns the index of the first that cannot.
    pub(super) fn check_all(
        &self,
        send: &SendQueue,
        requests: &[SendRequest<'_>],
    ) -> Result<(), PostError> {
        for (index, request) in requests.iter().enumerate() {
            self.check_accepting()
                .and_then(|_| self.check_send(send.posted + index as u64, request))
                .map_err(|cause| PostError { index, cause })?;
        }
        Ok(())
    }

    #[inline]
    fn check_send(&self, posted: u64, request: &SendRequest<'_>) -> Result<(), PostErrorCause> {
        let in_use = posted - self.sent.retired();
        if in_use >= self.caps.max_send_wr.into() {
            return Err(PostErrorCause::QueueFull {
                queue: "send",
                depth: self.caps.max_send_wr,
            });
        }
        request.check_kind(self.service)?;
        let max_message = match self.service {
            QpType::Ud => self.port.mtu().bytes(),
            _ => MAX_MESSAGE,
        };
        request.check_sizes(&self.caps, max_message)
    }

    /// Whether a connection over UDP accepts requests immediately.
    #[inline]
    pub(super) fn sends_over_udp(&self, send: &SendQueue) -> bool {
        send.path.is_udp()
            && self.service != QpType::Ud
            && send.waiting.is_empty()
            && self.state.load(Ordering::Relaxed) == QpState::Rts as u32
    }

    /// Accepts a send request, and carries it out now if no other request waits.
    #[inline]
    pub(super) fn accept(
        self: &Arc<Self>,
        send: &mut SendQueue,
        request: &SendRequest<'_>,
    ) -> Result<(), PostErrorCause> {
        let state = self.state.load(Ordering::Relaxed);
        if state != QpState::Rts as u32 {
            return self.accept_outside_rts(send, request);
        }
        self.count_send(send, request)?;
        if request.operation.is_local() {
            self.accept_local(send, request);
            return Ok(());
        }
        if !self.service.is_reliable() {
            self.send_unreliably(send, request);
            return Ok(());
        }
        if send.waiting.is_empty()
            && let Path::SharedMemory(connection) = &mut send.path
        {
            let mut attempt = connection.attempt(self.entry(), request);
            if attempt == Attempt::ReceiverNotReady {
                attempt = connection.attempt_again(self.entry(), request);
            }
            if let Attempt::Done(status) = attempt {
                self.complete_send(send.posted, request, status);
                if !status.is_success() {
                    self.fail(send);
                }
                return Ok(());
            }
        }
        if send.path.is_udp() && send.waiting.is_empty() {
            self.post_over_udp(send, request);
        } else {
            self.put_off(send, request);
        }
        Ok(())
    }

    /// Carries out a request that concerns only keys of this side, after all earlier requests.
    #[cold]
    fn accept_local(self: &Arc<Self>, send: &mut SendQueue, request: &SendRequest<'_>) {
        if !send.waiting.is_empty() || self.has_unfinished_sends(send) {
            return self.put_off(send, request);
        }
        if !self.end_local(send.posted, request).is_success() {
            self.fail_as_requester(send);
        }
    }

    /// Carries out a request that concerns only keys of this side; returns its status.
    pub(super) fn end_local(&self, count: u64, request: &SendRequest<'_>) -> WcStatus {
        let status = (self.port).operate_on_keys((self.qpn, self.pd), &request.operation);
        self.end_send(count, request, status);
        status
    }

    #[cold]
    pub(super) fn put_off(self: &Arc<Self>, send: &mut SendQueue, request: &SendRequest<'_>) {
        let is_first = send.waiting.is_empty();
        let mut waiting = WaitingRequest::new(&self.port, request, send.posted);
        // In RTS the first waiting request has been attempted before.
        waiting.has_begun = is_first && self.state() == QpState::Rts;
        send.waiting.push_back(waiting);
        if is_first {
            self.port.add_pending(self.clone());
        }
    }

    #[cold]
    pub(super) fn accept_outside_rts(
        self: &Arc<Self>,
        send: &mut SendQueue,
        request: &SendRequest<'_>,
    ) -> Result<(), PostErrorCause> {
        let state = self.check_accepting()?;
        self.count_send(send, request)?;
        if state == QpState::Sqd {
            self.put_off(send, request);
        } else {
            self.flush_waiting(send);
            let status = match std::mem::take(&mut send.lost_peer) {
                true => WcStatus::RetryExcErr,
                false => WcStatus::WrFlushErr,
            };
            self.end_send(send.posted, request, status);
        }
        Ok(())
    }

    /// Returns the state, in which the send queue takes requests.
    fn check_accepting(&self) -> Result<QpState, PostErrorCause> {
        let state = self.state();
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostErrorCause::State {
                state,
                needed: QpState::Rts,
            });
        }
        Ok(state)
    }

    #[inline]
    pub(super) fn accept_receive(
        &self,
        recv: &mut RecvProducer,
        request: &RecvRequest<'_>,
    ) -> Result<(), PostErrorCause> {
        if recv.posted - self.recv_queue.taken() >= self.caps.max_recv_wr.into() {
            return Err(PostErrorCause::QueueFull {
                queue: "receive",
                depth: self.caps.max_recv_wr,
            });
        }
        request.check(self.caps.max_recv_sge)?;
        let position = recv.first + recv.posted;
        let state = self.state.load(Ordering::Relaxed);
        if state == QpState::Err as u32 {
            recv.posted += 1;
            self.recv_cq
                .push_flushed_receive(&self.recv_queue, request.wr_id);
            return Ok(());
        }
        if state == QpState::Reset as u32 {
            return Err(PostErrorCause::State {
                state: QpState::Reset,
                needed: QpState::Init,
            });
        }
        self.recv_queue.post(position, request);
        recv.posted += 1;
        Ok(())
    }

    /// Wakes the peer's engine if it waits for a receive to be posted.
    #[inline]
    pub(super) fn wake_waiting_peer(&self) {
        let waiting = &self.entry().from_peer.waiting;
        if waiting.load(Ordering::Relaxed) != 0 {
            waiting.store(0, Ordering::Relaxed);
            if let Some(connection) = self.send.lock().path.shared_memory() {
                connection.peer.wake();
            }
        }
    }
}
