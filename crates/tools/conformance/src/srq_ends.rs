//! Two ends, one with a shared receive queue, for the cases about it.

use adverb_verbs::{
    AsyncEvent, Context, MemoryRegion, Operation, QpInit, QpType, QueuePair, RecvRequest,
    SendRequest, SharedReceiveQueue, SrqCaps, Station, WrId,
};

use crate::end::{Cq, Qp, SLICE, Srq};
use crate::pair::{End, QUIET, SIGNALED, Setup, TIMEOUT, connect};
use crate::{Fixture, NotSupported};

/// Two ends; B has a shared receive queue.
pub(crate) struct SrqEnds<'s, S: Station> {
    pub(crate) srq: Srq<S>,
    pub(crate) a: End<'s, S>,
    pub(crate) b: End<'s, S>,
    pub(crate) setup: Setup,
}

/// A queue pair of A and the one of B that it is connected to, which takes shared receives.
pub(crate) struct Lane<S: Station> {
    pub(crate) from: Qp<S>,
    pub(crate) to: Qp<S>,
}

impl<'s, S: Station> SrqEnds<'s, S> {
    pub(crate) fn new(fixture: Fixture<'s, S>) -> Result<Self, NotSupported> {
        Self::with(fixture, Setup::default())
    }

    pub(crate) fn with(fixture: Fixture<'s, S>, setup: Setup) -> Result<Self, NotSupported> {
        let (a, b) = (End::new(fixture, &setup), End::new(fixture, &setup));
        if b.context.caps().max_srq == 0 {
            return Err(NotSupported("shared receive queues"));
        }
        let srq = b.context.create_srq(&b.pd, &sizes(64));
        let srq = srq.expect("create a shared receive queue");
        Ok(SrqEnds { srq, a, b, setup })
    }

    /// Another pair of queue pairs in RTS.
    pub(crate) fn lane(&self) -> Lane<S> {
        let lane = Lane {
            from: self.a.another_qp(&self.setup),
            to: self.shared_qp(QpType::Rc, &self.b.recv_cq),
        };
        let (a, b) = (&self.a.context, &self.b.context);
        connect((a, &lane.from), (b, &lane.to), &self.setup);
        lane
    }

    pub(crate) fn shared_qp(&self, qp_type: QpType, recv_cq: &Cq<S>) -> Qp<S> {
        let b = &self.b;
        let init = QpInit {
            recv_cq,
            ..b.init(qp_type, self.setup.caps)
        };
        let qp = b.context.create_qp_with_srq(&b.pd, &init, &self.srq);
        qp.expect("create a queue pair with a shared receive queue")
    }

    /// Posts a shared receive into one piece of B's memory.
    pub(crate) fn recv(&self, wr_id: u64, (offset, length): (u64, u32)) {
        post_receive(&self.srq, &self.b.mr, wr_id, (offset, length));
    }

    /// Sends one piece of A's memory.
    pub(crate) fn send(&self, lane: &Lane<S>, wr_id: u64, (offset, length): (u64, u32)) {
        let sges = [self.a.mr.sge(offset, length).expect("within the region")];
        let request = SendRequest::new(WrId(wr_id), Operation::Send, &sges);
        let posted = lane.from.post_send(&[request.with_flags(SIGNALED)]);
        posted.expect("post a SEND");
    }

    #[track_caller]
    pub(crate) fn expect_event(&self, expected: AsyncEvent) {
        expect_event(&self.b, expected);
    }

    #[track_caller]
    pub(crate) fn expect_no_event(&self) {
        expect_no_event(&self.b);
    }
}

/// The next asynchronous event, within [`TIMEOUT`].
#[track_caller]
pub(crate) fn expect_event<S: Station>(end: &End<'_, S>, expected: AsyncEvent) {
    let station = end.station();
    let deadline = station.now() + TIMEOUT;
    loop {
        if let Some(event) = end.context.async_event().expect("the device works") {
            return assert_eq!(event, expected);
        }
        assert!(
            station.now() < deadline,
            "timed out waiting for {expected:?}"
        );
        station.sleep(SLICE);
    }
}

/// Asserts that no asynchronous event arrives.
#[track_caller]
pub(crate) fn expect_no_event<S: Station>(end: &End<'_, S>) {
    end.station().sleep(QUIET);
    let event = end.context.async_event().expect("the device works");
    assert_eq!(event, None, "an unexpected event");
}

pub(crate) fn sizes(max_wr: u32) -> SrqCaps {
    SrqCaps { max_wr, max_sge: 2 }
}

pub(crate) fn post_receive<S, M>(srq: &S, mr: &M, wr_id: u64, (offset, length): (u64, u32))
where
    S: SharedReceiveQueue,
    M: MemoryRegion,
{
    let sges = [mr.sge(offset, length).expect("within the region")];
    let posted = srq.post_recv(&[RecvRequest::new(WrId(wr_id), &sges)]);
    posted.expect("post a shared receive");
}
