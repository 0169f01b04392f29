//! Posting through the classic interface (`ibv_post_send`, `ibv_post_recv`).
//!
//! Requests become a linked list of C structures, on the stack or, if there are many, in memory that
//! each thread keeps. One call posts the list, so it costs one doorbell.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ptr;

use adverb_abi as abi;
use adverb_verbs::{
    Operation, PostError, PostErrorCause, RecvRequest, RemoteAddress, SendRequest, Sge,
};

use crate::raw_qp::RawQp;

/// Longest list that is built on the stack.
const ON_STACK: usize = 16;

type SendSlot = MaybeUninit<abi::ibv_send_wr>;
type RecvSlot = MaybeUninit<abi::ibv_recv_wr>;

// `Sge` has the layout of `ibv_sge` (address, length, key), so lists are passed without a copy.
const _: () = assert!(
    size_of::<Sge<'_>>() == size_of::<abi::ibv_sge>()
        && align_of::<Sge<'_>>() == align_of::<abi::ibv_sge>()
);

thread_local! {
    static SEND_SLOTS: RefCell<Vec<SendSlot>> = const { RefCell::new(Vec::new()) };
    static RECV_SLOTS: RefCell<Vec<RecvSlot>> = const { RefCell::new(Vec::new()) };
}

#[inline]
pub(crate) fn post_send(qp: &RawQp, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
    if requests.len() <= ON_STACK {
        let mut slots = [const { SendSlot::uninit() }; ON_STACK];
        return post_sends(qp, requests, &mut slots);
    }
    SEND_SLOTS.with_borrow_mut(|slots| {
        slots.resize_with(slots.len().max(requests.len()), SendSlot::uninit);
        post_sends(qp, requests, slots)
    })
}

