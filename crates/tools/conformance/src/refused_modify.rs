//! A Modify QP that is refused changes nothing: the queue pair keeps its state, and peers find the
//! access rights that it had before (the seam's rule for [`QueuePair::modify`]; ibv_modify_qp(3)).

use adverb_verbs::{
    AccessFlags, Context, Gid, MemoryRegion, Operation, PortNum, QpAttr, QpState, Qpn, QueuePair,
    ServiceLevel, Station, TrafficClass, WcStatus,
};

use crate::pair::{Pair, SIGNALED, Setup, address_of, port_of, to_init, to_rtr, to_rts};
use crate::{Fixture, NotSupported, Verdict};

/// An address that a port cannot reach: it is of the other IP version.
fn unreachable_gid(own: Gid) -> Gid {
    let mapped_ipv4: Gid = Gid::from_ipv4([192, 0, 2, 1].into());
    match own.0[..12] == mapped_ipv4.0[..12] {
        true => Gid([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        false => mapped_ipv4,
    }
}

/// B refuses `attr`, which would also take all access rights from A, and stays in `state`.
#[track_caller]
fn refused<S: Station>(pair: &Pair<'_, S>, what: &str, (mut attr, state): (QpAttr, QpState)) {
    attr.access = Some(AccessFlags::empty());
    let refused = pair.b.qp.modify(&attr);
    assert!(refused.is_err(), "{what} was accepted in {state}");
    assert_eq!(pair.b.qp.state(), state, "after {what} was refused");
}

/// A may still do to B's memory what B has allowed.
#[track_caller]
fn expect_access<S: Station>(pair: &Pair<'_, S>) {
    let (a, to) = (&pair.a, pair.b.mr.remote(0));
    a.post(1, Operation::RdmaWrite(to), (0, 8), SIGNALED);
    a.post(2, Operation::RdmaRead(to), (8, 8), SIGNALED);
    a.expect_sent(&[1, 2].map(|i| (i, WcStatus::Success)));
}

/// B's way to RTR.
fn rtr<S: Station>(pair: &Pair<'_, S>) -> QpAttr {
    let (a, b) = (&pair.a, &pair.b);
    let mtu = port_of(&b.context).active_mtu;
    QpAttr::to_rtr(address_of(&a.context), a.qp.qpn(), pair.setup.psn.0, mtu)
}

/// Connects A to B, and B to A up to RTR.
fn connect_b_to_rtr<S: Station>(pair: &Pair<'_, S>) {
    let (a, b, setup) = (&pair.a, &pair.b, &pair.setup);
    pair.connect_a();
    let to_a = (address_of(&a.context), &a.qp, setup.psn.0);
    to_rtr(&b.qp, to_a, setup, &b.context);
}

/// INIT to RTR with an unreachable address, another port, or a missing or superfluous attribute.
pub fn a_refused_rtr_changes_nothing<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::unconnected(fixture, Setup::default());
    let b = &pair.b;
    to_init(&b.context, &b.qp, &pair.setup);
    let good = rtr(&pair);
    let (mut port, mut missing, mut superfluous) = (good, good, good);
    port.address.iter_mut().for_each(|a| a.port = PortNum(200));
    missing.rq_psn = None;
    superfluous.qkey = Some(1);
    let init = QpState::Init;
    refused(&pair, "another port", (port, init));
    refused(&pair, "RTR without rq_psn", (missing, init));
    refused(&pair, "RTR with a queue key", (superfluous, init));
    connect_b_to_rtr(&pair);
    expect_access(&pair);
    Ok(())
}

/// INIT to RTR with an address that the port cannot reach.
pub fn a_refused_address_changes_nothing<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::unconnected(fixture, Setup::default());
    let b = &pair.b;
    to_init(&b.context, &b.qp, &pair.setup);
    let mut attr = rtr(&pair);
    let gid = unreachable_gid(port_of(&b.context).gid);
    attr.address.iter_mut().for_each(|a| a.dgid = gid);
    attr.dest_qpn = Qpn::new(77);
    attr.access = Some(AccessFlags::empty());
    if b.qp.modify(&attr).is_ok() {
        return Err(NotSupported("refusing a GID that it cannot reach"));
    }
    assert_eq!(b.qp.state(), QpState::Init);
    connect_b_to_rtr(&pair);
    expect_access(&pair);
    Ok(())
}

