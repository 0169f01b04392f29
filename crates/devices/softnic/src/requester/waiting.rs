//! Requests that wait for their peer, and their timeouts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use adverb_verbs::{
    AhRef, Destination, Lkey, Operation, RetryParams, RnrTimer, SendFlags, SendRequest, Sge, Srqn,
    WcStatus, WrId,
};

use super::{Attempt, Connection};
use crate::port::Port;
use crate::shm::copy::gather_inline;
use crate::shm::regions::LocalRegion;
use crate::shm::sync::lock;

/// Returns how long an unreachable peer is tried: timeout × (retries + 1); `None`: indefinitely.
pub(super) fn unreachable_timeout(retry: RetryParams) -> Option<Duration> {
    let timeout = retry.timeout.span()?;
    Some((timeout * u64::from(retry.retry_cnt.get() + 1)).into())
}

/// Returns how long a receiver that is not ready is tried; `None`: indefinitely.
pub(super) fn rnr_timeout(retry: RetryParams, timer: RnrTimer) -> Option<Duration> {
    Some((timer.span() * u64::from(retry.rnr_retry.as_rnr()?)).into())
}

/// A request that the engine may have to repeat, with copies of what it borrowed from the program.
#[derive(Debug)]
pub(crate) struct WaitingRequest {
    pub(crate) wr_id: WrId,
    pub(crate) flags: SendFlags,
    pub(crate) count: u64,
    pub(crate) operation: Operation,
    /// It was attempted. In SQD it continues, unlike requests after it.
    pub(crate) has_begun: bool,
    sges: Vec<Sge<'static>>,
    to: Option<Destination<'static>>,
    remote_srqn: Srqn,
    /// Inline payload, to which `sges` points.
    _inline: Vec<u8>,
    /// Keeps the regions mapped to which `sges` points.
    _regions: Vec<Arc<LocalRegion>>,
    reason: Attempt,
    deadline: Option<Instant>,
}

impl WaitingRequest {
    /// Copies `request`, whose attempt ended with `reason` (`None`: it was not attempted, because others wait).
    pub(crate) fn new(port: &Port, request: &SendRequest<'_>, count: u64) -> Self {
        let is_inline = request.flags.contains(SendFlags::INLINE);
        let inline = if is_inline {
            gather_inline(request.sges)
        } else {
            Vec::new()
        };
        let mut sges = Vec::with_capacity(request.sges.len());
        let mut regions = Vec::new();
        if is_inline {
            let addr = inline.as_ptr().expose_provenance() as u64;
            // SAFETY: the vector's memory does not move while `self` holds it.
            sges.push(unsafe { Sge::from_raw(addr, inline.len() as u32, request_key(request)) });
        } else {
            let known = lock(&port.regions);
            for sge in request.sges {
                regions.extend(known.at(sge.lkey().0).cloned());
                // SAFETY: the SGE is not inline, so its key is checked before each use.
                sges.push(unsafe { Sge::from_raw(sge.addr(), sge.length(), sge.lkey()) });
            }
        }
        WaitingRequest {
            wr_id: request.wr_id,
            flags: request.flags,
            count,
            operation: request.operation,
            has_begun: false,
            sges,
            to: request.to.map(keep),
            remote_srqn: request.remote_srqn,
            _inline: inline,
            _regions: regions,
            reason: Attempt::Done(WcStatus::Success),
            deadline: None,
        }
    }

    pub(crate) fn request(&self) -> SendRequest<'_> {
        let request = SendRequest::new(self.wr_id, self.operation, &self.sges);
        let request = request.with_flags(self.flags).to_srq(self.remote_srqn);
        match self.to {
            Some(to) => request.to(to),
            None => request,
        }
    }

    /// After an attempt: returns the status with which the request ended or timed out. `None` if it continues
    /// to wait.
    pub(crate) fn outcome(
        &mut self,
        attempt: Attempt,
        connection: &Connection,
    ) -> Option<WcStatus> {
        if let Attempt::Done(status) = attempt {
            return Some(status);
        }
        if connection.peer.is_dead() || connection.peer.has_ended() {
            return Some(WcStatus::RetryExcErr);
        }
        let now = Instant::now();
        if attempt != self.reason {
            self.reason = attempt;
            self.deadline = connection.timeout(attempt).map(|timeout| now + timeout);
        }
        let status = match attempt {
            Attempt::ReceiverNotReady => WcStatus::RnrRetryExcErr,
            _ => WcStatus::RetryExcErr,
        };
        self.deadline
            .is_some_and(|deadline| now >= deadline)
            .then_some(status)
    }
}

/// A copy of a destination that may outlive its address handle.
fn keep(to: Destination<'_>) -> Destination<'static> {
    Destination {
        // SAFETY: this device's name for a handle is a number that is never reused.
        ah: unsafe { AhRef::from_raw(to.ah.name()) },
        qpn: to.qpn,
        qkey: to.qkey,
    }
}

fn request_key(request: &SendRequest<'_>) -> Lkey {
    request.sges.first().map(Sge::lkey).unwrap_or_default()
}
