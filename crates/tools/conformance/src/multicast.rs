//! Multicast groups of UD queue pairs: which members receive a copy.
//!
//! Groups of IP are joined without permission. On InfiniBand the subnet manager creates them, so real devices there
//! lack these cases; the model has no subnet manager.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, Ordering};

use adverb_verbs::{
    AddressVector, Context, Gid, Lid, LinkLayer, McastError, MemoryRegion, Operation, QpState,
    QpType, Qpn, QueuePair, RecvRequest, Station, WcFlags, WcStatus, WrId,
};

use crate::end::{Ah, supported};
use crate::node::{GRH, Node, OTHER_QKEY, QKEY, datagram_qp, named_ports, to, to_rts};
use crate::pair::{Pair, SIGNALED, Setup, address_of, pattern, port_of};
use crate::{Fixture, NotSupported, Verdict};

/// The LID of groups that have none.
const NO_LID: Lid = Lid(0);

/// A group that nobody else uses, of the port's IP version.
fn new_group<S: Station>(node: &Node<'_, S>) -> Gid {
    static MADE: AtomicU8 = AtomicU8::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let [.., upper, lower] = std::process::id().to_be_bytes();
    match Ipv6Addr::from(port_of(&node.end.context).gid.0).to_canonical() {
        IpAddr::V4(_) => Gid::from_ipv4(Ipv4Addr::new(239, 64 | (upper % 64), lower, number)),
        IpAddr::V6(_) => {
            let last = u16::from_be_bytes([lower, number]);
            Gid(Ipv6Addr::new(0xff15, 0, 0, 0, 0xad, 0xbe, upper.into(), last).octets())
        }
    }
}

/// Attaches a node's queue pair.
fn attach<S: Station>(node: &Node<'_, S>, group: Gid) -> Verdict {
    let layer = port_of(&node.end.context).link_layer;
    match node.end.qp.attach_mcast(group, NO_LID) {
        Ok(()) => Ok(()),
        Err(McastError::System { .. }) if layer == LinkLayer::InfiniBand => {
            Err(NotSupported("groups that no subnet manager has made"))
        }
        Err(McastError::Unsupported(_)) => Err(NotSupported("multicast groups")),
        Err(e) => panic!("attach to {group}: {e}"),
    }
}

/// The way to a group.
fn way<S: Station>(node: &Node<'_, S>, group: Gid) -> Result<Ah<S>, NotSupported> {
    let address = AddressVector {
        dgid: group,
        ..address_of(&node.end.context)
    };
    let ah = node.end.context.create_ah(&node.end.pd, &address);
    supported(ah, "address handles to groups")
}

/// Sends 64 bytes that depend on `seed` to a group.
fn send<S: Station>(node: &Node<'_, S>, group: Gid, (seed, qkey): (u64, u32)) -> Verdict {
    let ah = way::<S>(node, group)?;
    let content = pattern(seed, 64);
    node.end.mr.write(0, &content).expect("within the region");
    let request = (1, Operation::Send, (0, 64), SIGNALED);
    node.try_send(request, to(&ah, Qpn::MULTICAST, qkey))
        .expect("post a datagram");
    node.end.expect_sent(&[(1, WcStatus::Success)]);
    Ok(())
}

