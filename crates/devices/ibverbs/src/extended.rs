//! Posting through the extended interface (`ibv_wr_start` to `ibv_wr_complete`), in which calls into the
//! driver write the requests.
//!
//! The driver posts a list completely or not at all. The trait promises that the requests before an
//! invalid one are posted, so a refused list is posted again request by request.

use std::ffi::c_void;
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::{self, NonNull};

use adverb_abi as abi;
use adverb_verbs::{CreateError, Operation, PostError, SendFlags, SendRequest, Sge};

use crate::chain::{at, errno_of};
use crate::handle::PdInner;
use crate::raw_qp::{RawQp, refused};

/// Most SGEs of an inline request that are listed on the stack.
const ON_STACK: usize = 16;

type Do = unsafe extern "C" fn(*mut abi::ibv_qp_ex);
type Rdma = unsafe extern "C" fn(*mut abi::ibv_qp_ex, u32, u64);

/// The function table of an extended queue pair, copied from `ibv_qp_ex` when it was created: the
/// driver sets it once, and its code stays loaded as long as the library ([`crate::library`]).
#[derive(Debug)]
pub(crate) struct ExtendedPost {
    qp: NonNull<abi::ibv_qp_ex>,
    start: Do,
    complete: unsafe extern "C" fn(*mut abi::ibv_qp_ex) -> i32,
    send: Do,
    send_imm: unsafe extern "C" fn(*mut abi::ibv_qp_ex, u32),
    connected: Option<Connected>,
    set_ud_addr: Option<unsafe extern "C" fn(*mut abi::ibv_qp_ex, *mut abi::ibv_ah, u32, u32)>,
    set_sge: unsafe extern "C" fn(*mut abi::ibv_qp_ex, u32, u64, u32),
    set_sge_list: unsafe extern "C" fn(*mut abi::ibv_qp_ex, usize, *const abi::ibv_sge),
    set_inline: unsafe extern "C" fn(*mut abi::ibv_qp_ex, *mut c_void, usize),
    set_inline_list: unsafe extern "C" fn(*mut abi::ibv_qp_ex, usize, *const abi::ibv_data_buf),
}

/// Operations of connected queue pairs. UC has no READ and no atomics.
#[derive(Debug)]
struct Connected {
    write: Rdma,
    write_imm: unsafe extern "C" fn(*mut abi::ibv_qp_ex, u32, u64, u32),
    read: Option<Rdma>,
    fetch_add: Option<unsafe extern "C" fn(*mut abi::ibv_qp_ex, u32, u64, u64)>,
    compare_swap: Option<unsafe extern "C" fn(*mut abi::ibv_qp_ex, u32, u64, u64, u64)>,
}

impl ExtendedPost {
    fn of(qp: NonNull<abi::ibv_qp_ex>) -> Option<Self> {
        // SAFETY: the queue pair was just created.
        let ops = unsafe { qp.as_ref() };
        let connected = ops.wr_rdma_write.zip(ops.wr_rdma_write_imm);
        Some(ExtendedPost {
            qp,
            start: ops.wr_start?,
            complete: ops.wr_complete?,
            send: ops.wr_send?,
            send_imm: ops.wr_send_imm?,
            connected: connected.map(|(write, write_imm)| Connected {
                write,
                write_imm,
                read: ops.wr_rdma_read,
                fetch_add: ops.wr_atomic_fetch_add,
                compare_swap: ops.wr_atomic_cmp_swp,
            }),
            set_ud_addr: ops.wr_set_ud_addr,
            set_sge: ops.wr_set_sge?,
            set_sge_list: ops.wr_set_sge_list?,
            set_inline: ops.wr_set_inline_data?,
            set_inline_list: ops.wr_set_inline_data_list?,
        })
    }

