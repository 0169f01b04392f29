//! Cost of polling a completion queue that many queue pairs share.

use std::hint::black_box;
use std::time::Instant;

use adverb_softnic::{SoftContext, SoftDevice, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, AddressVector, CompletionQueue, Context, Device, MemoryRegion, PathMtu, PortNum,
    Psn, QpAttr, QpCaps, QpInit, QpType, QueuePair, RecvRequest, WorkCompletion, WrId,
};
use anyhow::{Result, ensure};

use crate::child::on_core;

const POLLS: u64 = 5_000_000;

/// ns of a poll that finds nothing, with `qps` connected queue pairs that wait for messages, and with one.
pub(crate) fn pair(core: u32, qps: u32) -> Result<(f64, f64)> {
    on_core(core, || Ok((empty_poll(qps)?, empty_poll(1)?)))
}

fn empty_poll(qps: u32) -> Result<f64> {
    let (device, peer) = (SoftDevice::new(), SoftDevice::new());
    let (context, peer) = (device.open()?, peer.open()?);
    let (pd, peer_pd) = (context.alloc_pd()?, peer.alloc_pd()?);
    let (cq, peer_cq) = (context.create_cq(qps, None)?, peer.create_cq(qps, None)?);
    let mr = context.alloc_mr(&pd, Bytes::kib(4), AccessFlags::LOCAL_WRITE)?;
    let mut connected = Vec::new();
    for _ in 0..qps {
        let qp = context.create_qp(&pd, &one_recv(&cq))?;
        let other = peer.create_qp(&peer_pd, &one_recv(&peer_cq))?;
        connect(&qp, &peer, &other)?;
        connect(&other, &context, &qp)?;
        qp.post_recv(&[RecvRequest::new(WrId(0), &[mr.sge(0, 64)?])])?;
        connected.push((qp, other));
    }
    let mut completions = [WorkCompletion::default(); 16];
    let mut found = 0;
    let mut start = Instant::now();
    for poll in 0..POLLS + POLLS / 10 {
        if poll == POLLS / 10 {
            start = Instant::now();
        }
        found += black_box(cq.poll(&mut completions)?);
    }
    let per_poll = start.elapsed().as_nanos() as f64 / POLLS as f64;
    ensure!(
        found == 0,
        "{found} completions of messages that nobody sent"
    );
    Ok(per_poll)
}

fn one_recv<Cq>(cq: &Cq) -> QpInit<'_, Cq> {
    QpInit::new(QpType::Rc, cq, QpCaps::new(1, 1))
}

fn connect(from: &SoftQp, context: &SoftContext, to: &SoftQp) -> Result<()> {
    let port = context.port(PortNum::ONE)?;
    let address = AddressVector::new(port.gid, port.lid, PortNum::ONE);
    from.modify(&QpAttr::to_init(PortNum::ONE, AccessFlags::LOCAL_WRITE))?;
    from.modify(&QpAttr::to_rtr(
        address,
        to.qpn(),
        Psn::new(0),
        PathMtu::B4096,
    ))?;
    Ok(from.modify(&QpAttr::to_rts(Psn::new(0)))?)
}
