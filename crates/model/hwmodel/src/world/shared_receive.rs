//! Shared receive queues: several queue pairs of a context take receives from one queue, in the order of
//! posting. This costs as much as taking a receive of a queue pair's own, because the NIC prefetches both.
//!
//! Sources: IBTA vol. 1, 10.2.9; ibv_create_srq(3), ibv_modify_srq(3).

use adverb_verbs::{AsyncEvent, PostError, PostErrorCause, QpState, RecvRequest, SrqId};

use crate::ids::{QpIndex, SrqIndex};
use crate::nic::receive_queue::Receive;
use crate::nic::shared_receive::{Owner, PendingEvent};
use crate::trace::StepKind;
use crate::world::fabric::{EventQueue, Fabric};
use crate::world::post::{post_each, receive};

impl Fabric {
    fn report(&mut self, owner: Owner, event: AsyncEvent) {
        self.async_events.push_back(PendingEvent { owner, event });
    }

    /// The oldest event of a context.
    pub(crate) fn take_event(&mut self, owner: Owner) -> Option<AsyncEvent> {
        let at = self
            .async_events
            .iter()
            .position(|pending| pending.owner == owner)?;
        self.async_events.remove(at).map(|pending| pending.event)
    }

    /// Removes a user of a queue; the last one ends it.
    pub(crate) fn leave_srq(&mut self, srq: SrqIndex) {
        let queue = &mut self.srqs[srq];
        queue.users -= 1;
        if queue.users == 0 {
            let (owner, event) = (queue.owner, AsyncEvent::SrqLimitReached(SrqId(srq.0)));
            self.async_events
                .retain(|t| t.owner != owner || t.event != event);
            self.srqs[srq].receives.clear();
        }
    }

    /// Removes a destroyed queue pair from the users of its queue.
    pub(crate) fn leave_its_srq(&mut self, index: QpIndex) {
        let qp = &self.qps[index];
        let Some(srq) = qp.rq.shared() else { return };
        let (owner, event) = (self.srqs[srq].owner, AsyncEvent::LastWqeReached(qp.number));
        self.async_events
            .retain(|t| t.owner != owner || t.event != event);
        self.leave_srq(srq);
    }

    pub(crate) fn post_shared(
        &mut self,
        srq: SrqIndex,
        requests: &[RecvRequest<'_>],
        events: &mut EventQueue,
    ) -> Result<(), PostError> {
        post_each(requests, |request| self.accept_shared(srq, request, events))
    }

    fn accept_shared(
        &mut self,
        srq: SrqIndex,
        request: &RecvRequest<'_>,
        events: &mut EventQueue,
    ) -> Result<(), PostErrorCause> {
        let queue = &mut self.srqs[srq];
        let depth = queue.caps.max_wr;
        if queue.in_use >= depth {
            let queue = "shared receive";
            return Err(PostErrorCause::QueueFull { queue, depth });
        }
        request.check(queue.caps.max_sge)?;
        queue.in_use += 1;
        queue.receives.push_back(receive(request));
        let host = &mut self.machines[queue.owner.machine];
        host.work(
            StepKind::BuildReceive,
            host.cpu.recv_build_ns,
            &mut events.clock,
        );
        Ok(())
    }

    /// Takes the next receive of a queue pair, from its own or the shared queue; returns it with the protection
    /// domain of its memory.
    pub(super) fn next_receive(&mut self, index: QpIndex) -> Option<(Receive, u32)> {
        let qp = &mut self.qps[index];
        let Some(srq) = qp.rq.shared() else {
            return Some((qp.rq.take()?, qp.pd));
        };
        let queue = &mut self.srqs[srq];
        let (receive, pd, owner) = (queue.receives.pop_front()?, queue.pd, queue.owner);
        if queue.receives.len() < queue.limit as usize {
            queue.limit = 0;
            self.report(owner, AsyncEvent::SrqLimitReached(SrqId(srq.0)));
        }
        Some((receive, pd))
    }

    /// Frees the entries of `count` receives that a queue pair took from a shared queue.
    pub(super) fn give_back_shared(&mut self, index: QpIndex, count: u32) {
        if let Some(srq) = self.qps[index].rq.shared() {
            let in_use = &mut self.srqs[srq].in_use;
            *in_use = in_use.saturating_sub(count);
        }
    }

    /// Raises the last-WQE event of a failed queue pair, once, when all receives that it took have completed.
    pub(super) fn report_last_wqe(&mut self, index: QpIndex) {
        let qp = &mut self.qps[index];
        let number = qp.number;
        if qp.state == QpState::Err
            && let Some(srq) = qp.rq.take_last_wqe()
        {
            let owner = self.srqs[srq].owner;
            self.report(owner, AsyncEvent::LastWqeReached(number));
        }
    }
}
