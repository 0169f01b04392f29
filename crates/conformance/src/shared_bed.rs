//! Ends of which one has a shared receive queue, and what cases about it have in common.

use std::time::Instant;

use adverb_verbs::{
    AsyncEvent, Context, Device, MemoryRegion, Operation, QpInit, QpType, QueuePair, RecvRequest,
    SendRequest, SharedReceiveQueue, SrqCaps, WrId,
};

use crate::NotSupported;
use crate::pair::{End, PATIENCE, QUIET, SIGNALED, Setup, connect};

/// Two ends, of which B has a shared receive queue.
pub(crate) struct Bed<C: Context> {
    pub(crate) srq: C::Srq,
    pub(crate) a: End<C>,
    pub(crate) b: End<C>,
    pub(crate) setup: Setup,
}

/// A queue pair of A and the one of B that it is connected to, which takes shared receives.
pub(crate) struct Lane<C: Context> {
    pub(crate) from: C::Qp,
    pub(crate) to: C::Qp,
}

impl<C: Context> Bed<C> {
    pub(crate) fn new<D: Device<Context = C>>(device: &D) -> Result<Self, NotSupported> {
        Self::with(device, Setup::default())
    }

    pub(crate) fn with<D: Device<Context = C>>(
        device: &D,
        setup: Setup,
    ) -> Result<Self, NotSupported> {
        let (a, b) = (End::new(device, &setup), End::new(device, &setup));
        if b.context.caps().max_srq == 0 {
            return Err(NotSupported("shared receive queues"));
        }
        let srq = b.context.create_srq(&b.pd, &sizes(64));
        let srq = srq.expect("create a shared receive queue");
        Ok(Bed { srq, a, b, setup })
    }

    /// Another pair of queue pairs in RTS.
    pub(crate) fn lane(&self) -> Lane<C> {
        let lane = Lane {
            from: self.a.another_qp(&self.setup),
            to: self.shared_qp(QpType::Rc, &self.b.recv_cq),
        };
        let (a, b) = (&self.a.context, &self.b.context);
        connect((a, &lane.from), (b, &lane.to), &self.setup);
        lane
    }

    pub(crate) fn shared_qp(&self, qp_type: QpType, recv_cq: &C::Cq) -> C::Qp {
        let b = &self.b;
        let init = QpInit {
            qp_type,
            send_cq: &*b.send_cq,
            recv_cq,
            caps: self.setup.caps,
        };
        let qp = b.context.create_qp_with_srq(&b.pd, &init, &self.srq);
        qp.expect("create a queue pair with a shared receive queue")
    }

    /// Posts a shared receive into one piece of B's memory.
    pub(crate) fn recv(&self, wr_id: u64, (offset, length): (u64, u32)) {
        post_receive(&self.srq, &self.b.mr, wr_id, (offset, length));
    }

    /// Sends one piece of A's memory.
    pub(crate) fn send(&self, lane: &Lane<C>, wr_id: u64, (offset, length): (u64, u32)) {
        let sges = [self.a.mr.sge(offset, length).expect("within the region")];
        let request = SendRequest::new(WrId(wr_id), Operation::Send, &sges);
        let posted = lane.from.post_send(&[request.with_flags(SIGNALED)]);
        posted.expect("post a SEND");
    }

    #[track_caller]
    pub(crate) fn expect_event(&self, expected: AsyncEvent) {
        expect_event(&self.b.context, expected);
    }

    #[track_caller]
    pub(crate) fn expect_no_event(&self) {
        expect_no_event(&self.b.context);
    }
}

/// The next asynchronous event, within [`PATIENCE`].
#[track_caller]
pub(crate) fn expect_event<C: Context>(context: &C, expected: AsyncEvent) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(event) = context.async_event().expect("the device works") {
            return assert_eq!(event, expected);
        }
        assert!(Instant::now() < deadline, "{expected:?} does not come");
        std::thread::yield_now();
    }
}

/// No asynchronous event comes.
#[track_caller]
pub(crate) fn expect_no_event<C: Context>(context: &C) {
    std::thread::sleep(QUIET);
    let event = context.async_event().expect("the device works");
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
