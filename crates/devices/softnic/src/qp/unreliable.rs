//! Unreliable services.
//!
//! A request of a UC or UD queue pair succeeds when it was sent (IBTA vol. 1, 9.8.2, 9.8.3). The requester does
//! not learn whether the peer exists, has a receive posted or refuses the message. A local error moves only the
//! send queue to an error state (SQE, 10.3.1.6), from which the program can return to RTS.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_verbs::{QpState, QpType, SendRequest, WcStatus};

use super::{DatagramSends, Path, QpInner, SendQueue};
use crate::requester::{Attempt, SendOutcome, Sender, Source};
use crate::udp::is_udp_handle;

impl QpInner {
    /// Carries out a request that was accepted in RTS, or appends it to the waiting requests.
    #[inline(never)] // keeps the posting of connections small
    pub(super) fn send_unreliably(
        self: &Arc<Self>,
        send: &mut SendQueue,
        request: &SendRequest<'_>,
    ) {
        if !send.waiting.is_empty() {
            return self.put_off(send, request);
        }
        if send.path.is_udp() && self.service == QpType::Uc {
            return self.post_over_udp(send, request);
        }
        let Some(status) = self.transmit((&mut send.path, &mut send.datagram_sends), request)
        else {
            return self.put_off(send, request);
        };
        self.end_send(send.posted, request, status);
        if !status.is_success() {
            self.fail_as_requester(send);
        }
    }

    /// Sends a message on the connection (UC) or to its destination (UD). Only a local error is an error.
    /// `None` if the request has to wait for the network.
    pub(super) fn transmit(
        &self,
        (path, datagram_sends): (&mut Path, &mut DatagramSends),
        request: &SendRequest<'_>,
    ) -> Option<WcStatus> {
        if request.to.is_some_and(|to| is_udp_handle(to.ah)) {
            return self.send_out(datagram_sends, request);
        }
        if self.service == QpType::Ud {
            let sender = Sender {
                port: &self.port,
                qpn: self.qpn,
                pd: self.pd,
                qkey: self.entry().qkey.load(Ordering::Relaxed),
            };
            return match datagram_sends.destinations.send(&sender, request) {
                SendOutcome::Done(status) => Some(status),
                SendOutcome::NoSharedMemory if self.port.udp.is_some() => {
                    self.send_out(datagram_sends, request)
                }
                SendOutcome::NoSharedMemory => Some(WcStatus::Success),
            };
        }
        let attempt = match path {
            Path::SharedMemory(connection) => connection.attempt_apart(self.entry(), request),
            Path::Unconnected | Path::Udp => Attempt::Unreachable,
        };
        Some(match attempt {
            Attempt::Done(WcStatus::LocProtErr) => WcStatus::LocProtErr,
            Attempt::Unreachable if Source::check(&self.port, self.pd, request).is_none() => {
                WcStatus::LocProtErr
            }
            _ => WcStatus::Success,
        })
    }

    /// Sends a datagram over UDP.
    fn send_out(
        &self,
        datagram_sends: &mut DatagramSends,
        request: &SendRequest<'_>,
    ) -> Option<WcStatus> {
        datagram_sends.needs_doorbell = true;
        self.send_over_udp(request)
    }

    /// Handles a failed request: RC and XRC move to ERR, other services move to SQE.
    pub(super) fn fail_as_requester(&self, send: &mut SendQueue) {
        if self.service.is_reliable() {
            return self.fail(send);
        }
        if matches!(self.state(), QpState::Rts | QpState::Sqd) {
            self.set_state(QpState::Sqe);
            for waiting in send.waiting.drain(..) {
                self.end_send(waiting.count, &waiting.request(), WcStatus::WrFlushErr);
            }
        }
    }
}
