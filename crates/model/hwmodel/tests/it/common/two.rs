//! Two connected queue pairs of one role.

use adverb_hwmodel::{
    Cluster, ModelContext, ModelCq, ModelMr, ModelQp, ModelStation, Placement, Preset,
};
use adverb_sim::{Budget, Outcome};
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, AddressVector, Context, MemoryRegion, Operation, PathMtu, Psn, QpAttr, QpCaps,
    QpInit, QpState, QpType, QueuePair, RecvRequest, RetryCount, SendFlags, SendRequest, Station,
    WaitError, WorkCompletion, WrId,
};

pub(crate) const SOON: Span = Span::from_ms(1);
const QKEY: u32 = 77;
const SIZE: u64 = 4096;

/// The path from a role's port to itself.
#[derive(Clone, Copy)]
pub(crate) struct Loop {
    pub(crate) address: AddressVector,
    pub(crate) mtu: PathMtu,
}

impl Loop {
    pub(crate) fn of(context: &ModelContext) -> Self {
        let port = context.port(context.port_num()).unwrap();
        Loop {
            address: AddressVector::new(port.gid, port.lid, context.port_num()),
            mtu: port.active_mtu,
        }
    }

    /// Brings a queue pair from RESET to RTS, connected to `peer` unless it is UD.
    pub(crate) fn join(self, qp: &ModelQp, peer: &ModelQp, qp_type: QpType, rnr_retry: RetryCount) {
        let mut init = QpAttr::to_init(self.address.port, AccessFlags::all());
        let mut rtr = QpAttr::to_rtr(self.address, peer.qpn(), Psn::new(5), self.mtu);
        let mut rts = QpAttr::to_rts(Psn::new(5));
        rts.rnr_retry = Some(rnr_retry);
        rts.retry_cnt = RetryCount::new(1);
        if qp_type == QpType::Ud {
            (init.access, init.qkey) = (None, Some(QKEY));
            rtr = QpAttr::to(QpState::Rtr);
        }
        if qp_type != QpType::Rc {
            (rtr.max_dest_rd_atomic, rtr.min_rnr_timer) = (None, None);
            rts = QpAttr::to(QpState::Rts);
            rts.sq_psn = Some(Psn::new(5));
        }
        for attr in [init, rtr, rts] {
            qp.modify(&attr).unwrap();
        }
    }
}

/// Two connected queue pairs, each with a completion queue and memory.
pub(crate) struct Two<'s, 'y> {
    pub(crate) station: &'s ModelStation<'y>,
    pub(crate) cqs: [ModelCq; 2],
    pub(crate) mrs: [ModelMr; 2],
    pub(crate) qps: [ModelQp; 2],
    pub(crate) way: Loop,
}

pub(crate) fn init(cq: &ModelCq, qp_type: QpType) -> QpInit<'_, ModelCq> {
    QpInit {
        qp_type,
        send_cq: cq,
        recv_cq: cq,
        caps: QpCaps {
            max_send_wr: 32,
            max_recv_wr: 32,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 64,
        },
    }
}

impl<'s, 'y> Two<'s, 'y> {
    pub(crate) fn new(station: &'s ModelStation<'y>, qp_type: QpType) -> Self {
        Self::with_inline_recv(station, qp_type, 0)
    }

    /// As [`Two::new`], with completions that carry payloads of up to `max_inl_recv` bytes.
    pub(crate) fn with_inline_recv(
        station: &'s ModelStation<'y>,
        qp_type: QpType,
        max_inl_recv: u32,
    ) -> Self {
        let context = station.context();
        let pd = context.alloc_pd().unwrap();
        let cqs = [0, 1].map(|_| context.create_cq(64, None).unwrap());
        let all = AccessFlags::all();
        let mrs = [0, 1].map(|_| context.alloc_mr(&pd, Bytes::new(SIZE), all).unwrap());
        let make = |cq: &ModelCq| {
            let init = init(cq, qp_type);
            let made = context.create_qp_with_inline_recv(&pd, &init, max_inl_recv);
            made.unwrap()
        };
        let qps = [make(&cqs[0]), make(&cqs[1])];
        let two = Two {
            station,
            cqs,
            mrs,
            qps,
            way: Loop::of(context),
        };
        two.join(0, qp_type, RetryCount::MAX);
        two.join(1, qp_type, RetryCount::MAX);
        two
    }

    /// Brings queue pair `end` to RTS, connected to the other one.
    pub(crate) fn join(&self, end: usize, qp_type: QpType, rnr_retry: RetryCount) {
        let (qp, peer) = (&self.qps[end], &self.qps[1 - end]);
        self.way.join(qp, peer, qp_type, rnr_retry);
    }

    pub(crate) fn post(&self, operation: Operation, length: u32, flags: SendFlags) {
        let sges = [self.mrs[0].sge(0, length).unwrap()];
        let pieces = if length > 0 { &sges[..] } else { &[] };
        let request = SendRequest::new(WrId(7), operation, pieces).with_flags(flags);
        self.qps[0].post_send(&[request]).unwrap();
    }

    pub(crate) fn receive(&self, name: u64, length: u32) {
        let sges = [self.mrs[1].sge(0, length).unwrap()];
        self.qps[1]
            .post_recv(&[RecvRequest::new(WrId(name), &sges)])
            .unwrap();
    }

    pub(crate) fn wait(&self, end: usize) -> WorkCompletion {
        let mut wc = [WorkCompletion::default()];
        let n = self
            .station
            .spin(&self.cqs[end], &mut wc, Span::from_secs(2));
        assert_eq!(n.unwrap(), 1);
        wc[0]
    }

    pub(crate) fn nothing(&self, end: usize) {
        let mut wc = [WorkCompletion::default()];
        let waited = self.station.spin(&self.cqs[end], &mut wc, SOON);
        assert!(matches!(waited, Err(WaitError::TimedOut { .. })), "{wc:?}");
    }

    pub(crate) fn bytes(&self, end: usize, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.mrs[end].read(offset, &mut bytes).unwrap();
        bytes
    }
}

pub(crate) const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Runs `body` as a role of a ConnectX-3 machine.
pub(crate) fn alone(body: impl for<'y> FnOnce(&ModelStation<'y>) + 'static) {
    alone_on("cx3", body);
}

/// Runs `body` as a role of a machine of a preset.
pub(crate) fn alone_on(preset: &str, body: impl for<'y> FnOnce(&ModelStation<'y>) + 'static) {
    let preset = Preset::built_in(preset).unwrap();
    let mut cluster = Cluster::new(&preset, &[Placement::Cached]);
    let machine = cluster.machine(0);
    cluster.spawn(machine, "alone", move |station| body(station));
    let outcome = cluster.run(&Budget::NONE);
    assert_eq!(outcome, Outcome::Finished, "{outcome}");
}