    /// Posts `requests` up to the first invalid one.
    pub(crate) fn post_send(
        &self,
        qp: &RawQp,
        requests: &[SendRequest<'_>],
    ) -> Result<(), PostError> {
        let wrong = requests.iter().enumerate().find_map(|(index, request)| {
            let refused = qp.check_send(request).err().or_else(|| {
                let known = self.has(&request.operation);
                (!known).then(|| qp.handle().unsupported("such an operation").into())
            });
            refused.map(|cause| at(index, cause))
        });
        let right = &requests[..wrong.as_ref().map_or(requests.len(), |error| error.index)];
        if self.post_all(right) != 0 {
            self.post_singly(qp, right)?;
        }
        wrong.map_or(Ok(()), Err)
    }

    fn post_singly(&self, qp: &RawQp, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
        for (index, request) in requests.iter().enumerate() {
            let result = self.post_all(std::slice::from_ref(request));
            if result != 0 {
                return Err(at(index, qp.explain_send(errno_of(result), request)));
            }
        }
        Ok(())
    }

    fn has(&self, operation: &Operation) -> bool {
        let connected = self.connected.as_ref();
        match operation {
            Operation::Send | Operation::SendWithImm(_) => true,
            Operation::RdmaWrite(_) | Operation::RdmaWriteWithImm(..) => connected.is_some(),
            Operation::RdmaRead(_) => connected.is_some_and(|ops| ops.read.is_some()),
            Operation::FetchAdd(..) => connected.is_some_and(|ops| ops.fetch_add.is_some()),
            Operation::CompareSwap(..) => connected.is_some_and(|ops| ops.compare_swap.is_some()),
            _ => false,
        }
    }

    /// Posts all requests or none; returns the driver's result.
    #[inline]
    fn post_all(&self, requests: &[SendRequest<'_>]) -> i32 {
        if requests.is_empty() {
            return 0;
        }
        let qp = self.qp.as_ptr();
        // SAFETY: the queue pair is not destroyed yet; requests are written between start and complete,
        // and the payload of inline ones is readable, as `Sge` guarantees.
        unsafe {
            (self.start)(qp);
            for request in requests {
                (*qp).wr_id = request.wr_id.0;
                (*qp).wr_flags = request.flags.bits();
                self.write_operation(&request.operation);
                if let (Some(set), Some(to)) = (self.set_ud_addr, request.to) {
                    let ah = ptr::with_exposed_provenance_mut(to.ah.name() as usize);
                    set(qp, ah, to.qpn.get(), to.qkey);
                }
                self.write_sges(request);
            }
            (self.complete)(qp)
        }
    }

    /// # Safety
    /// Called between start and complete, with an operation that the queue pair has.
    #[inline]
    unsafe fn write_operation(&self, operation: &Operation) {
        let qp = self.qp.as_ptr();
        let connected = self.connected.as_ref();
        // SAFETY: the caller has started the request.
        unsafe {
            match (*operation, connected) {
                (Operation::Send, _) => (self.send)(qp),
                (Operation::SendWithImm(imm), _) => (self.send_imm)(qp, imm.0.to_be()),
                (Operation::RdmaWrite(at), Some(ops)) => (ops.write)(qp, at.rkey.0, at.addr),
                (Operation::RdmaWriteWithImm(at, imm), Some(ops)) => {
                    (ops.write_imm)(qp, at.rkey.0, at.addr, imm.0.to_be());
                }
                (Operation::RdmaRead(at), Some(Connected { read: Some(op), .. })) => {
                    op(qp, at.rkey.0, at.addr);
                }
                (
                    Operation::FetchAdd(at, add),
                    Some(Connected {
                        fetch_add: Some(op),
                        ..
                    }),
                ) => op(qp, at.rkey.0, at.addr, add),
                (
                    Operation::CompareSwap(at, values),
                    Some(Connected {
                        compare_swap: Some(op),
                        ..
                    }),
                ) => op(qp, at.rkey.0, at.addr, values.expected, values.new),
                _ => unreachable!("operations that the queue pair lacks are refused before"),
            }
        }
    }

    /// # Safety
    /// Called between start and complete, after `write_operation`.
    #[inline]
    unsafe fn write_sges(&self, request: &SendRequest<'_>) {
        let qp = self.qp.as_ptr();
        let inline = request.flags.contains(SendFlags::INLINE);
        // SAFETY: the caller has started the request; an `Sge` has the layout of `ibv_sge`.
        unsafe {
            match (request.sges, inline) {
                ([one], false) => (self.set_sge)(qp, one.lkey().0, one.addr(), one.length()),
                (sges, false) => (self.set_sge_list)(qp, sges.len(), sges.as_ptr().cast()),
                ([one], true) => {
                    let buffer = buffer(one);
                    (self.set_inline)(qp, buffer.addr, buffer.length);
                }
                (sges, true) if sges.len() <= ON_STACK => {
                    let mut buffers = [const { MaybeUninit::uninit() }; ON_STACK];
                    for (to, sge) in buffers.iter_mut().zip(sges) {
                        to.write(buffer(sge));
                    }
                    (self.set_inline_list)(qp, sges.len(), buffers.as_ptr().cast());
                }
                (sges, true) => {
                    let buffers: Vec<_> = sges.iter().map(buffer).collect();
                    (self.set_inline_list)(qp, buffers.len(), buffers.as_ptr());
                }
            }
        }
    }
}

fn buffer(sge: &Sge<'_>) -> abi::ibv_data_buf {
    abi::ibv_data_buf {
        addr: ptr::with_exposed_provenance_mut(sge.addr() as usize),
        length: sge.length() as usize,
    }
}

type CreateQpEx =
    unsafe extern "C" fn(*mut abi::ibv_context, *mut abi::ibv_qp_init_attr_ex) -> *mut abi::ibv_qp;

/// Creates a queue pair with the extended interface (`ibv_create_qp_ex`) and stores its sizes in `attr`.
pub(crate) fn create(
    pd: &PdInner,
    attr: &mut abi::ibv_qp_init_attr,
) -> Result<(NonNull<abi::ibv_qp>, ExtendedPost), CreateError> {
    let handle = &pd.handle;
    let unsupported = || handle.unsupported("extended posting (ibv_create_qp_ex, ibv_wr_start)");
    let context = handle.raw.as_ptr();
    // SAFETY: the context is open; rdma-core declares this member with the type `CreateQpEx`.
    let create = unsafe {
        abi::verbs_context::op::<CreateQpEx>(context, offset_of!(abi::verbs_context, create_qp_ex))
    }
    .ok_or_else(unsupported)?;
    let convert = handle.library().qp_to_qp_ex.ok_or_else(unsupported)?;
    let mut extended = extended_attr(pd, attr, handle.caps.atomics);
    // SAFETY: the caller holds the domain and the CQs; the structure is exclusive.
    let qp = unsafe { create(context, &raw mut extended) };
    let raw = NonNull::new(qp).ok_or_else(|| match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
            unsupported().into()
        }
        error => refused(handle, attr, error),
    })?;
    attr.cap = extended.cap;
    // SAFETY: the queue pair was just created.
    let ops = NonNull::new(unsafe { convert(raw.as_ptr()) }).and_then(ExtendedPost::of);
    let Some(ops) = ops else {
        // SAFETY: it was just created and nothing refers to it.
        unsafe { (handle.library().ibv_destroy_qp)(raw.as_ptr()) };
        return Err(unsupported().into());
    };
    Ok((raw, ops))
}

