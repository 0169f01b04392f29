//! Posting requests: a chain of C becomes a list of ours, without heap memory.

use std::cell::Cell;
use std::ffi::c_int;

use adverb_abi::{
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq,
};
use adverb_verbs::{
    AddressHandle as _, Comparison, Destination, Imm, Operation, PostError, Qpn, QueuePair as _,
    RecvRequest, RemoteAddress, Rkey, SendFlags, SendRequest, Sge, SharedReceiveQueue as _, Srqn,
    WrId,
};

use smallvec::SmallVec;

use super::Qp;
use crate::activity::counts::PostCounts;
use crate::ah::Ah;
use crate::call::{self, Refusal};
use crate::explain;
use crate::mw;
use crate::pd::Pd;
use crate::srq::Srq;

/// Maximum number of requests that are posted in one call of the device.
const BATCH: usize = 16;

const _: () = assert!(
    size_of::<Sge<'_>>() == size_of::<ibv_sge>() && align_of::<Sge<'_>>() == align_of::<ibv_sge>()
);

/// Returns the SGEs of a request.
///
/// # Safety
/// `list` is an array of `count` SGEs, and lives as long as `'a`, as the inline data does that it names.
#[inline]
pub(crate) unsafe fn sges<'a>(
    list: *const ibv_sge,
    count: c_int,
) -> Result<&'a [Sge<'a>], Refusal> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        // SAFETY: the caller's; both structures have address, length and key in this order.
        Ok(count) => Ok(unsafe { std::slice::from_raw_parts(list.cast(), count) }),
        Err(_) => Err(Refusal::invalid(format!("invalid num_sge {count}"))),
    }
}

/// Returns the operation of a send request.
///
/// # Safety
/// If it binds a memory window, the window and the region exist.
#[inline]
unsafe fn operation(wr: &ibv_send_wr) -> Result<Operation, Refusal> {
    // SAFETY: the opcode determines which member the program has set; all bytes are valid numbers.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let at = RemoteAddress {
        addr: rdma.remote_addr,
        rkey: Rkey(rdma.rkey),
    };
    let atomic_at = RemoteAddress {
        addr: atomic.remote_addr,
        rkey: Rkey(atomic.rkey),
    };
    let imm = Imm(u32::from_be(wr.imm_data));
    Ok(match wr.opcode {
        IBV_WR_SEND => Operation::Send,
        IBV_WR_SEND_WITH_IMM => Operation::SendWithImm(imm),
        IBV_WR_RDMA_WRITE => Operation::RdmaWrite(at),
        IBV_WR_RDMA_WRITE_WITH_IMM => Operation::RdmaWriteWithImm(at, imm),
        IBV_WR_RDMA_READ => Operation::RdmaRead(at),
        IBV_WR_ATOMIC_FETCH_AND_ADD => Operation::FetchAdd(atomic_at, atomic.compare_add),
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            let (expected, new) = (atomic.compare_add, atomic.swap);
            Operation::CompareSwap(atomic_at, Comparison { expected, new })
        }
        IBV_WR_SEND_WITH_INV => Operation::SendWithInvalidate(Rkey(wr.imm_data)),
        IBV_WR_LOCAL_INV => Operation::LocalInvalidate(Rkey(wr.imm_data)),
        IBV_WR_BIND_MW => {
            // SAFETY: the caller's.
            unsafe { mw::bind_type_2(wr.bind_mw.mw, wr.bind_mw.rkey, &wr.bind_mw.bind_info) }?
        }
        other => {
            return Err(Refusal::unsupported(format!(
                "the device has no requests with opcode {other}"
            )));
        }
    })
}

impl Qp {
    /// Converts a send request.
    ///
    /// # Safety
    /// The request, its SGEs, its inline data, its memory window and its address handle live as long as `'a`.
    #[inline]
    unsafe fn send_request<'a>(&self, wr: &'a ibv_send_wr) -> Result<SendRequest<'a>, Refusal> {
        let flags = SendFlags::from_bits(wr.send_flags).ok_or_else(|| {
            Refusal::invalid(format!("unsupported send_flags {:#x}", wr.send_flags))
        })?;
        // SAFETY: the caller's.
        let (sges, operation) = unsafe { (sges(wr.sg_list, wr.num_sge)?, operation(wr)?) };
        let request = SendRequest::new(WrId(wr.wr_id), operation, sges)
            .with_flags(flags | self.flags)
            // Only XRC looks at it; all bytes are a valid number.
            .to_srq(Srqn(wr.qp_type));
        if !self.qp_type.is_addressed() {
            return Ok(request);
        }
        // SAFETY: requests on such queue pairs have this member.
        let ud = unsafe { wr.wr.ud };
        if ud.ah.is_null() {
            return Err(Refusal::invalid(
                "requests need an address handle on UD queue pairs",
            ));
        }
        let qpn = Qpn::new(ud.remote_qpn)
            .ok_or_else(|| Refusal::invalid(format!("invalid remote_qpn {:#x}", ud.remote_qpn)))?;
        // SAFETY: the caller's.
        let ah = unsafe { Ah::of(ud.ah) }.soft.handle();
        Ok(request.to(Destination {
            ah,
            qpn,
            qkey: ud.remote_qkey,
        }))
    }
}

/// A work request of C, which is in a chain.
trait Chained {
    fn next(&self) -> *mut Self;
}

impl Chained for ibv_send_wr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

impl Chained for ibv_recv_wr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