/// Every queue pair of a group gets a copy, wherever it is, and no other (IBTA vol. 1, 10.5.2): behind
/// a header that names the sender's port and the group.
pub fn every_member_of_a_group_gets_a_copy<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let nodes = [(); 4].map(|()| Node::new(fixture));
    let [a, b, c, d] = nodes;
    let (a, b, c, d) = (a?, b?, c?, d?);
    let group = new_group(&b);
    // One more of the same context.
    let fellow = datagram_qp(&b.end, &Setup::default())?;
    to_rts(&b.end.context, &fellow, QKEY);
    for node in [&b, &c] {
        attach(node, group)?;
    }
    fellow.attach_mcast(group, NO_LID).expect("attach another");
    for seed in 0..10 {
        for node in [&b, &c, &d] {
            node.end.recv(7, (512, 256));
        }
        let own = b.end.mr.sge(1024, 256).expect("within the region");
        fellow
            .post_recv(&[RecvRequest::new(WrId(8), &[own])])
            .expect("post a receive");
        send::<S>(&a, group, (seed, QKEY))?;
        let mut got = b.end.received(2);
        got.sort_by_key(|completion| completion.wr_id);
        got.extend(c.end.received(1));
        let places = [(&b, 512), (&b, 1024), (&c, 512)];
        for (completion, (node, at)) in got.iter().zip(places) {
            assert_eq!(completion.status, WcStatus::Success);
            assert_eq!(completion.src_qp, Some(a.end.qp.qpn()));
            assert_eq!(node.end.bytes(at + GRH, 64), pattern(seed, 64));
            assert!(completion.flags.contains(WcFlags::GRH), "{completion:?}");
            let names = named_ports(&node.end.bytes(at, GRH as usize));
            assert_eq!(names, (port_of(&a.end.context).gid, group));
        }
    }
    d.end.expect_quiet();
    Ok(())
}

/// A detached queue pair receives nothing more, even if it was attached twice, and cannot be detached again
/// (ibv_detach_mcast(3)).
pub fn members_that_left_a_group_receive_nothing<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (a, b, c) = (
        Node::new(fixture)?,
        Node::new(fixture)?,
        Node::new(fixture)?,
    );
    let group = new_group(&b);
    for node in [&b, &b, &c] {
        attach(node, group)?;
    }
    (0..2).for_each(|i| b.end.recv(i, (0, 256)));
    (0..2).for_each(|i| c.end.recv(i, (0, 256)));
    send::<S>(&a, group, (1, QKEY))?;
    b.end.expect_received(&[(0, WcStatus::Success)]);
    c.end.expect_received(&[(0, WcStatus::Success)]);
    b.end.qp.detach_mcast(group, NO_LID).expect("leave");
    send::<S>(&a, group, (2, QKEY))?;
    c.end.expect_received(&[(1, WcStatus::Success)]);
    b.end.expect_quiet();
    let again = b.end.qp.detach_mcast(group, NO_LID);
    again.expect_err("to leave a group that it is not in");
    b.end.expect_state(QpState::Rts);
    Ok(())
}

/// A copy under another queue key than the member's is dropped (IBTA vol. 1, 10.2.5).
pub fn a_copy_under_another_queue_key_is_dropped<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let group = new_group(&b);
    attach(&b, group)?;
    b.end.recv(7, (0, 256));
    send::<S>(&a, group, (1, OTHER_QKEY))?;
    b.end.expect_quiet();
    send::<S>(&a, group, (2, QKEY))?;
    b.end.expect_received(&[(7, WcStatus::Success)]);
    assert_eq!(b.end.bytes(GRH, 64), pattern(2, 64));
    Ok(())
}

/// Only UD queue pairs can be in a group, and only a group's GID names one (IBTA vol. 1, 11.3.1).
pub fn invalid_groups_and_queue_pairs_are_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let a = Node::new(fixture)?;
    let group = new_group(&a);
    attach(&a, group)?;
    let own = port_of(&a.end.context).gid;
    let refused = a.end.qp.attach_mcast(own, NO_LID);
    let is_named = |e: &McastError| matches!(e, McastError::NotAGroup { gid } if *gid == own);
    assert!(refused.as_ref().is_err_and(is_named), "{refused:?}");
    let pair = Pair::new(fixture);
    let refused = pair.a.qp.attach_mcast(group, NO_LID);
    let qp_type = QpType::Rc;
    let is_named =
        |e: &McastError| matches!(e, McastError::Service { qp_type: t } if *t == qp_type);
    assert!(refused.as_ref().is_err_and(is_named), "{refused:?}");
    Ok(())
}