/// Posts `requests` up to the first invalid one, as a list in `slots`, which are at least as many.
#[inline]
fn post_sends(
    qp: &RawQp,
    requests: &[SendRequest<'_>],
    slots: &mut [SendSlot],
) -> Result<(), PostError> {
    let first = slots.as_mut_ptr().cast::<abi::ibv_send_wr>();
    let mut wrong = Ok(());
    let mut count = 0;
    for request in requests {
        if let Err(cause) = qp.check_send(request) {
            wrong = Err(PostError {
                index: count,
                cause,
            });
            break;
        }
        // SAFETY: there are as many slots as requests. The link to the next slot is overwritten with
        // null below if that slot stays unused.
        unsafe { write_send(first.add(count), request) };
        count += 1;
    }
    if count == 0 {
        return wrong;
    }
    let raw = qp.ptr.as_ptr();
    let mut bad = ptr::null_mut();
    // SAFETY: the queue pair is not destroyed yet; the first `count` slots are a list that ends here.
    let result = unsafe {
        (*first.add(count - 1)).next = ptr::null_mut();
        let post = abi::ops((*raw).context).post_send;
        post.expect("every driver has post_send")(raw, first, &raw mut bad)
    };
    if result == 0 {
        return wrong;
    }
    let index = place(bad, first, count);
    Err(PostError {
        index,
        cause: qp.explain_send(errno_of(result), &requests[index]),
    })
}

/// Writes the fields that the driver reads for this operation; the others stay uninitialised.
///
/// # Safety
/// `to` is writable, and `to + 1` is within or one past the end of the same allocation.
#[inline]
unsafe fn write_send(to: *mut abi::ibv_send_wr, request: &SendRequest<'_>) {
    // SAFETY: the caller guarantees that `to` is writable; no field is read.
    unsafe {
        (&raw mut (*to).wr_id).write(request.wr_id.0);
        (&raw mut (*to).next).write(to.add(1));
        (&raw mut (*to).sg_list).write(request.sges.as_ptr().cast_mut().cast());
        (&raw mut (*to).num_sge).write(request.sges.len() as i32);
        (&raw mut (*to).send_flags).write(request.flags.bits());
        let opcode = write_operation(to, &request.operation);
        (&raw mut (*to).opcode).write(opcode);
        if let Some(destination) = request.to {
            (&raw mut (*to).wr.ud).write(abi::ibv_send_wr_ud {
                ah: ptr::with_exposed_provenance_mut(destination.ah.name() as usize),
                remote_qpn: destination.qpn.get(),
                remote_qkey: destination.qkey,
            });
        }
    }
}

/// Writes the operands of an operation and returns its opcode.
///
/// # Safety
/// As of [`write_send`].
#[inline]
unsafe fn write_operation(to: *mut abi::ibv_send_wr, operation: &Operation) -> u32 {
    let rdma = |remote: RemoteAddress| {
        let operands = abi::ibv_send_wr_rdma {
            remote_addr: remote.addr,
            rkey: remote.rkey.0,
        };
        // SAFETY: the caller guarantees that `to` is writable.
        unsafe { (&raw mut (*to).wr.rdma).write(operands) };
    };
    let atomic = |remote: RemoteAddress, compare_add, swap| {
        let operands = abi::ibv_send_wr_atomic {
            remote_addr: remote.addr,
            compare_add,
            swap,
            rkey: remote.rkey.0,
        };
        // SAFETY: the caller guarantees that `to` is writable.
        unsafe { (&raw mut (*to).wr.atomic).write(operands) };
    };
    // SAFETY: the caller guarantees that `to` is writable.
    let imm = |value: u32| unsafe { (&raw mut (*to).imm_data).write(value.to_be()) };
    match *operation {
        Operation::Send => abi::IBV_WR_SEND,
        Operation::SendWithImm(value) => {
            imm(value.0);
            abi::IBV_WR_SEND_WITH_IMM
        }
        Operation::RdmaWrite(remote) => {
            rdma(remote);
            abi::IBV_WR_RDMA_WRITE
        }
        Operation::RdmaWriteWithImm(remote, value) => {
            rdma(remote);
            imm(value.0);
            abi::IBV_WR_RDMA_WRITE_WITH_IMM
        }
        Operation::RdmaRead(remote) => {
            rdma(remote);
            abi::IBV_WR_RDMA_READ
        }
        Operation::FetchAdd(remote, add) => {
            atomic(remote, add, 0);
            abi::IBV_WR_ATOMIC_FETCH_AND_ADD
        }
        Operation::CompareSwap(remote, values) => {
            atomic(remote, values.expected, values.new);
            abi::IBV_WR_ATOMIC_CMP_AND_SWP
        }
        // An operation added to the traits later: drivers refuse this opcode.
        _ => u32::MAX,
    }
}

#[inline]
pub(crate) fn post_recv(qp: &RawQp, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
    let raw = qp.ptr.as_ptr();
    // SAFETY: the queue pair, and so its context, is not destroyed yet.
    let post = unsafe { abi::ops((*raw).context).post_recv };
    let post = post.expect("every driver has post_recv");
    // SAFETY: the queue pair is not destroyed yet; `first` is a list that ends with null.
    let post = |first, bad| unsafe { post(raw, first, bad) };
    post_recv_list(requests, post, |errno, i| {
        qp.explain_recv(errno, &requests[i])
    })
}

type Bad = *mut *mut abi::ibv_recv_wr;

/// Writes `requests` as a list, has `post` post it, and `explain` its refusal.
#[inline]
pub(crate) fn post_recv_list(
    requests: &[RecvRequest<'_>],
    post: impl FnOnce(*mut abi::ibv_recv_wr, Bad) -> i32,
    explain: impl FnOnce(i32, usize) -> PostErrorCause,
) -> Result<(), PostError> {
    if requests.len() <= ON_STACK {
        let mut slots = [const { RecvSlot::uninit() }; ON_STACK];
        return post_recvs(requests, &mut slots, post, explain);
    }
    RECV_SLOTS.with_borrow_mut(|slots| {
        slots.resize_with(slots.len().max(requests.len()), RecvSlot::uninit);
        post_recvs(requests, slots, post, explain)
    })
}

#[inline]
fn post_recvs(
    requests: &[RecvRequest<'_>],
    slots: &mut [RecvSlot],
    post: impl FnOnce(*mut abi::ibv_recv_wr, Bad) -> i32,
    explain: impl FnOnce(i32, usize) -> PostErrorCause,
) -> Result<(), PostError> {
    let first = slots.as_mut_ptr().cast::<abi::ibv_recv_wr>();
    for (i, request) in requests.iter().enumerate() {
        let is_last = i + 1 == requests.len();
        // SAFETY: there are as many slots as requests.
        unsafe {
            let next = if is_last {
                ptr::null_mut()
            } else {
                first.add(i + 1)
            };
            first.add(i).write(abi::ibv_recv_wr {
                wr_id: request.wr_id.0,
                next,
                sg_list: request.sges.as_ptr().cast_mut().cast(),
                num_sge: request.sges.len() as i32,
            });
        }
    }
    if requests.is_empty() {
        return Ok(());
    }
    let mut bad = ptr::null_mut();
    let result = post(first, &raw mut bad);
    if result == 0 {
        return Ok(());
    }
    let index = place(bad, first, requests.len());
    let cause = explain(errno_of(result), index);
    Err(PostError { index, cause })
}

/// Returns the index of `bad` in the list of `count` at `first`, or 0 if the driver did not set it to
/// an element of the list.
fn place<T>(bad: *const T, first: *const T, count: usize) -> usize {
    let index = (bad as usize).wrapping_sub(first as usize) / size_of::<T>();
    if index < count { index } else { 0 }
}

/// Returns the errno of a result: drivers return it, or its negative, or -1 and set `errno`.
pub(crate) fn errno_of(result: i32) -> i32 {
    match crate::raw::check(result) {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(result),
    }
}

pub(crate) fn at(index: usize, cause: PostErrorCause) -> PostError {
    PostError { index, cause }
}

#[cfg(test)]
mod tests {
    use adverb_verbs::{Comparison, Imm, Lkey, Rkey, SendFlags, WrId};

    use super::*;

    const REMOTE: RemoteAddress = RemoteAddress {
        addr: 0x1122_3344_5566,
        rkey: Rkey(77),
    };

    fn written(operation: Operation) -> abi::ibv_send_wr {
        let request = SendRequest::new(WrId(5), operation, &[]).with_flags(SendFlags::SIGNALED);
        let mut slot = abi::ibv_send_wr::zeroed();
        // SAFETY: the slot is exclusive.
        unsafe { write_send(&raw mut slot, &request) };
        slot
    }

    #[test]
    fn an_sge_has_the_layout_of_c() {
        // SAFETY: without inline any value is safe.
        let sge = unsafe { Sge::from_raw(0x0102_0304_0506_0708, 0x1112_1314, Lkey(0x2122_2324)) };
        // SAFETY: both have the same size, and all their bytes are initialised.
        let c: abi::ibv_sge = unsafe { std::mem::transmute(sge) };
        assert_eq!(
            (c.addr, c.length, c.lkey),
            (sge.addr(), 0x1112_1314, 0x2122_2324)
        );
    }

    #[test]
    fn immediate_data_goes_in_network_order() {
        let wr = written(Operation::RdmaWriteWithImm(REMOTE, Imm(0x0102_0304)));
        assert_eq!(wr.imm_data.to_ne_bytes(), [1, 2, 3, 4]);
        assert_eq!(wr.opcode, abi::IBV_WR_RDMA_WRITE_WITH_IMM);
        // SAFETY: the operands of a WRITE were written.
        let rdma = unsafe { wr.wr.rdma };
        assert_eq!((rdma.remote_addr, rdma.rkey), (REMOTE.addr, 77));
        assert_eq!((wr.wr_id, wr.send_flags), (5, abi::IBV_SEND_SIGNALED));
    }

    #[test]
    fn atomic_operands_go_to_their_places() {
        let (expected, new) = (1, 2);
        let wr = written(Operation::CompareSwap(REMOTE, Comparison { expected, new }));
        // SAFETY: the operands of an atomic were written.
        let atomic = unsafe { wr.wr.atomic };
        assert_eq!((atomic.compare_add, atomic.swap, atomic.rkey), (1, 2, 77));
        let wr = written(Operation::FetchAdd(REMOTE, 9));
        // SAFETY: the operands of an atomic were written.
        assert_eq!(unsafe { wr.wr.atomic.compare_add }, 9);
        assert_eq!(wr.opcode, abi::IBV_WR_ATOMIC_FETCH_AND_ADD);
    }

    #[test]
    fn a_refused_request_is_found_in_its_list() {
        let list = [abi::ibv_recv_wr::zeroed(); 4];
        let first = list.as_ptr();
        assert_eq!(place(&raw const list[2], first, 4), 2);
        assert_eq!(place(ptr::null(), first, 4), 0);
    }
}