/// Converts the requests of a chain and posts them, up to the first that is refused, whose address it stores in
/// `bad`.
///
/// # Safety
/// `wr` is the beginning of a chain of requests that live as long as `'a`, and `bad` can be written.
#[inline]
unsafe fn post_chain<'a, W: Chained + 'a, R>(
    mut wr: *mut W,
    bad: *mut *mut W,
    convert: impl Fn(&'a W) -> Result<R, Refusal>,
    post: impl Fn(&[R]) -> Result<(), PostError>,
) -> Result<(), Refusal> {
    while !wr.is_null() {
        let first = wr;
        let mut batch = SmallVec::<[R; BATCH]>::new();
        let mut refused = None;
        // SAFETY: the caller's.
        while let Some(request) = unsafe { wr.as_ref() }.filter(|_| batch.len() < BATCH) {
            match convert(request) {
                Ok(converted) => batch.push(converted),
                Err(refusal) => {
                    refused = Some((wr, refusal));
                    break;
                }
            }
            wr = request.next();
        }
        if let Err(PostError { index, cause }) = post(&batch) {
            // SAFETY: the caller's; `index` counts requests of the chain.
            let at = (0..index).fold(first, |wr, _| unsafe { (*wr).next() });
            refused = Some((at, cause.into()));
        }
        if let Some((at, refusal)) = refused {
            // SAFETY: the caller's.
            unsafe { *bad = at };
            return Err(refusal);
        }
    }
    Ok(())
}

/// Converts a receive request.
///
/// # Safety
/// The request and its SGEs live as long as `'a`.
#[inline]
unsafe fn recv_request<'a>(wr: &'a ibv_recv_wr) -> Result<RecvRequest<'a>, Refusal> {
    // SAFETY: the caller's.
    let sges = unsafe { sges(wr.sg_list, wr.num_sge) }?;
    Ok(RecvRequest::new(WrId(wr.wr_id), sges))
}

/// Counts the receives that a call posts, if the program is observed. Dropping it counts the call.
struct Counted<'a> {
    counts: Option<&'a PostCounts>,
    accepted: Cell<usize>,
}

impl<'a> Counted<'a> {
    #[inline]
    fn new(counts: Option<&'a PostCounts>) -> Self {
        let accepted = Cell::new(0);
        Counted { counts, accepted }
    }

    /// Notes receives that were posted.
    #[inline]
    fn note(
        &self,
        batch: &[RecvRequest<'_>],
        posted: Result<(), PostError>,
    ) -> Result<(), PostError> {
        let accepted = posted
            .as_ref()
            .err()
            .map_or(batch.len(), |error| error.index);
        self.accepted.set(self.accepted.get() + accepted);
        posted
    }
}

impl Drop for Counted<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(counts) = self.counts {
            counts.add(self.accepted.get());
        }
    }
}

/// Returns the protection domain of a queue pair. XRC receive queue pairs have none, and take no requests.
///
/// # Safety
/// The queue pair exists within `'a`.
#[inline]
unsafe fn pd_of<'a>(qp: *const ibv_qp) -> Result<&'a Pd, Refusal> {
    // SAFETY: the caller's; a domain outlives its queue pairs.
    unsafe {
        match (*qp).pd {
            pd if pd.is_null() => Err(Refusal::invalid(
                "requests cannot be posted to XRC receive queue pairs",
            )),
            pd => Ok(Pd::of(pd)),
        }
    }
}

/// `post_send` of the tables.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    call::quick_status("ibv_post_send", || {
        // SAFETY: the program passes a queue pair and a chain of requests, which it does not change during the call.
        unsafe {
            let (pd, qp) = (pd_of(qp)?, Qp::of(qp));
            let counted = qp.counts.as_ref().map(|counts| counts.posting());
            post_chain(
                wr,
                bad,
                |wr| qp.send_request(wr),
                |batch| {
                    explain::sends("ibv_post_send", &pd.soft, &qp.soft, batch);
                    let post = || qp.soft.post_send(batch);
                    match &counted {
                        None => post(),
                        Some(counted) => counted.post(batch, post, |error| error.index),
                    }
                },
            )
        }
    })
}

/// `post_recv` of the tables.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    call::quick_status("ibv_post_recv", || {
        // SAFETY: as for `post_send`.
        unsafe {
            let (pd, qp) = (pd_of(qp)?, Qp::of(qp));
            let counted = Counted::new(qp.counts.as_ref().map(|counts| &counts.receives));
            post_chain(
                wr,
                bad,
                |wr| recv_request(wr),
                |batch| {
                    let max_sge = || qp.soft.caps().max_recv_sge;
                    explain::receives("ibv_post_recv", &pd.soft, max_sge, batch);
                    counted.note(batch, qp.soft.post_recv(batch))
                },
            )
        }
    })
}

/// `post_srq_recv` of the tables.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    call::quick_status("ibv_post_srq_recv", || {
        // SAFETY: as for `post_send`.
        unsafe {
            let (pd, srq) = (Pd::of((*srq).pd), Srq::of(srq));
            let counted = Counted::new(srq.counts.as_deref());
            post_chain(
                wr,
                bad,
                |wr| recv_request(wr),
                |batch| {
                    let max_sge = || srq.soft.query().map_or(0, |attr| attr.caps.max_sge);
                    explain::receives("ibv_post_srq_recv", &pd.soft, max_sge, batch);
                    counted.note(batch, srq.soft.post_recv(batch))
                },
            )
        }
    })
}
