//! The dynamically connected transport on the model.

use adverb_hwmodel::{ModelAh, ModelContext, ModelCq, ModelMr, ModelQp, ModelStation};
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, AddressHandle, AddressVector, Context, CreateError, Destination, MemoryRegion,
    Operation, PostErrorCause, Psn, QpAttr, QpState, QpType, QueuePair, RetryCount, RnrTimer,
    SendFlags, SendRequest, Station, WcStatus, WorkCompletion, WrId,
};

use crate::common::two::{alone_on, init};

const KEY: u32 = 0x77;

/// An initiator and two targets on one machine.
struct Party<'s, 'y> {
    station: &'s ModelStation<'y>,
    cq: ModelCq,
    mr: ModelMr,
    initiator: ModelQp,
    targets: [ModelQp; 2],
    ah: ModelAh,
}

fn walk(context: &ModelContext, qp: &ModelQp, is_target: bool) {
    let port = context.port(context.port_num()).unwrap();
    let mut first = QpAttr::to_init(context.port_num(), AccessFlags::all());
    let mut path = QpAttr::to(QpState::Rtr);
    path.path_mtu = Some(port.active_mtu);
    let mut live = QpAttr::to_rts(Psn::new(3));
    live.retry_cnt = RetryCount::new(1);
    live.max_rd_atomic = Some(4);
    if is_target {
        first.qkey = Some(KEY);
        path.min_rnr_timer = RnrTimer::new(1);
    } else {
        first.access = None;
    }
    qp.modify(&first).unwrap();
    qp.modify(&path).unwrap();
    if !is_target {
        qp.modify(&live).unwrap();
    }
}

impl<'s, 'y> Party<'s, 'y> {
    fn new(station: &'s ModelStation<'y>) -> Self {
        let context = station.context();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(64, None).unwrap();
        let make = |qp_type| {
            let qp = context.create_qp(&pd, &init(&cq, qp_type)).unwrap();
            walk(context, &qp, qp_type == QpType::Dct);
            qp
        };
        let (initiator, targets) = (make(QpType::Dci), [make(QpType::Dct), make(QpType::Dct)]);
        let port = context.port(context.port_num()).unwrap();
        let own = AddressVector::new(port.gid, port.lid, context.port_num());
        Party {
            station,
            mr: context
                .alloc_mr(&pd, Bytes::new(4096), AccessFlags::all())
                .unwrap(),
            ah: context.create_ah(&pd, &own).unwrap(),
            cq,
            initiator,
            targets,
        }
    }

    fn post(&self, target: usize, operation: Operation, key: u32) {
        let sges = [self.mr.sge(0, 8).unwrap()];
        let to = Destination {
            ah: self.ah.handle(),
            qpn: self.targets[target].qpn(),
            qkey: key,
        };
        let request = SendRequest::new(WrId(target as u64), operation, &sges)
            .with_flags(SendFlags::SIGNALED)
            .to(to);
        self.initiator.post_send(&[request]).unwrap();
    }

    fn wait(&self) -> WorkCompletion {
        let mut wc = [WorkCompletion::default()];
        let n = self.station.spin(&self.cq, &mut wc, Span::from_secs(2));
        assert_eq!(n.unwrap(), 1);
        wc[0]
    }

    /// Returns how long a READ of a target takes.
    fn read(&self, target: usize) -> Span {
        let start = self.station.now();
        self.post(target, Operation::RdmaRead(self.mr.remote(8)), KEY);
        assert_eq!(self.wait().status, WcStatus::Success);
        self.station.now() - start
    }

    fn sent(&self) -> u64 {
        self.station.context().counters()["sent_messages"]
    }
}

#[test]
fn each_request_reaches_its_target() {
    alone_on("connect_ib", |station| {
        let party = Party::new(station);
        party.mr.write(0, b"unlinked").unwrap();
        party.post(0, Operation::RdmaWrite(party.mr.remote(64)), KEY);
        assert_eq!(party.wait().status, WcStatus::Success);
        let mut there = [0; 8];
        party.mr.read(64, &mut there).unwrap();
        assert_eq!(&there, b"unlinked");
        party.mr.write(64, &5_u64.to_ne_bytes()).unwrap();
        party.post(1, Operation::FetchAdd(party.mr.remote(64), 2), KEY);
        assert_eq!(party.wait().status, WcStatus::Success);
        party.mr.read(64, &mut there).unwrap();
        assert_eq!(u64::from_ne_bytes(there), 7);
    });
}

#[test]
fn a_change_of_targets_costs_three_packets_and_a_round_trip() {
    alone_on("connect_ib", |station| {
        let party = Party::new(station);
        party.read(0);
        let before = party.sent();
        let stays = party.read(0);
        let packets = party.sent() - before;
        let changes = party.read(1);
        assert_eq!(party.sent() - before - packets, packets + 3);
        let more = changes.saturating_sub(stays).as_ns_f64();
        assert!((200.0..1_500.0).contains(&more), "{stays} and {changes}");
        // Returning to an earlier target costs as much as connecting to any other.
        assert_eq!(party.read(0), changes);
        assert_eq!(party.read(0), stays);
    });
}

#[test]
fn a_change_of_targets_waits_for_outstanding_answers() {
    alone_on("connect_ib", |station| {
        let party = Party::new(station);
        let (stays, changes) = {
            party.read(0);
            (party.read(0), party.read(1))
        };
        let start = station.now();
        for target in [0, 1, 0, 1] {
            party.post(target, Operation::RdmaRead(party.mr.remote(8)), KEY);
        }
        for target in [0, 1, 0, 1] {
            assert_eq!(party.wait().wr_id, WrId(target));
        }
        let took = station.now() - start;
        assert!(took > changes * 2, "{took} of {changes} each");
        let start = station.now();
        for _ in 0..4 {
            party.post(1, Operation::RdmaRead(party.mr.remote(8)), KEY);
        }
        (0..4).for_each(|_| assert_eq!(party.wait().wr_id, WrId(1)));
        let took = station.now() - start;
        assert!(took < stays * 2, "{took} of {stays} each");
    });
}

#[test]
fn a_wrong_access_key_is_not_answered() {
    alone_on("connect_ib", |station| {
        let party = Party::new(station);
        party.post(0, Operation::RdmaRead(party.mr.remote(8)), KEY + 1);
        assert_eq!(party.wait().status, WcStatus::RetryExcErr);
        assert_eq!(party.initiator.state(), QpState::Err);
    });
}

#[test]
fn requests_that_need_receives_are_refused() {
    alone_on("connect_ib", |station| {
        let party = Party::new(station);
        let to = Destination {
            ah: party.ah.handle(),
            qpn: party.targets[0].qpn(),
            qkey: KEY,
        };
        let request = SendRequest::new(WrId(0), Operation::Send, &[]).to(to);
        let refused = party.initiator.post_send(&[request]).unwrap_err();
        assert_eq!(
            refused.cause.to_string(),
            "device model has no DC requests that consume receives, which need a shared receive queue"
        );
        let unaddressed = SendRequest::new(WrId(0), Operation::Send, &[]);
        let refused = party.initiator.post_send(&[unaddressed]).unwrap_err();
        assert_eq!(refused.cause, PostErrorCause::Destination);
    });
}

#[test]
fn nics_before_connect_ib_have_no_dc() {
    alone_on("cx3", |station| {
        let context = station.context();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(64, None).unwrap();
        let refused = context.create_qp(&pd, &init(&cq, QpType::Dci)).unwrap_err();
        assert!(matches!(refused, CreateError::Unsupported(_)), "{refused}");
    });
}