/// INIT to RTR with a traffic class or a service level: accepted, or refused where the port's packets do not
/// carry it. The same holds for address handles.
pub fn a_refused_marking_changes_nothing<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::unconnected(fixture, Setup::default());
    let b = &pair.b;
    to_init(&b.context, &b.qp, &pair.setup);
    let port = port_of(&b.context);
    let mut marked = [address_of(&pair.a.context); 2];
    marked[0].traffic_class = TrafficClass(8);
    marked[1].service_level = ServiceLevel::new(3).expect("4 bits");
    for address in marked {
        let checked = address.check_marking(port.link_layer, port.marking);
        let mut attr = rtr(&pair);
        (attr.address, attr.access) = (Some(address), Some(AccessFlags::empty()));
        let modified = b.qp.modify(&attr);
        let handle = b.context.create_ah(&b.pd, &address).map(drop);
        if let Err(refusal) = checked {
            let refusal = refusal.to_string();
            assert_eq!(modified.clone().unwrap_err().to_string(), refusal);
            assert_eq!(handle.unwrap_err().to_string(), refusal);
        }
        if modified.is_ok() {
            b.qp.modify(&QpAttr::to(QpState::Reset)).expect("to RESET");
            to_init(&b.context, &b.qp, &pair.setup);
        }
        assert_eq!(b.qp.state(), QpState::Init);
    }
    connect_b_to_rtr(&pair);
    expect_access(&pair);
    Ok(())
}

/// RTR to RTS with a missing, a superfluous or an excessive attribute, or from another state.
pub fn a_refused_rts_changes_nothing<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::unconnected(fixture, Setup::default());
    let (a, b) = (&pair.a, &pair.b);
    to_init(&b.context, &b.qp, &pair.setup);
    connect_b_to_rtr(&pair);
    let good = QpAttr::to_rts(pair.setup.psn.1);
    let (mut missing, mut superfluous, mut excessive, mut elsewhere) = (good, good, good, good);
    missing.timeout = None;
    superfluous.rq_psn = Some(pair.setup.psn.1);
    excessive.max_rd_atomic = Some(u8::MAX);
    elsewhere.cur_state = Some(QpState::Sqd);
    let rtr = QpState::Rtr;
    refused(&pair, "RTS without a timeout", (missing, rtr));
    refused(&pair, "RTS with rq_psn", (superfluous, rtr));
    refused(&pair, "RTS with max_rd_atomic 255", (excessive, rtr));
    refused(&pair, "RTS from SQD", (elsewhere, rtr));
    expect_access(&pair);
    // The first packet number is still to be set: A expects the one that was not refused.
    to_rts(&b.qp, pair.setup.psn.1, &pair.setup);
    a.recv(3, (0, 8));
    b.post(4, Operation::Send, (0, 8), SIGNALED);
    b.expect_sent(&[(4, WcStatus::Success)]);
    a.expect_received(&[(3, WcStatus::Success)]);
    Ok(())
}

/// RTS to RTS and to SQD with a superfluous attribute.
pub fn a_refused_change_in_rts_changes_nothing<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    let mut superfluous = QpAttr::default();
    superfluous.dest_qpn = Qpn::new(77);
    let mut elsewhere = QpAttr::to(QpState::Rts);
    elsewhere.cur_state = Some(QpState::Sqd);
    let rts = QpState::Rts;
    refused(&pair, "another peer", (superfluous, rts));
    refused(&pair, "RTS from SQD", (elsewhere, rts));
    refused(
        &pair,
        "SQD with access rights",
        (QpAttr::to(QpState::Sqd), rts),
    );
    expect_access(&pair);
    // It is not drained, either.
    a.recv(3, (0, 8));
    b.post(4, Operation::Send, (0, 8), SIGNALED);
    b.expect_sent(&[(4, WcStatus::Success)]);
    a.expect_received(&[(3, WcStatus::Success)]);
    Ok(())
}