fn extended_attr(
    pd: &PdInner,
    attr: &abi::ibv_qp_init_attr,
    atomics: adverb_verbs::AtomicCap,
) -> abi::ibv_qp_init_attr_ex {
    abi::ibv_qp_init_attr_ex {
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        comp_mask: abi::IBV_QP_INIT_ATTR_PD | abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: pd.raw.as_ptr(),
        send_ops_flags: operations(attr.qp_type, atomics),
        ..abi::ibv_qp_init_attr_ex::zeroed()
    }
}

/// Returns the operations of a transport service.
fn operations(qp_type: u32, atomics: adverb_verbs::AtomicCap) -> u64 {
    let sends = abi::IBV_QP_EX_WITH_SEND | abi::IBV_QP_EX_WITH_SEND_WITH_IMM;
    let writes = abi::IBV_QP_EX_WITH_RDMA_WRITE | abi::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    let both = abi::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | abi::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    let atomic = match atomics {
        adverb_verbs::AtomicCap::None => 0,
        _ => both,
    };
    match qp_type {
        abi::IBV_QPT_UD => sends,
        abi::IBV_QPT_UC => sends | writes,
        _ => sends | writes | abi::IBV_QP_EX_WITH_RDMA_READ | atomic,
    }
}

#[cfg(test)]
mod tests {
    use adverb_verbs::AtomicCap;

    use super::*;

    #[test]
    fn a_service_asks_only_for_operations_that_it_has() {
        let rc = operations(abi::IBV_QPT_RC, AtomicCap::None);
        assert_eq!(rc & abi::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, 0);
        assert_ne!(rc & abi::IBV_QP_EX_WITH_RDMA_READ, 0);
        let uc = operations(abi::IBV_QPT_UC, AtomicCap::Device);
        assert_eq!(uc & abi::IBV_QP_EX_WITH_RDMA_READ, 0);
        let ud = operations(abi::IBV_QPT_UD, AtomicCap::Device);
        assert_eq!(ud & abi::IBV_QP_EX_WITH_RDMA_WRITE, 0);
    }
}
