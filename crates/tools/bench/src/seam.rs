//! Cost of the verbs traits: the same verbs through a generic function and on the device's own types.

use std::hint::black_box;
use std::time::Instant;

use adverb_softnic::{SoftContext, SoftCq, SoftDevice, SoftMr, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, AddressVector, CompletionQueue, Context, Device, MemoryRegion, Operation, PathMtu,
    PortNum, Psn, QpAttr, QpCaps, QpInit, QpType, QueuePair, RemoteAddress, SendFlags, SendRequest,
    WorkCompletion, WrId,
};
use anyhow::Result;

use crate::child::on_core;

const CALLS: u64 = 2_000_000;
const SIZE: u32 = 16;

/// One end of a connection to itself: a context, and what a WRITE needs.
struct End<C: Context> {
    context: C,
    mr: C::Mr,
    cq: C::Cq,
    qp: C::Qp,
}

/// ns per verb (post or poll): through the seam, directly.
pub(crate) fn pair(core: u32) -> Result<(f64, f64)> {
    on_core(core, || {
        let (active, passive) = (open(&SoftDevice::new())?, open(&SoftDevice::new())?);
        connect(&active, &passive)?;
        connect(&passive, &active)?;
        let to = passive.mr.remote(0);
        black_box(through_seam(&active, to, CALLS / 10)?);
        let seam = through_seam(&active, to, CALLS)?;
        Ok((seam, directly(&active, to, CALLS)?))
    })
}

/// As a study does it: over any context.
#[inline(never)]
fn through_seam<C: Context>(end: &End<C>, to: RemoteAddress, calls: u64) -> Result<f64> {
    let mut completions = [WorkCompletion::default(); 1];
    let start = Instant::now();
    for _ in 0..calls {
        let sges = [end.mr.sge(0, SIZE)?];
        let request = SendRequest::new(WrId(0), Operation::RdmaWrite(to), &sges);
        end.qp
            .post_send(&[request.with_flags(SendFlags::SIGNALED | SendFlags::INLINE)])?;
        while end.cq.poll(&mut completions)? == 0 {}
    }
    Ok(start.elapsed().as_nanos() as f64 / (2 * calls) as f64)
}

/// On the device's own types.
#[inline(never)]
fn directly(end: &End<SoftContext>, to: RemoteAddress, calls: u64) -> Result<f64> {
    let mut completions = [WorkCompletion::default(); 1];
    let (mr, qp, cq): (&SoftMr, &SoftQp, &SoftCq) = (&end.mr, &end.qp, &end.cq);
    let start = Instant::now();
    for _ in 0..calls {
        let sges = [mr.sge(0, SIZE)?];
        let request = SendRequest::new(WrId(0), Operation::RdmaWrite(to), &sges);
        SoftQp::post_send(
            qp,
            &[request.with_flags(SendFlags::SIGNALED | SendFlags::INLINE)],
        )?;
        while SoftCq::poll(cq, &mut completions)? == 0 {}
    }
    Ok(start.elapsed().as_nanos() as f64 / (2 * calls) as f64)
}

fn open<D: Device>(device: &D) -> Result<End<D::Context>> {
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let mr = context.alloc_mr(&pd, Bytes::kib(4), access)?;
    let cq = context.create_cq(16, None)?;
    let caps = QpCaps {
        max_inline_data: SIZE,
        ..QpCaps::default()
    };
    let init = QpInit::new(QpType::Rc, &cq, caps);
    let qp = context.create_qp(&pd, &init)?;
    qp.modify(&QpAttr::to_init(PortNum::ONE, access))?;
    Ok(End {
        context,
        mr,
        cq,
        qp,
    })
}

fn connect<C: Context>(from: &End<C>, to: &End<C>) -> Result<()> {
    let port = to.context.port(PortNum::ONE)?;
    let address = AddressVector::new(port.gid, port.lid, PortNum::ONE);
    from.qp.modify(&QpAttr::to_rtr(
        address,
        to.qp.qpn(),
        Psn::new(0),
        PathMtu::B4096,
    ))?;
    Ok(from.qp.modify(&QpAttr::to_rts(Psn::new(0)))?)
}
